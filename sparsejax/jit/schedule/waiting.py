"""What loops wait for memory: the arrays of a kernel as `cost.memory` takes them, under a loop order (`search`).

A loop that is the innermost one of an array's indices ends it: from then on it is known how often its elements are touched.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sparsejax.cached import cached_property
from sparsejax.formats import passes
from sparsejax.jit.cost import machine, memory, statistics
from sparsejax.jit.cost.spreads import EVEN, WINDOW, Spread
from sparsejax.jit.ir import cin
from sparsejax.jit.schedule import placement, regions, tile_waits, tiled_loops
from sparsejax.jit.schedule.assembly import SCATTER

if TYPE_CHECKING:
    from sparsejax.jit.schedule.search import Model

Order = tuple[cin.IndexVar, ...]

NEAR = 0.5
"""The share of the second cache that holds what comes again among some entries."""


class Around(NamedTuple):
    """Loops that a statement shares with others, as all of them run these: for none to all loops, how often the body runs; for each, what leads it, and
    how close together the coordinates lie that it visits."""

    survivors: tuple[float, ...]
    leaders: tuple[tuple[cin.Access, ...], ...]
    spreads: tuple[Spread, ...]


class Shared(NamedTuple):
    """What a statement of several has in common with the others: what these touch `beside` it, which of what it reads was just read by another in the
    same run of the loops that they share, and how these run."""

    beside: memory.Beside = memory.ALONE
    again: frozenset[cin.Access] = frozenset()
    around: Around | None = None


ALONE = Shared()


class _Walk(NamedTuple):
    """Loops, from none to all of them: how often the body runs, and what leads the last one and how close its coordinates lie; and the loops whose
    entries are rows of tiles."""

    survivors: Sequence[float]
    leaders: Sequence[tuple[cin.Access, ...]]
    spreads: Sequence[Spread]
    rows: Order | None


class Waiting:
    """For the kernel of a model. Results that are kept for some loops only, as those of other statements are, are found in the cache."""

    def __init__(self, model: Model, kept: bool) -> None:
        """The result of the model's kernel is `kept` for some loops only, or not."""
        self._model, self._kept = model, kept
        self._alone: dict[Order, float] = {}
        self._totals: dict[Shared, dict[Order, float]] = {ALONE: self._alone}
        self._walks: dict[tuple[Order, Around | None], _Walk] = {}
        self._spreads: dict[Order, Spread] = {}
        self._result = model.result

    @cached_property
    def layouts(self) -> Mapping[cin.Access, tuple[float, tuple[float, ...]]]:
        """The bytes of an entry, and how many positions one of the level above has, of every array whose indices are all variables, and of
        operands whose indices are looked up."""
        model = self._model
        apart = model.nest.nested or self._kept or not cin.are_variables(self._result.indices)
        made = {} if apart else {self._result: model.level_counts()}
        made |= {a: model.facts[a.tensor.name] for a in model.accesses if a.tensor.policy != placement.KEPT}
        return {a: self._layout(a, counts) for a, counts in made.items() if _plain(a) and len(counts) == len(a.indices)}

    @cached_property
    def bytes(self) -> float:
        """Of all arrays."""
        return sum(math.prod(fanout) * each for each, fanout in self.layouts.values())

    def total(self, order: Order, shared: Shared = ALONE) -> float:
        """Nanoseconds for the arrays whose indices all have loops in `order`: operands as they are stored, or copied for these loops, and a result
        that is written where its entries belong; of a statement of several, in all runs of the loops that it has `shared`."""
        if not order:
            return 0.0
        known = self._alone if shared is ALONE else self._totals.setdefault(shared, {})
        made = known.get(order)
        if made is None:
            state = self._model.walk(order)
            tiles = tiled_loops.tiles(self._model, order) if shared is ALONE and not state.leaders else None
            if tiles is not None and (tiles.rows is not None or tiles.strips > 1 or tiles.strided):
                made = known[order] = tile_waits.Waits(self._model, tiles).total(state.discordant)
                return made
            here, written = self._model.machine, self._result
            waits = 0.0
            for a in self._ended(order):
                found = self._lines(a, order, shared)
                if a in shared.again:
                    near = shared.beside.each + self.layouts[a][0] * self._inside(a, order[: shared.beside.shared])
                    found = [x._replace(among=min(x.among, near)) for x in found]
                waits += memory.price(found, here, a is written)
            made = known[order] = self.total(order[:-1], shared) + waits
        return made

    def drained(self) -> float:
        """Nanoseconds for a result that is written from the first entry to the last, out of a workspace that holds all of it or parts."""
        found = self.layouts.get(self._result)
        if found is None:
            return 0.0
        each, fanout = found
        size = math.prod(fanout) * each
        return memory.price([memory.Lines(size / memory.LINE, size, 0.0)], self._model.machine, True)

    def crowded(self, arrays: Collection[cin.Access], order: Order, share: float) -> float:
        """How many nanoseconds more loops wait for arrays that the last one ends, if they find but a `share` of the second cache, and each other there."""
        here, more = self._model.machine, 0.0
        first, second, third = here.caches
        less = replace(here, caches=(first, share * second, third))
        found = {a: self._lines(a, order) for a in arrays if a in self.layouts}
        for access, own in found.items():
            others = sum(lines[0].among for a, lines in found.items() if a != access)
            crowd = [x._replace(among=x.among + others) for x in own]
            more += memory.price(crowd, less, False) - memory.price(own, here, False)
        return more

    def nearer(self, arrays: Collection[cin.Access], order: Order, share: float) -> float:
        """How many nanoseconds less loops wait for arrays that the last one ends, beyond the second cache, if what they visit lies among a `share` of
        the bytes."""
        here, saved = self._model.machine, 0.0
        here = replace(here, line=(0.0, *here.line[1:]), stream=(0.0, *here.stream[1:]))
        for access in filter(self.layouts.__contains__, arrays):
            found = self._lines(access, order)
            near = [x._replace(among=share * x.among) for x in found]
            saved += memory.price(found, here, False) - memory.price(near, here, False)
        return saved

    def across(self, access: cin.Access, order: Order) -> float:
        """How many nanoseconds longer an array is read whose vectors lie across two lines, by loops of which the last one runs along it: a quarter as
        much in the first cache as in the second one, where as much passes by as it takes. Tiles read once what their rows share."""
        if access not in self.layouts:
            return 0.0
        here, among = self._model.machine, self._lines(access, order)[0].among
        near, far = here.beyond(among)[0], here.beyond(2 * among)[1]
        touched, rows = self._model.walk(order).survivors * access.dtype.itemsize / memory.LINE, self._walk(order).rows
        if rows is not None and not any(v in access.bound for v in rows):
            touched /= regions.ROWS
        return here.split * touched * (1.0 + 3.0 * near) / 4 * (1.0 - far)

    def _inside(self, access: cin.Access, shared: Order) -> float:
        """How many positions of an array one run of the body of some loops has."""
        _, fanout = self.layouts[access]
        stored = [access.indices[d] for d in access.tensor.format.order]
        return math.prod(many for ix, many in zip(stored, fanout, strict=True) if ix not in shared)

    def stalls(self, order: Order, shared: Shared) -> float:
        """In which share of the runs of the loops that it shares with others the kernel reads lines anywhere, out of the caches: squared, since a next
        cache that is close by hides what just misses one."""
        depth = shared.beside.shared
        runs = max(1.0, self._walk(order[:depth], shared.around).survivors[depth])
        most = 0.0
        for k in range(depth, len(order)):
            for access in self._ended(order[: k + 1]):
                first = self._lines(access, order[: k + 1], shared)[0]
                most = max(most, min(1.0, first.anywhere / runs) * machine.missed(first.among) ** 2)
        return most

    def touched(self, order: Order) -> float:
        """Bytes of the lines that loops touch, as often as they do."""
        ends = (a for k in range(len(order)) for a in self._ended(order[: k + 1]))
        return memory.LINE * sum(self._lines(a, order)[0].number for a in ends)

    @cached_property
    def _ending(self) -> dict[cin.IndexVar, list[cin.Access]]:
        """The arrays that a loop over a variable may be the innermost one of."""
        return {v: [a for a in self.layouts if v in a.bound] for v in self._model.nest.variables}

    def _walk(self, order: Order, around: Around | None = None) -> _Walk:
        """What is asked of loops for each array that they end; the outermost ones run as other statements say that are `around`."""
        found = self._walks.get((order, around))
        if found is None:
            found = self._own(order) if around is None else _inside(self._walk(order), around)
            self._walks[order, around] = found
        return found

    def _own(self, order: Order) -> _Walk:
        """The same of loops that no others are around, from those before the last."""
        state, before = self._model.walk(order), self._walk(order[:-1]) if order else _Walk([], [], [], None)
        rows = tiled_loops.rows(self._model, order, tiled_loops.first(self._model, order))
        survivors, leaders = [*before.survivors, state.survivors], [*before.leaders, state.leaders]
        return _Walk(survivors, leaders, [*before.spreads, self.spread(order)] if order else [], rows)

    def _ended(self, order: Order) -> list[cin.Access]:
        """The arrays of which the last loop is the innermost one."""
        model, ending = self._model, self._ending.get(order[-1])
        if not ending:
            return []
        state = model.walk(order)
        gone = model.drained if model.drained and model.fills(order) else None
        return [
            a
            for a in ending
            if state.bound.issuperset(a.bound)
            and not (gone and a in gone)
            and (a not in state.discordant or not a.computed)
            and (a is not self._result or model.assembled(order)[0] != SCATTER)
        ]

    def copied(self, access: cin.Access, shared: Shared = ALONE) -> list[memory.Lines]:
        """The lines of a copy, which is read at least once, from its first entry to the last."""
        each, fanout = self.layouts[access]
        return [memory.Lines(each * math.prod(fanout) / memory.LINE, self.bytes + shared.beside.bytes, 0.0)]

    def _lines(self, access: cin.Access, order: Order, shared: Shared = ALONE) -> list[memory.Lines]:
        stored = [access.indices[d] for d in access.tensor.format.order]
        if access in self._model.walk(order).discordant:
            return self.copied(access, shared)
        if access.computed:
            depths = tuple([max(map(order.index, cin.variables_of(ix))) for ix in stored])
            drawn = sorted({order.index(v) for ix in stored if cin.follows(ix) is None for v in cin.variables_of(ix)})
        else:
            depths, drawn = tuple(map(order.index, stored)), []
        survivors, leaders, spreads, rows = self._walk(order, shared.around)
        # of what entries share as rows of tiles, a part is read once for all of them
        if rows is not None and not any(v in access.bound for v in rows):
            inside = order.index(rows[-1]) + 1
            survivors = [s if k < inside else s / regions.ROWS for k, s in enumerate(survivors)]
        leads = not drawn and all(not leaders[k + 1] or access in leaders[k + 1] for k in depths)
        near = self.named(access, order) if drawn else [EVEN if leads else spreads[k] for k in depths]
        new, among = math.prod([x.new for x in near]), tuple([x.among for x in near])
        each, fanout = self.layouts[access]
        in_runs = not drawn or cin.follows(stored[-1]) is not None
        model, deepest = self._model, max(depths)
        last = model.walk(order[: deepest + 1])
        meets = access in last.leaders and len(last.leaders) > 1 and access.tensor.name not in last.scattered
        meets |= statistics.runs_of(model.facts.counts.get(access.tensor.name)) is not None
        walks = model.walked(access, order[deepest], model.walk(order[:deepest]).bound) if meets else None
        fits = self.bytes <= min(model.machine.caches)
        between = None if drawn or fits else partial(self._meanwhile, access, order, survivors)
        walked = memory.Walked(depths, each, fanout, leads, new, among, tuple(drawn), in_runs, walks, between)
        return memory.lines(walked, survivors, self.bytes, shared.beside)

    def _meanwhile(self, access: cin.Access, order: Order, survivors: Sequence[float], depth: int) -> float:
        """The bytes of all other arrays that one iteration of a loop touches."""
        made, discordant = 0.0, self._model.walk(order).discordant
        for other, (each, fanout) in self.layouts.items():
            if other == access or other.computed or other in discordant:
                continue
            part, runs, last = 1.0, 1.0, depth
            for dimension, many in zip(other.tensor.format.order, fanout, strict=True):
                index = other.indices[dimension]
                at = order.index(index) if index in order else len(order)
                if at > depth:
                    part *= many
                if at == len(order):
                    runs *= many  # loops that are still to come
                else:
                    last = max(last, at)
            made += each * min(part, max(1.0, runs * survivors[last + 1] / max(1e-9, survivors[depth + 1])))
        return made

    def _layout(self, access: cin.Access, counts: tuple[float, ...]) -> tuple[float, tuple[float, ...]]:
        last, runs = len(access.indices) - 1, statistics.runs_of(counts)
        stored = counts if runs is None else (*counts[:-1], runs)
        fanout = tuple(b / max(1e-9, a) for a, b in itertools.pairwise((1.0, *stored)))
        if access.tensor.format.levels[last].full or not self._asks(access, access.level_index(last)):
            return access.dtype.itemsize, fanout
        extent = access.tensor.shape[access.tensor.format.order[last]]
        return access.dtype.itemsize + passes.crd_dtype(extent).itemsize * (1 if runs is None else 2), fanout

    def _asks(self, access: cin.Access, index: cin.Index) -> bool:
        """Whether anything else is found by the coordinates of an array that this index runs over."""
        var, model = cin.follows(index), self._model
        others = (a for a in (*model.accesses, self._result) if a != access)
        return var is None or any(var in cin.bound_by(a) for a in others)

    def leads(self, order: Order, others: Collection[str]) -> tuple[tuple[cin.Access, ...], Spread]:
        """What leads the last of these loops, but for arrays with the names of `others`, and how close its coordinates lie."""
        leaders = tuple([a for a in self._model.walk(order).leaders if a.tensor.name not in others])
        return leaders, self.spread(order) if leaders else EVEN

    def spread(self, order: Order) -> Spread:
        """How close together the coordinates lie that the last of these loops visits."""
        found = self._spreads.get(order)
        if found is None:
            found = self._spreads[order] = self._spread_of(order)
        return found

    def named(self, access: cin.Access, order: Order) -> list[Spread]:
        """How near the coordinates lie, per storage level, of an array that some of its indices are looked up in. What comes again among some
        entries is new all the same where their rows are more than the second cache holds."""
        each, fanout = self.layouts[access]
        room, made = NEAR * self._model.machine.caches[1], list[Spread]()
        for level, dimension in enumerate(access.tensor.format.order):
            found = self._looked_up(access.indices[dimension], access.tensor.shape[dimension], order)
            rows = found.new * WINDOW * each * math.prod(fanout[level + 1 :])
            made.append(found if rows <= room else found._replace(new=1.0))
        return made

    def _looked_up(self, index: cin.Index, extent: int, order: Order) -> Spread:
        """How near the rows lie that an index array names, where loops walk its entries in an order that is known."""
        if not self._model.facts.lookups or not isinstance(index, cin.Access) or not cin.are_variables(index.indices):
            return EVEN
        stored = [index.level_index(level) for level in range(len(index.indices))]
        if any(v not in order for v in stored):
            return EVEN
        depths = [order.index(v) for v in stored]
        leaders = {a.tensor.name: a for k in depths for a in self._model.walk(order[: k + 1]).leaders}
        state = self._model.walk(order)
        if len(leaders) > 1 or depths != sorted(depths) or not state.discordant.isdisjoint(leaders.values()):
            return EVEN
        return self._model.facts.lookups.get((index.tensor.name, extent, "".join(leaders)), EVEN)

    def _spread_of(self, order: Order) -> Spread:
        """How close together the coordinates lie that the last loop of `order` visits in some runs, one after the other: as its leaders tell."""
        state = self._model.walk(order)
        for leader in state.leaders:
            counts = self._model.facts[leader.tensor.name]
            known = statistics.spread_of(counts)
            if leader in state.discordant:  # a copy in the other order is walked
                crossed = statistics.crossed_of(counts)
                if crossed != EVEN and leader.level_index(0) == order[-1]:
                    return crossed
            elif known:
                return known[max(lv for lv in range(len(known)) if leader.level_index(lv) == order[-1])]
        return EVEN


def _inside(own: _Walk, around: Around) -> _Walk:
    """The loops of a statement inside of what is around it: those inside run as often in each run of those around as they do alone."""
    n = min(len(around.leaders), len(own.spreads))
    scale = around.survivors[n] / max(1e-9, own.survivors[n])
    return own._replace(
        survivors=[*around.survivors[: n + 1], *(s * scale for s in own.survivors[n + 1 :])],
        leaders=[(), *around.leaders[:n], *own.leaders[n + 1 :]],
        spreads=[*around.spreads[:n], *own.spreads[n:]],
    )


def _plain(access: cin.Access) -> bool:
    """Whether loops say where it is, or entries that they lead to."""
    if not access.indices or access.tensor.format.blocked or access.others != access.entries:
        return False
    return all(map(cin.variables_of, access.indices))
