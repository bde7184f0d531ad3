"""How many entries meet where two stored arrays are joined: second moments of their degrees.

    degree of c at a dimension    the number of stored entries with coordinate c there
    meetings                      sum over c of degree_A(c) * degree_B(c):  the multiplications of A[i,c] * B[c,j]
    coupling                      meetings over what even degrees would make, nnz_A * nnz_B / n

Joined with itself, an array of power-law degrees has a coupling far above 1: whoever follows one of its entries arrives at a
long fiber (the mean length, weighted by length, is sum d^2 / sum d). Coordinates beyond `LARGEST` are folded, and what meets
by folding alone is taken off: a sketch of join sizes. Sources: Cohen, "Structure prediction and computing sparse matrix
products"; Alon, Gibbons, Matias, Szegedy, "Tracking join and self-join sizes in limited storage"; reference section 4.3.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats.storage import Storage

FEW = 1 << 10  # entries of an array below which schedules do not depend on its degrees
LARGEST = 1 << 20  # degrees that are told apart
DRAWN = 1 << 15
"""Entries of a large array that are looked at in place of all, where the other one's degrees are told by its outermost level."""
DOUBT = 16.0  # meetings by which chance may miss what even degrees would make; more if folded

Floats = NDArray[np.float64]


def distinct(throws: float, bins: float) -> float:
    """The expected number of different values among `throws` uniform draws from `bins`."""
    return bins * -math.expm1(-throws / bins) if bins > 0 else 0.0


def coupling(left: Storage, dimension: int, right: Storage, other: int) -> float:
    """How many times more entries meet than even degrees would make: of `left` at `dimension` with `right` at `other`.

    1 where an array has fewer than `FEW` entries. Computed once per pair of storages; O(positions above) for the degrees of a
    dimension that is stored outermost; of one that is stored innermost by many entries, `DRAWN` of these tell what all would, to a few per cent,
    where that is joined; O(entries) for others, once per array.

    >>> from sparsejax.formats import ingest
    >>> hub = np.zeros((2000, 2000))
    >>> hub[0] = hub[:, 0] = 1.0  # one row and one column are full
    >>> A = ingest.as_storage(hub, format="csr")
    >>> round(coupling(A, 1, A, 0)), round(coupling(A, 0, A, 0))
    (500, 500)
    """
    known = left.cache.setdefault("couplings", {})
    key = dimension, other
    found = known.get(key)
    if found is None or found[0] is not mark(right):
        found = known[key] = mark(right), _coupling(left, dimension, right, other)
    value: float = found[1]
    return value


def mark(storage: Storage) -> object:
    """What identifies a storage in a cache that may outlive it."""
    return storage.cache.setdefault("mark", object())


def _coupling(left: Storage, dimension: int, right: Storage, other: int) -> float:
    smallest = min(left.nnz, right.nnz)
    if smallest < FEW:
        return 1.0
    extent = left.shape[dimension]
    size = min(extent, LARGEST, 1 << math.ceil(math.log2(4.0 * max(left.nnz, right.nnz))))
    product = float(left.nnz) * float(right.nnz)
    found = _met(left, dimension, right, other, size)
    doubt = DOUBT
    if size < extent:
        found = max(0.0, found - product / size) / (1.0 - 1.0 / size)
        doubt += 3.0 * math.sqrt(product / size)
    even = product / extent
    return max(1.0, (found - doubt) / even) if found > even else (found + doubt) / (even + doubt)


def _met(left: Storage, dimension: int, right: Storage, other: int, size: int) -> float:
    """The sum over coordinates of the products of degrees: the mean degree that an entry of one array meets in the other, times its entries."""
    for one, d, two, e in ((left, dimension, right, other), (right, other, left, dimension)):
        if two.format.order[0] == e and (d, size) not in one.cache.get("degrees", {}):
            some = _some(one, d)
            if some is not None:
                return float(degrees(two, e, size)[some if size >= one.shape[d] else some % size].mean()) * one.nnz
    return float(degrees(left, dimension, size) @ degrees(right, other, size))


_ANYWHERE = np.sort(np.random.default_rng(1).random(DRAWN))
"""Where the entries lie that are looked at, as shares of all."""


def _some(storage: Storage, dimension: int) -> NDArray[Any] | None:
    """The coordinates of some entries; None where there are not many more, or they do not stand side by side in the innermost level."""
    form = storage.format
    last, count = len(form.levels) - 1, len(storage.vals)
    if form.order[last] != dimension or count < 4 * DRAWN or form.blocked or not storage.packed:
        return None
    if form.levels[last].full or not all(level.plain for level in form.levels):
        return None
    found: NDArray[Any] = storage.buffers[last][-1][(_ANYWHERE * count).astype(np.int64)]
    return found


def degrees(storage: Storage, dimension: int, size: int) -> Floats:
    """The number of entries of every coordinate of a dimension, coordinates folded modulo `size`; computed once.

    >>> from sparsejax.formats import ingest
    >>> degrees(ingest.as_storage(np.eye(3), format="csr"), 1, 3)
    array([1., 1., 1.])
    """
    known = storage.cache.setdefault("degrees", {})
    key = dimension, size
    if key not in known:
        known[key] = _degrees(storage, dimension, size)
    made: Floats = known[key]
    return made


def _degrees(storage: Storage, dimension: int, size: int) -> Floats:
    form = storage.format
    runs = bool(form.levels) and form.levels[-1].in_runs
    plain = all(level.plain for level in form.levels[: -1 if runs else None])
    if not plain or not (storage.packed or runs) or form.blocked:
        return _counted(storage.expand()[0][dimension], None, storage.shape[dimension], size)
    level = form.order.index(dimension)
    if runs and level == storage.ndim - 1:
        _, start, stop = storage.buffers[level]
        return _covered(start, stop, size)
    lengths = _entries_below(storage, level)
    if not form.levels[level].full:
        return _counted(storage.buffers[level][-1], lengths, storage.shape[dimension], size)
    extent = storage.shape[dimension]
    if lengths is None:
        return _folded(np.full(extent, len(storage.vals) // max(1, extent)), size)
    return _folded(lengths.reshape(-1, extent).sum(0), size)


def _entries_below(storage: Storage, level: int) -> NDArray[Any] | None:
    """The number of entries below every position of a level; None: one below each."""
    form = storage.format
    ends: NDArray[Any] | None = None  # where the entries of every position end, among those of some level below
    each = 1
    if form.levels[-1].in_runs:
        _, start, stop = storage.buffers[-1]
        ends = np.append(0, np.cumsum(stop.astype(np.int64) - start))
    for below in range(len(form.levels) - 1, level, -1):
        if form.levels[below].full:
            extent = storage.shape[form.order[below]]
            ends, each = (None, each * extent) if ends is None else (ends[::extent], each)
        elif not form.continues(below):
            pos = storage.buffers[below][0]
            ends = pos if ends is None else np.take(ends, pos)
    if ends is not None:
        lengths: NDArray[Any] = ends[1:] - ends[:-1]
        return lengths if each == 1 else lengths * each
    return None if each == 1 else np.full(len(storage.vals) // each, each)


def _counted(coordinates: NDArray[Any], lengths: NDArray[Any] | None, extent: int, size: int) -> Floats:
    """The sum of `lengths` (None: ones) per coordinate, modulo `size`; in parts, as `bincount` copies what it is given."""
    total = np.zeros(size)
    for start in range(0, len(coordinates), LARGEST):
        part = coordinates[start : start + LARGEST]
        if size < extent:
            part = part % size
        total += np.bincount(part, None if lengths is None else lengths[start : start + LARGEST], size)
    return total


def _covered(start: NDArray[Any], stop: NDArray[Any], size: int) -> Floats:
    """How many runs hold every coordinate, modulo `size`.

    >>> _covered(np.array([0, 1]), np.array([2, 6]), 4)
    array([2., 3., 1., 1.])
    """
    whole, rest = np.divmod(stop.astype(np.int64) - start, size)
    first = start.astype(np.int64) % size
    edges = np.bincount(first, minlength=2 * size + 1) - np.bincount(first + rest, minlength=2 * size + 1)
    made: Floats = np.cumsum(edges)[: 2 * size].reshape(2, size).sum(0) + float(whole.sum())
    return made


def _folded(lengths: NDArray[Any], size: int) -> Floats:
    """`lengths` of consecutive coordinates, summed modulo `size`."""
    if len(lengths) == size:
        return lengths.astype(np.float64)
    padded = np.zeros(-(-len(lengths) // size) * size)
    padded[: len(lengths)] = lengths
    folded: Floats = padded.reshape(-1, size).sum(0)
    return folded
