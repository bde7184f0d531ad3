"""What loops wait for that become register tiles (`tiled_loops`): the arrays of a kernel as `cost.memory` takes them, under the loops that then run.

before:  forall i                              tiles:  forall i
           forall k            A[i,k]                    forall b0 by 8
             forall b                                      forall j0 by 32
               forall j                                      forall k             B: two lines of a row, of another row every time
                 out[b,i,j] += A[i,k,b] * B[k,j]               forall b1, j1      and once for eight b
                                                             out: once for all k

Rows of what a walk leads to are read in strips, each of which begins a walk of its own; where the tile is of a block, its strips follow one another, and what
they read of a row lies together. What has no row is read once for those of a tile. Sums stay in registers: the result is visited when they are done, and
what lies between two visits is all that the loops touch meanwhile. Each array has the loops that move it: over tiles, and inside of these those of its own
indices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparsejax.jit.cost import memory
from sparsejax.jit.cost.spreads import EVEN, Spread
from sparsejax.jit.ir import cin

if TYPE_CHECKING:
    from sparsejax.jit.schedule.search import Model
    from sparsejax.jit.schedule.tiled_loops import Tiles

STREAMS = 32
"""Rows of which a processor remembers where the last lines were read, and reads the next ones ahead."""

Loop = tuple[cin.IndexVar, str]
"""A loop over all coordinates of a variable (""), over its tiles or strips ("outer"), or over those inside of one ("inner")."""


class Waits:
    """The arrays of a model under tiles."""

    def __init__(self, model: Model, tiles: Tiles) -> None:
        self.model, self.tiles = model, tiles
        runs = [model.walk((*tiles.around, *tiles.reductions[:k])).survivors for k in (0, tiles.walks)]
        self.apart = tiles.strips > 1 and runs[1] > STREAMS * runs[0]
        """Whether a strip is read in a walk, and the next one in another, when nobody remembers where the first one was."""
        self._loops: dict[cin.Access, Loops] = {}

    def loops(self, access: cin.Access) -> Loops:
        """Those that move an array."""
        if access not in self._loops:
            self._loops[access] = Loops(self, access)
        return self._loops[access]

    def total(self, discordant: frozenset[cin.Access]) -> float:
        """Nanoseconds for all arrays, of which some are copies."""
        model, waits = self.model, 0.0
        for access in model.waiting.layouts:
            if access in discordant:
                waits += 0.0 if access.computed else memory.price(model.waiting.copied(access), model.machine, False)
            else:
                waits += memory.price(self.lines(access), model.machine, access is model.result)
        return waits

    def lines(self, access: cin.Access) -> list[memory.Lines]:
        """The lines that tiles touch of an array."""
        if access is self.model.result and self.tiles.strided:
            return self._strided()
        loops, model = self.loops(access), self.model
        each, _ = model.waiting.layouts[access]
        levels, depths = loops.levels, loops.depths
        drawn = sorted({loops.all.index(x) for ix in access.indices if cin.follows(ix) is None for x in loops.over(ix)})
        leads = not drawn and all(not loops.leaders[k + 1] or access in loops.leaders[k + 1] for k in depths)
        near = [EVEN if leads else loops.spreads[k] for k in depths]
        if drawn:  # an index that is looked up has one loop
            near, named = [], model.waiting.named(access, (*self.tiles.around, *self.tiles.reductions))
            for spread, count in zip(named, loops.counts, strict=True):
                near += [spread, *[EVEN] * (count - 1)]
        last = cin.follows(access.indices[access.tensor.format.order[-1]]) is not None
        walked = memory.Walked(
            depths,
            each,
            tuple([many for _, many in levels]),
            leads,
            math.prod([x.new for x in near]),
            tuple([x.among for x in near]),
            tuple(drawn),
            not drawn or last,
            None,
            self._meanwhile if access is model.result else None,
            loops.together,
            True,
        )
        found = memory.lines(walked, loops.survivors, model.waiting.bytes)
        whole = self.tiles.rows if self.tiles.groups == 1 else None
        first = [v for v in dict.fromkeys(loops.all[d][0] for d in depths) if v is not whole]
        outer = [min(d for d in depths if loops.all[d][0] is v) for v in first]
        if not drawn and outer == sorted(outer):
            found[-1] = found[-1]._replace(anywhere=0.0)  # streams, one for each row of a tile
        return found

    def _strided(self) -> list[memory.Lines]:
        """The lines of a result whose lanes are stored one by one: each comes again in the next iteration of the loop along its last level, among what
        one iteration touches, and lies far from the others of this one."""
        model, result = self.model, self.model.result
        loops, (each, _) = self.loops(result), model.waiting.layouts[result]
        fanout = tuple([many for _, many in loops.levels])
        elements, depth = loops.survivors[-1], loops.depths[-1]
        inside = [own > depth for own in loops.depths]
        lines = math.prod([n for n, own in zip(fanout, inside, strict=True) if own])
        walked = memory.Walked(loops.depths, each, fanout, False)
        near = lines * memory.LINE * memory.crowded(walked, inside)
        near += self._meanwhile(depth)
        whole = elements * each / memory.LINE
        anywhere = whole if lines > STREAMS else 0.0
        return [memory.Lines(elements, near, elements), memory.Lines(whole, model.waiting.bytes, anywhere)]

    def _meanwhile(self, depth: int) -> float:
        """The bytes of all operands that one iteration of a loop around tiles touches."""
        return sum(self._touched(a, depth) for a in self.model.waiting.layouts if a is not self.model.result)

    def _touched(self, access: cin.Access, depth: int) -> float:
        """Those of one operand."""
        loops = self.loops(access)
        each, _ = self.model.waiting.layouts[access]
        depth = min(depth, len(loops.all) - 1)
        part = math.prod(many for own, (_, many) in zip(loops.depths, loops.levels, strict=True) if own > depth)
        runs = loops.survivors[max(loops.depths) + 1] / max(1.0, loops.survivors[depth + 1])
        return each * min(part, max(1.0, runs))


class Loops:
    """The loops that move an array: how often their bodies run, who leads them, and how close together the coordinates lie that they visit."""

    def __init__(self, waits: Waits, access: cin.Access) -> None:
        model, tiles = waits.model, waits.tiles
        row, along, extents = tiles.rows, tiles.along, model.extents
        own = cin.bound_by(access)
        reductions = () if access is model.result else tiles.reductions
        outside = [model.walk(tiles.around[:k]) for k in range(len(tiles.around) + 1)]
        self.all: list[Loop] = [(v, "") for v in tiles.around]
        self.survivors = [s.survivors for s in outside]
        if access is model.result:  # where nothing is added, nothing waits
            self.survivors[-1] = min(self.survivors[-1], model.walk((*tiles.around, *tiles.reductions)).survivors)
        self.leaders: list[tuple[cin.Access, ...]] = [s.leaders for s in outside]
        self.spreads = [model.waiting.spread(tiles.around[: k + 1]) for k in range(len(tiles.around))]
        if row is not None:
            self._add((row, "outer"), tiles.groups)
        if waits.apart:
            self._add((along, "outer"), tiles.strips)
        for k, v in enumerate((*reductions, None)):
            if k == min(tiles.walks, len(reductions)) and row is not None and row in own:
                self._add((row, "inner"), extents[row] / tiles.groups)
            if v is not None:
                state = model.walk((*tiles.around, *reductions[: k + 1]))
                before = model.walk((*tiles.around, *reductions[:k])).survivors
                self._add(
                    (v, ""), state.survivors / max(1e-9, before), state.leaders, model.waiting.spread(state.order)
                )
        if along in own:
            self._add((along, "inner" if waits.apart else ""), extents[along] / (tiles.strips if waits.apart else 1))
        _, fanout = model.waiting.layouts[access]
        stored = [access.indices[d] for d in access.tensor.format.order]
        parts = [self._parts(ix, n) for ix, n in zip(stored, fanout, strict=True)]
        self.levels, self.counts = [part for level in parts for part in level], [len(level) for level in parts]
        """The loops over storage levels, outermost level first, and how many positions each has; and how many loops run over each level."""
        self.depths = tuple([self.all.index(loop) for loop, _ in self.levels])
        self.together = 1
        """How many of the last levels are walked in one piece; rows that strips run along each begin anew."""
        while (
            along not in own
            and self.together < len(self.depths)
            and not self.leaders[self.depths[-self.together - 1] + 1]
        ):
            outer, inner = self.depths[-self.together - 1], self.depths[-self.together]
            if inner != outer + 1:
                break
            self.together += 1

    def _add(self, loop: Loop, times: float, leaders: tuple[cin.Access, ...] = (), near: Spread = EVEN) -> None:
        self.all.append(loop)
        self.survivors.append(self.survivors[-1] * times)
        self.leaders.append(leaders)
        self.spreads.append(near)

    def over(self, index: cin.Index) -> Sequence[Loop]:
        """The loops over an index, outermost first; of one that is looked up the innermost that says where it is."""
        var = cin.follows(index)
        if var is not None:
            return [loop for loop in self.all if loop[0] == var]
        return [loop for loop in self.all if loop[0] in cin.variables_of(index)][-1:]

    def _parts(self, index: cin.Index, many: float) -> list[tuple[Loop, float]]:
        """The loops over a level with so many positions in one of the level above, and how many each has."""
        found = self.over(index)
        if len(found) == 1:
            return [(found[0], many)]
        begin = self.all.index(found[0])
        outer = self.survivors[begin + 1] / max(1e-9, self.survivors[begin])
        return [(found[0], outer), (found[1], many / max(1.0, outer))]
