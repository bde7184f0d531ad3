"""Segments of two arrays put in one order, and parts of segments, in NumPy.

united    0 3 | 1  and  3 4 | 1      0 3 4 | 1, and how many entries of each come before
merged    the same with every entry  0 3 3 4 | 1 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats.runs import before, changes, crd_dtype

Array = NDArray[Any]
Chosen = range | Array | tuple[int, bool]
"""Coordinates: a range of them, those that have a place in a table, or those up to (or from) so many more than the one above them."""


def _owners(pos: Array) -> Array:
    return np.arange(len(pos) - 1).repeat(pos[1:] - pos[:-1])


def united(one: Sequence[Array], other: Sequence[Array]) -> tuple[Array, list[Array], Array, Array]:
    """See `joining_passes`."""
    columns = [
        np.concatenate([_owners(one[0]), _owners(other[0])]),
        *map(np.concatenate, zip(one[1:], other[1:], strict=True)),
    ]
    order = np.lexsort(columns[::-1])
    columns = [column[order] for column in columns]
    starts = changes(columns).nonzero()[0]
    row, *crds = [column[starts] for column in columns]
    count = len(one[1])
    number = np.append(before(order < count)[starts], count)
    others = np.append(starts, len(order)) - number
    pos = before(np.bincount(row, minlength=len(one[0]) - 1))
    kinds = crd_dtype(count + 1), crd_dtype(len(other[1]) + 1)
    return pos, crds, number.astype(kinds[0]), others.astype(kinds[1])


def merged(one: Sequence[Array], other: Sequence[Array], by: int, shift: int) -> list[Array]:
    """See `joining_passes`."""
    keys = [np.concatenate([_owners(one[0]), _owners(other[0])])]
    keys += map(np.concatenate, zip(one[1 : by + 1], other[1 : by + 1], strict=True))
    order = np.lexsort(keys[::-1])
    made = []
    for k, (left, right) in enumerate(zip(one[1:], other[1:], strict=True)):
        made.append(np.concatenate([left, right + right.dtype.type(shift) if k == by else right])[order])
    return made


def spliced(parts: Sequence[tuple[Array, Array, Array]], end: int) -> Array:
    """See `joining_passes`."""
    order = np.concatenate([_owners(pos) for pos, _, _ in parts]).argsort(kind="stable")
    column = np.concatenate([column + shift.repeat(pos[1:] - pos[:-1]) for pos, column, shift in parts])
    return np.append(column[order], end)


def halves(pos: Array, crd: Array, cut: int) -> Array:
    """See `joining_passes`."""
    return pos[:-1] + np.diff(before(crd < cut)[pos])


def swapped(
    pos: Array, half: Array, columns: Sequence[Array], shifts: tuple[int, int] | tuple[Array, Array] | None
) -> list[Array]:
    """See `joining_passes`."""
    start = np.stack((half, pos[:-1]), axis=1).reshape(-1)
    lengths = np.stack((pos[1:] - half, half - pos[:-1]), axis=1).reshape(-1)
    index = np.arange(pos[-1])
    index += (start - before(lengths)[:-1]).repeat(lengths)
    made = [column[index] for column in columns]
    if shifts is not None:
        front, back = shifts
        if isinstance(front, np.ndarray):
            both = np.stack((front[:-1] - back, front[1:] - back), axis=1).reshape(-1)
        else:
            both = np.tile(np.array((front, back), made[0].dtype), len(half))
        made[0] += both.repeat(lengths)
    return made


def shifted(pos: Array, pieces: tuple[Array, Array], below: tuple[Array, Array]) -> Array:
    """See `joining_passes`."""
    (start, ends), (begin, to) = pieces, below
    lengths = ends[1:] - ends[:-1]
    index = np.arange(ends[-1])
    index += (start - ends[:-1]).repeat(lengths)
    made = np.empty(len(index) + 1, pos.dtype)
    np.add(pos[index], (to[:-1] - begin).repeat(lengths), out=made[:-1])
    made[-1] = to[-1]
    return made


def narrowed(
    above: Sequence[Array], pos: Array, crd: Array, chosen: Chosen, columns: Sequence[Array] | None
) -> tuple[list[Array], Array, Array, list[Array]]:
    """See `joining_passes`."""
    first, end = int(pos[0]), int(pos[-1])
    crd = crd[first:end]
    if isinstance(chosen, range):
        number = (
            (crd >= chosen.start) & (crd < chosen.stop) & ((crd - crd.dtype.type(chosen.start)) % chosen.step == 0)
        ).nonzero()[0]
        places = ((crd[number] - crd.dtype.type(chosen.start)) // chosen.step).astype(crd_dtype(len(chosen)))
    elif isinstance(chosen, tuple):
        apart = crd - above[-1].repeat(pos[1:] - pos[:-1])
        number = (apart <= chosen[0] if chosen[1] else apart >= chosen[0]).nonzero()[0]
        places = crd[number]
    else:
        number = (chosen[crd] >= 0).nonzero()[0]
        places = chosen[crd[number]]
    moved = (
        [(number + first).astype(crd_dtype(end))]
        if columns is None
        else [column[first:end][number] for column in columns]
    )
    ends = number.searchsorted(pos - first)
    kept = ends[1:] > ends[:-1]
    own, *lists = above
    return [before(kept)[own], *(a[kept] for a in lists)], np.append(0, ends[1:][kept]), places, moved
