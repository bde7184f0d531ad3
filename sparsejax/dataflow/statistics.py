"""Statistics of one array in tiles, as the D2T2 paper collects them (sections 4.3 and 4.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparsejax.core import primitive
from sparsejax.dataflow import plots, tally
from sparsejax.dataflow.pattern import (
    Array,
    Pattern,
    Tiles,
    distinct,
    divided,
    grid_of,
    is_roomy,
    packed,
    pattern_of,
    sums,
    tiles_of,
    unpacked,
)
from sparsejax.dataflow.report import html, table
from sparsejax.formats.levels.segments import ranges
from sparsejax.formats.runs import changes

FARTHEST = 1 << 12
"""Corrs is taken up to this shift."""
PAIRS, POINTS = 1 << 16, 2048
"""Overlaps are counted in slabs of tiles with about a sixteenth of so many entries, of about so many of these."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics of an array cut into tiles.

    shape, nnz, tile   of the array; the extents of a tile per dimension
    tiles              how many tiles hold entries
    size_tile, max_tile  SizeTile and MaxTile: mean and largest words of these, as compressed sparse fibers
    pr_tile_idx        PrTileIdx per dimension: how many of its tile coordinates are present, given those of the dimensions before
    prob_index         ProbIndex per dimension: the same of coordinates inside a tile
    corrs              Corrs per dimension, by the shift s: entries that still have a neighbour s further on in the same tile, in proportion
    tile_corrs         TileCorrs per dimension, by the shift in tiles
    histograms         per dimension: how many coordinates have 0, 1, 2 to 3, 4 to 7, ... entries
    """

    shape: tuple[int, ...]
    nnz: int
    tile: tuple[int, ...]
    tiles: int
    size_tile: float
    max_tile: int
    pr_tile_idx: tuple[float, ...]
    prob_index: tuple[float, ...]
    corrs: tuple[Array, ...] = field(repr=False)
    tile_corrs: tuple[Array, ...] = field(repr=False)
    histograms: tuple[Array, ...] = field(repr=False)

    @property
    def p_tile(self) -> float:
        """The probability that a tile holds entries: the product of PrTileIdx (equation 9)."""
        return math.prod(self.pr_tile_idx)

    @property
    def density_in_tile(self) -> float:
        """The probability that a place of such a tile holds one: the product of ProbIndex (equation 10)."""
        return math.prod(self.prob_index)

    @property
    def corrs_sum(self) -> tuple[float, ...]:
        """The sum of Corrs per dimension: below about 1.6 in what is summed over, tiles of outer products move least."""
        return tuple(float(c.sum()) for c in self.corrs)

    def __str__(self) -> str:
        lines = [
            f"statistics of {' x '.join(map(str, self.shape))} with {self.nnz:,} entries, in tiles of {' x '.join(map(str, self.tile))}",
            f"  {self.tiles:,} tiles hold entries; words of a tile: SizeTile {self.size_tile:,.1f}, MaxTile {self.max_tile:,}",
        ]
        rows: list[tuple[str, ...]] = [("", *(f"axis {d}" for d in range(len(self.shape))))]
        rows.append(("PrTileIdx", *(f"{x:.4g}" for x in self.pr_tile_idx)))
        rows.append(("ProbIndex", *(f"{x:.4g}" for x in self.prob_index)))
        rows.append(("sum of Corrs", *(f"{x:.3f}" for x in self.corrs_sum)))
        rows.append(("TileCorrs at 1", *(f"{c[1]:.3f}" if len(c) > 1 else "" for c in self.tile_corrs)))
        bins = max(len(h) for h in self.histograms)
        for k in range(bins):
            low, high = (0, 0) if k == 0 else (1 << (k - 1), (1 << k) - 1)
            label = f"with {low} entries" if low == high else f"with {low} to {high}"
            rows.append((label, *(f"{h[k]:,}" if k < len(h) else "" for h in self.histograms)))
        return "\n".join([*lines, *table(rows, "  ")])

    def _repr_html_(self) -> str:
        return html(str(self))

    def plot(self, ax: Any = None) -> Any:
        """Corrs and TileCorrs by shift. Needs matplotlib."""
        return plots.statistics(self, ax)


def stats(A: Any, tile: int | Sequence[int] = 128) -> Statistics:
    """Statistics of an array of any format and number of dimensions, cut into tiles of `tile` coordinates (one number for all
    dimensions, or one each): what the traffic model of the D2T2 paper (sections 4.3, 4.4) is made of.

    Every stored entry counts, whatever its value. Corrs and TileCorrs are counted in a sample, from 4,096 on; everything else in all. O(entries).
    TypeError for what is no array, ValueError for extents below one.

    >>> import numpy as np, sparsejax as sj
    >>> told = sj.stats(sj.array(np.eye(8), format="csr"), tile=4)
    >>> told.tiles, told.size_tile, told.pr_tile_idx, told.prob_index
    (2, 19.0, (1.0, 0.5), (1.0, 0.25))
    """
    made = primitive.asarray(A, "the argument of stats")
    storage = getattr(made, "storage", None)
    if storage is None:
        raise TypeError("stats needs an array, not a traced value: statistics depend on where the entries are")
    if not made.ndim:
        raise ValueError("stats needs an array of at least one dimension; a scalar has no tiles")
    edges = checked_tile(tile, made.shape)
    names = tuple(f"d{d}" for d in range(made.ndim))
    return of_pattern(pattern_of(storage, names, names), edges)


def checked_tile(tile: int | Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """One extent per dimension, no longer than it."""
    if not isinstance(tile, int | np.integer | Sequence | np.ndarray):
        raise TypeError(f"tile is {tile!r}, of type {type(tile).__name__}; write one integer, or one per dimension")
    edges = [tile] * len(shape) if isinstance(tile, int | np.integer) else list(tile)
    if len(edges) != len(shape):
        raise ValueError(f"tile has {len(edges)} extents, but the array has {len(shape)} dimensions")
    for e in edges:
        if isinstance(e, bool) or not isinstance(e, int | np.integer) or e < 1:
            raise ValueError(f"tile has an extent {e!r}; extents are integers of at least 1")
    return tuple(max(1, min(int(e), n)) for e, n in zip(edges, shape, strict=True))


def of_pattern(pattern: Pattern, edges: Sequence[int]) -> Statistics:
    """Statistics of a pattern, its variables in the order of storage."""
    grid = grid_of(pattern.extents, edges)
    tiles = tiles_of(pattern, edges)
    count, n = len(tiles.words), pattern.entries
    outer = _fractions(packed(tiles.columns, grid), grid, 1)
    inner = _inner(pattern, edges, grid, tiles)
    sample = _sampled(pattern, edges[0])
    return Statistics(
        pattern.extents,
        n,
        tuple(edges),
        count,
        float(tiles.words.mean()) if count else 0.0,
        tiles.largest,
        outer,
        inner,
        tuple(_corrs(pattern, sample, edges, grid, d) for d in range(len(edges))),
        tuple(_tile_corrs(tiles.columns, grid, d) for d in range(len(edges))),
        tuple(_histogram(pattern, d) for d in range(len(edges))),
    )


def _fractions(keys: Array, extents: Sequence[int], parents: int) -> tuple[float, ...]:
    """Per level: distinct coordinates in proportion to those there are below every one above, of sorted distinct keys."""
    counts = []
    for level in range(len(extents)):
        below = math.prod(extents[level + 1 :])
        counts.append(int(np.count_nonzero(changes([keys // max(below, 1)]))) if len(keys) else 0)
    return _ratios(counts, extents, parents)


def _ratios(counts: Sequence[int], extents: Sequence[int], parents: int) -> tuple[float, ...]:
    made = []
    for found, extent in zip(counts, extents, strict=True):
        made.append(found / (parents * extent) if parents and extent else 0.0)
        parents = found
    return tuple(made)


def _inner(pattern: Pattern, edges: Sequence[int], grid: Sequence[int], tiles: Tiles) -> tuple[float, ...]:
    """ProbIndex: over all tiles, distinct coordinates up to each level in proportion to those below every one above."""
    levels = len(edges)
    if levels == 2:
        rows = (
            int((tiles.words - 3).sum()) // 2 - pattern.entries
        )  # a tile of n entries in r rows takes 2 n + 2 r + 3 words
        return _ratios([rows, pattern.entries], edges, len(tiles.words))
    runs = pattern.runs(edges[-1])
    columns, counts = [*runs.above, runs.last], [pattern.entries]
    extents = [*pattern.extents[:-1], grid[-1]]
    if levels > 1:
        counts.insert(0, len(runs.starts))
    for level in range(levels - 2, 0, -1):
        columns[level], extents[level] = divided(columns[level], edges[level]), grid[level]
        keys = distinct(packed(columns, extents), math.prod(extents))
        columns = list(unpacked(keys, extents))
        counts.insert(0, len(keys))
    return _ratios(counts, edges, len(tiles.words))


def _tile_corrs(columns: Sequence[Array], grid: Sequence[int], dimension: int) -> Array:
    """Equation 12, per tile: of the tiles that hold entries, how many have one that does s further on; 1 at s = 0."""
    others = [c for d, c in enumerate(columns) if d != dimension]
    extents = [n for d, n in enumerate(grid) if d != dimension]
    return _overlaps(others, extents, columns[dimension], grid[dimension], min(grid[dimension], 129))


def _overlaps(others: Sequence[Array], extents: Sequence[int], at: Array, extent: int, shifts: int) -> Array:
    """Per shift: how many points have one with the same other coordinates that lies so much further on, in proportion to all. Of many, some
    are looked at, at equal distances."""
    shifts = max(shifts, 1)
    whole = [*extents, extent + shifts]  # between groups of points lie more than all shifts
    keys = packed([*others, at], whole)
    if len(keys) and (keys[1:] < keys[:-1]).any():
        keys = distinct(keys, math.prod(whole))
    left = np.arange(0, len(keys), max(1, len(keys) // POINTS))
    return tally.overlaps(keys, left, shifts) / max(len(left), 1)


def _sampled(pattern: Pattern, edge: int) -> tuple[Array, ...]:
    """Coordinates of all entries, or, of many, those in slabs of the outermost dimension, drawn at equal distances."""
    n = pattern.entries
    if n * 16 <= PAIRS:
        return pattern.columns

    def drawn(slabs: int) -> Array:
        share = min(max(1, round(slabs * PAIRS / (16 * n))), slabs)
        return np.arange(share) * (slabs - 1) // max(share - 1, 1)

    if is_roomy(pattern.extents[0], n):  # rows are known by where they start
        ends = np.append(pattern.positions[:-1:edge], n)
        slabs = np.flatnonzero(ends[1:] > ends[:-1])
        slabs = slabs[drawn(len(slabs))]
        rows = ranges(slabs * edge, np.minimum((slabs + 1) * edge, pattern.extents[0]))[1]
        most = ends[rows // edge] + PAIRS
        starts, ends = (np.minimum(pattern.positions[r], most) for r in (rows, rows + 1))
        owner, place = ranges(starts, ends)
        return rows[owner], *(pattern.column(d)[place] for d in range(1, len(pattern.extents)))
    starts = np.flatnonzero(changes([divided(pattern.columns[0], edge)]))
    ends = np.append(starts[1:], n)
    chosen = drawn(len(starts))
    place = ranges(starts[chosen], np.minimum(ends[chosen], starts[chosen] + PAIRS))[1]
    return tuple(c[place] for c in pattern.columns)


def _corrs(
    pattern: Pattern, columns: Sequence[Array], edges: Sequence[int], grid: Sequence[int], dimension: int
) -> Array:
    """Equation 11, inside tiles: rows of these entries along `dimension` that overlap when shifted."""
    edge = edges[dimension]
    others = [c for d, c in enumerate(columns) if d != dimension]
    extents = [x for d, x in enumerate(pattern.extents) if d != dimension]
    shifts = min(edge, FARTHEST)
    length = pattern.extents[dimension] + shifts * grid[dimension]
    if math.prod(extents) * (length + shifts) >= 2**63:
        others = [np.unique(c, return_inverse=True)[1] for c in others]
        extents = [int(c.max(initial=0)) + 1 for c in others]
    at = columns[dimension].astype(np.int64)
    return _overlaps(others, extents, at + shifts * divided(at, edge), length, shifts)


def _histogram(pattern: Pattern, dimension: int) -> Array:
    """How many coordinates have 0, 1, 2 to 3, 4 to 7, ... entries."""
    extent, entries = pattern.extents[dimension], pattern.entries
    if extent <= 4 * entries + 1024:
        return tally.bins(pattern.degrees(dimension))
    keys, counts = sums(pattern.column(dimension).astype(np.int64), np.ones(entries, np.int64), extent)
    made = tally.bins(counts)
    made[0] += extent - len(keys)
    return made
