"""Patterns of entries, sorted, and their tiles: how many words every tile takes in compressed sparse fiber form (CSF).

A CSF of d levels stores, for n entries with r_l distinct coordinates up to level l < d, one array of segment starts and one of
coordinates per level, and the values: 2 n + 2 (r_1 + ... + r_(d-1)) + d + 1 words; for a matrix 2 n + 2 r + 3 with r rows.
Every function takes O(entries), or O(entries log entries) where the grid of tiles has far more places than there are entries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.cached import cached_property
from sparsejax.dataflow import tally
from sparsejax.formats import Compressed, Coordinate, Dense, Format, ordering, passes
from sparsejax.formats.passes import crd_dtype
from sparsejax.formats.runs import changes
from sparsejax.formats.storage import Storage

Array = NDArray[Any]
ROOMY = 8
"""A grid of at most so many places per key is counted place by place, a larger one by sorting keys."""
SMALL = 1 << 14
SORTED = Dense, Compressed, Coordinate
"""Levels of which entries come sorted."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """Coordinates of the entries of an operand: one array per variable, sorted lexicographically, each entry once.

    `given` holds these; None for the first variable where `positions` are given, and its coordinates are made when they are asked for."""

    variables: tuple[str, ...]
    extents: tuple[int, ...]
    given: tuple[Array | None, ...]
    _runs: dict[int, Runs] = field(default_factory=dict, init=False, repr=False)
    _degrees: dict[int, Array] = field(default_factory=dict, init=False, repr=False)
    _starts: dict[int, tuple[Array, Array]] = field(default_factory=dict, init=False, repr=False)
    _positions: list[Array] = field(default_factory=list, repr=False)

    @property
    def positions(self) -> Array:
        """Where the entries of every first coordinate begin, and behind them where the last ones end."""
        if not self._positions:
            self._positions.append(passes.over(self.entries).offsets(self.columns[0], self.extents[0]))
        return self._positions[0]

    @cached_property
    def columns(self) -> tuple[Array, ...]:
        return tuple(passes.over(self.entries).owners(self.positions) if c is None else c for c in self.given)

    @cached_property
    def entries(self) -> int:
        return len(self.column(-1))

    def column(self, dimension: int) -> Array:
        """The coordinates of one variable."""
        found = self.given[dimension]
        return self.columns[dimension] if found is None else found

    @cached_property
    def is_counted(self) -> bool:
        """Whether machine code counts the entries (`tally`)."""
        return tally.applies(*(c for c in self.given if c is not None))

    @property
    def rows(self) -> tuple[Array, Array]:
        """What machine code reads of a matrix: where its rows start, or, where most rows are empty, the row of each entry; and the columns."""
        in_rows = bool(self._positions) or self.extents[0] <= self.entries
        return self.positions if in_rows else self.columns[0], self.column(1)

    def runs(self, tile: int) -> Runs:
        """Entries that agree in all coordinates but the last, and in the last divided by `tile`; the last few are kept."""
        if tile not in self._runs:
            while len(self._runs) > 3:
                del self._runs[next(iter(self._runs))]
            last = divided(self.columns[-1], tile)
            starts = np.flatnonzero(changes([*self.columns[:-1], last])) if self.entries else np.zeros(0, np.int64)
            self._runs[tile] = Runs(
                tuple(c[starts] for c in self.columns[:-1]), last[starts], np.diff(starts, append=self.entries), starts
            )
        return self._runs[tile]

    def degrees(self, dimension: int) -> Array:
        """Entries per coordinate."""
        if dimension not in self._degrees:
            self._degrees[dimension] = self._counts(dimension)
        return self._degrees[dimension]

    def _counts(self, dimension: int) -> Array:
        if dimension == 0 and self._positions:
            return np.diff(self._positions[0])
        column, extent = self.column(dimension), self.extents[dimension]
        return tally.degrees(column, extent) if tally.applies(column) else np.bincount(column, minlength=extent)

    def starts(self, tile: int) -> tuple[Array, Array]:
        """The last coordinate of every entry, divided, and whether it starts a run (`runs`); the last few are kept."""
        if tile not in self._starts:
            while len(self._starts) > 5:
                del self._starts[next(k for k in self._starts if k)]
            if 0 not in self._starts:
                self._starts[0] = (
                    self.columns[-1],
                    changes(self.columns[:-1]) if self.entries else np.zeros(0, np.bool_),
                )
            last = divided(self.columns[-1], tile)
            fresh = self._starts[0][1].copy()
            fresh[1:] |= last[1:] != last[:-1]
            self._starts[tile] = last, fresh
        return self._starts[tile]


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of entries: coordinates of all levels but the last, the tile of the last, how many entries, and where they start."""

    above: tuple[Array, ...]
    last: Array
    counts: Array
    starts: Array


@dataclass(frozen=True, eq=False)
class Tiles:
    """The tiles of a pattern that hold entries: coordinates in tiles per variable, words of each."""

    variables: tuple[str, ...]
    grid: tuple[int, ...]
    columns: tuple[Array, ...]
    words: Array

    @property
    def largest(self) -> int:
        return int(self.words.max(initial=0))

    def column(self, variable: str) -> Array:
        return self.columns[self.variables.index(variable)]


def words_of_csf(entries: int, prefixes: Sequence[int]) -> int:
    """Words of a CSF with so many entries, and so many distinct coordinates up to each level above the last."""
    return 2 * entries + 2 * sum(prefixes) + len(prefixes) + 2


def words_of_dense(extents: Sequence[int]) -> int:
    """Words of a CSF of which every place is stored."""
    prefixes = [math.prod(extents[: l + 1]) for l in range(len(extents) - 1)]
    return words_of_csf(math.prod(extents), prefixes)


def pattern_of(storage: Storage, dimensions: Sequence[str], variables: tuple[str, ...]) -> Pattern:
    """Where `storage`, with a variable per dimension, has entries, sorted by `variables`."""
    extents = tuple(storage.shape[dimensions.index(v)] for v in variables)
    form = storage.format
    if tuple(dimensions[d] for d in form.order) == variables and _in_rows(form):
        positions, columns_of = storage.buffers[1]
        return Pattern(
            variables,
            extents,
            (None, np.asarray(columns_of).astype(crd_dtype(extents[1]), copy=False)),
            _positions=[positions],
        )
    coords = storage.expand()[0]
    columns = [np.asarray(coords[dimensions.index(v)]) for v in variables]
    columns = [c.astype(crd_dtype(n), copy=False) for c, n in zip(columns, extents, strict=True)]
    if not form.blocked and all(level.unique and isinstance(level, SORTED) for level in form.levels):
        stored = tuple(dimensions[d] for d in form.order)
        if stored == variables:
            return Pattern(variables, extents, tuple(columns))
        if stored == variables[::-1] and len(variables) == 2 and is_roomy(extents[0], len(columns[0])):
            moves = passes.over(len(columns[0]))
            positions, (second,) = moves.bucketed(columns[0], [columns[1]], extents[0])
            return Pattern(variables, extents, (None, second), _positions=[positions])
    order = ordering.sort_order(columns, extents)
    if order is not None:
        columns = [c[order] for c in columns]
    if len(columns[0]):
        first = changes(columns)
        if not first.all():
            columns = [c[first] for c in columns]
    return Pattern(variables, extents, tuple(columns))


def _in_rows(form: Format) -> bool:
    """Whether a matrix is stored as where its rows start, and columns."""
    return (
        not form.blocked
        and len(form.levels) == 2
        and isinstance(form.levels[0], Dense)
        and isinstance(form.levels[1], Compressed)
        and form.levels[1].unique
    )


def divided(column: Array, tile: int) -> Array:
    """Coordinates in tiles."""
    if tile == 1:
        return column
    return (
        column >> (tile.bit_length() - 1)
        if tile & (tile - 1) == 0
        else column // column.dtype.type(min(tile, np.iinfo(column.dtype).max))
    )


def grid_of(extents: Sequence[int], tiles: Sequence[int]) -> tuple[int, ...]:
    """How many tiles there are per dimension."""
    return tuple(-(-n // t) for n, t in zip(extents, tiles, strict=True))


def packed(columns: Sequence[Array], grid: Sequence[int], count: int = 0) -> Array:
    """One number per place of a grid; of a grid without dimensions, which has one place, `count` times that of it."""
    if math.prod(grid) >= 2**63:
        raise ValueError(
            f"a grid of {' x '.join(map(str, grid))} places is too large to be numbered; choose longer tiles"
        )
    if not columns:
        return np.zeros(count, np.int64)
    key = columns[0].astype(np.int64)
    for column, n in zip(columns[1:], grid[1:], strict=True):
        key *= n
        key += column
    return key


def unpacked(keys: Array, grid: Sequence[int]) -> tuple[Array, ...]:
    """The inverse of `packed`."""
    columns: list[Array] = []
    for n in reversed(grid[1:]):
        above = keys // n
        columns.append(keys - above * n)
        keys = above
    return (keys, *reversed(columns))


def room(keys: int) -> int:
    """The places of the largest table that costs no more than to sort so many keys."""
    return max(ROOMY * keys, SMALL)


def is_roomy(space: int, keys: int) -> bool:
    """Whether a table of `space` places costs no more than to sort so many keys."""
    return space <= room(keys)


def distinct(keys: Array, space: int) -> Array:
    """The distinct keys, sorted."""
    if is_roomy(space, len(keys)):
        seen = np.zeros(space, np.bool_)
        seen[keys] = True
        return np.flatnonzero(seen)
    ordered = np.sort(keys)
    return ordered[changes([ordered])] if len(ordered) else ordered


def sums(keys: Array, weights: Array, space: int) -> tuple[Array, Array]:
    """(distinct keys, sum of the positive weights of each)."""
    if is_roomy(space, len(keys)):
        totals = np.bincount(keys, weights, space)
        found = np.flatnonzero(totals > 0)
        return found, totals[found].astype(np.int64)
    if not len(keys):
        return keys, weights.astype(np.int64)
    bits = int(weights.max()).bit_length()
    if space.bit_length() + bits < 63:
        both = np.sort((keys << bits) | weights)
        keys, weights = both >> bits, both & ((1 << bits) - 1)
    else:
        order = np.argsort(keys, kind="stable")
        keys, weights = keys[order], weights[order]
    starts = np.flatnonzero(changes([keys]))
    return keys[starts], np.add.reduceat(weights.astype(np.int64), starts)


def fits(pattern: Pattern, tiles: Sequence[int], buffer: int) -> bool:
    """Whether no tile has more words than the buffer: `tiles_of(...).largest <= buffer`, but entries alone decide where they can: n of
    them in a matrix take 2 n + 5 to 4 n + 3 words."""
    grid = grid_of(pattern.extents, tiles)
    space = math.prod(grid)
    if len(tiles) != 2 or not is_roomy(space, pattern.entries) or not pattern.entries:
        return tiles_of(pattern, tiles).largest <= buffer
    if 2 * pattern.entries > space * buffer:
        return False
    if 1 in grid and is_roomy(pattern.extents[grid[0] == 1], pattern.entries):
        most = int(np.add.reduceat(*_slabs(pattern, grid, tiles)).max())
        if 2 * most + 5 > buffer or 4 * most + 3 <= buffer:
            return 2 * most + 5 <= buffer
    if pattern.is_counted:
        return int(table(pattern, tiles).max()) + 3 <= buffer
    key = _tile_keys(pattern, tiles, grid)
    entries = np.bincount(key, minlength=space)
    most = int(entries.max())
    if 2 * most + 5 > buffer or 4 * most + 3 <= buffer:
        return 2 * most + 5 <= buffer
    rows = np.bincount(key[pattern.starts(tiles[1])[1]], minlength=space)
    return 2 * int((entries + rows).max()) + 3 <= buffer


def _slabs(pattern: Pattern, grid: Sequence[int], tiles: Sequence[int]) -> tuple[Array, Array]:
    """Entries per coordinate of the variable that is cut, and where its tiles start."""
    d = 1 if grid[0] == 1 else 0
    return pattern.degrees(d), np.arange(0, pattern.extents[d], tiles[d])


def _tile_keys(pattern: Pattern, tiles: Sequence[int], grid: Sequence[int]) -> Array:
    """The number of the tile of every entry of a matrix."""
    rows, last = divided(pattern.columns[0], tiles[0]), pattern.starts(tiles[1])[0]
    if math.prod(grid) >= 2**31 or rows.dtype != last.dtype:
        return packed([rows, last], grid)
    keys: Array = rows * rows.dtype.type(grid[1]) + last
    return keys


def table(pattern: Pattern, tiles: Sequence[int]) -> Array:
    """Words of all tiles of a matrix, but for the three that each takes: one place per tile of the grid, empty ones too."""
    grid = grid_of(pattern.extents, tiles)
    if pattern.is_counted:
        return tally.words(pattern.rows, pattern.extents[0], tiles, grid).reshape(grid)
    key = _tile_keys(pattern, tiles, grid)
    entries = np.bincount(key, minlength=math.prod(grid))
    rows = np.bincount(key[pattern.starts(tiles[1])[1]], minlength=len(entries))
    return (2 * (entries + rows)).reshape(grid)


def tiles_of(pattern: Pattern, tiles: Sequence[int]) -> Tiles:
    """The tiles of a pattern, of `tiles` coordinates per variable."""
    grid = grid_of(pattern.extents, tiles)
    if len(tiles) == 2 and is_roomy(math.prod(grid), pattern.entries) and pattern.entries:
        if math.prod(grid) > pattern.entries and pattern.is_counted:
            found, words = tally.listed_words(pattern.rows, pattern.extents[0], tiles, grid)
            return Tiles(pattern.variables, grid, unpacked(found, grid), words + 3)
        words = table(pattern, tiles).reshape(-1)
        found = np.flatnonzero(words > 0)  # three times as fast as of numbers
        return Tiles(pattern.variables, grid, unpacked(found, grid), words[found].astype(np.int64) + 3)
    levels = len(tiles)
    runs = pattern.runs(tiles[-1])
    columns, space = [*runs.above, runs.last], math.prod(grid)
    keys = [packed([divided(c, t) for c, t in zip(columns, (*tiles[:-1], 1), strict=True)], grid)]
    weights = [2 * runs.counts + (2 if levels > 1 else 0)]
    extents = [*pattern.extents[:-1], grid[-1]]
    for level in range(levels - 2, 0, -1):  # distinct coordinates up to `level`, in every tile of the levels below
        columns[level] = divided(columns[level], tiles[level])
        extents[level] = grid[level]
        columns = list(unpacked(distinct(packed(columns, extents), math.prod(extents)), extents))
        at = [divided(c, t) if k < level else c for k, (c, t) in enumerate(zip(columns, tiles, strict=True))]
        keys.append(packed(at, grid))
        weights.append(np.full(len(keys[-1]), 2))
    key, weight = (p[0] if len(p) == 1 else np.concatenate(p) for p in (keys, weights))
    found, words = sums(key, weight, space)
    return Tiles(pattern.variables, grid, unpacked(found, grid), words + levels + 1)
