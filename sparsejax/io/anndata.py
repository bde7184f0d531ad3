"""Sparse matrices of single-cell files: groups of anndata (HDF5 and zarr), and 10x Genomics' HDF5 files.

A sparse group of anndata has the attributes encoding-type ("csr_matrix" or "csc_matrix") and shape, and the arrays data, indices and
indptr. A 10x file has a group, "matrix" or one per genome, whose data, indices, indptr and shape are a csc matrix of features x cells.
"""

from __future__ import annotations

import types
from typing import Any, NamedTuple

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, ingest, scipy_io, structural
from sparsejax.formats.storage import Storage
from sparsejax.io.reading import Budget, finished, reading, shape_of, size_of, written
from sparsejax.io.stores import Group, opened

_ENCODINGS = {"csr_matrix": "csr", "csc_matrix": "csc", "csr": "csr", "csc": "csc"}


class CellMatrix(NamedTuple):
    """Counts of cells x features, and what their rows and columns are called."""

    counts: Array
    cells: list[str]
    features: list[str]


def read_anndata(
    source: Any,
    key: str = "X",
    *,
    format: str | Format | None = None,
    dtype: Any = None,
    max_bytes: int | None = None,
) -> Array:
    """The matrix `key` of an .h5ad file or a zarr store of anndata, such as "X", "layers/counts" or "obsp/connectivities"; or of a group that is
    open: csr or csc as stored, dense where it is a dense array, or in `format`.

    Also reads the names that anndata gave before version 0.7. `max_bytes` bounds the memory that is taken (the machine's, unless given).
    Needs h5py or zarr: `sparsejax[files]`. FormatError for anything else. O(entries).

    >>> import h5py, sparsejax as sj
    >>> file = h5py.File("any name", "w", driver="core", backing_store=False)
    >>> write_anndata(file, sj.array([[0, 2], [3, 0]], format="csr"))
    >>> read_anndata(file).format
    Format('csr')
    """
    budget = Budget(max_bytes)
    if dtype is not None:
        dtype = dtypes.canonical(dtype)
    with reading(source), opened(source, "r", budget) as root:
        here, name = _walk(root, key)
        if here.is_array(name):
            dense = here.read(name, "biufc", len(here.extents(name)))
            return finished(ingest.as_storage(dense), format, dtype, budget)
        group = here.below(name)
        encoding = group.attribute("encoding-type") or group.attribute("h5sparse_format")
        if not isinstance(encoding, str) or encoding not in _ENCODINGS:
            raise FormatError(f"{key} has the encoding-type {encoding!r}; {', '.join(_ENCODINGS)} are sparse matrices")
        told = group.attribute("shape")
        told = group.attribute("h5sparse_shape") if told is None else told
        if told is None:
            raise FormatError(f"{key} has no attribute shape")
        shape = shape_of(np.asarray(told).ravel().tolist(), 2)
        return finished(_read(group, _ENCODINGS[encoding], shape), format, dtype, budget)


def write_anndata(target: Any, x: Any, key: str = "X", *, compressed: bool = False) -> None:
    """Write a matrix as a sparse group `key`, which anndata reads: csc where it is csc, else csr.

    `target` is a path (an HDF5 file, or a zarr store for ".zarr"), where what else there is stays, or an open h5py or zarr group. `compressed` packs
    HDF5 arrays; zarr packs its own in any case. Needs h5py or zarr: `sparsejax[files]`. FormatError for other dimensions than two
    and for a fill that is not zero; ValueError where `key` exists.
    """
    storage = written(x, "a sparse group of anndata", ndim=2)
    name = "csc" if storage.format == Format.parse("csc", 2) else "csr"
    storage = structural.refill(convert.convert(storage, Format.parse(name, 2)), 0)
    pos, crd = storage.buffers[1]
    with opened(target, "a") as root:
        if key in root:
            raise ValueError(f"{key} is there already; choose another key, or delete it first")
        group = Group(root.group.create_group(key))
        group.set("encoding-type", f"{name}_matrix")
        group.set("encoding-version", "0.1.0")
        group.set("shape", np.array(storage.shape, np.int64))
        group.write("data", storage.vals, compressed)
        group.write("indices", crd, compressed)
        group.write("indptr", pos.astype(crd.dtype) if len(crd) <= np.iinfo(crd.dtype).max else pos, compressed)


def read_10x_h5(
    source: Any,
    *,
    genome: str | None = None,
    format: str | Format | None = None,
    dtype: Any = None,
    max_bytes: int | None = None,
) -> CellMatrix:
    """Counts of cells x features, with the names of both, of an HDF5 file of 10x Genomics' Cell Ranger: csr, over the file's buffers, or in `format`.

    Both layouts are read: one group "matrix" (version 3), where features are called by their names, and one group per genome (version 2), of
    which `genome` names one where there are several. `max_bytes` bounds the memory that is taken (the machine's, unless given).
    Needs h5py: `sparsejax[files]`. FormatError for anything else. O(entries).
    """
    budget = Budget(max_bytes)
    if dtype is not None:
        dtype = dtypes.canonical(dtype)
    with reading(source), opened(source, "r", budget) as root:
        names = [name for name in root.group if not root.is_array(name)]
        name = "matrix" if "matrix" in names else genome
        if name is None and len(names) == 1:
            (name,) = names
        if name is None or name not in names:
            raise FormatError(f"the file has the groups {', '.join(names[:20])}; name one as genome=")
        group = root.below(name)
        shape = shape_of(group.read("shape", "iu").tolist(), 2)
        turned = _read(group, "csc", shape)
        counts = structural.transpose(turned, (1, 0))
        features = group.below("features").texts("name") if "features" in group else group.texts("gene_names")
        cells = group.texts("barcodes")
        for what, found, wanted in (("barcodes", cells, shape[1]), ("features", features, shape[0])):
            if len(found) != wanted:
                raise FormatError(f"there are {len(found)} {what}, but the matrix has {wanted}")
        return CellMatrix(finished(counts, format, dtype, budget), cells, features)


def _walk(root: Group, key: str) -> tuple[Group, str]:
    """The group that holds what `key` names, and its name there."""
    *above, name = key.strip("/").split("/")
    for part in above:
        root = root.below(part)
    return root, name


def _read(group: Group, name: str, shape: tuple[int, int] | tuple[int, ...]) -> Storage:
    """A csr or csc matrix of data, indices and indptr. How long these are is compared before any is read."""
    rows = shape[0] if name == "csr" else shape[1]
    lengths = {what: size_of(group.extents(what)) for what in ("indptr", "indices", "data")}
    if lengths["indptr"] != rows + 1 or lengths["indices"] != lengths["data"]:
        raise FormatError(
            f"a {name} matrix of shape {shape} has {rows + 1} pointers, and as many indices as values, but the file holds {lengths}"
        )
    parts = {what: group.read(what, "biufc" if what == "data" else "iu") for what in lengths}
    return scipy_io.from_scipy(types.SimpleNamespace(format=name, shape=shape, **parts))
