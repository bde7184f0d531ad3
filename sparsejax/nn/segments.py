"""Reductions of the rows of an array by segments: accumulated where ids say (`lax.indirect`).

`segment_ids[n]` is the segment of row `n`; ids may be in any order, and rows with ids outside of 0 to `num_segments` - 1 are dropped.
Without `num_segments`, the segments end with the largest id, which must then be known (outside of `jit`).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.core.trace import Tracer
from sparsejax.formats import Format
from sparsejax.lax.elementwise import elementwise, where
from sparsejax.lax.extents import empty
from sparsejax.lax.indirect import rows
from sparsejax.lax.names import full
from sparsejax.lax.structural import convert_format, extent, reshape
from sparsejax.nn.activations import floating
from sparsejax.transforms.custom import stop_gradient


def _segments(data: Any, ids: Any, count: int | None) -> tuple[Any, Any, Any]:
    """Both as arrays, and a vector of as many places as there are segments, of which nothing is stored: how many there are is an extent like others,
    so that another number is no other program."""
    data, ids = asarray(data, "data"), asarray(ids, "segment_ids")
    if ids.shape != data.shape[:1] or not data.ndim:
        raise ValueError(
            f"segment_ids of shape {ids.shape} must name a segment for each of the rows of data, of shape {data.shape}"
        )
    if ids.dtype.kind not in "iu":
        raise TypeError(f"segment_ids must be integers, not {ids.dtype}")
    if count is None:
        if isinstance(ids, Tracer):
            raise TypeError(
                "num_segments must be given where segment_ids are traced: the shape of the result depends on it"
            )
        count = max(int(np.asarray(ids).max()) + 1, 0) if ids.size else 0
    if type(count) is not int:
        count = extent(count, "num_segments")
    return data, ids, _kept(count) if type(count) is int else _without_entries(count)


def _without_entries(count: Any) -> Any:
    return empty((count,), np.dtype(np.bool_), Format.parse("coo", 1), 0)


@functools.lru_cache(maxsize=64)
def _kept(count: int) -> Any:
    return _without_entries(extent(count, "num_segments"))


@again(3, whole=True)
def _combined(data: Any, ids: Any, segments: Any, op: str) -> Any:
    """out[ids[n], ...] op= data[n, ...]"""
    (count,) = segments.shape
    if data.dtype.kind == "c" and op != "add":
        raise TypeError(f"segments of complex numbers have no {op}: complex numbers are not ordered")
    if data.format.is_dense:
        return rows.accumulated(op, data, {0: ids}, (count, *data.shape[1:]), drop=True)
    return rows.combined(op, data, ids, count)


def _spread(values: Any, ids: Any) -> Any:
    """out[n, ...] = values[ids[n], ...]"""
    return rows.gathered(convert_format(values, "dense"), {0: ids}, drop=True)


def segment_sum(data: Any, segment_ids: Any, num_segments: int | None = None) -> Array:
    """The sum of the rows of each of `num_segments` segments.

    >>> import numpy as np
    >>> segment_sum(np.array([1.0, 2.0, 3.0]), np.array([1, 0, 1]), 3)
    Array([2., 4., 0.], dtype=float64)
    """
    return _combined(*_segments(data, segment_ids, num_segments), "add")


def segment_max(data: Any, segment_ids: Any, num_segments: int | None = None) -> Array:
    """The largest row entries of each segment; -inf (the least integer) for a segment without rows."""
    return _combined(*_segments(data, segment_ids, num_segments), "maximum")


def segment_min(data: Any, segment_ids: Any, num_segments: int | None = None) -> Array:
    """The smallest row entries of each segment; inf (the largest integer) for a segment without rows."""
    return _combined(*_segments(data, segment_ids, num_segments), "minimum")


def segment_mean(data: Any, segment_ids: Any, num_segments: int | None = None) -> Array:
    """The mean of the rows of each segment; 0 for a segment without rows."""
    return _mean(*_segments(floating(data), segment_ids, num_segments))


@again(3, whole=True)
def _mean(data: Any, ids: Any, segments: Any) -> Any:
    sizes = _combined(full(ids.shape, 1, data.dtype), ids, segments, "add")
    weights = _spread(1 / elementwise("maximum", sizes, 1), ids)
    return _combined(data * _column(weights, data.ndim), ids, segments, "add")


def _column(x: Any, ndim: int) -> Any:
    return reshape(x, (x.shape[0], *[1] * (ndim - 1)))


def segment_softmax(data: Any, segment_ids: Any, num_segments: int | None = None) -> Array:
    """exp(data) over its sum in the segment of each row."""
    return _softmax(*_segments(floating(data), segment_ids, num_segments))


@again(3, whole=True)
def _softmax(data: Any, ids: Any, segments: Any) -> Any:
    most = _combined(data, ids, segments, "maximum")
    most = stop_gradient(where(elementwise("isfinite", most), most, 0.0))
    grown = elementwise("exp", data - _spread(most, ids))
    return grown / _spread(_combined(grown, ids, segments, "add"), ids)
