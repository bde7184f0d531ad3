"""Words of the result that are written: counts of distinct coordinates of partial results, in tiles.

The tiles of all partial results hold `N` entries, with `R_l` distinct coordinates up to storage level l, in `T` tiles: together
2 N + 2 (R_1 + ... ) + (d + 1) T words. Each of these numbers is the count of entries of one product of patterns, in which coordinates
of the levels below l are divided by the extents of tiles, and what is summed over appears, divided, where partial results stream
out (`nest`). N does not depend on the tiles of the result, which makes searches cheap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from sparsejax.dataflow import drawn, products
from sparsejax.dataflow.contraction import Contraction
from sparsejax.dataflow.nest import Nest
from sparsejax.dataflow.pattern import Array, is_roomy, packed
from sparsejax.dataflow.products import Rows

Key = tuple[tuple[str, int], ...]
WORK = 1 << 18
"""Multiplications of rows that are drawn for one estimate."""
ROUGH = 1 << 16
"""The same where shapes are compared."""
SLACK = 0.003
"""Tiles of the output are bounded, not counted, where they take up to this share of its words."""
DRAWS, FEW = 1024, 192
"""Rows that are drawn at most; as many as there should be before columns are thinned out."""


@dataclass
class Outputs:
    """Counts of one contraction under one loop order, kept."""

    contraction: Contraction
    order: tuple[str, ...]
    drawn_work: int = drawn.WORK
    _left: dict[Key, Rows] = field(default_factory=dict, init=False)
    _right: dict[Key, Rows] = field(default_factory=dict, init=False)
    _ends: list[tuple[Array, Rows, Array]] = field(default_factory=list, init=False)
    _counts: dict[tuple[Key, Key, int], float] = field(default_factory=dict, init=False)
    _drawn: list[drawn.Drawn | None] = field(default_factory=list, init=False)
    _covering: dict[int, bool] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        inputs, output = self.contraction.inputs, self.contraction.output
        ordered = [tuple(v for v in self.order if v in vs) for vs in inputs]
        self.reduced = tuple(v for v in ordered[0] if v not in output)
        kept = tuple(v for v in ordered[0] if v in output)
        self.left = self.contraction.pattern(0, (*kept, *self.reduced))
        shared = [v for v in ordered[0] if any(v in vs for vs in inputs[1:])]
        self.private = [v for v in self.order if v in output and v not in inputs[0]]
        self.shared = shared
        self.number: Array | None = None
        self.coordinates: tuple[Array, ...] | None = None
        places = math.prod(self.contraction.extents[v] for v in shared)
        if shared != list(self.reduced) or len(shared) != 1 or not is_roomy(places, self.left.entries):
            self.number, self.coordinates = products.numbered(self.left, shared)

    @property
    def rows(self) -> drawn.Drawn | None:
        """Rows that are drawn from a product of two matrices."""
        if not self._drawn:
            self._drawn.append(drawn.of(self.contraction, self.order, self.drawn_work))
        return self._drawn[0]

    def words(self, nest: Nest, exact: bool, work: int = WORK, visited: int | None = None) -> float:
        """Words of all partial results in tiles; without `exact`, estimated from drawn rows, of up to `work` multiplications. `visited` bounds
        how many tiles of partial results there are, which is close enough where these are few."""
        order = nest.of(self.contraction.output)
        total = 0.0
        for level in range(len(order), -1, -1):
            weight = 2 if level else len(order) + 1
            if not level and visited is not None and (weight * visited < SLACK * total or self._in_one(nest)):
                found: float = visited
            else:
                found = self.count(nest, order[level:], exact, work)
            total += weight * found
        return total

    def _in_one(self, nest: Nest) -> bool:
        """Whether each meeting of tiles makes one tile: partial results stream out of every iteration over the finest tiles, and one operand, not
        cut but in what is summed over, has entries wherever the other one needs some."""
        outputs, extents = self.contraction.output, self.contraction.extents
        seen = nest.seen(outputs)
        if len(self.contraction.inputs) != 2 or any(seen.get(v) != nest.tiles[v] for v in self.reduced):
            return False
        uncut = [all(nest.tiles[v] >= extents[v] for v in vs if v in outputs) for vs in self.contraction.inputs]
        return any(whole and self._covers(k) for k, whole in enumerate(uncut))

    def _covers(self, operand: int) -> bool:
        """Whether one of two operands has entries at all coordinates that are shared and at which the other one has some."""
        if operand not in self._covering:
            right = self.contraction.pattern(1, (*self.shared, *self.private))
            sides = [self.left, right][:: 1 if operand == 0 else -1]
            places = [[p.variables.index(v) for v in self.shared] for p in sides]
            extents = [self.contraction.extents[v] for v in self.shared]
            if len(extents) == 1 and all(is_roomy(extents[0], p.entries) for p in sides):
                own, other = (p.degrees(d) for p, (d,) in zip(sides, places, strict=True))
                self._covering[operand] = not other[own == 0].any()
            else:
                own, other = (
                    packed([p.columns[d] for d in ds], extents, p.entries) for p, ds in zip(sides, places, strict=True)
                )
                self._covering[operand] = bool(np.isin(other, own).all())
        return self._covering[operand]

    def count(self, nest: Nest, cut: tuple[str, ...], exact: bool, work: int = WORK) -> float:
        """Distinct coordinates of partial results, those of `cut` divided by the extents of tiles."""
        seen = nest.seen(self.contraction.output)
        if not exact and len(cut) < 2 and self.rows is not None:
            (k,), y = self.contraction.reduced, nest.of(self.contraction.output)[1]
            return self.rows.count(seen.get(k, self.contraction.extents[k]), nest.tiles[y] if cut else 1)
        tiles = {v: nest.tiles[v] for v in cut} | {v: seen[v] for v in self.reduced if v in seen}
        left = tuple(
            (v, tiles[v]) for v in self.left.variables if tiles.get(v, 1) > 1 or (v in seen and v in self.reduced)
        )
        right = tuple((v, tiles[v]) for v in self.private if tiles.get(v, 1) > 1)
        key = left, right, 0 if exact else work
        if key not in self._counts:
            rows, others = self._rows(left), self._others(right)
            extent = math.prod(-(-self.contraction.extents[v] // tiles.get(v, 1)) for v in self.private)
            if extent == 1:  # every row that meets anything makes one
                self._counts[key] = products.meeting(rows, others)
            elif exact:
                self._counts[key] = products.count(rows, others, extent)
            else:
                self._counts[key] = estimated(rows, others, extent, work, self._multiplied(rows, others))
        return self._counts[key]

    def _multiplied(self, rows: Rows, others: Rows) -> Array:
        """Multiplications of all entries of `rows` before each; kept for rows that are cut elsewhere but have the same entries."""
        for indices, second, found in self._ends:
            if indices is rows.indices and second is others:
                return found
        found = products.running_multiplications(rows, others)
        self._ends = [(rows.indices, others, found), *self._ends[:2]]
        return found

    def _rows(self, key: Key) -> Rows:
        if key not in self._left:
            while len(self._left) > 4:
                del self._left[next(iter(self._left))]
            self._left[key] = products.left_rows(self.left, self.reduced, dict(key), self.number)
        return self._left[key]

    def _others(self, key: Key) -> Rows:
        if key not in self._right:
            while len(self._right) > 4:
                del self._right[next(iter(self._right))]
            self._right[key] = self._made(dict(key))
        return self._right[key]

    def _made(self, tiles: dict[str, int]) -> Rows:
        inputs = self.contraction.inputs
        if len(inputs) == 2:
            pattern = self.contraction.pattern(1, (*self.shared, *self.private))
            return products.right_rows(pattern, len(self.shared), tiles, self.coordinates)
        if tiles:
            (tile,) = tiles.values()
            return products.divided_rows(self._others(()), tile)
        assert self.coordinates is not None
        (own,) = self.private
        places = [next(v for v in vs if v != own) for vs in inputs[1:]]
        patterns = [self.contraction.pattern(k, (v, own)) for k, v in enumerate(places, 1)]
        coordinates = tuple(self.coordinates[self.shared.index(v)] for v in places)
        return products.joined_rows(patterns, coordinates, self.contraction.extents[own])


def estimated(left: Rows, right: Rows, extent: int, work: int, ends: Array) -> float:
    """Entries of the product of two patterns, estimated; exact where all rows take no more multiplications than `work`.

    A row with m multiplications, of rows of `right` with up to L entries, makes between L and m entries. One row is drawn from each of equal
    shares of the sum of sqrt(m L), and the mean of entries over sqrt(m L), times that sum, is unbiased (Horvitz and Thompson 1952). Where
    rows are long, of every few neighbouring columns one is drawn, and what of the drawn rows' multiplications is left corrects for it.
    `ends`: multiplications of all entries of `left` before each."""
    below = ends[left.starts]
    weights = np.diff(below)
    if int(ends[-1]) <= work:
        return int(products.distinct_per_row(left, right, np.flatnonzero(weights), extent)[0].sum())
    least = np.zeros(len(weights))
    held = np.flatnonzero(np.diff(left.starts))
    least[held] = np.maximum.reduceat(np.diff(ends), left.starts[held])
    sizes = np.sqrt(weights * least)
    total = np.cumsum(sizes)
    expected = float(sizes @ weights / total[-1])
    thinning = 1 << int(np.clip(math.ceil(math.log2(FEW * expected / work)), 0, 6))
    thinning = min(thinning, 1 << max(0, (extent // 64).bit_length() - 1))  # 64 columns are left
    draws = int(np.clip(work * thinning / expected, 16, DRAWS))
    random = np.random.default_rng(0)
    points = (np.arange(draws) + random.random(draws)) * (total[-1] / draws)
    chosen = np.searchsorted(total, points, "right")
    chosen = chosen[chosen < len(total)]
    chosen, times = np.unique(chosen, return_counts=True)
    if thinning > 1:
        right = products.thinned(right, thinning, random)
    entries, made = products.distinct_per_row(left, right, chosen, extent)
    share = times / sizes[chosen]
    kept = float(share @ made) / float(share @ weights[chosen])
    return float(share @ entries) * float(total[-1]) / draws / max(kept, 1e-300)
