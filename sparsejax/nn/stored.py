"""Softmax and its like over stored entries, along any axes, in any format.

What a sparse array does not store counts as minus infinity, whatever its fill, and has probability zero: the result has the pattern
of its argument over fill 0 (`softmax`) or -inf (`log_softmax`). Dense arrays store everything. The largest entry of each line is
subtracted first, so that nothing overflows; a line whose entries are all -inf, or that has none, gives no NaN by itself in
`logsumexp`, which is -inf there.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.lax.elementwise import elementwise, where
from sparsejax.lax.linear import refilled, sample
from sparsejax.lax.reduce import reduce
from sparsejax.lax.structural import convert_format, normal_axes, reshape
from sparsejax.nn.activations import floating
from sparsejax.transforms.custom import custom_jvp, stop_gradient


def at(x: Any, like: Any) -> Any:
    """`x` broadcast to the shape of `like`: at its stored entries over fill 0, where it is sparse."""
    return x if like.format.is_dense else sample(x, like)


Axes = tuple[int, ...]


def _shifted(x: Any, axes: Axes, finite: bool = False) -> tuple[Any, Any, Any]:
    """The largest stored entry `m` of every line (0 where that is -inf, or infinite at all), `x - m`, and `exp(x - m)` over fill 0."""
    if x.size:
        most = reduce("max", refilled(x, -np.inf), axes, keepdims=True)
    else:  # lines of no elements have no largest one
        most = asarray(np.zeros([1 if k in axes else n for k, n in enumerate(x.shape)], x.dtype))
    most = stop_gradient(where(elementwise("isfinite", most) if finite else most > -np.inf, most, 0.0))
    moved = _like(refilled(x) - at(most, x), x)
    return most, moved, at(elementwise("exp", moved), x)


def _like(made: Any, x: Any) -> Any:
    """What is computed of the entries of `x`, also in bands: sums are not, since they have gaps in general."""
    return convert_format(made, x.format) if any(level.fills for level in x.format.levels) else made


def _prepared(x: Any, axis: Any) -> tuple[Any, Axes]:
    made = floating(asarray(x, "x"))
    if made.dtype.kind == "c":
        raise TypeError("x must be real: complex numbers have no largest")
    axes = tuple(range(made.ndim)) if axis is None else normal_axes(axis, made.ndim)
    for k in axes:
        if not made.shape[k] and made.format.is_dense:
            raise ValueError(f"x of shape {made.shape} has no entries along axis {k}")
    return made, axes


@again(1, whole=True)
def softmax(x: Any, axis: Any = -1) -> Array:
    """exp(x) over its sum along `axis` (an int, a tuple, or None for all), over stored entries.

    >>> import numpy as np, sparsejax as sj
    >>> softmax(sj.array(np.array([[1.0, 1.0, 0], [0, 5, 0]]), format="csr")).todense()
    array([[0.5, 0.5, 0. ],
           [0. , 1. , 0. ]])
    """
    return _softmax(*_prepared(x, axis))


@functools.partial(custom_jvp, nondiff_argnums=(1,))
def _softmax(x: Any, axes: Axes) -> Any:
    _, _, grown = _shifted(x, axes)
    sums = reduce("sum", grown, axes, keepdims=True)
    return grown / refilled(sums, 1)  # not 0 / 0 in lines without entries, where these are not stored


@_softmax.defjvp
def _softmax_jvp(axes: Axes, primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    """t -> y (t - sum(y t)): two passes, also backwards."""
    made = _softmax(primals[0], axes)
    moved = made * tangents[0]
    return made, moved - made * at(reduce("sum", moved, axes, keepdims=True), primals[0])


@again(1, whole=True)
def log_softmax(x: Any, axis: Any = -1) -> Array:
    """The logarithm of `softmax(x, axis)`, over fill -inf."""
    x, axes = _prepared(x, axis)
    _, moved, grown = _shifted(x, axes)
    made = moved - at(elementwise("log", reduce("sum", grown, axes, keepdims=True)), x)
    return refilled(_like(made, x), -np.inf)


@again(1, whole=True)
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """log(sum(exp(x))) over stored entries along `axis` (default: all); -inf where there are none."""
    x, axes = _prepared(x, axis)
    most, _, grown = _shifted(x, axes, finite=True)
    sums = reduce("sum", grown, axes, keepdims=True)
    some = sums != 0  # the others have no slope
    made = where(some, elementwise("log", where(some, sums, 1.0)), -np.inf) + most
    return made if keepdims else reshape(made, [n for k, n in enumerate(made.shape) if k not in axes])
