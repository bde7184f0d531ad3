"""Entries of matrices whose rows are cut as they are stored, at places, or one in each of consecutive rows, found some rows at a time.

Levels that list coordinates in order are searched as they are, and of bands and diagonals positions follow from the places. Of others, rows in which something
is sought are picked, or cut, and read as rows that list their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.formats import convert, passes
from sparsejax.formats.levels.banded import Banded
from sparsejax.formats.levels.bitmap import Bitmap
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.diagonal import Diagonal
from sparsejax.formats.levels.ell import Ell
from sparsejax.formats.levels.grouped import Grouped
from sparsejax.formats.levels.hashed import Hash
from sparsejax.formats.levels.loose import LooseCompressed
from sparsejax.formats.levels.runlength import RunLength
from sparsejax.formats.parts.by_rows import padded, picked
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.formats.storage import Storage

PLACES = 1 << 14
"""Places that are looked up at a time."""
ENTRIES = 1 << 16
"""Stored values of rows that are read at a time."""
MORE = 4
"""How many times the stored values may be read, row by row, before all rows are read at once instead."""

Found = tuple[Array, Array]
Lookup = Callable[[Storage, Sequence[Array]], Found | None]
Line = Callable[[Storage, int, int, int, int], Storage]


def located(storage: Storage, columns: Sequence[Array], lookup: Lookup) -> Found | None:
    """(number, vals) of the places with these coordinates that are stored, by a `lookup` in rows that list their columns. None for other formats, and where
    as many places would have most rows read several times.

    >>> from sparsejax.formats.format import Format
    >>> from sparsejax.formats.parts import located as by_levels
    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 7.0]]), Format.parse("ell", 2), 0.0)
    >>> located(A, [np.array([1, 0]), np.array([0, 0])], by_levels.located)
    (array([0], dtype=int32), array([6.]))
    """
    known, forms, places = padded.rows_of(storage.format), convert.plain_formats(storage.format), len(columns[0])
    if known is None or forms is None or not places or not storage.shape[known.axis]:
        return None
    numbers, vals = [], []
    picks = known.level in (Hash, Bitmap, RunLength)
    if picks and places > MORE * storage.shape[known.axis]:
        return None
    for begin in range(0, places, PLACES):
        own = [column[begin : begin + PLACES] for column in columns]
        found = _few(storage, known, own, forms[0], lookup)
        if found is None:
            return None
        numbers.append(np.add(found[0], begin, dtype=crd_dtype(places), casting="unsafe"))
        vals.append(found[1])
    return _together(numbers, vals)


def _together(numbers: list[Array], vals: list[Array]) -> Found:
    """Vectors one behind the other, as which they are let go."""
    if len(numbers) == 1:
        return numbers[0], vals[0]
    number = np.concatenate(numbers)
    numbers.clear()
    return number, np.concatenate(vals)


def _few(storage: Storage, known: padded.Rows, columns: Sequence[Array], form: Any, lookup: Lookup) -> Found | None:
    row, column = columns[known.axis], columns[1 - known.axis]
    if known.level is Diagonal:
        off = storage.buffers[1][1]
        if not len(off):
            return np.zeros(0, np.int64), storage.vals[:0]
        place = off.searchsorted(column - row)
        place[place == len(off)] = 0
        number = (off[place] == column - row).nonzero()[0]
        return number, storage.vals[row[number] * len(off) + place[number]]
    position = _positions(storage, known, row, column)
    if position is not None:
        number = (position >= 0).nonzero()[0]
        return number, storage.vals[position[number]]
    part = picked.picked(storage, row // known.step if known.step > 1 else row)
    if part is None:
        return None
    rows = convert.convert(part, form)
    own = [column, column]
    own[known.axis] = np.arange(len(row)) * known.step + row % known.step
    return lookup(rows, own)


def _positions(storage: Storage, known: padded.Rows, row: Array, column: Array) -> Array | None:
    """Positions of places in levels that list coordinates in order, or all from the first to the last, -1 for those that are not stored; None for others."""
    own, form = storage.buffers[1], storage.format
    block = form.blocks[1 - known.axis]
    parent, wanted = (row // known.step, column // block) if form.blocked else (row, column)
    many = passes.over(len(row))
    if known.level is Banded:
        pos, start = own
        ahead, low = column - start[row], pos[row]
        return np.where((ahead >= 0) & (ahead < pos[row + 1] - low), low + ahead, -1)
    if known.level is Compressed:
        found = many.located(own[0], own[1], parent, wanted)
    elif known.level in (Ell, LooseCompressed, Grouped):
        ends = np.empty(2 * len(row), np.int64)
        if known.level is LooseCompressed:
            ends[::2], ends[1::2] = own[0][parent], own[1][parent]
        else:
            ends[::2] = parent * own[0][0] if known.level is Ell else own[0][parent] * form.levels[1].group
            np.add(ends[::2], own[1][parent], out=ends[1::2])
        found = many.located(ends, own[2], np.arange(0, 2 * len(row), 2), wanted)
    else:
        return None
    if not form.blocked:
        return found
    inside = (row - parent * known.step) * block + (column - wanted * block)
    return np.where(found >= 0, found * known.size + inside, -1)


def line(storage: Storage, begin: tuple[int, int], count: int, step: int, line_of_rows: Line) -> Found | None:
    """(number, vals): of so many rows from the first number of `begin` on, the entries at column `begin[1] + step * k` for the k-th, by a `line_of_rows` that
    list their columns; None for other formats.

    >>> from sparsejax.formats.format import Format
    >>> from sparsejax.formats.parts import located as by_levels
    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 7.0]]), Format.parse("ell", 2), 0.0)
    >>> line(A, (0, 1), 2, 0, by_levels.line)
    (array([0, 1], dtype=int32), array([5., 7.]))
    """
    known, forms = padded.rows_of(storage.format), convert.plain_formats(storage.format)
    if known is None or forms is None or not count:
        return None
    first, column = begin
    if known.level is Diagonal:
        off = storage.buffers[1][1]
        if step == 1:
            place = int(off.searchsorted(column - first))
            if place == len(off) or off[place] != column - first:
                return np.zeros(0, np.int64), storage.vals[:0]
            given = storage.vals.reshape(-1, len(off))[first : first + count, place]
            return np.arange(count, dtype=crd_dtype(count)), given.copy()
        slots = ((off <= column - first) & (off > column - first - count)).nonzero()[0][::-1]
        rows_met = column - off[slots]
        return rows_met - first, storage.vals[rows_met * len(off) + slots]
    numbers, vals = [], []
    if known.level in (Banded, Compressed, Ell, LooseCompressed, Grouped):
        for k in range(0, count, PLACES):
            row = np.arange(first + k, first + min(count, k + PLACES))
            wanted = np.full(len(row), column) if not step else row + (column - first)
            position = _positions(storage, known, row, wanted)
            assert position is not None
            number = (position >= 0).nonzero()[0]
            numbers.append(np.add(number, k, dtype=crd_dtype(count), casting="unsafe"))
            vals.append(storage.vals[position[number]])
    else:
        each = max(1, ENTRIES * storage.shape[known.axis] // max(1, len(storage.vals)))
        for k in range(0, count, each):
            rows = padded.listed(storage, first + k, first + min(count, k + each), forms[0])
            made = line_of_rows(rows, 0, min(count, k + each) - k, column + step * k, step)
            numbers.append(np.add(made.buffers[0][1], k, dtype=crd_dtype(count), casting="unsafe"))
            vals.append(made.vals.copy())
    return _together(numbers, vals)
