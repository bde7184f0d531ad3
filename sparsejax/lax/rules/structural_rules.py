"""Derivatives of changes of shape, order, format and fill, and of reductions.

Of equal entries the first in row-major order is the maximum, or the minimum. What a sparse array does not store is constant.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import span
from sparsejax.core.tangents import Linear
from sparsejax.formats import Format
from sparsejax.jit.ir import operators
from sparsejax.lax.elementwise import elementwise, where
from sparsejax.lax.extents import coordinates, unit
from sparsejax.lax.linear import aligned, as_dtype, keep, pull, refilled, sample, settle
from sparsejax.lax.reduce import reduce_p
from sparsejax.lax.sorting import places
from sparsejax.lax.structural import (
    broadcast_p,
    broadcast_to,
    convert_format,
    convert_p,
    diagonal,
    diagonal_p,
    expand_dims,
    expand_p,
    pattern_p,
    refill,
    refill_p,
    reshape,
    reshape_p,
    squeeze,
    squeeze_p,
    transpose,
    transpose_p,
    unit_axes_p,
)

Values = list[Any]

# ------------------------------------------------------------------------------------------------ shapes and formats

transpose_p.jvp = lambda primals, tangents, out, axes: transpose(tangents[0], axes)
transpose_p.transpose = lambda ct, x, axes: [keep(transpose(ct, np.argsort(axes).tolist()), x)]

expand_p.jvp = lambda primals, tangents, out, axis: expand_dims(tangents[0], axis)
expand_p.transpose = lambda ct, x, axis: [keep(squeeze(ct, axis), x)]
squeeze_p.jvp = lambda primals, tangents, out, axis: squeeze(tangents[0], axis)
squeeze_p.transpose = lambda ct, x, axis: [keep(expand_dims(ct, axis), x)]


def _reshape_jvp(primals: Values, tangents: Values, out: Any, shape: tuple[int, ...], format: Format) -> Any:
    (t,) = tangents
    return reshape(t, shape, None if format.is_dense and not t.format.is_dense else format)


def _reshape_transpose(ct: Any, x: Linear, shape: tuple[int, ...], format: Format) -> Values:
    if x.is_sparse and ct.format.is_dense:
        return [settle(reshape(ct, x.shape), x)]
    return [keep(reshape(ct, x.shape, x.format if x.is_sparse or ct.format.is_dense else None), x)]


unit_axes_p.jvp = lambda primals, tangents, out, shape: reshape(tangents[0], shape)
unit_axes_p.transpose = lambda ct, x, shape: [settle(reshape(ct, x.shape), x)]
reshape_p.jvp = _reshape_jvp
reshape_p.transpose = _reshape_transpose


def _diagonal_transpose(ct: Any, x: Linear, offset: int, axis1: int, axis2: int) -> Values:
    """ct[rest, d] at (first + d, second + d): a contraction with two selections."""
    rest = [a for a in range(x.ndim) if a not in (axis1, axis2)]
    factors: list[Any] = [(ct, (*rest, x.ndim))]
    for axis, start in ((axis1, max(0, -offset)), (axis2, max(0, offset))):
        chosen = unit((x.shape[axis], ct.shape[-1]), -start, ct.dtype, Format.parse("csr", 2))
        factors.append((chosen, (axis, x.ndim)))
    return [pull(factors, tuple(range(x.ndim)), x)]


diagonal_p.jvp = lambda primals, tangents, out, **params: diagonal(tangents[0], **params)
diagonal_p.transpose = _diagonal_transpose
broadcast_p.jvp = lambda primals, tangents, out, shape: broadcast_to(tangents[0], shape)
broadcast_p.transpose = lambda ct, x, shape: [pull([aligned(ct, ct.ndim)], aligned(x, ct.ndim)[1], x)]


def _convert_jvp(primals: Values, tangents: Values, out: Any, format: Format) -> Any:
    """What a dense array becomes when it is converted has the entries that are not zero: a pattern, which is constant."""
    (t,) = tangents
    if format.is_dense:
        return t
    return sample(t, out) if primals[0].format.is_dense else convert_format(t, format)


convert_p.jvp = _convert_jvp
convert_p.transpose = lambda ct, x, format: [keep(ct, x)]
refill_p.jvp = lambda primals, tangents, out, fill: tangents[0]
refill_p.transpose = lambda ct, x, fill: [keep(ct, x)]
pattern_p.jvp = lambda primals, tangents, out, dtype: None


# ------------------------------------------------------------------------------------------------------- reductions


def _reduce_jvp(primals: Values, tangents: Values, out: Any, kind: str, axes: tuple[int, ...], dtype: Any) -> Any:
    if dtype.kind not in "fc":
        return None
    x, t = primals[0], as_dtype(tangents[0], dtype)
    if kind == "sum":
        return _sum(t, axes)
    return _sum(_product(x, t, axes) if kind == "prod" else _winner(kind, x, t, axes, out), axes)


def _sum(x: Any, axes: tuple[int, ...]) -> Any:
    return reduce_p.bind(x, kind="sum", axes=axes, dtype=x.dtype)


def _reduce_transpose(ct: Any, x: Linear, kind: str, axes: tuple[int, ...], dtype: Any) -> Values:
    labels = tuple(range(x.ndim))
    return [pull([(ct, tuple(k for k in labels if k not in axes))], labels, x)]


reduce_p.jvp = _reduce_jvp
reduce_p.transpose = _reduce_transpose


def _back(x: Any, like: Any, axes: tuple[int, ...]) -> Any:
    """A reduced value with the axes it lost, of extent one."""
    return reshape(x, [1 if k in axes else n for k, n in enumerate(like.shape)])


def _winner(kind: str, x: Any, t: Any, axes: tuple[int, ...], out: Any) -> Any:
    """The tangent of the first of the entries that equal the result, zero for the others; where the result is NaN, of the first NaN.
    O(stored entries).

    Where `x` is sparse (over the identity of the reduction), everything is computed at its pattern: values beside fill 0.
    """
    last = int(operators.highest(np.dtype(np.int64)))
    extents = [n if k in axes else 1 for k, n in enumerate(x.shape)]
    best = _back(out, x, axes)
    if x.format.is_dense:
        place = coordinates(span(0, math.prod(extents))).reshape(extents)
        key = where(_lost(x, best), last, place)
        first = reduce_p.bind(key, kind="min", axes=axes, dtype=np.dtype(np.int64))
        return where(elementwise("equal", key, _back(first, x, axes)), t, 0.0)
    lost = _lost(refilled(x), sample(best, x))
    for place in _places(x, axes):
        key = where(lost, last, place)
        first = reduce_p.bind(refill(key, last), kind="min", axes=axes, dtype=np.dtype(np.int64))
        lost = elementwise("not_equal", key, sample(_back(first, x, axes), x))
    return where(lost, 0.0, t)


def _lost(x: Any, best: Any) -> Any:
    """Where an entry is not the extreme. Beside a NaN, which is the extreme then, all others have lost."""
    lost = elementwise("not_equal", x, best)
    return lost if x.dtype.kind not in "fc" else elementwise("logical_and", lost, elementwise("equal", x, x))


NUMBERED = 1 << 24
"""How many places of a reduction are numbered by one constant."""


def _places(x: Any, axes: tuple[int, ...]) -> list[Any]:
    """Numbers at the stored entries of `x`, which are ordered by them, the first ones first, as they are in row-major order of `axes`."""
    extents = [n if k in axes else 1 for k, n in enumerate(x.shape)]
    if math.prod(extents) <= NUMBERED:
        return [sample(asarray(coordinates(span(0, math.prod(extents))).reshape(extents)), x)]
    return [convert_format(places(x, axis), x.format) for axis in axes]


def _product(x: Any, t: Any, axes: tuple[int, ...]) -> Any:
    """The tangent times the product of all other entries, without division by zero. Among entries that are zero, products of all and of
    all others are elementary symmetric polynomials of these: constants here, but with derivatives, which are right up to the third.
    """
    zero = elementwise("equal", x, 0)
    zeros = _back(reduce_p.bind(where(zero, 1, 0), kind="sum", axes=axes, dtype=np.dtype(np.int64)), x, axes)
    safe = where(zero, 1.0, x)
    rest = _back(reduce_p.bind(safe, kind="prod", axes=axes, dtype=t.dtype), x, axes)
    own = where(zero, x, 0.0)
    first, squares = (_back(_sum(y, axes), x, axes) for y in (own, own * own))
    second = (first * first - squares) * 0.5  # of all products of two
    none, one, two, three = (rest * where(elementwise("equal", zeros, k), 1.0, 0.0) for k in range(4))
    # each term at the pattern of the tangent: a product with it comes first
    at_zero, others = where(zero, t, 0.0), where(zero, 0.0, t)
    alone = at_zero * (one + two * first + three * second)
    return (
        alone
        - (at_zero * own) * (two + three * first)
        + (at_zero * own) * own * three
        + (others * (none + one * first + two * second)) / safe
    )
