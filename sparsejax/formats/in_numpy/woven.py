"""Segments with an entry for every one of some places, in NumPy. Entries of a segment are in the order of one column of coordinates, or of several, the
first one first.

before:  pos 0 1 2, crd 1 0, vals 5 6, new at (0, 0) and (1, 0): 7 8
after:   pos 0 2 3, crd 0 1 0, vals 7 5 8
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def woven(
    pos: Array, crds: Sequence[Array], vals: Array, places: Sequence[Array], new: Array, replace: bool
) -> tuple[Array, list[Array], Array, Array, Array]:
    """See `passes`."""
    row, *columns = places
    low, high = pos[row], pos[row + 1]
    stop = high
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        half = (low + high) >> 1
        inside = half < high
        behind = _before(crds, half, columns)
        behind &= inside
        low, high = np.where(behind, half + 1, low), np.where(behind, high, half)
    here = low < stop
    if len(vals):
        for crd, column in zip(crds, columns, strict=True):
            here &= crd.take(low, mode="clip") == column
    if here.all():
        return pos, list(crds), vals, low, here
    fresh = ~here
    more = int(fresh.sum())
    at = low + np.cumsum(fresh) - fresh
    kept = np.ones(len(vals) + more, bool)
    kept[at[fresh]] = False
    grown = []
    for old, given in ((vals, new), *zip(crds, columns, strict=True)):
        made = np.empty(len(kept), old.dtype)
        made[kept] = old
        made[at[fresh]] = given[fresh]
        grown.append(made)
    values, *grown = grown
    if replace:
        values[at] = new
    ends = pos + np.bincount(row[fresh] + 1, minlength=len(pos)).cumsum()
    return ends.astype(pos.dtype, copy=False), grown, values, at, here


def _before(crds: Sequence[Array], number: Array, columns: Sequence[Array]) -> Array:
    """Whether the entries of these numbers come before the places, by the first coordinate in which they differ."""
    made: Array = np.zeros(len(number), bool)
    for crd, column in zip(reversed(crds), reversed(columns), strict=True):
        own = crd.take(number, mode="clip") if len(crd) else column
        made &= own == column
        made |= own < column
    return made


def interleaved(
    parts: Sequence[tuple[Array, ...]], shifts: Sequence[int] | None, out: Sequence[Array] | None
) -> tuple[Array, ...]:
    """See `passes`."""
    pos = np.asarray(sum(part[0] for part in parts))
    rows = [np.arange(len(own) - 1).repeat(own[1:] - own[:-1]) for own, *_ in parts]
    order = np.concatenate(rows).argsort(kind="stable")
    made: list[Array] = []
    for k, columns in enumerate(zip(*(part[1:] for part in parts), strict=True)):
        column = np.concatenate(columns)
        if not k and shifts is not None:
            column += np.repeat(np.array(shifts, column.dtype), [len(own) for own in columns])
        made.append(column[order] if out is None else column.take(order, out=out[k], mode="clip"))
    return pos, *made


def strung(columns: Sequence[Array], shifts: Sequence[int] | None, dtype: np.dtype[Any]) -> Array:
    """See `passes`."""
    if shifts is None:
        return np.concatenate(columns, dtype=dtype, casting="unsafe")
    made, first = np.empty(sum(map(len, columns)), dtype), 0
    for column, shift in zip(columns, shifts, strict=True):
        np.add(column, dtype.type(shift), out=made[first : first + len(column)], dtype=dtype, casting="unsafe")
        first += len(column)
    return made
