"""Functions of `sparsejax.numpy` that are made of elementwise operators, as expressions over scalars.

sinc(x)      where(x * pi == 0, 1, sin(..) / ..)        traced once per types; every equation is replaced by its index notation
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax import numpy as snp
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, Literal, Var
from sparsejax.jit.ir import cin
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.indirect.statements import Apply, Expr, Number
from sparsejax.transforms import staging

NAMES = (
    *(
        "angle",
        "around",
        "clip",
        "deg2rad",
        "degrees",
        "erf",
        "fabs",
        "fix",
        "float_power",
        "fmod",
        "heaviside",
        "imag",
        "isclose",
    ),
    *("iscomplex", "isneginf", "isposinf", "isreal", "logaddexp2", "logistic", "nan_to_num", "rad2deg"),
    *("radians", "real", "round", "sinc"),
)


def applied(name: str, args: Sequence[Expr], avals: Sequence[Aval]) -> tuple[Expr, Aval]:
    """A function of `NAMES` of expressions of these types, numbers among them: what it computes, and its type.

    TypeError for arguments that it does not take.
    """
    numbers = {k: x.value.item() for k, x in enumerate(args) if isinstance(x, Number)}
    moving = [k for k in range(len(args)) if k not in numbers]
    function: Any = getattr(snp, name)

    def called(*given: Any) -> list[Any]:
        values = {**numbers, **dict(zip(moving, given, strict=True))}
        return [function(*(values[k] for k in range(len(args))))]

    closed = staging.trace_to_jaxpr(called, [avals[k] for k in moving])
    jaxpr = staging.clean(closed.jaxpr)
    known: dict[Var, Expr] = dict(zip(jaxpr.inputs, (args[k] for k in moving), strict=True))

    def value(atom: Atom) -> Expr:
        if isinstance(atom, Literal):
            return Number(atom.aval.dtype.type(atom.value), atom.aval.dtype)
        return known[atom]

    for eqn in jaxpr.eqns:
        notation = eqn.primitive.notation
        assert notation is not None, f"{name} is made of elementwise operators"
        operands = rules.operands_of([a.aval for a in eqn.inputs])
        read = {o: value(a) for o, a in zip(operands, eqn.inputs, strict=True) if not isinstance(o, cin.Literal)}
        (out,) = eqn.outputs
        known[out] = _expression(notation(*operands, **eqn.param_dict).rhs, read)
    (result,) = jaxpr.outputs
    return value(result), result.aval


def _expression(expr: cin.Expr, read: dict[Any, Expr]) -> Expr:
    match expr:
        case cin.Access():
            return read[expr.tensor]
        case cin.Literal():
            return Number(np.asarray(expr.value, expr.dtype)[()], expr.dtype)
        case cin.Call():
            return Apply(expr.op, tuple(_expression(a, read) for a in expr.args), expr.dtype)
    raise AssertionError(expr)
