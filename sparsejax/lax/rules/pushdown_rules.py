"""Diagonals of results as operations on diagonals of their operands.

diagonal(A @ B)     out[i] = sum_k A[i,k] * B[k,i]      the products that meet the diagonal, instead of all
diagonal(A + B)     diagonal(A) + diagonal(B)           entrywise operations, as long as operands are not broadcast
diagonal(A.T)       diagonal(A)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparsejax.core.jaxpr import Eqn
from sparsejax.lax.contract import contract_p, extents_of
from sparsejax.lax.elementwise import aval_of, cast_p, primitives, unary_p, where_p
from sparsejax.lax.indexing import window
from sparsejax.lax.structural import diagonal, diagonal_p, transpose, transpose_p

Function = Callable[..., Any]
ENTRYWISE = frozenset([*primitives.values(), cast_p, where_p, unary_p])


def _diagonal(maker: Eqn, offset: int, axis1: int, axis2: int) -> Function | None:
    if maker.primitive is contract_p:
        return _of_contraction(maker, offset, axis1, axis2)
    if maker.primitive is transpose_p:
        return _of_transpose(maker, offset, axis1, axis2)
    return _of_entrywise(maker, offset, axis1, axis2) if maker.primitive in ENTRYWISE else None


def _of_contraction(maker: Eqn, offset: int, axis1: int, axis2: int) -> Function | None:
    """Both axes get the label of the first, over the part of both that the diagonal runs along."""
    params, shape = maker.param_dict, maker.outputs[0].aval.shape
    inputs, output = params["inputs"], params["output"]
    masked = params.get("mask") is not None
    if masked and maker.inputs[-1].aval.shape != shape:
        return None
    first, second = max(0, -offset), max(0, offset)
    count = max(0, min(shape[axis1] - first, shape[axis2] - second))
    one, two = output[axis1], output[axis2]
    parts = {one: range(first, first + count), two: range(second, second + count)}
    extents = extents_of([a.aval.shape for a in maker.inputs[: len(inputs)]], inputs)
    params["inputs"] = tuple(tuple(one if x == two else x for x in labels) for labels in inputs)
    params["output"] = (*(x for k, x in enumerate(output) if k not in (axis1, axis2)), one)

    def function(*operands: Any) -> Any:
        made = []
        for x, labels in zip(operands, inputs, strict=False):
            ranges = [
                parts[label] if label in parts and n == extents[label] else range(n)
                for label, n in zip(labels, x.shape, strict=True)
            ]
            made.append(window(x, ranges))
        if masked:
            made.append(diagonal(operands[-1], offset, axis1, axis2))
        params["out_format"] = diagonal_p.typing(maker.outputs[0].aval, offset=offset, axis1=axis1, axis2=axis2).format
        return contract_p.bind(*made, **params)

    return function


def _of_transpose(maker: Eqn, offset: int, axis1: int, axis2: int) -> Function:
    axes = maker.param_dict["axes"]
    source, target = axes[axis1], axes[axis2]
    rest = [d for d in range(len(axes)) if d not in (source, target)]
    kept = [a for k, a in enumerate(axes) if k not in (axis1, axis2)]

    def function(x: Any) -> Any:
        made = diagonal(x, offset, source, target)
        return transpose(made, [*(rest.index(a) for a in kept), len(rest)])

    return function


def _of_entrywise(maker: Eqn, offset: int, axis1: int, axis2: int) -> Function | None:
    shape = maker.outputs[0].aval.shape
    if any(a.aval.shape not in ((), shape) for a in maker.inputs):
        return None

    def function(*operands: Any) -> Any:
        parts = [x if not aval_of(x).ndim else diagonal(x, offset, axis1, axis2) for x in operands]
        return maker.primitive.bind(*parts, **maker.param_dict)

    return function


diagonal_p.pushdown = _diagonal
