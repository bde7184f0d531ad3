"""Derivatives of contractions: linear in every operand, so tangents and cotangents are contractions.

C[c] = sum A[a] B[b]        tC = sum tA[a] B[b] + sum A[a] tB[b]        dA[a] = pattern(A)[a] * sum dC[c] B[b]

Where a sparse factor has all axes of the result, it is multiplied with what the others sum to at its pattern. That sum is the factor's derivative,
and is computed once for both:

C[i,j] = sum A[i,j] U[i,k] W[j,k]       D[i,j] = pattern(A)[i,j] * sum U[i,k] W[j,k],  C = A * D        dA = dC * D,  dD = dC * A
"""

from __future__ import annotations

import itertools
from typing import Any

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.core.tangents import Linear
from sparsejax.formats import Format
from sparsejax.lax.contract import Labels, contract, contract_p
from sparsejax.lax.elementwise import convert_element_type, elementwise
from sparsejax.lax.linear import pull
from sparsejax.lax.rules import semiring_rules
from sparsejax.lax.rules.elementwise_rules import added
from sparsejax.lax.semiring import Ring
from sparsejax.transforms.staging import trace_to_jaxpr


def _jvp(
    primals: list[Any],
    tangents: list[Any],
    out: Any,
    inputs: tuple[Labels, ...],
    output: Labels,
    dtype: Any,
    out_format: Any,
    ring: Ring | None = None,
    mask: str | None = None,
) -> Any:
    if dtype.kind not in "fc":
        return None
    params: dict[str, Any] = {"inputs": inputs, "output": output, "dtype": dtype, "out_format": out_format}
    if mask is not None:
        params["mask"] = mask
    if ring is not None:
        return semiring_rules.jvp(primals, tangents, out, inputs, output, dtype, ring)
    made = None
    for k, t in enumerate(tangents[: len(inputs)]):
        if t is not None:
            made = added(made, contract_p.bind(*primals[:k], t, *primals[k + 1 :], **params))
    return made


def _transpose(
    ct: Any,
    *operands: Any,
    inputs: tuple[Labels, ...],
    output: Labels,
    dtype: Any,
    out_format: Any,
    ring: Ring | None = None,
    mask: str | None = None,
) -> list[Any]:
    count = len(inputs)
    (k,) = [k for k, x in enumerate(operands[:count]) if isinstance(x, Linear)]
    if mask is not None and (
        mask == "complement"
        or operands[count].format.is_dense
        or ct.format.is_dense
        or _exceeds(out_format, filled=mask == "pattern")
    ):  # else it has entries of the result, which are among those of the mask
        ct = contract([ct], [output], output, mask=operands[count], complement=mask == "complement")
    factors = [
        (ct, output),
        *((x, ls) for n, (x, ls) in enumerate(zip(operands[:count], inputs, strict=True)) if n != k),
    ]
    made: list[Any] = [None] * len(operands)
    made[k] = pull(factors, inputs[k], operands[k])
    return made


def _exceeds(form: Format | None, filled: bool) -> bool:
    """Whether a result that is pinned to a format may store what its mask does not: everything in a dense one; else where levels below a
    sparse one are dense or fill gaps, unless it is `filled`, at the pattern of its mask."""
    if form is None or form.is_dense:
        return form is not None
    below = itertools.dropwhile(lambda level: level.full, form.levels)
    return not filled and any(level.full or level.fills for level in below)


def _factored(
    moving: tuple[bool, ...],
    *avals: Aval,
    inputs: tuple[Labels, ...],
    output: Labels,
    dtype: Any,
    out_format: Any,
    ring: Ring | None = None,
    mask: str | None = None,
) -> ClosedJaxpr | None:
    """A sparse factor times the sum of the product of the others, where it moves, has the axes of the result in their order, and the others are
    dense factors that are summed."""
    if ring is not None or mask is not None:
        return None
    result = contract_p.typing(*avals, inputs=inputs, output=output, dtype=dtype, out_format=out_format)
    for k, (x, labels) in enumerate(zip(avals, inputs, strict=True)):
        rest = [n for n in range(len(avals)) if n != k]
        own = labels == output and len(set(labels)) == len(labels) and x.format == result.format and not x.is_dense
        summed = set(output) < {label for n in rest for label in inputs[n]}
        if not (moving[k] and own and summed and x.shape == result.shape and all(avals[n].is_dense for n in rest)):
            continue

        def product(*xs: Any, k: int = k, rest: list[int] = rest) -> list[Any]:
            factor, others, labels = xs[k], [xs[n] for n in rest], [inputs[n] for n in rest]
            made = contract(others, labels, output, factor.format, dtype, mask=factor, filled=True)
            return [elementwise("multiply", convert_element_type(factor, dtype), made)]

        made = trace_to_jaxpr(product, avals)
        return made if made.jaxpr.outputs[0].aval == result and not made.consts else None
    return None


contract_p.factored = _factored
contract_p.jvp = _jvp
contract_p.transpose = _transpose
