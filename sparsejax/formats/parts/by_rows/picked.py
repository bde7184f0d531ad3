"""Rows of matrices in formats with other levels than rows or lists of coordinates, in any order and as often as they are named, by their buffers as they are.

ell       width 2, len 1 2 2, crd 3 0 1 4 0 2     rows 1 1     width 2, len 2 2, crd 1 4 1 4
rle       pos 0 1 3, start 1 0 4, stop 2 3 6      row 1        pos 0 2, start 0 4, stop 3 6
bsr       rows of blocks, one behind the other

Rows of a diagonal format in another order have other diagonals: these are left to others.
"""

from __future__ import annotations

import numpy as np

from sparsejax.formats import passes
from sparsejax.formats.levels.banded import Banded
from sparsejax.formats.levels.bitmap import Bitmap
from sparsejax.formats.levels.diagonal import Diagonal
from sparsejax.formats.levels.ell import Ell
from sparsejax.formats.levels.grouped import Grouped
from sparsejax.formats.levels.loose import LooseCompressed
from sparsejax.formats.parts.by_rows import padded
from sparsejax.formats.passes import Array
from sparsejax.formats.runs import before
from sparsejax.formats.storage import Storage


def picked(storage: Storage, chosen: range | Array) -> Storage | None:
    """The rows that are chosen, or, in blocks, the rows of blocks; None for diagonals and formats that have no such rows (`padded.rows_of`). Linear in
    the buffers of the result, and in the rows that are chosen.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 7.0]]), Format.parse("rle", 2), 0.0)
    >>> convert.to_dense(picked(A, np.array([1, 1, 0])))
    array([[6., 7.],
           [6., 7.],
           [0., 5.]])
    """
    form, rows = storage.format, padded.rows_of(storage.format)
    if rows is None or rows.level is Diagonal:
        return None
    shape = tuple([len(chosen) * rows.step if d == rows.axis else n for d, n in enumerate(storage.shape)])
    own, vals = storage.buffers[1], storage.vals
    if rows.level is Ell:
        (slots,), lengths, crd = own
        lengths = _of_rows(lengths, 1, chosen)
        width = int(lengths.max(initial=0))
        padded.check(len(lengths) * width, int(lengths.sum()), storage)
        crd, vals = (_of_rows(buffer, int(slots), chosen, width) for buffer in (crd, vals))
        own = np.array([width]), lengths, crd
    elif rows.level is Bitmap:
        extent = storage.shape[1 - rows.axis]
        own, vals = (_of_rows(own[0], -(-extent // 64), chosen),), _of_rows(vals, extent, chosen)
    else:
        index = np.arange(chosen.start, chosen.stop, chosen.step) if isinstance(chosen, range) else chosen
        many = passes.over(len(index))
        if rows.level is LooseCompressed:
            start = own[0][index]
            pos = before(own[1][index] - start)
            crd, vals = _copied(start, pos, 1, [own[2], vals])
            own = pos[:-1].copy(), pos[1:].copy(), crd
        else:
            start, pos = many.picked(own[0], index)
            group = form.levels[1].group
            if rows.level is Banded:
                (vals,) = _copied(start, pos, 1, [vals])
                own = pos, own[1][index]
            elif rows.level is Grouped:
                (crd,) = _copied(start, pos, group, [own[2]])
                own = pos, own[1][index], crd
                (vals,) = _copied(start, pos, group * rows.size, [vals])
            elif rows.size > 1:
                (crd,) = _copied(start, pos, 1, [own[1]])
                own = pos, crd
                (vals,) = _copied(start, pos, rows.size, [vals])
            else:
                *others, vals = _copied(start, pos, 1, [*own[1:], vals])
                own = pos, *others
    return Storage(form, shape, storage.fill_value, ((), own, *storage.buffers[2:]), vals)


def _copied(start: Array, pos: Array, each: int, columns: list[Array]) -> list[Array]:
    """Segments of columns that have so many elements for each step of `start` and `pos`."""
    start, pos = (start, pos) if each == 1 else (start * each, pos * each)
    return passes.over(max(len(start), int(pos[-1]))).copied(start, pos, columns)


def _of_rows(buffer: Array, each: int, chosen: range | Array, width: int | None = None) -> Array:
    """Rows of a vector that has `each` elements for every row, and of these the first `width`."""
    width = each if width is None else width
    matrix = buffer.reshape(-1, each) if each else buffer.reshape(0, 0)
    if not width:
        return buffer[:0]
    if isinstance(chosen, range):
        return matrix[chosen.start : chosen.stop if chosen.stop >= 0 else None : chosen.step, :width].flatten()
    if width == each:
        return matrix.take(chosen, axis=0).reshape(-1)
    return matrix[chosen, :width].reshape(-1)
