"""Sums of a sparse array and a smaller dense one that are only multiplied: taken apart while a function is traced, so that the dense sum is
never made.

    before:  c = sub A m; y = contract[ij,jk->ik] c V            A: csr (n, m), m: dense (m,), c: dense (n, m)
    after:   p = contract[ij,jk->ik] A V; q = contract[j,jk->k] m V; y = sub p q

This is how principal components of centred sparse data are found without a dense copy. Derivatives are those of what was traced, and stay
apart too. Where entries of `m` are large beside the differences to them, digits are lost as in every such method.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparsejax.core.jaxpr import Eqn, Var
from sparsejax.core.trace import Trace, Tracer

LARGE = 1 << 18
"""From how many entries on a dense sum is worth avoiding (2 MiB in double precision)."""

Labels = tuple[int, ...]
Term = tuple[Any, Labels, bool]
"""A value, the labels of its axes, and whether it is subtracted."""


def terms(
    trace: Trace, operands: Sequence[Any], labels: Sequence[Labels], output: Labels
) -> tuple[int, Term, Term] | None:
    """Which operand of a contraction that is traced is such a sum, and its parts: the sparse one, and the dense one, without axes of extent one;
    None where there is none, or where a label of the contraction would be lost."""
    for place, x in enumerate(operands):
        if not isinstance(x, Tracer) or x.maker is not trace or not x.format.is_dense:
            continue
        if type(size := x.size) is int and size < LARGE:
            continue
        found = _sum_of(trace.eqns, x.variable, labels[place])
        if found is None:
            continue
        eqn, own = found
        parts = _parts(trace, eqn, own)
        if parts is None or size < LARGE:  # asked last where extents are not known, as each answer is a guard
            continue
        sparse, dense = parts
        others = {label for k, ls in enumerate(labels) if k != place for label in ls}
        lost = set(own) - set(dense[1]) - others
        if lost <= set(output):
            return place, sparse, dense
    return None


def _sum_of(eqns: Sequence[Eqn], variable: Var, labels: Labels) -> tuple[Eqn, Labels] | None:
    """The sum that a variable is, as it is or transposed, and the labels of its axes."""
    for eqn in reversed(eqns):
        if variable not in eqn.outputs:
            continue
        if eqn.primitive.name in ("add", "subtract"):
            return eqn, labels
        if eqn.primitive.name != "transpose" or not isinstance(eqn.inputs[0], Var):
            return None
        axes = eqn.param_dict["axes"]
        turned = [0] * len(axes)
        for place, axis in enumerate(axes):
            turned[axis] = labels[place]
        variable, labels = eqn.inputs[0], tuple(turned)
    return None


def _parts(trace: Any, eqn: Eqn, labels: Labels) -> tuple[Term, Term] | None:
    first, second = eqn.inputs
    out = eqn.outputs[0].aval
    if not isinstance(first, Var) or not isinstance(second, Var) or out.dtype.kind not in "fc":
        return None
    minus = eqn.primitive.name == "subtract"
    for sparse, dense, signs in ((first, second, (False, minus)), (second, first, (minus, False))):
        a, b = sparse.aval, dense.aval
        whole = a.shape == out.shape and not a.format.is_dense and a.fill_value == 0
        if whole and b.format.is_dense and 4 * b.size <= a.size:
            own = labels[len(labels) - b.ndim :]
            kept = tuple(label for label, n in zip(own, b.shape, strict=True) if n != 1)
            return (Tracer(trace, sparse), labels, signs[0]), (Tracer(trace, dense), kept, signs[1])
    return None
