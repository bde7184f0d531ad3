"""Runs of equal neighbours in columns of sorted entries, what they add up to, and numbers that entries are sorted by; the dtype of coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
SIGNED = frozenset([_INT32, _INT64])
"""What coordinates may be, as they come."""

ADDED, PAIRWISE = 64, 8
"""Entries at one place up to which all but the first are added up one after the other; numbers up to which NumPy does."""


def before(counts: Array) -> Array:
    """The sum of the counts before each of them, and behind these that of all: where segments of so many entries begin and end.

    >>> before(np.array([2, 0, 1]))
    array([0, 2, 2, 3])
    """
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def changes(columns: Sequence[Array]) -> NDArray[np.bool_]:
    """Whether each entry differs from the one before it in some column (the first one does)."""
    fresh = np.ones(len(columns[0]), bool)
    rest = fresh[1:]
    for k, column in enumerate(columns):
        step = column[1:] != column[:-1]
        np.copyto(rest, step) if k == 0 else np.logical_or(rest, step, out=rest)
    return fresh


def keys_of(places: Sequence[tuple[Array, Array]], rows: int, extent: int) -> list[Array]:
    """Numbers of places, each a row (of `rows`) and a column (below `extent`), which are equal where places are, and increase by rows, then by columns.
    Where `rows * extent` leaves 64 bits, columns are counted among those that are named.

    >>> keys_of([(np.array([0, 1, 1]), np.array([4, 0, 2])), (np.array([1]), np.array([2]))], 2, 5)
    [array([4, 5, 7]), array([7])]
    >>> keys_of([(np.array([0, 8, 8]), np.array([4, 0, 2**60]))], 9, 2**61)
    [array([ 1, 24, 26])]
    """
    columns = [column for _, column in places]
    if rows * extent >= 2**63:
        named, ranks = np.unique(np.concatenate([column.ravel() for column in columns]), return_inverse=True)
        parts = np.split(ranks, np.cumsum([column.size for column in columns[:-1]], dtype=np.int64))
        columns = [part.reshape(column.shape) for part, column in zip(parts, columns, strict=True)]
        extent = len(named)
    return [row * np.int64(extent) + column for (row, _), column in zip(places, columns, strict=True)]


def added(vals: Array, starts: Array) -> Array:
    """The sums ("or" of bools) of runs of `vals`, which begin at `starts`: in a run of up to `ADDED`, all but the first one after the other, and these to
    the first; in a longer one pairwise, as NumPy does.

    >>> added(np.array([1.0, 2.0, 3.0]), np.array([0, 2]))
    array([3., 3.])
    """
    add = np.logical_or if vals.dtype == np.bool_ else np.add
    with np.errstate(all="ignore"):  # as everywhere, infinities are no news
        made: Array = add.reduceat(vals, starts).astype(vals.dtype, copy=False)
        if vals.dtype.kind in "fc":
            counts = np.diff(starts, append=len(vals))
            runs = np.flatnonzero((counts > PAIRWISE // (1 + (vals.dtype.kind == "c"))) & (counts <= ADDED))
            if len(runs):
                counts = counts[runs] - 1
                owners, nothing = np.arange(len(runs)).repeat(counts), np.negative(np.zeros(len(runs), vals.dtype))
                places = np.arange(len(owners)) + (starts[runs] + 1 - np.append(0, counts[:-1].cumsum())).repeat(counts)
                np.add.at(nothing, owners, vals[places])
                made[runs] = vals[starts[runs]] + nothing
    return made


def crd_dtype(extent: int) -> np.dtype[Any]:
    """The dtype of coordinates below `extent`: int32 where it fits.

    >>> crd_dtype(2**40)
    dtype('int64')
    """
    return _INT32 if extent <= 2**31 - 1 else _INT64


def differing(array: Array, fill: Any) -> Array:
    """Which elements differ from the fill; NaN equals NaN.

    >>> differing(np.array([0.0, np.nan, 1.0]), np.nan)
    array([ True, False,  True])
    """
    differs = array if array.dtype == np.bool_ and not fill else array != fill
    if fill != fill:
        differs &= ~np.isnan(array)
    return differs
