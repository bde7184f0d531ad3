"""NumPy's reductions. Entries that are not stored count with the fill; see `sparsejax.lax.reduce`.

`where` is a mask of the entries that take part, `initial` a number that takes part once, as in NumPy.
"""

from __future__ import annotations

import math as _math
from typing import Any

import numpy as np

from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray as _asarray
from sparsejax.lax.elementwise import convert_element_type as _convert_element_type
from sparsejax.lax.elementwise import elementwise as _elementwise
from sparsejax.lax.elementwise import where as _where
from sparsejax.lax.extents import filled as _filled
from sparsejax.lax.indexing import concatenate as _concatenate
from sparsejax.lax.library.cumulative import cumulative as _cumulative
from sparsejax.lax.reduce import MOST as _MOST
from sparsejax.lax.reduce import mean as _mean
from sparsejax.lax.reduce import reduce as _reduce
from sparsejax.lax.reduce import result_dtype as _result_dtype
from sparsejax.lax.reduce import var as _var
from sparsejax.lax.sorting import cumsum as _cumsum
from sparsejax.lax.structural import broadcast_to as _broadcast_to
from sparsejax.lax.structural import normal_axes as _normal_axes
from sparsejax.lax.structural import normal_axis as _normal_axis
from sparsejax.lax.structural import reshape as _reshape
from sparsejax.numpy import at_once
from sparsejax.numpy.elementwise import operators as _operators


def _among(x: Any, where: Any, identity: Any) -> Any:
    """`x` with `identity` where it takes no part."""
    x = _asarray(x)
    return x if where is None else _where(where, x, x.dtype.type(identity))


def _with_initial(op: str, made: Any, initial: Any) -> Any:
    return made if initial is None else _convert_element_type(_elementwise(op, made, initial), made.dtype)


@again(1)
def sum(
    x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, *, initial: Any = None, where: Any = None
) -> Array:
    """`numpy.sum`."""
    return _with_initial("add", _reduce("sum", _among(x, where, 0), axis, dtype, keepdims), initial)


@again(1)
def prod(
    x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, *, initial: Any = None, where: Any = None
) -> Array:
    """`numpy.prod`."""
    return _with_initial("multiply", _reduce("prod", _among(x, where, 1), axis, dtype, keepdims), initial)


def _extreme(kind: str, op: str, x: Any, axis: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    x = _asarray(x)
    if where is not None and initial is None:
        raise ValueError(f"{kind} with where= needs initial=, the result where nothing takes part")
    if initial is None:
        return _reduce(kind, x, axis, None, keepdims)
    x = _among(x, where, initial)
    if not x.size:
        shape = _reduce("sum", x, axis, None, keepdims).shape
        return _broadcast_to(_asarray(x.dtype.type(initial)), shape)
    return _with_initial(op, _reduce(kind, x, axis, None, keepdims), initial)


@again(1, whole=True)
def max(x: Any, axis: Any = None, keepdims: bool = False, *, initial: Any = None, where: Any = None) -> Array:
    """`numpy.max`; entries that are not stored count with the fill."""
    return _extreme("max", "maximum", x, axis, keepdims, initial, where)


@again(1, whole=True)
def min(x: Any, axis: Any = None, keepdims: bool = False, *, initial: Any = None, where: Any = None) -> Array:
    """`numpy.min`; entries that are not stored count with the fill."""
    return _extreme("min", "minimum", x, axis, keepdims, initial, where)


@again(1)
def any(x: Any, axis: Any = None, keepdims: bool = False, *, where: Any = None) -> Array:
    """`numpy.any`."""
    return _reduce("any", _among(x, where, 0), axis, None, keepdims)


@again(1)
def all(x: Any, axis: Any = None, keepdims: bool = False, *, where: Any = None) -> Array:
    """`numpy.all`."""
    return _reduce("all", _among(x, where, 1), axis, None, keepdims)


@again(1, whole=True)
def mean(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, *, where: Any = None) -> Array:
    """`numpy.mean`; entries that are not stored count with the fill. Integers give float64."""
    if where is None:
        return _mean(x, axis, dtype, keepdims)
    x = _asarray(x)
    total = sum(x if x.dtype.kind in "fc" else _convert_element_type(x, float), axis, dtype, keepdims, where=where)
    return _elementwise("divide", total, _count(x, where, axis, keepdims, total.dtype))


def _count(x: Any, where: Any, axis: Any, keepdims: bool, dtype: Any) -> Any:
    return _reduce("sum", _broadcast_to(_asarray(where), x.shape), axis, dtype, keepdims)


@again(1)
def var(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: float | None = None,
    where: Any = None,
) -> Array:
    """`numpy.var`: the mean square distance to the mean, over the number of elements less `ddof`, which the standard calls `correction`.

    >>> var(np.array([1.0, 2.0, 3.0]), correction=1)
    Array(1., dtype=float64)
    """
    less = ddof if correction is None else correction
    if where is None:
        return _var(x, axis, dtype, less, keepdims)
    x = _asarray(x)
    distance = _elementwise("absolute", _elementwise("subtract", x, mean(x, axis, dtype, True, where=where)))
    total = sum(_elementwise("multiply", distance, distance), axis, dtype, keepdims, where=where)
    count = _elementwise("subtract", _count(x, where, axis, keepdims, total.dtype), less)
    return _elementwise("divide", total, _elementwise("maximum", count, 0))


@again(1)
def std(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: float | None = None,
    where: Any = None,
) -> Array:
    """`numpy.std`: the root of `var`."""
    return _elementwise("sqrt", var(x, axis, dtype, ddof, keepdims, correction=correction, where=where))


@again(1, whole=True)
def ptp(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """`numpy.ptp`: the maximum less the minimum."""
    return _elementwise("subtract", max(x, axis, keepdims), min(x, axis, keepdims))


@again(1)
def average(x: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    """`numpy.average`: the mean, of entries that count as often as `weights` say (of the shape of `x`, or a vector for `axis`).
    Weights that sum to zero give NaN or infinity, as in JAX; NumPy raises.

    >>> average(np.array([1.0, 2.0]), weights=np.array([3.0, 1.0]))
    Array(1.25, dtype=float64)
    """
    x = _asarray(x)
    if weights is None:
        made = _mean(x, axis, None, keepdims)
        if not returned:
            return made
        count = x.size / np.maximum(1, made.size)
        return made, _broadcast_to(_asarray(float(count)), made.shape)
    w = _asarray(weights)
    if w.shape != x.shape:
        if w.ndim != 1 or axis is None or w.shape[0] != x.shape[_normal_axis(axis, x.ndim)]:
            raise ValueError(f"weights of shape {w.shape} fit neither x of shape {x.shape} nor axis={axis}")
        w = _reshape(w, [-1 if d == _normal_axis(axis, x.ndim) else 1 for d in range(x.ndim)])
    total = sum(_broadcast_to(w, x.shape), axis, float if w.dtype.kind not in "fc" else None, keepdims)
    made = _elementwise("divide", sum(_elementwise("multiply", x, w), axis, None, keepdims), total)
    return (made, total) if returned else made


@again(1, whole=True, shorter=at_once.counted)
def count_nonzero(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """`numpy.count_nonzero`: stored zeros do not count, a fill other than zero does.

    OverflowError where there may be more than 2^63 - 1 of them: the fill is not zero, and so many elements are counted.

    >>> import sparsejax as sj
    >>> count_nonzero(sj.array([[0, 2], [3, 0]], format="csr"), axis=0)
    Array([1, 1], dtype=int64)
    """
    there = _elementwise("not_equal", x, 0)
    axes = range(there.ndim) if axis is None else _normal_axes(axis, there.ndim)
    count = _math.prod(there.shape[a] for a in axes)
    if count > _MOST and there.fill_value:
        raise OverflowError(
            f"count_nonzero: of the {count} elements that are counted, more than 2^63 - 1 may differ from zero, since the fill does; "
            "count along fewer axes"
        )
    return _reduce("sum", there, axis, None, keepdims)


# ------------------------------------------------------------------------------------------------------- running sums


def _flat(x: Any, axis: int | None) -> tuple[Any, int]:
    return (_reshape(x, (x.size,)), 0) if axis is None else (x, axis)


def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Array:
    """`numpy.cumsum` along `axis`, or of the array flattened: dense, since sums stay where nothing is stored.

    >>> import numpy as np
    >>> cumsum(np.array([[1, 2], [3, 4]]), axis=0)
    Array([[1, 2],
           [4, 6]], dtype=int64)
    """
    x = _asarray(x)
    return _cumsum(*_flat(_convert_element_type(x, _result_dtype("sum", x.dtype, dtype)), axis))


def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Array:
    """`numpy.cumprod` along `axis`, or of the array flattened: dense."""
    x = _asarray(x)
    return _cumulative("prod", *_flat(_convert_element_type(x, _result_dtype("prod", x.dtype, dtype)), axis))


def _standard(running: Any, first: int, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Any:
    x = _asarray(x)
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"axis must be given for an array of {x.ndim} dimensions")
        axis = 0
    made = running(x, axis, dtype)
    if not include_initial:
        return made
    place = _normal_axis(axis, x.ndim)
    start = _filled([1 if d == place else n for d, n in enumerate(x.shape)], first, made.dtype)
    return _concatenate([start, made], place)


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """The standard's `cumsum`: along `axis`, which only a vector may leave out; with `include_initial`, a zero in front.

    >>> cumulative_sum(np.array([1, 2, 3]), include_initial=True)
    Array([0, 1, 3, 6], dtype=int64)
    """
    return _standard(cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """The standard's `cumprod`: along `axis`, which only a vector may leave out; with `include_initial`, a one in front."""
    return _standard(cumprod, 1, x, axis, dtype, include_initial)


def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    """`numpy.diff`: differences of neighbours along `axis`, `n` times over.

    >>> diff(np.array([1, 4, 9]))
    Array([3, 5], dtype=int64)
    """
    x = _asarray(x)
    if n < 0:
        raise ValueError(f"n={n} must not be negative")
    if not n:
        return x
    place = _normal_axis(axis, x.ndim)
    edge = [1 if d == place else m for d, m in enumerate(x.shape)]
    ends = [None if end is None else _asarray(end) for end in (prepend, append)]
    wide = [e if e is None or e.ndim else _broadcast_to(e, edge) for e in ends]
    parts = [part for part in (wide[0], x, wide[1]) if part is not None]
    x = _concatenate(parts, place) if len(parts) > 1 else x
    front = (slice(None),) * place
    for _ in range(n):
        op = "not_equal" if x.dtype == bool else "subtract"
        x = _operators[op](x[(*front, slice(1, None))], x[(*front, slice(None, -1))])
    return x
