"""Linear recurrences of the first order, in segments: library calls. Products of segments, and of all others in them, are such.

y = recurrence x, b        y[k] = b[k] + x[k] y[k-1], from 0 where a segment begins        p[k] = x[k] p[k-1]: b = x where one begins, else 0
tangent                    dy[k] = (db[k] + dx[k] y[k-1]) + x[k] dy[k-1]                   the same of other b
cotangent of b             cb[k] = cy[k] + x[k+1] cb[k+1]                                  the same from behind
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.primitive import Primitive, asarray
from sparsejax.core.tangents import Linear
from sparsejax.formats import passes
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.elementwise import elementwise, where
from sparsejax.lax.indexing import concatenate, window
from sparsejax.lax.library.calls import on_arrays
from sparsejax.lax.linear import zeros
from sparsejax.lax.rules.batching import moved, spread
from sparsejax.lax.rules.elementwise_rules import added
from sparsejax.lax.structural import convert_format, reshape


def _shifted(x: Any, reverse: bool) -> Any:
    """x[k-1] at every k (or x[k+1]), zero where there is none."""
    n = x.shape[0]
    rest = window(x, [range(1, n) if reverse else range(n - 1)])
    edge = asarray(np.zeros(1, x.dtype))
    return concatenate([rest, edge] if reverse else [edge, rest], 0)


def _solved(x: NDArray[Any], b: NDArray[Any], begins: NDArray[Any], reverse: bool) -> NDArray[Any]:
    if not reverse:
        return passes.over(len(b)).recurred(x, b, begins)
    ends, factors = np.roll(begins, -1), np.roll(x, -1)  # of the segments from behind
    ends[-1:] = True
    return passes.over(len(b)).recurred(factors[::-1], b[::-1], ends[::-1])[::-1]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any, reverse: bool) -> Any:
    x, b, begins = primals
    dx, db, _ = tangents
    if dx is not None:
        if reverse:
            stays = where(begins, x.dtype.type(0), dx)
            more = elementwise("multiply", _shifted(stays, True), _shifted(out, True))
        else:
            more = where(begins, x.dtype.type(0), elementwise("multiply", dx, _shifted(out, False)))
        db = added(db, more)
    return recurrence(x, zeros(b.aval) if db is None else db, begins, reverse)


def _transpose(ct: Any, x: Any, b: Any, begins: Any, reverse: bool) -> list[Any]:
    assert isinstance(b, Linear) and not isinstance(x, Linear)
    return [None, recurrence(x, convert_format(ct, "dense"), begins, not reverse), None]


def _batch(size: int, *operands: Any, reverse: bool) -> Any:
    """One vector of all elements, each with a segment that begins where it does."""
    values = [convert_format(spread(o, size), "dense") for o in operands]
    x, b, begins = (moved(v, v.ndim - 1, 0) for v in values)
    n = b.shape[1]
    first = asarray(np.arange(n) == 0)
    begins = elementwise("logical_or", begins, first)
    flat = [reshape(v, (size * n,)) for v in (x, b, begins)]
    made = recurrence(flat[0], flat[1], flat[2], reverse)
    return moved(reshape(made, (size, n)), 0, 1)


recurrence_p: Primitive = Primitive(
    "recurrence",
    typing=lambda x, b, begins, reverse: rules.dense(b.shape, b.dtype),
    reference=_solved,
    call=on_arrays(_solved),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
)


def recurrence(x: Any, b: Any, begins: Any, reverse: bool = False) -> Any:
    """y[k] = b[k] + x[k] y[k-1] for vectors, where y[k-1] counts as 0 at every k at which a segment `begins`. With `reverse` from behind:
    y[k] = b[k] + x[k+1] y[k+1], where y[k+1] counts as 0 if a segment begins at k+1. O(n), one step after the other.

    >>> recurrence(np.array([2.0, 3.0, 4.0, 5.0]), np.array([2.0, 0.0, 4.0, 0.0]), np.array([True, False, True, False]))
    Array([ 2.,  6.,  4., 20.], dtype=float64)
    """
    return recurrence_p.bind(asarray(x), asarray(b), asarray(begins), reverse=reverse)
