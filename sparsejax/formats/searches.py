"""Coordinates looked for in segments of others, in NumPy.

before:  pos = 0 2 3, crd = 0 4 2, wanted 4 in the first segment, 2 and 0 in the second
after:   where they are: 1 2 -1
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats.runs import before, crd_dtype

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


def mapped(pos: Array, crd: Array, listed: Array, extent: int, vals: Array) -> tuple[Array, Array, Array] | None:
    """`Passes.mapped`, by a table of the places that every coordinate below `extent` has in the list."""
    table = np.full(extent, -1, crd_dtype(len(listed)))
    places = np.arange(len(listed), dtype=table.dtype)
    table[listed] = places
    if (table[listed] != places).any():
        return None
    first, end = int(pos[0]), int(pos[-1])
    place = table[crd[first:end]]
    inside = place >= 0
    number = inside.nonzero()[0]
    made, crd, vals = before(inside)[pos - first], place[number], vals[first:end][number]
    if (listed[1:] > listed[:-1]).all():
        return made, crd, vals
    key = np.arange(len(pos) - 1).repeat(made[1:] - made[:-1]) * len(listed) + crd
    order = key.argsort(kind="stable")
    return made, crd[order], vals[order]
