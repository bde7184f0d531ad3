"""NumPy's functions that are not elementwise: products, reductions, shapes, creation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray as _asarray
from sparsejax.formats import Format, convert, ingest
from sparsejax.lax.contract import contract as _contract
from sparsejax.lax.contract import tensordot
from sparsejax.lax.elementwise import convert_element_type as _convert_element_type
from sparsejax.lax.elementwise import elementwise as _elementwise
from sparsejax.lax.reduce import reduce as _reduce
from sparsejax.lax.structural import convert_format as _convert_format
from sparsejax.lax.structural import normal_axis as _normal_axis
from sparsejax.lax.structural import reshape, transpose

# ---------------------------------------------------------------------------------------------------------- creation


def array(
    obj: Any,
    *,
    format: str | Format | None = None,
    dtype: Any = None,
    fill_value: Any = 0,
    copy: bool | None = None,
    shape: tuple[int, ...] | None = None,
) -> Any:
    """An array from NumPy, SciPy sparse, nested lists, a number, `(data, coords)`, or buffers as a `formats.Storage`.

    `format` is a name ("dense", "csr", "csc", "coo", "dcsr", "dcsc", "csf", "ell", "dia", "banded", "bitmap", "hash", "rle", "lil"), a
    spelled format such as "(d,c,d)@(0,2,1)", or a `formats.Format`; default: dense for dense input, the source's own format for
    SciPy's, coo for `(data, coords)`.
    `fill_value` is the value of entries that are not stored. Memory is shared where dtypes and layout allow (`copy=None`: the
    source becomes read-only), always copied with `copy=True`, and never with `copy=False` (ValueError where needed).

    Raises FormatError for malformed input (indices out of bounds, a decreasing indptr, …), naming fault and position;
    unsorted entries are sorted and duplicates summed.

    >>> import sparsejax as sj
    >>> sj.array([[0, 2], [3, 0]], format="csr")
    Array(shape=(2, 2), dtype=int64, format=csr, nnz=2, density=0.5, bytes=48)
    """
    if isinstance(obj, Array) or hasattr(obj, "aval"):
        made = obj if dtype is None else astype(obj, dtype)
        return made if format is None else _convert_format(made, format)
    return Array(ingest.as_storage(obj, format, dtype, fill_value, copy, shape))


def asarray(obj: Any, dtype: Any = None) -> Any:
    """`array(obj, dtype=dtype)`; arrays pass through."""
    return array(obj, dtype=dtype)


def _filled(shape: Any, value: Any, dtype: Any) -> Any:
    made = np.full((shape,) if isinstance(shape, int) else tuple(shape), value, dtypes.canonical(dtype))
    return Array(ingest.as_storage(made))


def zeros(shape: Any, dtype: Any = float, format: str | Format | None = None) -> Any:
    """Zeros; with a sparse `format`, an array without stored entries."""
    new = (shape,) if isinstance(shape, int) else tuple(shape)
    if format is None or Format.parse(format, len(new)).is_dense:
        return _filled(new, 0, dtype)
    coords = np.empty((len(new), 0), np.int64)
    made = np.empty(0, dtypes.canonical(dtype))
    return Array(convert.from_coords(coords, made, new, Format.parse(format, len(new)), 0, canonical=True))


def ones(shape: Any, dtype: Any = float) -> Any:
    """A dense array of ones."""
    return _filled(shape, 1, dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """A dense array of one value."""
    return _filled(shape, fill_value, np.asarray(fill_value).dtype if dtype is None else dtype)


def zeros_like(x: Any, dtype: Any = None) -> Any:
    """A dense array of zeros with the shape of `x`."""
    return _filled(x.shape, 0, x.dtype if dtype is None else dtype)


def ones_like(x: Any, dtype: Any = None) -> Any:
    """A dense array of ones with the shape of `x`."""
    return _filled(x.shape, 1, x.dtype if dtype is None else dtype)


def arange(*args: Any, dtype: Any = None) -> Any:
    """`numpy.arange`."""
    return array(np.arange(*args, dtype=dtype))


def linspace(start: Any, stop: Any, num: int = 50) -> Any:
    """`numpy.linspace`."""
    return array(np.linspace(start, stop, num))


def eye(n: int, m: int | None = None, k: int = 0, dtype: Any = float, format: str | Format = "csr") -> Any:
    """Ones on the k-th diagonal, sparse (csr unless `format` says otherwise)."""
    columns = n if m is None else m
    first = max(0, -k)
    count = max(0, min(n - first, columns - max(0, k)))
    rows = np.arange(first, first + count, dtype=np.int64)
    coords = np.stack([rows, rows + k])
    values = np.ones(count, dtypes.canonical(dtype))
    return Array(convert.from_coords(coords, values, (n, columns), Format.parse(format, 2), 0))


# ---------------------------------------------------------------------------------------------------------- products


def dot(a: Any, b: Any) -> Any:
    """NumPy's dot: scalars multiply, else the last axis of `a` meets the last but one of `b`."""
    a, b = _asarray(a), _asarray(b)
    if not a.ndim or not b.ndim:
        return _elementwise("multiply", a, b)
    return tensordot(a, b, ((a.ndim - 1,), (max(0, b.ndim - 2),)))


def vdot(a: Any, b: Any) -> Any:
    """The sum of conj(a) * b over flattened operands."""
    a, b = _asarray(a), _asarray(b)
    return tensordot(_elementwise("conjugate", ravel(a)), ravel(b), 1)


def inner(a: Any, b: Any) -> Any:
    """The sum over the last axes of both."""
    a, b = _asarray(a), _asarray(b)
    if not a.ndim or not b.ndim:
        return _elementwise("multiply", a, b)
    return tensordot(a, b, ((a.ndim - 1,), (b.ndim - 1,)))


def outer(a: Any, b: Any) -> Any:
    """All products of two flattened operands."""
    return tensordot(ravel(a), ravel(b), 0)


def trace(x: Any, axis1: int = 0, axis2: int = 1) -> Any:
    """The sum of the diagonal."""
    return diagonal(x, axis1, axis2).sum(axis=-1)


def diagonal(x: Any, axis1: int = 0, axis2: int = 1) -> Any:
    """The main diagonal of two axes, as the last axis."""
    x = _asarray(x)
    first, second = (_normal_axis(a, x.ndim) for a in (axis1, axis2))
    count = min(x.shape[first], x.shape[second])
    if x.shape[first] != x.shape[second]:
        raise ValueError(
            f"diagonal of axes of extents {x.shape[first]} and {x.shape[second]}: only square ones, {count} != both"
        )
    labels = list(range(x.ndim))
    labels[second] = labels[first]
    kept = [k for k in range(x.ndim) if k not in (first, second)]
    return _contract([x], [labels], [*kept, first])


# ------------------------------------------------------------------------------------------------- shapes and types


def astype(x: Any, dtype: Any) -> Any:
    """`x` with values of `dtype`."""
    return _convert_element_type(_asarray(x), dtype)


def ravel(x: Any) -> Any:
    """`x` flattened in row-major order."""
    return reshape(x, (-1,)) if _asarray(x).size else reshape(x, (0,))


def expand_dims(x: Any, axis: Any) -> Any:
    """`x` with axes of extent one inserted."""
    x = _asarray(x)
    axes = axis if isinstance(axis, tuple) else (axis,)
    ndim = x.ndim + len(axes)
    placed = {_normal_axis(a, ndim) for a in axes}
    rest = iter(x.shape)
    return reshape(x, [1 if k in placed else next(rest) for k in range(ndim)])


def squeeze(x: Any, axis: Any = None) -> Any:
    """`x` without axes of extent one."""
    x = _asarray(x)
    chosen = (
        [k for k, n in enumerate(x.shape) if n == 1] if axis is None else axis if isinstance(axis, tuple) else (axis,)
    )
    axes = {_normal_axis(a, x.ndim) for a in chosen}
    for k in axes:
        if x.shape[k] != 1:
            raise ValueError(
                f"cannot select an axis to squeeze out which has size not equal to one: axis {k} has {x.shape[k]}"
            )
    return reshape(x, [n for k, n in enumerate(x.shape) if k not in axes])


def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """`numpy.moveaxis`."""
    x = _asarray(x)
    old = [_normal_axis(a, x.ndim) for a in (source if isinstance(source, Sequence) else [source])]
    new = [_normal_axis(a, x.ndim) for a in (destination if isinstance(destination, Sequence) else [destination])]
    order = [k for k in range(x.ndim) if k not in old]
    for place, axis in sorted(zip(new, old, strict=True)):
        order.insert(place, axis)
    return transpose(x, order)


def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """`numpy.swapaxes`."""
    x = _asarray(x)
    order = list(range(x.ndim))
    first, second = (_normal_axis(a, x.ndim) for a in (axis1, axis2))
    order[first], order[second] = order[second], order[first]
    return transpose(x, order)


def clip(x: Any, a_min: Any = None, a_max: Any = None) -> Any:
    """`x` limited to [a_min, a_max]; None leaves a side open."""
    if a_min is not None:
        x = _elementwise("maximum", x, a_min)
    return x if a_max is None else _elementwise("minimum", x, a_max)


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Any:
    """Whether entries agree within `atol + rtol * |b|`; equal infinities do, NaN never does."""
    apply = _elementwise
    near = apply(
        "less_equal",
        apply("absolute", apply("subtract", a, b)),
        apply("add", apply("multiply", apply("absolute", b), rtol), atol),
    )
    return apply("logical_or", apply("logical_and", near, apply("isfinite", b)), apply("equal", a, b))


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Any:
    """Whether all entries agree; see `isclose`."""
    return _reduce("all", isclose(a, b, rtol, atol))


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
