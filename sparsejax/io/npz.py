"""NumPy's .npz archives: SciPy's layout where it has the format, ours for every other; never a pickle.

Two-dimensional csr, csc, coo, bsr and dia arrays with fill 0 are written as `scipy.sparse.save_npz` writes them, and `scipy.sparse.load_npz`
reads them. All others are written in our layout, version 1, which is our storage as it is (docs/guide/formats.md lists the buffers of every level):

    sparsejax_version   1
    sparsejax_format    the format as text, such as "csf" or "(d,c,d)@(0,2,1)"
    shape               int64, one per dimension
    fill_value          one number of the dtype of `vals`
    vals                one number per position of the last level
    level{l}_{name}     a buffer of level l, such as level1_pos and level1_crd

In SciPy's layout, `sparsejax_format` is there too, so that we read again what we wrote. Members are read here, not by `np.load`: only numbers and short
texts, and no more bytes than the archive can hold.
"""

from __future__ import annotations

import itertools
import os
import types
import zipfile
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.errors import FormatError
from sparsejax.formats import Dense, Format, convert, scipy_io
from sparsejax.formats.levels.segments import Array as Buffer
from sparsejax.formats.storage import Storage
from sparsejax.formats.structural import same_bits
from sparsejax.formats.validate import validate
from sparsejax.io.reading import DEFLATE_RATIO, Budget, check_fits, finished, reading, shape_of, size_of, written

VERSION = 1
_SCIPY = {
    "csr": ("indices", "indptr"),
    "csc": ("indices", "indptr"),
    "bsr": ("indices", "indptr"),
    "coo": ("row", "col"),
    "dia": ("offsets",),
}
_MEMBERS = 1000
_HEADER = 10_000


def save_npz(file: Any, x: Any, compressed: bool = True) -> None:
    """Save an array of any format, fill and number of dimensions to a path (".npz" is added where it is missing) or an open binary file.

    SciPy reads files of csr, csc, coo, bsr and dia matrices with fill 0; see the module's documentation for the others.

    >>> import io, scipy.sparse as sp, sparsejax as sj
    >>> file = io.BytesIO()
    >>> save_npz(file, sj.array([[0, 2], [3, 0]], format="csr"))
    >>> _ = file.seek(0)
    >>> sp.load_npz(file).toarray()
    array([[0, 2],
           [3, 0]])
    """
    storage = written(x, "an .npz file", zero_fill=False)
    members = _scipy_members(storage) or _our_members(storage)
    members |= {"sparsejax_version": np.int64(VERSION), "sparsejax_format": np.array(str(storage.format))}
    (np.savez_compressed if compressed else np.savez)(file, **members)


def load_npz(
    file: Any, *, format: str | Format | None = None, dtype: Any = None, max_bytes: int | None = None
) -> Array:
    """The array of a file that `save_npz` or `scipy.sparse.save_npz` wrote, in the format it was saved in, or in `format`.

    `max_bytes` bounds the memory that is taken (the machine's, unless given). FormatError for anything else, and for what breaks the rules of
    its format. Nothing in a file is executed. O(bytes).

    >>> import io, sparsejax as sj
    >>> file = io.BytesIO()
    >>> save_npz(file, sj.array([[0, 2], [3, 0]], format="dcsr"))
    >>> _ = file.seek(0)
    >>> load_npz(file).format
    Format('dcsr')
    """
    budget = Budget(max_bytes)
    if dtype is not None:
        dtype = dtypes.canonical(dtype)
    with reading(file), zipfile.ZipFile(file) as archive:
        members = _Members(archive, budget)
        if "format" in members.infos:
            storage = _from_scipy(members, budget)
        elif "sparsejax_version" in members.infos:
            storage = _ours(members)
        else:
            raise FormatError("the archive is neither SciPy's nor ours: it has no member format or sparsejax_version")
        return finished(storage, format, dtype, budget)


def outline_npz(file: Any) -> tuple[Aval, int] | None:
    """The type of the array in a file and how many entries it stores, without reading them; None where that takes the whole file: formats whose positions
    are not entries, and SciPy's other than csr and csc.

    >>> import io, sparsejax as sj
    >>> file = io.BytesIO()
    >>> save_npz(file, sj.array([[0, 2], [3, 0]], format="csr"))
    >>> outline_npz(file)
    (i64[2:d,2:c], 2)
    """
    with reading(file), zipfile.ZipFile(file) as archive:
        members = _Members(archive, Budget(None))
        scipys = "format" in members.infos
        if (scipys and members.text("format") not in ("csr", "csc")) or not {"shape", "sparsejax_format"} <= set(
            members.infos
        ):
            return None
        shape = members.shape()
        form = Format.parse(members.text("sparsejax_format"), len(shape))
        if not form.packed or form.pads(shape):
            return None
        fill = 0 if scipys else members("fill_value")[()]
        sizes, _, dtype = members.header("data" if scipys else "vals")
        return Aval(shape, dtypes.canonical(dtype), form, fill), size_of(sizes)


# ------------------------------------------------------------------------------------------------------------ writing


def _scipy_members(storage: Storage) -> dict[str, Any] | None:
    """What SciPy would write; None where it has no such array."""
    name = str(storage.format).split(":")[0]
    if storage.ndim != 2 or name not in _SCIPY or not same_bits(storage.fill_value, storage.dtype.type(0)):
        return None
    made = scipy_io.to_scipy(storage)
    if made.format != name:  # blocks that stick out of the shape, diagonals of wide matrices
        return None
    places = {member: getattr(made, member) for member in _SCIPY[name]}
    return {**places, "format": name.encode(), "shape": np.array(made.shape), "data": made.data, "_is_array": True}


def _our_members(storage: Storage) -> dict[str, Any]:
    made = {
        "shape": np.array(storage.shape, np.int64),
        "fill_value": np.array(storage.fill_value, storage.dtype),
        "vals": storage.vals,
    }
    for level, buffers in enumerate(storage.buffers):
        for name, buffer in zip(storage.format.buffer_names(level), buffers, strict=True):
            made[f"level{level}_{name}"] = buffer
    return made


# ------------------------------------------------------------------------------------------------------------ reading


class _Members:
    """The arrays in an archive, read one by one."""

    def __init__(self, archive: zipfile.ZipFile, budget: Budget) -> None:
        self.archive, self.budget = archive, budget
        listed = archive.infolist()
        if len(listed) > _MEMBERS:
            raise FormatError(f"the archive has {len(listed)} members; an array has at most {_MEMBERS}")
        self.infos = {info.filename.removesuffix(".npy"): info for info in listed}
        stream: Any = archive.fp
        here = stream.tell()
        self.size = stream.seek(0, os.SEEK_END)
        stream.seek(here)

    def __call__(self, name: str) -> Buffer:
        """The member called `name`; FormatError where there is none, and where it is no array of numbers or text."""
        if name not in self.infos:
            raise FormatError(f"the archive has no member {name}")
        info = self.infos[name]
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FormatError(f"member {name} is packed by method {info.compress_type}; only deflated ones are read")
        opened: Any = self.archive.open(info)
        with opened as stream:
            shape, fortran, dtype = _header(stream, name)
            nbytes = size_of(shape) * dtype.itemsize
            if info.file_size != stream.tell() + nbytes:
                raise FormatError(
                    f"member {name} has shape {shape} and dtype {dtype}, but not as many bytes as that ({info.file_size})"
                )
            self.budget.claim(nbytes, min(info.compress_size, self.size), DEFLATE_RATIO, f"member {name}")
            made = np.empty(nbytes, np.uint8)
            view, at = memoryview(made.data), 0
            while at < nbytes:
                got = stream.readinto(view[at : at + (1 << 22)])
                if not got:
                    raise FormatError(f"member {name} ends after {at} of {nbytes} bytes")
                at += got
            if stream.read(1):  # the end of a member is where its checksum is looked at
                raise FormatError(f"member {name} goes on after its {nbytes} bytes")
        array = made.view(dtype) if nbytes else np.empty(size_of(shape), dtype)
        array = array.reshape(shape, order="F" if fortran else "C")
        native: Buffer = array.astype(dtype.newbyteorder("="), copy=False)
        return native

    def header(self, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        """Shape, order and dtype of a member; FormatError where there is none."""
        if name not in self.infos:
            raise FormatError(f"the archive has no member {name}")
        opened: Any = self.archive.open(self.infos[name])
        with opened as stream:
            return _header(stream, name)

    def text(self, name: str) -> str:
        array = self(name)
        if array.shape != () or array.dtype.kind not in "SU":
            raise FormatError(f"member {name} has dtype {array.dtype} and shape {array.shape}; it must be one text")
        item = array.item()
        return item.decode("ascii") if isinstance(item, bytes) else item

    def vector(self, name: str, kinds: str = "iu") -> Buffer:
        array = self(name)
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise FormatError(
                f"member {name} has dtype {array.dtype} and shape {array.shape}; it must be a vector of numbers"
            )
        return array

    def shape(self) -> tuple[int, ...]:
        info = self.infos.get("shape")
        if info is not None and info.file_size > 4096:
            raise FormatError("member shape is too long for a shape")
        return shape_of(self.vector("shape").tolist())


def _header(stream: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise FormatError(f"member {name} has version {version} of the .npy format; 1.0 and 2.0 hold numbers")
    shape, fortran, dtype = readers[version](stream, max_header_size=_HEADER)
    if dtype.hasobject or dtype.kind not in "biufcSU" or dtype.subdtype is not None:
        raise FormatError(f"member {name} has dtype {dtype}; only numbers and short texts are read, never objects")
    if any(n < 0 for n in shape) or (dtype.kind in "SU" and (shape != () or dtype.itemsize > 4096)):
        raise FormatError(f"member {name} has shape {shape} and dtype {dtype}, which no array has")
    return shape, fortran, dtype


def _from_scipy(members: _Members, budget: Budget) -> Storage:
    """What SciPy's layout holds. Buffers go through the checks of `scipy_io`; no class of SciPy sees them."""
    name = members.text("format")
    if name not in _SCIPY:
        raise FormatError(f"the archive holds SciPy's format {name!r}; csr, csc, coo, bsr and dia are known")
    shape = members.shape()
    parts: dict[str, Any] = {"format": name, "shape": shape}
    if name == "coo" and "row" not in members.infos:
        coords = members("coords")
        if coords.ndim != 2:
            raise FormatError(f"member coords has shape {coords.shape}; it must have one row per dimension")
        parts["coords"] = tuple(coords)
    elif name == "coo":
        parts["coords"] = (members.vector("row"), members.vector("col"))
    else:
        if len(shape) != 2 and not (name == "csr" and len(shape) == 1):
            raise FormatError(f"SciPy's {name} arrays are matrices, but the shape is {shape}")
        parts |= {member: members.vector(member) for member in _SCIPY[name]}
    parts["data"] = members("data")
    form = Format.parse(members.text("sparsejax_format"), len(shape)) if "sparsejax_format" in members.infos else None
    if parts["data"].dtype.kind not in "biufc":
        raise FormatError(f"member data has dtype {parts['data'].dtype}; it must hold numbers")
    if name == "dia" and shape[0] <= 4 * shape[1] and len(parts["offsets"]):
        storage = _diagonals(parts["data"], parts["offsets"], shape, budget)
    else:
        storage = scipy_io.from_scipy(types.SimpleNamespace(**parts))
    if form is not None and form != storage.format:
        check_fits(form, shape, storage.nnz, storage.dtype.itemsize, budget)
        storage = convert.convert(storage, form)
    return storage


def _diagonals(data: Buffer, offsets: Buffer, shape: tuple[int, ...], budget: Budget) -> Storage:
    """Our dia of SciPy's: entry (row, row + offsets[k]) is at data[k, row + offsets[k]] there, and at vals[row * diagonals + k] here."""
    rows, cols = shape
    if data.ndim != 2 or len(data) != len(offsets):
        raise FormatError(f"member data has shape {data.shape}; it must have {len(offsets)} rows, one per offset")
    if len(np.unique(offsets)) != len(offsets):
        raise FormatError("member offsets repeats a diagonal; sum the diagonals that are equal")
    inside = np.flatnonzero((offsets > -rows) & (offsets < cols))
    if not len(inside):  # nothing but rows: coo takes no memory for these
        return convert.from_coords(
            np.empty((2, 0), np.int64), np.empty(0, dtypes.canonical(data.dtype)), shape, Format.parse("coo", 2), 0
        )
    inside = inside[np.argsort(offsets[inside])]
    dtype = dtypes.canonical(data.dtype)
    budget.take(rows * len(inside) * dtype.itemsize, f"{len(inside)} diagonals of {rows} rows")
    vals = np.zeros((rows, len(inside)), dtype)
    kept = np.ascontiguousarray(offsets[inside], np.int64)
    for k, (number, off) in enumerate(zip(inside.tolist(), kept.tolist(), strict=True)):
        first, last = max(0, -off), min(rows, cols - off, data.shape[1] - off)
        if last > first:
            vals[first:last, k] = data[number, first + off : last + off]
    count = np.array([len(kept)], np.int64)
    buffers = ((), (count, kept))
    return Storage(Format.parse("dia", 2), shape, dtype.type(0), buffers, vals.reshape(-1))


def _ours(members: _Members) -> Storage:
    version = members("sparsejax_version")
    if version.shape != () or version.dtype.kind not in "iu" or int(version) != VERSION:
        raise FormatError(f"the archive has version {version} of our layout; this release reads version {VERSION}")
    shape = members.shape()
    form = Format.parse(members.text("sparsejax_format"), len(shape))
    if (
        not form.is_dense
    ):  # a dense level stores nothing itself, and may be above one of extent 0, which stores nothing either
        dense = itertools.takewhile(
            lambda pair: isinstance(pair[0], Dense), zip(form.levels, form.level_extents(shape), strict=True)
        )
        members.budget.take(8 * size_of([n for _, n in dense]), f"an array of shape {shape} in format {form}")
    fill = members("fill_value")
    if fill.shape != ():
        raise FormatError(f"member fill_value has shape {fill.shape}; it must be one number")
    buffers = tuple(
        tuple(members(f"level{level}_{name}") for name in form.buffer_names(level)) for level in range(len(form.levels))
    )
    storage = Storage(form, shape, fill[()], buffers, members("vals"))
    validate(storage)
    return storage
