"""pydata/sparse: COO, GCXS and DOK, with their fills."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, ingest
from sparsejax.interop import arrays
from sparsejax.optional import optional


def from_pydata(x: Any, *, format: str | Format | None = None, copy: bool | None = None) -> Array:
    """The array of one of pydata/sparse, with its fill: csr or csc of a GCXS matrix, coo of all others, or in `format`.

    Data and coordinates are shared where `copy` allows, as `sparsejax.array` shares NumPy's (`copy=None` borrows memory that it can freeze). Linear in the
    entries.
    """
    sparse = optional("sparse", "interop")
    if isinstance(x, sparse.GCXS) and x.ndim == 2:
        name = "csr" if tuple(x.compressed_axes) == (0,) else "csc"
        storage = arrays.compressed(name, x.shape, x.indptr, x.indices, x.data, copy)
        return arrays.made(storage, format, x.fill_value)
    if isinstance(x, sparse.GCXS | sparse.DOK):
        x = x.asformat("coo")
    if not isinstance(x, sparse.COO):
        raise TypeError(f"x is of type {type(x).__name__}; it must be a COO, GCXS or DOK of pydata/sparse")
    if not x.ndim:
        value = x.data[0] if len(x.data) else x.fill_value
        return Array(ingest.as_storage(np.asarray(value, x.dtype)))
    return arrays.made(arrays.coordinates(list(x.coords), x.data, x.shape, copy), format, x.fill_value)


def to_pydata(x: Any, *, copy: bool | None = None) -> Any:
    """An array of pydata/sparse with the same fill: GCXS of csr and csc, COO of all other formats and of dense arrays.

    Values and coordinates are copied; `copy=False` shares what it can. Linear in the entries.
    """
    sparse = optional("sparse", "interop")
    storage = arrays.storage_of(x, "", zero_fill=False)
    if storage.format.is_dense:
        return sparse.COO.from_numpy(convert.to_dense(storage))
    name = str(storage.format)
    if name in ("csr", "csc"):
        pos, crd = storage.buffers[1]
        parts = tuple(arrays.given(part, copy) for part in (storage.vals, crd, pos))
        axis = 0 if name == "csr" else 1
        return sparse.GCXS(parts, shape=storage.shape, compressed_axes=(axis,), fill_value=storage.fill_value)
    storage = convert.convert(storage, Format.parse("coo", storage.ndim))
    coords = np.stack([level[-1] for level in storage.buffers])
    if not coords.shape[1] and 0 in storage.shape and not storage.ndim:
        raise FormatError("pydata/sparse has no such array")
    return sparse.COO(
        coords,
        arrays.given(storage.vals, copy),
        shape=storage.shape,
        has_duplicates=False,
        sorted=True,
        fill_value=storage.fill_value,
    )
