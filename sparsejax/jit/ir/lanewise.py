"""Which expressions are computed lane by lane of a vector, by the operators in them (`Operator.lanewise`)."""

from __future__ import annotations

from collections.abc import Collection

from sparsejax.jit.ir import cin, operators


def lanewise(op: str, kinds: Collection[str]) -> bool:
    """Whether `op` works lane by lane on values of these kinds, its result's among them, without a call of a scalar library function."""
    known = operators.OPERATORS.get(op)
    if known is None or not set(kinds) <= set("biufc"):
        return False
    return set(kinds) <= set(known.lanewise) if known.body is None else _body(known.body)


def _body(body: cin.Expr) -> bool:
    """The same of the body of an operator that is defined by others."""
    if not isinstance(body, cin.Call):
        return body.dtype.kind in "iufc"
    kinds = {a.dtype.kind for a in body.args} | {body.dtype.kind}
    return lanewise(body.op, kinds) and all(map(_body, body.args))


def elementary(expr: cin.Expr) -> bool:
    """Whether `expr` calls an elementary function: far more work than anything else that is done lane by lane."""
    if not isinstance(expr, cin.Call):
        return False
    known = operators.OPERATORS.get(expr.op)
    return (known is not None and known.elementary) or any(map(elementary, expr.args))
