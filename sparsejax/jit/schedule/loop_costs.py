"""What the loops of an order cost, one inside the other, beside what they wait for.

    for i: for k in A[i]: for j        survivors 1, n, nnz(A), nnz(A) * m        cost += runs of the loops around * (iterations * each + entering)

`LoopCosts.walk` is the state after some loops, which one more extends: who leads it, how many iterations and what each of them costs, at how many
coordinates something is left to do, and what is computed there. Source: `search`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from sparsejax.jit.cost import conversion_price, operator_counts, price_table, statistics, workspace_choice
from sparsejax.jit.cost.joins import Meeting, factors
from sparsejax.jit.cost.machine import UNEVEN
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.ir import cin, simplify
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import concordant, placement, regions, tiled_loops
from sparsejax.jit.schedule.computed import Computed
from sparsejax.jit.schedule.schedules import State

GALLOP = 2.0
"""Steps per doubling of the distance that is jumped over where one operand is searched instead of walked: there and back."""
VECTOR = 8
"""Elements of 8 bytes in a vector."""


class _Loop(NamedTuple):
    """What one more loop costs: the iterations of a run, what each of them takes, and a run beside them."""

    iterations: float
    each: float
    enter: float
    scattered: tuple[str, ...] = ()
    """The leader that is scattered, if any."""
    fixed: tuple[tuple[int, float], ...] = ()
    """What that costs, with the number of loops around it."""


class LoopCosts(Computed):
    """The loops of a kernel of a single statement, given `facts`, on a machine."""

    def __init__(
        self,
        nest: Nest,
        facts: Facts,
        scatters: bool | None,
        here: price_table.Machine,
        around: tuple[Meeting, ...] = (),
    ) -> None:
        """Operands are scattered where that is cheaper, nowhere (False), or wherever it can be done (None). They meet those of statements `around` it."""
        super().__init__(nest, facts, around)
        self.machine = here
        self._scatters = scatters is not False and not nest.nested
        self._scatters_all = scatters is None
        self._touched = (*self.accesses, self.result)
        places = [ix for a in self.accesses for ix in a.indices if isinstance(ix, cin.Position)]
        self._beside = {p.access: places.count(p) for p in places}
        """How many others an access is beside."""
        written = {ix for ix in nest.indices if isinstance(ix, cin.Position)}
        self._fixed = {p.access for p in (*written, *places) if p in written or not p.moves}
        """Those that cannot be copied, as the copies have other positions."""
        self._kept = simplify.asked(self.expr) | self._fixed | set(self._beside) | self.later
        """Those that are not scattered; what is read after the reduction is read in the order of the result, and others at their positions."""
        self._factors = factors(self.expr)
        self._searched = tuple([a for a in self.accesses if a.entries and a.tensor.lacks])
        """Those in which coordinates are looked up."""
        self._led = {v: [(a, *self.level(a, v)) for a in self.accesses if v in a.indices] for v in nest.variables}
        """What a loop may walk, with its `level`."""
        copied = frozenset(filter(self.against_the_result, self.drained))
        self._walks: dict[tuple[cin.IndexVar, ...], State] = {(): State((), frozenset(), copied, 0.0, 1.0)}
        self.lanes = nest.output.dtype.itemsize / 8
        """Words of 8 bytes that a value takes."""
        computed = [p.rhs for p in nest.producers] or [nest.value]
        self._operators = operator_counts.nanoseconds(computed, self.lanes, self.machine)
        self.calls = any(functions for *_, functions in self._operators.values())
        """Whether elementary functions are computed."""

    def walk(self, order: Sequence[cin.IndexVar]) -> State:
        """The state after the loops of `order`."""
        order = tuple(order)
        found = self._walks.get(order)
        if found is None:
            found = self._walks[order] = self.extend(self.walk(order[:-1]), order[-1])
        return found

    def roles(self, state: State, var: cin.IndexVar) -> tuple[list[cin.Access], frozenset[cin.Access], int]:
        """For a loop over `var` inside those of `state`: who leads it, who has been found discordant so far, and how
        many dense operands it walks with a stride."""
        bound, discordant = state.bound, state.discordant
        leaders, strided = [], 0
        passed = self.drained if self.drained and self.fills((*state.order, var)) else ()
        for access, level, dense, outer in self._led[var]:
            if passed and access in passed:
                continue
            if not dense and (not outer <= bound or self._better_as_copy(access, var, state)):
                discordant |= {access}
            if discordant and access in discordant:
                if self._leads_as_copy(access, var, bound):
                    leaders.append(access)
            elif dense:
                strided += level + 1 < len(access.indices)
            else:
                leaders.append(access)
        return leaders, discordant, strided

    def iterations(
        self,
        leaders: Sequence[cin.Access],
        var: cin.IndexVar,
        bound: frozenset[cin.IndexVar],
        fills: bool = False,
        copied: Collection[cin.Access] = (),
    ) -> float:
        """Iterations of one run of a loop over `var`; `copied` leaders are read inside a loop over all positions of their dense level."""
        meet = len(leaders) > 1 and all(a in self._factors for a in leaders)
        walked = self.walked if meet else self.fiber
        lengths = sorted(
            [walked(a, var, bound) * (self.filled(a, bound) if copied and a in copied else 1.0) for a in leaders]
        )
        work = sum(lengths)
        in_runs = any(statistics.runs_of(self.facts[a.tensor.name]) is not None for a in leaders)
        if meet and len(leaders) == 2 and not in_runs and lengths[0] and UNEVEN * max(1.0, lengths[0]) < lengths[1]:
            work = min(work, lengths[0] * GALLOP * math.log2(lengths[1] / lengths[0]))
        if not leaders or self.leaves(var, bound, leaders, fills):
            work += float(self.extents[var])
        return work

    def extend(self, state: State, var: cin.IndexVar) -> State:
        """The state with one more loop inside."""
        bound, order = state.bound, (*state.order, var)
        fills = bool(self.drained) and self.fills(order)
        leaders, discordant, strided = self.roles(state, var)
        copied = self.copied(leaders, discordant, state)
        iterations = self.iterations(leaders, var, bound, fills, copied)
        most, thin = self._visited(state, var, leaders, discordant, copied, fills)
        last, around = len(bound) + 1 == len(self.nest.variables), state.cost
        loop = _Loop(iterations, self.machine.iterate, self._entered(leaders, var, state))
        if last and not leaders:
            around, each = self._counted(state, var, strided)
            loop = loop._replace(each=each)
        elif len(leaders) > 1:
            loop = self._together(loop, state, var, leaders, most, fills, copied)
        survivors = state.survivors * most
        cost = around + state.survivors * (loop.iterations * loop.each + min(1.0, loop.iterations) * loop.enter)
        cost += sum([price for _, price in loop.fixed])
        if self._searched:
            passed = self.drained if fills else ()
            steps = [self.searched(a, var, bound) for a in self._searched if a not in discordant and a not in passed]
            cost += state.survivors * loop.iterations * sum(steps) * self.machine.looked_up(0.5)  # 5 to 6 measured
        # a run of few entries takes one vector
        vectors = VECTOR * state.survivors * min(1.0, loop.iterations) if last and leaders else 0.0
        operators = self._operated(state, var, survivors, vectors)
        cost += sum(operators) - sum(state.operators)
        scattered, fixed = (*state.scattered, *loop.scattered), (*state.fixed, *loop.fixed)
        return State(
            order, bound | {var}, discordant, cost, survivors, scattered, fixed, tuple(leaders), thin, operators
        )

    def _visited(
        self,
        state: State,
        var: cin.IndexVar,
        leaders: Sequence[cin.Access],
        discordant: frozenset[cin.Access],
        copied: Collection[cin.Access],
        fills: bool,
    ) -> tuple[float, float]:
        """At how many coordinates of a run of a loop something is left to do, and the share of them at which loops inside find entries."""
        bound, share, passed = state.bound, self.share(var, state.bound, fills), self.drained if fills else ()
        if self.all_copied(var, bound, leaders, discordant):
            return float(self.extents[var]), share
        most = self.extents[var] * share
        for m in self._meetings:
            if not m.done(bound) and m.done(bound | {var}):
                most *= m.coupling
        if self._meetings:
            met = [a for a in self._factors if var in a.indices and a not in passed]
            most = min([most, *(self.fiber(a, var, bound) for a in met)])
        return (most * state.thin, 1.0) if copied else (most, state.thin)

    def _counted(self, state: State, var: cin.IndexVar, strided: int) -> tuple[float, float]:
        """What the loops around the last one cost, which counts over its extent, and an iteration of it: a lane of a vector, unless so many arrays are
        `strided`."""
        here, order = self.machine, (*state.order, var)
        strided += any(cin.jumps(a, var) for a in self._touched)
        first = None if strided else tiled_loops.first(self, order)
        strided += var in self.storage[:-1] and not (first is not None and tiled_loops.strided(self, var))
        if strided:
            return state.cost, here.strided
        if first is None:
            return state.cost, here.lane * self.lanes
        around, each = tiled_loops.strip(self, state, order, first, here.lane * self.lanes)
        return around + here.start * self.walk(state.order[:first]).survivors, each

    def _together(
        self,
        loop: _Loop,
        state: State,
        var: cin.IndexVar,
        leaders: Sequence[cin.Access],
        most: float,
        fills: bool,
        copied: Collection[cin.Access],
    ) -> _Loop:
        """A loop that several operands lead, which have something to do at `most` coordinates: they are walked together, or one is scattered and the
        others lead."""
        here, bound, extent = self.machine, state.bound, float(self.extents[var])
        lengths, meet = [self.fiber(a, var, bound) for a in leaders], all(a in self._factors for a in leaders)
        walked, enter = loop.iterations, loop.enter
        each = here.together(lengths, most if meet else None, extent, walked)
        enter *= 1 if meet else len(leaders)  # what is left of each, when others are through, is a loop of its own
        made, price = loop._replace(each=each, enter=enter), 0.0
        for access in leaders:
            found = self._scattering(access, leaders, var, state)
            if found is None:
                continue
            inside, extra = found
            rest = [a for a in leaders if a != access]
            fewer = self.iterations(rest, var, bound, fills, copied)
            once = here.merge if len(rest) > 1 else here.looked_up(self.fiber(access, var, bound) / max(1.0, extent))
            walking = price + state.survivors * made.iterations * made.each
            if self._scatters_all or extra + state.survivors * fewer * once < walking:
                price = extra
                made = _Loop(fewer, once, here.miss, (access.tensor.name,), ((inside, extra),))
        return made

    def _operated(self, state: State, var: cin.IndexVar, survivors: float, vectors: float) -> tuple[float, float]:
        """What operators cost up to a loop, which runs its body so often, and computes so many elements at least where it takes vectors; and the functions of
        the last loop. Those of others are computed one at a time, which takes as long as a vector does."""
        cheap, called = state.operators
        last = len(state.bound) + 1 == len(self.nest.variables)
        for depends, (arithmetic, slow, functions) in self._operators.items():
            if var in depends and depends <= state.bound | {var}:
                most = max(survivors, vectors)
                cheap += survivors * arithmetic + most * slow
                if last:
                    called += most * functions
                else:
                    cheap += VECTOR * survivors * functions
        return cheap, called

    def _in_blocks(self, leaders: Sequence[cin.Access], var: cin.IndexVar, state: State) -> bool:
        """Whether the innermost loop runs over rows of few entries that are taken in blocks (`flat` shapes), so that their ends are foreseen."""
        if len(leaders) != 1 or not state.order or len(state.order) + 1 < len(self.nest.variables):
            return False
        (leader,) = leaders
        level, _, _ = self.level(leader, var)
        if not level or leader.level_index(level - 1) != state.order[-1]:
            return False
        return statistics.in_blocks(leader.tensor.format, self.facts[leader.tensor.name], level, self.machine)

    def _entered(self, leaders: Sequence[cin.Access], var: cin.IndexVar, state: State) -> float:
        """What a run of a loop costs beside its iterations: of a walk of segments of which none is empty, by how many entries they have; of rows that are
        taken in blocks, as a row."""
        if self._in_blocks(leaders, var, state):
            return self.machine.lone if len(self._led[var]) == 1 and var not in self.storage else self.machine.row
        if not state.bound or not leaders:
            return 0.0
        if len(leaders) == 1:
            (leader,) = leaders
            level, _, _ = self.level(leader, var)
            form = leader.tensor.format
            if level and not form.levels[level - 1].full and leader.level_index(level - 1) in state.bound:
                return self.machine.ended(self.fiber(leader, var, state.bound))
        return self.machine.enter

    def _scattering(
        self, access: cin.Access, leaders: Sequence[cin.Access], var: cin.IndexVar, state: State
    ) -> tuple[int, float] | None:
        """Inside how many loops to scatter the fibers of a leader over `var` for loops that read them again and again, and what that
        costs; None where there are no such loops, or the others cannot lead alone."""
        depth = regions.depth(access, var, state.order)
        if depth is None or not self._scatters or access in self._kept or access.tensor.policy == placement.KEPT:
            return None
        if not workspace_choice.fits((self.extents[var],), access.dtype.itemsize, self.facts[access.tensor.name][-1]):
            return None
        rest = [a for a in leaders if a != access]
        if self.leaves(var, state.bound, rest, self.fills((*state.order, var))):
            return None
        around = state.order[:depth]
        runs, here = self.walk(around).survivors, self.machine
        each = self.fiber(access, var, frozenset(around))
        return depth, runs * (here.scatter * each + 2 * min(1.0, each) * here.miss)

    def _better_as_copy(self, access: cin.Access, var: cin.IndexVar, state: State) -> bool:
        """Whether walking the sparse outermost level of `access` again and again costs more than a copy in which that
        level is dense, so that its coordinates are located instead."""
        bound = state.bound
        if access.indices.count(var) > 1 or access.level_index(0) != var or bound & set(access.indices):
            return False
        if self._leads_as_copy(access, var, bound) or len(access.indices) == 1 or access in self._fixed:
            return False
        stored = (access.level_index(level) for level in range(len(access.indices)))
        copied = self._conversion(access, (*state.order, *cin.followed(stored)))
        return self.machine.iterate * state.survivors * self.fiber(access, var, bound) > copied

    def _leads_as_copy(self, access: cin.Access, var: cin.IndexVar, bound: frozenset[cin.IndexVar]) -> bool:
        """Whether `var` will be a sparse level of the copy that `concordant_format` makes of a discordant operand."""
        form, entries = access.tensor.format, self.facts[access.tensor.name][-1]
        sparse = list(form.sparse)
        if all(lv > sparse[-1] for lv in range(form.ndim) if access.level_index(lv) == var):
            return False
        alone = all(access.level_index(lv) == var for lv in range(sparse[-1] + 1))
        return alone or bool(bound & set(access.indices)) or self.extents[var] > max(1024, 4 * entries)

    def _conversion(self, access: cin.Access, order: tuple[cin.IndexVar, ...]) -> float:
        """The cost of copying an operand into the format that follows `order`."""
        if access.tensor.policy == placement.KEPT:
            return math.inf
        tensor, after = access.tensor, concordant.concordant_format(access, order, self.facts)
        whole = conversion_price.cost(tensor.format, after, tensor.shape, self.facts[tensor.name][-1])
        # a copy is remembered with its array: operands of a program for many shapes come new with every call
        again = not (tensor.name in self.facts.fresh or self.nest.bounded)
        return whole / self.machine.calls if again else whole
