"""The largest numbers of segments, in NumPy.

before:  size 3 1 2 2 2, segments at 0 to 3 and 3 to 5, one of each is to be found
after:   T F F T F
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Flags = NDArray[np.bool_]

BLOCK = 1 << 18
"""Numbers among which thresholds are found at a time: what stays in the cache."""


def largest(size: Array, pos: Array, keep: int) -> Flags:
    """Which numbers are among the `keep` largest of their segment, one or more, the first of equal ones, NaN before all numbers; segments lie between
    neighbours of `pos`. Linear.

    >>> largest(np.array([3, 1, 2, 2, 2]), np.array([0, 3, 5]), 1)
    array([ True, False, False,  True, False])
    """
    starts = pos[:-1][pos[1:] > pos[:-1]]
    if len(starts) == 1 and keep < len(size):
        alone = _of_one(size, keep)
        if alone is not None:
            return alone
    count = np.diff(np.append(starts, len(size)))
    long = np.flatnonzero(count > keep)
    if not len(long):
        return np.ones(len(size), bool)
    least = np.full(len(starts), _lowest(size.dtype), size.dtype)
    least[long] = _thresholds(size, starts[long], count[long], keep)
    made: Flags = size >= np.repeat(least, count)
    if size.dtype.kind == "f":
        made |= np.isnan(size)
    found = np.add.reduceat(made, starts, dtype=np.int64)
    if found.sum() > np.minimum(count, keep).sum():  # some are as large as the last that stays
        places, owner = np.flatnonzero(made), np.repeat(np.arange(len(starts)), found)
        made[places] = _above(size[places], least[owner], np.cumsum(found) - found, keep, owner)
    return made


def _of_one(size: Array, keep: int) -> Flags | None:
    """The same of one segment that has more numbers; None where several are as large as the last that stays."""
    place = len(size) - keep
    parted = size.copy()
    parted.partition(place)
    made: Flags = size >= parted[place]
    if size.dtype.kind == "f":
        made |= size != size
    return made if np.count_nonzero(made) == keep else None


def beyond(size: Array, keep: int) -> Any:
    """What so many numbers, fewer than there are, exceed, or are NaN: the next smaller one. None where the least of them equals that, or is NaN. Linear.

    >>> beyond(np.array([3, 1, 4, 2]), 2), beyond(np.array([3, 1, 2, 2]), 2)
    (np.int64(2), None)
    """
    place = len(size) - keep
    parted = np.partition(size, place)
    below = np.maximum.reduce(parted[:place])
    return below if below < parted[place] else None


def _lowest(dtype: np.dtype[Any]) -> Any:
    return dtype.type(-np.inf) if dtype.kind == "f" else np.iinfo(dtype).min


def _above(size: Array, least: Array, starts: Array, keep: int, owner: Array) -> Flags:
    """Which numbers are above the `least` that stays, or equal to it and among the first for which there is room."""
    above, equal = size > least, size == least
    if size.dtype.kind == "f":
        missing, none = np.isnan(size), np.isnan(least)
        if missing.any():
            above |= missing & ~none
            equal |= missing & none
    room = keep - np.add.reduceat(above, starts, dtype=np.int64)
    before = np.cumsum(equal) - equal
    rank = before - before[starts][owner]
    found: Flags = above | (equal & (rank < room[owner]))
    return found


def _thresholds(size: Array, starts: Array, count: Array, keep: int) -> Array:
    """The `keep`-th largest number of every segment, all of which are longer: by partition of segments of about one length side by side."""
    made = np.empty(len(starts), size.dtype)
    kinds = np.frexp(count.astype(float))[1]
    for kind in np.unique(kinds):
        alike = np.flatnonzero(kinds == kind)
        longest = int(count[alike].max())
        step = max(1, BLOCK // longest)
        along = np.arange(longest)
        for first in range(0, len(alike), step):
            here = alike[first : first + step]
            if len(here) == 1:
                rows = size[None, starts[here[0]] : starts[here[0]] + count[here[0]]]
            else:
                inside = along < count[here, None]
                rows = np.where(
                    inside, size[np.minimum(starts[here, None] + along, len(size) - 1)], _lowest(size.dtype)
                )
            place = rows.shape[1] - keep
            made[here] = np.partition(rows, place, axis=1)[:, place]
    return made
