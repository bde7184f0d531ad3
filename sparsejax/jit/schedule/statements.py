"""Schedules of kernels of several statements (`placement`).

Every statement is a kernel of its own to the scheduler, whose outermost loops are those that it shares: the value's loops follow the
storage of the output, a producer's are the cheapest under its prefix. It costs what its own loops do, as often as the loops around it
run in its parent.

A sparse result that is computed in all of its loops, an element at a time, is found in a register there: what leads these loops are the
other operands of its reader. In  s += M[i,j] * w[i,j],  w[i,j] += A[i,k] * B[k,j]  the loop over j visits the entries of the mask M, not
those of the product. Such nests are priced with these results as elements of dense arrays, beside those that keep all of them.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sparsejax.jit.cost import machine, memory, statistics
from sparsejax.jit.cost.joins import Meeting
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.ir import choices, cin, sole_leader
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import concordant, counted, loop_costs, placement, row_blocking, search, tiled_loops
from sparsejax.jit.schedule.placement import Loops, Place, statement
from sparsejax.jit.schedule.schedules import FREE, Candidate, Cost, Loop, Schedule, total
from sparsejax.jit.schedule.waiting import Around, Shared

ORDERS = 6  # loop orders of a dense result that are tried
NEAR = 32
"""Positions of a run of equal coordinates that are looked at to find its end, at most: further ones are jumped over."""


@dataclass(frozen=True)
class Ways:
    """What a schedule is to be like (`alternatives.CHOICES`): "loop_order" and "depth"; operands are scattered where that is cheaper (True),
    nowhere (False), or wherever it can be done (None)."""

    order: str = "cheapest"
    depth: str = "cheapest"
    scatters: bool | None = True


CHEAPEST = Ways()


def choose(nest: Nest, facts: Facts, ways: Ways = CHEAPEST) -> Schedule | None:
    """The cheapest schedule of `nest`, or that which is asked for; None where no loops are shared that a part of a sparse result could be kept
    in."""
    loose = _Pricing(nest, facts, None, ways=ways)
    found = loose.schedules()
    shared = frozenset(name for s in found.values() for name in s.registers)
    if shared:
        found = _Pricing(nest, facts, frozenset(), loose, ways).schedules()
        for order, made in _Pricing(nest, facts, shared, loose, ways).schedules().items():
            found[order] = min(found.get(order, made), made, key=lambda s: s.cost.total)
    if not found:
        return None
    cheapest = sorted(found.values(), key=lambda s: s.cost.total)
    taken = cheapest[0]
    if ways.order != "cheapest":
        legal = [s for s in cheapest if not concordant.unfolds(t for t in nest.inputs if t.name in dict(s.conversions))]
        legal = legal or cheapest
        taken = legal[-1] if ways.order == "dearest" else choices.one_of(legal)
    return replace(taken, candidates=tuple(Candidate(s.order, s.cost) for s in cheapest))


def keeps_whole(nest: Nest, schedule: Schedule) -> bool:
    """Whether a result is kept whole between statements, in a workspace outside all loops."""
    whole = [k for k, p in enumerate(schedule.places) if not p.depth and placement.kept(nest, k, p)]
    last = len(nest.producers) - 1
    return any(k != last or not placement.accumulates(nest, schedule.places[k]) for k in whole)


def candidates(nest: Nest, facts: Facts, workspace: str = "auto") -> tuple[Candidate, ...]:
    """Loop orders of the value with their costs, cheapest first."""
    if not nest.nested:
        return search.candidates(nest, facts, workspace)
    best = choose(nest, facts)
    return () if best is None else best.candidates


def loops(nest: Nest, facts: Facts, schedule: Schedule) -> tuple[Loop, ...]:
    """What the cost of the loops is made of: those of the value, then every producer's own."""
    if not nest.nested:
        return counted.loops(nest, facts, schedule.order)
    pricing, last = _Pricing(nest, facts, schedule.registers), len(nest.producers)
    made = list(counted.loops(pricing.statements[last], pricing.facts, schedule.order))
    for number, scale in pricing.scales(schedule).items():
        place = schedule.places[number]
        for loop in counted.loops(pricing.statements[number], pricing.facts, place.loops)[place.depth :]:
            times = (loop.starts * scale, loop.iterations * scale, loop.survivors * scale)
            made.append(Loop(loop.var, *times, loop.leaders))
    return tuple(made)


def scales(nest: Nest, facts: Facts, schedule: Schedule) -> Mapping[int, float]:
    """For every producer of a nest, how often its loops run, as times what they would alone."""
    return _Pricing(nest, facts, schedule.registers).scales(schedule)


def _orders(nest: Nest) -> Iterator[Loops]:
    if nest.output.format.is_dense:
        return itertools.islice(itertools.permutations(nest.storage_indices), ORDERS)
    return iter([nest.storage_indices])


Priced = tuple[Place, Cost, float, Schedule]
"""A producer inside so many loops of its parent: its own loops, what it costs, how often it runs, how it is scheduled by itself."""


def _around(nest: Nest, statement: Nest, facts: Facts) -> tuple[Meeting, ...]:
    """Where operands of one statement meet those of the others: a loop around it that these lead comes to its longer rows more often.

    s += A[i,j] * w[i,j],  w[i,j] += B[i,k] * C[k,j]     A and B meet in i, A and C in j
    """
    if not facts.couplings:
        return ()
    own = {a for e in statement.expressions for a in cin.accesses(e)}
    apart = (j for j in statistics.meetings(nest) if (j.left in own) != (j.right in own))
    known = ((j, facts.couplings.get(j.key, 1.0)) for j in apart)
    return tuple(Meeting(j, j.others(j.left), j.others(j.right), x) for j, x in known if x != 1.0)


class _Pricing:
    """What the statements of a nest cost, each looked at once under every prefix of shared loops.

    Sparse results in `registers` are computed in all of their loops, which they do not lead then, and no others are (None: those that
    seem cheapest so, although they are taken to lead these loops). `known` are prices of the same statements.
    """

    def __init__(
        self,
        nest: Nest,
        facts: Facts,
        registers: frozenset[str] | None,
        known: _Pricing | None = None,
        ways: Ways = CHEAPEST,
    ) -> None:
        self.nest, self.registers, self.ways = nest, registers, ways
        self.machine = machine.current()
        self.facts = search.with_targets(nest, facts, registers or ())
        self.statements = [statement(nest, k, registers or ()) for k in range(len(nest.producers) + 1)]
        last = len(nest.producers)
        kept = [k < last - 1 or (k == last - 1 and nest.op is None) for k in range(last + 1)]
        pairs = zip(self.statements, kept, strict=True)
        self.models = [
            search.model(s, self.facts, scatters=ways.scatters, kept=result, around=_around(nest, s, facts))
            for s, result in pairs
        ]
        self._best: dict[tuple[int, Loops], Schedule | None] = {}
        self._prefix: dict[tuple[int, Loops], tuple[float, float]] = {}
        self._beside: dict[tuple[int, Loops], memory.Beside] = {}
        self._again: dict[tuple[int, Loops], frozenset[cin.Access]] = {}
        if known is not None:
            same = [self._reads(k) == known._reads(k) for k in range(len(self.models))]
            self.models = [
                known.models[k] if kept else m for k, (m, kept) in enumerate(zip(self.models, same, strict=True))
            ]

    def _reads(self, number: int) -> list[object]:
        """What the price of a statement depends on."""
        read = dict.fromkeys(a.tensor for e in self.statements[number].expressions for a in cin.accesses(e))
        return [self.statements[number], *((t.name, t.format, self.facts.counts.get(t.name)) for t in read)]

    def schedules(self) -> dict[Loops, Schedule]:
        """The schedule for every order of the value's loops that can run."""
        made = ((order, self._either(order)) for order in _orders(self.nest))
        return {order: found for order, found in made if found is not None}

    def _either(self, order: Loops) -> Schedule | None:
        """The schedule with the value's loops in `order`: where the last producer is accumulated in the output, it would be cheapest outside
        all of them, but what it reads may then have to be kept whole; so it is tried inside the first one too."""
        made, number = self.schedule(order), len(self.nest.producers) - 1
        read = {a.tensor.name for a in cin.accesses(self.nest.producers[number].rhs)}
        if self.nest.op is None or not order or read.isdisjoint(self.nest.targets):
            return made
        if order[0] != self.nest.storage_indices[0]:
            return made  # elements of the output would be added to in an order that it is not stored in
        inside = self.schedule(order, 1)
        if inside is None or (
            made is not None and not keeps_whole(self.nest, made) and made.cost.total <= inside.cost.total
        ):
            return made
        return inside

    def scales(self, schedule: Schedule) -> dict[int, float]:
        """For every producer, how often its loops run under a schedule, as times what they would alone; from the last one."""
        last = len(self.nest.producers)
        places: list[Place | None] = [*schedule.places, Place(last, 0, schedule.order)]
        runs, found = {last: 1.0}, dict[int, float]()
        for number in reversed(range(last)):
            place = schedule.places[number]
            runs[number] = self.runs(places, place, runs)
            found[number] = runs[number] / self.survivors(number, place.loops[: place.depth])
        return found

    def best(self, number: int, shared: Loops) -> Schedule | None:
        """The cheapest schedule of a statement inside `shared` loops, or that with the order that is asked for."""
        if (number, shared) not in self._best:
            model = self.models[number]
            if self.ways.order == "cheapest":
                self._best[number, shared] = model.search(shared)
            else:
                legal = model.legal_in(shared)
                one = choices.one_of if self.ways.order == "any" else operator.itemgetter(-1)
                self._best[number, shared] = model.of(one(legal)[1]) if legal else None
        return self._best[number, shared]

    def prefix(self, number: int, order: Loops) -> tuple[float, float]:
        """What the outermost loops of a statement cost, and how often their body runs."""
        if (number, order) not in self._prefix:
            state = self.models[number].walk(order)
            self._prefix[number, order] = state.cost, max(1e-9, state.survivors)
        return self._prefix[number, order]

    def survivors(self, number: int, order: Loops) -> float:
        return self.prefix(number, order)[1]

    def schedule(self, order: Loops, least: int = 0) -> Schedule | None:
        """The schedule with the value's loops in `order`, and the last producer inside `least` of them."""
        nest, last = self.nest, len(self.nest.producers)
        value = self.models[last].given(order)
        runs, moves, looked_up = {last: 1.0}, list(value.conversions), list(value.scattered)
        spent, impossible, together = [value.cost], list[int](), 0

        def cheapest(number: int, made: list[Place | None], parent: int, most: int) -> Place:
            nonlocal together
            first = min(least, most) if number + 1 == last else 0
            tried = [self.at(number, made, Place(parent, depth, ()), runs) for depth in range(first, most + 1)]
            priced = [t for t in tried if t is not None]
            if not priced:
                impossible.append(number)
                runs[number] = 1.0
                return Place(parent, 0, placement.variables(nest, number))
            depth = self.ways.depth
            place, cost, times, best = (
                min(priced, key=lambda t: t[1].total) if depth == "cheapest" else priced[-(depth == "innermost")]
            )
            runs[number] = times
            spent.append(cost)
            together = max(together, place.depth if parent == last else 0)
            moves.extend(best.conversions)
            looked_up.extend(best.scattered)
            return place

        found = placement.places(nest, order, cheapest)
        if impossible:
            return None
        if placement.accumulates(nest, found[-1]):
            spent[0] = replace(FREE, loops=self.prefix(last, order[: found[-1].depth])[0])
        elif together:
            beside = self.beside(last, order[:together])
            spent[0] = replace(value.cost, memory=self.models[last].waiting.total(order, Shared(beside)))
        spent.append(replace(FREE, loops=self.all_ends(order, found, runs)))
        spent_in_all = total(spent)
        if not math.isfinite(spent_in_all.total):
            return None
        full = [
            k for k, p in enumerate(found) if nest.producers[k].target.tensor.lacks and not placement.kept(nest, k, p)
        ]
        registers = frozenset(nest.producers[k].target.tensor.name for k in full)
        how = tuple(found), tuple(dict.fromkeys(looked_up)), registers
        return Schedule(order, tuple(dict.fromkeys(moves)), spent_in_all, (), None, "", *how)

    def at(self, number: int, made: list[Place | None], place: Place, runs: dict[int, float]) -> Priced | None:
        """A producer at a place; None where what is left of its result cannot be kept there."""
        nest, parent, target = self.nest, placement.at(made, place.parent), self.nest.producers[number].target
        shared = parent.loops[: place.depth]
        if not placement.fits(target, shared) or (
            len(shared) == len(target.indices) and target.tensor.name in nest.asked
        ):
            return None
        best = self.best(number, shared)
        if best is None:
            return None
        times = self.runs(made, place, runs)
        place = Place(place.parent, place.depth, best.order)
        rest = placement.kept(nest, number, place)
        if self.registers is not None and target.tensor.lacks and bool(rest) == (target.tensor.name in self.registers):
            return None
        before, inside = self.prefix(number, shared)
        often, output, once = times / inside, 0.0, 0.0
        for depth, cost in self.models[number].walk(best.order).fixed:
            if depth < place.depth:  # in loops around those that this statement adds
                before += cost
                around = Place(place.parent, depth, ())
                once += cost * self.runs(made, around, runs) / self.survivors(number, shared[:depth])
        if rest and target.tensor.lacks:
            place = replace(place, policy=best.workspace or "append")
            each = self.machine.append if place.depth else self.machine.whole
            if self.in_result(number, place, best, rest):
                each = self.machine.lane * target.dtype.itemsize / 8
            each += self.machine.gather * sum(self.missed(number, k, rest) for k in placement.readers(nest)[number])
            output = often * (best.cost.output + each * self.facts[target.tensor.name][-1])
        elif rest and not (number + 1 == len(nest.producers) and placement.accumulates(nest, place)):
            size = math.prod(float(target.tensor.shape[target.indices.index(v)]) for v in rest)
            lanes = target.dtype.itemsize / 8
            output = (self.machine.lane * lanes if place.depth else self.machine.whole) * size * times
        inner = best.cost.loops - before
        if row_blocking.gains(nest, number, place):
            inner *= tiled_loops.TILED
        inner += sum(self.models[number].walk(shared).operators)
        common = self.shared(number, shared, self.around(number, made, place, runs))
        waiting = self.waits(number, best.order, shared, common)
        if shared:
            if any(m.calls for m in self.models):
                now = [place if k == number else p for k, p in enumerate(made)]
                once += self.lone(now, {**runs, number: times}) - self.lone(made, runs)
            model = self.models[number]
            waiting += self.stall(model, best.order, common.beside) * times * model.waiting.stalls(best.order, common)
        return place, Cost(inner * often + once, waiting, output, best.cost.conversions), times, best

    def in_result(self, number: int, place: Place, best: Schedule, rest: Loops) -> bool:
        """Whether what is kept for the rest of a row will stand in the memory of the result, without keys (`rewrite.in_place`): an operand alone leads
        the loop that fills it, and it alone the one that writes the result."""
        nest, last = self.nest, len(self.nest.producers)
        out, target = nest.storage_indices, nest.producers[number].target
        if (place.parent, place.depth, rest) != (last, len(out) - 1, out[-1:]) or best.workspace is not None:
            return False
        if best.order != out or target.dtype != nest.output.dtype or nest.output.format.levels[-1].full:
            return False
        reading, rhs = self.models[last].walk(out).leaders, nest.producers[number].rhs
        if len(reading) != 1 or reading[0].tensor.name != target.tensor.name:
            return False
        filling = cin.Assign(target, nest.producers[number].op, rhs)
        return any(
            a.tensor in nest.inputs and sole_leader.fills(a, out[-1], filling) for a in dict.fromkeys(cin.accesses(rhs))
        )

    def lone(self, made: Sequence[Place | None], runs: Mapping[int, float]) -> float:
        """What functions cost more in statements all of whose loops are around those of others: they are computed one at a time, which takes as long as a
        vector does."""
        spent = 0.0
        for number, own in enumerate(made):
            if own is not None and self.models[number].calls and _is_around(made, number, own):
                functions = self.models[number].walk(own.loops).operators[1]
                spent += functions * runs[number] / self.survivors(number, own.loops[: own.depth])
        return spent * (loop_costs.VECTOR - 1)

    def all_ends(self, order: Loops, places: Sequence[Place], runs: Mapping[int, float]) -> float:
        """What statements take to find where runs of equal coordinates end (`ends`), in loops that any of them share."""
        last = len(places)
        spent = 0.0
        for number, own in enumerate((*places, Place(last, 0, order))):
            depth = max([own.depth, *(p.depth for p in places if p.parent == number)])
            ends = self.ends(number, own.loops[:depth]) if depth else 0.0
            spent += ends and ends * runs[number] / self.survivors(number, own.loops[: own.depth])
        return spent

    def ends(self, number: int, shared: Loops) -> float:
        """What a statement takes, in loops that it shares, to find where runs of equal coordinates end: levels that share positions, which one
        statement alone walks as one loop (`rewrite.position_walks`). 0.8 to 1.2 ns a position measured, of rows of 2 to 30 (coordinates, Granite Rapids)."""
        model, looked_at = self.models[number], 0.0
        for depth, var in enumerate(shared):
            state = model.walk(shared[: depth + 1])
            for access in state.leaders:
                form, (level, *_) = access.tensor.format, model.level(access, var)
                if access not in state.discordant and level + 1 < len(form.levels) and form.continues(level + 1):
                    counts = self.facts[access.tensor.name]
                    last = next(stop for first, stop in form.runs if first <= level < stop) - 1
                    looked_at += state.survivors * min(counts[last] / max(1.0, counts[level]), NEAR)
        return self.machine.lookup * looked_at

    def stall(self, model: search.Model, order: Loops, beside: memory.Beside) -> float:
        """What a run of shared loops is longer for that the reads of the next one do not start: until it is known where loops over entries end, else
        while the other statements are busy."""
        led = any(model.walk(order[: k + 1]).leaders for k in range(beside.shared, len(order)))
        return self.machine.stall if led else min(self.machine.stall, beside.busy)

    def waits(self, number: int, order: Loops, loops: Loops, common: Shared) -> float:
        """What a statement waits for memory in its own loops, those behind shared ones."""
        waiting = self.models[number].waiting
        return max(0.0, waiting.total(order, common) - waiting.total(loops, common))

    def shared(self, number: int, loops: Loops, around: Around) -> Shared:
        """What a statement has in common with others inside of `loops`."""
        return Shared(self.beside(number, loops), self.again(number, loops), around if loops else None)

    def around(self, number: int, made: list[Place | None], place: Place, runs: dict[int, float]) -> Around:
        """How the loops run that a statement at a place shares: as those that it is placed in run them. Where nothing leads them there but results of
        the nest, the statement's own operands do."""
        parent = placement.at(made, place.parent)
        outer, model = parent.depth, self.models[place.parent]
        known = Around((1.0,), (), ())
        if outer:
            known = self.around(place.parent, made, replace(parent, depth=min(outer, place.depth)), runs)
        survivors, leaders, spreads = list(known.survivors), list(known.leaders), list(known.spreads)
        scale = runs[place.parent] / self.survivors(place.parent, parent.loops[:outer])
        for k in range(outer, place.depth):
            loops = parent.loops[: k + 1]
            led, spread = model.waiting.leads(loops, self.nest.targets)
            if not led:
                led, spread = self.models[number].waiting.leads(loops, self.nest.targets)
            survivors.append(scale * self.survivors(place.parent, loops))
            leaders.append(led)
            spreads.append(spread)
        return Around(tuple(survivors), tuple(leaders), tuple(spreads))

    def again(self, number: int, shared: Loops) -> frozenset[cin.Access]:
        """What a statement reads of arrays of which a later one reads the same part in each run of `shared` loops: it waits for them once."""
        if not shared:
            return frozenset()
        if (number, shared) not in self._again:
            same = dict(self.facts.same)

            def parts(k: int) -> dict[tuple[str, tuple[cin.Index | None, ...]], cin.Access]:
                found: dict[tuple[str, tuple[cin.Index | None, ...]], cin.Access] = {}
                for a in self.models[k].accesses:
                    part = tuple(ix if ix in shared else None for ix in a.indices)
                    if any(part):
                        found[same.get(a.tensor.name, a.tensor.name), part] = a
                return found

            own = parts(number)
            later = (
                k for k in range(number + 1, len(self.models)) if set(shared) <= set(self.models[k].nest.variables)
            )
            read = {part for k in later for part in parts(k)}
            self._again[number, shared] = frozenset(a for part, a in own.items() if part in read)
        return self._again[number, shared]

    def beside(self, number: int, shared: Loops) -> memory.Beside:
        """What the other statements touch in `shared` loops, in their cheapest orders."""
        if not shared:
            return memory.ALONE
        if (number, shared) not in self._beside:
            self._beside[number, shared] = self._touched_beside(number, shared)
        return self._beside[number, shared]

    def _touched_beside(self, number: int, shared: Loops) -> memory.Beside:
        size, each, busy = 0.0, 0.0, 0.0
        for other, model in enumerate(self.models):
            found = self.best(other, shared) if other != number and set(shared) <= set(model.nest.variables) else None
            if found is not None:
                size += model.waiting.bytes
                before, runs = self.prefix(other, shared)
                each += model.waiting.touched(found.order) / runs
                busy += max(0.0, found.cost.loops - before) / runs
        return memory.Beside(len(shared), size, each, busy)

    def missed(self, number: int, reader: int, rest: Loops) -> float:
        """How often a reader of what is kept waits for dense operands that it finds by the entries: these lie far apart in memory."""
        own = self.nest.producers[number].target.tensor.name
        return sum(
            machine.missed(math.prod(a.tensor.shape) * a.dtype.itemsize)
            for a in dict.fromkeys(cin.accesses(self.nest.expressions[reader]))
            if a.tensor.name != own and a.tensor.format.is_dense and set(rest) & set(a.indices)
        )

    def runs(self, made: list[Place | None], place: Place, runs: dict[int, float]) -> float:
        """How often a statement runs that shares so many loops of its parent."""
        parent = placement.at(made, place.parent)
        starts = self.survivors(place.parent, parent.loops[: parent.depth])
        return runs[place.parent] * self.survivors(place.parent, parent.loops[: place.depth]) / starts


def _is_around(made: Sequence[Place | None], number: int, own: Place) -> bool:
    """Whether all loops of a statement are those of another one too, which has more inside of them."""
    depth, shared = len(own.loops), _shared(made, number)

    def inside(other: int) -> bool:
        there = _shared(made, other)
        return any(min(loops, there[k]) >= depth for k, loops in shared.items() if k in there)

    longer = (k for k, p in enumerate(made) if k != number and p is not None and len(p.loops) > depth)
    return any(map(inside, longer))


def _shared(made: Sequence[Place | None], number: int) -> dict[int, int]:
    """How many loops a statement has in common with itself and with those that it is placed in."""
    loops = len(placement.at(made, number).loops)
    found = {number: loops}
    while (place := placement.at(made, number)).parent != number:
        number, loops = place.parent, min(loops, place.depth)
        found[number] = loops
    return found
