"""Sums of what was made of repeated entries go back to these by number: gradients of arrays that are repeated.

before:  e = broadcast_to (expand_dims c);  k = (at the entries of e);  m = contract[ijk->ik mask] k c
after:   n = numbered c;  p = broadcast_to (expand_dims n);  m = returned (share k p) p c

Nothing is searched: the places of the entries that are repeated are repeated with them.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparsejax.core.jaxpr import Atom, Eqn, Jaxpr, Var
from sparsejax.formats.parts import located
from sparsejax.jit.graph.patterns.changes import is_typed
from sparsejax.jit.graph.patterns.contractions import is_masked
from sparsejax.jit.graph.patterns.witnesses import LIKE
from sparsejax.lax.entry_places import numbered_p, returned_p
from sparsejax.lax.linear import share_p
from sparsejax.lax.structural import broadcast_p, expand_p, reshape_p


def returned(jaxpr: Jaxpr) -> Jaxpr:
    """`jaxpr` with sums of what was broadcast that return entries."""
    if not any(e.primitive is broadcast_p and not e.outputs[0].aval.format.is_dense for e in jaxpr.eqns):
        return jaxpr
    made = {eqn.outputs[0]: eqn for eqn in jaxpr.eqns if not eqn.primitive.multiple}
    kept: list[Eqn] = []
    for eqn in jaxpr.eqns:
        kept += (_returned(eqn, made) if is_masked(eqn) else None) or [eqn]
    return Jaxpr(jaxpr.inputs, jaxpr.consts, tuple(kept), jaxpr.outputs)


def _returned(eqn: Eqn, made: Mapping[Var, Eqn]) -> list[Eqn] | None:
    """A sum under a mask as entries that are returned, where one operand has the pattern of something that was broadcast to its shape."""
    params = eqn.param_dict
    if len(params["inputs"]) != 1 or len(eqn.inputs) != 2 or eqn.outputs[0].aval.dtype != eqn.inputs[0].aval.dtype:
        return None
    (value, mask), ((labels,), output) = eqn.inputs, (params["inputs"], params["output"])
    summed = [axis for axis, x in enumerate(labels) if x not in output]
    if not located.searched(mask.aval.format):
        return None  # not every position is an entry
    if not summed or tuple(x for x in labels if x in output) != output or not _repeats(value, made):
        return None
    steps = [_step(numbered_p, (mask,))]
    for axis in summed:
        steps.append(_step(expand_p, steps[-1].outputs, axis=axis))
    places = _step(broadcast_p, steps[-1].outputs, shape=value.aval.shape)
    if places.outputs[0].aval.format != value.aval.format:
        return None
    values = _step(share_p, (value, *places.outputs))
    last = Eqn(returned_p, (*values.outputs, *places.outputs, mask), (), eqn.outputs, eqn.source)
    return [*steps, places, values, last] if is_typed(last) else None


def _step(primitive: object, inputs: tuple[Atom, ...], **params: object) -> Eqn:
    """An operation and its result."""
    (aval,) = primitive.out_avals([a.aval for a in inputs], params)  # type: ignore[attr-defined]
    return Eqn(primitive, inputs, tuple(params.items()), (Var(aval),), None)  # type: ignore[arg-type]


def _repeats(value: Atom, made: Mapping[Var, Eqn]) -> bool:
    """Whether an array has the pattern of one of its shape that was broadcast, which was reshaped perhaps and reshaped back."""
    shape = value.aval.shape
    while isinstance(value, Var) and value in made and not value.aval.format.is_dense:
        eqn = made[value]
        if eqn.primitive is broadcast_p:
            return eqn.outputs[0].aval.shape == shape
        if is_masked(eqn):
            value = eqn.inputs[-1]
        elif eqn.primitive in LIKE and eqn.inputs[LIKE[eqn.primitive]].aval.shape == value.aval.shape:
            value = eqn.inputs[LIKE[eqn.primitive]]
        elif eqn.primitive is reshape_p:
            value = eqn.inputs[0]
        else:
            sparse = [a for a in eqn.inputs if not a.aval.format.is_dense]
            if len(sparse) != 1 or sparse[0].aval.shape != value.aval.shape:
                return False
            (value,) = sparse
    return False
