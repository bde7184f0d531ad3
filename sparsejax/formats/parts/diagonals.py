"""Arrays with entries on one diagonal, and without entries, put together level by level.

csr  values a b c, k = 1, shape (4, 4)       pos 0 1 2 3 3      crd 1 2 3      vals a b c
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from sparsejax.formats import convert, passes
from sparsejax.formats.counting import counted, counting
from sparsejax.formats.format import Format
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.coordinate import Coordinate
from sparsejax.formats.levels.dense import Dense
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.formats.storage import Storage

_INT64 = np.dtype(np.int64)
_NOWHERE = np.zeros(0, np.int64)

SMALL = 1 << 12
"""Elements of the longest dense dimension up to which arrays without entries are kept to be given again."""
SHARED = 5 << 20
"""Elements up to which the positions of arrays without entries share memory."""


def on_diagonal(values: Array, shape: tuple[int, int], k: int, format: Format) -> Storage:
    """The matrix with `values`, which nobody writes to, on its k-th diagonal, and fill 0: one for every place, or one for all. O(places and rows).

    >>> made = on_diagonal(np.array([1.0, 2.0]), (2, 3), 1, Format.parse("csc", 2))
    >>> convert.to_dense(made)
    array([[0., 1., 0.],
           [0., 0., 2.]])
    """
    first, fill = (max(0, -k), max(0, k)), values.dtype.type(0)
    count = max(0, min(shape[0] - first[0], shape[1] - first[1]))
    kinds = tuple(map(type, format.levels))
    each = values if len(values) == count else None
    if not format.blocked and all(level.unique for level in format.levels):
        outer, inner = format.order
        if kinds == (Dense, Compressed):
            ends = counting(0, count + 1, _INT64) if count == shape[outer] else None  # an entry in every row
            crd = None if ends is None else counting(first[inner], first[inner] + count, crd_dtype(shape[inner]))
            if ends is not None and crd is not None:
                return Storage(
                    format, shape, fill, ((), (ends, crd)), _repeated(values, count) if each is None else each
                )
            over, extents = passes.over(count), (shape[outer], shape[inner])
            pos, crd, vals = over.lined(extents, [k if outer == 0 else -k], None if each is not None else [values])
            return Storage(format, shape, fill, ((), (pos, crd)), values if vals is None else vals)
        if kinds == (Coordinate, Coordinate):
            places = [counted(n, n + count, crd_dtype(shape[d])) for d, n in enumerate(first)]
            each = _repeated(values, count) if each is None else each
            return Storage(format, shape, fill, ((np.array([0, count]), places[outer]), (places[inner],)), each)
    coords = np.stack([np.arange(n, n + count) for n in first])
    return convert.from_coords(coords, np.repeat(values, count) if each is None else each, shape, format, fill)


RUNS = Format.parse("rle", 2)
"""The format of triangles."""


def triangle(shape: tuple[int, int], k: int, lower: bool) -> Storage:
    """True on and below the k-th diagonal, or on and above it: one run of columns in every row. O(rows).

    >>> convert.to_dense(triangle((2, 3), 0, lower=False))
    array([[ True,  True,  True],
           [False,  True,  True]])
    """
    n, m = shape
    segments.check_size(n, "the rows of a triangle")
    k = min(max(k, -n), m)
    ends = np.clip(np.arange(n, dtype=np.int64) + k + (1 if lower else 0), 0, m)
    start, stop = (np.zeros_like(ends), ends) if lower else (ends, np.full_like(ends, m))
    there = stop > start
    kind = crd_dtype(m)
    runs = segments.offsets(np.flatnonzero(there), n), start[there].astype(kind), stop[there].astype(kind)
    return Storage(RUNS, shape, np.False_, ((), runs), np.ones(int(there.sum()), bool))


def _repeated(value: Array, count: int) -> Array:
    """A vector of one value."""
    if count < passes.MANY:
        return value.repeat(count)
    return passes.over(count).spread(value[:0], _NOWHERE, count, value[0])


def without_entries(shape: tuple[int, ...], dtype: np.dtype[Any], format: Format, fill: Any) -> Storage:
    """The array of which nothing is stored. O(positions of dense levels)."""
    if max(shape, default=0) <= SMALL:
        return _kept(shape, dtype, format, fill.tobytes())
    return _empty(shape, dtype, format, fill)


@functools.lru_cache(maxsize=256)
def _kept(shape: tuple[int, ...], dtype: np.dtype[Any], format: Format, fill: bytes) -> Storage:
    return _empty(shape, dtype, format, np.frombuffer(fill, dtype)[0])


@functools.cache
def _untouched() -> Array:
    """Zeros that every array without entries may begin with. Nobody writes to them, so that they take no memory until somebody reads them."""
    return np.zeros(SHARED, np.int64)


def _zeros(count: int) -> Array:
    return _untouched()[:count] if SMALL < count <= SHARED else np.zeros(count, np.int64)


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any], format: Format, fill: Any) -> Storage:
    if (
        format.is_dense
        or format.blocked
        or not all(isinstance(x, Dense | Compressed | Coordinate) for x in format.levels)
    ):
        coords = np.empty((len(shape), 0), np.int64)
        return convert.from_coords(coords, np.empty(0, dtype), shape, format, fill, canonical=True)
    buffers: list[tuple[Array, ...]] = []
    positions = 1
    for number, level in enumerate(format.levels):
        extent = shape[format.order[number]]
        if level.full:
            buffers.append(())
            positions = segments.check_size(positions * extent, "the dense levels of an array without entries")
            continue
        crd = np.empty(0, crd_dtype(extent))
        buffers.append((crd,) if format.continues(number) else (_zeros(positions + 1), crd))
        positions = 0
    return Storage(format, shape, fill, tuple(buffers), np.empty(0, dtype))
