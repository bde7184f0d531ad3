"""Arrays of integers that hold coordinates: whether these are within what they index, and where each of them occurs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats import Coordinate, Format, convert, ordering, passes
from sparsejax.formats.storage import Storage
from sparsejax.lax.indirect.statements import Index, Ref, variables_of

AT_ONCE = 1 << 22
"""Combinations of variables that are looked at together."""

Ints = NDArray[Any]


def within(x: Storage, extent: int) -> Storage | None:
    """`x` with negative coordinates counted from the end; None where one is out of bounds. What was found is remembered with the array.
    O(entries), once."""
    known: dict[int, Storage | None] = x.cache.setdefault("within", {})
    if extent not in known:
        known[extent] = _wrapped(x, extent)
    return known[extent]


def clipped(x: Storage, extent: int) -> Storage:
    """`x` with 0 in place of what is not in [0, extent). Remembered with the array. O(entries), once."""
    key = "clipped", extent
    made: Storage | None = x.cache.get(key)
    if made is None:
        outside = (x.vals < 0) | (x.vals >= extent)
        zero = x.dtype.type(0)
        made = x.cache[key] = x.with_values(np.where(outside, zero, x.vals), x.fill_value) if outside.any() else x
    return made


def _wrapped(x: Storage, extent: int) -> Storage | None:
    values = x.vals if x.packed else x.expand()[1]
    if not len(values):
        return x
    low, high = x.cache.get("extremes") or (int(values.min()), int(values.max()))
    if low >= 0 and high < extent:
        return x
    if low < -extent or high >= extent:
        return None
    wide = x.vals.astype(np.int64)
    return x.with_values(np.where(wide < 0, wide + extent, wide).astype(x.dtype), x.fill_value)


def read_out_of_bounds(
    ref: Ref, stored: Sequence[Ref], extents: Mapping[str, int], arrays: Sequence[Storage], extent: int
) -> tuple[tuple[int, ...], int] | None:
    """The first coordinates of the array of `ref`, and the value there, that is out of bounds and that some combination of variables reads at
    which all of `stored` are entries; None where there is none. O(combinations)."""
    tables = {
        r.array: _Table(arrays[r.array])
        for r in (ref, *stored, *_nested(ref), *(n for s in stored for n in _nested(s)))
    }
    wanted = [ref, *stored]
    names = [v for v in extents if v in {v for r in wanted for v in variables_of(r)}]
    for grid in _combinations([extents[v] for v in names]):
        at = dict(zip(names, grid, strict=True))
        keep = np.ones(len(grid[0]) if grid else 1, bool)
        for r in stored:
            keep &= tables[r.array].find(_places(r, at, tables))[0]
        at = {v: g[keep] for v, g in at.items()}
        places = [np.broadcast_to(c, keep.sum()) for c in _places(ref, at, tables)]
        found, values = tables[ref.array].find(places)
        wrong = np.flatnonzero(found & ((values < -extent) | (values >= extent)))
        if len(wrong):
            return tuple(int(c[wrong[0]]) for c in places), int(values[wrong[0]])
    return None


def without_others(x: Storage, extent: int) -> Storage:
    """`x` with 0 in place of what is out of bounds, which nobody reads; negative coordinates count from the end."""
    wide = x.vals.astype(np.int64)
    wide = np.where(wide < 0, wide + extent, wide)
    inside = np.where((wide < 0) | (wide >= extent), 0, wide)
    return x.with_values(inside.astype(x.dtype), x.fill_value)


class _Table:
    """The entries of an array, looked up by coordinates."""

    def __init__(self, x: Storage) -> None:
        self.shape = x.shape
        coords, vals = convert.to_coords(x)
        keys = self._keys(coords)
        order = np.argsort(keys, kind="stable")
        self.keys, self.vals = keys[order], vals[order]

    def _keys(self, places: Sequence[Ints] | Ints) -> Ints:
        made = np.zeros((), np.int64)
        for c, n in zip(places, self.shape, strict=True):
            made = made * n + c
        return np.atleast_1d(made)

    def find(self, places: Sequence[Ints]) -> tuple[Ints, Ints]:
        """Whether there is an entry, and its value."""
        keys = self._keys(places)
        if not len(self.keys):
            return np.zeros(len(keys), bool), np.zeros(len(keys), np.int64)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return self.keys[at] == keys, self.vals[at].astype(np.int64)


def _nested(ref: Ref) -> Iterator[Ref]:
    for index in ref.indices:
        if isinstance(index, Ref):
            yield index
            yield from _nested(index)


def _places(ref: Ref, at: Mapping[str, Ints], tables: Mapping[int, _Table]) -> list[Ints]:
    def place(index: Index) -> Ints:
        if isinstance(index, str):
            return at[index]
        if isinstance(index, int):
            return np.asarray(index)
        return tables[index.array].find(_places(index, at, tables))[1]

    return [place(ix) for ix in ref.indices]


def _combinations(shape: Sequence[int]) -> Iterator[list[Ints]]:
    """All coordinates of a space in row-major order, some at a time."""
    if not shape:
        yield []
        return
    size, rest = math.prod(shape), math.prod(shape[1:])
    step = max(1, AT_ONCE // max(1, rest)) * rest
    for start in range(0, size, step):
        yield list(np.unravel_index(np.arange(start, min(size, start + step)), shape))


# ---------------------------------------------------------------------------------------------------------- positions


def positions(x: Storage, shape: tuple[int, ...], format: Format, drop: bool = False) -> Storage:
    """The array of `shape` and `format` that is true at (p, x[p]) for every entry of `x`: its coordinates, and as the last one its value. With
    `drop`, of those within bounds. Remembered with the array. O(entries + extent), once."""
    key = "positions", shape[-1], format, drop
    made: Storage | None = x.cache.get(key)
    if made is None:
        made = x.cache[key] = _positions(x, shape, format, drop)
    return made


def _positions(x: Storage, shape: tuple[int, ...], format: Format, drop: bool) -> Storage:
    extent = shape[-1]
    if (
        not drop
        and x.ndim == 1
        and x.format.is_dense
        and len(format.levels) == 2
        and not format.levels[0].listed
        and format.order[0]
    ):
        return _turned(x, shape, format)
    if x.format.is_dense:
        vals = convert.to_dense(x).reshape(-1)
        coords = list(np.unravel_index(np.arange(len(vals)), x.shape)) if x.ndim else []
    else:
        found, vals = convert.to_coords(convert.convert(x, Format((Coordinate(),) * x.ndim)))
        coords = list(found)
    columns = [*coords, vals.astype(np.int64)]
    if drop:
        inside = (vals >= 0) & (vals < extent)
        columns, vals = [c[inside] for c in columns], vals[inside]
    if format.order[0] == x.ndim and len(vals) and extent:
        order = ordering.sort_order([columns[-1]], [extent])
        if order is not None:
            columns = [c[order] for c in columns]
    trues = np.ones(len(vals), bool)
    return convert.from_coords(columns, trues, shape, format, False, canonical=True)


def pairs(x: Storage, z: Storage, shape: tuple[int, ...], format: Format) -> Storage:
    """The array of `shape` and `format` that is true at (x[p], z[p], p). The last one is remembered with `x`. O(entries + extents), once."""
    key = "pairs", shape, format
    known: tuple[Storage, Storage] | None = x.cache.get(key)
    if known is None or known[0] is not z:
        number = np.arange(shape[2])
        columns = [c.astype(np.int64, copy=False) for c in (convert.to_dense(x), convert.to_dense(z), number)]
        order = ordering.sort_order(columns[:2], shape[:2])
        columns = columns if order is None else [c[order] for c in columns]
        made = convert.from_coords(columns, np.ones(len(number), bool), shape, format, False, canonical=True)
        known = x.cache[key] = z, made
    return known[1]


def in_order(x: Storage, by: Storage, extent: int) -> Storage:
    """The rows of a dense array, stored in order, in the stable order of a dense vector with values in [0, extent), which may have further axes of
    extent 1. The last one is remembered with `x`, the order with `by`. O(entries), once."""
    if "order" not in by.cache:
        by.cache["order"] = ordering.sort_order([by.vals.astype(passes.crd_dtype(extent), copy=False)], [extent])
    order = by.cache["order"]
    if order is None:
        return x
    known: tuple[Storage, Storage] | None = x.cache.get("in order")
    if known is None or known[0] is not by:
        vals = x.vals.reshape(x.shape).take(order, axis=0).reshape(x.vals.shape)
        known = x.cache["in order"] = by, x.with_values(vals, x.fill_value)
    return known[1]


def _turned(x: Storage, shape: tuple[int, ...], format: Format) -> Storage:
    """A vector's positions by rows: counted, and listed in order."""
    rows = x.vals.astype(passes.crd_dtype(shape[1]), copy=False)
    numbers = np.arange(len(rows), dtype=passes.crd_dtype(shape[0]))
    many = passes.over(len(rows))
    if ordering.is_sorted([rows]):
        pos, crd = many.offsets(rows, shape[1]), numbers
    else:
        pos, (crd,) = many.bucketed(rows, [numbers], shape[1])
    return Storage(format, shape, np.bool_(False), ((), (pos, crd)), np.ones(len(rows), bool))
