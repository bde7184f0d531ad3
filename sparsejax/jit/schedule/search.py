"""Loop order by prefix cardinalities.

For a tensor T and a set P of bound variables, card(T, P) is the number of distinct coordinates of T over P: observed
(positions per level) when P is a prefix of T's storage order, else the expectation n (1 - exp(-nnz / n)) over the
product n of the extents. Then, adding variable v to a bound set P:

    d_T(v | P)  = card(T, P + v) / card(T, P)                        children per parent
    survivors   S <- S * n_v * sel(expression, v | P)                products multiply densities, sums unite them
    work        W  = S * (sum of d_T over leaders, or n_v where the loop is counted)

Where two factors A and B of a product meet in a bound variable u, and the loops have walked through A from there, B's fibers
are not average ones: those are met most where most entries of A lead. d_B and S grow by the observed coupling of A and B in u
(`skew`), once both have another bound variable. S never exceeds what the shortest leader offers.

The cost of an order, in nanoseconds of a machine (`cost.machine`), is the sum of the work of its loops, plus waiting for the cache lines that
they touch (`cost.memory`), plus writing the output through a workspace, where it needs one, plus converting every operand whose storage order
the loops do not follow. Orders are searched by dynamic programming over sets of bound variables, with a beam where there are many.

Source: reference section 4.3 (the repaired cost model of Scorch) and Galley's physical optimiser.
"""

from __future__ import annotations

import heapq
import itertools
import math
import operator
from collections.abc import Collection, Sequence
from dataclasses import replace

from sparsejax.cached import cached_property
from sparsejax.formats import Format
from sparsejax.jit.cost import machine, memory, price_table, workspace_choice
from sparsejax.jit.cost.joins import Meeting
from sparsejax.jit.cost.skew import distinct
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest, orders, outside, storage_orders
from sparsejax.jit.schedule import concordant, models, neighbours, placement, schedules, tiled_loops, waiting
from sparsejax.jit.schedule.assembly import SCATTER
from sparsejax.jit.schedule.loop_costs import LoopCosts
from sparsejax.jit.schedule.schedules import Candidate, Cost, Schedule, State

BEAM, LISTED = 400, 120
TRIED, MOST = 24, 20_000
"""Orders that are listed as legal, of so many at most."""
FEW = 6  # variables up to which the beam is that wide; with more, it narrows with the cube of their number


def choose(nest: Nest, facts: Facts, workspace: str = "auto", prefix: tuple[cin.IndexVar, ...] = ()) -> Schedule | None:
    """The cheapest schedule of `nest`, with a `workspace` policy or any, whose outermost loops are those of `prefix`; None when no
    order can run it as one kernel."""
    return model(nest, facts, workspace, not prefix).search(prefix)


def schedule_of(nest: Nest, facts: Facts, order: tuple[cin.IndexVar, ...], workspace: str = "auto") -> Schedule:
    """The schedule of `nest` with its loops in a given order, whatever it costs."""
    return model(nest, facts, workspace).given(order)


def candidates(nest: Nest, facts: Facts, workspace: str = "auto", limit: int = LISTED) -> tuple[Candidate, ...]:
    """Loop orders with their costs, cheapest first: all of them where there are at most `limit`, else those that the
    search kept to the end. O(v! v) for v variables."""
    if math.factorial(len(nest.variables)) > limit:
        best = choose(nest, facts, workspace)
        return () if best is None else best.candidates
    made = model(nest, facts, workspace)
    found = [Candidate(order, made.total(made.walk(order))) for order in orders(nest)]
    return tuple(sorted(found, key=lambda c: c.cost.total))


def level_counts(nest: Nest, facts: Facts) -> tuple[float, ...]:
    """The expected number of positions of every storage level of the output."""
    if nest.nested:
        facts = with_targets(nest, facts)
        nest = placement.statement(nest, len(nest.producers))
    return model(nest, facts).level_counts()


def with_targets(nest: Nest, facts: Facts, registers: Collection[str] = ()) -> Facts:
    """`facts` with the positions of the results of producers, of which those in `registers` are read as dense arrays."""
    made = dict(facts.counts)
    for number, p in enumerate(nest.producers):
        tensor = p.target.tensor
        if tensor.lacks and tensor.name not in registers:
            counts = level_counts(placement.statement(nest, number, registers), replace(facts, counts=dict(made)))
        else:
            counts = tuple(itertools.accumulate(map(float, tensor.shape), operator.mul))
        made[tensor.name] = counts or (1.0,)
    return replace(facts, counts=made)


def _below(form: Format) -> tuple[int, ...]:
    """The dimensions of the dense levels below all sparse ones."""
    return form.order[1 + (-1, *form.sparse)[-1] :]


class Model(LoopCosts):
    """The costs of one kernel of a single statement, given `facts`."""

    def __init__(
        self,
        nest: Nest,
        facts: Facts,
        workspace: str = "auto",
        scatters: bool | None = True,
        here: price_table.Machine | None = None,
        kept: bool = False,
        around: tuple[Meeting, ...] = (),
    ) -> None:
        """On `here`, or the machine that counts; the result is `kept` for some loops of another statement only, or not. Operands are
        scattered where that is cheaper, nowhere (False), or wherever it can be done (None). They meet those of statements `around` it."""
        super().__init__(nest, facts, scatters, here or machine.current(), around)
        self._wanted = workspace
        self._placed = {v for ix in nest.indices if isinstance(ix, cin.Position) for v in cin.variables_of(ix)}
        self._counts: tuple[float, ...] | None = None
        self._used: dict[tuple[cin.IndexVar, ...], workspace_choice.Choice | None] = {}
        self.waiting = waiting.Waiting(self, kept)

    def search(self, prefix: tuple[cin.IndexVar, ...] = ()) -> Schedule | None:
        """The cheapest schedule whose outermost loops are those of `prefix`."""
        nest, around = self.nest, outside(self.nest)
        states = [self.walk(prefix)]
        variables = nest.variables
        width = BEAM if len(variables) <= FEW else max(4, BEAM * FEW**3 // (8 * len(variables) ** 3))
        for depth in range(len(prefix) + 1, len(variables) + 1):
            best: dict[object, State] = {}
            for state in states:
                for var in variables:
                    if var in state.bound or (var in around and not around[var] <= state.bound):
                        continue
                    grown = self.walk((*state.order, var))
                    key = (grown.bound, self.prefix(grown.order), grown.discordant)
                    now = best.get(key)
                    if now is None or (grown.cost < (least := self.spent(now)) and self.spent(grown) < least):
                        best[key] = grown
            states = [*best.values()]
            if depth < len(variables) or len(states) > width:
                states = sorted(states, key=self.spent)[:width]
        if len(variables) > FEW:
            known = {s.order for s in states}
            listed = [order for order in storage_orders(nest, around) if order[: len(prefix)] == prefix]
            states += [self.walk(order) for order in listed if order not in known]
        priced = [item for item in self._priced(states) if math.isfinite(item[0].total)]
        priced.sort(key=lambda item: item[0].total)
        if not priced:
            return None
        priced = neighbours.added(self, priced, prefix)
        cost, state = priced[0]
        made = self.schedule(state, cost, tuple(Candidate(s.order, c) for c, s in priced[:6]))
        found = self._remembered(priced, state)
        if not found or found[0].cost.running >= 0.8 * cost.running:
            return made
        return replace(made, remembered=found[0])

    def _priced(self, states: Sequence[State]) -> list[tuple[Cost, State]]:
        """What states cost that end with the last loop, but for those whose loops alone cost more than another in all. What loops wait for is found out
        when no others are left that might cost less."""
        priced: list[tuple[Cost, State]] = []
        least = math.inf
        left = [(s.cost, False, number) for number, s in enumerate(states)]
        heapq.heapify(left)
        while left and left[0][0] <= least:
            _, waits, number = heapq.heappop(left)
            state = states[number]
            if waits:
                cost = self.total(state)
                least = min(least, cost.total)
                priced.append((cost, state))
            else:
                heapq.heappush(left, (self.spent(state), True, number))
        return priced

    def _remembered(self, priced: Sequence[tuple[Cost, State]], chosen: State) -> list[Candidate]:
        """The orders in which copies may be remembered, the cheapest then first: those that add up in the same order as the one that is chosen,
        and not in lanes."""
        kept = cin.bound_by(cin.Access(self.nest.output, self.nest.indices))
        sums = [v for v in chosen.order if v not in kept]
        same = [x for x in priced if [v for v in x[1].order if v not in kept] == sums]
        free = [(c, s) for c, s in same if s.discordant.isdisjoint(self._beside) and not self._unfolds(s)]
        free = [(c, s) for c, s in free if not {*chosen.order[-1:], *s.order[-1:]} & {*sums}]
        return [Candidate(s.order, c) for c, s in sorted(free, key=lambda x: x[0].running)]

    def remembered(self, order: tuple[cin.IndexVar, ...]) -> list[Candidate]:
        """The orders that need copies, in which these may be remembered, in place of `order`."""
        priced = [(c, s) for c, s in self.legal if s.order != order and s.discordant]
        return self._remembered(priced, self.walk(order))

    @cached_property
    def legal(self) -> list[tuple[Cost, State]]:
        """Loop orders that can run, cheapest first: all of them where there are few, else some."""
        return self.legal_in(())

    def legal_in(self, prefix: tuple[cin.IndexVar, ...]) -> list[tuple[Cost, State]]:
        """Those that begin with `prefix`; none that unfolds runs, where others do without."""
        stride = math.ceil(math.factorial(len(self.nest.variables) - len(prefix)) / TRIED)
        tried = map(self.walk, itertools.islice(orders(self.nest, prefix), 0, MOST, stride))
        priced = [(cost, s) for cost, s in ((self.total(s), s) for s in tried) if math.isfinite(cost.total)]
        return sorted([x for x in priced if not self._unfolds(x[1])] or priced, key=lambda x: x[0].total)

    def _unfolds(self, state: State) -> bool:
        return concordant.unfolds(a.tensor for a in state.discordant)

    def given(self, order: tuple[cin.IndexVar, ...]) -> Schedule:
        """The schedule with loops in a given order, whatever it costs."""
        return self.of(self.walk(order))

    def of(self, state: State) -> Schedule:
        """The schedule with the loops of a state."""
        return self.schedule(state, self.total(state), ())

    def schedule(self, state: State, cost: Cost, listed: tuple[Candidate, ...]) -> Schedule:
        moved = {
            a.tensor.name: concordant.concordant_format(a, self.followed(a, state.order), self.facts)
            for a in sorted(state.discordant, key=str)
        }
        used = self.workspace(state)
        policy, reason, inserted = (None, "", None) if used is None else (used.policy, used.reason, used.inserted)
        return Schedule(
            state.order, tuple(moved.items()), cost, listed, policy, reason, (), state.scattered, inserted=inserted
        )

    def spent(self, state: State) -> float:
        """What loops cost so far."""
        return state.cost + self.waiting.total(state.order)

    def _copy(self, access: cin.Access, order: tuple[cin.IndexVar, ...]) -> float:
        """The same with the values beside it, whose places in the copy are remembered with the pattern; infinite where these would have other
        dense levels in the copy."""
        if access not in self._beside:
            return self._conversion(access, order)
        after = concordant.concordant_format(access, order, self.facts)
        if _below(after) != _below(access.tensor.format):
            return math.inf
        return self.machine.take * self.facts[access.tensor.name][-1] * (1 + self._beside[access])

    def total(self, state: State) -> Cost:
        nest = self.nest
        if not self._fixed.isdisjoint(state.discordant):
            return schedules.IMPOSSIBLE
        p = self.prefix(state.order)
        # the same in any order, as sets are in another one in every process
        conversions = math.fsum([self._copy(a, self.followed(a, state.order)) for a in state.discordant])
        output = 0.0
        used = self.workspace(state)
        if used is not None:
            output = self.machine.workspace * used.cost * max(1, len(nest.producers)) + self.waiting.drained()
            beside = [self.facts[a.tensor.name][-1] for a in self.drained if a.tensor.lacks]
            if beside:  # they are walked together
                output += self.machine.merge * (self._inserted(state) + sum(beside))
        elif nest.producers and not nest.direct and not self._placed.isdisjoint(self.storage[p:]):
            output = math.inf  # positions are known inside all loops of their array
        elif nest.producers and not nest.direct and self.storage[p:]:
            # a dense workspace is cleared for every iteration of the loops around it, and read again; one around which there are none is new memory
            size = math.prod(float(self.extents[v]) for v in self.storage[p:])
            each = self.machine.lane * self.lanes * size + self._passed(size, True) + self._passed(size, False)
            output = each * self.walk(state.order[:p]).survivors + (0.0 if p else self.machine.store * size)
        elif self._cleared(state.order):
            output = self._passed((self.level_counts() or (1.0,))[-1], True)
        output += self.machine.close * self._closed(state.order)
        return Cost(state.cost, self.waiting.total(state.order), output, conversions)

    def _closed(self, order: tuple[cin.IndexVar, ...]) -> float:
        """How often parts of a sparse result are begun and closed that lie below a sparse level, so that the level above has no entry where they stay
        empty: as often as the loops around them run."""
        form, (how, p) = self.nest.output.format, self.assembled(order)
        last = p if how == SCATTER else form.ndim
        below = [k for k in form.sparse if 0 < k < last and not (form.levels[k - 1].full or form.continues(k))]
        return sum(self.walk(order[:k]).survivors for k in below)

    def _passed(self, size: float, written: bool) -> float:
        """What the memory of so many elements of the result takes from the first to the last."""
        size *= self.nest.output.dtype.itemsize
        return memory.price([memory.Lines(size / memory.LINE, size, 0.0)], self.machine, written)

    def _cleared(self, order: tuple[cin.IndexVar, ...]) -> bool:
        """Whether a dense result is cleared before it is added to: its elements are not assigned once, each after all that it is reduced over."""
        nest = self.nest
        if not order or not nest.direct or not nest.output.format.is_dense or nest.op is None:
            return False
        first = tiled_loops.first(self, order)
        outer = order if first is None else order[:first]
        last = max([k for k, v in enumerate(outer) if v in self.storage], default=-1)
        if any(v not in self.storage for v in (outer[: last + 1] if first is None else outer)):
            return True
        return any(self.walk(outer[: k + 1]).leaders for k in range(last + 1))

    def workspace(self, state: State) -> workspace_choice.Choice | None:
        """The workspace that the output is scattered through under an order, if it needs one."""
        order = state.order
        if order not in self._used:
            self._used[order] = self._workspace(state)
        return self._used[order]

    def _workspace(self, state: State) -> workspace_choice.Choice | None:
        found = self._asked(state)
        if found is None:
            return None
        shape, itemsize, points, entries, uses, below = found
        return workspace_choice.choose(shape, itemsize, points, entries, uses, self._wanted, below)

    def _asked(self, state: State) -> tuple[list[int], int, float, float, float, int] | None:
        """What is asked of a workspace: its shape, the size of its elements, insertions, entries, uses, dense levels below."""
        how, p = self.assembled(state.order)
        if how != SCATTER:
            return None
        shape = [self.extents[v] for v in self.storage[p:]]
        points = self.points(state)
        entries = self._inserted(state)
        itemsize = self.nest.output.dtype.itemsize
        uses = self.walk(state.order[:p]).survivors
        below = workspace_choice.dense_below(self.nest.output.format)
        return shape, itemsize, points, entries, uses, below

    def _inserted(self, state: State) -> float:
        """The entries of a workspace that all loops fill: those of the result, and those that what is read beside it lacks."""
        points = self.points(state)
        if self.drained:
            return distinct(points, math.prod(float(self.extents[v]) for v in self.storage))
        return min(points, self.level_counts()[-1])

    def policies(self, order: tuple[cin.IndexVar, ...]) -> tuple[str, ...]:
        """The policies that can hold the workspace of an order, without memory out of proportion; none where there is no workspace."""
        found = self._asked(self.walk(order))
        return () if found is None else workspace_choice.policies(*found)

    def points(self, state: State) -> float:
        """How often the body of all loops runs: as observed, if it is known."""
        return state.survivors if self.facts.points is None else self.facts.points

    def level_counts(self) -> tuple[float, ...]:
        """The expected number of positions of every storage level of the output: dense levels multiply, sparse ones
        have as many as there are distinct coordinates among the points that the whole loop nest visits, by chance or as observed."""
        if self._placed:
            return (self.walk(self.storage).survivors,) * self.nest.output.format.ndim
        if not cin.are_variables(self.nest.indices) and self.nest.output.format.is_dense:
            return tuple(itertools.accumulate(map(float, self.nest.output.shape), operator.mul))
        if self._counts is None:
            order = tuple(dict.fromkeys((*self.storage, *self.nest.variables))) if self.drained else self.nest.variables
            points, met = self.points(self.walk(order)), self.facts.collisions
            entries = points if met is None else points / met
            levels = self.nest.output.format.levels
            last = max(self.nest.output.format.sparse, default=-1)
            count, size, made = 1.0, 1.0, []
            for depth, (level, var) in enumerate(zip(levels, self.storage, strict=True)):
                size *= self.extents[var]
                count *= self.extents[var]
                if not level.full:
                    most = min(count, size, self.walk(self.storage[: depth + 1]).survivors)
                    if met is not None and depth == last:
                        count = min(entries, most)
                    else:
                        count = distinct(entries, most) if self.nest.producers else most
                made.append(count)
            self._counts = tuple(made)
        return self._counts


def model(
    nest: Nest,
    facts: Facts,
    workspace: str = "auto",
    scatters: bool | None = True,
    kept: bool = False,
    around: tuple[Meeting, ...] = (),
) -> Model:
    """The model of these arguments, which is made once while `models` are remembered."""
    return models.remembered(Model, nest, facts, workspace, scatters, None, kept, around)
