"""Extents as values: numbers and ranges that depend on the shapes of a traced function's operands.

e:f64[n:d,m:c] = empty[shape=(n, m) ...]       an array without entries
f:i64[] = extent[size=n]                       the number n, where it is computed with: a mean divides by it
g:i64[n:d] = range[start=0, size=n, step=1]    0, 1, ... n - 1
h:f64[n:d] = even[start=0, stop=1, size=n ...] numbers at equal distances
i:f64[n:d,n:c] = unit[shape=(n, n) k=0 ...]    ones on a diagonal
j:bool[n:d,m:r] = triangle[shape=(n, m) ...]   True on and below a diagonal, or on and above it
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core import symbolic
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive
from sparsejax.core.symbolic import SymbolicDim, length, span
from sparsejax.core.trace import current
from sparsejax.formats import Format, ingest
from sparsejax.formats.parts import diagonals
from sparsejax.formats.storage import Storage, sealed
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.elementwise import elementwise
from sparsejax.lax.structural import broadcast_to

INT64, BOOL = np.dtype(np.int64), np.dtype(np.bool_)
RUNS = diagonals.RUNS
LONG = 2**24
"""Along a longer axis no vector is made of its coordinates, where those of stored entries do."""

extent_p = Primitive(
    "extent",
    typing=lambda size: Aval((), INT64, Format(()), 0, True),
    reference=lambda size: np.int64(size),
    call=lambda out_aval, size: Storage(out_aval.format, (), out_aval.fill_value, (), np.array([size], INT64)),
)
range_p = Primitive(
    "range",
    typing=lambda start, size, step, dtype: rules.dense((size,), dtype),
    reference=lambda start, size, step, dtype: _numbers(start, size, step, dtype),
    call=lambda out_aval, start, size, step, dtype: _range(out_aval, start, size, step),
)
even_p = Primitive(
    "even",
    typing=lambda start, stop, size, endpoint, dtype: rules.dense((size,), dtype),
    reference=lambda start, stop, size, endpoint, dtype: np.linspace(start, stop, size, endpoint, dtype=dtype),
    call=lambda out_aval, start, stop, size, endpoint, dtype: Storage(
        out_aval.format, (size,), out_aval.fill_value, ((),), np.linspace(start, stop, size, endpoint, dtype=dtype)
    ),
)
empty_p = Primitive(
    "empty",
    typing=lambda shape, dtype, format, fill: Aval(shape, dtype, format, fill),
    reference=lambda shape, dtype, format, fill: np.full(shape, fill, dtype),
    call=lambda out_aval, shape, dtype, format, fill: diagonals.without_entries(shape, dtype, format, fill),
)
"""A sparse array without entries."""
unit_p = Primitive(
    "unit",
    typing=lambda shape, k, dtype, format: Aval(shape, dtype, format, dtype.type(0)),
    reference=lambda shape, k, dtype, format: np.eye(shape[0], shape[1], k, dtype),
    call=lambda out_aval, shape, k, dtype, format: unit(shape, k, dtype, format).storage,
)
"""Ones on a diagonal."""
triangle_p = Primitive(
    "triangle",
    typing=lambda shape, k, lower: Aval(shape, BOOL, RUNS, np.False_),
    reference=lambda shape, k, lower: _lower(shape, k) if lower else ~_lower(shape, k - 1),
    call=lambda out_aval, shape, k, lower: diagonals.triangle(shape, nearest(k, shape), lower),
)
"""Where a triangle is."""


def _lower(shape: tuple[int, int], k: int) -> np.ndarray[Any, Any]:
    return np.tri(shape[0], shape[1], k, dtype=bool)


def _numbers(start: int, size: int, step: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return np.arange(start, start + size * step, step).astype(dtype, copy=False)


def _range(aval: Aval, start: int, size: int, step: int) -> Storage:
    if start == 0 and step == 1 and aval.dtype == INT64 and 0 < size.bit_length() <= COUNTED:
        made = Storage(aval.format, aval.shape, aval.fill_value, ((),), _counted(size.bit_length())[:size])
        made.cache["extremes"] = 0, size - 1
        return made
    return Storage(aval.format, aval.shape, aval.fill_value, ((),), _numbers(start, size, step, aval.dtype))


COUNTED = 16
"""Bits of lengths whose numbers are the beginning of what longer ones have: nothing is made for a new length."""


@functools.cache
def _counted(bits: int) -> np.ndarray[Any, Any]:
    return sealed(np.arange(1 << bits, dtype=INT64))


def extent(size: Any) -> Any:
    """An extent as a number to compute with, weakly typed as Python's are: a traced scalar where it is not known."""
    return extent_p.bind(size=size) if isinstance(size, SymbolicDim) and current() is not None else int(size)


symbolic.set_value(extent)


def is_known(shape: Any) -> bool:
    """Whether all extents of a shape are numbers."""
    return not any(isinstance(n, SymbolicDim) for n in shape)


def number(count: Any) -> Any:
    """A count of elements as a float: a traced scalar where it is not known."""
    if not isinstance(count, SymbolicDim):
        return float(count)
    return elementwise("multiply", extent(count), 1.0)


def coordinates(chosen: Any, dtype: Any = None) -> Any:
    """The numbers of a range (`symbolic.span`) as a vector: an array of NumPy's where they are known."""
    wanted = INT64 if dtype is None else dtypes.canonical(dtype)
    if isinstance(chosen, range):
        return _numbers(chosen.start, len(chosen), chosen.step, wanted)
    return range_p.bind(start=chosen.start, size=length(chosen), step=chosen.step, dtype=wanted)


def is_long(n: Any) -> bool:
    """Whether an axis of so many coordinates is a `LONG` one: of an extent that is not known, a guard."""
    return bool(n > LONG)


def along(n: Any, axis: int, ndim: int) -> Any:
    """0, 1, ... n - 1 along one of so many axes."""
    return coordinates(span(0, n)).reshape([-1 if d == axis else 1 for d in range(ndim)])


def filled(shape: Any, value: Any, dtype: Any) -> Any:
    """A dense array of one value: one of NumPy's where the extents are known."""
    return np.full(shape, value, dtype) if is_known(shape) else broadcast_to(np.asarray(value, dtype), shape)


def empty(shape: Any, dtype: np.dtype[Any], format: Format, fill: Any) -> Any:
    """A sparse array without entries, of extents that may not be known."""
    value = ingest.fill_scalar(fill, dtype)
    if is_known(shape):
        return Array(diagonals.without_entries(shape, dtype, format, value))
    return empty_p.bind(shape=shape, dtype=dtype, format=format, fill=value)


def even(start: float, stop: float, count: Any, endpoint: bool, dtype: np.dtype[Any]) -> Any:
    """So many numbers from `start` to `stop`, or to one step before it, as `numpy.linspace` rounds them."""
    return even_p.bind(start=start, stop=stop, size=count, endpoint=endpoint, dtype=dtype)


def unit(shape: tuple[Any, Any], k: int, dtype: np.dtype[Any], format: Format) -> Any:
    """Ones on the k-th diagonal of a sparse matrix: one that is there where the extents are known."""
    if not is_known(shape):
        return unit_p.bind(shape=shape, k=k, dtype=dtype, format=format)
    return Array(diagonals.on_diagonal(np.ones(1, dtype), shape, nearest(k, shape), format))


def nearest(k: int, shape: tuple[int, ...]) -> int:
    """The k-th diagonal of a matrix, or the nearest one outside it if that is farther out.

    >>> nearest(2, (3, 3)), nearest(10**30, (3, 4)), nearest(-(10**30), (3, 4))
    (2, 4, -3)
    """
    *_, rows, columns = shape
    return min(max(k, -rows), columns)


@functools.lru_cache(maxsize=64)
def _triangle(shape: tuple[int, int], k: int, lower: bool) -> Array:
    return Array(diagonals.triangle(shape, k, lower))


def triangle(shape: tuple[Any, Any], k: int, lower: bool) -> Any:
    """A mask of the places on and below the k-th diagonal, or on and above it."""
    if not is_known(shape):
        return triangle_p.bind(shape=shape, k=k, lower=lower)
    return _triangle(shape, nearest(k, shape), lower)
