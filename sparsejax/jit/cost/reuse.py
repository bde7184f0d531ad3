"""How often a row comes again before the caches have lost it, in an order that an index array gives: looked up in samples.

    order    entries sorted by one index array: by[0] <= by[1] <= ...
    touched  what another one names, entry by entry

A touch finds its row in a cache of n rows where the row was among the n touches before it (at most n rows came between). That is counted in a few
stretches of twice as many touches, of which the second half is asked. One that is lost after a neighbour was touched lately follows it in memory, as do columns
of a row that is full. Source: working sets, Denning, "The Working Set Model for Program Behavior" (1968).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparsejax.jit.cost.memory import LINE
from sparsejax.jit.cost.price_table import Machine

STRETCHES = 8
"""Samples of an order."""
LATELY = 64
"""A row follows a neighbour that was touched so many touches ago at most: about as many as a processor follows at once."""


def waits(
    touched: NDArray[np.integer],
    by: NDArray[np.integer],
    row: float,
    here: Machine,
    written: bool = False,
    ahead: bool = True,
) -> float:
    """What waiting for rows of `row` bytes costs, in nanoseconds, where entries come in the order of `by`. Rows that are `written` go
    back, too; without `ahead` those that follow others are waited for as all are. O(entries log entries)."""
    order = touched if bool((by[1:] >= by[:-1]).all()) else touched[np.argsort(by, kind="stable")]
    lines = len(order) * max(1.0, row / LINE)

    def moved(read: tuple[float, ...], wrote: tuple[float, ...]) -> list[float]:
        return [r + (w if written else 0.0) for r, w in zip(read, wrote, strict=True)]

    total = 0.0
    for size, anywhere, following in zip(
        here.caches, moved(here.line, here.write), moved(here.stream, here.fill), strict=True
    ):
        lost, after = missed(order, int(size // row))
        total += lines * (lost * anywhere + after * (following if ahead else anywhere))
    return total


def carried(by: NDArray[np.integer], size: int, here: Machine) -> float:
    """What waiting for a vector of entries of `size` bytes costs, in nanoseconds, where these are walked in the order of `by`: one after the other, or waiting
    as often as a line does not come again: what they name is asked for only then. O(entries log entries)."""
    if bool((by[1:] >= by[:-1]).all()):
        return len(by) * size / LINE * sum(here.stream)
    return waits(np.arange(len(by)) // max(1, int(LINE // size)), by, LINE, here, ahead=False)


def missed(order: NDArray[np.integer], rows: int) -> tuple[float, float]:
    """The share of touches whose row is not among the `rows` touches before: of those with no neighbour among the last ones, and of those with one, which
    are fetched ahead."""
    rows = max(1, rows)
    room = max(0, len(order) - 2 * rows)
    starts = np.linspace(0, room, min(STRETCHES, 1 + room // (2 * rows))).astype(np.int64)
    asked = anywhere = after = 0
    for start in starts.tolist():
        stretch = order[start : start + 2 * rows].astype(np.int64)
        count, half = len(stretch), min(rows, len(stretch) // 2)
        number = np.arange(count)
        ranked = np.sort(stretch * count + number)

        def since(step: int) -> NDArray[np.integer]:
            """Touches since a neighbour of each row, more than all where there was none."""
            at = np.searchsorted(ranked, (stretch[half:] + step) * count + number[half:]) - 1  # noqa: B023
            found = ranked[np.maximum(at, 0)]  # noqa: B023
            none = (at < 0) | (found // count != stretch[half:] + step)  # noqa: B023
            return np.where(none, count + rows + LATELY, number[half:] - found % count)  # noqa: B023

        far = since(0) > rows
        near = np.minimum(since(-1), since(1)) <= LATELY
        asked, anywhere, after = asked + len(far), anywhere + int((far & ~near).sum()), after + int((far & near).sum())
    return anywhere / max(1, asked), after / max(1, asked)
