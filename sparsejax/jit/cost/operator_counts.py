"""The operators of an expression, by what they cost and by the variables on which they depend: what does not depend on the variable of a loop is
computed outside of it.

    x[i] * exp(y[i]) + A[i,j] * z[j]      once per i: one cheap operator, one function; once per i, j: two cheap operators
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from sparsejax.jit.cost.price_table import Machine
from sparsejax.jit.ir import cin, operators

Depends = frozenset[cin.IndexVar]
"""The variables that a value depends on."""
Counts = dict[Depends, int]


def by_variables(expr: cin.Expr) -> tuple[Counts, Counts, Counts]:
    """How many operators of an expression are cheap, how many are other instructions, as square roots, and how many are elementary functions, by what they
    depend on. Those of constants are computed before. Where an entry is stored, a mask asks nothing of the value that it lets through."""
    cheap, slow, functions = Counts(), Counts(), Counts()

    def look(each: cin.Expr) -> Depends:
        if not isinstance(each, cin.Call):
            return frozenset(cin.bound_by(each)) if isinstance(each, cin.Access) else frozenset()
        found = [look(arg) for arg in each.args]
        own = frozenset[cin.IndexVar]().union(*found)
        masks = each.op in ("masked", "stored")
        if own:
            operator = operators.get(each.op)
            counts = cheap if masks or operator.cost <= operators.CHEAP else functions if operator.elementary else slow
            depends = found[0] if masks else own
            counts[depends] = counts.get(depends, 0) + 1
        return own

    look(expr)
    return cheap, slow, functions


def nanoseconds(exprs: Iterable[cin.Expr], lanes: float, machine: Machine) -> dict[Depends, tuple[float, float, float]]:
    """What the cheap operators, the other instructions and the elementary functions of some expressions cost, by the variables that they depend on; values
    take so many `lanes`. A function of one value takes as long as of a vector, which an instruction does not: square roots of 20,000 sums, one after the
    other, are not noticed."""
    made: dict[Depends, tuple[float, float, float]] = {}
    for expr in exprs:
        counted = by_variables(expr)
        for depends in dict.fromkeys(itertools.chain(*counted)):
            each = zip(
                made.get(depends, (0.0, 0.0, 0.0)), counted, (machine.arithmetic, *(machine.function,) * 2), strict=True
            )
            cheap, slow, functions = (cost + lanes * counts.get(depends, 0) * price for cost, counts, price in each)
            made[depends] = cheap, slow, functions
    return made
