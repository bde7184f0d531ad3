"""Values written at places of a stored array.

all places are stored       a copy of the values, over the same pattern
one is not, of a matrix     the entry is put between the others
else                        entries of both, in order, of which the last at each place stays
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsejax.formats import convert, ordering
from sparsejax.formats.format import Format
from sparsejax.formats.levels import segments
from sparsejax.formats.parts import located
from sparsejax.formats.passes import Array
from sparsejax.formats.storage import Storage


def written(storage: Storage, columns: Sequence[Array], vals: Array, format: Format) -> Storage:
    """The array in `format` with `vals`, of its dtype, at the coordinates `columns`, one vector of int64 for every dimension; of several at
    one place, the last. O(places) searches and a copy of the values where all are stored; else linear in the entries.

    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 0.0]]), Format.parse("csr", 2), 0.0)
    >>> convert.to_dense(written(A, [np.array([1, 1]), np.array([0, 1])], np.array([7.0, 8.0]), A.format))
    array([[0., 5.],
           [7., 8.]])
    """
    if format == storage.format and located.searched(format):
        if len(vals) == 1:
            place = [int(column[0]) for column in columns]
            at = located.position(storage, place)
            if at < 0 and located.listed_rows(format) is not None:
                return _inserted(storage, place, vals)
            here = np.array([at])
        else:
            found = located.positions(storage, columns)
            here = np.array([-1]) if found is None else found
        if not len(here) or here.min() >= 0:
            made = storage.vals.copy()
            made[here] = vals
            return storage.with_values(made, storage.fill_value)
    if not all(level.unique for level in storage.format.levels):
        storage = convert.convert(storage, Format.parse("coo", storage.ndim))
    old, before = storage.expand()
    both = [np.concatenate([a, b]) for a, b in zip(old, columns, strict=True)]
    keys, together = format.split(both), np.concatenate([before, vals])
    extents = format.level_extents(storage.shape)
    keys, together = ordering.arranged(keys, together, extents, ordering.unsorted(keys))
    if len(together):
        last = np.append(segments.changes(keys)[1:], True)
        keys, together = [key[last] for key in keys], together[last]
    return convert.assembled(keys, together, storage.shape, format, storage.fill_value)


def _inserted(storage: Storage, place: Sequence[int], vals: Array) -> Storage:
    """One more entry of a matrix that lists the columns of its rows. Linear in its buffers."""
    row, column = (place[d] for d in storage.format.order)
    pos, crd = storage.buffers[1]
    low, high = int(pos[row]), int(pos[row + 1])
    at = low + int(crd[low:high].searchsorted(crd.dtype.type(column)))
    ends = pos.copy()
    ends[row + 1 :] += 1
    made = []
    for old, new in ((crd, column), (storage.vals, vals[0])):
        grown = np.empty(len(old) + 1, old.dtype)
        grown[:at], grown[at], grown[at + 1 :] = old[:at], new, old[at:]
        made.append(grown)
    return Storage(storage.format, storage.shape, storage.fill_value, ((), (ends, made[0])), made[1])
