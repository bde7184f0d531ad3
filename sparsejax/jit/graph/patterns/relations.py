"""Which values of a program store all entries that another one stores, whatever the operands hold.

e = add d a          e stores what d does, and what a does
m = multiply d a     d stores what m does, and a does
p = contract d a     p stores (i,j) wherever d stores (i,k) and a stores (k,j)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparsejax.core.jaxpr import Atom, Jaxpr, Var
from sparsejax.jit.graph.patterns.witnesses import ENTRYWISE, LIKE, witnesses
from sparsejax.jit.ir import cin, simplify
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.contract import contract_p

Labels = tuple[int, ...]
Placed = tuple[Atom, Labels]
"""A value, and the label of each of its axes."""

DEPTH = 8
"""Operations that are looked through, at most."""


class Patterns:
    """What is known of the patterns in a program."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.made = {eqn.outputs[0]: eqn for eqn in jaxpr.eqns if not eqn.primitive.multiple}
        self._witness = witnesses(jaxpr)

    def same(self, a: Atom, b: Atom) -> bool:
        """Whether two values store the same entries in the same way."""
        return isinstance(a, Var) and isinstance(b, Var) and self._oldest(a) == self._oldest(b)

    def covers(self, whole: Atom, part: Atom, depth: int = DEPTH) -> bool:
        """Whether `whole` stores every entry of `part`, an array of the same shape."""
        if whole.aval.shape != part.aval.shape or not isinstance(whole, Var) or not isinstance(part, Var):
            return False
        whole, part = self._oldest(whole), self._oldest(part)
        if whole == part:
            return True
        if not depth:
            return False
        return any(self.covers(a, part, depth - 1) for a in self._united(whole)) or any(
            self.covers(whole, a, depth - 1) for a in self.needed(part)
        )

    def meets(self, product: Atom, labels: Labels, stored: Sequence[Placed]) -> bool:
        """Whether a `product` whose axes have these labels stores an entry wherever all of some values store one."""
        eqn = self.made.get(product) if isinstance(product, Var) else None
        if eqn is None or eqn.primitive is not contract_p:
            return False
        params = eqn.param_dict
        if params.get("mask") is not None or params.get("ring") is not None or product.aval.format.is_dense:
            return False
        names = dict(zip(params["output"], labels, strict=True))
        return _unified(self, [*zip(eqn.inputs, params["inputs"], strict=True)], names, stored)

    def inside(self, var: Var, depth: int = DEPTH) -> Iterator[Var]:
        """A value and others that store all that it does."""
        var = self._oldest(var)
        yield var
        if depth:
            for other in self.needed(var):
                yield from self.inside(other, depth - 1)

    def _oldest(self, var: Var) -> Var:
        found = self._witness.get(var, var)
        return found if found == var else self._oldest(found)

    def _united(self, var: Var) -> list[Var]:
        """Operands each of which alone makes the result store an entry."""
        found = self._entrywise(var)
        if found is None:
            return []
        value, accesses = found
        return [v for a, v in accesses.items() if a in cin.accesses(simplify.exhaust(value, accesses.keys() - {a}))]

    def needed(self, var: Var) -> list[Var]:
        """Operands without an entry of which the result has none."""
        eqn = self.made.get(var)
        if eqn is not None and eqn.primitive in LIKE:
            like = eqn.inputs[LIKE[eqn.primitive]]
            return [like] if isinstance(like, Var) and like.aval.shape == var.aval.shape else []
        found = self._entrywise(var)
        if found is None:
            return []
        value, accesses = found
        return [v for a, v in accesses.items() if isinstance(simplify.exhaust(value, {a}), cin.Literal)]

    def _entrywise(self, var: Var) -> tuple[cin.Expr, dict[cin.Access, Var]] | None:
        """What an operation of entries computes, and its sparse operands of the result's shape."""
        eqn = self.made.get(var)
        if eqn is None or eqn.primitive not in ENTRYWISE or eqn.primitive.notation is None or var.aval.format.is_dense:
            return None
        made = eqn.primitive.notation(*rules.operands_of([a.aval for a in eqn.inputs]), **eqn.param_dict)
        found: dict[cin.Access, Var] = {}
        for access in cin.accesses(made.rhs):
            operand = eqn.inputs[int(access.tensor.name[1:])]
            if access.tensor.lacks and isinstance(operand, Var):
                if access.indices != made.indices:
                    return None
                found[access] = operand
        return made.rhs, found


def _unified(known: Patterns, terms: Sequence[Placed], names: dict[int, int], stored: Sequence[Placed]) -> bool:
    """Whether each of the `terms` is one of the values that are `stored`, if its labels are called as `names` has it, or by one name each that is
    found here. Dense ones are stored everywhere."""
    if not terms:
        return True
    (atom, labels), *rest = terms
    if atom.aval.format.is_dense:
        return _unified(known, rest, names, stored)
    for other, own in stored:
        if not known.same(atom, other):
            continue
        now = dict(names)
        if all(now.setdefault(x, y) == y for x, y in zip(labels, own, strict=True)) and _unified(
            known, rest, now, stored
        ):
            return True
    return False
