"""Loop order by prefix cardinalities.

For a tensor T and a set P of bound variables, card(T, P) is the number of distinct coordinates of T over P: observed
(positions per level) when P is a prefix of T's storage order, else the expectation n (1 - exp(-nnz / n)) over the
product n of the extents. Then, adding variable v to a bound set P:

    d_T(v | P)  = card(T, P + v) / card(T, P)                        children per parent
    survivors   S <- S * n_v * sel(expression, v | P)                products multiply densities, sums unite them
    work        W  = S * (sum of d_T over leaders, or n_v where the loop is counted)

The cost of an order is the sum of the work of its loops, plus writing the output (in order, in place, or
through a workspace), plus converting every operand whose storage order the loops do not follow. Orders are
searched by dynamic programming over sets of bound variables, with a beam where there are many.

Source: reference section 4.3 (the repaired cost model of Scorch) and Galley's physical optimiser.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sparsejax.formats import Compressed, Dense, Format, Level
from sparsejax.jit import cin, operators, simplify
from sparsejax.jit.concretize import SCATTER, assembly
from sparsejax.jit.nest import Nest
from sparsejax.jit.workspaces import policies

Facts = Mapping[str, tuple[float, ...]]
"""For every input tensor: the number of positions of each storage level."""

# Relative costs; 1 is one iteration of a scalar loop. Conversions and sorting were timed at 20 to 60 ns an entry
# against about 1 ns an iteration.
CONVERT, STRIDED, VECTOR = 40.0, 2.0, 0.2
BEAM = 400


@dataclass(frozen=True)
class Schedule:
    """A loop order, the formats that operands are converted to first, its cost, and the best few alternatives."""

    order: tuple[cin.IndexVar, ...]
    conversions: tuple[tuple[str, Format], ...]
    cost: float
    candidates: tuple[tuple[tuple[cin.IndexVar, ...], float], ...] = ()
    workspace: str | None = None
    """The policy of the workspace that the output is scattered through, and why."""
    reason: str = ""


@dataclass(frozen=True)
class _State:
    order: tuple[cin.IndexVar, ...]
    discordant: frozenset[cin.Access]
    cost: float
    survivors: float


def choose(nest: Nest, facts: Facts, workspace: str = "auto") -> Schedule | None:
    """The cheapest schedule of `nest`, with a `workspace` policy or any; None when no order can run it as one kernel."""
    model = _Model(nest, facts, workspace)
    states = [_State((), frozenset(), 0.0, 1.0)]
    for _ in nest.variables:
        best: dict[object, _State] = {}
        for state in states:
            for var in nest.variables:
                if var in state.order:
                    continue
                grown = model.extend(state, var)
                key = (frozenset(grown.order), model.prefix(grown.order), grown.discordant)
                if key not in best or grown.cost < best[key].cost:
                    best[key] = grown
        states = sorted(best.values(), key=lambda s: s.cost)[:BEAM]
    finished = sorted(((model.total(s), k, s) for k, s in enumerate(states)), key=lambda item: item[:2])
    finished = [item for item in finished if math.isfinite(item[0])]
    if not finished:
        return None
    cost, _, state = finished[0]
    moved = {}
    for access in sorted(state.discordant, key=str):
        moved[access.tensor.name] = concordant_format(access, state.order, facts)
    listed = tuple((s.order, c) for c, _, s in finished[:6])
    used = model.workspace(state)
    policy, reason = (None, "") if used is None else (used.policy, used.reason)
    return Schedule(state.order, tuple(moved.items()), cost, listed, policy, reason)


def workspace(nest: Nest, facts: Facts, order: tuple[cin.IndexVar, ...]) -> policies.Choice | None:
    """The workspace for `nest` under a loop order; None when its output needs none."""
    model = _Model(nest, facts)
    state = _State((), frozenset(), 0.0, 1.0)
    for var in order:
        state = model.extend(state, var)
    return model.workspace(state)


def concordant_format(access: cin.Access, order: tuple[cin.IndexVar, ...], facts: Facts) -> Format:
    """The format for `access` whose storage order follows the loops: dense levels below all sparse ones stay dense,
    the outermost is dense when its extent is in proportion to the entries, the others are compressed."""
    tensor = access.tensor
    rank = {v: k for k, v in enumerate(order)}
    place = {d: rank.get(ix, -1) if isinstance(ix, cin.IndexVar) else -1 for d, ix in enumerate(access.indices)}
    dims = tuple(sorted(range(len(access.indices)), key=lambda d: (place[d], tensor.format.order.index(d))))
    last = max(lv for lv, level in enumerate(tensor.format.levels) if not isinstance(level, Dense))
    block = set(tensor.format.order[last + 1 :])
    entries = facts[tensor.name][last]
    levels: list[Level] = []
    for k, d in enumerate(dims):
        if all(x in block for x in dims[k:]) or (k == 0 and tensor.shape[d] <= max(1024, 4 * entries)):
            levels.append(Dense())
        else:
            levels.append(Compressed())
    return Format(tuple(levels), dims)


def output_sizes(nest: Nest, facts: Facts) -> tuple[int, ...]:
    """For every level of the output that starts a segment, how many coordinates to make room for at first.

    Twice the expectation, since facts are rounded; never more than four times the entries of all inputs, since products
    may have far more partial results than entries. Too small a number costs a reallocation, never a failure.
    """
    model = _Model(nest, facts)
    limit = 1024 + 4 * sum(counts[-1] for counts in facts.values())
    state = _State((), frozenset(), 0.0, 1.0)
    form = nest.output.format
    sizes = []
    for level, var in enumerate(nest.storage_indices):
        state = model.extend(state, var)
        ends = level + 1 == form.ndim or not form.continues(level + 1)
        if ends and not isinstance(form.levels[level], Dense):
            sizes.append(int(min(limit, 2 * state.survivors)))
    return tuple(sizes)


class _Model:
    def __init__(self, nest: Nest, facts: Facts, workspace: str = "auto") -> None:
        self.nest = nest
        self._wanted = workspace
        self.facts = facts
        self.expr = simplify.simplify(nest.composite)
        self.accesses = tuple(dict.fromkeys(cin.accesses(self.expr)))
        self.storage = nest.storage_indices
        self.extents: dict[cin.IndexVar, int] = {}
        for access in (*cin.accesses(nest.composite), cin.Access(nest.output, nest.indices)):
            for size, index in zip(access.tensor.shape, access.indices, strict=True):
                if isinstance(index, cin.IndexVar):
                    self.extents.setdefault(index, size)
        self._cards: dict[tuple[cin.Access, frozenset[cin.IndexVar]], float] = {}

    def prefix(self, order: tuple[cin.IndexVar, ...]) -> int:
        return assembly(self.nest.output, self.storage, order)[1]

    def card(self, access: cin.Access, bound: frozenset[cin.IndexVar]) -> float:
        key = (access, bound)
        if key not in self._cards:
            self._cards[key] = self._card(access, bound)
        return self._cards[key]

    def _card(self, access: cin.Access, bound: frozenset[cin.IndexVar]) -> float:
        if not bound:
            return 1.0
        counts = self.facts[access.tensor.name]
        seen: set[cin.Index] = set()
        for level in range(len(access.indices)):
            seen.add(access.level_index(level))
            if seen >= bound:
                if seen == bound:
                    return max(1e-9, counts[level])
                break
        size = math.prod(float(self.extents[v]) for v in bound)
        entries = counts[-1]
        return max(1e-9, size * -math.expm1(-entries / size) if size else 0.0)

    def children(self, access: cin.Access, var: cin.IndexVar, bound: frozenset[cin.IndexVar]) -> float:
        own = frozenset(v for v in access.indices if isinstance(v, cin.IndexVar))
        before = own & bound
        return self.card(access, before | {var}) / self.card(access, before)

    def density(self, expr: cin.Expr, var: cin.IndexVar, bound: frozenset[cin.IndexVar]) -> float | None:
        """The fraction of coordinates of `var` where `expr` is stored; None for constants."""
        match expr:
            case cin.Access():
                if var not in expr.indices:
                    return 1.0
                return min(1.0, self.children(expr, var, bound) / max(1, self.extents[var]))
            case cin.Call(op, args, _):
                if op == "logical_not":
                    return 1.0
                known = [d for d in (self.density(a, var, bound) for a in args) if d is not None]
                if not known:
                    return None
                if op in ("multiply", "logical_and", "bitwise_and", "masked") or operators.annihilates(op):
                    return math.prod(known)
                return 1.0 - math.prod(1.0 - d for d in known)
            case _:
                return None

    def extend(self, state: _State, var: cin.IndexVar) -> _State:
        bound = frozenset(state.order)
        extent = float(self.extents[var])
        leaders, discordant, strided = [], set(state.discordant), 0
        last = len(bound) + 1 == len(self.nest.variables)
        for access in self.accesses:
            if var not in access.indices:
                continue
            level = max(lv for lv in range(len(access.indices)) if access.level_index(lv) == var)
            dense = isinstance(access.tensor.format.levels[level], Dense)
            outer = {access.level_index(lv) for lv in range(level)} - {var}
            if not dense and any(isinstance(ix, cin.IndexVar) and ix not in bound for ix in outer):
                discordant.add(access)
            if access in discordant:
                if self._leads_as_copy(access, var, bound):
                    leaders.append(access)
            elif dense:
                strided += level + 1 < len(access.indices)
            else:
                leaders.append(access)
        work = sum(self.children(a, var, bound) for a in leaders)
        if not leaders or not isinstance(simplify.exhaust(self.expr, leaders), cin.Literal):
            work += extent
        each = 1.0
        if last and not leaders:
            each = STRIDED if strided else VECTOR
        density = self.density(self.expr, var, bound)
        survivors = state.survivors * extent * (1.0 if density is None else density)
        cost = state.cost + state.survivors * work * each
        return _State((*state.order, var), frozenset(discordant), cost, survivors)

    def _leads_as_copy(self, access: cin.Access, var: cin.IndexVar, bound: frozenset[cin.IndexVar]) -> bool:
        """Whether `var` will be a sparse level of the copy that `concordant_format` makes of a discordant operand."""
        form, entries = access.tensor.format, self.facts[access.tensor.name][-1]
        sparse = [lv for lv, level in enumerate(form.levels) if not isinstance(level, Dense)]
        if all(lv > sparse[-1] for lv in range(form.ndim) if access.level_index(lv) == var):
            return False
        return bool(bound & set(access.indices)) or self.extents[var] > max(1024, 4 * entries)

    def total(self, state: _State) -> float:
        nest = self.nest
        p = assembly(nest.output, self.storage, state.order)[1]
        cost = state.cost
        for access in state.discordant:
            cost += CONVERT * self.facts[access.tensor.name][-1]
        used = self.workspace(state)
        if used is not None:
            cost += used.cost * max(1, len(nest.producers))
        elif nest.producers and not nest.direct and self.storage[p:]:
            # a dense workspace is cleared for every iteration of the loops around it
            size = math.prod(float(self.extents[v]) for v in self.storage[p:])
            cost += VECTOR * size * self._iterations(state.order[:p])
        return cost

    def workspace(self, state: _State) -> policies.Choice | None:
        """The workspace that the output is scattered through under an order, if it needs one."""
        how, p = assembly(self.nest.output, self.storage, state.order)
        if how != SCATTER:
            return None
        shape = [self.extents[v] for v in self.storage[p:]]
        entries = min(state.survivors, self._iterations(self.storage))
        itemsize = self.nest.output.dtype.itemsize
        return policies.choose(
            shape, itemsize, state.survivors, entries, self._iterations(state.order[:p]), self._wanted
        )

    def _iterations(self, order: tuple[cin.IndexVar, ...]) -> float:
        state = _State((), frozenset(), 0.0, 1.0)
        for var in order:
            state = self.extend(state, var)
        return state.survivors
