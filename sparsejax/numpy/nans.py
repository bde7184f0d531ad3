"""NumPy's functions that pass over NaN. A fill of NaN is passed over too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.lax import sorting
from sparsejax.lax.elementwise import convert_element_type, elementwise, imag, real, strong, where
from sparsejax.lax.extents import filled
from sparsejax.lax.reduce import MOST, reduce
from sparsejax.lax.structural import convert_format, normal_axes, reshape
from sparsejax.numpy.arranging import take_along_axis
from sparsejax.numpy.reductions import cumsum
from sparsejax.numpy.searching import argmax, argmin


@again(1, whole=True)
def nan_to_num(x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
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
    made = where(elementwise("equal", x, -np.inf), x.dtype.type(low), x)
    made = where(elementwise("equal", x, np.inf), x.dtype.type(high), made)
    return where(elementwise("isnan", x), x.dtype.type(nan), made)


def _without(x: Any, value: Any) -> Any:
    """`x` with `value` in place of NaN."""
    return where(elementwise("isnan", x), x.dtype.type(value), x) if x.dtype.kind in "fc" else x


@again(1, whole=True)
def nansum(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """`numpy.nansum`: NaN counts as zero.

    >>> nansum(np.array([np.nan, 1.0, 2.0]))
    Array(3., dtype=float64)
    """
    return reduce("sum", _without(asarray(x), 0), axis, dtype, keepdims)


@again(1, whole=True)
def nanmax(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """`numpy.nanmax`: NaN where there is nothing else.

    >>> nanmax(np.array([np.nan, 1.0, 2.0]))
    Array(2., dtype=float64)
    """
    return _extreme("max", -np.inf, asarray(x), axis, keepdims)


@again(1, whole=True)
def nanmin(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """`numpy.nanmin`: NaN where there is nothing else.

    >>> nanmin(np.array([np.nan, 1.0, 2.0]))
    Array(1., dtype=float64)
    """
    return _extreme("min", np.inf, asarray(x), axis, keepdims)


def _extreme(kind: str, worst: float, x: Any, axis: Any, keepdims: bool) -> Any:
    if x.dtype.kind not in "fc":
        return reduce(kind, x, axis, None, keepdims)
    found, undefined = reduce(kind, _without(x, worst), axis, None, keepdims), elementwise("isnan", x)
    count = math.prod(x.shape[a] for a in (range(x.ndim) if axis is None else normal_axes(axis, x.ndim)))
    if x.format.is_dense or undefined.fill_value:
        every = reduce("all", undefined, axis, None, keepdims)
    elif count > MOST:  # and what is not stored is a number
        return found
    else:
        many = reduce("sum", undefined, axis, None, keepdims)
        some = elementwise("greater", many, 0)  # false where nothing is stored, whatever the count is
        every = elementwise("logical_and", some, elementwise("equal", many, count))
    return where(every, x.dtype.type(np.nan), found)


@again(1, whole=True)
def nanprod(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """`numpy.nanprod`: NaN counts as one."""
    return reduce("prod", _without(asarray(x), 1), axis, dtype, keepdims)


def nancumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Array:
    """`numpy.nancumsum`: NaN counts as zero; dense."""
    return cumsum(_without(asarray(x), 0), axis, dtype)


@again(1, whole=True)
def nanmean(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """`numpy.nanmean`: the mean of what is no NaN.

    >>> nanmean(np.array([np.nan, 1.0, 2.0]))
    Array(1.5, dtype=float64)
    """
    x = _floating(x, dtype)
    total = nansum(x, axis, None, keepdims)
    return elementwise("divide", total, _present(x, axis, keepdims, total))


def _floating(x: Any, dtype: Any) -> Any:
    x = asarray(x)
    return convert_element_type(x, dtype if dtype is not None else x.dtype if x.dtype.kind in "fc" else float)


def _present(x: Any, axis: Any, keepdims: bool, like: Any) -> Any:
    """How many entries are no NaN."""
    there = elementwise("logical_not", elementwise("isnan", x))
    return reduce("sum", there, axis, real(like).dtype, keepdims)


@again(1, whole=True)
def nanvar(x: Any, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False) -> Array:
    """`numpy.nanvar`: the variance of what is no NaN."""
    x = _floating(x, dtype)
    moved = elementwise("subtract", x, nanmean(x, axis, None, True))
    away = elementwise("absolute", where(elementwise("isnan", x), 0, moved))  # infinities have a variance of NaN
    total = reduce("sum", elementwise("multiply", away, away), axis, None, keepdims)
    count = elementwise("subtract", _present(x, axis, keepdims, total), ddof)
    return elementwise("divide", total, where(elementwise("greater", count, 0), count, np.nan))


@again(1, whole=True)
def nanstd(x: Any, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False) -> Array:
    """`numpy.nanstd`: the root of `nanvar`.

    >>> nanstd(np.array([np.nan, 1.0, 3.0]))
    Array(1., dtype=float64)
    """
    return elementwise("sqrt", nanvar(x, axis, dtype, ddof, keepdims))


@again(1, whole=True)
def nanmedian(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """`numpy.nanmedian`: the middle entry of those that are no NaN; dense. O(n log n) for n stored entries.

    >>> nanmedian(np.array([np.nan, 1.0, 3.0]))
    Array(2., dtype=float64)
    """
    ordered, count, shape = ordered_lines(x, axis, keepdims)
    if not ordered.size:
        return asarray(filled(shape, np.nan, ordered.dtype))
    low = elementwise("maximum", elementwise("floor_divide", elementwise("subtract", count, 1), 2), 0)
    high = elementwise("floor_divide", count, 2) if ordered.shape[0] > 1 else low
    first, second = take_along_axis(ordered, low, 0), take_along_axis(ordered, high, 0)
    second = where(elementwise("equal", elementwise("remainder", count, 2), 1), first, second)
    return reshape(elementwise("multiply", elementwise("add", first, second), 0.5), shape)


def ordered_lines(x: Any, axis: Any, keepdims: bool) -> tuple[Any, Any, list[int]]:
    """The entries along the first axis, sorted and dense, NaN last; how many are no NaN; and the shape of a reduction."""
    x = _floating(x, None)
    axes = tuple(range(x.ndim)) if axis is None else tuple(sorted(normal_axes(axis, x.ndim)))
    kept = [d for d in range(x.ndim) if d not in axes]
    rest = [x.shape[d] for d in kept]
    line = reshape(x.transpose([*axes, *kept]), (math.prod(x.shape[d] for d in axes), *rest))
    count = reduce("sum", elementwise("logical_not", elementwise("isnan", line)), 0, np.int64)
    shape = [1 if d in axes else n for d, n in enumerate(x.shape)] if keepdims else rest
    ordered = convert_format(sorting.sort(line, 0), "dense")
    return ordered, reshape(convert_format(count, "dense"), (1, *rest)), shape


@again(1, whole=True)
def nanargmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """`numpy.nanargmax`: where the maximum is first, of what is no NaN; 0 where there is nothing else."""
    return argmax(_without(asarray(x), -np.inf), axis, keepdims)


@again(1, whole=True)
def nanargmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """`numpy.nanargmin`: where the minimum is first, of what is no NaN; 0 where there is nothing else."""
    return argmin(_without(asarray(x), np.inf), axis, keepdims)
