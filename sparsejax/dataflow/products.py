"""Entries of results, counted without values: the product of two patterns, the second of which holds all operands but the first.

    rows[r, c]  c: the coordinates that are summed over;  r: variables of the result, and tiles of what is summed over
    right[c, x] x: the other variables of the result
    entries of the result = distinct pairs (r, x) with a c in common

`Side.of_left` and `of_right` divide coordinates by tile extents first: the words of all tiles of partial results are counted from
products of such patterns (`outputs`). Exactly: products of boolean matrices, compiled by this library. From a sample
of rows: `outputs.estimated`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sparsejax.core.array import Array as Stored
from sparsejax.dataflow.pattern import Array, Pattern, distinct, divided, packed, unpacked
from sparsejax.formats.levels.segments import ranges
from sparsejax.formats.runs import changes
from sparsejax.formats.scipy_io import from_scipy
from sparsejax.jit import api

AT_ONCE = 1 << 25
"""Multiplications of one product of patterns: what it makes fits into memory."""


@dataclass(frozen=True, eq=False)
class Rows:
    """A pattern of rows: `indices[starts[r]:starts[r+1]]` are the distinct coordinates of row r."""

    starts: Array
    indices: Array

    def __len__(self) -> int:
        return len(self.starts) - 1


def grouped(keys: Sequence[Array], extents: Sequence[int], number: Array) -> Rows:
    """Rows of equal keys, of entries that are sorted by them."""
    if not len(number):
        return Rows(np.zeros(1, np.int64), number)
    starts = np.flatnonzero(changes(list(keys))) if keys else np.zeros(1, np.int64)
    return Rows(np.append(starts, len(number)), number)


def left_rows(pattern: Pattern, summed: Sequence[str], tiles: Mapping[str, int], number: Array | None = None) -> Rows:
    """Rows of the first operand, whose variables stand in front of those that are summed over. `tiles` says by what coordinates are
    divided: variables of the result, and, as part of the row, those that are summed over (where not named: one tile). `number` holds
    the coordinate of every entry among what is summed over (without it: of the one variable that is)."""
    count = len(pattern.variables) - len(summed)
    kept = [divided(c, tiles.get(v, 1)) for v, c in zip(pattern.variables[:count], pattern.columns, strict=False)]
    extents = [-(-n // tiles.get(v, 1)) for v, n in zip(pattern.variables[:count], pattern.extents, strict=False)]
    for v, n, c in list(zip(pattern.variables, pattern.extents, pattern.columns, strict=True))[count:]:
        if v in tiles and tiles[v] < n:
            kept.append(divided(c, tiles[v]))
            extents.append(-(-n // tiles[v]))
    whole = all(tiles.get(v, 1) == 1 for v in pattern.variables[:count])
    if number is None and len(summed) == 1:
        number, size = pattern.columns[-1], pattern.extents[-1]
        if whole:  # sorted, and without duplicates, as they are
            return grouped(kept, extents, number)
    else:
        assert number is not None
        size = int(number.max(initial=0)) + 1
    both = [*extents, size]
    columns = unpacked(distinct(packed([*kept, number], both), math.prod(both)), both)
    return grouped(columns[:-1], extents, columns[-1])


def numbered(pattern: Pattern, summed: Sequence[str]) -> tuple[Array, tuple[Array, ...]]:
    """The number of every entry's coordinates among the distinct ones of `summed`, and these coordinates."""
    places = [pattern.variables.index(v) for v in summed]
    extents = [pattern.extents[k] for k in places]
    keys = packed([pattern.columns[k] for k in places], extents, pattern.entries)
    found, inverse = np.unique(keys, return_inverse=True)
    return inverse.reshape(-1), unpacked(found, extents)


def right_rows(
    pattern: Pattern, shared: int, tiles: Mapping[str, int], coordinates: tuple[Array, ...] | None = None
) -> Rows:
    """Per coordinate that is summed over (and shared, the first `shared` variables): the others, divided. `coordinates` lists those
    that are wanted; without them all of the one variable are."""
    private = pattern.variables[shared:]
    extents = [-(-n // tiles.get(v, 1)) for v, n in zip(private, pattern.extents[shared:], strict=True)]
    above = list(pattern.columns[:shared])
    space = list(pattern.extents[:shared])
    if len(private) == 1:
        runs = pattern.runs(tiles.get(private[0], 1))
        above, value = list(runs.above), runs.last
    elif not private:
        value = np.zeros(pattern.entries, np.int32)
    else:
        value = packed(
            [divided(c, tiles.get(v, 1)) for v, c in zip(private, pattern.columns[shared:], strict=True)], extents
        )
        size = math.prod(extents)
        keys = distinct(packed([*above, value], [*space, size]), math.prod(space) * size)
        *above, value = unpacked(keys, [*space, size])
    if coordinates is None:
        return Rows(np.searchsorted(above[0], np.arange(space[0] + 1)), value)
    keys, wanted = packed(above, space, len(value)), packed(coordinates, space)
    lo, hi = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, "right")
    _, place = ranges(lo, hi)
    return Rows(np.append(0, np.cumsum(hi - lo)), value[place])


def joined_rows(patterns: Sequence[Pattern], coordinates: tuple[Array, ...], extent: int) -> Rows:
    """For pairs of coordinates of two operands [k,j] and [l,j]: the j of which both have an entry."""
    lists = [right_rows(p, 1, {}) for p in patterns]
    lengths = [np.diff(x.starts)[c] for x, c in zip(lists, coordinates, strict=True)]
    swap = lengths[0].sum() > lengths[1].sum()
    (few, many), (c, d) = (lists[::-1], coordinates[::-1]) if swap else (lists, coordinates)
    stored = packed([np.repeat(np.arange(len(many)), np.diff(many.starts)), many.indices], (len(many), extent))
    kept: list[Array] = []
    counts = np.zeros(len(c), np.int64)
    for start, stop in batches(np.diff(few.starts)[c], AT_ONCE):
        owner, place = ranges(few.starts[c[start:stop]], few.starts[c[start:stop] + 1])
        value = few.indices[place]
        wanted = packed([d[start:stop][owner], value], (len(many), extent))
        at = np.searchsorted(stored, wanted)
        both = stored[np.minimum(at, len(stored) - 1)] == wanted if len(stored) else np.zeros(len(wanted), np.bool_)
        kept.append(value[both])
        counts[start:stop] = np.bincount(owner[both], minlength=stop - start)
    return Rows(np.append(0, np.cumsum(counts)), np.concatenate(kept) if kept else np.zeros(0, np.int32))


def divided_rows(rows: Rows, tile: int) -> Rows:
    """Rows of sorted coordinates, divided, each once."""
    owner = np.repeat(np.arange(len(rows)), np.diff(rows.starts))
    value = divided(rows.indices, tile)
    if not len(value):
        return rows
    first = changes([owner, value])
    return Rows(np.append(0, np.cumsum(np.bincount(owner[first], minlength=len(rows)))), value[first])


def batches(weights: Array, limit: int) -> list[tuple[int, int]]:
    """Ranges of items whose weights add up to about `limit`."""
    if not len(weights):
        return []
    number = np.cumsum(weights, dtype=np.int64) // limit
    starts = np.flatnonzero(changes([number]))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(weights)], strict=True))


def running_multiplications(left: Rows, right: Rows) -> Array:
    """How many pairs of entries all entries of `left` before each one make, and all together."""
    made = np.zeros(len(left.indices) + 1, np.int64)
    np.cumsum(np.diff(right.starts)[left.indices], out=made[1:])
    return made


def multiplications(left: Rows, right: Rows) -> Array:
    """Per row of `left`: how many pairs of entries it makes."""
    return np.diff(running_multiplications(left, right)[left.starts])


def meeting(left: Rows, right: Rows) -> int:
    """How many rows of `left` make any pair."""
    if len(right) and np.diff(right.starts).min():
        return int(np.count_nonzero(np.diff(left.starts)))
    return int(np.count_nonzero(multiplications(left, right)))


def thinned(rows: Rows, by: int, random: np.random.Generator) -> Rows:
    """Rows of which one coordinate among every `by` neighbours is left, the same one in all rows."""
    groups = int(rows.indices.max(initial=0)) // by + 1
    kept = np.zeros(groups * by, np.bool_)
    kept[np.arange(groups) * by + random.integers(0, by, groups)] = True
    stays = kept[rows.indices]
    before = np.zeros(len(stays) + 1, np.int64)
    np.cumsum(stays, out=before[1:])
    return Rows(before[rows.starts], rows.indices[stays])


_multiply = api.jit(lambda a, b: a @ b)


def count(left: Rows, right: Rows, extent: int) -> int:
    """Entries of the product of two patterns, exactly; `extent` is that of the coordinates in `right`."""
    weights = multiplications(left, right)
    if weights.sum() <= SMALL:
        return int(distinct_per_row(left, right, np.arange(len(left)), extent)[0].sum())
    second = _stored(right, extent)
    total = 0
    for start, stop in batches(weights, AT_ONCE):
        first = left.starts[start : stop + 1]
        part = Rows(first - first[0], left.indices[first[0] : first[-1]])
        total += int(_multiply(_stored(part, len(right)), second).nnz)
    return total


SMALL = 1 << 15


def _stored(rows: Rows, extent: int) -> Stored:
    """As a boolean matrix whose shape is rounded up to powers of two, so that few kernels serve all products."""
    import scipy.sparse as sp  # here: the import of this package does not wait for it

    count, extent = (1 << max(n - 1, 1).bit_length() for n in (len(rows), extent))
    starts = np.append(rows.starts, np.full(count - len(rows), rows.starts[-1]))
    matrix = sp.csr_array((np.ones(len(rows.indices), np.bool_), rows.indices, starts), shape=(count, extent))
    return Stored(from_scipy(matrix, copy=None))


def distinct_per_row(left: Rows, right: Rows, chosen: Array, extent: int) -> tuple[Array, Array]:
    """Per chosen row: entries of the product, and multiplications."""
    owner, place = ranges(left.starts[chosen], left.starts[chosen + 1])
    middle = left.indices[place]
    pair, place = ranges(right.starts[middle], right.starts[middle + 1])
    rows = owner[pair]
    keys = packed([rows, right.indices[place]], (len(chosen), extent))
    space = len(chosen) * extent
    found = distinct(keys, space) // max(extent, 1)
    return np.bincount(found, minlength=len(chosen)), np.bincount(rows, minlength=len(chosen))
