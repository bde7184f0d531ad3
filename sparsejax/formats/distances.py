"""How far values are from a fill, and absolute values: exact for integers, as NumPy rounds for others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Flags = NDArray[np.bool_]

IN_CACHE = 1 << 15
"""Entries that are looked at together, so that what is between their passes stays in the cache."""


def differs(vals: Array, fill: Any, tol: Any = 0) -> Flags:
    """Which values differ from `fill` by more than `tol`: by 0, those that are not equal to it. NaN equals NaN alone. O(values).

    >>> differs(np.array([np.nan, 1.0, -2.0]), 0.0, 1)
    array([ True, False,  True])
    """
    if fill == 0 and vals.ndim == 1 and vals.dtype.kind in "fc" and (np.ndim(tol) or tol != 0):
        if len(vals) <= IN_CACHE:
            close: Flags = np.abs(vals) <= tol
            return np.logical_not(close, out=close)
        near = np.empty(len(vals), bool)
        size = np.empty(min(len(vals), IN_CACHE), vals.real.dtype)
        for start in range(0, len(vals), IN_CACHE):
            here = slice(start, start + IN_CACHE)
            found = np.abs(vals[here], out=size[: len(near[here])])
            np.less_equal(found, tol[here] if np.ndim(tol) else tol, out=near[here])
        return np.logical_not(near, out=near)
    unequal: Flags = vals != fill
    if fill != fill:
        unequal &= ~np.isnan(vals)
    if not np.ndim(tol) and tol == 0:
        return unequal
    if vals.dtype.kind in "fc":
        with np.errstate(invalid="ignore", over="ignore"):
            unequal &= ~(np.abs(vals - fill) <= tol)
        return unequal
    above: Flags = _integer_distance(vals, fill) > _whole(tol)
    return above


def _integer_distance(vals: Array, fill: Any) -> Array:
    """How far integers, or bools, are from `fill`: exact, as unsigned numbers."""
    distance: Array
    if vals.dtype.kind == "b":
        distance = np.logical_xor(vals, fill)
    elif not fill:
        distance = vals if vals.dtype.kind == "u" else np.abs(vals)
    else:
        distance = np.maximum(vals, fill) - np.minimum(vals, fill)  # wraps around, to what is right without a sign
    unsigned: Array = distance.view(np.dtype(f"u{vals.dtype.itemsize}"))
    return unsigned


def _whole(tol: Any) -> Any:
    """The largest integer that is not above `tol`, as far as 64 bits go: comparisons of integers with it are exact."""
    if np.ndim(tol):
        return tol
    return min(math.floor(tol), 2**64 - 1) if math.isfinite(tol) else 2**64 - 1


def magnitudes(vals: Array) -> Array:
    """Absolute values, those of integers as unsigned numbers.

    >>> magnitudes(np.array([-128, 3], np.int8))
    array([128,   3], dtype=uint8)
    """
    if vals.dtype.kind in "fc":
        sizes: Array = np.abs(vals)
        return sizes
    return _integer_distance(vals, vals.dtype.type(0))
