"""Matrices rolled in the order of their rows: entries stay one behind the other, and rows begin elsewhere among them.

by 2     a · b | c · ·        b begins row 1, which c goes on        · · a | · b c, the last ones at the front
"""

from __future__ import annotations

import numpy as np

from sparsejax.formats import convert, passes
from sparsejax.formats.format import Format
from sparsejax.formats.parts import joined
from sparsejax.formats.parts.by_rows import collected, padded
from sparsejax.formats.parts.by_rows.pieces import spans_of
from sparsejax.formats.passes import Array
from sparsejax.formats.storage import Storage

BLOCK = 1 << 14
"""Coordinates that are renumbered at a time."""


def rolled(storage: Storage, down: int, right: int) -> Storage | None:
    """A matrix in `padded.listed_rows` whose rows are its first dimension, of which every entry is `down` rows and `right` columns further. Linear in the
    buffers; some rows of the result at a time.

    >>> A = convert.from_dense(np.array([[5.0, 0.0], [6.0, 7.0]]), Format.parse("csr", 2), 0.0)
    >>> convert.to_dense(rolled(A, 0, 1))
    array([[7., 5.],
           [0., 6.]])
    """
    form, (n, m) = storage.format, storage.shape
    known, forms = padded.listed_rows(form), convert.plain_formats(form)
    assert known is not None and forms is not None
    if form == forms[0]:
        return _of_rows(storage, down, right)

    def part(first: int, stop: int) -> Storage:
        pos, crd, vals = _turned(storage, (first - down - 1) % n, stop - first + 1, forms[0])
        ends = _ends(pos, crd, m - right)
        low, high = int(ends[0]), int(ends[-1])
        crd = crd[low:high].copy()
        _renumber(crd, m - right, m)
        return Storage(forms[0], (stop - first, m), storage.fill_value, ((), (ends - low, crd)), vals[low:high])

    pieces = spans_of(storage)
    if len(pieces) < 2:
        return convert.convert(_of_rows(convert.convert(storage, forms[0]), down, right), form)
    return collected.of_rows((part(*piece) for piece in pieces), -(-n // known.step), form)


def _of_rows(storage: Storage, down: int, right: int) -> Storage:
    """As `rolled`, of rows that list their columns."""
    (pos, crd), (n, m), count = storage.buffers[1], storage.shape, len(storage.vals)
    ends = _ends(pos, crd, m - right)
    first = (-down - 1) % n
    begin = int(ends[first])
    made = np.empty(n + 1, np.int64)
    np.subtract(ends[first:], begin, out=made[: n - first])
    np.add(ends[:first], count - begin, out=made[n - first : n])
    made[n] = count
    (crd, columns), (vals, _) = _rotated(crd, begin), _rotated(storage.vals, begin)
    _renumber(columns, m - right, m)
    return Storage(storage.format, storage.shape, storage.fill_value, ((), (made, crd)), vals)


def of_list(storage: Storage, down: int, right: int) -> Storage:
    """As `rolled`, of an array that lists all coordinates, those of rows first."""
    ((ends, rows), (crd,)), (n, m), cut = storage.buffers, storage.shape, storage.shape[1] - right
    first = (-down - 1) % n  # of which entries from `cut` on come to the front
    low, high = rows.searchsorted(np.array([first, first + 1], rows.dtype)).tolist()
    begin = low + int(crd[low:high].searchsorted(crd.dtype.type(cut))) if cut < m else high
    (rows, lower), (crd, columns), (vals, _) = (_rotated(given, begin) for given in (rows, crd, storage.vals))
    for k in range(0, len(lower), BLOCK):
        block = lower[k : k + BLOCK]
        block -= block.dtype.type(n - down)
        block += columns[k : k + BLOCK] >= cut
        block[block < 0] += block.dtype.type(n)
    _renumber(columns, cut, m)
    return Storage(storage.format, storage.shape, storage.fill_value, ((ends, rows), (crd,)), vals)


def _rotated(given: Array, begin: int) -> tuple[Array, Array]:
    """A vector with its element `begin` as the first one, and the same to be written to."""
    count = len(given)
    kept, into = passes.over(count).room(count, given.dtype)
    into[: count - begin], into[count - begin :] = given[begin:], given[:begin]
    return kept, into


def _ends(pos: Array, crd: Array, cut: int) -> Array:
    """Where the coordinates before `cut` end in every segment."""
    inner = passes.over(len(crd)).within(pos, crd, range(cut), [])[0]
    ends: Array = pos[:-1] + (inner[1:] - inner[:-1])
    return ends


def _renumber(crd: Array, cut: int, extent: int) -> None:
    """Coordinates with `cut` as the first one."""
    for k in range(0, len(crd), BLOCK):
        block = crd[k : k + BLOCK]
        block -= block.dtype.type(cut)
        block[block < 0] += block.dtype.type(extent)


def _turned(storage: Storage, begin: int, count: int, form: Format) -> tuple[Array, Array, Array]:
    """(pos, crd, vals) of so many rows from `begin` on, the first ones behind the last."""
    n, parts = storage.shape[0], []
    while count:
        stop = min(n, begin + count)
        parts.append(padded.listed(storage, begin, stop, form))
        begin, count = 0, count - (stop - begin)
    made = parts[0] if len(parts) == 1 else joined.joined(parts, 0)
    assert made is not None
    pos, crd = made.buffers[1]
    return pos, crd, made.vals
