"""The method `counted` for products of two matrices: exact words of operands from few passes, of all shapes from tables.

One pass counts the words of an operand with one variable cut into tiles, and the other into cells, many of which make a tile: then the words of all
tiles that are made of whole cells are known. Of an operand whose entries are sorted by its own variable, then by k, which is summed
over, cells are those of its own variable, and a pass per extent of k finds its longest tiles; of one that is sorted by k first, cells are those of k,
and a pass per extent of its own variable serves all extents of k. Partial results come from drawn rows (`drawn`).

Extents of k are powers of two times the longest for which nothing else is cut; then near the best: three quarters and one and a half of
it, few equal tiles of k, and the longest that fits. Where cells would be too many (thin tiles, rows longer than the buffer), every
extent takes a pass. What a shape moves at least is known without a pass: partial results, and every operand as often as the other one
has tiles if all were full. Shapes are looked at in the order of these bounds, until none can be better.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from sparsejax.cached import cached_property
from sparsejax.dataflow.drawn import Drawn, matrix_product
from sparsejax.dataflow.nest import Nest
from sparsejax.dataflow.pattern import Array, Pattern, Tiles, is_roomy, room, table, unpacked
from sparsejax.dataflow.progress import Progress
from sparsejax.dataflow.report import Candidate
from sparsejax.dataflow.simulate import Simulator

PER_TILE = 3
"""Words of a tile of a matrix beside 2 n + 2 r."""
CELLS, MOST_CELLS, K_CELLS = 64, 4096, 512
COARSE = 8
"""Tiles of fewer cells are looked at again, in smaller ones."""
CLOSE = 0.985
"""Shapes whose bound is this near to the best are not looked at."""
STRETCH, PASSES = 0.05, 6
"""The longest tiles of k for which nothing else is cut are found to within this share."""
EVEN, FEW = 0.95, 4
"""Few tiles are made equally long, too, where that is a share of EVEN or less."""
SHORT = 64
"""Near an extent of k this short, all are looked at: tiles that begin where blocks of the matrix do move less, and fit where shorter ones do not."""
EVENLY = 12
"""So few tiles of k are made equally long."""
SMALL = 1 << 15
"""Of fewer entries, more shapes are looked at: where tiles begin matters more."""
FINEST = 64
"""Where nothing fits uncut, extents of k are its dimension, halved and rounded up, down to about this one, and this one halved."""


@dataclass(frozen=True, eq=False)
class Panels:
    """Tiles of one operand: the extent of its own variable, and words by tile of it and of k, but for the three that each takes (0: no entries)."""

    extent: int
    counted: Array
    entries: int

    @cached_property
    def fullest(self) -> int:
        return int(self.counted.max()) + PER_TILE

    @cached_property
    def words(self) -> Array:
        """Words by tile."""
        found: Array = self.counted + PER_TILE * (self.counted > 0)
        return found

    @property
    def runs(self) -> int:
        """Rows in tiles: the sum over all of how many rows of one there are."""
        return int(self.counted.sum()) // 2 - self.entries

    @cached_property
    def present(self) -> Array:
        """Per tile of k: how many tiles hold entries."""
        found: Array = np.count_nonzero(self.counted, axis=0)
        return found


@dataclass
class Side:
    """One operand: `pattern` holds its own variable and k, in either order."""

    pattern: Pattern
    k: str
    _tables: dict[int, tuple[int, Array]] = field(default_factory=dict, init=False)
    _words: list[Array] = field(default_factory=list, init=False)
    _whole: dict[int, Array] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.at_k = self.pattern.variables.index(self.k)
        self.extent_k, self.extent = (self.pattern.extents[d] for d in (self.at_k, 1 - self.at_k))

    def entries(self) -> Array:
        """Entries per coordinate of k."""
        return np.diff(self.pattern.positions) if self.at_k == 0 else self.pattern.degrees(1)

    def longest(
        self, k_tile: int, buffer: int, guess: int, fine: bool, hopeless: Callable[[Panels], bool]
    ) -> Panels | None:
        """The longest tiles with this extent of k that fit, to within a cell, or, where every extent takes a pass and not `fine`, to a quarter; None where none
        do, too many would have to be counted, or longer ones that do not fit are `hopeless` already. `guess`: into how many tiles, perhaps."""
        limit = buffer - PER_TILE
        found = self._by_own(k_tile, limit) if self.at_k == 1 else None
        return found or self._by_passes(k_tile, limit, guess, fine, hopeless)

    def _by_own(self, k_tile: int, limit: int) -> Panels | None:
        """From one pass over cells of its own variable; None where these are too many."""
        if k_tile in self._whole and int(self._whole[k_tile].max()) <= limit:
            return Panels(self.extent, self._whole[k_tile][None], self.pattern.entries)
        tiles = -(-self.extent_k // k_tile)
        cells = min(max(self.pattern.entries // (8 * tiles), CELLS), MOST_CELLS)
        cells = max(1, min(cells, room(self.pattern.entries) // tiles))
        best = None
        while True:
            cell = max(1, -(-self.extent // cells))
            count = -(-self.extent // cell)
            if count * tiles > room(self.pattern.entries):
                return best
            found = table(self.pattern, (cell, k_tile))
            running = np.zeros((count + 1, tiles), found.dtype)
            np.cumsum(found, axis=0, out=running[1:])

            def words(parts: int, count: int = count, running: Array = running) -> Array:
                length = -(-count // parts)
                return np.diff(running[[*range(0, count, length), count]], axis=0)

            least = int(running[-1].max()) // limit + 1
            parts = fewest(lambda n: int(words(n).max()) <= limit, least, least, count, True) if least <= count else 0
            length = -(-count // parts) if parts else 0
            if parts:
                extent = min(length * cell, self.extent)
                best = Panels(extent, words(parts), self.pattern.entries)
            if parts == 1 or length >= COARSE or cell == 1:
                return best
            cells *= 16

    def whole(self, k_tile: int) -> Array:
        """Words by tile of k, where its own variable is not cut; but for the three that each takes."""
        if k_tile not in self._whole:
            self._whole.clear()
            if self.at_k == 1:
                self._whole[k_tile] = table(self.pattern, (self.extent, k_tile))[0]
            else:
                if not self._words:
                    found = self.entries()
                    self._words.append(2 * found + 2 * (found > 0))
                self._whole[k_tile] = np.add.reduceat(self._words[0], np.arange(0, self.extent_k, k_tile))
        return self._whole[k_tile]

    def _by_passes(
        self, k_tile: int, limit: int, guess: int, fine: bool, hopeless: Callable[[Panels], bool]
    ) -> Panels | None:
        whole = Panels(self.extent, self.whole(k_tile)[None], self.pattern.entries)
        least = (whole.fullest - 1) // (limit + PER_TILE) + 1
        if least <= 1:
            return whole
        if hopeless(whole):
            return None
        least = self._least(k_tile, int(whole.counted.argmax()), limit, least)
        if not least:
            return None
        tried: dict[int, Panels | None] = {}

        def fits(parts: int) -> bool:
            tried[parts] = found = self.cut(-(-self.extent // parts), k_tile)
            if found is None or (found.fullest > limit + PER_TILE and hopeless(found)):
                raise _Hopeless
            return found.fullest <= limit + PER_TILE

        try:
            return tried.get(fewest(fits, least, max(guess, least), self.extent, fine))
        except _Hopeless:
            return None

    def _least(self, k_tile: int, fullest: int, limit: int, start: int) -> int:
        """Into how many tiles its own variable is cut at least, for the sake of one tile of k; 0: no cut helps."""
        low, high = fullest * k_tile, (fullest + 1) * k_tile
        if self.at_k == 0:
            ends = self.pattern.positions[[low, min(high, self.extent_k)]]
            own = self.pattern.column(1)[ends[0] : ends[1]]
        else:
            found = self.pattern.column(1)
            place = np.flatnonzero((found >= low) & (found < high))
            own = np.searchsorted(self.pattern.positions, place, "right") - 1
            own = np.append(own, own[np.diff(own, prepend=-1) > 0])  # rows take as much as entries

        def fits(parts: int) -> bool:
            return 2 * int(np.bincount(own // -(-self.extent // parts)).max()) <= limit

        return fewest(fits, start, start, self.extent, True) if start <= self.extent else 0

    def cut_to(self, extent: int, k_tile: int, buffer: int) -> Panels | None:
        """Tiles of these extents, if they fit."""
        found = self.cut(extent, k_tile)
        return found if found is not None and found.fullest <= buffer else None

    def cut(self, extent: int, k_tile: int) -> Panels | None:
        """Tiles of these extents. None where they are too many."""
        if self.at_k == 0:
            return self._cut(extent, k_tile)
        if not is_roomy(-(-self.extent // extent) * -(-self.extent_k // k_tile), self.pattern.entries):
            return None
        return Panels(extent, table(self.pattern, (extent, k_tile)), self.pattern.entries)

    def tiles(self, panels: Panels) -> Tiles:
        """The tiles that hold entries, as they are stored."""
        words = panels.words if self.at_k == 1 else panels.words.T
        grid = words.shape
        words = words.reshape(-1)
        found = np.flatnonzero(words > 0)
        return Tiles(self.pattern.variables, grid, unpacked(found, grid), words[found].astype(np.int64))

    def _cut(self, extent: int, k_tile: int) -> Panels | None:
        """Tiles of this extent; k comes first. None where they are too many."""
        power = k_tile & -k_tile
        cell, found = self._tables.get(extent, (0, None))
        if found is None or k_tile % cell:
            cell = max(1, min(power, 1 << max(self.extent_k // K_CELLS, 1).bit_length() - 1))
            tiles = -(-self.extent // extent)
            while cell < power and not is_roomy(-(-self.extent_k // cell) * tiles, self.pattern.entries):
                cell *= 2
            if not is_roomy(-(-self.extent_k // cell) * tiles, self.pattern.entries):
                return None
            found = table(self.pattern, (cell, extent))
            self._tables[extent] = cell, found
        if cell < k_tile:
            found = np.add.reduceat(found, np.arange(0, self.extent_k, k_tile) // cell, axis=0)
        return Panels(extent, found.T, self.pattern.entries)


class _Hopeless(Exception):
    """No tiles that fit can be good."""


def fewest(fits: Callable[[int], bool], least: int, start: int, most: int, fine: bool) -> int:
    """The smallest number from `least` to `most` that is found to fit, `start` being tried first; to within a quarter unless `fine`. 0: none does."""
    low, high = least - 1, min(start, most)  # `low` does not fit
    while not fits(high):
        low = high
        if high == most:
            return 0
        high = min(max(high + 1, high * 5 // 4), most)
    while high - low > 1 and (fine or high > low * 5 // 4):
        middle = max(low + 1, min(high - 1, high * 4 // 5)) if low < least else (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


@dataclass
class Search:
    """Shapes of tiles for out[x,y] = left[x,k] right[k,y] and one buffer."""

    simulator: Simulator
    buffer: int
    progress: Progress
    rows: Drawn
    variables: tuple[str, str, str]
    sides: tuple[Side, Side]
    candidates: list[Candidate] = field(default_factory=list, init=False)
    known: dict[int, float] = field(default_factory=dict, init=False)
    best: tuple[int, Panels, Panels] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        x, k, y = self.variables
        nest = Nest(self.simulator.order, dict(self.simulator.contraction.extents))
        self.again = (
            y in nest.seen((x, k)),
            x in nest.seen((k, y)),
        )  # whether the loops fetch for every tile of the other one
        self.streams = k in nest.seen((x, y))
        self.extent = self.simulator.contraction.extents[k]
        self.entries = [np.append(0, np.cumsum(side.entries())) for side in self.sides]
        self.small = max(side.pattern.entries for side in self.sides) < SMALL
        self.parts = 1

    def run(self) -> list[Candidate]:
        """Every shape that was looked at, with the words that it moves."""
        uncut = self._longest_uncut()
        base = uncut or -(-self.extent // (1 << max((self.extent - 1) // FINEST, 1).bit_length() - 1))
        self.counted = [base << n for n in range((self.extent // base).bit_length())] + [self.extent]
        if uncut:  # shorter tiles of k only move more, but for where they begin
            self.at(uncut)
            even = -(-self.extent // -(-self.extent // uncut))
            if even < EVEN * uncut and self.extent <= FEW * even:
                self.at(even)
            if uncut <= SHORT:
                self._look_at([t for t in range(uncut - uncut // 8, uncut + uncut // 16 + 1) if t != uncut])
        tiles = [*self.counted, *(base >> n for n in range(1, base.bit_length()))]
        if self.small:
            tiles += [1 << n for n in range((self.extent - 1).bit_length())]
        self._look_at([t for t in tiles if t > uncut])
        if self.known and (best := self._best()) != uncut:
            self._look_at([t for t in (best * 3 // 4, best * 3 // 2) if t > uncut])
            self.at(self._best(), fine=True)
            if -(-self.extent // self._best()) <= EVENLY:
                self._cut_evenly(self._best())
            self._stretch()
        return self.candidates

    def _cut_evenly(self, k_tile: int) -> None:
        """Tiles of k of which there are one less or one more, all equally long, as long as less moves: what is left over in a short last tile makes
        nearly as many partial results as a long one."""
        count = -(-self.extent // k_tile)
        for step in (-1, 1):
            at, moved = count, False
            while at + step > 0:
                at += step
                before = min(self.known.values())
                self.at(-(-self.extent // at), fine=True)
                if min(self.known.values()) >= before:
                    break
                moved = True
            if moved:
                return

    def _stretch(self) -> None:
        """The best shape with the longest tiles of k that fit: as many tiles of the other variables, and partial results of fewer tiles of k."""
        if self.best is None:
            return
        low, left, right = self.best
        high, middle, found = self.extent + 1, low, None
        for _ in range(PASSES):
            fullest = max(left.fullest, right.fullest)
            if fullest > self.buffer:
                high = middle
            else:
                low, found = middle, (left, right)
            if high - low <= max(1, STRETCH * low / 2):
                break
            middle = min(max(int(middle * (1 - STRETCH / 4) * self.buffer / fullest), low + 1), high - 1)
            cut = [s.cut(p.extent, middle) for s, p in zip(self.sides, (left, right), strict=True)]
            if not cut[0] or not cut[1]:
                break
            left, right = cut[0], cut[1]
        if found and low > self.best[0]:
            self._keep(*found, low)

    def _best(self) -> int:
        return min(self.known, key=lambda t: self.known[t])

    def _longest_uncut(self) -> int:
        """The longest tiles of k, to within a share of STRETCH, for which no other variable is cut; 0: none."""
        if 2 * self._fullest(1) + 2 + PER_TILE > self.buffer:
            return 0
        # two to four words an entry: a pass each from where they are three
        middle = 1
        while middle < self.extent and 3 * self._fullest(min(2 * middle, self.extent)) <= self.buffer:
            middle = min(2 * middle, self.extent)
        for step in (middle // 2, middle // 4, middle // 8):
            if middle + step < self.extent and 3 * self._fullest(middle + step) <= self.buffer:
                middle += step
        low, high = 0, self.extent + 1
        for _ in range(PASSES):
            words = max(int(side.whole(middle).max()) + PER_TILE for side in self.sides)
            low, high = (middle, high) if words <= self.buffer else (low, middle)
            if high - low <= max(1, STRETCH * low) or (low == middle and words >= (1 - STRETCH) * self.buffer):
                break
            # words grow nearly in proportion
            middle = min(max(int(middle * (1 - STRETCH / 2) * self.buffer / words), low + 1), high - 1)
        return low

    def _fullest(self, k_tile: int) -> int:
        """Entries of the fullest tile of k."""
        ends = np.append(np.arange(0, self.extent, k_tile), self.extent)
        return max(int(np.diff(e[ends]).max()) for e in self.entries)

    def _look_at(self, tiles: list[int]) -> None:
        bounds = sorted((self.bound(t), t) for t in tiles if t)
        for bound, tile in bounds:
            if self.is_hopeless(bound):
                break
            self.at(tile)

    def is_hopeless(self, bound: float) -> bool:
        return bound >= CLOSE * min(self.known.values(), default=math.inf)

    def merged(self, k_tile: int, y_tile: int = 1) -> float:
        """Distinct coordinates of partial results."""
        return self.rows.count(k_tile if self.streams else self.extent, y_tile)

    def bound(self, k_tile: int) -> float:
        """Words that tiles of this extent of k move at least."""
        ends = np.append(np.arange(0, self.extent, k_tile), self.extent)
        words = [2 * np.diff(e[ends]) for e in self.entries]
        words = [w + (2 + PER_TILE) * (w > 0) for w in words]
        total = 2 * self.merged(
            next((t for t in self.counted if t >= k_tile), self.extent)
        )  # no more than for shorter ones
        for own, other, again in zip(words, words[::-1], self.again, strict=True):
            total += float((own * (-(-other // self.buffer) if again else other > 0)).sum())
        return total

    def at(self, k_tile: int, fine: bool = False) -> None:
        """The longest tiles with this extent of k."""
        self.progress.step()
        left = self.sides[0].longest(k_tile, self.buffer, self.parts, fine, lambda _: False)
        if left is None:
            return

        def hopeless(longer: Panels) -> bool:
            return not self.small and self.is_hopeless(self.fetched(left, longer) + 2 * self.merged(k_tile))

        right = self.sides[1].longest(k_tile, self.buffer, len(left.words), fine, hopeless)
        if right is None:
            return
        self._keep(left, right, k_tile)
        if self.small and 1 < len(left.words) <= FEW:
            self._keep_stretched(left, k_tile)

    def _keep_stretched(self, left: Panels, k_tile: int) -> None:
        """The longest tiles, of both operands, of which there are as many: where few begin matters."""
        low, high = left.extent, -(-self.sides[0].extent // (len(left.words) - 1))
        found = None
        while high - low > max(1, STRETCH * low / 2):
            middle = (low + high) // 2
            both = [s.cut_to(min(middle, s.extent), k_tile, self.buffer) for s in self.sides]
            fit = all(both)
            found, low, high = (both, middle, high) if fit else (found, low, middle)
        if found and found[0] and found[1]:
            self._keep(found[0], found[1], k_tile)

    def _keep(self, left: Panels, right: Panels, k_tile: int) -> None:
        """A candidate more, unless what is known without another pass over drawn rows is too much already."""
        if self.fetched(left, right) + 2 * self.merged(k_tile) >= min(self.known.values(), default=math.inf):
            return
        x, k, y = self.variables
        found = {x: left.extent, k: min(k_tile, self.extent), y: right.extent}
        tiles = {v: found[v] for v in self.simulator.contraction.extents}
        total = self.moved(left, right, k_tile)
        if total < min(self.known.values(), default=math.inf):
            self.best = k_tile, left, right
        self.candidates.append(Candidate(tiles, total))
        self.known[k_tile] = min(total, self.known.get(k_tile, math.inf))

    def fetched(self, left: Panels, right: Panels) -> float:
        """Words of both operands."""
        counts = right.present, left.present
        return sum(
            float((side.words.sum(axis=0) * (other if again else other > 0)).sum())
            for side, other, again in zip((left, right), counts, self.again, strict=True)
        )

    def moved(self, left: Panels, right: Panels, k_tile: int) -> float:
        """Words of both operands and of partial results."""
        if self.streams:
            met = int((left.present * right.present).sum())
        else:
            met = int(
                np.count_nonzero((left.counted > 0).astype(np.float32) @ (right.counted > 0).astype(np.float32).T)
            )
        if self.streams and self.rows.all_meet and len(right.words) == 1 and self.sides[0].at_k == 1:
            runs = left.runs
            rows: float = runs
            self.rows.know(k_tile, runs)
        else:
            rows = self.merged(k_tile, right.extent)
        return self.fetched(left, right) + 2 * self.merged(k_tile) + 2 * rows + PER_TILE * met


def prepared(simulator: Simulator, buffer: int, progress: Progress) -> Search | None:
    """A search that has looked at nothing; None where it is for other contractions."""
    contraction, order = simulator.contraction, simulator.order
    found, rows = matrix_product(contraction, order), simulator.outputs.rows
    if found is None or rows is None:
        return None
    x, k, y, lead = found
    sides = []
    for operand in (lead, 1 - lead):
        variables = tuple(v for v in order if v in contraction.inputs[operand])
        sides.append(Side(contraction.pattern(operand, variables), k))
    if not all(is_roomy(max(side.pattern.extents), side.pattern.entries) for side in sides):
        return None
    return Search(simulator, buffer, progress, rows, (x, k, y), (sides[0], sides[1]))


def search(simulator: Simulator, buffer: int, progress: Progress) -> list[Candidate] | None:
    """Candidates of the method; None where it is for other contractions, or nothing of them fits."""
    made = prepared(simulator, buffer, progress)
    candidates = made.run() if made else []
    if made is None or made.best is None:
        return None
    k_tile, *panels = made.best
    k, inputs = made.variables[1], simulator.contraction.inputs
    lead = next(n for n, vs in enumerate(inputs) if made.variables[0] in vs)
    for operand, side, kept in zip((lead, 1 - lead), made.sides, panels, strict=True):
        extents = {k: min(k_tile, side.extent_k)}
        simulator.keep(operand, tuple(extents.get(v, kept.extent) for v in side.pattern.variables), side.tiles(kept))
    return candidates
