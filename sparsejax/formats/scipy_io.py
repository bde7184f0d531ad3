"""SciPy sparse arrays in and out. SciPy is imported only when one of its arrays is at hand.

SciPy's own routines trust the buffers of an array and crash on bad ones, so none is called on what comes in: every class is
checked and read here.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.errors import FormatError
from sparsejax.formats import convert, ordering, passes
from sparsejax.formats.format import Format, block_sparse
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.segments import Array, check_bounds
from sparsejax.formats.ownership import own, refuse_copy
from sparsejax.formats.parts import rows
from sparsejax.formats.runs import SIGNED
from sparsejax.formats.storage import Storage
from sparsejax.formats.validate import checked_shape


def is_scipy(obj: Any) -> bool:
    """Whether `obj` is a SciPy sparse array or matrix (SciPy must have been imported for one to exist)."""
    kind: Any = type(obj)
    return "scipy.sparse" in sys.modules and _is_sparse(kind)


@functools.lru_cache(maxsize=256)
def _is_sparse(kind: Any) -> bool:
    """Whether that is one of SciPy's classes, which are known by now."""
    sparse = sys.modules["scipy.sparse"]
    return issubclass(kind, sparse.sparray | sparse.spmatrix)


def is_matrix(obj: Any) -> bool:
    """Whether `obj` is one of SciPy's sparse matrices, whose `*` is the matrix product, rather than a sparse array."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and isinstance(obj, sparse.spmatrix)


def from_scipy(obj: Any, copy: bool | None = None) -> Storage:
    """Storage of a SciPy sparse array or matrix of any class: csr, csc and bsr as such, the others as coo.

    Data and coordinates are shared when their dtypes allow and SciPy's array is sorted without duplicates; otherwise
    they are copied, sorted and summed. Malformed input raises FormatError, naming the fault and where it is. Linear in
    the stored entries.

    >>> import scipy.sparse as sp
    >>> from_scipy(sp.eye_array(3, format="csc")).format
    Format('csc')
    """
    shape = checked_shape(obj.shape)
    name = obj.format
    if name in ("csr", "csc") and len(shape) == 2:
        return _from_compressed(obj, name, shape, copy)
    if name == "coo":
        coords = getattr(obj, "coords", None) or (obj.row, obj.col)
        return from_coordinates(tuple(map(np.asarray, coords)), np.asarray(obj.data), shape, copy)
    if name == "csr":  # of one dimension
        crd, data = np.asarray(obj.indices), np.asarray(obj.data)
        used = _check_compressed(name, np.asarray(obj.indptr), crd, data, 1)
        if used < len(crd) or used < len(data):
            refuse_copy(copy, "the csr array has entries that are not in use")
            crd, data = crd[:used].copy(), data[:used].copy()
        return from_coordinates([crd], data, shape, copy)
    if name == "bsr":
        return _from_bsr(obj, shape, copy)
    refuse_copy(copy, f"SciPy's {name} has no counterpart here")
    readers = {"dia": _read_dia, "lil": _read_lil, "dok": _read_dok}
    if name not in readers:
        raise FormatError(f"SciPy's {name} arrays are not known here; pass .tocsr()")
    coords, data = readers[name](obj, shape)
    return from_coordinates(coords, data, shape, None)


# ------------------------------------------------------------------------------------------------- csr, csc and bsr


def viewed(obj: Any, form: Format) -> Storage | None:
    """A csr or csc array of two dimensions over SciPy's own memory, which stays writeable: to be converted to another format, and then let go. None for
    others, for those that have this format, and where entries must be put in order first.

    >>> import scipy.sparse as sp
    >>> viewed(sp.eye_array(3, format="csr"), Format.parse("csc", 2)).format
    Format('csr')
    """
    name, shape = obj.format, checked_shape(obj.shape)
    if name not in ("csr", "csc") or len(shape) != 2 or form == Format.parse(name, 2):
        return None
    pos, crd, data = (np.asarray(a).view(np.ndarray) for a in (obj.indptr, obj.indices, obj.data))
    major = 0 if name == "csr" else 1
    if _admits((pos, crd, data), shape[major]) and len(crd) == len(data) == pos[-1] and data.flags.c_contiguous:
        found = passes.over(len(crd)).admitted(pos, [crd], [shape[1 - major]], data, False)
        if found is not None and found[3]:
            crd = crd.astype(convert.crd_dtype(shape[1 - major]), copy=not crd.flags.c_contiguous)
            pos = pos.astype(np.int64, copy=not pos.flags.c_contiguous) if found[0] is None else found[0]
            for array in (pos, crd, data):
                array.flags.writeable = False  # of the view alone
            return Storage.of_frozen(Format.parse(name, 2), shape, data.dtype.type(0), ((), (pos, crd)), data)
    return None


def _admits(buffers: tuple[Array, Array, Array], rows: int) -> bool:
    """Whether `indptr`, `indices` and `data` are such as passes read, which see whether they are sound."""
    pos, crd, data = buffers
    if pos.dtype not in SIGNED or crd.dtype not in SIGNED or not pos.ndim == crd.ndim == data.ndim == 1:
        return False
    if len(pos) != rows + 1 or not 0 <= int(pos[-1]) <= min(len(crd), len(data)):
        return False
    return dtypes.canonical(data.dtype) is data.dtype


def _from_compressed(obj: Any, name: str, shape: tuple[int, ...], copy: bool | None) -> Storage:
    major = 0 if name == "csr" else 1
    rows, extent = shape[major], shape[1 - major]
    pos, crd, data = np.asarray(obj.indptr), np.asarray(obj.indices), np.asarray(obj.data)
    made = _admitted_segments(name, (pos, crd, data), rows, extent, shape, copy)
    if made is not None:
        return made
    used = _check_compressed(name, pos, crd, data, rows)
    indices, values, pos = crd, data, pos.astype(np.int64)
    crd, data = crd[:used], data[:used]
    check_bounds(crd, extent, f"indices of the {name} array")
    form, dtype = Format.parse(name, 2), dtypes.canonical(data.dtype)
    if _increases(pos, crd):  # of a dtype that passes do not take
        crd = own(crd, convert.crd_dtype(extent), copy, f"indices of the {name} array", indices)
        data = own(data, dtype, copy, f"data of the {name} array", values)
        return Storage(form, shape, dtype.type(0), ((), (pos, crd)), data)
    refuse_copy(copy, f"the {name} array is not sorted, or has duplicates")
    wide = crd.astype(np.int64, copy=False)
    parents = np.repeat(np.arange(rows), np.diff(pos))
    return convert.from_coords(
        (parents, wide) if major == 0 else (wide, parents), data.astype(dtype, copy=False), shape, form, 0
    )


def _admitted_segments(
    name: str, buffers: tuple[Array, Array, Array], rows: int, extent: int, shape: tuple[int, ...], copy: bool | None
) -> Storage | None:
    """The storage of `indptr`, `indices` and `data`, borrowed or copied; None where there is something to tell, or to mend in another way."""
    pos, crd, data = _, indices, values = buffers
    if not _admits(buffers, rows):
        return None
    used, dtype = int(pos[-1]), data.dtype
    crd, data = crd[:used], data[:used]
    many = passes.over(used)
    found = many.admitted(pos, [crd], [extent], data, bool(copy))
    if found is None:
        return None
    ends, (crd,), data, increases = found
    pos = pos if ends is None else ends
    zero, form = dtype.type(0), Format.parse(name, 2)
    if copy and increases:
        return Storage.of_frozen(form, shape, zero, ((), (pos, crd)), data)
    if increases:
        crd = own(crd, convert.crd_dtype(extent), copy, f"indices of the {name} array", indices)
        data = own(data, dtype, copy, f"data of the {name} array", values)
    elif copy:
        crd, data, distinct = many.tidied(pos, crd, data)
        if not distinct:
            pos, crd, data = many.folded(pos, crd, data)
    else:
        return None
    return Storage(form, shape, zero, ((), (pos, crd)), data)


def _increases(pos: Array, crd: Array) -> bool:
    """Whether coordinates strictly increase inside each segment."""
    bad = crd[1:] <= crd[:-1]
    edges = pos[1:-1]
    bad[edges[(edges > 0) & (edges < len(crd))] - 1] = False
    return not bad.any()


def _check_compressed(name: str, pos: Array, crd: Array, data: Array, rows: int) -> int:
    """Check the buffers of a csr, csc or bsr array; the number of entries in use."""
    for what, buffer in (("indptr", pos), ("indices", crd)):
        if buffer.ndim != 1 or buffer.dtype.kind not in "iu":
            raise FormatError(
                f"{what} of the {name} array has dtype {buffer.dtype} and shape {buffer.shape}; indptr and indices must be "
                "one-dimensional integer arrays"
            )
    if data.ndim != (3 if name == "bsr" else 1):
        raise FormatError(f"data of the {name} array has shape {data.shape}; it must be one-dimensional")
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


def _from_bsr(obj: Any, shape: tuple[int, ...], copy: bool | None) -> Storage:
    indptr, indices, data = np.asarray(obj.indptr), np.asarray(obj.indices), np.asarray(obj.data)
    if data.ndim != 3 or 0 in data.shape[1:]:
        raise FormatError(f"data of the bsr array has shape {data.shape}; it must be (blocks, rows, columns)")
    _, height, width = data.shape
    if shape[0] % height or shape[1] % width:
        raise FormatError(f"blocks of {height} x {width} do not tile the shape {shape} of the bsr array")
    rows, cols = shape[0] // height, shape[1] // width
    used = _check_compressed("bsr", indptr, indices, data, rows)
    crd, pos = indices[:used], indptr.astype(np.int64)
    check_bounds(crd, cols, "indices of the bsr array")
    form, dtype = block_sparse(height, width), dtypes.canonical(data.dtype)
    if _increases(pos, crd):
        crd = own(crd, convert.crd_dtype(cols), copy, "indices of the bsr array", indices)
        if not data.flags.c_contiguous:
            refuse_copy(copy, "data of the bsr array is not contiguous")
        vals = own(data[:used].reshape(-1), dtype, copy, "data of the bsr array", data)
        inside = ((),) * (len(form.levels) - 2)
        return Storage(form, shape, dtype.type(0), ((), (pos, crd), *inside), vals)
    refuse_copy(copy, "the bsr array is not sorted, or has duplicates")
    row = np.repeat(np.arange(rows), np.diff(pos))[:, None, None] * height + np.arange(height)[:, None]
    col = crd.astype(np.int64)[:, None, None] * width + np.arange(width)
    coords = [axis.reshape(-1) for axis in np.broadcast_arrays(row, col)]
    return convert.from_coords(coords, data[:used].reshape(-1).astype(dtype, copy=False), shape, form, 0)


# ------------------------------------------------------------------------------------------------- dia, lil and dok


def _read_dia(obj: Any, shape: tuple[int, ...]) -> tuple[list[Array], Array]:
    """Entry (k, j) of data is at (j - offsets[k], j), where that is inside; zeros are padding."""
    offsets, data = np.asarray(obj.offsets), np.asarray(obj.data)
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu":
        raise FormatError(f"offsets of the dia array has dtype {offsets.dtype}; it must be a vector of integers")
    if data.ndim != 2 or len(data) != len(offsets):
        raise FormatError(
            f"data of the dia array has shape {data.shape}; it must have {len(offsets)} rows, one per offset"
        )
    if len(np.unique(offsets)) != len(offsets):
        raise FormatError("offsets of the dia array repeats a diagonal; sum the diagonals that are equal")
    rows, cols = shape
    inside = (offsets < cols) & (offsets > -rows)
    kept, values = offsets[inside].astype(np.int64), data[inside][:, :cols]
    col = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    row = col - kept[:, None]
    mask = (row >= 0) & (row < rows) & (values != 0)
    return [row[mask], col[mask]], values[mask]


def _read_lil(obj: Any, shape: tuple[int, ...]) -> tuple[list[Array], Array]:
    """`rows` and `data` hold one list per row: columns, and their values."""
    found = []
    for what, lists in (("rows", obj.rows), ("data", obj.data)):
        lists = np.asarray(lists)
        if lists.shape != shape[:1]:
            raise FormatError(
                f"{what} of the lil array has shape {lists.shape}; it must have {shape[0]} lists, one per row"
            )
        for k, entries in enumerate(lists):
            if not isinstance(entries, list):
                raise FormatError(
                    f"{what}[{k}] of the lil array is of type {type(entries).__name__}; it must be a list"
                )
        found.append(lists)
    counts = [len(entries) for entries in found[0]]
    for k, (count, values) in enumerate(zip(counts, found[1], strict=True)):
        if count != len(values):
            raise FormatError(f"row {k} of the lil array has {count} columns, but {len(values)} values; give one each")
    row = np.repeat(np.arange(shape[0]), np.asarray(counts, np.int64))
    col = _integers(list(itertools.chain.from_iterable(found[0])), "columns of the lil array")
    return [row, col], _numbers(list(itertools.chain.from_iterable(found[1])), obj.dtype, "values of the lil array")


def _read_dok(obj: Any, shape: tuple[int, ...]) -> tuple[list[Array], Array]:
    """A dictionary from coordinates to values."""
    keys = list(obj.keys())
    columns = []
    for axis in range(len(shape)):
        try:
            numbers = keys if len(shape) == 1 else [key[axis] for key in keys]
        except (TypeError, IndexError):
            raise FormatError(f"a key of the dok array is no tuple of {len(shape)} coordinates") from None
        columns.append(_integers(numbers, f"coordinates of axis {axis} of the dok array"))
    return columns, _numbers(list(obj.values()), obj.dtype, "values of the dok array")


def _integers(numbers: list[Any], what: str) -> Array:
    try:
        made: Array = np.asarray(numbers if numbers else np.empty(0, np.int64))
    except (ValueError, TypeError, OverflowError):
        made = np.empty(0, object)
    if made.ndim != 1 or made.dtype.kind not in "iu":
        raise FormatError(f"{what} must be integers of at most 64 bits")
    return made


def _numbers(numbers: list[Any], dtype: np.dtype[Any], what: str) -> Array:
    try:
        made = np.array(numbers, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise FormatError(f"{what} are not of its dtype {dtype}: {error}") from None
    if made.ndim != 1:
        raise FormatError(f"{what} must be single numbers")
    return made


# ------------------------------------------------------------------------------------------------------ coordinates


def from_coordinates(coords: Sequence[Array], data: Array, shape: tuple[int, ...], copy: bool | None) -> Storage:
    """Storage, as coo, of entries `data` at `coords`, one integer vector per dimension; sorted and summed where needed.

    Shares memory (see `ownership`) when entries come sorted, without duplicates, in the right dtypes.

    >>> from_coordinates([np.array([1, 1])], np.array([2.0, 3.0]), (4,), None).vals
    array([5.])
    """
    if data.ndim != 1:
        raise FormatError(f"data has shape {data.shape}; it must be one-dimensional")
    if len(coords) != len(shape):
        raise FormatError(f"coords has {len(coords)} axes, but the shape {shape} has {len(shape)}")
    made = _admitted_coordinates(coords, data, shape, copy)
    if made is None and copy is not False and len(coords) == 2:
        made = rows.of_entries(data, tuple(coords), shape, "coo")
    if made is not None:
        return made
    for axis, (crd, extent) in enumerate(zip(coords, shape, strict=True)):
        if crd.ndim != 1 or crd.dtype.kind not in "iu":
            raise FormatError(
                f"coords of axis {axis} must be a one-dimensional integer array, not {crd.dtype} of shape {crd.shape}"
            )
        if len(crd) != len(data):
            raise FormatError(f"coords of axis {axis} has {len(crd)} entries, but data has {len(data)}")
        check_bounds(crd, extent, f"coords of axis {axis}")
    dtype = dtypes.canonical(data.dtype)
    form = Format.parse("coo", len(shape))
    if coords and ordering.is_sorted(coords) and bool(segments.changes(coords).all()):
        vals = own(data, dtype, copy, "data", data)
        crds = [
            own(crd, convert.crd_dtype(n), copy, f"coords of axis {axis}", crd)
            for axis, (crd, n) in enumerate(zip(coords, shape, strict=True))
        ]
        pos = np.asarray([0, len(vals)], np.int64)
        buffers = tuple((pos, crd) if k == 0 else (crd,) for k, crd in enumerate(crds))
        return Storage(form, shape, dtype.type(0), buffers, vals)
    refuse_copy(copy, "the entries are not sorted, or have duplicates")
    signed = [crd if crd.dtype in (np.int32, np.int64) else crd.astype(np.int64) for crd in coords]
    return convert.from_coords(signed, data.astype(dtype, copy=False), shape, form, 0)


def _admitted_coordinates(
    coords: Sequence[Array], data: Array, shape: tuple[int, ...], copy: bool | None
) -> Storage | None:
    """The storage of entries in order, each at a place of its own, borrowed or copied; None where that is not so, or there is something to tell."""
    dtype, count = data.dtype, len(data)
    for crd in coords:
        if crd.dtype not in SIGNED or crd.shape != data.shape:
            return None
    if not coords or dtypes.canonical(dtype) is not dtype:
        return None
    found = passes.over(count).admitted(None, coords, shape, data, bool(copy))
    if found is None or not found[3]:
        return None
    _, columns, vals, _ = found
    if not copy:
        vals = own(data, dtype, copy, "data", data)
        columns = [
            own(crd, convert.crd_dtype(n), copy, f"coords of axis {axis}", crd)
            for axis, (crd, n) in enumerate(zip(coords, shape, strict=True))
        ]
    buffers = ((_segment(count), columns[0]), *[(crd,) for crd in columns[1:]])
    return Storage.of_frozen(Format.parse("coo", len(shape)), shape, dtype.type(0), buffers, vals)


@functools.lru_cache(maxsize=256)
def _segment(count: int) -> Array:
    """Where the only segment of so many entries begins and ends."""
    pos = np.array([0, count], np.int64)
    pos.setflags(write=False)
    return pos


def to_scipy(storage: Storage) -> Any:
    """A SciPy sparse array: csr, csc, coo or bsr over the same (read-only) buffers where the format is one of these.

    SciPy's blocks must tile the shape. Diagonals become dia, unless there are many more columns than rows.
    Other matrices become csr, or coo where they have more rows than 32-bit numbers; arrays of other dimensions become coo.
    The fill must be zero (FormatError).

    >>> to_scipy(convert.from_dense(np.eye(2), Format.parse("dcsr", 2), 0.0)).format
    'csr'
    """
    import scipy.sparse as sp

    if storage.fill_value != 0:
        raise FormatError(
            f"SciPy's sparse arrays have fill 0, but this array has fill {storage.fill_value}; subtract it first"
        )
    if not storage.ndim:
        raise FormatError("SciPy has no sparse arrays of zero dimensions; use .todense()")
    name = str(storage.format)
    tiled = name.startswith("bsr:") and not storage.format.pads(storage.shape)
    if name in ("csr", "csc") or tiled:
        pos, crd = storage.buffers[1]
        if tiled:
            blocks = storage.format.blocks
            made = sp.bsr_array(storage.shape, dtype=storage.dtype, blocksize=blocks)
            made.data = storage.vals.view().reshape(len(crd), *blocks)
        else:
            made = (sp.csr_array if name == "csr" else sp.csc_array)(storage.shape, dtype=storage.dtype)
            made.data = storage.vals.view()
        made.indices = crd.view()
        made.indptr = pos.astype(crd.dtype) if len(crd) <= np.iinfo(crd.dtype).max else pos.view()
        made.has_sorted_indices = True
        made.has_canonical_format = True
        return made
    if name == "dia" and storage.shape[1] <= 4 * storage.shape[0]:  # SciPy's has a column for every column
        return _to_dia(storage)
    if name != "coo":
        narrow = storage.ndim == 2 and storage.shape[0] < 2**31
        return to_scipy(convert.convert(storage, Format.parse("csr" if narrow else "coo", storage.ndim)))
    coords = tuple(level[-1].view() for level in storage.buffers)
    return sp.coo_array((storage.vals.view(), coords), shape=storage.shape)


def _to_dia(storage: Storage) -> Any:
    """Entry (row, column) of diagonal k is at data[k, column] in SciPy's class, and at vals[row * diagonals + k] here."""
    import scipy.sparse as sp

    off = storage.buffers[1][1]
    rows, cols = storage.shape
    inside = np.flatnonzero((off > -rows) & (off < cols))
    data = np.zeros((len(inside), cols), storage.dtype)
    ours = storage.vals.reshape(rows, len(off))
    for made, k in zip(data, inside, strict=True):
        first, last = max(0, -int(off[k])), min(rows, cols - int(off[k]))
        made[first + off[k] : last + off[k]] = ours[first:last, k]
    return sp.dia_array((data, off[inside]), shape=storage.shape)
