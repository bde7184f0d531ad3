"""Observed facts about stored arrays: positions per level. They choose schedules, never types."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from sparsejax.formats import Dense, Format
from sparsejax.formats.storage import Storage


def positions(storage: Storage) -> tuple[float, ...]:
    """The number of positions of every level, rounded to a power of two so that schedules are reused.

    Where positions are unused, or hold several entries, entries count.
    Inside a coordinate run, where positions repeat coordinates, the expected number of distinct ones stands in.
    """
    known: tuple[float, ...] | None = storage.cache.get("positions")
    if known is None:
        dense = storage.format.is_dense
        known = _of_dense(storage.shape, storage.format) if dense else _all_rounded(storage)
        storage.cache["positions"] = known
    return known


@functools.lru_cache(maxsize=4096)
def _of_dense(shape: tuple[int, ...], format: Format) -> tuple[float, ...]:
    """A storage without data tells as much."""
    return _all_rounded(Storage(format, shape, 0, ((),) * len(shape), np.empty(0)))


def _all_rounded(storage: Storage) -> tuple[float, ...]:
    return tuple(map(_rounded, exact_positions(storage)))


def exact_positions(storage: Storage) -> tuple[float, ...]:
    """The number of positions of every level, not rounded: for reports and forecasts."""
    counts = []
    count = 1.0
    size = 1.0
    form = storage.format
    for level, extent in enumerate(form.level_extents(storage.shape)):
        size *= extent
        if isinstance(form.levels[level], Dense):
            count *= extent
        else:
            count = float(len(storage.buffers[level][-1]) if form.packed else storage.counts[level])
            if level + 1 < len(form.levels) and form.continues(level + 1):
                distinct = size * -math.expm1(-count / size) if size else 0.0
                counts.append(distinct)
                continue
        counts.append(count)
    return tuple(counts) or (1.0,)


def expected(form: Format, shape: Sequence[int], entries: float) -> tuple[float, ...]:
    """What is to be expected of `entries` that are spread evenly over an array of `shape`, stored as `form`.

    >>> expected(Format.parse("csr", 2), (4, 8), 7.0)
    (4.0, 8.0)
    """
    counts = []
    count = size = 1.0
    for level, extent in zip(form.levels, form.level_extents(shape), strict=True):
        size *= extent
        if isinstance(level, Dense):
            count *= extent
        else:
            count = size * -math.expm1(-entries / size) if size else 0.0
        counts.append(_rounded(count))
    return tuple(counts) or (1.0,)


def _rounded(count: float) -> float:
    return 2.0 ** round(math.log2(count)) if count > 0 else 0.0
