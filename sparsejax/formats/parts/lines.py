"""Lines: the entries of an array along one axis, those that are not stored holding the fill.

one line, fill 0     · 3 · -1        sorted   -1 · · 3        first coordinate without an entry   0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from sparsejax.formats import convert, ordering, passes, peek
from sparsejax.formats.format import Format
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.coordinate import Coordinate
from sparsejax.formats.levels.dense import Dense
from sparsejax.formats.levels.segments import Array
from sparsejax.formats.parts import unlisted
from sparsejax.formats.storage import Storage


def distinct(storage: Storage) -> Storage:
    """`storage` as coo: one entry per coordinate, in row-major order."""
    return convert.convert(storage, Format.parse("coo", storage.ndim))


def parts(storage: Storage, leading: int) -> Iterator[Storage]:
    """The arrays at all coordinates of the first `leading` dimensions, in row-major order. Linear in entries and parts.

    >>> both = convert.from_dense(np.array([[0.0, 5.0], [6.0, 0.0]]), Format.parse("csr", 2), 0.0)
    >>> [convert.to_dense(part).tolist() for part in parts(both, 1)]
    [[0.0, 5.0], [6.0, 0.0]]
    """
    if not leading:
        yield storage
        return
    outer, shape = storage.shape[:leading], storage.shape[leading:]
    form = Format.parse("dense" if storage.format.is_dense else "coo", len(shape))
    if storage.format.is_dense:
        for part in convert.to_dense(storage).reshape(math.prod(outer), *shape):
            yield convert.from_dense(part, form, 0)
        return
    coords, vals = convert.to_coords(distinct(storage))
    owner = np.ravel_multi_index(tuple(coords[:leading]), outer)
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(math.prod(outer) + 1))
    for start, stop in pairwise(ends.tolist()):
        own = order[start:stop]
        yield convert.from_coords(coords[leading:, own], vals[own], shape, form, storage.fill_value)


def nonzero(storage: Storage) -> Array:
    """The coordinates, of shape (ndim, count), where values are not zero, in row-major order.

    Linear in the stored entries where the fill is 0, in the size of the array where it is not.

    >>> nonzero(convert.from_dense(np.array([0.0, 5.0]), Format.parse("coo", 1), 0.0))
    array([[1]])
    """
    shape = storage.shape
    if storage.format.is_dense or storage.fill_value != 0:
        return np.stack(np.nonzero(np.atleast_1d(convert.to_dense(storage)))).astype(np.int64, copy=False)
    form = storage.format
    unique = all(level.unique for level in form.levels)
    places = convert.levels_to_sort(form, Format.parse("coo", form.ndim)) if unique and not form.blocked else None
    if places is None or places > 1:
        if unique and len(storage.vals) >= passes.MANY:  # whether they are zero is less to be moved than values
            storage = storage.with_values(storage.vals != 0, np.False_)
        storage, places = distinct(storage), 0
    columns, vals = storage.expand()
    del storage
    if not vals.all():
        number = np.flatnonzero(vals)
        columns = [passes.over(len(number)).take(column, number) for column in columns]
    if places and len(columns) > 1:  # no value is moved
        ordering.arrange(columns, shape, places)
    made = np.empty((len(columns), len(columns[0])), np.int64)
    for row in made[::-1]:
        row[:] = columns.pop()  # which goes before the next is written
    return made


def sifted(storage: Storage, holds: Callable[[Array], Array]) -> Storage:
    """The entries whose coordinates, of shape (ndim, count), hold. Linear in the stored entries, whatever the shape.

    >>> x = convert.from_dense(np.array([[1, 2], [3, 4]]), Format.parse("coo", 2), 0)
    >>> convert.to_dense(sifted(x, lambda coords: coords[0] < coords[1]))
    array([[0, 2],
           [0, 0]])
    """
    coords, vals = convert.to_coords(distinct(storage))
    kept = np.flatnonzero(holds(coords))
    return convert.from_coords(coords[:, kept], vals[kept], storage.shape, storage.format, storage.fill_value)


def _ranks(coords: Sequence[Array] | Array, axis: int, key: Array) -> tuple[Array, Array, Array, Array]:
    """Lines one behind the other, each in the order of `key`: the order of entries; of every entry in that order its line and its rank
    in it; and where lines begin."""
    others = [c for d, c in enumerate(coords) if d != axis]
    order = np.lexsort((key, *others))
    fresh = segments.changes([c[order] for c in others]) if others else np.arange(len(key)) == 0
    starts, line = np.flatnonzero(fresh), np.cumsum(fresh) - 1
    rank = np.arange(len(key)) - starts[line] if len(key) else line
    return order, line, rank, starts


def sort(storage: Storage, axis: int, format: Format) -> Storage:
    """Every line along `axis` in increasing order, NaN last: stored entries less than the fill first, the others last.

    O(n log n) for n stored entries (a dense array: NumPy's sort).

    >>> row = convert.from_dense(np.array([0, 3, 0, -1]), Format.parse("coo", 1), 0)
    >>> convert.to_dense(sort(row, 0, row.format))
    array([-1,  0,  0,  3])
    """
    if storage.format.is_dense:
        made = np.sort(convert.to_dense(storage), axis=axis)
        return convert.from_dense(made, format, storage.fill_value)
    coords, vals, place = _sorted(storage, axis)
    coords[axis] = place
    return convert.from_coords(coords, vals, storage.shape, format, storage.fill_value)


def _sorted(storage: Storage, axis: int) -> tuple[Array, Array, Array]:
    """The coordinates and values of stored entries, line by line in increasing order, and where they go along `axis`."""
    fill = storage.fill_value
    coords, vals = convert.to_coords(distinct(storage))
    order, line, rank, starts = _ranks(coords, axis, vals)
    coords, vals = coords[:, order], vals[order]
    count = np.diff(np.append(starts, len(vals)))
    below = ~np.isnan(vals) if fill != fill else vals < fill
    return coords, vals, np.where(below, rank, storage.shape[axis] - count[line] + rank)


def moves(storage: Storage, axis: int, dtype: np.dtype[Any]) -> Storage:
    """Which stored entry `sort` puts where: ones at (coordinates of the sorted entry, its coordinate along `axis` before), in coo.

    >>> row = convert.from_dense(np.array([0, 3, 0, -1]), Format.parse("coo", 1), 0)
    >>> convert.to_coords(moves(row, 0, np.dtype(float)))[0].T
    array([[0, 3],
           [3, 1]])
    """
    coords, _, place = _sorted(storage, axis)
    before = coords[axis].copy()
    coords[axis] = place
    shape = (*storage.shape, storage.shape[axis])
    made = np.vstack([coords, before])
    return convert.from_coords(made, np.ones(len(before), dtype), shape, Format.parse("coo", len(shape)), dtype.type(0))


def first_absent(storage: Storage, axis: int, dtype: Any = np.int64) -> Array:
    """The first coordinate of every line along `axis` at which nothing is stored, as `dtype`; the extent where there is none.

    Linear in the stored entries and in the size of the result; O(n log n) for n entries of lines whose first place is stored.

    >>> first_absent(convert.from_dense(np.array([[1, 0], [0, 2]]), Format.parse("csr", 2), 0), 1)
    array([1, 0])
    """
    shape = tuple(n for d, n in enumerate(storage.shape) if d != axis)
    segments.check_size(math.prod(shape), "a dense array of places")
    made = np.zeros(shape, dtype)
    unique = storage.packed and all(level.unique and not level.shared for level in storage.format.levels)
    storage = storage if unique else distinct(storage)
    dims = unlisted.listed_rows(storage.format)
    if dims is not None and storage.format.levels[1].ordered and axis == dims[1]:
        _gaps_of_rows(storage, made)
        return made
    if dims is not None:
        coords = _beside_first_row(storage)
    else:
        columns, _ = storage.expand()
        number = _beside_firsts(columns, axis, shape)
        coords = [column[number] for column in columns]
    if not len(coords[axis]):
        return made
    order, line, rank, starts = _ranks(coords, axis, coords[axis])
    coords = [column[order] for column in coords]
    count = np.diff(np.append(starts, len(order)))
    place = np.where(coords[axis] == rank, count[line], rank)
    lines = tuple(c[starts] for d, c in enumerate(coords) if d != axis)
    np.atleast_1d(made)[lines or ...] = np.minimum.reduceat(place, starts)
    return made


def _gaps_of_rows(storage: Storage, made: Array) -> None:
    """`first_absent` of the rows of a matrix that lists their columns in order, which are looked at if they begin with the first: so many entries are at
    their own number."""
    pos, crd = storage.buffers[1]
    rows = segments.owners_of(pos, numbers(len(crd), lambda some: crd[some] == 0))
    if not len(rows):
        return
    start, ends = passes.over(len(rows)).picked(pos, rows)
    (own,) = passes.over(max(len(rows), int(ends[-1]))).copied(start, ends, [crd])
    rank = np.arange(len(own), dtype=crd.dtype)
    rank -= np.repeat(ends[:-1].astype(crd.dtype), ends[1:] - ends[:-1])
    made[rows] = np.add.reduceat(own == rank, ends[:-1], dtype=np.int64)


def _beside_first_row(storage: Storage) -> list[Array]:
    """The coordinates of the entries in columns that the first row has, of a matrix that lists the columns of its rows."""
    pos, crd = storage.buffers[1]
    row, column = storage.format.order
    begun = np.zeros(storage.shape[column], bool)
    begun[crd[int(pos[0]) : int(pos[1])]] = True
    number = numbers(len(crd), lambda some: begun[crd[some]])
    found = {column: crd[number], row: segments.owners_of(pos, number)}
    return [found[0], found[1]]


def _beside_firsts(coords: Sequence[Array], axis: int, shape: tuple[int, ...]) -> Array:
    """The numbers of the entries that are of lines along `axis` that store their first place; `shape` is that of the lines. Of the others, nothing need
    be known."""
    begun, count = np.zeros(shape, bool), len(coords[axis])
    lines = [c for d, c in enumerate(coords) if d != axis]
    first = numbers(count, lambda some: coords[axis][some] == 0)
    if not lines:
        return np.arange(count if len(first) else 0)
    begun[tuple(c[first] for c in lines)] = True
    return numbers(count, lambda some: begun[tuple(c[some] for c in lines)])


def numbers(count: int, holds: Callable[[slice], Array]) -> Array:
    """The numbers below `count` for which something `holds`, asked of some at a time: what is made to find them is small."""
    found = [start + np.flatnonzero(holds(slice(start, start + SOME))) for start in range(0, count, SOME)]
    return np.concatenate(found) if found else np.arange(0)


SOME = 1 << 16
"""Entries that are looked at together where few are searched: a mask of these, and their coordinates as indices, stay in the cache."""
LOOKED = 1 << 12
"""Entries of a row-major array that are looked at first for a place between them."""


def first_extreme(storage: Storage, kind: str) -> int:
    """The place in row-major order of the first element that is the largest (`kind` "max") or smallest ("min"); a NaN is both.

    One look over the stored values; over their places too where these are not in row-major order, or where the fill may be the extreme.

    >>> first_extreme(convert.from_dense(np.array([[0, -3], [2, 2]]), Format.parse("csr", 2), 0), "max")
    2
    """
    find = np.argmax if kind == "max" else np.argmin
    size, fill = math.prod(storage.shape), storage.fill_value
    if storage.format.is_dense:
        return int(find(convert.to_dense(storage)))
    if not storage.packed or storage.format.distinct is not storage.format:
        storage = distinct(storage)
    vals = storage.vals
    absent = len(vals) < size
    if not len(vals):
        return 0
    at = int(find(vals))
    best = vals[at]
    tie = best == fill or (best != best and fill != fill)
    if absent and not tie and find(np.array([best, fill])) == 1:
        return _first_without_entry(storage)
    if row_major(storage):
        first = _place(storage, at)
    else:
        first = _number(storage, np.flatnonzero(np.isnan(vals) if best != best else vals == best)).min()
    return min(int(first), _first_without_entry(storage)) if absent and tie else int(first)


def row_major(storage: Storage) -> bool:
    """Whether entries are stored in row-major order, each once."""
    form = storage.format
    in_order = form.order == tuple(range(form.ndim)) and not form.blocked
    return in_order and all(level.ordered and level.unique for level in form.levels)


def in_row_major_order(storage: Storage, flags: Array) -> Array | None:
    """The values of entries whose flags hold, in row-major order; None where the last levels do not list the dimensions that entries must be sorted by
    for that. A flag and a value for every position. Linear in the entries; nothing is made of those whose flags do not hold.

    >>> A = convert.from_dense(np.array([[1, 2], [3, 4]]), Format.parse("csc", 2), 0)
    >>> in_row_major_order(A, np.array([True, True, False, True]))
    array([1, 3, 4])
    """
    form = storage.format
    places = convert.levels_to_sort(form, Format.parse("coo", form.ndim))
    first, _ = form.runs[-1]
    if places is None or form.blocked or not form.levels[first].listed or not form.levels[first].compact:
        return None
    levels = [form.order.index(d) for d in range(places)]
    if min(levels, default=first) < first or not all(level.unique for level in form.levels):
        return None
    columns, vals = [storage.buffers[level][-1] for level in levels], storage.vals
    found = int(np.count_nonzero(flags))
    if places == 1 and storage.shape[0] <= found:
        return passes.over(len(vals)).flagged(columns[0], flags, vals, storage.shape[0])
    if found < len(flags):
        ends = np.array([0, len(vals)])
        _, (*columns, vals) = passes.over(len(vals)).chosen(ends, flags, [*columns, vals])
    while columns:
        key, extent = columns.pop(), storage.shape[len(columns)]
        many = passes.over(len(key))
        run = many.bucketed if extent <= ordering.CROWDED * len(key) else many.ordered
        _, (*columns, vals) = run(key, [*columns, vals], extent)
    return vals


def _place(storage: Storage, position: int) -> int:
    """The place in row-major order of the entry at one position."""
    if not all(isinstance(level, Dense | Compressed | Coordinate) for level in storage.format.levels):
        return int(_number(storage, np.array([position]))[0])
    made, scale = 0, 1
    for first, stop in reversed(storage.format.runs):
        for level in range(stop - 1, first - 1, -1):
            extent, buffers = storage.shape[level], storage.buffers[level]
            made += scale * (int(buffers[-1][position]) if buffers else position % extent)
            scale *= extent
        buffers = storage.buffers[first]
        position = int(buffers[0].searchsorted(position, "right")) - 1 if buffers else position // extent
    return made


def _number(storage: Storage, position: Array) -> Array:
    """The places in row-major order of the entries at these positions."""
    columns, _ = peek.at(storage, position)
    made = np.zeros(len(position), np.int64)
    for column, extent in zip(columns, storage.shape, strict=True):
        made *= extent
        made += column
    return made


def _first_without_entry(storage: Storage) -> int:
    """The first place in row-major order at which nothing is stored, of an array in which there is one."""
    count, looked = len(storage.vals), LOOKED if row_major(storage) else len(storage.vals)
    while True:
        number = _number(storage, np.arange(min(looked, count)))
        if not row_major(storage):
            number.sort()
        other = np.flatnonzero(number != np.arange(len(number)))
        if len(other):
            return int(other[0])
        if looked >= count:
            return count
        looked *= 8


def unique(storage: Storage) -> tuple[Array, Array]:
    """The different values in increasing order, and how often each occurs. O(n log n) for n stored entries.

    >>> unique(convert.from_dense(np.array([0, 3, 0, -1]), Format.parse("coo", 1), 0))
    (array([-1,  0,  3]), array([1, 2, 1]))
    """
    if storage.format.is_dense:
        return np.unique(convert.to_dense(storage), return_counts=True)
    _, vals = convert.to_coords(distinct(storage))
    values, counts = np.unique(vals, return_counts=True)
    absent = math.prod(storage.shape) - len(vals)
    if not absent:
        return values, counts
    both, place = np.unique(np.append(values, storage.fill_value), return_inverse=True)
    made = np.zeros(len(both), np.int64)
    made[place[:-1]] += counts
    made[place[-1]] += min(absent, np.iinfo(np.int64).max - int(made[place[-1]]))
    return both, made
