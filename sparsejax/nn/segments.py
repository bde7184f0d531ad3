"""Reductions of the rows of an array by segments: products with the sparse matrix that has a one per row (`one_hot`).

`segment_ids[n]` is the segment of row `n`; ids may be in any order, and rows with ids outside of 0 to `num_segments` - 1 are dropped.
Without `num_segments`, the segments end with the largest id, which must then be known (outside of `jit`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.core.primitive import asarray
from sparsejax.core.trace import Tracer
from sparsejax.lax.contract import contract
from sparsejax.lax.elementwise import elementwise, where
from sparsejax.lax.reduce import reduce
from sparsejax.nn.activations import floating
from sparsejax.nn.one_hot import one_hot
from sparsejax.transforms.custom import stop_gradient


def _membership(data: Any, ids: Any, count: int | None) -> tuple[Any, Any]:
    data, ids = asarray(data, "data"), asarray(ids, "ids")
    if ids.ndim != 1 or not data.ndim or len(ids) != data.shape[0]:
        raise ValueError(
            f"ids of shape {ids.shape} must name a segment for each of the rows of data, of shape {data.shape}"
        )
    if count is None:
        if isinstance(ids, Tracer):
            raise TypeError(
                "num_segments must be given where the ids are traced: the shape of the result depends on it"
            )
        count = int(np.asarray(ids).max()) + 1 if ids.size else 0
    return data, one_hot(ids, count, data.dtype)


def _combined(semiring: str | None, data: Any, chosen: Any) -> Any:
    """out[s, ...] = add over n of chosen[n, s] * data[n, ...]"""
    rest = tuple(range(2, data.ndim + 1))
    return contract([chosen, data], [(0, 1), (0, *rest)], (1, *rest), semiring=semiring)


def _spread(values: Any, chosen: Any) -> Any:
    """out[n, ...] = values[segment of n, ...]"""
    rest = tuple(range(2, values.ndim + 1))
    return contract([chosen, values], [(0, 1), (1, *rest)], (0, *rest))


def segment_sum(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """The sum of the rows of each of `num_segments` segments.

    >>> import numpy as np
    >>> segment_sum(np.array([1.0, 2.0, 3.0]), np.array([1, 0, 1]), 3)
    Array([2., 4., 0.], dtype=float64)
    """
    return _combined(None, *_membership(data, segment_ids, num_segments))


def segment_max(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """The largest row entries of each segment; -inf (the least integer) for a segment without rows."""
    return _combined("max_second", *_membership(data, segment_ids, num_segments))


def segment_min(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """The smallest row entries of each segment; inf (the largest integer) for a segment without rows."""
    return _combined("min_second", *_membership(data, segment_ids, num_segments))


def segment_mean(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """The mean of the rows of each segment; 0 for a segment without rows."""
    data, chosen = _membership(floating(data), segment_ids, num_segments)
    sizes = reduce("sum", chosen, 0)
    weights = contract([chosen, 1 / elementwise("maximum", sizes, 1)], [(0, 1), (1,)], (0, 1))
    return _combined(None, data, weights)


def segment_softmax(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """exp(data) over its sum in the segment of each row."""
    data, chosen = _membership(floating(data), segment_ids, num_segments)
    most = _combined("max_second", data, chosen)
    most = stop_gradient(where(elementwise("isfinite", most), most, 0.0))
    grown = elementwise("exp", data - _spread(most, chosen))
    return grown / _spread(_combined(None, grown, chosen), chosen)
