"""SciPy sparse arrays in and out. SciPy is imported only when one of its arrays is at hand."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import dtypes
from sparsejax.errors import FormatError
from sparsejax.formats import convert
from sparsejax.formats.format import Format
from sparsejax.formats.storage import Storage
from sparsejax.formats.validate import check_bounds


def is_scipy(obj: Any) -> bool:
    """Whether `obj` is a SciPy sparse array or matrix (SciPy must have been imported for one to exist)."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(obj))


def from_scipy(obj: Any, copy: bool | None = None) -> Storage:
    """Storage of a SciPy sparse array of any class: csr and csc as such, the others as coo.

    Data and coordinates are shared when their dtypes allow and SciPy's array is sorted without duplicates; otherwise
    they are copied, sorted and summed. Malformed input raises FormatError before any of SciPy's own routines sees it.
    """
    if obj.format in ("csr", "csc"):
        return _from_compressed(obj, copy)
    if obj.format == "bsr":
        return _from_bsr(obj)
    if obj.format == "coo":
        coords = getattr(obj, "coords", None) or (obj.row, obj.col)
        return _from_coo(coords, obj.data, obj.shape, copy)
    made = obj.tocoo()
    return _from_coo(getattr(made, "coords", None) or (made.row, made.col), made.data, made.shape, True)


def _from_compressed(obj: Any, copy: bool | None) -> Storage:
    major = 0 if obj.format == "csr" else 1
    if len(obj.shape) != 2:
        return from_scipy(obj.tocoo(), copy)
    rows, extent = obj.shape[major], obj.shape[1 - major]
    pos, crd, data = np.asarray(obj.indptr), np.asarray(obj.indices), np.asarray(obj.data)
    name = obj.format
    used = _check_compressed(name, pos, crd, data, rows)
    check_bounds(crd[:used], extent, f"indices of the {name} array")
    form = Format.parse(name, 2)
    dtype = dtypes.canonical(data.dtype)
    pos64: NDArray[np.int64] = pos.astype(np.int64)
    crd_out, vals = _own(crd[:used], convert.crd_dtype(extent), copy), _own(data[:used], dtype, copy)
    step = np.diff(crd_out.astype(np.int64, copy=False))
    inside = np.ones(max(0, used - 1), bool)
    edges = pos64[1:-1]
    inside[edges[(edges > 0) & (edges < used)] - 1] = False
    if np.any(inside & (step <= 0)):
        parents = np.repeat(np.arange(rows), pos64[1:] - pos64[:-1])
        coords = np.empty((2, used), np.int64)
        coords[major], coords[1 - major] = parents, crd_out
        return convert.from_coords(coords, vals, obj.shape, form, 0)
    return Storage(form, tuple(map(int, obj.shape)), dtype.type(0), ((), (pos64, crd_out)), vals)


def _check_compressed(name: str, pos: NDArray[Any], crd: NDArray[Any], data: NDArray[Any], rows: int) -> int:
    """Check the buffers of a csr or csc array; the number of entries in use."""
    if pos.ndim != 1 or pos.dtype.kind not in "iu" or crd.ndim != 1 or crd.dtype.kind not in "iu":
        raise FormatError(f"indptr and indices of the {name} array must be one-dimensional integer arrays")
    if len(pos) != rows + 1:
        raise FormatError(f"indptr of the {name} array has {len(pos)} entries; it must have {rows + 1}")
    if pos[0] != 0:
        raise FormatError(f"indptr of the {name} array starts at {pos[0]}; it must start at 0")
    falls = np.flatnonzero(pos[1:] < pos[:-1])
    if len(falls):
        raise FormatError(
            f"indptr of the {name} array decreases at position {int(falls[0]) + 1}; it must never decrease"
        )
    used = int(pos[-1])
    if used > len(crd) or used > len(data):
        raise FormatError(
            f"indptr of the {name} array ends at {used}, past the {min(len(crd), len(data))} entries of indices and data"
        )
    return used


def _from_bsr(obj: Any) -> Storage:
    pos, crd, data = np.asarray(obj.indptr), np.asarray(obj.indices), np.asarray(obj.data)
    if data.ndim != 3 or 0 in data.shape[1:]:
        raise FormatError(f"data of the bsr array has shape {data.shape}; it must be (blocks, rows, columns)")
    _, height, width = data.shape
    if obj.shape[0] % height or obj.shape[1] % width:
        raise FormatError(f"blocks of {height} x {width} do not tile the shape {obj.shape} of the bsr array")
    rows, cols = obj.shape[0] // height, obj.shape[1] // width
    used = _check_compressed("bsr", pos, crd, data, rows)
    check_bounds(crd[:used], cols, "indices of the bsr array")
    starts: NDArray[Any] = pos.astype(np.int64)
    block_row = np.repeat(np.arange(rows), starts[1:] - starts[:-1])
    row = block_row[:, None, None] * height + np.arange(height)[None, :, None] + np.zeros((1, 1, width), np.int64)
    col = (
        crd[:used].astype(np.int64)[:, None, None] * width
        + np.arange(width)[None, None, :]
        + np.zeros((1, height, 1), np.int64)
    )
    coords = np.stack([row.reshape(-1), col.reshape(-1)])
    vals = data[:used].reshape(-1).astype(dtypes.canonical(data.dtype))
    return convert.from_coords(coords, vals, obj.shape, Format.parse("csr", 2), 0)


def _from_coo(coords: Any, data: Any, shape: Any, copy: bool | None) -> Storage:
    return from_coordinates([np.asarray(c) for c in coords], np.asarray(data), tuple(map(int, shape)), None, 0, copy)


def from_coordinates(
    coords: list[NDArray[Any]],
    data: NDArray[Any],
    shape: tuple[int, ...],
    format: Format | None,
    fill: Any,
    copy: bool | None,
) -> Storage:
    """Storage of entries `data` at `coords`, one integer vector per dimension; sorted and summed where needed."""
    if data.ndim != 1:
        raise FormatError(f"data has shape {data.shape}; it must be one-dimensional")
    for axis, (crd, extent) in enumerate(zip(coords, shape, strict=True)):
        if crd.ndim != 1 or crd.dtype.kind not in "iu":
            raise FormatError(
                f"coords of axis {axis} must be a one-dimensional integer array, not {crd.dtype} of shape {crd.shape}"
            )
        if len(crd) != len(data):
            raise FormatError(f"coords of axis {axis} has {len(crd)} entries, but data has {len(data)}")
        check_bounds(crd, extent, f"coords of axis {axis}")
    dtype = dtypes.canonical(data.dtype)
    target = Format.parse("coo", len(shape))
    wide = [c.astype(np.int64, copy=False) for c in coords]
    if wide and convert.sort_order(wide, shape) is None and not _repeats(wide) and format in (None, target):
        vals = _own(data, dtype, copy)
        crds = [_own(c, convert.crd_dtype(n), copy) for c, n in zip(coords, shape, strict=True)]
        pos = np.asarray([0, len(vals)], np.int64)
        buffers = tuple((pos, c) if k == 0 else (c,) for k, c in enumerate(crds))
        return Storage(target, shape, dtype.type(fill), buffers, vals)
    stacked = np.stack(wide) if wide else np.empty((0, len(data)), np.int64)
    return convert.from_coords(stacked, data.astype(dtype), shape, format or target, fill)


def _repeats(keys: list[NDArray[Any]]) -> bool:
    same = np.ones(max(0, len(keys[0]) - 1), bool)
    for key in keys:
        same &= key[1:] == key[:-1]
    return bool(same.any())


def _own(buffer: NDArray[Any], dtype: np.dtype[Any], copy: bool | None) -> NDArray[Any]:
    """`buffer` as a contiguous read-only array of `dtype`: borrowed where possible, the source being frozen with it."""
    if copy or buffer.dtype != dtype or not buffer.flags.c_contiguous:
        if copy is False:
            raise ValueError(
                f"a buffer of dtype {buffer.dtype} cannot be shared as {dtype}; use copy=None to allow a copy"
            )
        return np.array(buffer, dtype)
    return borrow(buffer, copy)


def borrow(buffer: NDArray[Any], copy: bool | None) -> NDArray[Any]:
    """A read-only view of `buffer`; the arrays it views are frozen, or copied when they cannot be."""
    view = buffer.view()
    view.flags.writeable = False
    base: Any = buffer
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            base.flags.writeable = False
        base = base.base
    if base is not None and copy is None:
        return np.array(buffer)  # memory of another owner, which could still write to it
    return view


def to_scipy(storage: Storage) -> Any:
    """A SciPy sparse array: csr, csc or coo over the same buffers where the format is one of these, else converted to
    csr (matrices) or coo. The fill must be zero."""
    import scipy.sparse as sp

    if storage.fill_value != 0:
        raise FormatError(
            f"SciPy's sparse arrays have fill 0, but this array has fill {storage.fill_value}; subtract it first"
        )
    name = str(storage.format)
    if name in ("csr", "csc"):
        pos, crd = storage.buffers[1]
        made = (sp.csr_array if name == "csr" else sp.csc_array)(storage.shape, dtype=storage.dtype)
        made.data, made.indices = storage.vals, crd
        made.indptr = pos.astype(crd.dtype) if len(crd) <= np.iinfo(crd.dtype).max else pos
        made.has_sorted_indices = True
        made.has_canonical_format = True
        return made
    if name != "coo" or not storage.ndim:
        if storage.ndim == 2:
            return to_scipy(convert.convert(storage, Format.parse("csr", 2)))
        if not storage.ndim:
            raise FormatError("SciPy has no sparse arrays of zero dimensions; use .todense()")
        storage = convert.convert(storage, Format.parse("coo", storage.ndim))
    coords = tuple(level[-1] for level in storage.buffers)
    return sp.coo_array((storage.vals, coords), shape=storage.shape)
