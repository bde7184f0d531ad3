"""Where arrays are cut: by stored entries, so that shards hold as much as each other however entries are spread.

A cut of an extent n is its ascending boundaries (0, ..., n): shard k holds the coordinates from boundary k up to boundary k + 1.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats import convert
from sparsejax.formats.storage import Storage

Cut = tuple[int, ...]


def whole(extent: int) -> Cut:
    """The cut into one part."""
    return (0, extent)


def even(extent: int, parts: int) -> Cut:
    """Parts of the same extent, but for one coordinate.

    >>> even(10, 4)
    (0, 2, 5, 7, 10)
    """
    parts = max(1, min(parts, extent))
    return tuple(extent * k // parts for k in range(parts + 1))


def divided(cut: Cut, parts: int) -> Cut:
    """Every part of a cut in `parts` more, of the same extent but for one coordinate.

    >>> divided((0, 4, 7), 2)
    (0, 2, 4, 5, 7)
    """
    return (0, *(a + b for a, c in itertools.pairwise(cut) for b in even(c - a, parts)[1:]))


def aligned(cut: Cut, block: int) -> bool:
    """Whether no block of so many coordinates is divided: which zeros are stored depends on where blocks begin.

    >>> aligned((0, 4, 7), 2), aligned((0, 3, 7), 2)
    (True, False)
    """
    return all(b % block == 0 for b in cut[:-1])


def balanced(weights: NDArray[Any], parts: int) -> Cut:
    """The cut into `parts` ranges of which the heaviest is as light as it can be; parts may be fewer than asked for, none is empty.

    Binary search for the weight of the heaviest part, with a greedy probe over prefix sums (Pinar and Aykanat 2004, "Fast optimal load balancing
    algorithms for 1D partitioning"). O(n + parts log n log total).

    >>> balanced(np.array([5, 1, 1, 1, 5, 1]), 3)
    (0, 1, 4, 6)
    """
    extent = len(weights)
    parts = max(1, min(parts, extent))
    sums = np.concatenate([[0], np.cumsum(weights, dtype=np.int64)])
    total = int(sums[-1])
    if parts == 1 or not total:
        return even(extent, parts)
    low, high = max(int(np.max(weights)), -(-total // parts)), total
    while low < high:
        middle = (low + high) // 2
        if _probe(sums, parts, middle) is None:
            low = middle + 1
        else:
            high = middle
    made = _probe(sums, parts, low)
    assert made is not None
    return _smoothed(sums, made)


def _probe(sums: NDArray[np.int64], parts: int, most: int) -> list[int] | None:
    """The boundaries of parts of at most `most`, each as long as it can be; None where these are more than `parts`."""
    extent, made = len(sums) - 1, [0]
    for _ in range(parts):
        stop = int(np.searchsorted(sums, sums[made[-1]] + most, side="right")) - 1
        made.append(min(stop, extent))
        if stop >= extent:
            return made
    return None


def _smoothed(sums: NDArray[np.int64], cut: list[int]) -> Cut:
    """The cut with every inner boundary moved back to where its neighbours are balanced, so that the last part is not the light one."""
    made = list(cut)
    for k in range(len(made) - 2, 0, -1):
        middle = (sums[made[k - 1]] + sums[made[k + 1]]) / 2
        place = int(np.searchsorted(sums, middle))
        best = min((place - 1, place), key=lambda p: abs(sums[max(p, 0)] - middle))
        heaviest = max(sums[made[k]] - sums[made[k - 1]], sums[made[k + 1]] - sums[made[k]])
        best = min(max(best, made[k - 1] + 1), made[k + 1] - 1)
        if max(sums[best] - sums[made[k - 1]], sums[made[k + 1]] - sums[best]) <= heaviest:
            made[k] = best
    return tuple(made)


def weights_along(storage: Storage, axis: int) -> NDArray[np.int64]:
    """The number of stored entries at every coordinate of an axis. O(entries), O(extent) for the rows of csr."""
    form = str(storage.format)
    if (form, axis) in (("csr", 0), ("csc", 1)):
        return np.diff(storage.buffers[1][0])
    if storage.format.is_dense:
        extent = storage.shape[axis]
        return np.full(extent, len(storage.vals) // max(extent, 1), np.int64)
    columns, _ = convert.to_coords(storage)
    return np.bincount(columns[axis], minlength=storage.shape[axis]).astype(np.int64)


def cuts_for(
    storage: Storage, asked: Sequence[int | Sequence[int] | None], row_cost: Any = 0.0, costs: Any = None
) -> tuple[Cut, ...]:
    """The cut of every axis: into a number of parts by stored entries, at given boundaries, or (None) not at all; rows cost `row_cost` entries more, a
    number or one for each row, or `costs` in place of their entries.

    Two axes that are cut are cut in turn, each by the heaviest of the blocks that the other makes, until that stays (Nicol 1994, "Rectilinear
    partitioning of irregular data parallel computations"), at most eight times.
    """
    asked = [_checked(a, d) for d, a in enumerate(asked)]
    blocks = storage.format.blocks
    made = [_given(n, a) for n, a in zip(storage.shape, asked, strict=True)]
    for d, (cut, block) in enumerate(zip(made, blocks, strict=True)):
        if not aligned(cut, block):
            raise ValueError(
                f"boundaries {cut} of axis {d} must be multiples of {block}, as format {storage.format} has blocks of {block} along it; or convert the array"
            )
    open_axes = [d for d, a in enumerate(asked) if isinstance(a, int) and a > 1]
    for d in open_axes:
        weights = weights_along(storage, d) if d or costs is None else costs
        if d == 0 and (costs is not None or np.any(row_cost)):
            weights = np.round(weights + row_cost).astype(np.int64)
        if blocks[d] > 1 and len(weights):
            weights = np.add.reduceat(weights, np.arange(0, len(weights), blocks[d]))
        made[d] = balanced(weights, _parts(asked[d]))
    if len(open_axes) > 1 and not storage.format.is_dense:
        columns = [c // b for c, b in zip(convert.to_coords(storage)[0], blocks, strict=True)]
        made = [c if d in open_axes else tuple(-(-b // blocks[d]) for b in c) for d, c in enumerate(made)]
        best, heaviest = tuple(made), _heaviest(columns, made)
        for _ in range(8):
            for d in open_axes:
                made[d] = _refined(columns, made, d, _parts(asked[d]))
            now = _heaviest(columns, made)
            if now >= heaviest:
                break
            best, heaviest = tuple(made), now
        return tuple(_unblocked(c, b, n) for c, b, n in zip(best, blocks, storage.shape, strict=True))
    return tuple(
        _unblocked(c, blocks[d], n) if d in open_axes else c
        for d, (c, n) in enumerate(zip(made, storage.shape, strict=True))
    )


def _unblocked(cut: Cut, block: int, extent: int) -> Cut:
    """A cut between blocks as one between coordinates."""
    return tuple(min(b * block, extent) for b in cut)


def _parts(asked: Any) -> int:
    return int(asked)


def _checked(asked: Any, axis: int) -> Any:
    """A number of parts, boundaries, or None, as Python's integers. TypeError for anything else."""
    try:
        if isinstance(asked, bool | np.bool_):
            raise TypeError
        return (
            None if asked is None else [operator.index(b) for b in asked] if np.ndim(asked) else operator.index(asked)
        )
    except TypeError:
        raise TypeError(
            f"axis {axis} is cut into {asked!r}; give a number of parts, boundaries such as (0, 50, 100), or None for one part"
        ) from None


def _given(extent: int, asked: int | Sequence[int] | None) -> Cut:
    if asked is None or isinstance(asked, int):
        if asked is not None and asked < 1:
            raise ValueError(f"an axis is cut into one part or more, not into {asked}")
        return whole(extent)
    cut = tuple(int(b) for b in asked)
    if len(cut) < 2 or cut[0] != 0 or cut[-1] != extent or any(b <= a for a, b in itertools.pairwise(cut)):
        raise ValueError(f"boundaries {cut} must ascend from 0 to the extent of the axis, {extent}")
    return cut


def _places(column: NDArray[Any], cut: Cut) -> NDArray[np.int64]:
    return np.searchsorted(np.asarray(cut[1:-1]), column, side="right")


def _heaviest(columns: Any, cuts: Sequence[Cut]) -> int:
    """The entries of the heaviest block."""
    number = np.zeros(len(columns[0]), np.int64)
    for column, cut in zip(columns, cuts, strict=True):
        number = number * (len(cut) - 1) + _places(column, cut)
    return int(np.bincount(number).max()) if len(number) else 0


def _refined(columns: Any, cuts: Sequence[Cut], axis: int, parts: int) -> Cut:
    """Axis cut anew: by greedy probes that fill every block of a strip up to a bound, and binary search for the bound."""
    extent = cuts[axis][-1]
    number = np.zeros(len(columns[0]), np.int64)
    for d, (column, cut) in enumerate(zip(columns, cuts, strict=True)):
        if d != axis:
            number = number * (len(cut) - 1) + _places(column, cut)
    strips = int(number.max()) + 1 if len(number) else 1
    sums = []
    for k in range(strips):
        counts = np.bincount(columns[axis][number == k], minlength=extent)
        sums.append(np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]))

    def probe(most: int) -> list[int] | None:
        made = [0]
        for _ in range(parts):
            stop = min(int(np.searchsorted(s, s[made[-1]] + most, side="right")) - 1 for s in sums)
            if stop <= made[-1]:
                return None
            made.append(min(stop, extent))
            if stop >= extent:
                return made
        return None

    low, high = 1, max(int(s[-1]) for s in sums)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if probe(middle) is not None else (middle + 1, high)
    made = probe(low)
    return cuts[axis] if made is None else tuple(made)
