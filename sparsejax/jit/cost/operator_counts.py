"""The operators of an expression, by what they cost: arithmetic, and functions."""

from __future__ import annotations

from sparsejax.jit.ir import cin, operators


def count(expr: cin.Expr, cheap: bool) -> int:
    """How many operators of an expression are cheap, or how many are not: functions, and divisions of long latency."""
    if not isinstance(expr, cin.Call):
        return 0
    own = operators.get(expr.op).cost <= operators.CHEAP or expr.op in ("masked", "stored")
    return (own is cheap) + sum(count(a, cheap) for a in expr.args)
