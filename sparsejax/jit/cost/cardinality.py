"""How many coordinates operands have: the cardinalities that costs of loop orders are made of (`search`).

card(T, P)      coordinates of a tensor T over a set P of variables: positions per level, as observed, where P is a prefix of its storage
                order, else as expected of entries that are spread evenly
children        card(T, P + v) / card(T, P)
known           the indices of T inside loops over P: of  B[A[i],j]  that is A[i], once i is in P; a row that is looked up is any of the rows
fiber           children where another factor leads to the fibers, those that are met most
searched        steps of searches for coordinates that no loop leads to
density         the fraction of coordinates of v where an expression is stored
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from sparsejax.jit.cost.joins import Meeting, apart, is_located, lacking
from sparsejax.jit.cost.skew import distinct
from sparsejax.jit.cost.statistics import Facts, runs_of
from sparsejax.jit.ir import cin, simplify
from sparsejax.jit.ir.bounded import Bounded


def likely(accesses: Iterable[cin.Access], facts: Facts) -> dict[cin.IndexVar, int]:
    """The extents of variables; in place of one of which a bound alone is known, what was observed of it.

    A plan for f64[n<=65535:d] whose first operand has 2^12 positions is priced as one of 4096 rows, and so are all of its other extents n.
    """
    found = cin.extents(accesses := list(accesses))
    if not any(type(n) is Bounded for n in found.values()):
        return found
    seen: dict[str, int] = {}
    for access in accesses:
        form, above, counts = access.tensor.format, 1.0, facts.counts.get(access.tensor.name)
        if counts is None or form.blocked:
            continue
        for level, dimension, count in zip(form.levels, form.order, counts, strict=False):
            extent = access.tensor.shape[dimension]
            if level.full and type(extent) is Bounded:
                seen.setdefault(extent.name, max(1, min(int(extent), round(count / max(1.0, above)))))
            above = count
    return {v: seen.get(n.name, n) if type(n) is Bounded else n for v, n in found.items()}


class Cardinalities:
    """Those of the operands of a kernel, given `facts`, the extents of its variables and how its factors meet."""

    def __init__(self, facts: Facts, extents: dict[cin.IndexVar, int], meetings: tuple[Meeting, ...]) -> None:
        self.facts, self.extents, self._meetings = facts, extents, meetings
        self._parts: dict[cin.Call, tuple[bool, list[cin.Expr]]] = {}
        self._cards: dict[tuple[cin.Access, frozenset[cin.Index]], float] = {}

    def card(self, access: cin.Access, bound: frozenset[cin.Index]) -> float:
        found = self._cards.get((access, bound))
        if found is None:
            found = self._cards[access, bound] = self._card(access, bound)
        return found

    def _card(self, access: cin.Access, bound: frozenset[cin.Index]) -> float:
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
        last = max(access.tensor.format.sparse, default=-1)
        above = {access.level_index(lv) for lv in range(last + 1)}
        full = bound - above  # dense levels below all sparse ones hold every coordinate
        if full and last >= 0:
            return max(1e-9, self.card(access, bound - full) * math.prod(self._extent(access, ix) for ix in full))
        size = math.prod(float(self._extent(access, ix)) for ix in bound)
        return max(1e-9, distinct(counts[last], size))

    def _extent(self, access: cin.Access, index: cin.Index) -> int:
        """Of the axis with this index."""
        var = cin.follows(index)
        return access.tensor.shape[access.indices.index(index)] if var is None else self.extents[var]

    def children(self, access: cin.Access, var: cin.IndexVar, bound: frozenset[cin.IndexVar]) -> float:
        before = _known(access, bound)
        return self.card(access, before | {var}) / self.card(access, before)

    def fiber(self, access: cin.Access, var: cin.IndexVar, bound: frozenset[cin.IndexVar]) -> float:
        """The children of `access` at `var`, where other factors lead to its fibers."""
        length = self.children(access, var, bound)
        for m in self._meetings:
            if m.join.var in bound and m.begins(access, var, bound):
                length *= m.coupling
        return min(length, float(self.extents[var]))

    def walked(self, access: cin.Access, var: cin.IndexVar, bound: frozenset[cin.IndexVar]) -> float:
        """The places of a fiber, where others decide which of its coordinates are visited: those that share one are passed at once."""
        counts, last = self.facts[access.tensor.name], len(access.indices) - 1
        runs = runs_of(counts)
        share = 1.0 if runs is None or access.level_index(last) != var else runs / max(1.0, runs, counts[-1])
        return self.fiber(access, var, bound) * share

    def searched(self, access: cin.Access, var: cin.IndexVar, bound: frozenset[cin.IndexVar]) -> float:
        """Steps of the searches that each iteration over `var` makes in an operand: by halves, for coordinates that are known when the
        segments are that hold them, as for the row A[i] among those stored of B[A[i],j], or for j in that row where the loop over j is around.
        """
        if not access.entries or not access.tensor.lacks:
            return 0.0
        before, after = _known(access, bound), _known(access, bound | {var})
        above: frozenset[cin.Index] = frozenset()
        steps = 0.0
        for number, level in enumerate(access.tensor.format.levels):
            index = access.level_index(number)
            within = above | {index}
            if not within <= after:
                break
            walked = index == var and above <= before
            if level.listed and not within <= before and not walked:
                steps += math.log2(1.0 + self.card(access, within) / self.card(access, above))
            above = within
        return steps

    def density(self, expr: cin.Expr, var: cin.IndexVar, bound: frozenset[cin.IndexVar]) -> float | None:
        """The fraction of coordinates of `var` where `expr` is stored; None for constants."""
        if type(expr) is cin.Access:
            if not is_located(expr):
                return None
            if var not in expr.bound:
                return 1.0
            before, after = _known(expr, bound), _known(expr, bound | {var})
            size = math.prod([self._extent(expr, ix) for ix in after - before])
            return min(1.0, self.card(expr, after) / self.card(expr, before) / max(1, size))
        if type(expr) is not cin.Call:
            return None
        if expr.op == "logical_not":
            return 1.0
        every, parts = self._parts_of(expr)
        found = [d for a in parts if (d := self.density(a, var, bound)) is not None]
        if every or not found:
            return math.prod(found) if found else None
        return 1.0 - math.prod([1.0 - d for d in found])

    def _parts_of(self, expr: cin.Call) -> tuple[bool, list[cin.Expr]]:
        """The arguments that decide where `expr` is stored: where all of them are, or else where any is. Each counts once."""
        found = self._parts.get(expr)
        if found is None:
            known = [a for a in dict.fromkeys(expr.args) if self._counts_coordinates(a)]
            needed = [a for a in known if _needs(expr, a)]
            found = self._parts[expr] = bool(needed), apart(needed) if needed else apart(known, set.__eq__)
        return found

    def _counts_coordinates(self, expr: cin.Expr) -> bool:
        """Whether `expr` has a density."""
        if isinstance(expr, cin.Call):
            return expr.op == "logical_not" or bool(self._parts_of(expr)[1])
        return isinstance(expr, cin.Access) and is_located(expr)


def _known(access: cin.Access, bound: frozenset[cin.IndexVar]) -> frozenset[cin.Index]:
    """The indices of `access` that are known inside loops over `bound`: those that follow them, and those that are looked up there."""
    followed: frozenset[cin.Index] = bound.intersection(access.indices)
    return followed.union(ix for ix in access.indices if cin.known(ix, bound)) if access.computed else followed


def _needs(expr: cin.Call, arg: cin.Expr) -> bool:
    """Whether nothing is left of `expr` where the argument `arg` is absent, as of A / x where A is."""
    absent = lacking(arg)
    return bool(absent) and isinstance(simplify.exhaust(expr, absent), cin.Literal)
