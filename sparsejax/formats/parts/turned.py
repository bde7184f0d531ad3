"""Entries moved along an inner axis: in every segment of its level, positions from a cut on come before the others, and what is below them likewise.

csf   pos 0 2, crd 1 3    cut 2    crd 1 3       halves change places: 3 to the front, 1 to its end
      pos 0 1 3, crd 4 0 5         pos 0 2 3, crd 0 5 4

Beside the result stand four numbers at most for each segment of that level.
"""

from __future__ import annotations

import math

import numpy as np

from sparsejax.formats import passes
from sparsejax.formats.passes import Array
from sparsejax.formats.runs import changes
from sparsejax.formats.storage import Storage


def rolled_inside(storage: Storage, axis: int, cut: int) -> Storage:
    """The array with coordinate `cut` of an axis, none of its ends, as the first one, and those before it behind the others. Linear in the buffers. All
    levels are dense, compressed or coordinate, and some not dense.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.array([[[5.0], [0.0], [6.0]]]), Format.parse("csf", 3), 0.0)
    >>> convert.to_dense(rolled_inside(A, 1, 1))[0, :, 0]
    array([0., 6., 5.])
    """
    form, place, extent = storage.format, storage.format.order.index(axis), storage.shape[axis]
    number = next(k for k, (first, stop) in enumerate(form.runs) if first <= place < stop)
    first, stop = form.runs[number]
    many = passes.over(len(storage.vals))
    buffers = [*storage.buffers]
    if form.levels[place].full:
        pos = np.arange(_positions(storage, place) + 1) * extent
        half = pos[:-1] + cut
    else:
        pos = buffers[first][0]
        if place > first:
            pos = _groups(pos, [level[-1] for level in buffers[first:place]])
        crd = buffers[place][-1]
        half = many.halves(pos, crd, cut)
        columns = [crd, *(level[-1] for level in buffers[place + 1 : stop])]
        for k, column in enumerate(many.swapped(pos, half, columns, (-cut, extent - cut))):
            buffers[place + k] = (*buffers[place + k][:-1], column)
    for first, stop in form.runs[number + 1 :]:
        if form.levels[first].full:
            size = storage.shape[form.order[first]]
            pos, half = pos * size, half * size
            continue
        ends, *_ = buffers[first]
        below = many.take(ends, pos), many.take(ends, half)
        made = np.empty(len(ends), ends.dtype)
        made[-1] = ends[-1]
        (made[:-1],) = many.swapped(pos, half, [ends[:-1]], below)
        pos, half = below
        columns = many.swapped(pos, half, [level[-1] for level in buffers[first:stop]])
        buffers[first:stop] = [(made, columns[0]), *((column,) for column in columns[1:])]
    (vals,) = many.swapped(pos, half, [storage.vals])
    return Storage(form, storage.shape, storage.fill_value, tuple(buffers), vals)


def _positions(storage: Storage, place: int) -> int:
    """How many positions the levels before one have."""
    form = storage.format
    listed = [k for k in range(place) if not form.levels[k].full]
    first = listed[-1] + 1 if listed else 0
    above = len(storage.buffers[listed[-1]][-1]) if listed else 1
    return above * math.prod(storage.shape[d] for d in form.order[first:place])


def _groups(pos: Array, lead: list[Array]) -> Array:
    """Where entries that are alike in their first coordinates begin in segments, and where the last ones end."""
    fresh = changes(lead)
    fresh[pos[:-1][pos[:-1] < len(fresh)]] = True
    made = np.empty(int(np.count_nonzero(fresh)) + 1, np.int64)
    made[:-1] = fresh.nonzero()[0]
    made[-1] = len(fresh)
    return made
