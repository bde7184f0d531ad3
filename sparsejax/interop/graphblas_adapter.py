"""GraphBLAS, through python-graphblas: matrices, vectors and scalars."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, ingest
from sparsejax.formats.storage import Storage
from sparsejax.interop import arrays
from sparsejax.optional import optional


def from_graphblas(x: Any, *, fill_value: Any = 0, format: str | Format | None = None) -> Array:
    """The array of a GraphBLAS matrix (csr or csc, as it is oriented), vector (coo) or scalar, or in `format`.

    GraphBLAS does not say what is where it stores nothing: that is `fill_value` here. Its memory is copied. Linear in the entries.
    """
    graphblas = optional("graphblas", "interop")
    if isinstance(x, graphblas.Scalar):
        return Array(ingest.as_storage(np.asarray(fill_value if x.is_empty else x.value, x.dtype.np_type)))
    if isinstance(x, graphblas.Vector):
        crd, vals = x.to_coo()
        return arrays.made(arrays.coordinates([crd], vals, (x.size,), None), format, fill_value)
    if not isinstance(x, graphblas.Matrix):
        raise TypeError(f"x is of type {type(x).__name__}; it must be a Matrix, Vector or Scalar of GraphBLAS")
    by_row = x.ss.orientation == "rowwise"
    if max(x.nrows, x.ncols) > 64 * (x.nvals + 1024):  # row pointers would be most of it
        rows, columns, vals = x.to_coo()
        return arrays.made(arrays.coordinates([rows, columns], vals, x.shape, None), format, fill_value)
    indptr, crd, vals = x.to_csr() if by_row else x.to_csc()
    storage = arrays.compressed("csr" if by_row else "csc", x.shape, indptr, crd, vals, None)
    return arrays.made(storage, format, fill_value)


def to_graphblas(x: Any, *, drop_fill: bool = False) -> Any:
    """A GraphBLAS matrix, vector or scalar with the stored entries, explicit zeros too; of dense arrays, all entries.

    GraphBLAS does not hold a fill: FormatError where it is not zero, unless `drop_fill` says that it goes without saying (infinity, in the semiring of
    minimum and plus). FormatError for more than two dimensions. Linear in the entries.
    """
    graphblas = optional("graphblas", "interop")
    storage = arrays.storage_of(x, "GraphBLAS", zero_fill=not drop_fill)
    if storage.ndim > 2:
        raise FormatError(f"GraphBLAS has matrices and vectors, but this array has {storage.ndim} dimensions")
    if not storage.ndim:
        return graphblas.Scalar.from_value(storage.vals[0].item(), dtype=storage.dtype)
    if storage.format.is_dense:
        columns, vals = storage.expand()
        return _from_coo(graphblas, [np.asarray(c) for c in columns], vals, storage)
    name = str(storage.format)
    if storage.ndim == 2 and name in ("csr", "csc"):
        pos, crd = storage.buffers[1]
        make = graphblas.Matrix.from_csr if name == "csr" else graphblas.Matrix.from_csc
        rows, columns_ = storage.shape
        return make(pos, crd, storage.vals, nrows=rows, ncols=columns_)
    coo = convert.convert(storage, Format.parse("coo", storage.ndim))
    return _from_coo(graphblas, [level[-1] for level in coo.buffers], coo.vals, coo)


def _from_coo(graphblas: Any, columns: list[Any], vals: Any, storage: Storage) -> Any:
    if storage.ndim == 1:
        return graphblas.Vector.from_coo(columns[0], vals, size=storage.shape[0], dtype=storage.dtype)
    rows, cols = storage.shape
    return graphblas.Matrix.from_coo(columns[0], columns[1], vals, nrows=rows, ncols=cols, dtype=storage.dtype)
