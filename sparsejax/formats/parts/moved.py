"""Entries moved along an axis: the last ones to the front, and each several times.

csr   rolled along columns      pos as it is; in every segment, the coordinates behind a cut, then those before it
      repeated along columns    pos times so many; every coordinate and its successors, every value as often
      rolled along rows         the rows behind a cut, then those before it
coo   along columns             the same, of runs of equal rows

Other formats are read as rows, and become what they were.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from sparsejax.formats import passes, runs
from sparsejax.formats.format import Format
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.coordinate import Coordinate
from sparsejax.formats.levels.diagonal import Diagonal
from sparsejax.formats.parts import flattened, joined, located, plain, taken, unlisted
from sparsejax.formats.parts.by_rows import padded, windows
from sparsejax.formats.parts.by_rows.pieces import in_pieces, spans_of
from sparsejax.formats.parts.turned import rolled_inside
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.formats.storage import Storage


def rolled(storage: Storage, axis: int, cut: int) -> Storage | None:
    """The array with coordinate `cut` of an axis, none of its ends, as the first one, and those before it behind the others. Linear in the buffers. None
    where levels between others store the axis, or it has few entries in other levels than dense, compressed and coordinate ones.

    >>> from sparsejax.formats import convert
    >>> A = convert.from_dense(np.array([[5.0, 0.0, 6.0]]), Format.parse("csr", 2), 0.0)
    >>> convert.to_dense(rolled(A, 1, 1))
    array([[0., 6., 5.]])
    """
    form = storage.format
    if _innermost(form, axis):
        first, _ = form.runs[-1]
        pos = lines(storage)
        *lead, crd = [level[-1] for level in storage.buffers[first:]]
        many = passes.over(max(len(crd), len(pos)))
        crd, vals = many.rotated(pos, crd, storage.vals, cut, storage.shape[axis])
        return _with_last(storage, storage.shape, storage.buffers[first][0], [*lead, crd], vals)
    if located.searched(form) and form.order[0] == axis:
        parts = []
        for rows in (range(cut, storage.shape[axis]), range(cut)):
            part = taken.by_levels(storage, [rows if d == axis else None for d in range(storage.ndim)], (), form)
            if part is None:
                return None
            parts.append(part)
        return joined.joined(parts, axis)
    if located.searched(form) and not form.is_dense:
        return rolled_inside(storage, axis, cut)
    made = _rolled_rows(storage, axis, cut)
    return plain.by_plain(lambda rows: rolled(rows, axis, cut), form, storage) if made is None else made


def _some_rows(storage: Storage, work: Callable[[Storage], Storage | None]) -> Storage | None:
    """What is done to a matrix whose rows are cut as they are stored, done to some of them at a time; None where one piece is enough."""
    form, rows = storage.format, padded.rows_of(storage.format)
    assert rows is not None
    count = -(-storage.shape[rows.axis] // rows.step)
    return in_pieces([storage], spans_of(storage), lambda number, part: work(part), form, count)


def _rolled_rows(storage: Storage, axis: int, cut: int) -> Storage | None:
    """As `rolled`, of a matrix whose rows are cut as they are stored (`padded`); None for others, and where one piece is enough."""
    rows = padded.rows_of(storage.format)
    if rows is None:
        return None
    if axis == rows.axis:
        parts = [padded.cut(storage, first, stop) for first, stop in ((cut, storage.shape[axis]), (0, cut))]
        found = [part for part in parts if part is not None]
        if len(found) == 2 and padded.fits(found, axis):
            return padded.behind(found)
    if axis != rows.axis and rows.level is not Diagonal:
        return _some_rows(storage, lambda part: rolled(part, axis, cut))
    shape = storage.shape[rows.axis], storage.shape[1 - rows.axis]
    extent, moves = storage.shape[axis], []
    for here, to in ((range(cut, extent), 0), (range(cut), extent - cut)):
        if axis == rows.axis:
            moves.append(windows.Window(storage, here, range(shape[1]), to, 0))
        else:
            moves.append(windows.Window(storage, range(shape[0]), here, 0, to))
    return windows.placed(moves, *shape)


def rolled_flat(storage: Storage, axis: int, shift: int) -> Storage | None:
    """A matrix of which every entry is `shift` places further in row-major order, the last ones at the front; `axis` tells nothing. Linear in the buffers.
    None for other arrays, and formats that are not read as rows.

    >>> from sparsejax.formats import convert
    >>> A = convert.from_dense(np.array([[5.0, 0.0], [6.0, 7.0]]), Format.parse("csr", 2), 0.0)
    >>> convert.to_dense(rolled_flat(A, 0, 1))
    array([[7., 5.],
           [0., 6.]])
    """
    if storage.ndim != 2 or not all(storage.shape):
        return None
    form, (n, m) = storage.format, storage.shape
    down, right = divmod(shift % (n * m), m)
    rows = padded.listed_rows(form)
    if unlisted.rows_format(form) is not None:
        if form.order == (0, 1):
            return flattened.of_list(storage, down, right)
        return unlisted.by_rows(lambda rows: rolled_flat(rows, axis, shift), storage)
    if rows is None:
        return plain.by_plain(lambda rows: rolled_flat(rows, axis, shift), form, storage)
    if rows.axis == 0 and rows.level is not Diagonal:
        return flattened.rolled(storage, down, right)
    parts = []
    for columns, column, lower in ((range(m - right), right, down), (range(m - right, m), 0, (down + 1) % n)):
        for own, row in ((range(n - lower), lower), (range(n - lower, n), 0)):
            turned = own, columns, row, column
            parts.append(windows.Window(storage, *(turned if rows.axis == 0 else (columns, own, column, row))))
    return windows.placed(parts, storage.shape[rows.axis], storage.shape[1 - rows.axis])


def repeated(storage: Storage, axis: int, count: int) -> Storage | None:
    """The array with every coordinate of an axis `count` times, one or more. Linear in the buffers of the result. None where the last level does not list
    the coordinates of that axis, or they would not fit in 64 bits.

    >>> from sparsejax.formats import convert
    >>> A = convert.from_dense(np.array([[5.0, 0.0, 6.0]]), Format.parse("csr", 2), 0.0)
    >>> convert.to_dense(repeated(A, 1, 2))
    array([[5., 5., 0., 0., 6., 6.]])
    """
    form, extent = storage.format, storage.shape[axis] * count
    if extent >= 2**63:
        return None
    if not _innermost(form, axis):
        rows = padded.rows_of(form)
        if rows is None or rows.axis == axis:
            return None
        return _some_rows(storage, lambda part: repeated(part, axis, count))
    first, _ = form.runs[-1]
    pos, *_ = storage.buffers[first]
    *lead, crd = [level[-1] for level in storage.buffers[first:]]
    segments.check_size(len(crd) * count, "a repeated array")
    shape = tuple([extent if d == axis else n for d, n in enumerate(storage.shape)])
    many = passes.over(len(crd) * count)
    columns = [*(many.repeated(column, count) for column in lead), many.repeated(crd, count, crd_dtype(extent))]
    return _with_last(storage, shape, pos * count, columns, many.repeated(storage.vals, count))


@functools.lru_cache(maxsize=1024)
def _innermost(form: Format, axis: int) -> bool:
    """Whether the last level lists the coordinates of an axis, in order and each once, one for every position."""
    if form.blocked or not form.ndim or form.order[-1] != axis:
        return False
    first, _ = form.runs[-1]
    return all(isinstance(level, Compressed | Coordinate) and level.unique for level in form.levels[first:])


def lines(storage: Storage) -> Array:
    """Where the segments of the last level begin, and where the last one ends: entries that are alike in all other coordinates."""
    first, _ = storage.format.runs[-1]
    (pos, *_), *others = storage.buffers[first:]
    if not others:
        return pos
    lead = [level[-1] for level in storage.buffers[first:-1]]
    fresh = runs.changes(lead)
    fresh[pos[:-1][pos[:-1] < len(fresh)]] = True
    count = int(np.count_nonzero(fresh))
    made = np.empty(count + 1, np.int64)
    made[:-1] = fresh.nonzero()[0]
    made[-1] = len(fresh)
    return made


def _with_last(storage: Storage, shape: tuple[int, ...], pos: Array, columns: list[Array], vals: Array) -> Storage:
    """The array with other buffers in the last run of levels."""
    first, _ = storage.format.runs[-1]
    crd, *more = columns
    buffers = (*storage.buffers[:first], (pos, crd), *((column,) for column in more))
    return Storage(storage.format, shape, storage.fill_value, buffers, vals)
