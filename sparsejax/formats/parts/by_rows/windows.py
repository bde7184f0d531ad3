"""Matrices made of windows of others of their format, each to where it stays: joined, in a grid, surrounded, rolled.

    hstack  A B      pad  · · ·      roll by 2 columns of A  A[:, -2:] A[:, :-2]      rolled flat, by 2   A[:, -2:] one row lower, A[:, :-2]
                          · A ·

Some rows of the result at a time: what the windows hold of them is read as rows that list their columns, put side by side, and becomes what it was
(`padded`). Of diagonals, windows hold diagonals, which are copied as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sparsejax.formats import convert, passes
from sparsejax.formats.format import Format
from sparsejax.formats.levels.diagonal import Diagonal
from sparsejax.formats.parts.by_rows import collected, padded
from sparsejax.formats.parts.by_rows.pieces import spans
from sparsejax.formats.passes import crd_dtype
from sparsejax.formats.storage import Storage

BLOCK = 1 << 12
"""Rows of diagonals that are copied at a time: they stay in the caches."""


class Window(NamedTuple):
    """Consecutive rows and columns of a matrix, and where the first of each goes; rows are along the dimension that the outermost level stores."""

    storage: Storage
    rows: range
    columns: range
    row: int
    column: int


def whole(storage: Storage, row: int, column: int, outer: int) -> Window:
    """All of a matrix, whose rows are along dimension `outer`."""
    return Window(storage, range(storage.shape[outer]), range(storage.shape[1 - outer]), row, column)


def placed(windows: Sequence[Window], rows: int, columns: int, format: Format | None = None) -> Storage | None:
    """The matrix of so many rows and columns that holds these windows, which do not overlap, of matrices of one format, dtype and fill, of which there is
    one at least; in another `format`, if that is given. Linear in their buffers. None where rows are not cut as they are stored (`padded.listed_rows`).

    >>> A = convert.from_dense(np.array([[5.0, 6.0]]), Format.parse("ell", 2), 0.0)
    >>> convert.to_dense(placed([Window(A, range(1), range(1, 2), 1, 0), Window(A, range(1), range(1), 0, 2)], 2, 3))
    array([[0., 0., 5.],
           [6., 0., 0.]])
    """
    like = windows[0].storage
    format = like.format if format is None else format
    source, known, forms = padded.listed_rows(like.format), padded.listed_rows(format), convert.plain_formats(format)
    if source is None or known is None or forms is None or source.axis != known.axis:
        return None
    shape = (rows, columns) if known.axis == 0 else (columns, rows)
    windows = sorted((w for w in windows if len(w.rows) and len(w.columns)), key=lambda w: w.column)
    if known.level is Diagonal and source.level is Diagonal:
        return _of_diagonals(windows, rows, columns, shape, like)
    stored = sum(len(w.storage.vals) * len(w.rows) // w.storage.shape[known.axis] for w in windows)
    shared = all(padded.shares(s) for s in {id(w.storage): w.storage for w in windows}.values())
    pieces = ([] if shared else spans(rows, stored, known.step)) or [(0, rows)]
    parts = (_rows(windows, *piece, columns, forms[0], like) for piece in pieces)
    return collected.of_rows(parts, -(-rows // known.step), format)


def _rows(windows: Sequence[Window], first: int, stop: int, columns: int, form: Format, like: Storage) -> Storage:
    """Rows of the result, from `first` to `stop`, that list their columns."""
    read: dict[tuple[int, int, int], Storage] = {}
    segments, shifts = [], []
    outer = form.order[0]
    kind = crd_dtype(columns)
    for w in windows:
        low, high = max(first, w.row), min(stop, w.row + len(w.rows))
        if low >= high:
            continue
        begin = w.rows.start + low - w.row
        key = id(w.storage), begin, begin + high - low
        if key not in read:
            read[key] = padded.listed(w.storage, *key[1:], form)
        (pos, crd), vals = read[key].buffers[1], read[key].vals
        if len(w.columns) < w.storage.shape[1 - outer]:
            pos, crd, (vals,) = passes.over(len(crd)).within(pos, crd, w.columns, [vals])
        if high - low < stop - first:
            pos = np.concatenate((np.zeros(low - first, pos.dtype), pos, np.full(stop - high, pos[-1])))
        segments.append((pos, crd.astype(kind, copy=False), vals))
        shifts.append(w.column)
    read.clear()
    if len(segments) > 1:
        most = max(sum(len(crd) for _, crd, _ in segments), stop - first + 1)
        pos, crd, vals = passes.over(most).interleaved(segments, shifts)
    elif segments:
        ((pos, crd, vals),) = segments
        crd = np.add(crd, kind.type(shifts[0])) if shifts[0] else crd
    else:
        pos, crd, vals = np.zeros(stop - first + 1, np.int64), np.zeros(0, kind), np.zeros(0, like.dtype)
    shape = (stop - first, columns) if outer == 0 else (columns, stop - first)
    return Storage(form, shape, like.fill_value, ((), (pos, crd)), vals)


def _of_diagonals(windows: Sequence[Window], rows: int, columns: int, shape: tuple[int, int], like: Storage) -> Storage:
    """As `placed`, of diagonals: those of every window, moved."""
    found, offs = [], [np.empty(0, np.int64)]
    for w in windows:
        off = w.storage.buffers[1][1]
        kept = ((off > w.columns.start - w.rows.stop) & (off < w.columns.stop - w.rows.start)).nonzero()[0]
        found.append(kept)
        offs.append(off[kept] + (w.column - w.columns.start - w.row + w.rows.start))
    listed = np.unique(np.concatenate(offs))
    padded.check(rows * len(listed), sum(len(kept) * len(w.rows) for kept, w in zip(found, windows, strict=True)), like)
    vals, values = passes.over(rows * len(listed)).room(rows * len(listed), like.dtype)
    grid = values.reshape(rows, len(listed))
    moves = []
    for w, kept, off in zip(windows, found, offs[1:], strict=True):
        own = w.storage.buffers[1][1]
        given = w.storage.vals.reshape(w.storage.shape[like.format.order[0]], len(own))
        down = w.row - w.rows.start
        for slot, place in zip(kept.tolist(), np.searchsorted(listed, off).tolist(), strict=True):
            low = max(w.rows.start, w.columns.start - int(own[slot]))
            high = min(w.rows.stop, w.columns.stop - int(own[slot]))
            moves.append((low, high, down, given[:, slot], place))
    for begin in range(0, rows, BLOCK):
        block = grid[begin : begin + BLOCK]
        block[...] = like.fill_value
        for low, high, down, column, place in moves:
            low, high = max(low, begin - down), min(high, begin - down + len(block))
            if low < high:
                block[low + down - begin : high + down - begin, place] = column[low:high]
    own_buffers = np.array([len(listed)]), listed
    return Storage(like.format, shape, like.fill_value, ((), own_buffers), vals)
