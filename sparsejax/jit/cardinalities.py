"""How many coordinates operands have: the cardinalities that costs of loop orders are made of (`autoschedule`).

card(T, P)      coordinates of a tensor T over a set P of variables: positions per level, as observed, where P is a prefix of its storage
                order, else as expected of entries that are spread evenly
children        card(T, P + v) / card(T, P)
fiber           children where another factor leads to the fibers, those that are met most
density         the fraction of coordinates of v where an expression is stored
"""

from __future__ import annotations

import math

from sparsejax.formats import Dense
from sparsejax.jit import cin, simplify
from sparsejax.jit.facts import Facts
from sparsejax.jit.joins import Meeting, apart


def distinct(throws: float, bins: float) -> float:
    """The expected number of different values among `throws` uniform draws from `bins`."""
    return bins * -math.expm1(-throws / bins) if bins > 0 else 0.0


class Cardinalities:
    """Those of the operands of a kernel, given `facts`, the extents of its variables and how its factors meet."""

    def __init__(self, facts: Facts, extents: dict[cin.IndexVar, int], meetings: tuple[Meeting, ...]) -> None:
        self.facts, self.extents, self._meetings = facts, extents, meetings
        self._needed: dict[tuple[cin.Call, cin.Expr], bool] = {}
        self._cards: dict[tuple[cin.Access, frozenset[cin.IndexVar]], float] = {}

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
        levels = access.tensor.format.levels
        last = max((lv for lv, level in enumerate(levels) if not isinstance(level, Dense)), default=-1)
        above = {access.level_index(lv) for lv in range(last + 1)}
        full = bound - above  # dense levels below all sparse ones hold every coordinate
        if full and last >= 0:
            return max(1e-9, self.card(access, bound - full) * math.prod(self.extents[v] for v in full))
        size = math.prod(float(self.extents[v]) for v in bound)
        return max(1e-9, distinct(counts[last], size))

    def children(self, access: cin.Access, var: cin.IndexVar, bound: frozenset[cin.IndexVar]) -> float:
        own = frozenset(v for v in access.indices if isinstance(v, cin.IndexVar))
        before = own & bound
        return self.card(access, before | {var}) / self.card(access, before)

    def fiber(self, access: cin.Access, var: cin.IndexVar, bound: frozenset[cin.IndexVar]) -> float:
        """The children of `access` at `var`, where other factors lead to its fibers."""
        length = self.children(access, var, bound)
        for m in self._meetings:
            if m.join.var in bound and m.begins(access, var, bound):
                length *= m.coupling
        return min(length, float(self.extents[var]))

    def density(self, expr: cin.Expr, var: cin.IndexVar, bound: frozenset[cin.IndexVar]) -> float | None:
        """The fraction of coordinates of `var` where `expr` is stored; None for constants."""
        match expr:
            case cin.Access():
                if any(isinstance(ix, cin.Position) for ix in expr.indices):
                    return None
                if var not in expr.indices:
                    return 1.0
                return min(1.0, self.children(expr, var, bound) / max(1, self.extents[var]))
            case cin.Call(op, args, _):
                if op == "logical_not":
                    return 1.0
                found = [self.density(a, var, bound) for a in args]
                known = {a: d for a, d in zip(args, found, strict=True) if d is not None}
                if not known:
                    return None
                needed = {a: d for a, d in known.items() if self._needs(expr, a)}
                return (
                    math.prod(apart(needed)) if needed else 1.0 - math.prod(1.0 - d for d in apart(known, set.__eq__))
                )
            case _:
                return None

    def _needs(self, expr: cin.Call, arg: cin.Expr) -> bool:
        """Whether nothing is left of `expr` where the argument `arg` is absent, as of A / x where A is."""
        if (expr, arg) not in self._needed:
            lacking = [a for a in cin.accesses(arg) if a.tensor.lacks]
            self._needed[expr, arg] = bool(lacking) and isinstance(simplify.exhaust(expr, lacking), cin.Literal)
        return self._needed[expr, arg]
