"""What the typing rules of kernel primitives share: a result's format and fill follow from its notation."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.formats import Format
from sparsejax.jit.ir import cin, infer_formats, simplify

Operand = cin.Tensor | cin.Literal


def dense(shape: tuple[int, ...], dtype: Any) -> Aval:
    """The type of a dense result, which no notation tells."""
    return Aval(shape, dtype, Format.parse("dense", len(shape)), 0)


def operands_of(avals: Sequence[Aval]) -> list[Operand]:
    """Placeholder operands for a notation rule: tensors, and literals for static scalars."""
    made: list[Operand] = []
    for k, aval in enumerate(avals):
        if aval.is_literal:
            made.append(simplify.literal(aval.fill_value, aval.dtype))
        else:
            made.append(cin.Tensor(f"x{k}", aval.shape, aval.dtype, aval.format, aval.fill_value))
    return made


def once(typing: Callable[..., Aval]) -> Callable[..., Aval]:
    """A typing rule, remembered with what `infer` remembers where all extents are known."""

    @functools.wraps(typing)
    def known(*avals: Aval, **params: Any) -> Aval:
        if any(type(n) is not int for a in avals for n in a.shape):
            return typing(*avals, **params)
        key = (typing, *avals, *params.items())
        made: Aval | None = infer_formats.remembered.get(key)
        if made is None:
            made = typing(*avals, **params)
            infer_formats.remembered.put(key, made)
        return made

    return known


def of_shape(change: Callable[[Any], Any], **params: Any) -> dict[str, Any]:
    """`Primitive.extents` of operations with one parameter that is a shape, called so."""
    return {name: tuple(map(change, value)) if name == "shape" else value for name, value in params.items()}


def alike(aval: Aval) -> Aval:
    """A type of other extents of which the same formats follow, in operations on arrays of one shape: one for all extents beyond 1 up to
    `infer_formats.DENSE_ROOT_LIMIT`, one for all larger ones. Blocks divide extents: types that have them stay as they are."""
    if aval.format.blocked:
        return aval
    limit = infer_formats.DENSE_ROOT_LIMIT
    return aval.at(tuple([n if type(n) is not int or n < 2 else 2 if n <= limit else limit + 1 for n in aval.shape]))


def infer(
    notation: Callable[..., cin.Definition],
    avals: Sequence[Aval],
    params: dict[str, Any],
    shape: tuple[int, ...],
    dtype: Any,
) -> Aval:
    """The type of `notation` applied to operands of these types; remembered where all extents are known."""
    if any(type(n) is not int for s in (shape, *(a.shape for a in avals)) for n in s):
        # what is asked of symbols is a guard of the trace that asks
        return _infer(notation, avals, params, shape, dtype)
    key = (notation, *avals, *params.items(), shape, dtype)
    known = infer_formats.remembered.get(key)
    if known is None:
        known = _infer(notation, avals, params, shape, dtype)
        infer_formats.remembered.put(key, known)
    return known


def _infer(
    notation: Callable[..., cin.Definition],
    avals: Sequence[Aval],
    params: dict[str, Any],
    shape: tuple[int, ...],
    dtype: Any,
) -> Aval:
    definition = notation(*operands_of(avals), **params)
    form, fill = infer_formats.infer(definition, shape, np.dtype(dtype))
    weak = bool(avals) and all(a.weak_type for a in avals)
    return Aval(shape, dtype, form, fill, weak)


def access(operand: Operand, indices: Sequence[cin.Index]) -> cin.Expr:
    """An operand at `indices`; a literal has none."""
    return operand if isinstance(operand, cin.Literal) else cin.Access(operand, tuple(indices))


def cast(expr: cin.Expr, dtype: np.dtype[Any]) -> cin.Expr:
    """`expr` as `dtype`."""
    return expr if expr.dtype == dtype else cin.Call("cast", (expr,), dtype)


def shape_of(operand: Operand) -> tuple[int, ...]:
    return () if isinstance(operand, cin.Literal) else operand.shape


def aligned(operand: Operand, indices: Sequence[cin.Index], shape: Sequence[int]) -> cin.Expr:
    """An operand broadcast to `shape` by NumPy's rules: missing axes are left out, axes of extent one read entry 0."""
    own = shape_of(operand)
    offset = len(shape) - len(own)
    picked: list[cin.Index] = []
    for axis, extent in enumerate(own):
        stretched = extent == 1 and shape[offset + axis] != 1
        picked.append(0 if stretched else indices[offset + axis])
    return access(operand, picked)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of operands by NumPy's rules (whose own function refuses sizes above 2^63)."""
    made: list[int] = []
    for extents in itertools.zip_longest(*(reversed(s) for s in shapes), fillvalue=1):
        wide = [n for n in extents if n != 1]
        if any(
            n != wide[0] for n in wide[1:]
        ):  # extents that are not known may be equal though they are spelled otherwise
            raise ValueError(f"operands could not be broadcast together with shapes {' '.join(map(str, shapes))}")
        made.append(wide[0] if wide else 1)
    return tuple(reversed(made))


def index_vars(count: int, stem: str = "i") -> tuple[cin.IndexVar, ...]:
    return tuple(cin.IndexVar(f"{stem}{k}") for k in range(count))
