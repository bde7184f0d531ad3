"""Coordinates below which nothing is left are not stored.

pos 0 2 3, crd 1 4 0    below them pos 0 0 3 4: nothing is left at the first        pos 0 1 2, crd 4 0, below them pos 0 3 4
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsejax.formats import passes
from sparsejax.formats.passes import Array
from sparsejax.formats.storage import Storage

Level = tuple[Array | None, list[Array]]
"""`pos` and coordinates of a run of levels that list these; a dense level has no `pos`."""


def pruned(above: list[Level], pos: Array) -> Array | None:
    """`pos` of a level without empty segments, where the levels `above` it list coordinates, which lose theirs, upwards as far as dense levels. None where
    there are dense levels below ones that list coordinates.

    >>> levels = [(np.array([0, 2]), [np.array([1, 4])])]
    >>> pruned(levels, np.array([0, 0, 3])), levels[0][1]
    (array([0, 3]), [array([4])])
    """
    made, place = pos, len(above)
    while place:
        own, crds = above[place - 1]
        if own is None:
            return made if all(pos is None for pos, _ in above[:place]) else None
        kept = pos[1:] > pos[:-1]
        if kept.all():
            return made
        full = np.empty(1 + np.count_nonzero(kept), pos.dtype)
        full[0] = pos[0]
        np.compress(kept, pos[1:], out=full[1:])
        if place == len(above):
            made = full
        else:
            above[place] = full, above[place][1]
        pos, crds = passes.over(max(len(kept), len(own))).chosen(own, kept, crds)
        place -= 1
        above[place] = pos, crds
    return made


def buffers_of(levels: Sequence[Level]) -> tuple[tuple[Array, ...], ...]:
    """The buffers of all levels, which nobody changes any more."""
    made: list[tuple[Array, ...]] = []
    for pos, crds in levels:
        if pos is None:
            made.append(())
        else:
            made.append((frozen(pos), frozen(crds[0])))
            if len(crds) > 1:
                made += [(frozen(crd),) for crd in crds[1:]]
    return tuple(made)


def frozen(array: Array) -> Array:
    if array.flags.writeable:
        array.flags.writeable = False
    return array


def with_entries(storage: Storage, pos: Array, columns: Sequence[Array]) -> Storage | None:
    """The array with other segments in its last levels, which list coordinates: `pos` and columns, those of the values last, of some of its entries. None
    where there are dense levels below ones that list coordinates.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 0.0]]), Format.parse("dcsr", 2), 0.0)
    >>> with_entries(A, np.array([0, 0, 1]), [np.array([0]), np.array([6.0])]).buffers[0]
    (array([0, 1]), array([1], dtype=int32))
    """
    form = storage.format
    levels: list[Level] = []
    for first, stop in form.runs[:-1]:
        own = storage.buffers[first:stop]
        levels.append((own[0][0], [level[-1] for level in own]) if own[0] else (None, []))
    found = pruned(levels, pos)
    if found is None:
        return None
    *crds, vals = columns
    levels.append((found, crds))
    return Storage.of_frozen(form, storage.shape, storage.fill_value, buffers_of(levels), frozen(vals))
