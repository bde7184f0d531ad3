"""Where the sparse factors of a kernel meet: variables that two of them share, each with others besides.

w[i,j] += A[i,k] * B[k,j]      A and B meet in k
w[i,j] += A[i,k] * B[j,k]      A and B meet in k; with A = B, every row of A meets itself
t += A[i,j] * x[j]             nowhere: x has a single entry wherever A arrives
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparsejax.jit.ir import cin, simplify


class Join(NamedTuple):
    """Two accesses, and the variable that they meet in."""

    left: cin.Access
    right: cin.Access
    var: cin.IndexVar

    @property
    def key(self) -> tuple[str, int, str, int]:
        """The tensors by name, each with its dimension."""
        places = (self.left.indices.index(self.var), self.right.indices.index(self.var))
        return self.left.tensor.name, places[0], self.right.tensor.name, places[1]

    def others(self, access: cin.Access) -> frozenset[cin.IndexVar]:
        """The variables that `access` has besides."""
        return frozenset(v for v in cin.followed(access.indices) if v != self.var)


@dataclass(frozen=True)
class Meeting:
    """A join with the other variables of its two sides, and its coupling."""

    join: Join
    left: frozenset[cin.IndexVar]
    right: frozenset[cin.IndexVar]
    coupling: float

    def done(self, bound: frozenset[cin.IndexVar]) -> bool:
        """Whether entries of both sides are walked through."""
        return self.join.var in bound and bool(self.left & bound) and bool(self.right & bound)

    def begins(self, access: cin.Access, var: cin.IndexVar, bound: frozenset[cin.IndexVar]) -> bool:
        """Whether `access` is one side, which a loop over `var` begins to walk through when the other has been."""
        if access == self.join.left:
            own, other = self.left, self.right
        elif access == self.join.right:
            own, other = self.right, self.left
        else:
            return False
        return var in own and not own & bound and bool(other & bound)


def factors(expr: cin.Expr) -> tuple[cin.Access, ...]:
    """The sparse accesses of which each alone, where it is absent, leaves nothing to compute."""
    sparse = (a for a in dict.fromkeys(cin.accesses(expr)) if not a.tensor.format.is_dense)
    return tuple(a for a in sparse if isinstance(simplify.exhaust(expr, {a}), cin.Literal))


def joins(expr: cin.Expr, left_out: Collection[str] = ()) -> tuple[Join, ...]:
    """Where the factors of a simplified `expr` meet, but those of the tensors that are `left_out`."""
    known = [a for a in factors(expr) if a.tensor.name not in left_out and len(set(a.indices)) == len(a.indices)]
    pairs = itertools.combinations(known, 2)
    found = (Join(a, b, v) for a, b in pairs for v in cin.followed(a.indices) if v in b.indices)
    return tuple(j for j in found if j.others(j.left) and j.others(j.right))


def is_located(access: cin.Access) -> bool:
    """Whether coordinates say where `access` is, not positions of another one."""
    return not access.others or access.others == access.entries


def lacking(expr: cin.Expr) -> list[cin.Access]:
    """The operands of `expr` that may be absent where coordinates lead; of one that is read at the position of another, that other one leads there."""
    if type(expr) is cin.Access:
        return [a for a in cin.accesses(expr) if a.tensor.lacks] if is_located(expr) else []
    return [a for arg in expr.args for a in lacking(arg)] if type(expr) is cin.Call else []


def apart(exprs: Sequence[cin.Expr], same: Callable[[set[Any], set[Any]], bool] = set.__le__) -> list[cin.Expr]:
    """Those expressions whose sparse operands are not the `same` as, or among, those of another one that is kept."""
    operands = {e: set(lacking(e)) for e in exprs}
    kept: list[cin.Expr] = []
    for expr in sorted(exprs, key=lambda e: -len(operands[e])):
        if not operands[expr] or not any(same(operands[expr], operands[k]) for k in kept):
            kept.append(expr)
    return kept
