"""Values at coordinates: a search in every level, outermost first.

csr  A[i, j]     position i of the rows, then j among the columns from pos[i] to pos[i + 1]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsejax.formats import convert, passes
from sparsejax.formats.format import Format
from sparsejax.formats.parts import lines, unlisted
from sparsejax.formats.parts.by_rows import sought
from sparsejax.formats.parts.unlisted import searched as searched
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.formats.storage import Storage


def position(storage: Storage, place: Sequence[int]) -> int:
    """Where the entry at the coordinates `place` is stored; -1 where it is not. For formats that are `searched`. A binary search per level.

    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 0.0]]), Format.parse("csr", 2), 0.0)
    >>> position(A, (1, 0)), position(A, (1, 1))
    (1, -1)
    """
    form, shape = storage.format, storage.shape
    here = 0
    for first, stop in form.runs:
        d = form.order[first]
        buffers = storage.buffers[first]
        if not buffers:
            here = here * shape[d] + place[d]
            continue
        pos, crd = buffers
        low, high = int(pos[here]), int(pos[here + 1])
        for level in range(first, stop):
            crd = storage.buffers[level][-1]
            wanted = crd.dtype.type(place[form.order[level]])
            segment = crd[low:high]
            found = int(segment.searchsorted(wanted))
            if found == len(segment) or segment[found] != wanted:
                return -1
            if level + 1 < stop:
                high = low + int(segment.searchsorted(wanted, "right"))
            low += found
        here = low
    return here


_freeze: Any = np.ndarray.setflags
"""`_freeze(array, False)` is `array.setflags(write=False)` in half of the time, as no argument has a name."""

BLOCK = 1 << 14
"""Places that are looked up, and rows that are looked through, at a time: what is not found takes no memory beside the result."""


def located(storage: Storage, columns: Sequence[Array]) -> tuple[Array, Array] | None:
    """(number, vals): which of the places with the coordinates `columns`, one vector of int64 for every dimension, are stored, and the values
    there. None for arrays of 2^63 places or more whose format is not `searched`. A binary search per level, place by place, where that
    is all; else linear in the entries too.

    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 0.0]]), Format.parse("csr", 2), 0.0)
    >>> located(A, [np.array([1, 1, 0]), np.array([0, 1, 1])])
    (array([0, 2], dtype=int32), array([6., 5.]))
    """
    form = storage.format
    if not searched(form) or any(stop - first > 1 for first, stop in form.runs):
        found = sought.located(storage, columns, located)
        return _by_numbers(storage, columns) if found is None else found
    if form.alone == len(form.levels) - 1 and len(storage.buffers[-1][0]) > 1:
        parent = columns[form.order[0]]
        for d in form.order[1:-1]:
            parent = parent * storage.shape[d] + columns[d]
        if form.alone == 0:
            parent = np.zeros(len(columns[0]), np.int8)
        pos, crd = storage.buffers[-1]
        return passes.over(max(len(parent), 1)).placed(pos, crd, parent, columns[form.order[-1]], storage.vals)
    if len(columns[0]) > BLOCK:
        return _in_blocks(len(columns[0]), lambda k: located(storage, [c[k : k + BLOCK] for c in columns]))
    here = positions(storage, columns)
    assert here is not None
    number = (here >= 0).nonzero()[0]
    if len(number) < len(here):
        here = here[number]
    vals = storage.vals
    return number, vals[here] if len(here) < passes.MANY else passes.over(len(here)).take(vals, here)


def _in_blocks(count: int, found: Callable[[int], tuple[Array, Array] | None]) -> tuple[Array, Array]:
    """What is found block by block, by its first number, as one."""
    pieces = [found(k) for k in range(0, count, BLOCK)]
    dtype, numbers, vals = crd_dtype(count), [], []
    for k, piece in enumerate(pieces):
        assert piece is not None
        numbers.append(np.add(piece[0], k * BLOCK, dtype=dtype, casting="unsafe"))
        vals.append(piece[1])
    del pieces, piece
    number = np.concatenate(numbers)
    del numbers
    return number, np.concatenate(vals)


def positions(storage: Storage, columns: Sequence[Array]) -> Array | None:
    """Where the entries at the coordinates `columns` are stored, -1 where they are not; None for formats that are not `searched`, or that list
    coordinates of several dimensions side by side. A binary search per level and place.

    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 0.0]]), Format.parse("csr", 2), 0.0)
    >>> positions(A, [np.array([1, 1, 0]), np.array([0, 1, 1])])
    array([ 1, -1,  0])
    """
    form, shape = storage.format, storage.shape
    if not searched(form) or any(stop - first > 1 for first, stop in form.runs):
        return None
    here: Array | None = None
    inside: Array | None = None
    many = passes.over(max(len(columns[0]), 1))
    for level, d in enumerate(form.order):
        buffers = storage.buffers[level]
        if not buffers:
            here = columns[d] if here is None else here * shape[d] + columns[d]
            continue
        parent = np.zeros(len(columns[d]), np.int64) if here is None else here
        if inside is not None:
            parent = np.where(inside, parent, 0)
        if len(buffers[0]) == 1:
            return np.full(len(parent), -1)
        here = many.located(buffers[0], buffers[1], parent, columns[d])
        if inside is not None:
            here = np.where(inside, here, -1)
        if level + 1 < len(form.order):
            inside = here >= 0
    assert here is not None
    return here if inside is None else np.where(inside, here, -1)


def _by_numbers(storage: Storage, columns: Sequence[Array]) -> tuple[Array, Array] | None:
    """As `located`, by a search among rows that are listed, or by the numbers of places in row-major order."""
    form = storage.format
    if storage.ndim == 2 and unlisted.rows_format(form) is not None:
        (_, rows), (crd,) = storage.buffers
        (row, column), count = form.order, max(len(rows), len(columns[0]), 1)
        extent = storage.shape[row]
        return passes.over(count).spotted(rows, crd, extent, columns[row], columns[column], storage.vals)
    if math.prod(storage.shape) >= 2**63:
        return None
    listed = lines.distinct(storage)
    if storage.ndim == 2:
        return located(listed, columns)
    coords, vals = convert.to_coords(listed)
    stored, wanted = (_flat(given, storage.shape) for given in (coords, columns))
    place = np.searchsorted(stored, wanted)
    inside = place < len(stored)
    inside[inside] = stored[place[inside]] == wanted[inside]
    return np.flatnonzero(inside), vals[place[inside]]


def _flat(columns: Sequence[Array] | Array, shape: Sequence[int]) -> Array:
    made = np.zeros(len(columns[0]), np.int64)
    for column, extent in zip(columns, shape, strict=True):
        made = made * extent + column
    return made


def line(storage: Storage, first: int, count: int, start: int, step: int) -> Storage:
    """Of a matrix in `unlisted.listed_rows`, the entries of the rows from `first` on, one each, at column `start + step * k` for the k-th: as a sparse
    vector (coo). Linear in the rows, and in the entries of short ones.

    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 0.0]]), Format.parse("csr", 2), 0.0)
    >>> line(A, 0, 2, 1, -1).vals
    array([5., 6.])
    """
    number, vals = _line(storage, first, count, start, step)
    return vector(number.astype(crd_dtype(count), copy=False), vals, count, storage.fill_value)


def crossed(storage: Storage, begin: tuple[int, int], count: int, step: int) -> Storage | None:
    """`line` from `begin` on, of a matrix whose rows are cut as they are stored; None of others."""
    found = sought.line(storage, begin, count, step, line)
    if found is None:
        return None
    return vector(found[0].astype(crd_dtype(count), copy=False), found[1], count, storage.fill_value)


def _line(storage: Storage, first: int, count: int, start: int, step: int) -> tuple[Array, Array]:
    if count > BLOCK:

        def block(k: int) -> tuple[Array, Array]:
            number, vals = _line(storage, first + k, min(BLOCK, count - k), start + k * step, step)
            return number.copy(), vals.copy()  # these may be the beginnings of as many places as there are rows

        return _in_blocks(count, block)
    pos, crd = storage.buffers[1]
    pos = pos[first : first + count + 1]
    return passes.over(max(count, int(pos[-1] - pos[0]))).met(pos, crd, start, step, storage.vals)


LINES = 8
"""Diagonals of a pattern whose places are remembered."""


@dataclass(frozen=True)
class Line:
    """Where the entries of a line are stored, and the buffers of what it is as a sparse vector."""

    places: Array
    buffers: tuple[tuple[Array, ...], ...]
    shape: tuple[int]

    def of(self, storage: Storage) -> Storage:
        """The line of an array that has the pattern."""
        vals = storage.vals.take(self.places)
        _freeze(vals, False)
        return Storage.of_frozen(_VECTOR, self.shape, storage.fill_value, self.buffers, vals)


def comes_back(storage: Storage, key: tuple[int, int, int]) -> bool:
    """Whether a diagonal that is not too long to be kept (False) was asked of this pattern before, which is noted."""
    lines = storage.cache.setdefault("lines", {})
    if key in lines:
        return lines[key] is None
    if len(lines) < LINES:
        lines[key] = None
    return False


def remembered(storage: Storage, key: tuple[int, int, int], begin: tuple[int, int], count: int) -> Storage:
    """`line` from `begin` on, in steps of one, whose places are kept with the pattern: of many rows where all `LINES` of this length take
    no more memory than the array. O(rows and their short entries)."""
    pos, crd = storage.buffers[1]

    def block(k: int) -> tuple[Array, Array]:
        rows = np.arange(begin[0] + k, begin[0] + min(k + BLOCK, count))
        here = passes.over(len(rows)).located(pos, crd, rows, rows + (begin[1] - begin[0]))
        there = (here >= 0).nonzero()[0]
        return (there + k).astype(crd_dtype(count), copy=False), here if len(there) == len(here) else here[there]

    numbers, found = zip(*map(block, range(0, count, BLOCK)), strict=True)
    places, number = (a[0] if len(a) == 1 else np.concatenate(a) for a in (found, numbers))
    made = vector(number, storage.vals.take(places), count, storage.fill_value)
    few = count <= BLOCK or LINES * len(places) <= len(storage.vals)
    storage.cache["lines"][key] = few and Line(places, made.buffers, (count,))
    return made


def vector(crd: Array, vals: Array, count: int, fill: Any) -> Storage:
    """A sparse vector (coo) of so many places."""
    return listed(_VECTOR, crd, vals, count, fill)


def listed(form: Format, crd: Array, vals: Array, count: int, fill: Any) -> Storage:
    """A sparse vector of so many places, in a format that lists them."""
    pos = np.array((0, len(crd)))
    _freeze(pos, False)
    _freeze(crd, False)
    _freeze(vals, False)
    return Storage.of_frozen(form, (count,), fill, ((pos, crd),), vals)


_VECTOR = Format.parse("coo", 1)


def all_of(vals: Array, fill: Any) -> Storage:
    """The sparse vector (coo) that stores all its elements; `vals` may be shared."""
    return vector(np.arange(len(vals), dtype=crd_dtype(len(vals))), vals, len(vals), fill)


def gathered(storage: Storage, columns: Sequence[Array]) -> Storage | None:
    """The array of the values at places, as a sparse vector (coo) over the fill; None as `located`.

    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 0.0]]), Format.parse("csr", 2), 0.0)
    >>> convert.to_dense(gathered(A, [np.array([1, 1, 0]), np.array([0, 1, 1])]))
    array([6., 0., 5.])
    """
    found = located(storage, columns)
    if found is None:
        return None
    count = len(columns[0])
    return vector(found[0].astype(crd_dtype(count), copy=False), found[1], count, storage.fill_value)
