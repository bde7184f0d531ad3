"""Segments with an entry for every one of some places, in NumPy.

before:  pos 0 1 2, crd 1 0, vals 5 6, new at (0, 0) and (1, 0): 7 8
after:   pos 0 2 3, crd 0 1 0, vals 7 5 8
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def woven(
    pos: Array, crd: Array, vals: Array, row: Array, column: Array, new: Array, replace: bool
) -> tuple[Array, Array, Array, Array, Array]:
    """See `passes`."""
    low, high = pos[row], pos[row + 1]
    stop = high
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        half = (low + high) >> 1
        inside = half < high
        behind = crd.take(half, mode="clip") < column
        behind &= inside
        low, high = np.where(behind, half + 1, low), np.where(behind, high, half)
    here = low < stop
    if len(crd):
        here &= crd.take(low, mode="clip") == column
    if here.all():
        return pos, crd, vals, low, here
    fresh = ~here
    grown, values = (np.empty(len(crd) + int(fresh.sum()), a.dtype) for a in (crd, vals))
    at = low + np.cumsum(fresh) - fresh
    kept = np.ones(len(grown), bool)
    kept[at[fresh]] = False
    for made, old, given in ((grown, crd, column), (values, vals, new)):
        made[kept] = old
        made[at[fresh]] = given[fresh]
    if replace:
        values[at] = new
    ends = pos + np.bincount(row[fresh] + 1, minlength=len(pos)).cumsum()
    return ends.astype(pos.dtype, copy=False), grown, values, at, here
