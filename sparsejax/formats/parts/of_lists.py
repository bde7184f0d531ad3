"""Parts of arrays that list all their coordinates, in order: rows are sought in the list, and columns among some entries at a time, so that nothing as long
as an axis, or as the list, stands beside a result.

coo   0 0 2 3   A[[3, 0]]   rows 3 and 0 begin at 3 and 0     0 1 1        A[:, 1]   entries 0 and 2     0 2
      1 3 1 0                                                 0 1 3                                      a c
      a b c d                                                 d a b
"""

from __future__ import annotations

from collections.abc import Sequence

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

    >>> from sparsejax.formats import convert
    >>> A = convert.from_dense(np.eye(4), Format.parse("coo", 2), 0.0)
    >>> narrowed(A, (range(1, 2), None)).buffers
    ((array([0, 1]), array([1], dtype=int32)), (array([1], dtype=int32),))
    """
    form = storage.format
    key = keys[form.order[0]] if form.order else None
    if not isinstance(key, range) or key.step != 1 or unlisted.rows_format(form) is None:
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
    dim = form.order[0] if form.order else 0
    if unlisted.rows_format(form) is None or not len(storage.vals):
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

    >>> from sparsejax.formats import convert
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
