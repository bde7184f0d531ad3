"""NumPy's functions that are not elementwise: products, reductions, shapes, creation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import dtypes
from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.array import made as _made
from sparsejax.core.avals import Aval, ShapeDtypeStruct
from sparsejax.core.methods import DEVICE, ArrayBase
from sparsejax.core.primitive import asarray as _asarray
from sparsejax.core.symbolic import SymbolicDim, span
from sparsejax.core.trace import Tracer, current
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, ingest, passes, structural
from sparsejax.formats.ordering import CROWDED
from sparsejax.formats.ownership import refuse_copy
from sparsejax.formats.parts import constant, diagonals
from sparsejax.formats.parts.lines import sifted
from sparsejax.formats.storage import Storage
from sparsejax.lax import extents as sizes
from sparsejax.lax.contract import contract, tensordot
from sparsejax.lax.elementwise import aval_of as _aval_of
from sparsejax.lax.elementwise import check_fits as _check_fits
from sparsejax.lax.elementwise import convert_element_type as _convert_element_type
from sparsejax.lax.elementwise import elementwise as _elementwise
from sparsejax.lax.elementwise import strong as _strong
from sparsejax.lax.reduce import reduce as _reduce
from sparsejax.lax.reduce import result_dtype as _result_dtype
from sparsejax.lax.structural import broadcast_to, diagonal, refill, reshape, transpose
from sparsejax.lax.structural import convert_format as _convert_format
from sparsejax.lax.structural import extents as _extents
from sparsejax.lax.structural import integer as _integer
from sparsejax.lax.structural import normal_axes as _normal_axes
from sparsejax.lax.structural import normal_axis as _normal_axis
from sparsejax.numpy.elementwise import operators as _operators
from sparsejax.numpy.indexing import stack
from sparsejax.numpy.updates import At

# ---------------------------------------------------------------------------------------------------------- creation


def array(
    obj: Any,
    dtype: Any = None,
    *,
    copy: bool | None = True,
    format: str | Format | None = None,
    fill_value: Any = None,
    shape: tuple[int, ...] | None = None,
    device: Any = None,
) -> Array:
    """An array in memory of its own, from NumPy, SciPy sparse, nested lists, a number, `(data, coords)`, one of our arrays, or buffers
    as a `formats.Storage`. The source stays as it is, as with `numpy.array`; `asarray` shares its memory.

    `format` is a name ("dense", "csr", "csc", "coo", "dcsr", "dcsc", "csf", "ell", "dia", "banded", "bitmap", "hash", "rle", "lil", "bsr:2x3",
    "groupcoo:4"), a spelled format such as "(d,c,d)@(0,2,1)", or a `formats.Format`; default: dense for dense input, the source's own format for
    SciPy's, coo for `(data, coords)`.
    `fill_value` is the value of entries that are not stored (0 unless given). `copy` other than True is that of `asarray`.

    One of our own arrays keeps its values and, unless `format` or `fill_value` say otherwise, its format and fill.

    Raises FormatError for malformed input (indices out of bounds, a decreasing indptr, …), naming fault and position;
    unsorted entries are sorted and duplicates summed. Coordinates that are traced are indices as those of `at`: negative ones count from
    the end, others outside are an IndexError. ValueError for a `device` other than "cpu". Linear in the input.

    >>> import sparsejax as sj
    >>> sj.array([[0, 2], [3, 0]], format="csr")
    Array({(0, 1): 2, (1, 0): 3},
          shape=(2, 2), dtype=int64, format=csr, nnz=2, density=0.5, bytes=48)
    """
    if device is not None:
        check_device(device)
    if isinstance(obj, Array):
        return _again(obj, format, dtype, fill_value, copy, shape)
    if isinstance(obj, Tracer):
        return _traced(obj, format, dtype, fill_value, shape)
    if isinstance(obj, ShapeDtypeStruct):
        raise TypeError("a ShapeDtypeStruct is a type without data; an array cannot be made of it")
    if isinstance(obj, list | tuple) and _holds(obj, ArrayBase):
        return _of_arrays(obj, format, dtype, fill_value, shape)
    storage = ingest.as_storage(obj, format, dtype, 0 if fill_value is None else fill_value, copy, shape)
    return _made(storage, Aval.of(storage.shape, storage.vals.dtype, storage.format, storage.fill_value))


def check_device(device: Any) -> None:
    """ValueError for a device other than "cpu", the only one there is, or None."""
    if device is not None and device != DEVICE:
        raise ValueError(f"device={device!r} is not known here; arrays are on the device {DEVICE!r}")


def _holds(parts: Any, kind: type) -> bool:
    return any(isinstance(x, kind) or (isinstance(x, list | tuple) and _holds(x, kind)) for x in parts)


def _of_arrays(parts: Any, format: Any, dtype: Any, fill_value: Any, shape: Any) -> Any:
    """Of nested lists that hold our arrays, or of `(data, coords)` that are our arrays."""
    if _is_pair(parts):
        if _holds(parts, Tracer):
            return _placed(parts[0], parts[1], format, dtype, fill_value, shape)
        data, coords = ([_whole(x) for x in p] if isinstance(p, list | tuple) else _whole(p) for p in parts)
        return array((np.asarray(data), coords), dtype, format=format, fill_value=fill_value, shape=shape)
    made = _stacked(parts)
    if isinstance(made, Tracer):
        return _traced(made, format, dtype, fill_value, shape)
    return _again(made, format, dtype, fill_value, None, shape)


def _whole(part: Any) -> NDArray[Any]:
    """Data or coordinates as a NumPy array: one for each entry, those that a sparse array, such as `A[A > 0]`, does not store among them."""
    return part.todense() if isinstance(part, Array) else np.asarray(part)


def _is_pair(parts: Any) -> bool:
    """Whether a tuple of arrays is (data, coords): a vector, and a vector of the same length per axis. Two vectors are rows of a matrix."""
    if not isinstance(parts, tuple) or len(parts) != 2 or np.ndim(parts[0]) != 1:
        return False
    data, coords = parts
    if not isinstance(coords, tuple | list) and getattr(coords, "ndim", 0) != 2:
        return False
    return len(coords) > 0 and all(np.shape(c) == np.shape(data) for c in coords)


def _placed(data: Any, coords: Any, format: Any, dtype: Any, fill_value: Any, shape: Any) -> Any:
    """Traced values at coordinates, added up where these agree: differentiable, so that a matrix that is assembled has derivatives."""
    columns = [c if isinstance(c, Tracer) else np.asarray(c) for c in coords]
    if shape is None:
        if _holds(columns, Tracer):
            raise TypeError("shape must be given where coordinates are traced: the shape of an array is known")
        shape = [int(np.max(c)) + 1 if len(c) else 0 for c in columns]
    values = _asarray(data) if dtype is None else astype(data, dtype)
    wanted = "coo" if format is None else format
    nothing = zeros(shape, values.dtype, wanted if fill_value is None else "coo")
    made = At(nothing)[tuple(columns)].add(values)
    if fill_value is None:
        return made
    # before the format, which may store more places than the entries
    made = refill(made, ingest.fill_scalar(fill_value, made.dtype))
    return _convert_format(made, wanted)


def _stacked(parts: Any) -> Any:
    return stack([_stacked(x) if isinstance(x, list | tuple) else _asarray(x) for x in parts])


def _again(obj: Array, format: Any, dtype: Any, fill_value: Any, copy: bool | None, shape: Any) -> Array:
    """An array of the same values as an array of ours."""
    made = storage = obj._storage
    wanted = obj.dtype if dtype is None else dtypes.canonical(dtype)
    form = obj.format if format is None else Format.parse(format, obj.ndim)
    if shape is not None and _extents(shape) != obj.shape:
        raise FormatError(f"shape={shape} is given, but the data has shape {obj.shape}")
    if wanted != obj.dtype:
        refuse_copy(copy, f"the source has dtype {obj.dtype} and dtype={wanted} is asked for")
        made = ingest.astype(made, wanted)
    fill = made.fill_value if fill_value is None else ingest.fill_scalar(fill_value, wanted)
    if not obj.format.is_dense and not structural.same_bits(fill, made.fill_value):
        raise FormatError(
            f"fill_value={fill_value!r} differs from the fill {made.fill_value} of a sparse array, whose values would change; "
            'convert it with .asformat("dense") first to keep them, or use sparsejax.lax.structural.refill to change them'
        )
    if form != obj.format:
        refuse_copy(copy, f"the source is stored as {obj.format} and format={form} is asked for")
        made = convert.convert(structural.refill(made, fill), form)
        made = structural.refill(made, 0) if form.is_dense else made
    if copy and made is storage:
        buffers = tuple(tuple(map(_copied, level)) for level in made.buffers)
        made = Storage(made.format, made.shape, made.fill_value, buffers, _copied(made.vals))
    return obj if made is storage else Array(made)


def _copied(buffer: NDArray[Any]) -> NDArray[Any]:
    """A buffer in memory of its own."""
    many = len(buffer) >= passes.MANY
    return passes.over(len(buffer)).strung([buffer], None, buffer.dtype) if many else buffer.copy()


def _traced(obj: Tracer, format: Any, dtype: Any, fill_value: Any, shape: Any) -> Any:
    made = _asarray(obj) if dtype is None else astype(obj, dtype)
    if shape is not None and _extents(shape) != made.shape:
        raise FormatError(f"shape={tuple(shape)} is given, but the data has shape {made.shape}")
    if fill_value is not None and not structural.same_bits(ingest.fill_scalar(fill_value, made.dtype), made.fill_value):
        raise FormatError(f"fill_value={fill_value!r} differs from the fill {made.fill_value} of a traced value")
    return made if format is None else _convert_format(made, format)


def asarray(
    obj: Any,
    /,
    dtype: Any = None,
    *,
    copy: bool | None = None,
    format: str | Format | None = None,
    fill_value: Any = None,
    shape: tuple[int, ...] | None = None,
    device: Any = None,
) -> Array:
    """`array` over the memory of NumPy's and SciPy's arrays, where dtypes and layout allow; our own arrays pass through.

    Memory that is shared becomes **read-only**, since arrays never change: this function alone does that. Views that were made of it
    before can still write to it, which must not happen. With `copy=None` what cannot be shared, or is only a part of the memory of
    another array, is copied; with `copy=False` that is a ValueError; with `copy=True` everything is copied.

    >>> x = np.arange(3.0)
    >>> y = asarray(x)
    >>> np.shares_memory(y.todense(), x), x.flags.writeable
    (True, False)
    """
    return array(obj, dtype, copy=copy, format=format, fill_value=fill_value, shape=shape, device=device)


def own(values: NDArray[Any]) -> Array:
    """A dense array over the memory of a NumPy array that nobody else has."""
    return Array(ingest.as_storage(values))


def _filled(shape: Any, value: Any, dtype: Any, format: Any = None, device: Any = None) -> Any:
    check_device(device)
    new, wanted = _extents(shape), dtypes.canonical(dtype)
    _check_fits(value, wanted)
    sparse = format is not None and not Format.parse(format, len(new)).is_dense
    if isinstance(value, Tracer):
        if sparse:
            raise FormatError("the fill of a sparse array must be known: a traced value makes a dense array")
        return broadcast_to(_convert_element_type(value, wanted), new)
    if not sizes.is_known(new):
        if sparse:
            return sizes.empty(new, wanted, Format.parse(format, len(new)), value)
        made = broadcast_to(_convert_element_type(value, wanted), new)
        return made if format is None else _convert_format(made, format)
    if not sparse:
        return Array(constant.filled(new, value, wanted, format))
    form = Format.parse(format, len(new))
    return Array(diagonals.without_entries(new, wanted, form, ingest.fill_scalar(value, wanted)))


def zeros(shape: Any, dtype: Any = None, format: str | Format | None = None, *, device: Any = None) -> Array:
    """Zeros; with a sparse `format`, an array without stored entries."""
    return _filled(shape, 0, dtype, format, device)


def ones(shape: Any, dtype: Any = None, format: str | Format | None = None, *, device: Any = None) -> Array:
    """Ones; with a sparse `format`, an array without stored entries over fill 1."""
    return _filled(shape, 1, dtype, format, device)


def full(
    shape: Any, fill_value: Any, dtype: Any = None, format: str | Format | None = None, *, device: Any = None
) -> Array:
    """An array of one value; with a sparse `format`, without stored entries over that fill."""
    if isinstance(fill_value, Array) and fill_value.ndim == 0:
        dtype, fill_value = fill_value.dtype if dtype is None else dtype, fill_value.todense()[()]
    if np.ndim(fill_value):
        made = broadcast_to(_asarray(fill_value), _extents(shape))
        made = made if dtype is None else _convert_element_type(made, dtype)
        return made if format is None else _convert_format(made, format)
    if dtype is None:
        dtype = np.dtype(np.float64) if type(fill_value) is float else _asarray(fill_value).dtype
    return _filled(shape, fill_value, dtype, format, device)


def zeros_like(x: Any, dtype: Any = None, shape: Any = None, *, format: Any = None, device: Any = None) -> Array:
    """Zeros with the shape, dtype and format of `x`; see `full_like`."""
    return full_like(x, 0, dtype, shape, format=format, device=device)


def ones_like(x: Any, dtype: Any = None, shape: Any = None, *, format: Any = None, device: Any = None) -> Array:
    """Ones with the shape, dtype and format of `x`; see `full_like`."""
    return full_like(x, 1, dtype, shape, format=format, device=device)


def full_like(
    x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, format: Any = None, device: Any = None
) -> Array:
    """An array of one value with the shape, dtype and format of `x`, unless `shape`, `dtype` and `format` say otherwise. A sparse one has no
    stored entries, over a fill of that value: it takes no memory for them. Dense where `shape` has another number of dimensions, or the value is traced.

    >>> full_like(np.ones((2, 2)), 3.0, format="csr").nnz
    0
    """
    x = _asarray(x)
    new = x.shape if shape is None else _extents(shape)
    if format is None and len(new) == x.ndim and not isinstance(fill_value, Tracer) and not np.ndim(fill_value):
        format = x.format if shape is None or not x.format.blocked else None
    return full(new, fill_value, x.dtype if dtype is None else dtype, format, device=device)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Array:
    """`numpy.arange`."""
    check_device(device)
    for value in (a for a in (start, stop, step) if isinstance(a, Tracer)):
        _integer(value, "an argument of arange")
    begin, end = (0, start) if stop is None else (start, stop)
    if not sizes.is_known((begin, end, step)):
        if any(type(a) is float and a.is_integer() for a in (begin, step)):
            begin, step = (int(a) if type(a) is float and a.is_integer() else a for a in (begin, step))
            dtype = float if dtype is None else dtype
        return sizes.coordinates(span(begin, end, step), dtype)
    return own(np.arange(begin, end, step, dtype=None if dtype is None else dtypes.canonical(dtype)))


def eye(
    n: int,
    m: int | None = None,
    k: int = 0,
    dtype: Any = None,
    format: str | Format = "csr",
    *,
    device: Any = None,
) -> Array:
    """Ones on the k-th diagonal, sparse (csr unless `format` says otherwise)."""
    check_device(device)
    rows, columns = _extents((n, n if m is None else m))
    return sizes.unit((rows, columns), _integer(k, "k"), dtypes.canonical(dtype), Format.parse(format, 2))


def identity(n: int, dtype: Any = None, format: str | Format = "csr") -> Array:
    """`eye(n)`: ones on the diagonal of a square matrix."""
    return eye(n, dtype=dtype, format=format)


def _has_few_entries(x: Array) -> bool:
    """Whether nothing but some entries of a sparse array over zero is stored, fewer than it has rows."""
    levels = x.format.levels
    few = not x.format.is_dense and not x.fill_value and not any(level.full for level in levels[: x.ndim - 1])
    return few and x.shape[-2] > max(passes.MANY, CROWDED * x.nnz)


def _part(name: str, x: Any, k: int, lower: bool) -> Any:
    x = _asarray(x)
    if not x.ndim:
        raise ValueError(f"{name} takes an array of one dimension or more, not one of shape ()")
    k = _integer(k, "k")
    if x.ndim == 1:  # a row of each
        x = broadcast_to(x, (x.shape[0], x.shape[0]))
    if type(x) is Array and current() is None and _has_few_entries(x):
        return Array(
            sifted(
                x._storage, lambda coords: (coords[-1] - coords[-2] <= k) if lower else (coords[-1] - coords[-2] >= k)
            )
        )
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
    total = n + abs(k)
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


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Whether all entries agree; see `isclose`."""
    return _reduce("all", isclose(a, b, rtol, atol, equal_nan))


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
