"""What library calls share: functions of NumPy's arrays as rules of primitives, and batches of operations on the last axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched
from sparsejax.core.primitive import Primitive
from sparsejax.formats import convert
from sparsejax.formats.storage import Storage
from sparsejax.lax.rules.batching import moved, spread
from sparsejax.lax.structural import convert_format

Function = Callable[..., Any]


def stored(made: Any, aval: Aval) -> Storage:
    """A result of NumPy as the storage of a dense result of type `aval`."""
    return convert.from_dense(np.asarray(made, aval.dtype, order="C").reshape(aval.shape), aval.format, 0)


def on_arrays(function: Function) -> Function:
    """A `call` rule that hands NumPy's arrays to `function`, which gives one array, or a sequence of them."""

    def call(*xs: Storage, out_aval: Any, **params: Any) -> Any:
        made = function(*(convert.to_dense(x) for x in xs), **params)
        if isinstance(out_aval, Aval):
            return stored(made, out_aval)
        return [stored(m, a) for m, a in zip(made, out_aval, strict=True)]

    return call


def leading(primitive: Callable[[], Primitive]) -> Function:
    """A `batch` rule of an operation on the last axes, with any number of axes before them: the batch is the first one."""

    def batch(size: int, *xs: Any, **params: Any) -> Any:
        values = [convert_format(spread(x, size), "dense") for x in xs]
        bound = primitive()
        made = bound.bind(*(moved(v, v.ndim - 1, 0) for v in values), **params)
        return [moved(m, 0, m.ndim - 1) for m in made] if bound.multiple else moved(made, 0, made.ndim - 1)

    return batch


def is_batched(x: Any) -> bool:
    return isinstance(x, Batched)


def each(function: Function, core: Sequence[int]) -> Function:
    """A function of matrices as one of stacks of them; the k-th operand has its last `core[k]` axes for one call."""

    def stacks(*xs: NDArray[Any], **params: Any) -> list[NDArray[Any]]:
        outer = np.broadcast_shapes(*(x.shape[: x.ndim - c] for x, c in zip(xs, core, strict=True)))
        wide = [np.broadcast_to(x, outer + x.shape[x.ndim - c :]) for x, c in zip(xs, core, strict=True)]
        if 0 in outer:
            return []
        parts = [function(*(w[k] for w in wide), **params) for k in np.ndindex(outer)]
        return [np.reshape(p, (*outer, *np.shape(p[0]))) for p in map(np.asarray, zip(*parts, strict=True))]

    return stacks
