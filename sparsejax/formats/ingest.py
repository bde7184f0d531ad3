"""Anything array-like becomes a validated Storage."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import dtypes
from sparsejax.errors import FormatError
from sparsejax.formats import convert, scipy_io, structural
from sparsejax.formats.format import Format
from sparsejax.formats.storage import Storage


def as_storage(
    obj: Any,
    format: str | Format | None = None,
    dtype: Any = None,
    fill_value: Any = 0,
    copy: bool | None = None,
    shape: tuple[int, ...] | None = None,
) -> Storage:
    """Storage of `obj`: a NumPy array, a number, nested lists, a SciPy sparse array, or `(data, coords)`.

    `copy=None` borrows memory where it can and marks the source read-only, else copies; `copy=True` always copies;
    `copy=False` raises ValueError where a copy would be needed. `shape` belongs to `(data, coords)`; without it the
    shape is the smallest that holds all coordinates.
    """
    if scipy_io.is_scipy(obj):
        made = scipy_io.from_scipy(obj, copy)
    elif isinstance(obj, tuple) and len(obj) == 2 and _is_coords(obj):
        return _from_pair(obj[0], obj[1], shape, format, dtype, fill_value, copy)
    else:
        made = _from_array(obj, dtype, copy)
    if shape is not None and tuple(shape) != made.shape:
        raise FormatError(f"shape={tuple(shape)} is given, but the data has shape {made.shape}")
    if dtype is not None:
        made = astype(made, dtypes.canonical(dtype))
    if fill_value != 0 or fill_value != fill_value:
        if not made.format.is_dense:
            made = structural.refill(made, fill_value)
        else:
            made = Storage(made.format, made.shape, made.dtype.type(fill_value), made.buffers, made.vals)
    if format is not None:
        made = convert.convert(made, Format.parse(format, made.ndim))
    if made.format.is_dense and made.fill_value != 0:
        made = structural.refill(made, 0)
    return made


def astype(storage: Storage, dtype: np.dtype[Any]) -> Storage:
    """`storage` with values of another dtype; the same object when it has it already."""
    if storage.dtype == dtype:
        return storage
    fill = np.asarray(storage.fill_value).astype(dtype)[()]
    return Storage(storage.format, storage.shape, fill, storage.buffers, storage.vals.astype(dtype))


def _is_coords(pair: tuple[Any, Any]) -> bool:
    """Whether a tuple of two is (data, coords): a vector, and one vector of the same length per axis."""
    data, coords = pair
    if not isinstance(coords, tuple | list | np.ndarray) or isinstance(data, tuple) or np.ndim(data) != 1:
        return False
    return all(isinstance(c, list | np.ndarray) and np.ndim(c) == 1 for c in coords)


def _from_pair(
    data: Any, coords: Any, shape: Any, format: Any, dtype: Any, fill_value: Any, copy: bool | None
) -> Storage:
    columns = [np.asarray(c) for c in coords]
    values = np.asarray(data) if dtype is None else np.asarray(data).astype(dtypes.canonical(dtype))
    if shape is None:
        for axis, crd in enumerate(columns):
            if crd.dtype.kind not in "iu" and crd.size:
                raise FormatError(f"coords of axis {axis} must be integers, not {crd.dtype}")
        columns = [c.astype(np.int64) if not c.size else c for c in columns]
        shape = tuple(int(c.max()) + 1 if c.size else 0 for c in columns)
    shape = tuple(int(n) for n in shape)
    if len(columns) != len(shape):
        raise FormatError(f"coords has {len(columns)} axes, but shape={shape} has {len(shape)}")
    form = None if format is None else Format.parse(format, len(shape))
    if form is not None and form.is_dense:
        made = scipy_io.from_coordinates(columns, values, shape, None, fill_value, copy)
        return structural.refill(convert.convert(made, form), 0)
    return scipy_io.from_coordinates(columns, values, shape, form, fill_value, copy)


def _from_array(obj: Any, dtype: Any, copy: bool | None, freeze: bool = True) -> Storage:
    try:
        array: NDArray[Any] = np.asarray(obj)
    except ValueError as error:
        raise FormatError(f"cannot make an array of {type(obj).__name__}: {error}") from None
    wanted = dtypes.canonical(array.dtype if dtype is None else dtype)
    shared = array is obj
    if array.dtype != wanted:
        array, shared = array.astype(wanted), False
    if array.ndim > 1 and not array.flags.c_contiguous and array.flags.f_contiguous:
        form = Format.parse("dense", array.ndim)
        form = Format(form.levels, tuple(reversed(range(array.ndim))))
        flat = array.reshape(-1, order="F")
    else:
        form = Format.parse("dense", array.ndim)
        if not array.flags.c_contiguous:
            if copy is False:
                raise ValueError("the array is not contiguous and cannot be shared; use copy=None to allow a copy")
            array, shared = np.ascontiguousarray(array), False
        flat = array.reshape(-1)
    if shared and not freeze:
        flat = flat.view()
    elif shared:
        flat = np.array(flat) if copy else scipy_io.borrow(flat, copy)
    return Storage(form, array.shape, wanted.type(0), ((),) * array.ndim, flat)


def operand_storage(obj: Any) -> Storage:
    """Storage of a NumPy or SciPy operand of one call: buffers are viewed, not frozen, and never outlive the call
    (results that would share them are copied)."""
    if scipy_io.is_scipy(obj):
        made = scipy_io.from_scipy(obj, True)
    else:
        made = _from_array(obj, None, None, freeze=False)
        made.cache["transient"] = True
    return made
