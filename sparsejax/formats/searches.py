"""Coordinates looked for in segments of others, in NumPy.

before:  pos = 0 2 3, crd = 0 4 2, wanted 4 in the first segment, 2 and 0 in the second
after:   where they are: 1 2 -1
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats.runs import crd_dtype

Array = NDArray[Any]

FEW, LOOKED = 4096, 8
"""Entries that are looked at, one by one, wherever they are; and those of a segment that take the time of a binary search in all of them, step by
step."""


def met(low: Array, end: Array, crd: Array, wanted: Array) -> tuple[Array, Array] | None:
    """Which of the segments `low[k] <= p < end[k]` have the coordinate `wanted[k]`, and where; None where so many entries had to be looked at that
    it is better to search.

    >>> crd = np.array([0, 4, 2])
    >>> met(np.array([0, 2, 2]), np.array([2, 3, 3]), crd, np.array([4, 2, 0]))
    (array([0, 1]), array([1, 2]))
    """
    lengths = end - low
    ends = lengths.cumsum()
    entries = int(ends[-1]) if len(ends) else 0
    if entries > max(FEW, LOOKED * len(ends)):
        return None
    place = (low - ends + lengths).repeat(lengths)
    place += np.arange(entries)
    here = (crd[place] == wanted.astype(crd.dtype).repeat(lengths)).nonzero()[0]
    return ends.searchsorted(here, "right"), place[here]


def bisected(low: Array, end: Array, crd: Array, wanted: Array) -> Array:
    """The position of `wanted[k]` among the coordinates of each segment, which increase; -1 where it is not stored. O(log(longest)) steps for all.

    >>> bisected(np.array([0, 2, 2]), np.array([2, 3, 3]), np.array([0, 4, 2]), np.array([4, 2, 0]))
    array([ 1,  2, -1])
    """
    high = end
    while True:
        open = low < high
        if not open.any():
            break
        half = (low + high) >> 1
        behind = open & (crd[np.minimum(half, len(crd) - 1)] < wanted)
        low = np.where(behind, half + 1, low)
        high = np.where(behind | ~open, high, half)
    here = low < end
    here[here] = crd[low[here]] == wanted[here]
    return np.where(here, low, -1)


def sought(low: Array, end: Array, crd: Array, wanted: Array) -> tuple[Array, Array]:
    """Which of the segments `low[k] <= p < end[k]`, whose coordinates increase, have the coordinate `wanted[k]`, and where.

    >>> sought(np.array([0, 2]), np.array([2, 3]), np.array([0, 4, 2]), np.array([4, 0]))
    (array([0]), array([1]))
    """
    found = met(low, end, crd, wanted)
    if found is None:
        here = bisected(low, end, crd, wanted)
        number = (here >= 0).nonzero()[0]
        found = number, here[number]
    return found


def equal(listed: Array, wanted: Array) -> tuple[Array, Array]:
    """Where the numbers `wanted` begin and end in a list that increases.

    >>> equal(np.array([0, 0, 2], np.int32), np.array([2, 0]))
    (array([2, 0]), array([3, 2]))
    """
    wanted = wanted.astype(listed.dtype, copy=False)  # of two dtypes, both would be copied
    return listed.searchsorted(wanted), listed.searchsorted(wanted, "right")


def placed(low: Array, end: Array, crd: Array, wanted: Array, vals: Array) -> tuple[Array, Array]:
    """Which of the segments `low[k] <= p < end[k]`, whose coordinates increase, have the coordinate `wanted[k]`, and the values there.

    >>> placed(np.array([0, 2]), np.array([2, 3]), np.array([0, 4, 2]), np.array([4, 0]), np.array([5, 6, 7]))
    (array([0], dtype=int32), array([6]))
    """
    number, place = sought(low, end, crd, wanted)
    return number.astype(crd_dtype(len(wanted)), copy=False), vals[place]
