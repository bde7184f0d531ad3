"""The passes that conversions are made of, each linear in its entries (and in its segments or buckets).

    owners     pos = [0, 2, 2, 3]           -> 0 0 2           the segment of every position
    offsets    parent = 0 0 2, parents = 3  -> 0 2 2 3         the reverse
    take       column, index                -> column[index]
    ordered    key = 1 0 1, columns         -> 0 1 1, and columns with entries in the same, stable order
    bucketed   key = 1 0 1, columns         -> 0 1 3, and columns in that order: as offsets(ordered)
    distinct   columns, entries in order    -> columns without equal neighbours, and the number of every entry among them
    grid       count = 2, extent = 3        -> 0 0 0 1 1 1     the entries of a dense level: whose, and which
                                               0 1 2 0 1 2
    joined     block, place, size           -> block * size + place
    spread     vals, position, count, fill  -> fill but for vals at their positions

Here they are in NumPy, for few entries. From `MANY` on they are machine code, once the compiler has registered its own (`use`),
as this floor knows of no compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import config

Array = NDArray[Any]

MANY = 4096
"""Entries from which machine code is worth its call, and a process that has none yet its loading."""


def crd_dtype(extent: int) -> np.dtype[Any]:
    """The dtype of coordinates below `extent`: int32 where it fits.

    >>> crd_dtype(2**40)
    dtype('int64')
    """
    return np.dtype(np.int32 if extent <= 2**31 - 1 else np.int64)


class Passes:
    """The passes in NumPy."""

    def owners(self, pos: Array) -> Array:
        """The segment of every position; `pos` starts at zero.

        >>> Passes().owners(np.array([0, 2, 2, 3]))
        array([0, 0, 2], dtype=int32)
        """
        parents = len(pos) - 1
        return np.repeat(np.arange(parents, dtype=crd_dtype(parents)), np.diff(pos))

    def offsets(self, parent: Array, parents: int) -> Array:
        """Where the segment of each of `parents` begins, and after them where the last one ends; `parent` increases.

        >>> Passes().offsets(np.array([0, 0, 2]), 3)
        array([0, 2, 2, 3])
        """
        pos = np.zeros(parents + 1, np.int64)
        np.cumsum(np.bincount(parent, minlength=parents), out=pos[1:])
        return pos

    def take(self, column: Array, index: Array) -> Array:
        """`column[index]`; indices are in bounds."""
        return np.take(column, index)

    def ordered(self, key: Array, columns: Sequence[Array], extent: int) -> tuple[Array, list[Array]]:
        """(key, columns) with entries ordered, stably, by `key`, whose numbers are below `extent`.

        >>> Passes().ordered(np.array([1, 0, 1]), [np.array([5.0, 6.0, 7.0])], 2)
        (array([0, 1, 1]), [array([6., 5., 7.])])
        """
        # a radix sort for 16-bit numbers
        order = np.argsort(key.astype(np.uint16) if extent <= 2**16 else key, kind="stable")
        return np.take(key, order), [np.take(column, order) for column in columns]

    def bucketed(self, key: Array, columns: Sequence[Array], extent: int) -> tuple[Array, list[Array]]:
        """As `ordered`; but instead of the key, where the entries of each of its `extent` values begin, and where they end.

        >>> Passes().bucketed(np.array([1, 0, 1]), [np.array([5.0, 6.0, 7.0])], 3)
        (array([0, 1, 3, 3]), [array([6., 5., 7.])])
        """
        key, moved = self.ordered(key, columns, extent)
        return self.offsets(key, extent), moved

    def distinct(self, columns: Sequence[Array]) -> tuple[list[Array], Array]:
        """Columns without equal neighbours, and the number that every entry has among those left.

        >>> Passes().distinct([np.array([1, 1, 2])])
        ([array([1, 2])], array([0, 0, 1]))
        """
        fresh = changes(columns)
        return [column[fresh] for column in columns], np.cumsum(fresh) - 1

    def grid(self, count: int, extent: int) -> tuple[Array, Array]:
        """The owner and the number of every element of `count` rows of `extent` elements.

        >>> Passes().grid(2, 3)
        (array([0, 0, 0, 1, 1, 1], dtype=int32), array([0, 1, 2, 0, 1, 2], dtype=int32))
        """
        owners, numbers = (np.arange(n, dtype=crd_dtype(n)) for n in (count, extent))
        return np.repeat(owners, extent), np.tile(numbers, count)

    def joined(self, block: Array, place: Array, size: int, extent: int) -> Array:
        """`block * size + place`, coordinates below `extent`.

        >>> Passes().joined(np.array([0, 2]), np.array([1, 0]), 3, 9)
        array([1, 6], dtype=int32)
        """
        return (block.astype(crd_dtype(extent + size), copy=False) * size + place).astype(crd_dtype(extent), copy=False)

    def spread(self, vals: Array, position: Array, count: int, fill: Any) -> Array:
        """`count` values: `vals` at their positions, `fill` elsewhere.

        >>> Passes().spread(np.array([1.0, 2.0]), np.array([2, 0]), 4, 0)
        array([2., 0., 1., 0.])
        """
        made = np.full(count, fill, vals.dtype)
        made[position] = vals
        return made


def changes(columns: Sequence[Array]) -> NDArray[np.bool_]:
    """Whether each entry differs from the one before it in some column (the first one does)."""
    fresh = np.ones(len(columns[0]), bool)
    rest = fresh[1:]
    for k, column in enumerate(columns):
        step = column[1:] != column[:-1]
        np.copyto(rest, step) if k == 0 else np.logical_or(rest, step, out=rest)
    return fresh


_few = _many = Passes()
_prefers: Callable[[int], bool] | None = None


def use(many: Passes, prefers: Callable[[int], bool]) -> None:
    """Run passes over many entries by `many`; where plans are forced (`config.choose`), those over as many as it `prefers`."""
    global _many, _prefers
    _many, _prefers = many, prefers


def over(entries: int) -> Passes:
    """The passes for as many entries."""
    if config.forcing and _prefers is not None:
        return _many if _prefers(entries) else _few
    return _few if entries < MANY else _many
