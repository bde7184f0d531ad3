"""Observed facts about stored arrays: positions per level. They choose schedules, never types."""

from __future__ import annotations

import functools
import math

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
    for level, dimension in enumerate(form.order):
        extent = storage.shape[dimension]
        size *= extent
        if isinstance(form.levels[level], Dense):
            count *= extent
        else:
            count = float(len(storage.buffers[level][-1]) if form.packed else storage.counts[level])
            if level + 1 < form.ndim and form.continues(level + 1):
                distinct = size * -math.expm1(-count / size) if size else 0.0
                counts.append(distinct)
                continue
        counts.append(count)
    return tuple(counts) or (1.0,)


def _rounded(count: float) -> float:
    return 2.0 ** round(math.log2(count)) if count > 0 else 0.0
