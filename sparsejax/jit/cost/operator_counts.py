"""The operators of an expression, by what they cost and by the variables on which they depend: what does not depend on the variable of a loop is
computed outside of it.

    x[i] * exp(y[i]) + A[i,j] * z[j]      once per i: one cheap operator, one function; once per i, j: two cheap operators
"""

from __future__ import annotations

from collections.abc import Iterable

from sparsejax.jit.cost.price_table import Machine
from sparsejax.jit.ir import cin, operators

Depends = frozenset[cin.IndexVar]
"""The variables that a value depends on."""


def by_variables(expr: cin.Expr) -> tuple[dict[Depends, int], dict[Depends, int]]:
    """How many operators of an expression are cheap, and how many are functions, or divisions of long latency, by what they depend on. Those of
    constants are computed before. Where an entry is stored, a mask asks nothing of the value that it lets through."""
    cheap: dict[Depends, int] = {}
    functions: dict[Depends, int] = {}

    def look(each: cin.Expr) -> Depends:
        if not isinstance(each, cin.Call):
            return frozenset(cin.bound_by(each)) if isinstance(each, cin.Access) else frozenset()
        found = [look(arg) for arg in each.args]
        own = frozenset[cin.IndexVar]().union(*found)
        masks = each.op in ("masked", "stored")
        if own:
            counts = cheap if masks or operators.get(each.op).cost <= operators.CHEAP else functions
            depends = found[0] if masks else own
            counts[depends] = counts.get(depends, 0) + 1
        return own

    look(expr)
    return cheap, functions


def nanoseconds(exprs: Iterable[cin.Expr], lanes: float, machine: Machine) -> dict[Depends, tuple[float, float]]:
    """What the cheap operators and the functions of some expressions cost, by the variables that they depend on; values take so many `lanes`."""
    made: dict[Depends, tuple[float, float]] = {}
    for expr in exprs:
        cheap, functions = by_variables(expr)
        for depends in dict.fromkeys((*cheap, *functions)):
            arithmetic, polynomials = made.get(depends, (0.0, 0.0))
            arithmetic += lanes * cheap.get(depends, 0) * machine.arithmetic
            made[depends] = arithmetic, polynomials + lanes * functions.get(depends, 0) * machine.function
    return made
