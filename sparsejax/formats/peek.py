"""A look at some entries of a stored array, without a walk over all: from positions of the last level upwards.

Below, `csr` with pos = [0, 0, 2, 3] and crd = [1, 4, 0]: position 2 holds column crd[2], and lies in the segment of row 2, found by a binary search in pos.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparsejax.formats.levels import segments
from sparsejax.formats.levels.segments import Array
from sparsejax.formats.storage import Storage

WINDOW = 1 << 14
"""Positions that are looked at, at most, to find some that are used."""


class Entries(NamedTuple):
    """Some entries: the coordinates, one array per dimension, and the values."""

    columns: list[Array]
    vals: Array


def at(storage: Storage, position: Array) -> tuple[list[Array], Array]:
    """(coordinates per dimension, those of the positions that hold entries). Of positions that several coordinates share, the first.

    A binary search of every position at every level. O(entries above) once for loose levels.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.array([[0, 0], [5, 0], [0, 7]]), Format.parse("csr", 2), 0)
    >>> at(A, np.array([1]))
    ([array([2]), array([1], dtype=int32)], array([1]))
    """
    form, buffers = storage.format, storage.buffers
    extents = form.level_extents(storage.shape)
    columns: list[Array] = []
    kept, here = np.asarray(position), np.asarray(position)
    for first, stop in reversed(form.runs):
        here, found, used = form.levels[first].lift(buffers[first:stop], here, extents[first:stop])
        columns = found + columns
        if used is not None and not used.all():
            here, kept = here[used], kept[used]
            columns = [column[used] for column in columns]
    inside = np.ones(len(kept), bool)
    for level, extent in enumerate(extents):
        if form.levels[level].relative:  # sums that wrap around are negative, and so outside
            columns[level] = columns[level].astype(np.int64) + columns[level - 1]
        inside &= (columns[level] >= 0) & (columns[level] < extent)
    columns = form.join([column[inside] for column in columns], storage.shape)
    kept = kept[inside]
    if form.pads(storage.shape):
        inside = np.logical_and.reduce([column < n for column, n in zip(columns, storage.shape, strict=True)])
        columns, kept = [column[inside] for column in columns], kept[inside]
    return columns, kept


def sample(storage: Storage, most: int) -> tuple[list[Array], int]:
    """The coordinates of entries at up to `most` positions, evenly spaced, and how many positions there are for each of these."""
    positions = len(storage.vals)
    step = max(1, -(-positions // most))
    return at(storage, np.arange(step // 2, positions, step))[0], step


def ends(storage: Storage, few: int) -> tuple[Entries, Entries | None]:
    """The first `few` entries and the last ones, in the order of storage; or all (and None) where these are not more than both.

    Looks at `WINDOW` positions from each end at most: of a format with long stretches of unused positions, fewer entries are found.
    O(few) for other formats.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.eye(9), Format.parse("csr", 2), 0.0)
    >>> [part.columns[0].tolist() for part in ends(A, 2)]
    [[0, 1], [7, 8]]
    """
    positions = len(storage.vals)
    wanted = 2 * few if storage.packed else WINDOW
    if positions <= 2 * wanted:
        everything = _all(storage, np.arange(positions))
        if len(everything.vals) <= 2 * few:
            return everything, None
        return _cut(everything, slice(few)), _cut(everything, slice(len(everything.vals) - few, None))
    first = _cut(_all(storage, np.arange(wanted)), slice(few))
    last = _all(storage, np.arange(positions - wanted, positions))
    return first, _cut(last, slice(max(0, len(last.vals) - few), None))


def _all(storage: Storage, position: Array) -> Entries:
    columns, position = at(storage, position)
    if not storage.format.levels or not storage.format.levels[-1].shared or storage.format.blocked:
        return Entries(
            columns, storage.vals[position]
        )  # of a run in blocks, what lies further may be in another block, or outside
    _, start, stop = storage.buffers[-1]  # of a run, both ends are enough
    dimension = storage.format.order[-1]
    begin, end = start[position].astype(np.int64), stop[position].astype(np.int64)
    if len(position) > 1:
        middle = np.minimum(end, begin + 8)
        end = np.where(np.arange(len(position)) < len(position) - 1, middle, end)
        begin[-1] = max(begin[-1], end[-1] - 8)
    else:
        end = np.minimum(end, begin + WINDOW)
    which, coordinate = segments.ranges(begin, end)
    columns = [coordinate if d == dimension else column[which] for d, column in enumerate(columns)]
    return Entries(columns, storage.vals[position[which]])


def _cut(entries: Entries, part: slice) -> Entries:
    return Entries([column[part] for column in entries.columns], entries.vals[part])
