"""NumPy's functions that are not elementwise: triangles and diagonals, shapes and types, comparisons of arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.again import again
from sparsejax.core.array import Array, made
from sparsejax.core.primitive import asarray as _asarray
from sparsejax.core.symbolic import SymbolicDim
from sparsejax.core.trace import Tracer, current
from sparsejax.formats import Format, convert, passes
from sparsejax.formats.ordering import CROWDED
from sparsejax.formats.parts import diagonals
from sparsejax.formats.parts.lines import sifted
from sparsejax.formats.parts.triangles import triangle
from sparsejax.lax import extents as sizes
from sparsejax.lax.contract import contract, tensordot
from sparsejax.lax.elementwise import aval_of as _aval_of
from sparsejax.lax.elementwise import convert_element_type as _convert_element_type
from sparsejax.lax.elementwise import elementwise as _elementwise
from sparsejax.lax.elementwise import strong as _strong
from sparsejax.lax.reduce import reduce as _reduce
from sparsejax.lax.reduce import result_dtype as _result_dtype
from sparsejax.lax.sorting import places
from sparsejax.lax.structural import broadcast_to, diagonal, refill, reshape, transpose
from sparsejax.lax.structural import extents as _extents
from sparsejax.lax.structural import integer as _integer
from sparsejax.lax.structural import normal_axes as _normal_axes
from sparsejax.lax.structural import normal_axis as _normal_axis
from sparsejax.lax.thinning import prune
from sparsejax.numpy.elementwise import operators as _operators
from sparsejax.numpy.making import array, check_device, eye, own


def _has_few_entries(x: Array) -> bool:
    """Whether a sparse array over zero stores fewer entries than its matrices have rows, and no level has a position for each of these."""
    return _lists_rows(x) and x.shape[-2] > max(passes.MANY, CROWDED * x.nnz)


def _lists_rows(x: Any) -> bool:
    """Whether a sparse array over zero stores the rows and the columns of its matrices that have entries alone."""
    form = x.format
    plain = not (form.is_dense or form.blocked or x.fill_value)
    return plain and not any(form.levels[form.order.index(d)].full for d in (x.ndim - 2, x.ndim - 1))


def _by_places(x: Any, k: int, lower: bool) -> Any:
    """The part of a sparse array by what its entries' coordinates are, without a mask for its rows."""
    apart = _elementwise("subtract", places(x, x.ndim - 1), places(x, x.ndim - 2))
    there = _elementwise("less_equal" if lower else "greater_equal", apart, min(max(k, -(2**62)), 2**62))
    return prune(x, predicate=refill(there, False))


def _part(name: str, x: Any, k: int, lower: bool) -> Any:
    x = _asarray(x)
    if not x.ndim:
        raise ValueError(f"{name} takes an array of one dimension or more, not one of shape ()")
    k = _integer(k, "k")
    if x.ndim == 1:  # a row of each
        x = broadcast_to(x, (x.shape[0], x.shape[0]))
    if type(x) is Array and current() is None:
        k = sizes.nearest(k, x._aval.shape)
        if _has_few_entries(x):
            return Array(
                sifted(
                    x._storage,
                    lambda coords: (coords[-1] - coords[-2] <= k) if lower else (coords[-1] - coords[-2] >= k),
                )
            )
        found = triangle(x._storage, k, lower)
        if found is not None:
            return made(found, x._aval.strong())
    if _lists_rows(x) and sizes.is_long(x.shape[-2]):
        return _by_places(x, k, lower)
    few = type(x) is Array and len(x._storage.vals) < passes.MANY  # which two more operations would be noticed beside
    if not (few or x.format.is_dense or x.format.blocked or x.fill_value):
        order, last = x.format.order, x.ndim - 1
        if order.index(last) < order.index(last - 1):  # columns that list their rows
            if last == 1:
                return _part(name, x.T, -k, not lower).T
            return swapaxes(_part(name, swapaxes(x, last, last - 1), -k, not lower), last, last - 1)
    mask = sizes.triangle(x.shape[-2:], k, lower)
    labels = range(x.ndim)
    form = x.format if x.format.is_dense or x.fill_value == 0 else None
    return contract([x], [labels], labels, form, x.dtype, mask=mask)


def tril(x: Any, k: int = 0) -> Array:
    """`numpy.tril`: the entries on and below the k-th diagonal of the last two axes, in the format of `x`; nothing elsewhere.

    Under a mask of one run per row: O(stored entries and rows); outside `jit`, what has more rows than entries is sifted entry by entry.
    An `x` whose fill is not zero is stored there, at every place.

    >>> import sparsejax as sj
    >>> tril(sj.array(np.array([[1, 2], [3, 4]]), format="csr")).todense()
    array([[1, 0],
           [3, 4]])
    """
    return _part("tril", x, k, True)


def triu(x: Any, k: int = 0) -> Array:
    """`numpy.triu`: the entries on and above the k-th diagonal of the last two axes; see `tril`.

    >>> import sparsejax as sj
    >>> triu(sj.array(np.array([[1, 2], [3, 4]]), format="csr"), 1).todense()
    array([[0, 2],
           [0, 0]])
    """
    return _part("triu", x, k, False)


def diag(x: Any, k: int = 0) -> Array:
    """The k-th diagonal of a matrix, or the sparse matrix with the vector `x` on its k-th diagonal (csr; coo of a sparse vector
    of more than 2^24 entries).

    >>> diag(np.array([1.0, 2.0])).todense()
    array([[1., 0.],
           [0., 2.]])
    """
    x, k = _asarray(x), _integer(k, "k")
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ValueError(f"diag takes a vector or a matrix, not an array of shape {x.shape}")
    (n,) = x.shape
    total, _ = _extents((n + abs(k),) * 2)
    if type(x) is Array and current() is None and x.format.is_dense:
        return Array(diagonals.on_diagonal(x._storage.vals, (total, total), k, Format.parse("csr", 2)))
    if type(x) is Array and current() is None and sizes.is_long(total) and not x.fill_value:
        (places,), values = convert.to_coords(x._storage)
        coords = (places + max(0, -k), places + max(0, k))
        return Array(convert.from_coords(coords, values, (total, total), Format.parse("coo", 2), x.fill_value))
    # the rows that have an entry: row i holds x[i]; then these rows are put where they belong
    placed = _elementwise("multiply", reshape(x, (n, 1)), eye(n, total, max(0, k), dtype=bool))
    return placed if total == n else tensordot(eye(total, n, min(0, k), dtype=x.dtype), placed, 1)


@again(1, whole=True)
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Array:
    """The sum of a diagonal; see `diagonal`. The main one of a square matrix that is there is looked up row by row; others are selected first,
    of products computed alone."""
    x = _asarray(x)
    made = isinstance(x, Tracer) and any(x.variable in e.outputs for e in x.maker.eqns)
    if x.ndim >= 2 and offset == 0 and not made and not x.fill_value:
        first, second = _normal_axis(axis1, x.ndim), _normal_axis(axis2, x.ndim)
        if first != second and x.shape[first] == x.shape[second]:
            axes = [first if d == second else d for d in range(x.ndim)]
            kept = [d for d in range(x.ndim) if d not in (first, second)]
            return contract([_convert_element_type(x, _result_dtype("sum", x.dtype, dtype))], [axes], kept)
    return _reduce("sum", diagonal(x, offset, axis1, axis2), -1, dtype)


# ------------------------------------------------------------------------------------------------- shapes and types


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    """`x` with values of `dtype`; arrays never change, so nothing is copied where it has that dtype, whatever `copy` says."""
    check_device(device)
    return _convert_element_type(_asarray(x), dtype)


def ravel(x: Any, order: str = "C") -> Array:
    """`x` flattened in row-major order (column-major with `order="F"`)."""
    if order not in ("C", "F", "A", "K"):
        raise ValueError(f"order={order!r} must be 'C', 'F', 'A' or 'K'")
    x = transpose(x) if order == "F" else _asarray(x)
    return reshape(x, (-1,)) if x.size else reshape(x, (0,))


def copy(x: Any) -> Array:
    """`x` in memory of its own."""
    return array(x, copy=True)


def expand_dims(x: Any, axis: Any) -> Array:
    """`x` with axes of extent one inserted."""
    x = _asarray(x)
    ndim = x.ndim + (len(axis) if isinstance(axis, tuple | list) else 1)
    placed = _normal_axes(axis, ndim)
    rest = iter(x.shape)
    return reshape(x, [1 if k in placed else next(rest) for k in range(ndim)])


def squeeze(x: Any, axis: Any = None) -> Array:
    """`x` without axes of extent one."""
    x = _asarray(x)
    axes = [k for k, n in enumerate(x.shape) if n == 1] if axis is None else _normal_axes(axis, x.ndim)
    for k in axes:
        if x.shape[k] != 1:
            raise ValueError(
                f"cannot select an axis to squeeze out which has size not equal to one: axis {k} has {x.shape[k]}"
            )
    return reshape(x, [n for k, n in enumerate(x.shape) if k not in axes])


def moveaxis(x: Any, source: Any, destination: Any) -> Array:
    """`numpy.moveaxis`."""
    x = _asarray(x)
    old, new = _normal_axes(source, x.ndim, "source"), _normal_axes(destination, x.ndim, "destination")
    if len(old) != len(new):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [k for k in range(x.ndim) if k not in old]
    for place, axis in sorted(zip(new, old, strict=True)):
        order.insert(place, axis)
    return transpose(x, order)


def swapaxes(x: Any, axis1: int, axis2: int) -> Array:
    """`numpy.swapaxes`."""
    x = _asarray(x)
    order = list(range(x.ndim))
    first, second = _normal_axis(axis1, x.ndim, "axis1"), _normal_axis(axis2, x.ndim, "axis2")
    order[first], order[second] = order[second], order[first]
    return transpose(x, order)


@again(1)
def clip(x: Any, /, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None) -> Array:
    """`x` limited to [min, max], also called a_min and a_max; None leaves a side open, and so does a Python integer beyond the dtype of `x`.

    All three are promoted together.

    >>> import sparsejax as sj
    >>> clip(sj.array([[0, 9], [-3, 0]], format="csr"), -1, 2).todense()
    array([[ 0,  2],
           [-1,  0]])
    """
    a_min, a_max = a_min if min is None else min, a_max if max is None else max
    known = _aval_of(x)
    if known.dtype.kind in "iu" and not known.weak_type:
        limits = np.iinfo(known.dtype)
        a_min = None if type(a_min) in (int, SymbolicDim) and a_min <= int(limits.min) else a_min
        a_max = None if type(a_max) in (int, SymbolicDim) and a_max >= int(limits.max) else a_max
    if a_min is not None and a_max is not None and not known.weak_type:
        types = [known, *map(_aval_of, (a_min, a_max))]
        x = _convert_element_type(x, dtypes.result_type(*((t.dtype, t.weak_type) for t in types)))
    if a_min is not None:
        x = _operators["maximum"](x, a_min)
    return _strong(x if a_max is None else _operators["minimum"](x, a_max))


@again(1, whole=True)
def round(x: Any, decimals: int = 0) -> Array:
    """`x` rounded to `decimals` places after the point (before it, where negative), halves to even, as `numpy.round`."""
    x, places = _asarray(x), _integer(decimals, "decimals")
    exact = x.dtype.kind not in "fc"
    if exact and places >= 0:
        return _elementwise("rint", x) if x.dtype.kind == "b" else _strong(x)
    there, back = ("multiply", "divide") if places >= 0 else ("divide", "multiply")
    scale = float(10 ** abs(places))
    made = _elementwise("rint", _elementwise(there, x, scale) if places else x)
    made = _elementwise(back, made, scale) if places else made
    return _convert_element_type(made, x.dtype)


@again(2, whole=True)
def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Whether entries agree within `atol + rtol * |b|`; equal infinities do, NaN does with NaN for `equal_nan`. Integers and booleans are
    compared as float64."""
    if equal_nan:
        both = _elementwise("logical_and", _elementwise("isnan", a), _elementwise("isnan", b))
        return _elementwise("logical_or", isclose(a, b, rtol, atol), both)
    apply = _elementwise
    known = isinstance(b, bool | int | float | complex | np.generic)
    if known:
        b = np.float64(b) if np.asarray(b).dtype.kind in "biu" else np.asarray(b)[()]
    elif _aval_of(b).dtype.kind in "biu":
        b = _convert_element_type(b, float)
    bound = atol + rtol * abs(b) if known else apply("add", apply("multiply", apply("absolute", b), rtol), atol)
    near = apply("less_equal", apply("absolute", apply("subtract", a, b)), bound)
    finite = bool(np.isfinite(b)) if known else apply("isfinite", b)
    return apply("logical_or", apply("logical_and", near, finite), apply("equal", a, b))


@again(2, whole=True)
def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Whether all entries agree; see `isclose`."""
    return _reduce("all", isclose(a, b, rtol, atol, equal_nan))


@again(2, whole=True)
def array_equal(a: Any, b: Any, equal_nan: bool = False) -> Array:
    """Whether two arrays have one shape and equal entries, NaN being equal to NaN with `equal_nan`.

    >>> array_equal(np.array([1, 2]), [1, 2])
    Array(True, dtype=bool)
    """
    a, b = _asarray(a), _asarray(b)
    if a.shape != b.shape:
        return own(np.asarray(False))
    same = _elementwise("equal", a, b)
    if equal_nan and a.dtype.kind in "fc" and b.dtype.kind in "fc":
        same = _elementwise(
            "logical_or", same, _elementwise("logical_and", *(_elementwise("isnan", x) for x in (a, b)))
        )
    return _reduce("all", same)


def size(x: Any) -> int:
    """The number of entries, stored or not."""
    return math.prod(x.shape)


def shape(x: Any) -> tuple[int, ...]:
    """The shape of `x`."""
    found: tuple[int, ...] = _asarray(x).shape
    return found


def ndim(x: Any) -> int:
    """The number of dimensions of `x`."""
    return len(shape(x))
