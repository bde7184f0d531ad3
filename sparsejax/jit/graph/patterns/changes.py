"""Operations of a jaxpr with something else in place of what they had."""

from __future__ import annotations

from collections.abc import Sequence

from sparsejax.core.jaxpr import Atom, Eqn, Var


def changed(eqn: Eqn, operands: Sequence[Atom], result: Var, **params: object) -> Eqn:
    """An operation with other operands, parameters and another result."""
    return Eqn(eqn.primitive, tuple(operands), tuple((eqn.param_dict | params).items()), (result,), eqn.source)


def is_typed(eqn: Eqn) -> bool:
    """Whether the results of an operation have the types that they are said to have."""
    found = eqn.primitive.out_avals([a.aval for a in eqn.inputs], eqn.param_dict)
    return found == tuple(v.aval for v in eqn.outputs)


def typed(eqns: list[Eqn]) -> list[Eqn] | None:
    """Operations, if the last one is typed."""
    return eqns if is_typed(eqns[-1]) else None
