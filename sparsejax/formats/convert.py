"""Conversion between formats: remap, count, assemble.

Entries are ordered by stable counting passes over 16-bit digits, last storage level first (NumPy's stable sort of 16-bit
integers is a radix sort), so that the cost is linear in the entries and does not depend on the extents. Levels are then
assembled top down with prefix sums. Source: "Automatic Generation of Efficient Sparse Tensor Format Conversion Routines".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.errors import FormatError
from sparsejax.formats.compressed import Compressed
from sparsejax.formats.coordinate import Coordinate
from sparsejax.formats.dense import Dense
from sparsejax.formats.format import Format
from sparsejax.formats.storage import Storage

Array = NDArray[Any]
_MAX_POSITIONS = 2**38


def crd_dtype(extent: int) -> np.dtype[Any]:
    """The dtype of coordinates below `extent`: int32 where it fits."""
    return np.dtype(np.int32 if extent <= 2**31 - 1 else np.int64)


def convert(storage: Storage, format: Format) -> Storage:
    """`storage` in another format; entries that are stored stay stored, even zeros.

    Linear in the stored entries (and in the size of the dense levels of `format`). From a dense format, the entries that
    differ from the fill are kept.

    >>> dense = from_dense(np.eye(3), Format.parse("csr", 2), 0.0)
    >>> convert(dense, Format.parse("coo", 2)).nnz
    3
    """
    if format == storage.format:
        return storage
    if storage.format.is_dense or format.is_dense:
        return from_dense(to_dense(storage), format, storage.fill_value)
    coords, vals = to_coords(storage)
    return from_coords(coords, vals, storage.shape, format, storage.fill_value)


def to_coords(storage: Storage) -> tuple[Array, Array]:
    """(coords, vals): an int64 array of shape (ndim, n) in dimension order, and the n stored values, in storage order.

    Dense levels below sparse ones are expanded.
    """
    form = storage.format
    count = 1
    crds: list[Array] = []
    for level, dimension in enumerate(form.order):
        kind, buffers = form.levels[level], storage.buffers[level]
        if isinstance(kind, Dense):
            extent = storage.shape[dimension]
            crds = [np.repeat(c, extent) for c in crds]
            crds.append(np.tile(np.arange(extent, dtype=np.int64), count))
            count *= extent
        elif form.continues(level):
            crds.append(buffers[0].astype(np.int64))
        else:
            parents = np.repeat(np.arange(count), np.diff(buffers[0]))
            crds = [c[parents] for c in crds]
            crds.append(buffers[1].astype(np.int64))
            count = len(parents)
    coords = np.empty((storage.ndim, count), np.int64)
    for level, dimension in enumerate(form.order):
        coords[dimension] = crds[level]
    return coords, storage.vals


def sort_order(keys: Sequence[Array], extents: Sequence[int]) -> Array | None:
    """The stable permutation that sorts entries by `keys` (most significant first); None when they are sorted already."""
    if not keys or _is_sorted(keys):
        return None
    order: Array | None = None
    for place in reversed(range(len(keys))):
        if order is None and _is_sorted(keys[place:]):
            continue  # the entries come in the order of these keys already
        for shift in range(0, max(1, (extents[place] - 1).bit_length()), 16):
            key = keys[place] if order is None else keys[place][order]
            step = np.argsort((key >> shift).astype(np.uint16), kind="stable")
            order = step if order is None else order[step]
    return order


def _is_sorted(keys: Sequence[Array]) -> bool:
    tied = np.ones(max(0, len(keys[0]) - 1), bool)
    for key in keys:
        step = np.diff(key)
        if np.any(tied & (step < 0)):
            return False
        tied &= step == 0
    return True


def from_coords(
    coords: Array,
    vals: Array,
    shape: Sequence[int],
    format: Format,
    fill_value: Any,
    combine: np.ufunc | None = None,
    canonical: bool = False,
) -> Storage:
    """Storage of the entries `vals` at `coords` (shape (ndim, n), dimension order, any order of entries).

    Duplicates are combined by `combine` (default: sum; "or" for bool). `canonical=True` promises entries sorted by the
    storage order of `format` without duplicates. Linear in the entries.
    """
    keys = [coords[d] for d in format.order]
    extents = [shape[d] for d in format.order]
    if not canonical and format.ndim:
        order = sort_order(keys, extents)
        if order is not None:
            keys, vals = [k[order] for k in keys], vals[order]
        keys, vals = _combine(keys, vals, combine)
    elif not format.ndim and len(vals) != 1:
        total = (combine or _default_combine(vals)).reduce(vals) if len(vals) else fill_value
        vals = np.asarray([total], vals.dtype)
    return _assemble(keys, vals, tuple(int(n) for n in shape), format, fill_value)


def _default_combine(vals: Array) -> np.ufunc:
    return np.logical_or if vals.dtype == np.bool_ else np.add


def _combine(keys: list[Array], vals: Array, combine: np.ufunc | None) -> tuple[list[Array], Array]:
    """Merge runs of equal coordinates."""
    if len(vals) < 2:
        return keys, vals
    fresh = np.ones(len(vals), bool)
    fresh[1:] = np.any([k[1:] != k[:-1] for k in keys], axis=0)
    if fresh.all():
        return keys, vals
    starts = np.flatnonzero(fresh)
    merged = (combine or _default_combine(vals)).reduceat(vals, starts).astype(vals.dtype, copy=False)
    return [k[starts] for k in keys], merged


def _assemble(keys: list[Array], vals: Array, shape: tuple[int, ...], format: Format, fill_value: Any) -> Storage:
    where = np.zeros(len(vals), np.int64)  # parent position of every entry
    count = 1
    buffers: list[tuple[Array, ...]] = []
    level = 0
    while level < format.ndim:
        kind, extent = format.levels[level], shape[format.order[level]]
        if isinstance(kind, Dense):
            where = where * extent + keys[level]
            count = _checked(count * extent)
            buffers.append(())
            level += 1
            continue
        run = 1
        while level + run < format.ndim and format.continues(level + run):
            run += 1
        fresh = np.ones(len(vals), bool)
        if isinstance(kind, Coordinate) or (isinstance(kind, Compressed) and kind.unique):
            columns = [where, *keys[level : level + run]]
            fresh[1:] = np.any([c[1:] != c[:-1] for c in columns], axis=0)
        pos = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(where[fresh], minlength=count), out=pos[1:])
        for k in range(run):
            crd = keys[level + k][fresh].astype(crd_dtype(shape[format.order[level + k]]))
            buffers.append((pos, crd) if k == 0 else (crd,))
        where = np.cumsum(fresh) - 1
        count = int(fresh.sum())
        level += run
    if count == len(vals) and (count == 0 or bool(np.all(np.diff(where) == 1))):
        stored = np.ascontiguousarray(vals)
    else:
        stored = np.full(count, fill_value, vals.dtype)
        stored[where] = vals
    if stored is vals or stored.base is not None:
        stored = stored.copy()
    return Storage(format, shape, vals.dtype.type(fill_value), tuple(buffers), stored)


def _checked(count: int) -> int:
    if count > _MAX_POSITIONS:
        raise FormatError(
            f"a dense level would need {count} positions, more than any memory holds; store that dimension compressed instead"
        )
    return count


def to_dense(storage: Storage) -> Array:
    """The array as NumPy sees it; a read-only view when the format is dense."""
    form = storage.format
    if form.is_dense:
        stored = storage.vals.reshape([storage.shape[d] for d in form.order])
        return stored.transpose(np.argsort(form.order)) if form.ndim else stored
    size = math.prod(storage.shape)
    if size > _MAX_POSITIONS:
        raise FormatError(f"an array of shape {storage.shape} does not fit in memory as a dense one; keep it sparse")
    coords, vals = to_coords(storage)
    out = np.full(storage.shape, storage.fill_value, storage.dtype)
    if all(level.unique for level in form.levels):
        out[tuple(coords)] = vals
        return out
    return to_dense(from_coords(coords, vals, storage.shape, Format((Coordinate(),) * form.ndim), storage.fill_value))


def from_dense(array: Array, format: Format, fill_value: Any) -> Storage:
    """Storage of a NumPy array; sparse formats keep what differs from the fill (NaN equals NaN)."""
    fill = array.dtype.type(fill_value)
    stored = array.transpose(format.order) if format.ndim else array
    if format.is_dense:
        flat = np.ascontiguousarray(stored).reshape(-1)
        return Storage(format, array.shape, fill, ((),) * format.ndim, flat)
    differs = stored != fill
    if fill != fill:
        differs &= ~np.isnan(stored)
    found = np.nonzero(differs)
    coords = np.empty((array.ndim, len(found[0])), np.int64)
    for level, dimension in enumerate(format.order):
        coords[dimension] = found[level]
    return from_coords(coords, stored[found], array.shape, format, fill, canonical=True)
