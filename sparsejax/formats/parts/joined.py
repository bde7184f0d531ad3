"""Arrays of one format one behind the other along a dimension.

    csr, rows       pos of all, one behind the other, over one crd
    csr, columns    pos added up; in every row, the segments of all, one behind the other
    coo, rows       crd of all, one behind the other, the rows of each shifted
    nothing around  pos goes on where it ends (`surrounded`)

Below the level of that dimension, positions of one array follow those of the one before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from sparsejax.formats import convert, passes
from sparsejax.formats.format import Format
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.dense import Dense
from sparsejax.formats.parts import located, unlisted
from sparsejax.formats.parts.by_rows import padded, windows
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.formats.storage import Storage


def joined(storages: Sequence[Storage], axis: int) -> Storage | None:
    """Arrays of one format, dtype and fill, whose shapes differ along `axis` alone, one behind the other. Linear in their buffers. None where
    levels are not dense, compressed or coordinate, or entries would have to be ordered.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.eye(2), Format.parse("csr", 2), 0.0)
    >>> joined([A, A], 1).buffers[1]
    (array([0, 2, 4]), array([0, 2, 1, 3], dtype=int32))
    """
    form = storages[0].format
    place = form.order.index(axis)
    level = form.levels[place]
    if not located.searched(form):
        return None
    alone = _alone(storages)
    if alone is not None and not form.is_dense:
        before, after = (sum(s.shape[axis] for s in some) for some in (storages[:alone], storages[alone + 1 :]))
        made = surrounded(storages[alone], [(before, after) if d == axis else (0, 0) for d in range(len(form.order))])
        if made is not None:
            return made
    if place and not level.full and all(lv.full for lv in form.levels[:place]):
        return _interleaved(storages, axis) if place + 1 == len(form.levels) else None
    return None if place else _behind(storages, axis)


def by_pieces(storages: Sequence[Storage], axis: int) -> Storage | None:
    """As `joined`, of matrices whose rows are cut as they are stored (`padded`): along these as they are, along the others in pieces. None for other formats,
    and where one piece is enough."""
    form = storages[0].format
    rows = padded.rows_of(form)
    if rows is None:
        return None
    if padded.fits(storages, axis):
        return padded.behind(list(storages))
    starts = [0, *accumulate(s.shape[axis] for s in storages)]
    along = axis == rows.axis
    placed = [
        windows.whole(s, *((n, 0) if along else (0, n)), rows.axis) for s, n in zip(storages, starts[:-1], strict=True)
    ]
    other = storages[0].shape[1 - axis]
    return windows.placed(placed, *((starts[-1], other) if along else (other, starts[-1])))


def _behind(storages: Sequence[Storage], axis: int) -> Storage:
    """Along the outermost dimension."""
    first = storages[0]
    form, shape = first.format, _shape(storages, axis)
    starts = [0, *accumulate(s.shape[axis] for s in storages)]
    buffers: list[tuple[Array, ...]] = []
    entries = sum(len(s.vals) for s in storages)
    many = passes.over(entries)
    for k, (level, d) in enumerate(zip(form.levels, form.order, strict=True)):
        if level.full:
            buffers.append(())
            continue
        crds = [s.buffers[k][-1] for s in storages]
        crd = _strung(many, storages, crds, starts[:-1] if k == 0 else None, crd_dtype(shape[d]))
        if form.continues(k):
            buffers.append((crd,))
        elif k == 0:
            buffers.append((np.array([0, len(crd)]), crd))
        else:
            ends = [0, *accumulate(map(len, crds))]
            pos = [s.buffers[k][0][:-1] for s in storages]
            pos.append(np.zeros(1, np.int64))
            buffers.append((many.strung(pos, ends, np.dtype(np.int64)), crd))
    vals = _strung(many, storages, [s.vals for s in storages], None, first.dtype)
    return Storage(form, shape, first.fill_value, tuple(buffers), vals)


def _interleaved(storages: Sequence[Storage], axis: int) -> Storage:
    """Along the innermost dimension, listed below dense levels."""
    first = storages[0]
    shape = _shape(storages, axis)
    starts = [0, *accumulate(s.shape[axis] for s in storages)]
    kind = crd_dtype(shape[axis])
    alone = _alone(storages)
    if alone is not None:
        source, shift = storages[alone], starts[alone]
        pos, crd = source.buffers[-1]
        crd = np.add(crd, shift, dtype=kind, casting="unsafe") if shift else crd.astype(kind, copy=False)
        return Storage(first.format, shape, first.fill_value, (*first.buffers[:-1], (pos, crd)), source.vals)
    segments = [(s.buffers[-1][0], s.buffers[-1][1].astype(kind, copy=False), s.vals) for s in storages]
    entries = sum(len(s.vals) for s in storages)
    pos, crd, vals = passes.over(max(entries, len(segments[0][0]))).interleaved(segments, starts[:-1])
    return Storage(first.format, shape, first.fill_value, (*first.buffers[:-1], (pos, crd)), vals)


def listed(storages: Sequence[Storage], axis: int, format: Format) -> Storage | None:
    """Matrices of several formats, one dtype and fill, one behind the other, as the list of all coordinates that `format` is: what lists the columns of rows
    is read in place, others are converted to that. None for other formats, and more rows than entries.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.eye(2), Format.parse("csr", 2), 0.0)
    >>> listed([A, convert.convert(A, Format.parse("csc", 2))], 1, Format.parse("coo", 2)).buffers
    ((array([0, 4]), array([0, 0, 1, 1], dtype=int32)), (array([0, 2, 1, 3], dtype=int32),))
    """
    form, shape = unlisted.rows_format(format), _shape(storages, axis)
    count = sum(len(s.vals) for s in storages)
    if form is None or len(shape) != 2 or shape[format.order[0]] > max(passes.MANY, count):
        return None
    known: dict[int, Storage] = {}
    for s in storages:
        if id(s) not in known:
            known[id(s)] = _as_rows(s, form)
    made = joined([known[id(s)] for s in storages], axis)
    known.clear()
    return None if made is None else unlisted.as_list(made, format)


def _as_rows(storage: Storage, form: Format) -> Storage:
    """A matrix as rows in `form`, a dense level above one of coordinates."""
    rows = unlisted.as_rows(storage)
    if rows is None or rows.format != form:
        rows = convert.convert(storage, Format((Dense(), Compressed()), form.order))
    return rows if rows.format == form else Storage(form, rows.shape, rows.fill_value, rows.buffers, rows.vals)


def on_diagonal(storages: Sequence[Storage], form: Format) -> Storage | None:
    """Matrices of one dtype and fill along the diagonal of one in `form`, csr or csc: one after the other becomes rows (of csc: columns), and stands where
    it stays before the next does. None of formats that store what `form` does not. Linear in rows and entries.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.eye(2), Format.parse("csc", 2), 0.0)
    >>> on_diagonal([A, A], Format.parse("csr", 2)).buffers[1]
    (array([0, 1, 2, 3, 4]), array([0, 1, 2, 3], dtype=int32))
    """
    first, (outer, inner) = storages[0], form.order
    if any(not located.searched(s.format) or s.format.is_dense or s.ndim != 2 for s in storages):
        return None
    shape = tuple([sum(s.shape[d] for s in storages) for d in range(2)])
    entries = sum(len(s.vals) for s in storages)
    many = passes.over(entries)
    crd, indices = many.room(entries, crd_dtype(shape[inner]))
    vals, values = many.room(entries, first.dtype)
    pos = np.zeros(shape[outer] + 1, np.int64)
    row = column = begin = 0
    for s in storages:
        rows, end = convert.convert(s, form), begin + len(s.vals)
        if len(rows.vals) != len(s.vals):
            return None
        np.add(rows.buffers[1][0], begin, out=pos[row : row + s.shape[outer] + 1])
        np.add(rows.buffers[1][1], column, out=indices[begin:end], dtype=indices.dtype, casting="unsafe")
        values[begin:end] = rows.vals
        del rows
        row, column, begin = row + s.shape[outer], column + s.shape[inner], end
    return Storage(form, shape, first.fill_value, ((), (pos, crd)), vals)


def surrounded(storage: Storage, widths: Sequence[tuple[int, int]]) -> Storage | None:
    """The array with as many coordinates before and after those of each dimension, nothing stored there. O(rows of an outermost dense level), and
    linear in the coordinates of dimensions that get some before; other buffers are shared. None where a dense level below others grows.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.eye(2), Format.parse("csr", 2), 0.0)
    >>> surrounded(A, [(1, 0), (0, 5)]).buffers[1]
    (array([0, 0, 1, 2]), array([0, 1], dtype=int32))
    """
    form = storage.format
    rows = padded.rows_of(form)
    if rows is not None and "transient" not in storage.cache:
        outer, inner = widths[rows.axis], widths[1 - rows.axis]
        whole = outer[0] % rows.step == 0 and (not outer[1] or storage.shape[rows.axis] % rows.step == 0)
        if whole and not any(inner):  # empty rows before and behind others, as `by_pieces` has it
            return None
        placed = windows.whole(storage, outer[0], inner[0], rows.axis)
        return windows.placed([placed], sum(outer) + len(placed.rows), sum(inner) + len(placed.columns))
    grown = [widths[d] for d in form.order]
    if form.is_dense or not located.searched(form) or "transient" in storage.cache:
        return None
    if any(k and level.full and any(grown[k]) for k, level in enumerate(form.levels)):
        return None
    shape = tuple([n + before + after for n, (before, after) in zip(storage.shape, widths, strict=True)])
    buffers = list(storage.buffers)
    if form.levels[0].full and any(grown[0]):
        listed = next(k for k, level in enumerate(form.levels) if not level.full)
        size = math.prod([storage.shape[d] for d in form.order[1:listed]])
        (pos, crd), (before, after) = buffers[listed], grown[0]
        made = np.empty(len(pos) + size * (before + after), pos.dtype)
        made[: size * before] = 0
        made[size * before : size * before + len(pos)] = pos
        made[size * before + len(pos) :] = pos[-1]
        buffers[listed] = made, crd
    for k, (level, d) in enumerate(zip(form.levels, form.order, strict=True)):
        if not level.full and any(grown[k]):
            *above, crd = buffers[k]
            before, kind = grown[k][0], crd_dtype(shape[d])
            crd = np.add(crd, before, dtype=kind, casting="unsafe") if before else crd.astype(kind, copy=False)
            buffers[k] = (*above, crd)
    return Storage(form, shape, storage.fill_value, tuple(buffers), storage.vals)


def gridded(rows: Sequence[Sequence[Storage]]) -> Storage | None:
    """Matrices of one format, dtype and fill, in rows of equal heights, as one matrix: every entry is written once, to where it stays. None where
    their format lists neither the columns of all rows (or the reverse, of columns of equal widths) nor all coordinates, in order, or shapes do not fit.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.eye(2), Format.parse("csr", 2), 0.0)
    >>> gridded([[A, A], [A, A]]).buffers[1]
    (array([0, 2, 4, 6, 8]), array([0, 2, 1, 3, 0, 2, 1, 3], dtype=int32))
    """
    form = rows[0][0].format
    if unlisted.rows_format(form) is not None:
        known = {id(s): unlisted.as_rows(s) for row in rows for s in row}
        if any(read is None for read in known.values()):
            return None
        made = gridded([[read for s in row if (read := known[id(s)])] for row in rows])
        return None if made is None else unlisted.as_list(made, form)
    dims = unlisted.listed_rows(form)
    own = padded.rows_of(form)
    if own is not None:
        dims = (own.axis, 1 - own.axis)
    if dims is None:
        return None
    if dims == (1, 0):
        if len({len(row) for row in rows}) > 1:
            return None
        rows = list(zip(*rows, strict=True))
    outer, inner = dims
    widths = {sum(s.shape[inner] for s in row) for row in rows}
    if len(widths) > 1 or any(s.shape[outer] != row[0].shape[outer] for row in rows for s in row):
        return None
    if own is not None:
        placed, at = [], 0
        for row in rows:
            starts = accumulate((s.shape[inner] for s in row), initial=0)
            placed += [windows.whole(s, at, start, outer) for s, start in zip(row, starts, strict=False)]
            at += row[0].shape[outer]
        return windows.placed(placed, at, widths.pop())
    return _gridded(rows, outer, inner, widths.pop())


def diagonal(storages: Sequence[Storage], format: Format) -> Storage | None:
    """Matrices of one format, dtype and fill along the diagonal of one matrix in `format`; None as `windows.placed`.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.array([[0.0, 5.0]]), Format.parse("ell", 2), 0.0)
    >>> convert.to_dense(diagonal([A, A], Format.parse("csr", 2)))
    array([[0., 5., 0., 0.],
           [0., 0., 0., 5.]])
    """
    known = padded.listed_rows(format)
    if known is None:
        return None
    placed, row, column = [], 0, 0
    for s in storages:
        placed.append(windows.whole(s, row, column, known.axis))
        row, column = row + s.shape[known.axis], column + s.shape[1 - known.axis]
    return windows.placed(placed, row, column, format)


def _gridded(rows: Sequence[Sequence[Storage]], outer: int, inner: int, width: int) -> Storage:
    """As `gridded`, of matrices whose rows are along dimension `outer`, and list coordinates of `inner`."""
    first = rows[0][0]
    shape = [width, width]
    shape[outer] = sum(row[0].shape[outer] for row in rows)
    kind, entries = crd_dtype(width), sum(len(s.vals) for row in rows for s in row)
    many = passes.over(max(entries, shape[outer]))
    pos, crd, vals = np.zeros(shape[outer] + 1, np.int64), np.empty(entries, kind), np.empty(entries, first.dtype)
    at = begin = 0
    for row in rows:
        segments = [(s.buffers[1][0], s.buffers[1][1].astype(kind, copy=False), s.vals) for s in row]
        starts = [0, *accumulate(s.shape[inner] for s in row)]
        count, height = sum(len(s.vals) for s in row), row[0].shape[outer]
        out = crd[begin : begin + count], vals[begin : begin + count]
        own, _, _ = many.interleaved(segments, starts[:-1], out)
        np.add(own[1:], begin, out=pos[at + 1 : at + height + 1])
        at, begin = at + height, begin + count
    return Storage(first.format, tuple(shape), first.fill_value, ((), (pos, crd)), vals)


def _alone(storages: Sequence[Storage]) -> int | None:
    """The number of the only array with entries, if its memory may be shared: the others make it larger, and nothing else."""
    full = [k for k, s in enumerate(storages) if len(s.vals)]
    return full[0] if len(full) == 1 and "transient" not in storages[full[0]].cache else None


def _strung(
    many: passes.Passes,
    storages: Sequence[Storage],
    columns: Sequence[Array],
    shifts: Sequence[int] | None,
    kind: np.dtype[Any],
) -> Array:
    """Columns of arrays, one behind the other, each shifted; that of the only one with entries as it is."""
    alone = _alone(storages)
    if alone is not None and not (shifts and shifts[alone]) and columns[alone].dtype == kind:
        return columns[alone]
    return many.strung(columns, shifts, kind)


def _shape(storages: Sequence[Storage], axis: int) -> tuple[int, ...]:
    shape = list(storages[0].shape)
    shape[axis] = sum(s.shape[axis] for s in storages)
    return tuple(shape)
