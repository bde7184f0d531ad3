"""How often a row comes again before the caches have lost it, in an order that an index array gives: looked up in samples.

    order    entries sorted by one index array: by[0] <= by[1] <= ...
    touched  what another one names, entry by entry

A touch finds its row in a cache of n rows where the row was among the n touches before it (at most n rows came between). That is counted in a few
stretches of twice as many touches, of which the second half is asked. Source: working sets, Denning, "The Working Set Model for Program Behavior" (1968).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparsejax.jit.cost.memory import LINE
from sparsejax.jit.cost.price_table import Machine

STRETCHES = 8
"""Samples of an order."""


def waits(
    touched: NDArray[np.integer], by: NDArray[np.integer], row: float, here: Machine, written: bool = False
) -> float:
    """What waiting for rows of `row` bytes costs, in nanoseconds, where entries come in the order of `by`. Rows that are `written` go
    back, too. O(entries log entries)."""
    order = touched if bool((by[1:] >= by[:-1]).all()) else touched[np.argsort(by, kind="stable")]
    lines = len(order) * max(1.0, row / LINE)
    moved = [read + (wrote if written else 0.0) for read, wrote in zip(here.line, here.write, strict=True)]
    return sum(lines * missed(order, int(size // row)) * line for size, line in zip(here.caches, moved, strict=True))


def missed(order: NDArray[np.integer], rows: int) -> float:
    """The share of touches whose row is not among the `rows` touches before."""
    rows = max(1, rows)
    room = max(0, len(order) - 2 * rows)
    starts = np.linspace(0, room, min(STRETCHES, 1 + room // (2 * rows))).astype(np.int64)
    asked = lost = 0
    for start in starts.tolist():
        stretch = order[start : start + 2 * rows]
        place = np.argsort(stretch, kind="stable")
        ranked = stretch[place]
        before = np.full(len(stretch), -rows - 1)
        same = ranked[1:] == ranked[:-1]
        before[place[1:][same]] = place[:-1][same]
        half = min(rows, len(stretch) // 2)
        far = np.arange(half, len(stretch)) - before[half:] > rows
        asked, lost = asked + len(far), lost + int(far.sum())
    return lost / max(1, asked)
