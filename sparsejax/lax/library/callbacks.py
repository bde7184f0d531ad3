"""Calls of Python from inside traced functions: for results (`pure_callback`), and for what they show (`observe`).

    b = callback[f] a          f(a) for arrays, by a library call; nothing is known of its derivative
    _ = observe[f] a           the same without a result: it stays although nobody reads it (`Primitive.effect`)

A batch calls the function once for every element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched
from sparsejax.core.primitive import Primitive
from sparsejax.core.trace import eagerly
from sparsejax.formats import convert, ingest
from sparsejax.formats.storage import Storage
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.rules.batching import moved, spread

Function = Callable[..., Any]


class Callback:
    """A function of leaves, compared by identity; `batches` are its outer batches, as masks of the operands that differ."""

    def __init__(self, name: str, function: Function, batches: tuple[tuple[bool, ...], ...] = ()) -> None:
        self.name, self.function, self.batches = name, function, batches

    def __repr__(self) -> str:
        return self.name

    def __call__(self, *xs: Any) -> Any:
        return self._called(xs, self.batches)

    def _called(self, xs: Sequence[Any], batches: tuple[tuple[bool, ...], ...]) -> Any:
        if not batches:
            return self.function(*xs)
        mask, rest = batches[0], batches[1:]
        size = next(x.shape[0] for x, own in zip(xs, mask, strict=True) if own)
        return [self._called([x[k] if own else x for x, own in zip(xs, mask, strict=True)], rest) for k in range(size)]

    def batched(self, mask: tuple[bool, ...]) -> Callback:
        """The callback for a batch, the first axis of some operands."""
        return Callback(self.name, self.function, (mask, *self.batches))


def handed(x: Storage) -> Any:
    """An operand as the function sees it: a NumPy array of its own memory, or a sparse array."""
    if x.format.is_dense:
        return np.array(convert.to_dense(x))
    buffers = tuple(tuple(b.copy() for b in level) for level in x.buffers)
    return Array(Storage(x.format, x.shape, x.fill_value, buffers, x.vals.copy()))


def _result(made: Any, aval: Aval, name: str) -> Storage:
    if aval.format.is_dense:
        found = np.asarray(made.todense() if isinstance(made, Array) else made)
        if found.shape != aval.shape:
            raise ValueError(
                f"the callback {name} returned an array of shape {found.shape}, but {aval.shape} was promised"
            )
        return convert.from_dense(np.array(found, aval.dtype, order="C").reshape(aval.shape), aval.format, 0)
    storage = made._storage if isinstance(made, Array) else ingest.as_storage(made, copy=True)
    if storage.shape != aval.shape:
        raise ValueError(
            f"the callback {name} returned an array of shape {storage.shape}, but {aval.shape} was promised"
        )
    return convert.convert(ingest.astype(storage, aval.dtype), aval.format)


def _call(*xs: Storage, out_aval: Sequence[Aval], callback: Callback, avals: tuple[Aval, ...]) -> list[Storage]:
    with eagerly():
        made = callback(*map(handed, xs))
    if callback.batches:
        made = _transposed(made, len(callback.batches))
    found = list(made)
    if len(found) != len(out_aval):
        raise ValueError(
            f"the callback {callback.name} returned {len(found)} arrays, but {len(out_aval)} were promised"
        )
    return [_result(m, a, callback.name) for m, a in zip(found, out_aval, strict=True)]


def _transposed(made: Any, depth: int) -> list[Any]:
    """Nested lists of lists of results as one array per result."""
    if not depth:
        return [x.todense() if isinstance(x, Array) else np.asarray(x) for x in made]
    parts = [_transposed(m, depth - 1) for m in made]
    return [np.stack(column) for column in zip(*parts, strict=True)]


def _mask(xs: Sequence[Any]) -> tuple[bool, ...]:
    return tuple(isinstance(x, Batched) for x in xs)


def _front(size: int, xs: Sequence[Any]) -> list[Any]:
    """Operands with the batch, where they have one, as their first axis."""
    values = [spread(x, size) if isinstance(x, Batched) else None for x in xs]
    return [x if v is None else moved(v, v.ndim - 1, 0) for x, v in zip(xs, values, strict=True)]


def _batch(size: int, *xs: Any, callback: Callback, avals: tuple[Aval, ...]) -> list[Any]:
    mask = _mask(xs)
    wide = tuple(rules.dense((size, *a.shape), a.dtype) for a in avals)
    made = callback_p.bind(*_front(size, xs), callback=callback.batched(mask), avals=wide)
    return [moved(m, 0, m.ndim - 1) for m in made]


def _no_derivative(primals: Any, tangents: Any, outs: Any, callback: Callback, avals: Any) -> Any:
    raise ValueError(
        f"pure_callback of {callback.name} has no derivative: give it one with sparsejax.custom_jvp or custom_vjp, or stop it "
        "with sparsejax.stop_gradient"
    )


callback_p: Primitive = Primitive(
    "pure_callback",
    typing=lambda *xs, callback, avals: avals,
    reference=lambda *xs, callback, avals: list(callback(*xs)),
    call=_call,
    jvp=_no_derivative,
    batch=_batch,
    describe=lambda callback, avals: callback.name,
    multiple=True,
    asks=True,
)


# ----------------------------------------------------------------------------------------------------------- observe

TOKEN = Aval((), np.bool_, rules.dense((), np.bool_).format, False)


def _observe_call(*xs: Storage, out_aval: Aval, callback: Callback) -> Storage:
    with eagerly():
        callback(*map(handed, xs))
    return convert.from_dense(np.asarray(False), out_aval.format, False)


def _observe_batch(size: int, *xs: Any, callback: Callback) -> Any:
    mask = _mask(xs)
    return observe_p.bind(*_front(size, xs), callback=callback.batched(mask))


observe_p: Primitive = Primitive(
    "observe",
    typing=lambda *xs, callback: TOKEN,
    reference=lambda *xs, callback: np.asarray(callback(*xs) is not None and False),
    call=_observe_call,
    jvp=lambda primals, tangents, out, callback: None,
    batch=_observe_batch,
    describe=lambda callback: callback.name,
    effect=True,
    asks=True,
)


def observe(name: str, function: Function, xs: Sequence[Any]) -> None:
    """Call `function` with the values of `xs` whenever this point of the program is reached."""
    observe_p.bind(*xs, callback=Callback(name, function))


def called(name: str, function: Function, xs: Sequence[Any], avals: Sequence[Aval]) -> list[Any]:
    """What `function` makes of the values of `xs`: arrays of the types `avals`."""
    return list(callback_p.bind(*xs, callback=Callback(name, function), avals=tuple(avals)))
