"""Parts of arrays that list all their coordinates, in order: rows are sought in the list, and columns among some entries at a time, so that nothing as long
as an axis, or as the list, stands beside a result.

coo   0 0 2 3   A[[3, 0]]   rows 3 and 0 begin at 3 and 0     0 1 1        A[:, 1]   entries 0 and 2     0 2
      1 3 1 0                                                 0 1 3                                      a c
      a b c d                                                 d a b
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.formats import passes
from sparsejax.formats.parts import lines, located, unlisted
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.formats.storage import Storage

Key = range | Array | None
"""What is kept of a dimension: a range of coordinates, those that a vector of int64 names, or all."""


def _limits(rows: Array, first: int, stop: int) -> tuple[int, int]:
    """Where the rows from `first` to `stop` lie in a list of them."""
    begin, end = rows.searchsorted(np.array((first, max(first, stop)), rows.dtype))
    return int(begin), int(end)


def narrowed(storage: Storage, keys: Sequence[Key]) -> Storage:
    """The array without the entries of rows that are outside of a range of consecutive ones, where these are most; else the array itself. O(log(entries)).

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.eye(4), Format.parse("coo", 2), 0.0)
    >>> narrowed(A, (range(1, 2), None)).buffers
    ((array([0, 1]), array([1], dtype=int32)), (array([1], dtype=int32),))
    """
    form = storage.format
    lead = form.order[0]
    key = keys[lead]
    if type(key) is not range or key.step != 1:
        return storage
    (_, rows), *others = storage.buffers
    first, stop = _limits(rows, key.start, key.stop)
    if 2 * (stop - first) > len(rows):
        return storage
    ends = np.array((0, stop - first))
    ends.flags.writeable = False
    buffers = (ends, rows[first:stop]), *((crd[first:stop],) for (crd,) in others)
    return Storage.of_frozen(form, storage.shape, storage.fill_value, buffers, storage.vals[first:stop])


def rows(storage: Storage, keys: Sequence[Key]) -> Storage | None:
    """The rows that the key of the first dimension in order names, in that order and as often, whatever the others are; None where it names none, or is a
    range of consecutive ones, or of more rows than entries. O(rows that are named, each a search, and their entries), and at most a look at all entries."""
    form = storage.format
    dim = form.order[0]
    if not len(storage.vals):
        return None
    key = keys[dim]
    if key is None or not len(key):
        return None
    if isinstance(key, range) and (key.step == 1 or len(key) > max(passes.MANY, len(storage.vals))):
        return None
    wanted = np.arange(key.start, key.stop, key.step) if isinstance(key, range) else key
    (_, listed), *others = storage.buffers
    start, pos = passes.over(max(len(listed), len(wanted))).begun(listed, storage.shape[dim], wanted)
    many = passes.over(max(len(wanted), int(pos[-1])))
    *columns, vals = many.copied(start, pos, [*(crd for (crd,) in others), storage.vals])
    del start
    lead = many.owners(pos).astype(crd_dtype(len(wanted)), copy=False)
    shape = tuple(len(wanted) if d == dim else n for d, n in enumerate(storage.shape))
    ends = np.array((0, len(lead)))
    return Storage(form, shape, storage.fill_value, ((ends, lead), *((crd,) for crd in columns)), vals)


def row(storage: Storage, keys: Sequence[Key], axes: tuple[int, ...]) -> Storage | None:
    """One whole row of a matrix, as a sparse vector (coo); None for other parts. O(log(entries)), and linear in its own."""
    order = storage.format.order
    if storage.ndim != 2 or axes != order[:1] or keys[order[1]] is not None:
        return None
    chosen = keys[order[0]]
    assert isinstance(chosen, range)
    (_, listed), (crd,) = storage.buffers
    first, stop = _limits(listed, chosen.start, chosen.stop)
    extent = storage.shape[order[1]]
    return located.vector(crd[first:stop].copy(), storage.vals[first:stop].copy(), extent, storage.fill_value)


def column(storage: Storage, keys: Sequence[Key], axes: tuple[int, ...]) -> Storage | None:
    """One column of consecutive rows of a matrix, as a sparse vector (coo); None for other parts. Linear in the entries of these rows."""
    form = storage.format
    if storage.ndim != 2 or axes != form.order[1:] or unlisted.rows_format(form) is None:
        return None
    key, chosen = keys[form.order[0]], keys[form.order[1]]
    assert isinstance(chosen, range)
    if key is None:
        key = range(storage.shape[form.order[0]])
    if not isinstance(key, range) or key.step != 1:
        return None
    (_, listed), (crd,) = storage.buffers
    first, stop = _limits(listed, key.start, key.stop)
    own, wanted = crd[first:stop], crd.dtype.type(chosen.start)
    number = lines.numbers(stop - first, lambda some: own[some] == wanted)
    return _vector(storage, number + first if first else number, listed, key.start, len(key))


def diagonal(storage: Storage, begin: tuple[int, int], count: int) -> Storage | None:
    """The diagonal of a matrix that begins in a row, at a coordinate in it, as a sparse vector (coo); None for other arrays. Linear in the entries.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.arange(6.0).reshape(2, 3), Format.parse("coo", 2), 0.0)
    >>> diagonal(A, (0, 1), 2).vals
    array([1., 5.])
    """
    if storage.ndim != 2 or unlisted.rows_format(storage.format) is None:
        return None
    (_, listed), (crd,) = storage.buffers
    first, stop = _limits(listed, begin[0], begin[0] + count)
    own, row, apart = crd[first:stop], listed[first:stop], begin[1] - begin[0]
    number = lines.numbers(stop - first, lambda some: own[some] - row[some] == apart)
    return _vector(storage, number + first if first else number, listed, begin[0], count)


def _vector(storage: Storage, number: Array, listed: Array, first: int, count: int) -> Storage:
    """Entries with these numbers as a sparse vector, by how far their rows are from the first one."""
    place = listed[number]
    place -= place.dtype.type(first)
    return located.vector(place.astype(crd_dtype(count), copy=False), storage.vals[number], count, storage.fill_value)


def tabled(extent: int, work: int) -> bool:
    """Whether a table of all coordinates below an extent pays beside so many entries. A coordinate costs about a nanosecond of the table, a
    search from 70 to 1,000, by what the caches hold (measured)."""
    return extent <= max(16 * passes.MANY, 64 * work)


BLOCKS, LEAST = 32, 1 << 17
"""Into so many blocks entries are cut, of as many at least, whose columns are named one block after the other."""


def columns(storage: Storage, keys: Sequence[Key]) -> Storage | None:
    """The columns that the key of the second dimension in order names, at most half of them, in that order and as often, of all rows of a matrix; None for
    other parts, and of few entries. Some rows after the other, so that what is counted for each of them is small. Linear in the entries, what is named, and the
    extent."""
    form = storage.format
    if storage.ndim != 2 or len(storage.vals) < 2 * LEAST:
        return None
    (row, column), shape = form.order, list(storage.shape)
    key, extent = keys[column], storage.shape[column]
    if keys[row] is not None or not isinstance(key, np.ndarray) or not 0 < 2 * len(key) <= extent:
        return None
    (_, listed), (crd,) = storage.buffers
    entries = len(listed)
    if not tabled(extent, entries + len(key)):
        return None
    step = max(LEAST, entries // BLOCKS)
    cuts = np.unique(listed.searchsorted(listed[step::step]))
    ends = [0, *cuts[cuts > 0].tolist(), entries]
    # as many as are expected, and some; what is not written takes no memory
    grown = _Grown((listed.dtype, crd_dtype(len(key)), storage.dtype), 1024 + int(1.1 * entries * len(key) / extent))
    many = passes.over(entries)
    places = many.places(key, extent)
    for first, stop in itertools.pairwise(ends):
        lead, pos = _segments(listed[first:stop])
        given = pos, crd[first:stop], key, extent, [storage.vals[first:stop]], places
        found = many.named(*given, lambda count: grown.room(count)[1:])
        assert found is not None
        rows, number = grown.last[0], many.owners(found[0])
        if isinstance(lead, int):
            np.add(number, rows.dtype.type(lead), out=rows, casting="unsafe")
        else:
            np.take(lead, number, out=rows, mode="clip")
    shape[column] = len(key)
    rows, crd, vals = grown.whole()
    return Storage(form, tuple(shape), storage.fill_value, ((np.array((0, len(rows))), rows), (crd,)), vals)


class _Grown:
    """Vectors of as many elements each, which grow; `last` is the part of each that was asked for last."""

    def __init__(self, kinds: Sequence[np.dtype[Any]], room: int) -> None:
        self._vectors, self._count = [np.empty(room, kind) for kind in kinds], 0
        self.last: list[Array] = []

    def room(self, count: int) -> list[Array]:
        """Room for some more elements, until the next is asked for."""
        first, self._count = self._count, self._count + count
        if self._count > len(self._vectors[0]):
            for vector in self._vectors:
                vector.resize(self._count + self._count // 4, refcheck=False)
        self.last = [vector[first : self._count] for vector in self._vectors]
        return self.last

    def whole(self) -> list[Array]:
        """What was written; the rest is given back."""
        for vector in self._vectors:
            vector.resize(self._count, refcheck=False)
        return self._vectors


def _segments(listed: Array) -> tuple[int | Array, Array]:
    """Some rows of a list: the first, where `pos` is that of all from there on, or those that have entries, where most have none."""
    first, count = int(listed[0]), int(listed[-1]) - int(listed[0]) + 1
    if count <= max(passes.MANY, len(listed)):
        pos = passes.over(max(len(listed), count)).offsets(listed, count, 0, np.int64, first)
        return first, pos
    begins = np.append(0, (listed[1:] != listed[:-1]).nonzero()[0] + 1)
    return listed[begins], np.append(begins, len(listed))
