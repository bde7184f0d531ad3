"""What the loops of a kernel of one statement compute, by the loops around them.

    out[i,j] = C[i,j] * w[i,j],  w[i,j] += A[i,k] * B[k,j]

loops i j k      w is a number: k has the product A * B, and j is led by C, where nothing is left without it
loops k i j      all fill the workspace w, which loops over i and j drain: these alone meet C, which is `drained` and stored as the result should be
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from sparsejax.jit.cost.cardinality import Cardinalities, likely
from sparsejax.jit.cost.joins import Meeting, joins
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.ir import cin, operators, simplify
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule.assembly import assembly
from sparsejax.jit.schedule.schedules import State

if TYPE_CHECKING:
    from sparsejax.jit.schedule import tiled_loops


class Computed(Cardinalities):
    """A kernel of a single statement, given `facts`."""

    def __init__(self, nest: Nest, facts: Facts, around: tuple[Meeting, ...] = ()) -> None:
        """Its operands meet each other, and those of other statements `around` it."""
        self.nest, self.result = nest, cin.Access(nest.output, nest.indices)
        self.expr = simplify.simplify(nest.composite)
        self.reduced = self._reduced()
        self.accesses = tuple(dict.fromkeys(cin.accesses(self.expr)))
        self.storage = nest.storage_indices
        first = [p.rhs for p in nest.producers] or [nest.value]
        self.later = frozenset(self.accesses) - {a for e in first for a in cin.accesses(e)}
        """What is read after the reduction."""
        one = len(nest.producers) == 1 and not nest.nested and bool(self.storage)
        self.drained = self.later if one else frozenset[cin.Access]()
        """That of it which the loops read that drain a workspace, where one stands between, in the order of the result."""
        pairs = [(j, facts.couplings.get(j.key, 1.0)) for j in joins(self.expr)] if facts.couplings else []
        met = tuple(Meeting(j, j.others(j.left), j.others(j.right), x) for j, x in pairs if x != 1.0)
        super().__init__(facts, likely((*nest.reads, self.result), facts), (*met, *around))
        self.tiles: dict[tuple[cin.IndexVar, ...], int | None] = {}
        """Where loops begin that become tiles (`tiled_loops`), by their order."""
        self.tiled: dict[tuple[cin.IndexVar, ...], tiled_loops.Tiles | None] = {}
        """The tiles that they become."""
        self._assembled: dict[tuple[cin.IndexVar, ...], tuple[str, int]] = {}
        self._levels: dict[tuple[cin.Access, cin.IndexVar], tuple[int, bool, frozenset[cin.IndexVar]]] = {}
        self._lacking: dict[cin.IndexVar, frozenset[cin.Access]] = {}
        self._shares: dict[tuple[cin.IndexVar, frozenset[cin.IndexVar], bool], float] = {}

    def _reduced(self) -> dict[cin.IndexVar, tuple[cin.Expr, str | None]]:
        """What each variable is reduced over, and how: of  t[i] + c[i]  with  t[i] += A[i,k] * x[k]  the loop over k has the product."""
        made: dict[cin.IndexVar, tuple[cin.Expr, str | None]] = {}
        known: dict[cin.Access, cin.Expr] = {}
        for p in self.nest.producers:
            known[p.target] = simplify.simplify(cin.substitute(p.rhs, known))
            if known[p.target] == self.expr:
                known[p.target] = self.expr  # comparisons are faster where they are the same
            kept = {*cin.bound_by(p.target), *self.nest.storage_indices}
            made |= {v: (known[p.target], p.op) for v in cin.variables(p.rhs) if v not in kept}
        return dict(sorted(made.items(), key=lambda item: item[0].name))

    def fills(self, order: tuple[cin.IndexVar, ...]) -> bool:
        """Whether the last of these loops fills a workspace that others drain, which read what the result is made of beside it."""
        return (
            bool(self.drained)
            and order[-1:] != self.storage[len(order) - 1 : len(order)]
            and self.prefix(order) < len(self.storage)
        )

    def against_the_result(self, access: cin.Access) -> bool:
        """Whether an operand is not stored in the order of the result."""
        levels = [self.level(access, v) for v in self.storage if v in access.indices]
        before = [frozenset(self.storage[:k]) for k, v in enumerate(self.storage) if v in access.indices]
        return any(not dense and not outer <= bound for (_, dense, outer), bound in zip(levels, before, strict=True))

    def followed(self, access: cin.Access, order: tuple[cin.IndexVar, ...]) -> tuple[cin.IndexVar, ...]:
        """The loops that read an operand."""
        return self.storage if access in self.drained else order

    def computed(
        self, var: cin.IndexVar, bound: frozenset[cin.IndexVar], fills: bool = False
    ) -> tuple[cin.Expr, str | None]:
        """What a loop over `var` inside those of `bound` computes: a reduction (and its operator), where one of them runs over what is
        reduced, or it fills the workspace of one."""
        if fills:
            return simplify.simplify(self.nest.producers[0].rhs), self.nest.producers[0].op
        within = self.reduced.get(var)
        if within is not None and var in cin.variables(within[0]):
            return within
        for v, (expr, op) in self.reduced.items():
            if v in bound and var in cin.variables(expr):
                return expr, op
        return self.expr, None

    def leaves(
        self, var: cin.IndexVar, bound: frozenset[cin.IndexVar], gone: Collection[cin.Access], fills: bool = False
    ) -> bool:
        """Whether a loop over `var` inside those of `bound` has something to do where operands are absent."""
        expr, op = self.computed(var, bound, fills) if fills or self.reduced else (self.expr, None)
        left = simplify.exhaust(expr, gone)
        if op is None:
            return not isinstance(left, cin.Literal)
        operator = operators.get(op)
        if isinstance(left, cin.Literal) and cin.same_value(left.value, operator.identity(left.dtype)):
            return False
        innermost = var in self.reduced and len(bound) + 1 == len(self.nest.variables)
        return not (innermost and operator.repeats(left.dtype)) or var in cin.variables(left)

    def prefix(self, order: tuple[cin.IndexVar, ...]) -> int:
        """How many loops are the outermost levels of the result."""
        found = 0
        for stored, walked in zip(self.storage, order, strict=False):
            if stored != walked:
                break
            found += 1
        return found

    def assembled(self, order: tuple[cin.IndexVar, ...]) -> tuple[str, int]:
        """How loops put the result together (`assembly`)."""
        found = self._assembled.get(order)
        if found is None:
            found = self._assembled[order] = assembly(self.nest.output, self.storage, order)
        return found

    def level(self, access: cin.Access, var: cin.IndexVar) -> tuple[int, bool, frozenset[cin.IndexVar]]:
        """The last level of `access` with the index `var`, whether it is dense, and the other variables of the levels before it."""
        key = access, var
        found = self._levels.get(key)
        if found is None:
            stored = [access.level_index(level) for level in range(len(access.indices))]
            last = max(level for level, index in enumerate(stored) if index == var)
            outer = frozenset(v for v in cin.followed(stored[:last]) if v != var)
            found = self._levels[key] = last, access.tensor.format.levels[last].full, outer
        return found

    def share(self, var: cin.IndexVar, bound: frozenset[cin.IndexVar], fills: bool) -> float:
        """The share of the coordinates of a loop over `var` inside those of `bound`, in any order, at which something is computed."""
        key = var, bound, fills
        found = self._shares.get(key)
        if found is None:
            density = self.density(self.computed(var, bound, fills)[0], var, bound)
            gone = self._lacking.get(var)
            if gone is None:
                gone = self._lacking[var] = frozenset([a for a in self.accesses if a.tensor.lacks and var in a.bound])
            found = self._shares[key] = 1.0 if density is None or self.leaves(var, bound, gone, fills) else density
        return found

    def copied(
        self, leaders: Sequence[cin.Access], discordant: Collection[cin.Access], state: State
    ) -> list[cin.Access]:
        """The leaders of a loop that are copies, read at all positions of their dense level, and at no others so far."""
        if state.thin >= 1.0:
            return []
        first = set(state.order[:1])
        return [a for a in leaders if a in discordant and state.bound.intersection(a.indices) == first]

    def filled(self, access: cin.Access, bound: frozenset[cin.IndexVar]) -> float:
        """The share of the positions of a dense level of a copy at which it has entries."""
        inside = bound.intersection(access.indices)
        return self.card(access, inside) / max(1, math.prod(self.extents[v] for v in inside))

    def all_copied(
        self,
        var: cin.IndexVar,
        bound: frozenset[cin.IndexVar],
        leaders: Sequence[cin.Access],
        discordant: Collection[cin.Access],
    ) -> bool:
        """Whether the outermost loop counts over the dense level of copies, which has all positions, as that of operands that are stored so has."""
        if bound or leaders:
            return False
        return all(a in discordant for a in self.accesses if a.tensor.lacks and var in a.bound)
