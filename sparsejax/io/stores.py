"""Groups of arrays in HDF5 files (through h5py) and zarr stores: one face for both, which trusts neither.

Of HDF5, links into other files and arrays that lie in other files are refused, so that a file cannot read its reader's disk. Of zarr, arrays with
codecs that are not on the list are refused: numcodecs has one that unpickles.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats.levels.segments import Array
from sparsejax.io.reading import DEFLATE_RATIO, Budget, size_of
from sparsejax.optional import optional

_CODECS = {
    "bytes", "transpose", "gzip", "zstd", "blosc", "crc32c", "sharding_indexed", "zlib", "lz4", "lzma", "bz2", "shuffle", "crc32",
    "numcodecs.zlib", "numcodecs.gzip", "numcodecs.zstd", "numcodecs.blosc", "numcodecs.lz4", "numcodecs.shuffle",
}  # fmt: skip
_RATIO = 1 << 16
"""Bytes that one byte can become, packed by zstd and the like: blocks of 128 KiB of one value take four bytes."""

_ATTRIBUTE = 1 << 20


class Group:
    """A group of h5py or zarr: its attributes, and the arrays in it."""

    def __init__(self, group: Any, budget: Budget | None = None) -> None:
        self.group, self.budget = group, budget or Budget(None)
        self.is_zarr = type(group).__module__.split(".")[0] == "zarr"

    def __contains__(self, name: str) -> bool:
        return name in self.group

    def attribute(self, name: str) -> Any:
        """An attribute, as Python's own type or a NumPy array; None where there is none."""
        if not self.is_zarr and name in self.group.attrs:
            held = self.group.attrs.get_id(name)
            if held.get_storage_size() > _ATTRIBUTE or size_of(held.shape or ()) * held.dtype.itemsize > _ATTRIBUTE:
                raise FormatError(f"attribute {name} has more than {_ATTRIBUTE} bytes")
        found = self.group.attrs.get(name)
        return found.decode("utf-8") if isinstance(found, bytes) else found

    def below(self, name: str) -> Group:
        """The group called `name`."""
        found = self._member(name)
        if hasattr(found, "shape"):
            raise FormatError(f"{name} is an array, not a group")
        return Group(found, self.budget)

    def is_array(self, name: str) -> bool:
        return name in self and hasattr(self._member(name), "shape")

    def extents(self, name: str) -> tuple[int, ...]:
        """The shape of an array, before it is read."""
        shape = getattr(self._member(name), "shape", None)
        if shape is None:
            raise FormatError(f"{name} is no array")
        return tuple(int(n) for n in shape)

    def read(self, name: str, kinds: str = "biufc", ndim: int = 1) -> Array:
        """The array called `name`, of numbers of one of `kinds`."""
        array = self._member(name)
        shape = self.extents(name)
        dtype = np.dtype(array.dtype)
        if dtype.kind not in kinds or len(shape) != ndim:
            raise FormatError(
                f"{name} has dtype {dtype} and shape {shape}; it must have {ndim} dimensions and hold numbers"
            )
        (self._check_zarr if self.is_zarr else self._check_hdf5)(array, name, size_of(shape) * dtype.itemsize)
        return np.ascontiguousarray(array[...]).astype(dtype.newbyteorder("="), copy=False)

    def texts(self, name: str) -> list[str]:
        """The array of texts called `name`."""
        array = self._member(name)
        (count,) = self.extents(name) if len(self.extents(name)) == 1 else (-1,)
        if count < 0 or np.dtype(array.dtype).kind not in "SUOT":
            raise FormatError(f"{name} has dtype {array.dtype} and shape {array.shape}; it must be a vector of texts")
        itemsize = max(1, np.dtype(array.dtype).itemsize)
        (self._check_zarr if self.is_zarr else self._check_hdf5)(array, name, count * itemsize)
        return [item.decode("utf-8") if isinstance(item, bytes) else str(item) for item in array[...].tolist()]

    def _member(self, name: str) -> Any:
        """What is called `name` here, not a link to somewhere else."""
        if name not in self:
            raise FormatError(f"the group has no member {name}")
        if not self.is_zarr:
            h5py = optional("h5py", "files")
            if isinstance(self.group.get(name, getlink=True), h5py.ExternalLink):
                raise FormatError(f"{name} is a link into another file; such links are not followed")
        return self.group[name]

    def _check_hdf5(self, array: Any, name: str, nbytes: int) -> None:
        if array.external is not None or array.is_virtual:
            raise FormatError(f"{name} lies in another file; such arrays are not read")
        filters = array.compression is not None or array.scaleoffset is not None or bool(array._filters)
        ratio = 1 if not filters else DEFLATE_RATIO if array.compression == "gzip" else _RATIO
        self.budget.claim(nbytes, array.id.get_storage_size(), ratio, name)

    def _check_zarr(self, array: Any, name: str, nbytes: int) -> None:
        unknown = [codec for codec in _codecs(array) if codec not in _CODECS]
        if unknown:
            raise FormatError(f"{name} is packed by {', '.join(unknown)}; only {', '.join(sorted(_CODECS))} are read")
        stored, chunks = int(array.nbytes_stored()), int(array.nchunks)
        if chunks > 1024 + 64 * stored:  # zarr looks for each, also to tell how many there are
            raise FormatError(f"{name} claims {chunks} chunks, which the {stored} bytes stored of it cannot hold")
        chunk = size_of(array.chunks) * np.dtype(array.dtype).itemsize
        self.budget.claim(chunk, stored, _RATIO, f"a chunk of {name}")
        self.budget.claim(nbytes, stored, _RATIO, name)

    # ------------------------------------------------------------------------------------------------------ writing

    def set(self, name: str, value: Any) -> None:
        """Set an attribute."""
        self.group.attrs[name] = value.tolist() if self.is_zarr and isinstance(value, np.ndarray) else value

    def write(self, name: str, array: Array, compressed: bool = False) -> None:
        """Write an array."""
        if self.is_zarr:
            self.group.create_array(name, data=array)
        else:
            packed = {"compression": "gzip", "shuffle": True} if compressed and array.size else {}
            self.group.create_dataset(name, data=array, **packed)


def _codecs(array: Any) -> list[str]:
    """The names of all codecs of a zarr array, also of those inside shards."""
    found: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            name = node.get("name", node.get("id"))
            if isinstance(name, str):
                found.append(name)
            for key in ("configuration", "codecs", "index_codecs"):
                visit(node.get(key))
        elif isinstance(node, list | tuple):
            for item in node:
                visit(item)

    told = array.metadata.to_dict()
    visit(list(told.get("codecs") or ()))
    visit(list(told.get("filters") or ()))
    visit(told.get("compressor"))
    return found


@contextlib.contextmanager
def opened(source: Any, mode: str, budget: Budget | None = None) -> Iterator[Group]:
    """The root group of an HDF5 file, or of a zarr store where a path ends in ".zarr" or is a folder; or a group that is open already.

    `mode` is "r", "w" (a new file) or "a".
    """
    if hasattr(source, "attrs"):
        yield Group(source, budget)
        return
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        if str(path).rstrip("/").endswith(".zarr") or os.path.isdir(path):
            if mode == "r" and not os.path.isdir(path):
                raise FileNotFoundError(2, "no such zarr store", path)
            yield Group(optional("zarr", "files").open_group(path, mode=mode), budget)
            return
    with optional("h5py", "files").File(source, mode) as file:
        yield Group(file, budget)
