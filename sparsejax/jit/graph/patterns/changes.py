"""Operations of a jaxpr with something else in place of what they had."""

from __future__ import annotations

from collections.abc import Sequence

from sparsejax.core.jaxpr import Atom, Eqn, Var


def changed(eqn: Eqn, operands: Sequence[Atom], result: Var, **params: object) -> Eqn:
    """An operation with other operands, parameters and another result."""
    return Eqn(eqn.primitive, tuple(operands), tuple((eqn.param_dict | params).items()), (result,), eqn.source)


def typed(eqns: list[Eqn]) -> list[Eqn] | None:
    """Operations, if the last one's result has the type that it is said to have."""
    last = eqns[-1]
    found = last.primitive.out_avals([a.aval for a in last.inputs], last.param_dict)
    return eqns if found == (last.outputs[0].aval,) else None
