"""What all exchanges share: storages out of anything, and the buffers of a library as a storage."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.errors import FormatError
from sparsejax.formats import Coordinate, Dense, Format, convert, ingest, scipy_io
from sparsejax.formats.levels.segments import Array as Buffer
from sparsejax.formats.levels.segments import check_bounds
from sparsejax.formats.ownership import own, refuse_copy
from sparsejax.formats.storage import Storage
from sparsejax.formats.structural import refill, same_bits
from sparsejax.formats.validate import validate


def storage_of(x: Any, library: str, zero_fill: bool = True) -> Storage:
    """The storage of an array of ours, or of what `sparsejax.array` takes; FormatError for a fill that `library` has no place for."""
    storage = x._storage.exposed() if isinstance(x, Array) else ingest.as_storage(x)
    if zero_fill and not same_bits(storage.fill_value, storage.dtype.type(0)):
        raise FormatError(
            f"{library} has no place for the fill {storage.fill_value}: what it does not store is zero; "
            "subtract the fill first, or pass a dense array"
        )
    return storage


def compressed(
    name: str, shape: Sequence[int], indptr: Buffer, indices: Buffer, data: Buffer, copy: bool | None
) -> Storage:
    """The storage of csr, csc or bsr buffers, checked; values are shared where `copy` allows (`formats/ownership`), indices too where they have our dtype."""
    extent = (
        shape[0]
        if name == "csc"
        else shape[1] // (data.shape[2] if name == "bsr" and data.ndim == 3 and data.shape[2] else 1)
    )
    indices = _narrowed(indices, extent, copy)
    parts = {"indptr": indptr, "indices": indices, "data": data}
    return scipy_io.from_scipy(types.SimpleNamespace(format=name, shape=tuple(shape), **parts), copy)


def coordinates(columns: Sequence[Buffer], data: Buffer, shape: Sequence[int], copy: bool | None) -> Storage:
    """The storage of entries at coordinates, one vector per dimension; of rows of values where `data` has more dimensions: the last ones of the array,
    stored dense. Sorted and summed where needed."""
    extents = tuple(int(n) for n in shape)
    columns = [_narrowed(column, n, copy) for column, n in zip(columns, extents, strict=False)]
    if data.ndim == 1:
        return scipy_io.from_coordinates(columns, data, extents, copy)
    many = len(columns)
    where = scipy_io.from_coordinates(columns, np.arange(len(data)), extents[:many], copy)
    if where.nnz != len(data) or not np.array_equal(where.vals, np.arange(len(data))):
        refuse_copy(copy, "the entries are not sorted, or have duplicates")
        inner = np.indices(extents[many:]).reshape(len(extents) - many, -1)
        per = inner.shape[1]
        wide = [np.repeat(np.asarray(c, np.int64), per) for c in columns] + [np.tile(c, len(data)) for c in inner]
        made = convert.from_coords(
            wide, data.reshape(-1).astype(dtypes.canonical(data.dtype)), extents, hybrid(many, len(extents)), 0
        )
    else:
        flat = own(data.reshape(-1), dtypes.canonical(data.dtype), copy, "data", data)
        buffers = (*where.buffers, *((),) * (len(extents) - many))
        made = Storage(hybrid(many, len(extents)), extents, flat.dtype.type(0), buffers, flat)
    validate(made)
    return made


def _narrowed(crd: Buffer, extent: int, copy: bool | None) -> Buffer:
    """Coordinates in our dtype, where values are to be shared in any case: most libraries have 64 bits for all."""
    wanted = convert.crd_dtype(extent)
    if copy is not False or crd.dtype == wanted or crd.dtype.kind not in "iu":
        return crd
    check_bounds(crd, extent, "coordinates")
    return crd.astype(wanted)


def hybrid(sparse: int, ndim: int) -> Format:
    """Coordinates of the first `sparse` dimensions, and dense ones below."""
    return Format((Coordinate(),) * sparse + (Dense(),) * (ndim - sparse))


def sparse_dimensions(form: Format) -> int | None:
    """How many dimensions a hybrid format has coordinates of; None for other formats."""
    many = sum(isinstance(level, Coordinate) for level in form.levels)
    return many if many and form == hybrid(many, form.ndim) else None


def made(storage: Storage, format: str | Format | None, fill_value: Any = None) -> Array:
    """The array of a storage, over another fill, in another format."""
    if fill_value is not None:
        storage = refill(storage, ingest.fill_scalar(fill_value, storage.dtype))
    if format is not None:
        storage = convert.convert(storage, Format.parse(format, storage.ndim))
    return Array(refill(storage, 0) if storage.format.is_dense else storage)


def given(x: Buffer, copy: bool | None) -> Buffer:
    """A buffer to be handed out: itself for `copy=False`, where the caller's word is that nobody writes to it, else a copy that can be written to."""
    return x if copy is False else np.array(x)


def immutable(copy: bool | None) -> bool | None:
    """How to take memory that nobody can write to: shared, unless a copy is asked for."""
    return False if copy is None else copy
