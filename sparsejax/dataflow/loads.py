"""How often every tile of every operand is fetched: exact, from the patterns of tiles alone.

A tile is fetched once per combination of the coordinates of other loops, among those around it, for which all operands have entries
(`nest`). Of two operands these are counted from the tiles of the other one, per coordinate that both share; of the three of MTTKRP
by products of the matrices of tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.dataflow.contraction import Contraction
from sparsejax.dataflow.nest import Nest
from sparsejax.dataflow.pattern import Array, Tiles, distinct, is_roomy, packed, unpacked
from sparsejax.formats.runs import changes


def loads(contraction: Contraction, nest: Nest, tiles: Sequence[Tiles], operand: int, every: bool = False) -> Array:
    """How often each tile of one operand is fetched; with `every`, in how many iterations of all loops it is used."""
    found = tiles[operand]
    seen = nest.seen(nest.order if every else contraction.inputs[operand])
    if len(tiles) == 2:
        return _from_other(nest, found, tiles[1 - operand], seen)
    return _of_three(nest, tiles, operand, seen)


def input_words(contraction: Contraction, nest: Nest, tiles: Sequence[Tiles]) -> tuple[int, ...]:
    """Words that are fetched, per operand."""
    return tuple(int(loads(contraction, nest, tiles, k) @ t.words) for k, t in enumerate(tiles))


def _from_other(nest: Nest, own: Tiles, other: Tiles, seen: dict[str, int]) -> Array:
    """Per tile of `own`: how many combinations of the other's own variables, as far as `seen`, meet it in what they share."""
    shared = [v for v in own.variables if v in other.variables]
    grid = [own.grid[own.variables.index(v)] for v in shared]
    keys = packed([other.column(v) for v in shared], grid, len(other.words))
    private = [v for v in other.variables if v not in own.variables]
    coarse, extents = [], []
    for v in private:
        if v in seen:
            ratio = _ratio(seen[v], nest.tiles[v])
            coarse.append(other.column(v) // ratio)
            extents.append(-(-other.grid[other.variables.index(v)] // ratio))
    if any(seen.get(v) != nest.tiles[v] for v in private):
        whole = [math.prod(grid), *extents]
        keys = unpacked(distinct(packed([keys, *coarse], whole), math.prod(whole)), whole)[0]
    wanted = packed([own.column(v) for v in shared], grid, len(own.words))
    return _count(wanted, keys, math.prod(grid))


def _ratio(outer: int, inner: int) -> int:
    return -(-outer // inner)


def _count(wanted: Array, keys: Array, space: int) -> Array:
    """How often each wanted key is among `keys`."""
    if is_roomy(space, len(keys) + len(wanted)):
        return np.bincount(keys, minlength=space)[wanted]
    keys = np.sort(keys)
    return np.searchsorted(keys, wanted, "right") - np.searchsorted(keys, wanted, "left")


def _of_three(nest: Nest, tiles: Sequence[Tiles], operand: int, seen: dict[str, int]) -> Array:
    """MTTKRP: A[i,k,l] B[j,k] C[j,l], j innermost."""
    first, *others = tiles
    (j,) = set(others[0].variables) - set(first.variables)
    k, l = (next(v for v in t.variables if v != j) for t in others)
    known = {v: np.unique(np.concatenate([t.column(v) for t in tiles if v in t.variables])) for v in (j, k, l)}

    def at(t: Tiles, v: str) -> Array:  # the number of a coordinate among those that there are
        return np.searchsorted(known[v], t.column(v))

    counts = {v: len(found) for v, found in known.items()}
    b, c = (_matrix(at(t, j), at(t, v), counts[j], counts[v]) for t, v in zip(others, (k, l), strict=True))
    if operand == 0:
        if seen.get(j) == nest.tiles[j]:
            met = b.T @ c
        else:
            coarse = known[j] // _ratio(seen[j], nest.tiles[j]) if j in seen else np.zeros(counts[j], np.int64)
            starts = np.flatnonzero(changes([coarse])).tolist() if counts[j] else []
            none = np.zeros(0, np.int64)
            met = _matrix(none, none, counts[k], counts[l])
            for start, stop in zip(starts, [*starts, counts[j]][1:], strict=True):
                part = b[start:stop].T @ c[start:stop]
                part.data[:] = 1
                met = met + part
        return _at(met, at(first, k), at(first, l))
    a = _matrix(at(first, k), at(first, l), counts[k], counts[l])  # per (k, l): over how many i
    if operand == 1:
        return _at(c @ a.T, at(others[0], j), at(others[0], k))
    return _at(b @ a, at(others[1], j), at(others[1], l))


def _matrix(rows: Array, columns: Array, count: int, extent: int) -> Any:
    import scipy.sparse as sp  # here: the import of this package does not wait for it

    made = sp.coo_array((np.ones(len(rows), np.int64), (rows, columns)), shape=(count, extent)).tocsr()
    made.sum_duplicates()
    return made


def _at(matrix: Any, rows: Array, columns: Array) -> Array:
    """Entries of a sparse matrix."""
    if not len(rows):
        return np.zeros(0, np.int64)
    matrix = matrix.tocsr()
    matrix.sum_duplicates()
    stored = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)) * matrix.shape[1] + matrix.indices
    wanted = rows.astype(np.int64) * matrix.shape[1] + columns
    if not len(stored):
        return np.zeros(len(rows), np.int64)
    place = np.minimum(np.searchsorted(stored, wanted), len(stored) - 1)
    return np.where(stored[place] == wanted, matrix.data[place], 0)
