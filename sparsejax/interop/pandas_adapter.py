"""pandas: frames and series of sparse columns, and long tables of coordinates and values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, ingest
from sparsejax.formats.levels.segments import crd_dtype
from sparsejax.formats.storage import Storage
from sparsejax.formats.structural import same_bits
from sparsejax.interop import arrays
from sparsejax.optional import optional


def from_pandas(
    table: Any,
    *,
    coords: Sequence[str] | None = None,
    values: str | None = None,
    shape: tuple[int, ...] | None = None,
    format: str | Format | None = None,
) -> Array:
    """The array of a frame or a series.

    Of a frame whose columns are sparse (`pandas.SparseDtype`), a matrix, csc unless `format` says otherwise, with their fill, which must be
    one; of a sparse series, a vector as coo; of other frames and series, a dense array. With `coords`, the names of one column of whole
    numbers per dimension, and `values`, the name of another, a long table is an array as coo (of `shape`, if given): a row is an entry, rows with the same
    coordinates are summed. Labels are not kept. Linear in the entries.
    """
    pandas = optional("pandas", "interop")
    if (coords is None) != (values is None):
        raise FormatError(
            "a long table needs both: coords= names the columns with coordinates, values= the one with values"
        )
    if coords is not None:
        columns = [table[name].to_numpy() for name in coords]
        extents = tuple(int(c.max()) + 1 if len(c) else 0 for c in columns) if shape is None else shape
        return arrays.made(arrays.coordinates(columns, table[values].to_numpy(), extents, None), format)
    parts = (
        [table.array] if isinstance(table, pandas.Series) else [table.iloc[:, k].array for k in range(table.shape[1])]
    )
    if not parts or not all(isinstance(part.dtype, pandas.SparseDtype) for part in parts):
        return arrays.made(ingest.as_storage(table.to_numpy()), format)
    fills = [part.dtype.fill_value for part in parts]
    dtype = np.result_type(*(part.dtype.subtype for part in parts))
    wanted = [ingest.fill_scalar(fill, dtype) for fill in fills]
    if not all(same_bits(fill, wanted[0]) for fill in wanted):
        raise FormatError(f"columns have different fills, {sorted(set(map(str, fills)))}; an array has one")
    vals = np.concatenate([np.asarray(part.sp_values, dtype) for part in parts])
    rows = np.concatenate([np.asarray(part.sp_index.indices, np.int64) for part in parts])
    if isinstance(table, pandas.Series):
        return arrays.made(arrays.coordinates([rows], vals, (len(table),), None), format, wanted[0])
    ends = np.cumsum([0, *(len(part.sp_values) for part in parts)])
    storage = arrays.compressed("csc", table.shape, ends, rows.astype(crd_dtype(len(table))), vals, None)
    return arrays.made(storage, format, wanted[0])


def to_pandas(x: Any) -> Any:
    """A series of a vector; a frame of a matrix, with sparse columns and the fill of the array unless it is dense; of more dimensions, a long frame of the
    stored entries, with columns dim_0, dim_1, ... and value, which has no place for a fill that is not zero.

    Linear in the entries, and in the columns. FormatError for no dimensions, and for complex values over sparse columns, which pandas lacks.
    """
    pandas = optional("pandas", "interop")
    storage = arrays.storage_of(x, "a long table", zero_fill=np.ndim(x) > 2)
    if not storage.ndim:
        raise FormatError("pandas has no table of zero dimensions; use .item()")
    if storage.ndim > 2:
        if storage.format.is_dense:
            storage = convert.convert(storage, Format.parse("coo", storage.ndim))
        columns, vals = storage.expand()
        return pandas.DataFrame({**{f"dim_{d}": np.array(c) for d, c in enumerate(columns)}, "value": np.array(vals)})
    if storage.format.is_dense:
        dense = convert.to_dense(storage).copy()
        return pandas.Series(dense) if storage.ndim == 1 else pandas.DataFrame(dense)
    if storage.dtype.kind == "c":
        raise FormatError("pandas has no sparse columns of complex values; convert the array with .todense() first")
    if storage.ndim == 1:
        (crd,), vals = convert.convert(storage, Format.parse("coo", 1)).expand()
        return pandas.Series(_column(pandas, crd, vals, storage))
    turned = convert.convert(storage, Format.parse("csc", 2))
    pos, crd = turned.buffers[1]
    columns = [_column(pandas, crd[a:b], turned.vals[a:b], storage) for a, b in itertools.pairwise(pos)]
    frame = pandas.DataFrame(dict(enumerate(columns)), index=pandas.RangeIndex(storage.shape[0]))
    frame.columns = pandas.RangeIndex(storage.shape[1])
    return frame


def _column(pandas: Any, crd: Any, vals: Any, storage: Storage) -> Any:
    if storage.shape[0] >= 2**31:
        raise FormatError(f"sparse columns of pandas have fewer than 2^31 rows, and this array {storage.shape[0]}")
    index = pandas.arrays.SparseArray(np.zeros(0)).sp_index.__class__(storage.shape[0], np.asarray(crd, np.int32))
    kind = pandas.SparseDtype(storage.dtype, storage.fill_value)
    return pandas.arrays.SparseArray(np.array(vals), sparse_index=index, fill_value=storage.fill_value, dtype=kind)
