"""Products that are summed read what was broadcast before it was: no factor is spread out along axes that it does not know.

before:  h = broadcast_to b;  j = contract[ij,kj->ik mask] h e d       cotangents of sums and means
after:   s = contract[,kj->k] b e;  j = sample s d

What is the same for every place of the result is computed once: terms of the same numbers, some of which are added up before they are multiplied. A result
along whose axes all factors are broadcast is broadcast itself, so that the next product reads what it was made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparsejax.core.jaxpr import Atom, Eqn, Jaxpr, Var
from sparsejax.jit.graph.patterns import contractions
from sparsejax.jit.graph.patterns.changes import typed
from sparsejax.jit.graph.patterns.relations import Labels, Placed
from sparsejax.lax.contract import contract_p
from sparsejax.lax.structural import broadcast_p


def read(jaxpr: Jaxpr) -> Jaxpr:
    """`jaxpr` with contractions of what was broadcast."""
    wide: dict[Var, Eqn] = {}
    kept: list[Eqn] = []
    for eqn in jaxpr.eqns:
        for one in (_read(eqn, wide) if wide and eqn.primitive is contract_p else None) or (eqn,):
            kept.append(one)
            if one.primitive is broadcast_p and all(a.aval.format.is_dense for a in (*one.inputs, *one.outputs)):
                wide[one.outputs[0]] = one
    return Jaxpr(jaxpr.inputs, jaxpr.consts, tuple(kept), jaxpr.outputs)


def _read(eqn: Eqn, wide: Mapping[Var, Eqn]) -> list[Eqn] | None:
    """The contraction of what its operands were broadcast from, if it sums and some were."""
    params = eqn.param_dict
    inputs: tuple[Labels, ...] = params["inputs"]
    output: Labels = params["output"]
    summed = {x for own in inputs for x in own} - set(output)
    masked = params.get("mask") is not None
    if params.get("ring") is not None or not summed or (masked and not contractions.is_masked(eqn)):
        return None
    placed: list[Placed] = [*zip(eqn.inputs, inputs, strict=False)]
    extents = _extents(placed)
    before: list[Eqn] = []
    for number, (atom, labels) in enumerate(placed):
        found = _narrow(atom, labels, wide, before)
        if found is not None:
            now = _extents([*placed[:number], found, *placed[number + 1 :]])
            if summed <= now.keys() and all(extents[x] == n for x, n in now.items()):
                placed[number] = found
    if [own for _, own in placed] == list(inputs):
        return None
    for number, (atom, labels) in enumerate(placed):
        left = tuple(
            x for x in labels if x in output or any(x in own for k, (_, own) in enumerate(placed) if k != number)
        )
        if left != labels and len(placed) > 1 and atom.aval.format.is_dense:
            made, value = contractions.contraction(eqn, [placed[number]], left)
            before.append(made)
            placed[number] = value, left
    last = contractions.product(eqn, placed) if masked else _broadcast(eqn, placed)
    return last and [*before, *last]


def _extents(placed: Sequence[Placed]) -> dict[int, Any]:
    """The extents of labels, some factors being broadcast along them."""
    found: dict[int, Any] = {}
    for atom, labels in placed:
        for x, n in zip(labels, atom.aval.shape, strict=True):
            found[x] = n if found.get(x, 1) == 1 else found[x]
    return found


def _narrow(atom: Atom, labels: Labels, wide: Mapping[Var, Eqn], before: list[Eqn]) -> Placed | None:
    """What a factor was broadcast from, without axes of extent one, which are left out `before`."""
    eqn = wide.get(atom) if isinstance(atom, Var) else None
    if eqn is None or len(set(labels)) < len(labels):
        return None
    (source,) = eqn.inputs
    own = labels[len(labels) - source.aval.ndim :]
    narrow = contractions.without_units(source, own, own, dict(zip(labels, atom.aval.shape, strict=True)), before)
    return _narrow(*narrow, wide, before) or narrow


def _broadcast(eqn: Eqn, placed: list[Placed]) -> list[Eqn] | None:
    """The contraction of other operands, broadcast to the result along axes that they all lack; None where that has another type."""
    output, out = eqn.param_dict["output"], eqn.outputs[0]
    there = tuple(x for x in output if any(x in own for _, own in placed))
    made, value = contractions.contraction(eqn, placed, there)
    if there == output:
        return typed([Eqn(made.primitive, made.inputs, made.params, eqn.outputs, eqn.source)])
    if not value.aval.format.is_dense:
        return None
    shape = tuple(n if x in there else 1 for x, n in zip(output, out.aval.shape, strict=True))
    unit = contractions.reshaped(value, shape, eqn.source)
    return typed([made, unit, Eqn(broadcast_p, unit.outputs, (("shape", out.aval.shape),), (out,), eqn.source)])
