"""Arrays from what there is, of one value, of numbers in steps, and with ones on a diagonal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.core.array import made as _made
from sparsejax.core.avals import Aval, ShapeDtypeStruct
from sparsejax.core.methods import DEVICE, ArrayBase
from sparsejax.core.primitive import asarray as _asarray
from sparsejax.core.symbolic import span
from sparsejax.core.trace import Tracer
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, ingest, passes, structural
from sparsejax.formats.ownership import refuse_copy
from sparsejax.formats.parts import constant, diagonals
from sparsejax.formats.storage import Storage
from sparsejax.lax import extents as sizes
from sparsejax.lax.elementwise import check_fits as _check_fits
from sparsejax.lax.elementwise import convert_element_type as _convert_element_type
from sparsejax.lax.structural import broadcast_to, refill
from sparsejax.lax.structural import convert_format as _convert_format
from sparsejax.lax.structural import extents as _extents
from sparsejax.lax.structural import integer as _integer
from sparsejax.numpy.indexing import stack
from sparsejax.numpy.updates import At


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
    values = _asarray(data) if dtype is None else _convert_element_type(_asarray(data), dtype)
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
    made = _asarray(obj) if dtype is None else _convert_element_type(obj, dtype)
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
