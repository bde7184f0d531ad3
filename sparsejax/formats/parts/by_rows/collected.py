"""Matrices that are made some rows at a time, each part written behind the others as soon as it is there: beside the result there is one part.

pos 0 2 3, crd 1 4 0   and then   pos 0 1, crd 5     pos 0 2 3 4, crd 1 4 0 5, in vectors with room for as much as the rows before foretell
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from sparsejax.formats import convert
from sparsejax.formats.format import Format
from sparsejax.formats.levels.banded import Banded
from sparsejax.formats.levels.diagonal import Diagonal
from sparsejax.formats.levels.ell import Ell
from sparsejax.formats.levels.level import Level
from sparsejax.formats.levels.loose import LooseCompressed
from sparsejax.formats.parts.by_rows import padded
from sparsejax.formats.passes import Array
from sparsejax.formats.storage import Storage

MORE = 1.25
"""How much room there is for each row that comes, as a part of what those before take. Memory that nobody writes to is none."""
WIDENED = 1 << 14
"""Rows that are moved at a time where they become wider."""
FULL = 0.7
"""The part of the slots up to which rows are far from full."""


def of_rows(parts: Iterable[Storage | None], count: int, format: Format) -> Storage | None:
    """As `collected`, in a `format` of `padded.listed_rows`, of parts whose rows list their columns. Where rows of ell, or bands, are far from full, these are
    collected, and become these once: they take less memory than the slots, each of which is then written once.

    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 7.0]]), Format.parse("csr", 2), 0.0)
    >>> of_rows(iter([A, A]), 4, Format.parse("ell", 2)).buffers[1]
    (array([2]), array([1, 2, 1, 2]), array([1, 0, 0, 1, 1, 0, 0, 1], dtype=int32))
    """
    rows = padded.listed_rows(format)
    assert rows is not None
    parts = iter(parts)
    first = next(parts, None)
    if first is None:
        return None
    held = [first]  # not to stand beside what it becomes
    del first
    given = itertools.chain((held.pop() for _ in range(1)), parts)
    if _sparse(rows.level, *held[0].buffers[1]):
        whole = collected(given, count)
        return None if whole is None else convert.convert(whole, format)
    return collected((None if part is None else convert.convert(part, format) for part in given), count)


def _sparse(level: type[Level], pos: Array, crd: Array) -> bool:
    """Whether most positions that a level has for such rows are unused."""
    if not len(crd):
        return False
    if level is Ell:
        return FULL * (len(pos) - 1) * int(np.diff(pos).max()) > len(crd)
    if level is Banded:
        first, last = pos[:-1][pos[1:] > pos[:-1]], pos[1:][pos[1:] > pos[:-1]] - 1
        return FULL * int((crd[last] - crd[first] + 1).sum(dtype=np.int64)) > len(crd)
    return False


def collected(parts: Iterable[Storage | None], count: int) -> Storage | None:
    """Matrices in a format of `padded.listed_rows`, of one dtype and fill, which fill blocks of rows but for the last, one behind the other: `count` rows,
    or rows of blocks. None where one of them is None.

    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 7.0]]), Format.parse("ell", 2), 0.0)
    >>> collected(iter([padded.cut(A, 0, 1), A]), 3).buffers[1]
    (array([2]), array([1, 1, 2]), array([1, 0, 1, 0, 0, 1], dtype=int32))
    """
    level: _Level | None = None
    extent = here = 0
    held: list[Storage] = []
    for part in parts:
        if part is None:
            return None
        rows = padded.listed_rows(part.format)
        assert rows is not None
        number = -(-part.shape[rows.axis] // rows.step)
        if number == count:
            return part
        if level is None:
            level, form, inner = _Level(part, rows, count), part.format, part.buffers[2:]
            fill, shape, axis = part.fill_value, list(part.shape), rows.axis
        extent, here = extent + part.shape[rows.axis], here + number
        if rows.level is Diagonal:
            held.append(part)  # of which all diagonals must be known
        else:
            level.add(part, number)
        del part
    if level is None or here != count:
        return None
    if held:
        return padded.behind(held)
    own, vals = level.done()
    shape[axis] = extent
    return Storage(form, tuple(shape), fill, ((), own, *inner), vals)


class _Level:
    """The buffers of the level below rows, and values, as they grow."""

    def __init__(self, first: Storage, rows: padded.Rows, count: int) -> None:
        self._rows, self._count, self._here = rows, count, 0
        level = first.format.levels[1]
        self._kinds = [level.per[name] for name in level.buffer_types()]
        self._vectors = [_Vector(buffer.dtype) for buffer in (*first.buffers[1], first.vals)]
        self._fills = [0, 0, 0, first.fill_value]
        self._width = 0
        for vector, kind in zip(self._vectors, self._kinds, strict=False):
            if kind == "edge":
                vector.add(np.zeros(1, vector.dtype), count + 1)

    def add(self, part: Storage, number: int) -> None:
        """Put a part, of so many rows, behind the others."""
        self._here += number
        own: list[Array] = [*part.buffers[1]]
        entries = self._vectors[-1].used
        if self._rows.level is Ell:
            own[2], vals = self._of_width(number, own, part.vals)
        else:
            vals = part.vals
        for vector, kind, buffer in zip(self._vectors, [*self._kinds, "position"], [*own, vals], strict=True):
            if kind == "edge":
                vector.add(buffer[1:] + vector.last(), self._count + 1)
            elif kind == "parent" and self._rows.level is LooseCompressed:
                vector.add(buffer + entries, self._count)
            elif kind == "parent":
                vector.add(buffer, self._count)
            elif kind != "level":
                vector.add(buffer, self._foreseen(vector.used + len(buffer)))

    def done(self) -> tuple[tuple[Array, ...], Array]:
        """The buffers and values."""
        *own, vals = [vector.done() for vector in self._vectors]
        if self._rows.level is Ell:
            own[0] = np.array([self._width])
        return tuple(own), vals

    def _foreseen(self, used: int) -> int:
        """How many elements all rows have, as those that are there have so many."""
        return used if self._here == self._count else int(MORE * used * self._count / self._here) + 1

    def _of_width(self, number: int, own: list[Array], vals: Array) -> tuple[Array, Array]:
        """Coordinates and values of a part in rows as wide as all are, which become wider where those of the part are."""
        slots = int(own[0][0])
        if slots > self._width:
            before = self._here - number
            for vector, fill in zip((self._vectors[2], self._vectors[3]), (0, self._fills[3]), strict=True):
                vector.widen(before, self._width, slots, fill, int(slots * self._count))
            self._width = slots
        if slots == self._width:
            return own[2], vals
        made = []
        for given, fill in ((own[2], 0), (vals, self._fills[3])):
            grid = np.empty((number, self._width), given.dtype)
            padded.side_by_side(grid, given.reshape(number, slots), slots, fill)
            made.append(grid.reshape(-1))
        return made[0], made[1]


class _Vector:
    """A vector that others are put behind."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype, self.used, self._array = dtype, 0, np.empty(0, dtype)

    def add(self, given: Array, foreseen: int) -> None:
        """Put elements behind the others, of which there will be about as many as foreseen."""
        self._reserve(self.used + len(given), foreseen)
        self._array[self.used : self.used + len(given)] = given
        self.used += len(given)

    def last(self) -> Any:
        return self._array[self.used - 1]

    def done(self) -> Array:
        if self.used < len(self._array):
            self._array.resize(self.used, refcheck=False)  # the rest goes back to the system
        return self._array

    def widen(self, rows: int, old: int, new: int, fill: Any, foreseen: int) -> None:
        """Make rows wider, the last ones first: each goes to where none is that is still to be moved."""
        self._reserve(rows * new, foreseen)
        for begin in reversed(range(0, rows, WIDENED)):
            end = min(rows, begin + WIDENED)
            held = self._array[begin * old : end * old].reshape(end - begin, old).copy()
            padded.side_by_side(self._array[begin * new : end * new].reshape(end - begin, new), held, old, fill)
        self.used = rows * new

    def _reserve(self, least: int, foreseen: int) -> None:
        if least > len(self._array):
            made = np.empty(max(least, foreseen), self.dtype)
            made[: self.used] = self._array[: self.used]
            self._array = made
