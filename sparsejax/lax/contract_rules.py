"""Derivatives of contractions: linear in every operand, so tangents and cotangents are contractions.

C[c] = sum A[a] B[b]        tC = sum tA[a] B[b] + sum A[a] tB[b]        dA[a] = pattern(A)[a] * sum dC[c] B[b]
"""

from __future__ import annotations

from typing import Any

from sparsejax.core.tangents import Linear
from sparsejax.lax import semiring_rules
from sparsejax.lax.contract import Labels, contract, contract_p
from sparsejax.lax.elementwise_rules import added
from sparsejax.lax.linear import pull
from sparsejax.lax.semiring import Ring


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
    if mask is not None and (ct.format.is_dense or mask == "complement"):
        ct = contract([ct], [output], output, mask=operands[count], complement=mask == "complement")
    factors = [
        (ct, output),
        *((x, ls) for n, (x, ls) in enumerate(zip(operands[:count], inputs, strict=True)) if n != k),
    ]
    made: list[Any] = [None] * len(operands)
    made[k] = pull(factors, inputs[k], operands[k])
    return made


contract_p.jvp = _jvp
contract_p.transpose = _transpose
