"""Algorithm 1 of Scorch, as published: the baseline that `benchmarks.asymptotics` compares loop orders with.

    1  S: variables by decreasing sparsity of their set expression, every sparse level being equally sparse; ties by
       fewer transposed operands. A filter is a variable whose set expression is not the universe.
    2  L = S
    3  every filter v in the order of S, every later position q: move v to q when that costs less than it saves
    4  storage orders as a graph; while it has a cycle, its cheapest edge is dropped (that tensor is transposed); the
       order is a topological one, by L where there is a choice
    5  workspaces where free variables follow the last reduction (`concretize` does that for any order)

    cost_to_push = alpha dC_comp + beta dC_ws + gamma dC_trans
    C_comp  = product over loops of the coordinates that are feasible there: a sparse level restricts its variable
              where the levels above it are bound
    C_ws    = c_insert N_insert D + c_sort N_entries D log2 N_entries,  D free variables after the last reduction,
              N_insert iterations, N_entries the product of their extents; 0 for a dense output
    C_trans = c_trans * sum of the expected entries of tensors whose storage order the loops do not follow

It knows extents and formats but no data: a sparse level holds the fraction `RHO` of its coordinates. Constants are those
of its authors' tuning. Source: Scorch (fast autoscheduling paper), section III; reference sections 4.1 and 4.2.
"""

from __future__ import annotations

import graphlib
import itertools
import math

from sparsejax.jit.ir import cin, simplify
from sparsejax.jit.ir.nest import Nest, outside

ALPHA, BETA, GAMMA = 2.975, 0.1005, 43.55
C_INSERT, C_SORT, C_TRANS, RHO = 85.34, 1.741, 40.61, 0.0014

Order = tuple[cin.IndexVar, ...]


def order(nest: Nest) -> Order:
    """The loop order of Algorithm 1; it may be one that cannot run as one kernel."""
    return _Search(nest).order()


class _Search:
    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.expr = simplify.simplify(nest.composite)
        self.inputs = tuple(dict.fromkeys(cin.accesses(self.expr)))
        self.output = cin.Access(nest.output, nest.indices)
        self.extents = cin.extents((*nest.reads, self.output))

    def order(self) -> Order:
        fraction = {v: self.fraction(self.expr, v, frozenset(self.nest.variables)) for v in self.nest.variables}
        by_sparsity = self.sorted(fraction)
        loops = list(by_sparsity)
        for var in by_sparsity:
            if fraction[var] >= 1.0:
                continue
            for place in range(loops.index(var) + 1, len(loops)):
                moved = [v for v in loops if v != var]
                moved.insert(place, var)
                if self.cost(moved) < self.cost(loops):
                    loops = moved
        return self.concordant(loops)

    def sorted(self, fraction: dict[cin.IndexVar, float]) -> list[cin.IndexVar]:
        """Variables by increasing fraction; equal ones in the order that transposes least (up to six of them)."""
        made: list[cin.IndexVar] = []
        for _, group in itertools.groupby(sorted(fraction, key=lambda v: fraction[v]), key=lambda v: fraction[v]):
            tied = list(group)
            if len(tied) > 6:
                made += tied
                continue
            made += min(itertools.permutations(tied), key=lambda p: self.transposed([*made, *p]))
        return made

    def fraction(self, expr: cin.Expr, var: cin.IndexVar, bound: frozenset[cin.IndexVar]) -> float:
        """The fraction of the coordinates of `var` in its set expression, when the variables in `bound` are."""
        match expr:
            case cin.Access():
                for level in range(len(expr.indices)):
                    if expr.level_index(level) == var:
                        above = {expr.level_index(lv) for lv in range(level)} - {var}
                        known = all(cin.known(ix, bound) for ix in above)
                        sparse = not expr.tensor.format.levels[level].full
                        return RHO if sparse and known else 1.0
                return 1.0
            case cin.Call(op, args, _):
                sets = [self.fraction(a, var, bound) for a in args if not isinstance(a, cin.Literal)]
                if op in ("multiply", "logical_and", "bitwise_and"):
                    return math.prod(sets)
                return 1.0 - math.prod(1.0 - x for x in sets)
            case _:
                return 1.0

    def cost(self, order: list[cin.IndexVar]) -> float:
        work = 1.0
        for k, var in enumerate(order):
            work *= self.extents[var] * self.fraction(self.expr, var, frozenset(order[:k]))
        return ALPHA * work + BETA * self.workspace(order, work) + GAMMA * C_TRANS * self.transposed(order)

    def workspace(self, order: list[cin.IndexVar], work: float) -> float:
        reduced = [k for k, v in enumerate(order) if v not in self.nest.indices]
        if self.nest.output.format.is_dense or not reduced:
            return 0.0
        free = order[reduced[-1] + 1 :]
        if not free:
            return 0.0
        entries = math.prod(float(self.extents[v]) for v in free)
        return C_INSERT * work * len(free) + C_SORT * entries * len(free) * math.log2(max(2.0, entries))

    def transposed(self, order: list[cin.IndexVar]) -> float:
        """The expected entries of the tensors whose storage order `order` contradicts; variables that are not in it
        count as coming later."""
        rank = {v: k for k, v in enumerate(order)}
        total = 0.0
        for access in (*self.inputs, self.output):
            ranks = [rank.get(v, len(order)) for v in _stored(access)]
            total += self.entries(access) * (ranks != sorted(ranks))
        return total

    def entries(self, access: cin.Access) -> float:
        sizes = (float(n) for n in access.tensor.shape)
        levels = access.tensor.format.levels
        return math.prod(sizes) * RHO ** sum(not level.full for level in levels)

    def concordant(self, order: list[cin.IndexVar]) -> Order:
        """A topological order of the storage orders that stays close to `order`; cheapest edges of cycles dropped."""
        price: dict[tuple[cin.IndexVar, cin.IndexVar], float] = {}
        for access in (*self.inputs, self.output):
            if access.tensor.format.is_dense:
                continue
            for edge in itertools.pairwise(_stored(access)):
                price[edge] = price.get(edge, 0.0) + self.entries(access)
        for var, around in outside(self.nest).items():
            price.update({(other, var): math.inf for other in around})
        while (cycle := _cycle(price)) is not None:
            del price[min(cycle, key=lambda e: price[e])]
        rank = {v: k for k, v in enumerate(order)}
        sorter = graphlib.TopologicalSorter({v: [a for a, b in price if b == v] for v in order})
        sorter.prepare()
        made: list[cin.IndexVar] = []
        ready: list[cin.IndexVar] = []
        while sorter.is_active():
            ready = sorted([*ready, *sorter.get_ready()], key=lambda v: rank[v])
            made.append(ready.pop(0))
            sorter.done(made[-1])
        return tuple(made)


def _stored(access: cin.Access) -> list[cin.IndexVar]:
    """The variables of an access in storage order, each once."""
    return list(dict.fromkeys(cin.followed(map(access.level_index, range(len(access.indices))))))


def _cycle(
    edges: dict[tuple[cin.IndexVar, cin.IndexVar], float],
) -> list[tuple[cin.IndexVar, cin.IndexVar]] | None:
    """The edges of some cycle."""
    graph: dict[cin.IndexVar, list[cin.IndexVar]] = {}
    for before, after in edges:
        graph.setdefault(after, []).append(before)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        nodes: list[cin.IndexVar] = error.args[1]
        return list(itertools.pairwise(nodes))
    return None
