"""Parts of stored arrays, and arrays put side by side: windows and concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats import convert, entries
from sparsejax.formats.counting import counted
from sparsejax.formats.format import Format
from sparsejax.formats.levels.segments import Array, crd_dtype
from sparsejax.formats.parts import blocks, joined, plain, united, unlisted
from sparsejax.formats.storage import Storage

_INT64, _UINT64 = np.dtype(np.int64), np.dtype(np.uint64)


def without(form: Format, axes: Sequence[int]) -> Format:
    """The format of an array that loses `axes`: their levels go, if what remains is a sparse format, else it is coo.

    A dense format stays dense, and no dimensions at all are dense.

    >>> without(Format.parse("csr", 2), (0,)), without(Format.parse("csr", 2), (1,))
    (Format('csf'), Format('coo'))
    """
    if not axes:
        return form
    kept = [d for d in range(form.ndim) if d not in axes]
    flat = Format.parse("dense" if form.is_dense or not kept else "coo", len(kept))
    if form.is_dense or not kept:
        return flat
    levels = [(level, d) for level, d in zip(form.levels, form.order, strict=True) if d in kept]
    try:
        made = Format([lv for lv, _ in levels], [kept.index(d) for _, d in levels], [form.blocks[d] for d in kept])
    except FormatError:
        return flat
    return flat if made.is_dense else made


def window(storage: Storage, ranges: Sequence[range], axes: Sequence[int], format: Format) -> Storage:
    """The entries whose coordinate of every dimension d is in `ranges[d]`, numbered by their places there; `axes`, of which one
    coordinate remains, are left out.

    Linear in the entries of the outermost level and those found; a dense array is read as a view.

    >>> A = convert.from_dense(np.arange(6.0).reshape(2, 3), Format.parse("csr", 2), 0.0)
    >>> convert.to_dense(window(A, (range(1, 2), range(2, -1, -1)), (0,), Format.parse("coo", 1)))
    array([5., 4., 3.])
    """
    kept = [d for d in range(storage.ndim) if d not in axes]
    shape = [len(ranges[d]) for d in kept]
    if storage.format.is_dense:
        slices = tuple(slice(r.start, r.stop if r.stop >= 0 else None, r.step) if r else slice(0) for r in ranges)
        found = convert.to_dense(storage)[slices].reshape(shape)
        return convert.from_dense(np.array(found), format, storage.fill_value)
    columns, position = entries.expand(storage.format, storage.shape, storage.buffers, ranges)
    vals = storage.vals if position is None else storage.vals[position]
    coords = np.empty((len(kept), len(vals)), np.int64)
    for k, d in enumerate(kept):
        np.floor_divide(columns[d] - np.int64(ranges[d].start), ranges[d].step, out=coords[k])
    return convert.from_coords(coords, vals, shape, format, storage.fill_value)


def squeeze(storage: Storage, axis: int, format: Format) -> Storage:
    """The array without an axis of extent one, in `format`: that of `without`. O(ndim) where the axis is a dense level that nothing
    depends on, else linear in the entries.

    >>> A = convert.from_dense(np.eye(2), Format.parse("csr", 2), 0.0)
    >>> from sparsejax.formats import structural
    >>> squeeze(structural.expand_dims(A, 0), 0, A.format).format
    Format('csr')
    """
    form, levels = storage.format, storage.format.levels
    place = form.order.index(axis)
    above, below = levels[place - 1 : place] or [None], levels[place + 1 : place + 2] or [None]
    joined = above[0] is not None and above[0].chained and below[0] is not None and below[0].chained
    relative = below[0] is not None and below[0].relative
    order = tuple(d - (d > axis) for d in form.order if d != axis)
    same = (*levels[:place], *levels[place + 1 :]) == format.levels and order == format.order
    if not (levels[place].full and same) or joined or relative:
        ranges = [range(n) for n in storage.shape]
        return window(storage, ranges, (axis,), format)
    shape = tuple(n for d, n in enumerate(storage.shape) if d != axis)
    buffers = tuple(b for k, b in enumerate(storage.buffers) if k != place)
    return Storage(format, shape, storage.fill_value, buffers, storage.vals)


def concatenate(storages: Sequence[Storage], axis: int, format: Format) -> Storage:
    """Arrays of one dtype and fill, whose shapes differ along `axis` alone, one behind the other. Linear in the entries.

    >>> A = convert.from_dense(np.eye(2), Format.parse("csr", 2), 0.0)
    >>> concatenate([A, A], 1, A.format).nnz
    4
    """
    first = storages[0]
    if all(s.format.is_dense for s in storages):
        return convert.from_dense(
            np.concatenate([convert.to_dense(s) for s in storages], axis), format, first.fill_value
        )
    if all(s.format == format for s in storages):
        made = joined.joined(storages, axis)
        made = _joined_rows(storages, axis, format) if made is None else made
        made = united.behind(storages, axis) if made is None else made
        made = blocks.behind(storages, axis) if made is None else made
        made = joined.by_pieces(storages, axis) if made is None else made
        if made is not None:
            return made
    if len({s.format for s in storages}) == 1:
        made = plain.by_plain(lambda *rows: concatenate(rows, axis, rows[0].format), format, *storages)
        if made is not None:
            return made
    else:
        made = joined.listed(storages, axis, format)
        if made is not None:
            return made
    shape = list(first.shape)
    shape[axis] = sum(s.shape[axis] for s in storages)
    sparse = [convert.convert(s, Format.parse("coo", s.ndim)) if s.format.is_dense else s for s in storages]
    formats = {s.format for s in sparse}
    places = convert.levels_to_sort(formats.pop(), format, axis) if len(formats) == 1 else None
    distinct = all(level.unique for s in sparse for level in s.format.levels)
    expanded = [s.expand() for s in sparse]
    held = [
        np.concatenate([found[d] for found, _ in expanded], dtype=crd_dtype(extent), casting="unsafe")
        for d, extent in enumerate(shape)
    ]
    entry = extent = 0
    for storage, (_, vals) in zip(sparse, expanded, strict=True):
        held[axis][entry : entry + len(vals)] += extent
        entry, extent = entry + len(vals), extent + storage.shape[axis]
    held.append(np.concatenate([vals for _, vals in expanded]))
    del expanded, vals
    return convert.from_entries(held, tuple(shape), format, first.fill_value, distinct, places)


def _joined_rows(storages: Sequence[Storage], axis: int, format: Format) -> Storage | None:
    """As `concatenate`, of arrays that list all coordinates, by their rows, which none has more of than entries; None for others."""
    if unlisted.rows_format(format) is None or axis == format.order[0]:
        return None
    return unlisted.by_rows(lambda *rows: joined.joined(rows, axis), *storages)


def selection(
    index: Array,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    format: Format,
    drop: bool = False,
    axis: int | None = None,
) -> Storage:
    """The array of `shape` and `format` (dense levels, then a compressed one of the last dimension) with a one at `index[p]` of every
    row p, in storage order.

    IndexError, naming `axis`, for an index outside [-extent, extent); with `drop`, rows whose index is outside [0, extent) are empty instead.
    """
    found, extent = index, shape[-1]
    if drop:
        inside = (found >= 0) & (found < extent)
        ends, found = np.append(0, np.cumsum(inside)).astype(np.int64), found[inside]
    else:
        ends, found = counted(0, len(found) + 1, _INT64), numbers(found, extent, axis)
    level = ends, found.astype(crd_dtype(extent), copy=False)
    return Storage(format, shape, dtype.type(0), (*((),) * (len(shape) - 1), level), np.ones(len(found), dtype))


def numbers(index: Array, extent: int, axis: int | None) -> Array:
    """Indices as coordinates, int64, of which negative ones count from the end. IndexError, naming `axis`, for one outside [-extent, extent).

    >>> numbers(np.array([2, -1]), 3, 0)
    array([2, 2])
    """
    found = index if index.dtype is _INT64 else index.astype(np.int64, copy=False)
    if (
        not found.size or np.maximum.reduce(found.view(_UINT64)) < extent
    ):  # negative numbers are large ones without a sign
        return found
    wrong = index >= np.uint64(extent) if index.dtype == np.uint64 else (found < -extent) | (found >= extent)
    at = np.flatnonzero(wrong)
    if len(at):
        named = "an axis" if axis is None else f"axis {axis}"
        raise IndexError(
            f"index {index[at[0]]} is out of bounds for {named} with size {extent} (at position {at[0]} of the indices)"
        )
    return np.where(found < 0, found + extent, found)
