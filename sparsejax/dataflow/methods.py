"""How tile extents are chosen.

conservative   the largest cube that fits when every place is stored
prescient      the largest cube whose fullest tile fits
tailors        the largest cube of which a tenth of the tiles of an operand overflow
paper          shapes {kept: T RF, summed: T / RF} of the conservative edge T, by the D2T2 model; grown by buffer over fullest tile
counted        over extents of what is summed over, in powers of two: the longest tiles that fit, by an exact count; the traffic of
               inputs is counted, that of the output estimated from drawn rows; the cube of `prescient` is a candidate
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sparsejax.dataflow import cells, growth
from sparsejax.dataflow.model import Model
from sparsejax.dataflow.nest import Nest
from sparsejax.dataflow.progress import Progress
from sparsejax.dataflow.report import Candidate, Tiles
from sparsejax.dataflow.simulate import Simulator

FACTORS = tuple(2.0**x for x in range(-2, 8))
"""Reorder factors RF of the method `paper`: 1/4 to 128."""
OVERFLOWING = 0.1
HOPELESS = 1.5
"""Whole dimensions are no second start where they move so many times the best."""
CLOSE = 3
"""So many of the best shapes are compared again by a larger sample."""
FEW, SQUARE = 1 << 13, 2
"""The square is a candidate for products of fewer entries, and where the best shape is no longer than so many times its shortest side."""
COARSE, FINE = 0.25, 0.03
"""Extents that fit are found to within these shares, of shapes that are compared and of the one that is chosen."""


@dataclass
class Choice:
    """Tiles, every candidate, and what there is to say about them."""

    tiles: Tiles
    candidates: list[Candidate] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def conservative(simulator: Simulator, buffer: int) -> Choice:
    return Choice(growth.cube(simulator.contraction, growth.conservative(simulator.contraction, buffer)))


def prescient(simulator: Simulator, buffer: int) -> Choice:
    edge = growth.largest_edge(simulator, buffer, lambda nest: growth.fits_in(simulator, nest, buffer))
    return Choice(growth.cube(simulator.contraction, edge))


def tailors(simulator: Simulator, buffer: int) -> Choice:
    """The share of overflowing tiles is that of the operand that has the largest one."""
    count = len(simulator.contraction.inputs)

    def overflow(nest: Nest) -> float:
        parts = [simulator.tiles(k, nest).words for k in range(count)]
        return max((float((w > buffer).mean()) for w in parts if len(w)), default=0.0)

    edge = growth.largest_edge(simulator, buffer, lambda nest: overflow(nest) <= OVERFLOWING)
    tiles = growth.cube(simulator.contraction, edge)
    share = overflow(Nest(simulator.order, tiles))
    return Choice(tiles, notes=[f"{share:.1%} of the tiles of an operand overflow; what is beyond the buffer streams"])


def paper(simulator: Simulator, buffer: int) -> Choice:
    """Sections 5.1 and 5.2, with the shape shrunk where its fullest tile does not fit: tiles of equal area need not."""
    contraction, order = simulator.contraction, simulator.order
    edge = growth.conservative(contraction, buffer)
    model = Model(contraction, order, edge)
    candidates = []
    for rf in FACTORS:
        tiles = shape(simulator, edge, rf)
        candidates.append(Candidate(tiles, sum(model.words(Nest(order, tiles)))))
    best = min(candidates, key=lambda c: c.total)
    chosen, notes = dict(best.tiles), []
    while not growth.fits_in(simulator, Nest(order, chosen), buffer):
        longest = max(chosen, key=lambda v: chosen[v])
        chosen[longest] = -(-chosen[longest] // 2)
        notes = ["the fullest tile of the shape that the model prefers does not fit: shrunk"]
    fullest = max(1, *simulator.largest(Nest(order, chosen)))
    factor = buffer // fullest
    if factor > 1:
        sides = [[v for v in chosen if v not in contraction.reduced], list(contraction.reduced)]
        long = max((side for side in sides if side), key=lambda side: chosen[side[0]])
        # an operand may have two of these variables: its tiles grow by the product
        power = max(sum(v in vs for v in long) for vs in contraction.inputs)
        by = int(factor ** (1 / power) + 1e-9)
        chosen.update({v: max(1, min(chosen[v] * by, contraction.extents[v])) for v in long})
        notes.append(f"the fullest tile takes {fullest:,} words: {' and '.join(long)} {by} times as long")
    return Choice(chosen, candidates, notes)


def shape(simulator: Simulator, edge: int, rf: float) -> Tiles:
    """Extents T RF of what remains, T / RF of what is summed over."""
    extents, reduced = simulator.contraction.extents, simulator.contraction.reduced
    return {v: max(1, min(round(edge / rf if v in reduced else edge * rf), n)) for v, n in extents.items()}


def counted(simulator: Simulator, buffer: int, full: bool, progress: Progress) -> Choice:
    """The cube of `prescient`; as long as traffic falls, from that cube, from whole dimensions, and from the longest for which nothing else is cut
    (outer products); with `full` every power of two of the variables that are searched, too."""
    found = None if full else cells.search(simulator, buffer, progress)
    if found is not None:
        return _with_square(simulator, buffer, found)
    search = _Search(simulator, buffer, progress)
    square = prescient(simulator, buffer).tiles
    search.evaluate(square)
    if full:
        for extents in _grid([search.limits[v] for v in search.free]):
            search.at(extents)
    search.near = dict(square)
    search.descend(tuple(1 << (square[v].bit_length() - 1) for v in search.free))
    search.descend(tuple(search.limits[v] for v in search.free), unless=HOPELESS)
    search.descend(search.whole(), unless=HOPELESS)
    return search.finish()


def _with_square(simulator: Simulator, buffer: int, candidates: list[Candidate]) -> Choice:
    """The best of these, or the square of `prescient` where that may be better: few entries, or a shape that is nearly a square."""
    best = min(candidates, key=lambda c: c.total)
    cut = [t for v, t in best.tiles.items() if t < simulator.contraction.extents[v]]
    few = max(storage.nnz for storage in simulator.contraction.storages) < FEW
    if few or (len(cut) == len(best.tiles) and max(cut) < SQUARE * min(cut)):
        square = prescient(simulator, buffer).tiles
        total = float(sum(simulator.words(Nest(simulator.order, square), exact=False)))
        candidates = [*candidates, Candidate(square, total)]
        best = min(best, candidates[-1], key=lambda c: c.total)
    return Choice(best.tiles, candidates)


def _grid(limits: Sequence[int]) -> Iterator[tuple[int, ...]]:
    if not limits:
        yield ()
        return
    for x in powers(limits[0]):
        for rest in _grid(limits[1:]):
            yield (x, *rest)


def powers(limit: int) -> list[int]:
    """1, 2, 4, ... and the limit."""
    return sorted({*(1 << x for x in range(max(limit, 1).bit_length())), max(limit, 1)})


class _Search:
    """Candidates of the method `counted`. Free variables are searched; of the others each is grown until an operand is full."""

    def __init__(self, simulator: Simulator, buffer: int, progress: Progress) -> None:
        self.simulator, self.buffer, self.progress = simulator, buffer, progress
        contraction = simulator.contraction
        self.limits = {v: max(1, n) for v, n in contraction.extents.items()}
        self.grown: list[str] = []
        for vs in contraction.inputs:  # one variable per operand fills it up
            own = [v for v in simulator.order if v in vs and v not in contraction.reduced]
            if own and not any(v in self.grown for v in vs):
                self.grown.append(own[0])
        self.free = [v for v in simulator.order if v not in self.grown]
        self.near: Tiles = dict.fromkeys(self.limits, 1)
        self.known: dict[tuple[int, ...], float] = {}
        self.totals: dict[tuple[int, ...], tuple[Tiles, float]] = {}

    def evaluate(self, tiles: Tiles) -> float:
        key = tuple(tiles.values())
        if key not in self.totals:
            self.progress.step()
            nest = Nest(self.simulator.order, tiles)
            self.totals[key] = dict(tiles), float(sum(self.simulator.words(nest, exact=False, rough=True)))
        return self.totals[key][1]

    def at(self, extents: tuple[int, ...], fine: float = COARSE) -> float:
        """The traffic of the longest tiles with these extents of the free variables; infinite where nothing fits."""
        key = extents
        if key in self.known and fine == COARSE:
            return self.known[key]
        tiles: Tiles = dict.fromkeys(self.limits, 1) | dict(zip(self.free, extents, strict=True))
        tiles = {v: tiles[v] for v in self.limits}
        for v in self.grown:
            tiles[v] = growth.grown(self.simulator, tiles, v, self.buffer, fine, self.limits[v], self.near[v])
            if not tiles[v]:
                self.known[key] = math.inf
                return math.inf
            self.near[v] = tiles[v]
        for k, vs in enumerate(self.simulator.contraction.inputs):  # the others were looked at when they grew
            alone = not any(v in self.grown for v in vs)
            if alone and not self.simulator.fits(k, Nest(self.simulator.order, tiles), self.buffer):
                self.known[key] = math.inf
                return math.inf
        self.known[key] = self.evaluate(tiles)
        return self.known[key]

    def whole(self) -> tuple[int, ...]:
        """The largest powers of two of the free variables, the same in all, for which the others need not be cut."""
        for power in reversed(powers(max((self.limits[v] for v in self.free), default=1))):
            point = tuple(min(power, self.limits[v]) for v in self.free)
            tiles = self.limits | dict(zip(self.free, point, strict=True))
            if growth.fits_in(self.simulator, Nest(self.simulator.order, tiles), self.buffer):
                return point
        return (1,) * len(self.free)

    def descend(self, point: tuple[int, ...], unless: float = math.inf) -> None:
        """Double or halve one free variable at a time, as long as traffic falls; not at all from where it is `unless` times the best."""
        best = self.at(point)
        if best > unless * min(self.known.values()):
            return
        moved = True
        while moved:
            moved = False
            for place in range(len(point)):
                for factor in (0.5, 2):
                    while True:
                        extent = int(min(max(point[place] * factor, 1), self.limits[self.free[place]]))
                        near = (*point[:place], extent, *point[place + 1 :])
                        if extent == point[place] or (found := self.at(near)) >= best:
                            break
                        point, best, moved = near, found, True

    def finish(self) -> Choice:
        """Between the best powers of two, and to the last per cent that fits."""
        best = min(self.known, key=lambda k: self.known[k], default=None)
        if best is not None and self.known[best] < math.inf:
            for place in range(len(best)):
                for factor in (0.71, 1.41):
                    extent = int(min(max(best[place] * factor, 1), self.limits[self.free[place]]))
                    self.at((*best[:place], extent, *best[place + 1 :]))
            best = min(self.known, key=lambda k: self.known[k])
            self.at(best, FINE)
        for tiles, _ in sorted(self.totals.values(), key=lambda x: x[1])[:CLOSE]:  # by a larger sample
            nest = Nest(self.simulator.order, tiles)
            self.totals[tuple(tiles.values())] = tiles, float(sum(self.simulator.words(nest, exact=False)))
        tiles, _ = min(self.totals.values(), key=lambda x: x[1])
        return Choice(tiles, [Candidate(t, total) for t, total in self.totals.values()])


METHODS: dict[str, Callable[..., Choice]] = {
    "counted": counted,
    "paper": paper,
    "prescient": prescient,
    "conservative": conservative,
    "tailors": tailors,
}
