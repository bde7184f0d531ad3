"""Conversion between formats: remap, count, assemble.

Entries are ordered by stable counting passes, last storage level first (see `ordering`); how many are needed follows from the two
formats: csr to csc is one pass over the columns, coo to csr none. Buffers that stay as they are, are shared.
Runs of levels are then assembled top down with prefix sums; below a level that is not ordered, entries are ordered again, by
their positions in it. Source: "Automatic Generation of Efficient Sparse Tensor Format Conversion Routines".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax import config
from sparsejax.errors import FormatError
from sparsejax.formats import entries, ordering, passes, runs
from sparsejax.formats.format import Format
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.coordinate import Coordinate
from sparsejax.formats.levels.dense import Dense
from sparsejax.formats.levels.level import Level
from sparsejax.formats.levels.segments import MAX_POSITIONS, Above, Array
from sparsejax.formats.levels.segments import crd_dtype as crd_dtype
from sparsejax.formats.storage import Storage

_planned: Callable[[Storage, Format], Storage | None] | None = None
_written: Callable[[Storage, Array], bool] | None = None


def use(planned: Callable[[Storage, Format], Storage | None]) -> None:
    """Convert by `planned` what it gives a result for."""
    global _planned
    _planned = planned


def use_dense(written: Callable[[Storage, Array], bool]) -> None:
    """Write entries into dense memory, in row-major order and filled, by `written` where it does so."""
    global _written
    _written = written


def convert(storage: Storage, format: Format) -> Storage:
    """`storage` in another format; entries that are stored stay stored, even zeros.

    Linear in the stored entries (and in the size of the dense levels of `format`). From a dense format, the entries that
    differ from the fill are kept. FormatError where a dense level would not fit in any memory.

    >>> dense = from_dense(np.eye(3), Format.parse("csr", 2), 0.0)
    >>> convert(dense, Format.parse("coo", 2)).nnz
    3
    """
    if format == storage.format:
        return storage
    if storage.format.is_dense and _is_list(format):
        return from_dense(storage.vals, format, storage.fill_value)
    if storage.format.is_dense and format.is_dense:
        return _reordered(storage, format)
    planned = None if _planned is None else _planned(storage, format)
    if planned is not None:
        return planned
    if storage.format.is_dense or format.is_dense:
        return from_dense(to_dense(storage), format, storage.fill_value)
    made = _of_rows(storage, format)
    made = _to_rows(storage, format) if made is None else made
    if made is not None:
        return made
    places = levels_to_sort(storage.format, format)
    if places != 0 or format.blocked or any(level.relative for level in format.levels):  # for which rows have kernels
        read = read_as(storage)
        if read is not None and format not in (plain_formats(storage.format) or ()):
            return convert(convert(storage, read), format)
    columns, vals = storage.expand()
    distinct = all(level.unique for level in storage.format.levels)
    return from_columns(columns, vals, storage.shape, format, storage.fill_value, distinct, places)


def _of_rows(storage: Storage, format: Format) -> Storage | None:
    """Rows that list their columns in another format of rows, whose level makes itself of them (`Level.of_segments`); None for others."""
    rows = plain_formats(format)
    if rows is None or storage.format != rows[0] or format.ndim != 2 or format.blocked or not format.levels[0].full:
        return None
    pos, crd = storage.buffers[1]
    made = format.levels[1].of_segments(pos, crd, storage.vals, storage.shape[format.order[1]], storage.fill_value)
    if made is None:
        return None
    return Storage(format, storage.shape, storage.fill_value, ((), made[0]), made[1])


def _to_rows(storage: Storage, format: Format) -> Storage | None:
    """A matrix whose rows are dense, and whose level says what they list (`Level.to_segments`), as such rows; None for others."""
    form = storage.format
    rows = plain_formats(form)
    if rows is None or format != rows[0] or form.ndim != 2 or form.blocked or not form.levels[0].full:
        return None
    made = form.levels[1].to_segments(storage.buffers[1], storage.vals)
    if made is None:
        return None
    pos, crd, vals = made
    return Storage(format, storage.shape, storage.fill_value, ((), (pos, crd)), vals)


@functools.lru_cache(maxsize=1024)
def plain_formats(form: Format) -> tuple[Format, Format] | None:
    """Rows that list their columns, and a list of all coordinates, in the order of dimensions of a format; None for dense formats and those with levels that
    list a coordinate several times.

    >>> plain_formats(Format.parse("ell", 2))
    (Format('csr'), Format('coo'))
    """
    if form.is_dense or not form.ndim or not all(level.unique for level in form.levels):
        return None
    order = tuple(dict.fromkeys(form.order))
    listed = Format(Format.parse("coo", form.ndim).levels, order)
    return Format((Dense(), Compressed()), order) if form.ndim == 2 else listed, listed


def read_as(storage: Storage) -> Format | None:
    """The format of rows that list their columns that an array is read in by what knows no other ones, or, of more dimensions than two or rows without
    entries, of a list of all coordinates; None where it is in one already, or has so few entries that other roads are shorter."""
    formats, count = plain_formats(storage.format), len(storage.vals)
    if formats is None or (count < passes.MANY and not config.forcing) or entries.listed(storage.format) >= 0:
        return None
    rows, listed = formats
    return rows if storage.shape[rows.order[0]] <= max(passes.MANY, ordering.CROWDED * count) else listed


@functools.lru_cache(maxsize=1024)
@functools.lru_cache(maxsize=1024)
def levels_to_sort(source: Format, target: Format, joined: int | None = None) -> int | None:
    """By how many of the first levels of `target` entries in the order of `source` must be sorted; None where that is to be seen.

    With `joined`, they come from several arrays that are joined along this dimension, one behind the other.

    >>> csr, csc = Format.parse("csr", 2), Format.parse("csc", 2)
    >>> levels_to_sort(csr, csr), levels_to_sort(csr, csc), levels_to_sort(csr, csr, 0), levels_to_sort(csr, csr, 1)
    (0, 1, 0, 1)
    """
    if not all(level.ordered for level in source.levels):
        return None
    blocks = [max(pair) for pair in zip(source.blocks, target.blocks, strict=True)]
    if any(1 < min(pair) < max(pair) for pair in zip(source.blocks, target.blocks, strict=True)):
        return None  # blocks of other sizes
    if joined is not None and blocks[joined] > 1:
        return None
    names = [name for level in range(len(source.levels)) for name in _parts_of_level(source, level, blocks)]
    targets = [_parts_of_level(target, level, blocks) for level in range(len(target.levels))]
    if joined is not None:
        number = (-1, False)
        names = [number, *names]
        targets = [[number, *parts] if parts[0][0] == joined else parts for parts in targets]
    return ordering.passes_between(names, targets)


@functools.lru_cache(maxsize=1024)
def counting_sorts(source: Format, target: Format) -> int | None:
    """How many counting sorts (0 or 1) turn entries of `source` into those of `target`, if that is all there is to do: both list distinct
    coordinates, and the target in one run below dense levels, which alone they must be sorted by. Else None.

    >>> csr, csc, dcsr = (Format.parse(name, 2) for name in ("csr", "csc", "dcsr"))
    >>> counting_sorts(csr, csc), counting_sorts(dcsr, csr), counting_sorts(csr, dcsr)
    (1, 0, None)
    """
    depth = len(target.runs) - 1
    above, below = target.levels[:depth], target.levels[depth:]
    listed = source.levels[1:] if source.levels[0].full else source.levels
    if source.blocked or target.blocked or not (_lists(listed) and _lists(below)):
        return None
    places = levels_to_sort(source, target)
    if places is None or places > depth or not all(level.full for level in above):
        return None
    return min(places, 1)


def _lists(levels: Sequence[Level]) -> bool:
    """Whether there are levels, all of which list distinct coordinates in segments."""
    return bool(levels) and all(level.listed and level.unique for level in levels)


def _parts_of_level(form: Format, level: int, blocks: Sequence[int]) -> list[tuple[int, bool]]:
    """What a level holds: a dimension's number of block, its place in the block, or both."""
    d = form.order[level]
    if blocks[d] == 1 or form.blocks[d] > 1:
        return [(d, form.is_inner(level))]
    return [(d, False), (d, True)]


def to_coords(storage: Storage) -> tuple[Array, Array]:
    """(coords, vals): an int64 array of shape (ndim, n) in dimension order, and the n stored values, in storage order.

    Dense levels below sparse ones, and runs, are expanded. Linear in the stored entries.

    >>> to_coords(from_dense(np.eye(2), Format.parse("csc", 2), 0.0))[0]
    array([[0, 1],
           [0, 1]])
    """
    columns, vals = storage.expand()
    coords = np.empty((storage.ndim, len(vals)), np.int64)
    for dimension, column in enumerate(columns):
        coords[dimension] = column
    return coords, vals


# ---------------------------------------------------------------------------------------------------------- assembly


def from_coords(
    coords: Array | Sequence[Array],
    vals: Array,
    shape: Sequence[int],
    format: Format,
    fill_value: Any,
    combine: np.ufunc | None = None,
    canonical: bool = False,
) -> Storage:
    """Storage of the entries `vals` at `coords`, in any order of entries.

    `coords` is an array of shape (ndim, n), or one vector of 32- or 64-bit signed integers per dimension.

    Duplicates are combined by `combine` (default: sum; "or" for bool). `canonical=True` promises entries sorted by the
    storage order of `format` without duplicates. Coordinates must be within `shape`. Never shares memory with `vals`.
    Linear in the entries.

    >>> from_coords(np.array([[1, 0, 1]]), np.array([1.0, 2.0, 3.0]), (2,), Format.parse("coo", 1), 0.0).vals
    array([2., 4.])
    """
    extents = tuple(int(n) for n in shape)
    columns = list(coords)
    vals = vals.view()  # a storage freezes what it holds: the caller's own array must stay as it is
    if canonical:
        made = _assemble(format.split(columns), vals, extents, format, fill_value)
    else:
        made = from_entries([*columns, vals], extents, format, fill_value, combine=combine)

    def own(buffer: Array) -> Array:
        return buffer.copy() if any(np.may_share_memory(buffer, given) for given in (*columns, vals)) else buffer

    buffers = tuple(tuple(own(buffer) for buffer in level) for level in made.buffers)
    return Storage(made.format, made.shape, made.fill_value, buffers, own(made.vals))


def from_columns(
    columns: Sequence[Array],
    vals: Array,
    shape: tuple[int, ...],
    format: Format,
    fill_value: Any,
    distinct: bool = False,
    places: int | None = None,
) -> Storage:
    """As `from_coords`, of vectors that nobody changes any more, which may be shared; of `distinct` entries, sorted by all but the
    first `places` levels of `format` (None: that is to be seen)."""
    return from_entries([*columns, vals], shape, format, fill_value, distinct, places)


def assembled(keys: Sequence[Array], vals: Array, shape: tuple[int, ...], format: Format, fill_value: Any) -> Storage:
    """Storage of distinct entries that are sorted by `keys`, their coordinates in every level of `format`; vectors may be shared."""
    return (
        _assemble(keys, vals, shape, format, fill_value)
        if format.ndim
        else from_columns([], vals, shape, format, fill_value)
    )


def from_entries(
    given: list[Array],
    shape: tuple[int, ...],
    format: Format,
    fill_value: Any,
    distinct: bool = False,
    places: int | None = None,
    combine: np.ufunc | None = None,
) -> Storage:
    """As `from_columns`, of columns and, last, values that only a list holds, which is emptied: what was moved is let go. Duplicates are merged by
    `combine`."""
    *columns, vals = given
    given.clear()
    if not format.ndim:
        if len(vals) != 1:
            total = (combine or _default_combine(vals)).reduce(vals) if len(vals) else fill_value
            vals = np.asarray([total], vals.dtype)
        return _assemble([], vals, shape, format, fill_value)
    keys = format.split(columns)
    del columns
    places = ordering.unsorted(keys) if places is None else places
    if places == 1 and distinct and _listed_below_dense(format):
        return _bucketed(keys, vals, shape, format, fill_value)
    held = [*keys, vals]
    del keys, vals
    ordering.arrange(held, format.level_extents(shape), places)
    *keys, vals = held
    del held
    if not distinct:
        keys, vals = _combine(keys, vals, combine)
    return _assemble(keys, vals, shape, format, fill_value)


def _listed_below_dense(format: Format) -> bool:
    """Whether a format is a dense level above one run of compressed or coordinate levels."""
    levels = format.levels
    if format.runs[1:] != [(1, len(levels))]:
        return False
    return levels[0].full and levels[1].listed


def _bucketed(keys: Sequence[Array], vals: Array, shape: tuple[int, ...], format: Format, fill_value: Any) -> Storage:
    """As `_assemble`, of entries sorted by all keys but the first: the one pass that sorts them finds `pos` on its way."""
    extents, (key, *columns) = format.level_extents(shape), keys
    count = segments.check_size(extents[0], "a dense level")
    pos, (*columns, vals) = passes.over(len(key)).bucketed(key, [*columns, vals], count)
    crds = [c.astype(crd_dtype(n), copy=False) for c, n in zip(columns, extents[1:], strict=True)]
    buffers = ((), (pos, crds[0]), *((crd,) for crd in crds[1:]))
    return Storage(format, shape, vals.dtype.type(fill_value), buffers, vals)


def _default_combine(vals: Array) -> np.ufunc:
    return np.logical_or if vals.dtype == np.bool_ else np.add


def _combine(keys: list[Array], vals: Array, combine: np.ufunc | None) -> tuple[list[Array], Array]:
    """Merge runs of equal coordinates."""
    if len(vals) < 2:
        return keys, vals
    fresh = segments.changes(keys)
    if fresh.all():
        return keys, vals
    starts = np.flatnonzero(fresh)
    merged = (
        runs.added(vals, starts) if combine is None else combine.reduceat(vals, starts).astype(vals.dtype, copy=False)
    )
    return [key[starts] for key in keys], merged


def _assemble(keys: Sequence[Array], vals: Array, shape: tuple[int, ...], format: Format, fill_value: Any) -> Storage:
    """Storage of distinct entries sorted by `keys`, in storage order; `vals` itself is used where it fits as it is."""
    position: Array | None = segments.at_root(len(vals))
    above = Above(position, 1)
    buffers: list[tuple[Array, ...]] = []
    extents = format.level_extents(shape)
    last = len(format.levels)
    for first, stop in format.runs:
        level = format.levels[first]
        made, position, count = level.assemble(above, keys[first:stop], extents[first:stop], stop == last, vals)
        buffers += made
        if position is not None and not level.ordered and stop < last:
            order = ordering.sort_order([position], [count])
            if order is not None:
                keys, vals, position = [np.take(key, order) for key in keys], np.take(vals, order), position[order]
        above = Above(position, count, keys[stop - 1])
    fill = vals.dtype.type(fill_value)
    # sorted and distinct: as many positions as entries means that each has its own, in order, unless the last level has none
    if above.positions == len(vals) and all(level.ordered for level in format.levels[-1:]):
        return Storage(format, shape, fill, tuple(buffers), np.ascontiguousarray(vals))
    check_padding(above.positions, vals, format)
    position = np.arange(len(vals)) if position is None else position
    stored = passes.over(above.positions).spread(vals, position, above.positions, fill)
    return Storage(format, shape, fill, tuple(buffers), stored)


def check_padding(positions: int, vals: Array, format: Format) -> None:
    """Raise if a format stores `positions` values for these entries, out of proportion as `dense_limit` has it."""
    limit, needed = config.dense_limit(), positions * vals.itemsize
    if limit and not format.is_dense and needed > max(limit * vals.nbytes, config.GIBIBYTE):
        raise FormatError(
            f"{len(vals)} entries in {format} would take {positions} positions ({needed} bytes), more than {limit} times "
            "what they take by themselves; choose a format without padding, such as csr or coo, or raise the limit with "
            'sparsejax.config.update("dense_limit", ...)'
        )


# ------------------------------------------------------------------------------------------------------------- dense


def to_dense(storage: Storage) -> Array:
    """The array as NumPy sees it; a read-only view when the format is dense. O(size).

    >>> to_dense(from_dense(np.eye(2), Format.parse("coo", 2), 0.0))
    array([[1., 0.],
           [0., 1.]])
    """
    form = storage.format
    if form.is_dense:
        shape, axes = storage.shape, _turned(form.order)
        if axes is None:
            return storage.vals.reshape(shape)
        return storage.vals.reshape([shape[d] for d in form.order]).transpose(axes)
    cleared = storage.cache.get("cleared")
    if cleared is None:
        if math.prod(storage.shape) > MAX_POSITIONS:
            raise FormatError(
                f"an array of shape {storage.shape} does not fit in memory as a dense one; keep it sparse"
            )
        if not all(level.unique for level in form.levels):
            coo = Format((Coordinate(),) * form.ndim)
            columns, vals = storage.expand()
            return to_dense(from_columns(columns, vals, storage.shape, coo, storage.fill_value))
        cleared = storage.cache["cleared"] = not any(np.asarray(storage.fill_value).tobytes())
    out = np.zeros(storage.shape, storage.vals.dtype) if cleared else np.full(storage.shape, storage.fill_value)
    if _written is not None and _written(storage, out):
        return out
    columns, vals = storage.expand()
    if len(columns) == 1:
        out[columns[0]] = vals
    elif out.size:
        flat = columns[0].astype(np.int64)
        for column, extent in zip(columns[1:], storage.shape[1:], strict=True):
            flat *= extent
            flat += column
        out.reshape(-1)[flat] = vals
    return out


@functools.lru_cache(maxsize=256)
def _turned(order: tuple[int, ...]) -> tuple[int, ...] | None:
    """Where each dimension is stored; None where all are in order."""
    return None if order == tuple(range(len(order))) else tuple(np.argsort(order).tolist())


def in_order(format: Format) -> bool:
    """Whether an array in this format is one in the order of NumPy's, flat."""
    return format.is_dense and _turned(format.order) is None


def _reordered(storage: Storage, format: Format) -> Storage:
    """A dense array in another order of its dimensions. O(size)."""
    source, target = storage.format.order, format.order
    stored = storage.vals.reshape([storage.shape[d] for d in source])
    if len(source) == 2 and source != target:
        flat = passes.over(stored.size).turned(stored)
    else:
        flat = np.ascontiguousarray(stored.transpose([source.index(d) for d in target])).reshape(-1)
    return Storage(format, storage.shape, storage.fill_value, ((),) * format.ndim, flat)


@functools.lru_cache(maxsize=256)
def _is_list(format: Format) -> bool:
    """Whether a vector is stored as the coordinates of its entries, and where these end."""
    level = format.levels[0] if format.ndim == 1 and not format.blocked else None
    return isinstance(level, Compressed | Coordinate) and level.unique


def from_dense(array: Array, format: Format, fill_value: Any) -> Storage:
    """Storage of a NumPy array; sparse formats keep what differs from the fill (NaN equals NaN).

    A dense format whose order matches the memory layout shares the memory. O(size).

    >>> from_dense(np.array([np.nan, 1.0]), Format.parse("coo", 1), np.nan).nnz
    1
    """
    fill = array.dtype.type(fill_value)
    stored = array if format.blocked or not format.ndim else array.transpose(format.order)
    if format.is_dense:
        if stored.ndim == 2 and stored.T.flags.c_contiguous and not stored.flags.c_contiguous:
            flat = passes.over(stored.size).turned(stored.T)
        else:
            flat = np.ascontiguousarray(stored).reshape(-1)
        return Storage(format, array.shape, fill, ((),) * format.ndim, flat)
    if _sifts(format) and stored.size:
        return _sifted(stored, array.shape, format, fill)
    differs = runs.differing(stored, fill)
    if _is_list(format):
        (key,) = differs.nonzero()
        buffers = ((np.array([0, len(key)]), key.astype(crd_dtype(array.shape[0]))),)
        return Storage(format, array.shape, fill, buffers, stored[key])
    keys = np.nonzero(differs)
    if format.blocked:
        return from_columns(keys, stored[keys], array.shape, format, fill, True)
    return _assemble(keys, stored[keys], array.shape, format, fill)


@functools.lru_cache(maxsize=256)
def _sifts(format: Format) -> bool:
    """Whether a format lists the last of its dimensions below dense ones, or both of two."""
    first, stop = format.runs[-1] if len(format.levels) > 1 else (0, 0)
    above, below = format.levels[:first], format.levels[first:stop]
    if format.blocked or not below or not all(type(level) in (Compressed, Coordinate) for level in below):
        return False
    return stop == 2 if not first else len(below) == 1 and all(level.full for level in above)


def _sifted(stored: Array, shape: tuple[int, ...], format: Format, fill: Any) -> Storage:
    """As `from_dense`, of elements in the order of a format that `_sifts`, row by row: little is made beside the result."""
    if (
        stored.size >= passes.MANY
        and stored.T.flags.c_contiguous
        and not stored.flags.c_contiguous
        and stored.ndim == 2
    ):
        by_rows = _sifted(stored.T, shape, Format(format.levels, format.order[::-1]), fill)
        return convert(by_rows, format)
    rows = np.ascontiguousarray(stored).reshape(-1, stored.shape[-1])
    pos, crd, vals = passes.over(rows.size).sifted(rows, fill)
    if not format.levels[0].full:
        owners = passes.over(len(crd)).owners(pos)
        return Storage(format, shape, fill, ((np.array([0, len(crd)]), owners), (crd,)), vals)
    return Storage(format, shape, fill, (*[()] * (format.ndim - 1), (pos, crd)), vals)
