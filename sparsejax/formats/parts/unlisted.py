"""Arrays that list all coordinates, read as rows: a dense level in place of the first of the list, whose other vectors are shared.

coo   0 0 2   as rows   pos 0 2 2 3    and back   0 0 2
      1 3 0             crd 1 3 0                 1 3 0
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from sparsejax.formats import passes
from sparsejax.formats.format import Format
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.coordinate import Coordinate
from sparsejax.formats.levels.dense import Dense
from sparsejax.formats.passes import crd_dtype
from sparsejax.formats.storage import Storage


@functools.lru_cache(maxsize=1024)
def searched(form: Format) -> bool:
    """Whether an entry is found by searches: levels are dense, or list coordinates in order, each once."""
    return not form.blocked and all(
        level.full or (isinstance(level, Compressed | Coordinate) and level.unique) for level in form.levels
    )


@functools.lru_cache(maxsize=1024)
def rows_format(form: Format) -> Format | None:
    """The format of `as_rows`; None for formats that do not list all coordinates of two dimensions or more, in order and each once."""
    levels = form.levels
    if form.blocked or len(levels) < 2 or form.runs != [(0, len(levels))]:
        return None
    if not all(type(level) is Coordinate and level.unique and level.ordered for level in levels):
        return None
    return Format((Dense(), *levels[1:]), form.order)


@functools.lru_cache(maxsize=1024)
def listed_rows(form: Format) -> tuple[int, int] | None:
    """(row, column): the dimensions of a matrix whose rows a dense level holds, and whose columns a level lists, in order and each once."""
    if form.ndim != 2 or form.blocked or not form.levels[0].full:
        return None
    below = form.levels[1]
    return (form.order[0], form.order[1]) if isinstance(below, Compressed | Coordinate) and below.unique else None


def as_rows(storage: Storage) -> Storage | None:
    """The array under `rows_format`, over the same coordinates and values; None where there is none, or are fewer entries than rows. Linear in both.

    >>> from sparsejax.formats import convert
    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 0.0]]), Format.parse("coo", 2), 0.0)
    >>> as_rows(A).buffers
    ((), (array([0, 1, 2]), array([1, 0], dtype=int32)))
    """
    form = rows_format(storage.format)
    if form is None:
        return None
    rows, count = storage.shape[form.order[0]], len(storage.vals)
    if rows > max(passes.MANY, count):
        return None
    (_, lead), *rest = storage.buffers
    ends = passes.over(max(count, rows)).offsets(lead, rows)
    ((crd,), *others) = rest
    return Storage(form, storage.shape, storage.fill_value, ((), (ends, crd), *others), storage.vals)


def as_list(rows: Storage, form: Format) -> Storage:
    """Rows under `rows_format` of `form` as an array in `form`, over the same coordinates and values. Linear in both.

    >>> from sparsejax.formats import convert
    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 0.0]]), Format.parse("coo", 2), 0.0)
    >>> as_list(as_rows(A), A.format).buffers
    ((array([0, 2]), array([0, 1], dtype=int32)), (array([1, 0], dtype=int32),))
    """
    _, (pos, crd), *others = rows.buffers
    count = rows.shape[form.order[0]]
    lead = passes.over(max(len(crd), len(pos))).owners(pos).astype(crd_dtype(count), copy=False)
    ends = np.array((0, len(crd)))
    return Storage(form, rows.shape, rows.fill_value, ((ends, lead), (crd,), *others), rows.vals)


def by_rows(work: Callable[..., Storage | None], *listed: Storage) -> Storage | None:
    """What `work` makes of arrays of one format read as rows, as an array in that format again; None where one cannot be read so, or `work` gives None.

    >>> from sparsejax.formats import convert
    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 0.0]]), Format.parse("coo", 2), 0.0)
    >>> by_rows(lambda rows: rows.with_values(2 * rows.vals, 0.0), A).vals
    array([10., 12.])
    """
    read = []
    for storage in listed:
        rows = as_rows(storage)
        if rows is None:
            return None
        read.append(rows)
    made = work(*read)
    return None if made is None else as_list(made, listed[0].format)
