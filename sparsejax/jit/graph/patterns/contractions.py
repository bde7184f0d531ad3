"""Contractions of other operands in the place of one, and the axes of extent one that these lack or have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparsejax.core.jaxpr import Atom, Eqn, Var
from sparsejax.jit.graph.patterns.changes import changed, typed
from sparsejax.jit.graph.patterns.relations import Labels, Placed
from sparsejax.lax.contract import contract_p
from sparsejax.lax.linear import sample_p
from sparsejax.lax.structural import unit_axes_p


def is_masked(eqn: Eqn) -> bool:
    """Whether an operation is a contraction under the pattern of a sparse array of its shape, in plain arithmetic."""
    if eqn.primitive is not contract_p or eqn.param_dict.get("ring") is not None:
        return False
    mask = eqn.inputs[-1].aval
    masked = eqn.param_dict.get("mask") in ("pattern", "mask") and not mask.format.is_dense
    return masked and mask.shape == eqn.outputs[0].aval.shape


def without_units(atom: Atom, labels: Labels, axes: Labels, whole: Mapping[int, Any], made: list[Eqn]) -> Placed:
    """A dense factor without axes of extent one along which it is broadcast to extents that are those of the `whole`; what leaves them out is `made`."""
    kept = [k for k, (n, x) in enumerate(zip(atom.aval.shape, axes, strict=True)) if n == whole.get(x, n)]
    if len(kept) == atom.aval.ndim:
        return atom, labels
    made.append(reshaped(atom, tuple(atom.aval.shape[k] for k in kept)))
    return made[-1].outputs[0], tuple(labels[k] for k in kept)


def reshaped(atom: Atom, shape: tuple[int, ...], source: Any = None) -> Eqn:
    """A dense value with axes of extent one put in or left out."""
    out = Var(unit_axes_p.typing(atom.aval, shape=shape))
    return Eqn(unit_axes_p, (atom,), (("shape", shape),), (out,), source)


def product(eqn: Eqn, placed: Sequence[Placed]) -> list[Eqn] | None:
    """The contraction `eqn` of other operands; those that lack an axis of its result are contracted before the mask is laid over them. None where that
    has another type."""
    output, mask, out = eqn.param_dict["output"], eqn.inputs[-1], eqn.outputs[0]
    there = tuple(x for x in output if any(x in own for _, own in placed))
    if there == output:
        labels = tuple(own for _, own in placed)
        return typed([changed(eqn, (*(a for a, _ in placed), mask), out, inputs=labels)])
    made, value = contraction(eqn, placed, there)
    if not value.aval.format.is_dense:
        return None
    shape = tuple(n if x in there else 1 for x, n in zip(output, out.aval.shape, strict=True))
    spread = reshaped(value, shape, eqn.source)
    return typed([made, spread, Eqn(sample_p, (spread.outputs[0], mask), (), (out,), eqn.source)])


def contraction(eqn: Eqn, placed: Sequence[Placed], output: Labels) -> tuple[Eqn, Var]:
    """A contraction in the arithmetic of another one, and its result."""
    params = {
        "inputs": tuple(own for _, own in placed),
        "output": output,
        "dtype": eqn.param_dict["dtype"],
        "out_format": None,
    }
    result = Var(contract_p.typing(*(a.aval for a, _ in placed), **params))
    return Eqn(contract_p, tuple(a for a, _ in placed), tuple(params.items()), (result,), eqn.source), result
