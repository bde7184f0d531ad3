"""NumPy's functions that pass over NaN. A fill of NaN is passed over too."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.core.primitive import asarray
from sparsejax.lax.elementwise import convert_element_type, elementwise, imag, real, strong, where
from sparsejax.lax.reduce import reduce


def nan_to_num(x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """`numpy.nan_to_num`: numbers in place of NaN and infinities (those of largest magnitude unless given). The fill is mapped too.

    >>> nan_to_num(np.array([np.nan, 1.0, np.inf]), posinf=9)
    Array([0., 1., 9.], dtype=float64)
    """
    x = asarray(x)
    if x.dtype.kind not in "fc":
        return strong(x)
    if x.dtype.kind == "c":
        parts = (nan_to_num(part, nan, posinf, neginf) for part in (real(x), imag(x)))
        first, second = parts
        return convert_element_type(elementwise("add", first, elementwise("multiply", second, 1j)), x.dtype)
    limits = np.finfo(x.dtype)
    high, low = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    made = where(elementwise("isnan", x), x.dtype.type(nan), x)
    made = where(elementwise("equal", made, np.inf), x.dtype.type(high), made)
    return where(elementwise("equal", made, -np.inf), x.dtype.type(low), made)


def _without(x: Any, value: Any) -> Any:
    """`x` with `value` in place of NaN."""
    return where(elementwise("isnan", x), x.dtype.type(value), x) if x.dtype.kind in "fc" else x


def nansum(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """`numpy.nansum`: NaN counts as zero.

    >>> nansum(np.array([np.nan, 1.0, 2.0]))
    Array(3., dtype=float64)
    """
    return reduce("sum", _without(asarray(x), 0), axis, dtype, keepdims)


def nanmax(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """`numpy.nanmax`: NaN where there is nothing else.

    >>> nanmax(np.array([np.nan, 1.0, 2.0]))
    Array(2., dtype=float64)
    """
    return _extreme("max", -np.inf, asarray(x), axis, keepdims)


def nanmin(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """`numpy.nanmin`: NaN where there is nothing else.

    >>> nanmin(np.array([np.nan, 1.0, 2.0]))
    Array(1., dtype=float64)
    """
    return _extreme("min", np.inf, asarray(x), axis, keepdims)


def _extreme(kind: str, worst: float, x: Any, axis: Any, keepdims: bool) -> Any:
    if x.dtype.kind not in "fc":
        return reduce(kind, x, axis, None, keepdims)
    found = reduce(kind, _without(x, worst), axis, None, keepdims)
    return where(reduce("all", elementwise("isnan", x), axis, None, keepdims), x.dtype.type(np.nan), found)


def nanmean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """`numpy.nanmean`: the mean of what is no NaN.

    >>> nanmean(np.array([np.nan, 1.0, 2.0]))
    Array(1.5, dtype=float64)
    """
    x = asarray(x)
    total = nansum(x if x.dtype.kind in "fc" else convert_element_type(x, float), axis, None, keepdims)
    there = elementwise("logical_not", elementwise("isnan", x))
    count = reduce("sum", there, axis, total.real.dtype, keepdims)
    return elementwise("divide", total, count)
