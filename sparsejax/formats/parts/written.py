"""Values written at places of a stored array.

all places are stored             a copy of the values, over the same pattern
some are not, of lists            the new entries are put between the others, level by level (`inserted`)
else                              entries of both, in order, of which the last at each place stays

Values that are added are summed by places first, floating-point numbers in double precision; places that are not stored hold the fill.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sparsejax.formats import convert, ordering
from sparsejax.formats.format import Format
from sparsejax.formats.levels import segments
from sparsejax.formats.parts import inserted, located, plain, unlisted
from sparsejax.formats.passes import Array
from sparsejax.formats.storage import Storage


def written(
    storage: Storage, columns: Sequence[Array], vals: Array, format: Format, along: Sequence[int] | None = None
) -> Storage:
    """The array in `format` with `vals`, of its dtype, at the coordinates `columns`, one vector of int64 for every dimension; of several at
    one place, the last. O(places) searches and a copy of the buffers where levels list coordinates (`inserted`) or all places are stored; else linear
    in the entries with a large factor. Places that are in a box, each once, come with the dimensions `along` which they increase, outermost first.

    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 0.0]]), Format.parse("csr", 2), 0.0)
    >>> convert.to_dense(written(A, [np.array([1, 1]), np.array([0, 1])], np.array([7.0, 8.0]), A.format))
    array([[0., 5.],
           [7., 8.]])
    """
    if format == storage.format and located.searched(format):
        if len(vals) == 1:
            place = [int(column[0]) for column in columns]
            at = located.position(storage, place)
            if at < 0 and inserted.lists(format):
                if unlisted.listed_rows(format) is not None:
                    return _inserted(storage, place, vals)
                return inserted.merged(storage, columns, vals, add=False)
            here = np.array([at])
        elif inserted.lists(format):
            in_order = along is not None and [d for d in format.order if d in along] == list(along)
            places = (columns, vals) if in_order else _last(columns, vals, storage, format.order)
            return inserted.merged(storage, *places, add=False)
        else:
            found = located.positions(storage, columns)
            here = np.array([-1]) if found is None else found
        if not len(here) or here.min() >= 0:
            replaced = storage.vals.copy()
            replaced[here] = vals
            return storage.with_values(replaced, storage.fill_value)
    made = plain.by_plain(lambda rows: written(rows, columns, vals, rows.format, along), format, storage)
    if made is not None:
        return made
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


def added(storage: Storage, columns: Sequence[Array], vals: Array, format: Format) -> Storage | None:
    """As `written`, with `vals` added to what is there, all of those at one place. None where places have no numbers of 64 bits.

    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 0.0]]), Format.parse("csr", 2), 0.0)
    >>> convert.to_dense(added(A, [np.array([1, 1, 1]), np.array([1, 0, 1])], np.array([1.0, 2.0, 3.0]), A.format))
    array([[0., 5.],
           [8., 4.]])
    """
    lists = format == storage.format and inserted.lists(format)
    if not lists:
        if math.prod(storage.shape) >= 2**63:
            return None
        made = plain.by_plain(lambda rows: added(rows, columns, vals, rows.format), format, storage)
        if made is not None:
            return made
    order = format.order if lists else tuple(range(storage.ndim))
    columns, vals = _summed(columns, vals, storage, order)
    if lists:
        return inserted.merged(storage, columns, vals, add=True)
    found = located.located(storage, columns)
    if found is None:
        return None
    here, before = found
    now = (storage.fill_value + vals).astype(vals.dtype, copy=False)
    now[here] = before + vals[here]
    return written(storage, columns, now, format)


def _numbers(columns: Sequence[Array], storage: Storage, order: Sequence[int]) -> tuple[Array, Array | None]:
    """The numbers of places, outermost dimension of `order` first, and the stable order in which they increase; None: as they are."""
    if math.prod(storage.shape) >= 2**63:  # ranks are numbers too
        _, number = np.unique(np.stack([columns[d] for d in order]), axis=1, return_inverse=True)
        number = number.reshape(-1)
    else:
        number = columns[order[0]].astype(np.int64)
        for d in order[1:]:
            number *= storage.shape[d]
            number += columns[d]
    if len(number) < 2 or (number[1:] >= number[:-1]).all():
        return number, None
    sort = number.argsort(kind="stable")
    return number[sort], sort


def _last(
    columns: Sequence[Array], vals: Array, storage: Storage, order: Sequence[int]
) -> tuple[Sequence[Array], Array]:
    """Places in order, each once, and the last value of each."""
    number, sort = _numbers(columns, storage, order)
    last = np.empty(len(number), bool)
    np.not_equal(number[1:], number[:-1], out=last[:-1])
    last[-1:] = True
    if sort is not None:
        sort = sort[last]
        return [column[sort] for column in columns], vals[sort]
    return (columns, vals) if last.all() else ([column[last] for column in columns], vals[last])


def _summed(
    columns: Sequence[Array], vals: Array, storage: Storage, order: Sequence[int]
) -> tuple[Sequence[Array], Array]:
    """Places in order, each once, and the sum of the values of each."""
    number, sort = _numbers(columns, storage, order)
    if sort is not None:
        columns, vals = [column[sort] for column in columns], vals[sort]
    first = np.flatnonzero(np.append(True, number[1:] != number[:-1])[: len(number)])
    if len(first) == len(number):
        return columns, vals
    wide = {"f": np.float64, "c": np.complex128}.get(vals.dtype.kind, vals.dtype)
    sums = np.add.reduceat(vals.astype(wide, copy=False), first)
    return [column[first] for column in columns], sums.astype(vals.dtype, copy=False)


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
