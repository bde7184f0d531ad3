"""Schedules of kernels of several statements (`placement`).

Every statement is a kernel of its own to the scheduler, whose outermost loops are those that it shares: the value's loops follow the
storage of the output, a producer's are the cheapest under its prefix. It costs what its own loops do, as often as the loops around it
run in its parent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from sparsejax.formats import Format
from sparsejax.jit import autoschedule, placement
from sparsejax.jit.autoschedule import Candidate, Cost, Loop, Schedule
from sparsejax.jit.facts import Facts
from sparsejax.jit.nest import Nest
from sparsejax.jit.placement import Loops, Place, statement

ORDERS = 6  # loop orders of a dense result that are tried
WHOLE = 16.0  # per entry of a result that is kept whole


def choose(nest: Nest, facts: Facts) -> Schedule | None:
    """The cheapest schedule of `nest`; None where a part of a sparse result would have to be kept between statements."""
    found = [
        s
        for s in (_with_order(nest, placement.with_targets(nest, facts), order) for order in _orders(nest))
        if s is not None
    ]
    if not found:
        return None
    found.sort(key=lambda s: s.cost.total)
    return replace(found[0], candidates=tuple(Candidate(s.order, s.cost) for s in found))


def keeps_whole(nest: Nest, schedule: Schedule) -> bool:
    """Whether a result is kept whole between statements, in a workspace outside all loops."""
    return any(not p.depth and placement.kept(nest, k, p) for k, p in enumerate(schedule.places))


def candidates(nest: Nest, facts: Facts, workspace: str = "auto") -> tuple[Candidate, ...]:
    """Loop orders of the value with their costs, cheapest first."""
    if not nest.nested:
        return autoschedule.candidates(nest, facts, workspace)
    best = choose(nest, facts)
    return () if best is None else best.candidates


def loops(nest: Nest, facts: Facts, schedule: Schedule) -> tuple[Loop, ...]:
    """What the cost of the loops is made of: those of the value, then every producer's own."""
    if not nest.nested:
        return autoschedule.loops(nest, facts, schedule.order)
    facts, last = placement.with_targets(nest, facts), len(nest.producers)
    made = list(autoschedule.loops(statement(nest, last), facts, schedule.order))
    places: list[Place | None] = [*schedule.places, Place(last, 0, schedule.order)]
    runs = {last: 1.0}
    for number in reversed(range(last)):
        place, part = schedule.places[number], statement(nest, number)
        runs[number] = _runs(nest, facts, places, place, runs)
        scale = runs[number] / _survivors(part, facts, place.loops[: place.depth])
        for loop in autoschedule.loops(part, facts, place.loops)[place.depth :]:
            times = (loop.starts * scale, loop.iterations * scale, loop.survivors * scale)
            made.append(Loop(loop.var, *times, loop.leaders))
    return tuple(made)


def _orders(nest: Nest) -> Iterator[Loops]:
    if nest.output.format.is_dense:
        return itertools.islice(itertools.permutations(nest.storage_indices), ORDERS)
    return iter([nest.storage_indices])


def _with_order(nest: Nest, facts: Facts, order: Loops) -> Schedule | None:
    last = len(nest.producers)
    value = autoschedule.schedule_of(statement(nest, last), facts, order)
    runs, moves = {last: 1.0}, list(value.conversions)
    costs = [value.cost]

    def cheapest(number: int, made: list[Place | None], parent: int, most: int) -> Place:
        tried = [_at(nest, facts, number, made, Place(parent, depth, ()), runs) for depth in range(most + 1)]
        priced = [t for t in tried if t is not None]
        place, cost, times, moved = min(priced, key=lambda t: t[1].total)
        runs[number] = times
        costs.append(cost)
        moves.extend(moved)
        return place

    found = placement.places(nest, order, cheapest)
    total = Cost(sum(c.loops for c in costs), sum(c.output for c in costs), sum(c.conversions for c in costs))
    if not math.isfinite(total.total):
        return None
    return Schedule(order, tuple(dict.fromkeys(moves)), total, places=tuple(found))


def _at(
    nest: Nest, facts: Facts, number: int, made: list[Place | None], place: Place, runs: dict[int, float]
) -> tuple[Place, Cost, float, tuple[tuple[str, Format], ...]] | None:
    """A producer inside so many loops of its parent: its own loops, what it costs, how often it runs, what is converted for it."""
    part, parent = statement(nest, number), placement.at(made, place.parent)
    shared = parent.loops[: place.depth]
    best = autoschedule.choose(part, facts, prefix=shared)
    if best is None:
        return None
    times = _runs(nest, facts, made, place, runs)
    place = Place(place.parent, place.depth, best.order)
    rest = placement.kept(nest, number, place)
    before, inside = autoschedule.prefix(part, facts, shared)
    cleared = 0.0
    if rest:
        target = nest.producers[number].target
        size = math.prod(float(target.tensor.shape[target.indices.index(v)]) for v in rest)
        # a part of a sparse result cannot be kept densely; keeping all of one is what separate kernels do
        each = math.inf if target.tensor.lacks else autoschedule.VECTOR if place.depth else WHOLE
        cleared = each * size * times
    cost = Cost((best.cost.loops - before) * times / max(inside, 1e-9), cleared, best.cost.conversions)
    return place, cost, times, best.conversions


def _runs(nest: Nest, facts: Facts, made: list[Place | None], place: Place, runs: dict[int, float]) -> float:
    """How often a statement runs that shares so many loops of its parent."""
    around, parent = statement(nest, place.parent), placement.at(made, place.parent)
    starts = _survivors(around, facts, parent.loops[: parent.depth])
    return runs[place.parent] * _survivors(around, facts, parent.loops[: place.depth]) / starts


def _survivors(part: Nest, facts: Facts, order: Loops) -> float:
    return max(1e-9, autoschedule.prefix(part, facts, order)[1])
