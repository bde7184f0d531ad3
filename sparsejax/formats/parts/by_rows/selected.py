"""Rows and columns of matrices whose rows are cut as they are stored, and those that an integer takes.

A[lo:hi]          cut, and put together          A[idx]          picked
A[lo:hi, lo:hi]   a window                       A[idx, lo:hi]   some rows at a time, as rows that list their columns
A[i], A[:, j]     of one row, cut before it is read; of a column, searched in every row
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sparsejax.formats import convert
from sparsejax.formats.format import Format
from sparsejax.formats.parts import located
from sparsejax.formats.parts.by_rows import collected, padded, picked, windows
from sparsejax.formats.parts.by_rows.pieces import in_pieces, spans
from sparsejax.formats.passes import Array
from sparsejax.formats.storage import Storage

Key = range | Array | None
"""What is kept of a dimension: a range of coordinates, those that a vector of int64 names, or all."""
Select = Callable[[Storage, Sequence[Key], tuple[int, ...], Format], Storage | None]


def selected(storage: Storage, keys: Sequence[Key], by_levels: Select) -> Storage | None:
    """As `taken.taken`, of a matrix whose rows are cut as they are stored: consecutive ones at once, others in pieces, in which `by_levels` selects among
    rows that list their columns; None for other formats."""
    rows = padded.rows_of(storage.format)
    if rows is None:
        return None
    key, inner = keys[rows.axis], keys[1 - rows.axis]
    lead = range(storage.shape[rows.axis]) if key is None else key
    if not len(lead):
        return None
    if inner is None and isinstance(lead, range) and lead.step == 1:
        part = padded.cut(storage, lead.start, lead.stop)
        if part is not None:
            return padded.behind([part])
    columns = range(storage.shape[1 - rows.axis]) if inner is None else inner
    if isinstance(lead, range) and isinstance(columns, range) and lead.step == columns.step == 1 and len(columns):
        return windows.placed([windows.Window(storage, lead, columns, 0, 0)], len(lead), len(columns))
    if inner is None and rows.step == 1:
        made = picked.picked(storage, lead)
        if made is not None:
            return made
    extent = storage.shape[rows.axis]
    stored = len(storage.vals) * min(extent, len(lead) * rows.step) // extent
    each = (
        2 * (storage.shape[1 - rows.axis] + len(inner)) if isinstance(inner, np.ndarray) else 0
    )  # for a map of the columns
    few = isinstance(inner, np.ndarray) and 2 * len(inner) <= storage.shape[1 - rows.axis]  # what is counted is as much
    found = [] if not few and padded.shares(storage) else spans(len(lead), stored, rows.step, each)
    pieces = [lead[first:stop] for first, stop in found]
    read = [_reach(piece, storage.shape[rows.axis], rows.step) for piece in pieces]
    if sum(stop - first for first, stop in read) > 2 * max(len(lead), storage.shape[rows.axis]):
        return _scattered(storage, rows.axis, rows.step, pieces, inner, by_levels)

    def work(number: int, part: Storage) -> Storage | None:
        piece, shift = pieces[number], read[number][0]
        own: list[Key] = [inner, inner]
        if isinstance(piece, range):
            own[rows.axis] = range(piece.start - shift, piece.stop - shift, piece.step)
        else:
            own[rows.axis] = piece - shift
        return by_levels(part, own, (), part.format)

    return in_pieces([storage], read, work, storage.format, -(-len(lead) // rows.step))


def _scattered(
    storage: Storage, axis: int, step: int, pieces: Sequence[Key], inner: Key, by_levels: Select
) -> Storage | None:
    """As `selected`, of rows that are far from each other in every piece: each is picked, with all of its block, or of most rows all are read at once."""
    form, listed = storage.format, [np.asarray(piece) for piece in pieces]
    most = sum(map(len, listed))
    forms = convert.plain_formats(form)
    if forms is None or not pieces:
        return None
    whole = convert.convert(storage, forms[0]) if 2 * most * step >= storage.shape[axis] else None

    def part(piece: Array) -> Storage | None:
        own: list[Key] = [inner, inner]
        if whole is not None:
            source, own[axis] = whole, piece
        else:
            few = picked.picked(storage, piece // step)
            if few is None:
                return None
            source, own[axis] = convert.convert(few, forms[0]), np.arange(len(piece)) * step + piece % step
        return by_levels(source, own, (), source.format)

    return collected.of_rows(map(part, listed), -(-most // step), form)


def reached(storage: Storage, keys: Sequence[Key]) -> tuple[Storage, Sequence[Key]]:
    """Rows that are cut as they are stored, between those that a key keeps, and the keys for them, where these are half of all at most; else what is given."""
    rows = padded.rows_of(storage.format)
    key = None if rows is None else keys[rows.axis]
    if rows is None or key is None or not len(key):
        return storage, keys
    first, stop = _reach(key, storage.shape[rows.axis], rows.step)
    part = padded.cut(storage, first, stop) if 2 * (stop - first) <= storage.shape[rows.axis] else None
    if part is None:
        return storage, keys
    own = list(keys)
    own[rows.axis] = (
        range(key.start - first, key.stop - first, key.step) if isinstance(key, range) else np.subtract(key, first)
    )
    return part, own


def crossed(storage: Storage, keys: Sequence[Key], axes: tuple[int, ...], format: Format) -> Storage | None:
    """As `taken.taken`, for one column of consecutive rows that are cut as they are stored; else None."""
    rows = padded.rows_of(storage.format)
    if rows is None or axes != (1 - rows.axis,):
        return None
    key, column = keys[rows.axis], keys[1 - rows.axis]
    key = range(storage.shape[rows.axis]) if key is None else key
    if not isinstance(key, range) or key.step != 1 or not isinstance(column, range):
        return None
    made = located.crossed(storage, (key.start, column.start), len(key), 0)
    return None if made is None else convert.convert(made, format)


def _reach(piece: range | Array, extent: int, step: int) -> tuple[int, int]:
    """Multiples of `step`, or the extent, between which a piece of a list of coordinates is."""
    ends = (piece[0], piece[-1]) if isinstance(piece, range) else (piece.min(), piece.max())
    first, last = int(min(ends)), int(max(ends))
    return first - first % step, min(extent, last + step - last % step)
