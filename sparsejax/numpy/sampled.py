"""NumPy's functions of samples: differences, integrals, convolutions. Differences and integrals of sparse arrays are sparse."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import span
from sparsejax.core.trace import is_python_scalar
from sparsejax.lax.contract import matmul
from sparsejax.lax.elementwise import convert_element_type, elementwise
from sparsejax.lax.extents import coordinates
from sparsejax.lax.indexing import concatenate
from sparsejax.lax.structural import check_dense, normal_axes, normal_axis, reshape
from sparsejax.numpy import reductions
from sparsejax.numpy.indexing import flip, getitem
from sparsejax.numpy.manipulation import pad


def _sum(*parts: Any) -> Any:
    made = parts[0]
    for part in parts[1:]:
        made = elementwise("add", made, part)
    return made


def _of_axis(x: Any, place: int, part: slice) -> Any:
    return getitem(x, (*[slice(None)] * place, part))


def _distances(given: Any, n: int, place: int, ndim: int, name: str) -> Any:
    """Distances between neighbours along an axis: a number, or an array that broadcasts. Python's numbers stay what they are."""
    if is_python_scalar(given):
        return given
    given = asarray(given)
    if not given.ndim:
        return given
    if given.ndim != 1 or given.shape[0] != n:
        raise ValueError(
            f"{name} of shape {given.shape} must be a number, or a vector of the {n} coordinates along axis {place}"
        )
    apart = reductions.diff(given if given.dtype.kind in "fc" else convert_element_type(given, float))
    return reshape(apart, [-1 if d == place else 1 for d in range(ndim)])


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """`numpy.gradient`: central differences along every axis (or those of `axis`), one-sided ones at the ends; a tuple for several axes.
    The dtype is that of `f`, float64 for integers.

    `varargs` are distances between samples, or the coordinates of the samples, one for all axes or one for each.

    >>> gradient(np.array([1.0, 2.0, 4.0, 7.0]))
    Array([1. , 1.5, 2.5, 3. ], dtype=float64)
    """
    f = asarray(f)
    if f.dtype.kind == "b":
        raise TypeError("gradient takes no booleans, which cannot be subtracted: f.astype(int) has numbers")
    if f.dtype.kind not in "fc":
        f = convert_element_type(f, float)
    axes = tuple(range(f.ndim)) if axis is None else normal_axes(axis, f.ndim)
    if len(varargs) not in (0, 1, len(axes)):
        raise TypeError(
            f"gradient takes one spacing for all axes, or one for each of the {len(axes)} axes, not {len(varargs)}"
        )
    if edge_order not in (1, 2):
        raise ValueError(f"edge_order={edge_order} is not known; it is 1 or 2")
    spacings = varargs if len(varargs) == len(axes) else (varargs or (1.0,)) * len(axes)
    each = (_gradient(f, h, d, edge_order) for h, d in zip(spacings, axes, strict=True))
    made = tuple(convert_element_type(x, f.dtype) for x in each)
    return made if np.iterable(axis) or len(made) != 1 else made[0]


def _gradient(f: Any, spacing: Any, place: int, edge_order: int) -> Any:
    n = f.shape[place]
    if n < edge_order + 1:
        raise ValueError(
            f"axis {place} has {n} samples; differences with edge_order={edge_order} need {edge_order + 1}"
        )
    apart = _distances(spacing, n, place, f.ndim, "a spacing")
    varies = np.ndim(apart) > 0

    def at(k: int | None, stop: int | None = None) -> Any:
        return _of_axis(f, place, slice(k, stop))

    def step(k: int) -> Any:
        return _of_axis(apart, place, slice(k, k + 1 if k != -1 else None)) if varies else apart

    def weighted(*terms: tuple[Any, Any]) -> Any:
        return _sum(*(elementwise("multiply", value, weight) for value, weight in terms))

    ends: list[Any] = []
    if edge_order == 1:
        ends.append(elementwise("divide", elementwise("subtract", at(1, 2), at(0, 1)), step(0)))
        ends.append(elementwise("divide", elementwise("subtract", at(-1), at(-2, -1)), step(-1)))
    else:
        for first, second, order in (
            (step(0), step(1 if varies else 0), (0, 1, 2)),
            (step(-1), step(-2), (-1, -2, -3)),
        ):
            sign = 1.0 if order[0] == 0 else -1.0
            both = first + second
            weights = (-(2.0 * first + second) / (first * both), both / (first * second), -first / (second * both))
            values = [at(k, k + 1 if k != -1 else None) for k in order]
            ends.append(weighted(*((v, sign * w) for v, w in zip(values, weights, strict=True))))
    if n == 2:
        return concatenate(ends, place)
    if varies:
        one, two = _of_axis(apart, place, slice(None, -1)), _of_axis(apart, place, slice(1, None))
        both = one + two
        inner = weighted(
            (at(None, -2), -two / (one * both)), (at(1, -1), (two - one) / (one * two)), (at(2), one / (two * both))
        )
    else:
        inner = elementwise("divide", elementwise("subtract", at(2), at(None, -2)), 2.0 * apart)
    return concatenate([ends[0], inner, ends[1]], place)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Array:
    """`numpy.trapezoid`: the integral along `axis` of samples at `x`, or at distances `dx`.

    >>> trapezoid(np.array([1.0, 2.0, 4.0]))
    Array(4.5, dtype=float64)
    """
    y = asarray(y)
    place = normal_axis(axis, y.ndim)
    if x is not None and np.ndim(x) > 1:
        apart = reductions.diff(x, axis=axis)
    elif x is not None:
        apart = _distances(x, y.shape[place], place, y.ndim, "x")
    elif is_python_scalar(dx):
        apart = dx
    else:
        apart = asarray(dx)
        if apart.ndim == 1:
            apart = reshape(apart, [-1 if d == place else 1 for d in range(y.ndim)])
    pairs = elementwise("add", _of_axis(y, place, slice(1, None)), _of_axis(y, place, slice(None, -1)))
    return reductions.sum(elementwise("divide", elementwise("multiply", pairs, apart), 2.0), place)


def convolve(a: Any, v: Any, mode: str = "full") -> Array:
    """`numpy.convolve` of two vectors, sparse ones too: dense, O(length of the longer one times length of the shorter one).

    >>> convolve(np.array([1, 2, 3]), np.array([0, 1, 10]))
    Array([ 0,  1, 12, 23, 30], dtype=int64)
    """
    a, v = _vectors("convolve", a, v)
    if v.shape[0] > a.shape[0]:
        a, v = v, a
    return _slid(a, flip(v), mode)


def correlate(a: Any, v: Any, mode: str = "valid") -> Array:
    """`numpy.correlate` of two vectors: the sums of `a[n + k] * conjugate(v[n])`.

    >>> correlate(np.array([1, 2, 3]), np.array([0, 1, 10]), "full")
    Array([10, 21, 32,  3,  0], dtype=int64)
    """
    a, v = _vectors("correlate", a, v)
    return _slid(a, elementwise("conjugate", v) if v.dtype.kind == "c" else v, mode)


def _vectors(name: str, a: Any, v: Any) -> tuple[Any, Any]:
    found = [reshape(x, (1,)) if not x.ndim else x for x in map(asarray, (a, v))]
    for which, x in zip(("a", "v"), found, strict=True):
        if x.ndim != 1 or not x.shape[0]:
            raise ValueError(f"{which} of {name} has shape {x.shape}; it must be a vector of one entry at least")
    return found[0], found[1]


def _slid(a: Any, v: Any, mode: str) -> Any:
    """The sums of products of `v` and what lies under it, as it moves along `a`: out[i] = sum of a[i + k] * v[k]."""
    check_dense(a, "convolve or correlate")
    n, m = a.shape[0], v.shape[0]
    if mode not in ("full", "same", "valid"):
        raise ValueError(f'mode={mode!r} is not known; it is "full", "same" or "valid"')
    if m > n:  # the other way round, from the end
        return flip(_slid(v, a, mode))
    before = {"full": m - 1, "same": m // 2, "valid": 0}[mode]
    after = {"full": m - 1, "same": (m - 1) // 2, "valid": 0}[mode]
    count = n - m + 1 + before + after
    wide = pad(a, (before, after)) if before or after else a
    places = asarray(coordinates(span(0, count)))
    lines = reshape(places, (-1, 1)) + asarray(coordinates(span(0, m)))
    return matmul(getitem(wide, lines), v)
