"""NumPy's reductions. Entries that are not stored count with the fill; see `sparsejax.lax.reduce`."""

from __future__ import annotations

import math as _math
from typing import Any

from sparsejax.core.primitive import asarray as _asarray
from sparsejax.lax.elementwise import convert_element_type as _convert_element_type
from sparsejax.lax.elementwise import elementwise as _elementwise
from sparsejax.lax.reduce import MOST as _MOST
from sparsejax.lax.reduce import reduce as _reduce
from sparsejax.lax.reduce import result_dtype as _result_dtype
from sparsejax.lax.reduce import var
from sparsejax.lax.sorting import cumsum as _cumsum
from sparsejax.lax.structural import normal_axes as _normal_axes
from sparsejax.lax.structural import reshape as _reshape


def sum(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """`numpy.sum`."""
    return _reduce("sum", x, axis, dtype, keepdims)


def prod(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """`numpy.prod`."""
    return _reduce("prod", x, axis, dtype, keepdims)


def max(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """`numpy.max`; entries that are not stored count with the fill."""
    return _reduce("max", x, axis, None, keepdims)


def min(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """`numpy.min`; entries that are not stored count with the fill."""
    return _reduce("min", x, axis, None, keepdims)


def any(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """`numpy.any`."""
    return _reduce("any", x, axis, None, keepdims)


def all(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """`numpy.all`."""
    return _reduce("all", x, axis, None, keepdims)


def std(x: Any, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    """`numpy.std`: the root of `var`."""
    return _elementwise("sqrt", var(x, axis, dtype, ddof, keepdims))


def count_nonzero(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """`numpy.count_nonzero`: stored zeros do not count, a fill other than zero does.

    OverflowError where there may be more than 2^63 - 1 of them: the fill is not zero, and so many elements are counted.

    >>> import sparsejax as sj
    >>> count_nonzero(sj.array([[0, 2], [3, 0]], format="csr"), axis=0)
    Array([1, 1], dtype=int64)
    """
    there = _elementwise("not_equal", x, 0)
    axes = range(there.ndim) if axis is None else _normal_axes(axis, there.ndim)
    count = _math.prod(there.shape[a] for a in axes)
    if count > _MOST and there.fill_value:
        raise OverflowError(
            f"count_nonzero: of the {count} elements that are counted, more than 2^63 - 1 may differ from zero, since the fill does; "
            "count along fewer axes"
        )
    return _reduce("sum", there, axis, None, keepdims)


def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """`numpy.cumsum` along `axis`, or of the array flattened: dense, since sums stay where nothing is stored.

    >>> import numpy as np
    >>> cumsum(np.array([[1, 2], [3, 4]]), axis=0)
    Array([[1, 2],
           [4, 6]], dtype=int64)
    """
    x = _asarray(x)
    x = _convert_element_type(x, _result_dtype("sum", x.dtype, dtype))
    return _cumsum(_reshape(x, (x.size,)), 0) if axis is None else _cumsum(x, axis)
