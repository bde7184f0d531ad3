"""Anything array-like becomes a sound Storage."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.errors import FormatError
from sparsejax.formats import convert, scipy_io, structural
from sparsejax.formats.format import Format
from sparsejax.formats.levels.segments import Array
from sparsejax.formats.ownership import copied, own, refuse_copy
from sparsejax.formats.parts import rows
from sparsejax.formats.storage import Storage, dense_template
from sparsejax.formats.validate import checked_shape, validate


def as_storage(
    obj: Any,
    format: str | Format | None = None,
    dtype: Any = None,
    fill_value: Any = 0,
    copy: bool | None = None,
    shape: tuple[int, ...] | None = None,
) -> Storage:
    """Storage of `obj`: a NumPy array, a number, nested lists, a SciPy sparse array, `(data, coords)`, or the
    buffers themselves as a `Storage`, which is validated and keeps its own fill.

    Without `format`, a dense source is stored dense in the order of its memory (C or Fortran), a csr or csc source as such,
    and other sparse sources as coo. `coords` is an array of shape (ndim, n) or a sequence of ndim vectors; `shape` belongs
    to it: without, the shape is the smallest that holds all coordinates. Unsorted entries are sorted, duplicates summed.

    `fill_value` is the value of entries that are not stored: of a dense source, entries that differ from it are stored; a sparse
    source stores what it stores, and `fill_value` is what the rest reads as.

    `copy=None` borrows memory where it can and marks the source read-only, else copies; `copy=True` always copies;
    `copy=False` raises ValueError where values or coordinates would have to be copied (row pointers of SciPy's arrays are
    widened to 64 bits in any case). The rules are in `ownership`.

    Raises FormatError for malformed input, TypeError for dtypes that are not supported. Linear in the input.

    >>> as_storage(([3.0, 4.0], [[0, 2], [1, 1]]), format="csr").shape
    (3, 2)
    """
    usual = dtype is None and type(fill_value) is int and not fill_value
    if usual and (copy or (format is not None and copy is None)):
        listed = None
        if type(obj) is tuple and len(obj) == 2:
            listed = rows.of_entries(*obj, shape, "coo" if format is None else format)
        elif format is not None and shape is None and scipy_io.is_scipy(obj) and obj.format == "coo":
            listed = rows.of_entries(obj.data, getattr(obj, "coords", None) or (obj.row, obj.col), obj.shape, format)
        if listed is not None:
            return listed
    plain = usual and format is None and shape is None
    if plain and type(obj) is np.ndarray and obj.flags.c_contiguous and dtypes.canonical(obj.dtype) is obj.dtype:
        vals = own(obj.reshape(-1), obj.dtype, copy, "the source", obj)
        return Storage.dense(dense_template(Format.parse("dense", obj.ndim), obj.shape, obj.dtype.type(0)), vals, {})
    if plain and scipy_io.is_scipy(obj):
        return scipy_io.from_scipy(obj, copy)
    viewed = False
    if isinstance(obj, Storage):
        made, fill_value = _from_storage(obj, copy), obj.fill_value
        if shape is not None:
            _check_given(shape, made.shape)
    elif scipy_io.is_scipy(obj):
        form = Format.parse(format, len(obj.shape)) if copy is True and format is not None else None
        found = None if form is None else scipy_io.viewed(obj, form)
        viewed = found is not None  # as below
        made = scipy_io.from_scipy(obj, copy) if found is None else found
        if shape is not None:
            _check_given(shape, made.shape)
    elif isinstance(obj, tuple) and len(obj) == 2 and _is_coords(obj):
        made = _from_pair(obj[0], obj[1], shape, dtype, copy)
    else:
        viewed = copy is True and format is not None  # a conversion makes new memory
        made = _from_array(obj, dtype, None if viewed else copy, freeze=not viewed)
        if shape is not None:
            _check_given(shape, made.shape)
    if dtype is not None:
        wanted = dtypes.canonical(dtype)
        if made.dtype != wanted:
            refuse_copy(copy, f"the source has dtype {made.dtype} and dtype={wanted} is asked for")
            made = astype(made, wanted)
    made = structural.refill(made, fill_scalar(fill_value, made.dtype))
    if format is not None:
        form = Format.parse(format, made.ndim)
        if form != made.format:
            refuse_copy(copy, f"the source is stored as {made.format} and format={form} is asked for")
            made = _apart(made, convert.convert(made, form)) if viewed else convert.convert(made, form)
        elif viewed:
            made = _apart(made, made)
    return structural.refill(made, 0) if made.format.is_dense else made


def _apart(source: Storage, made: Storage) -> Storage:
    """What was made of a storage, with copies of the buffers that it still shares with it."""
    given = [b for b in (source.vals, *(b for level in source.buffers for b in level)) if b.size]

    def apart(buffer: Array) -> Array:
        return copied(buffer, buffer.dtype) if any(np.may_share_memory(buffer, g) for g in given) else buffer

    buffers = tuple(tuple(apart(b) for b in level) for level in made.buffers)
    return Storage(made.format, made.shape, made.fill_value, buffers, apart(made.vals))


_NUMBERS = frozenset([bool, int, float])


def fill_scalar(value: Any, dtype: np.dtype[Any]) -> Any:
    """`value` as a NumPy scalar of `dtype`; FormatError when it cannot be one (1.5 or NaN among integers).

    >>> fill_scalar(1, np.dtype("float32"))
    np.float32(1.0)
    """
    if type(value) in _NUMBERS and value == 0:
        return dtype.type(value)
    given = np.asarray(value)
    if given.shape != () or given.dtype.kind not in "biufc":
        raise FormatError(f"fill_value={value!r} must be one number")
    if given.dtype.kind == "c" and dtype.kind != "c" and given.imag == 0:
        given = given.real
    with np.errstate(all="ignore"):
        if given.dtype.kind == "c" and dtype.kind != "c":
            fits = False
        elif dtype.kind in "fc":  # rounding is fine, overflow is not
            fits = bool(np.isfinite(given.astype(dtype)) or not np.isfinite(given))
        else:
            fits = bool(given.astype(dtype) == given)
    if not fits:
        raise FormatError(
            f"fill_value={value!r} is not a value of dtype {dtype}; pass dtype= to choose one that holds it"
        )
    return given.astype(dtype)[()]


def astype(storage: Storage, dtype: np.dtype[Any]) -> Storage:
    """`storage` with values of another dtype; the same object when it has it already."""
    if storage.dtype == dtype:
        return storage
    fill = np.asarray(storage.fill_value).astype(dtype)[()]
    return Storage(storage.format, storage.shape, fill, storage.buffers, storage.vals.astype(dtype))


def _check_given(shape: Any, found: tuple[int, ...]) -> None:
    if checked_shape(shape) != found:
        raise FormatError(f"shape={tuple(shape)} is given, but the data has shape {found}")


def _from_storage(storage: Storage, copy: bool | None) -> Storage:
    """A sound storage over the buffers of `storage`, borrowed or copied."""
    validate(storage)
    buffers = tuple(
        tuple(own(buffer, buffer.dtype, copy, f"buffer {k} of level {level}", buffer) for k, buffer in enumerate(here))
        for level, here in enumerate(storage.buffers)
    )
    vals = own(storage.vals, storage.dtype, copy, "vals", storage.vals)
    return Storage(storage.format, checked_shape(storage.shape), storage.fill_value, buffers, vals)


def _is_coords(pair: tuple[Any, Any]) -> bool:
    """Whether a tuple of two is (data, coords): a vector, and one vector of the same length per axis. Vectors are lists, or anything that
    NumPy makes an array of, such as a column of a data frame."""
    data, coords = pair
    if not isinstance(coords, tuple | list | np.ndarray) or isinstance(data, tuple) or np.ndim(data) != 1:
        return False
    return all((isinstance(c, list) or hasattr(c, "__array__")) and np.ndim(c) == 1 for c in coords)


def _from_pair(data: Any, coords: Any, shape: Any, dtype: Any, copy: bool | None) -> Storage:
    columns = [_integers(c, axis, copy) for axis, c in enumerate(coords)]
    values = np.asarray(data)
    if not isinstance(data, np.ndarray):
        refuse_copy(copy, f"data is a {type(data).__name__}")
    if dtype is not None and values.dtype != dtypes.canonical(dtype):
        refuse_copy(copy, f"data has dtype {values.dtype} and dtype={dtypes.canonical(dtype)} is asked for")
        values = values.astype(dtypes.canonical(dtype))  # before duplicates are summed
    if shape is None:
        shape = [int(c.max()) + 1 if c.size else 0 for c in columns]
    extents = checked_shape(shape)
    if len(columns) != len(extents):
        raise FormatError(f"coords has {len(columns)} axes, but shape={extents} has {len(extents)}")
    return scipy_io.from_coordinates(columns, values, extents, copy)


def _integers(column: Any, axis: int, copy: bool | None) -> Array:
    if not isinstance(column, np.ndarray):
        refuse_copy(copy, f"coords of axis {axis} is a {type(column).__name__}")
    made = np.asarray(column)
    return made.astype(np.int64) if not made.size else made


def _from_array(obj: Any, dtype: Any, copy: bool | None, freeze: bool = True) -> Storage:
    array = _as_ndarray(obj, copy)
    wanted = dtypes.canonical(array.dtype if dtype is None else dtype)
    fortran = array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous
    form = Format.parse("dense", array.ndim)
    if fortran:
        form = Format(form.levels, tuple(reversed(range(array.ndim))))
    if not fortran and not array.flags.c_contiguous:
        refuse_copy(copy, "the source is not contiguous")
        flat = copied(array, wanted).reshape(-1)
    else:
        flat = array.reshape(-1, order="F" if fortran else "C")
        if freeze and isinstance(obj, np.ndarray):
            flat = own(flat, wanted, copy, "the source", obj)
        elif array.dtype != wanted:
            refuse_copy(copy, f"the source has dtype {array.dtype} and is needed as {wanted}")
            flat = copied(flat, wanted)
    return Storage(form, array.shape, wanted.type(0), ((),) * array.ndim, flat)


def _as_ndarray(obj: Any, copy: bool | None) -> Array:
    """`obj` as a NumPy array; memory is shared with other NumPy arrays only, or with anything for `copy=False`."""
    if isinstance(obj, np.ma.MaskedArray):
        raise FormatError(
            "masked arrays have no counterpart here; pass .filled(value), or the entries as (data, coords)"
        )
    try:
        if isinstance(obj, np.ndarray):
            return np.asarray(obj)
        if isinstance(obj, np.generic | list | tuple | bool | int | float | complex):
            refuse_copy(copy, f"the source is a {type(obj).__name__}")
            return np.asarray(obj)
        return np.asarray(obj) if copy is False else np.asarray(obj).copy()
    except ValueError as error:
        if copy is False:
            raise
        raise FormatError(f"cannot make an array of {type(obj).__name__}: {error}") from None


def operand_storage(obj: Any) -> Storage:
    """Storage of a NumPy or SciPy operand of one call: buffers are viewed, not frozen, and never outlive the call
    (results that would share them are copied)."""
    if scipy_io.is_scipy(obj):
        made = scipy_io.from_scipy(obj, True)
    else:
        made = _from_array(obj, None, None, freeze=False)
        made.cache["transient"] = True
    return made
