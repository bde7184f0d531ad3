"""How near to each other coordinates lie that follow one another: from some windows of them, wherever these come from.

    windows    sorted: [3 3 4 7], [90 91 91 95]        of an extent of 1000
    new        the share of what is in a window that was not in it before: 3/4
    among      the share of the extent that a window spans: 5/1000

Rounded to powers, so that what is planned for one array serves others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats import Format

WINDOWS, WINDOW = 4, 1024
"""Windows of entries that are looked at, entries in each."""
LEAST = 1 << 15
"""Entries from which on they are looked at."""
FEWEST, NEAREST = 1 / 16, 4.0**-8
"""The smallest shares that are told from smaller ones."""


class Spread(NamedTuple):
    """Of the coordinates of entries that follow one another: which share of them is new, and among which share of the extent they lie."""

    new: float
    among: float


EVEN = Spread(1.0, 1.0)


def in_line(form: Format) -> bool:
    """Whether the segments of every level lie one behind the other, with no more than a few positions between them."""
    return all((level.compact or level.stacked) and not level.shared for level in form.levels)


def starts(count: int, window: int = WINDOW) -> list[int]:
    """Where windows of so many of `count` entries begin."""
    return [(count - window) * k // (WINDOWS - 1) for k in range(WINDOWS)]


def in_one(pos: NDArray[Any], step: int, start: int, window: int = WINDOW) -> bool:
    """Whether a window lies in one segment; `pos` counts so many positions as one."""
    first, last = np.searchsorted(pos, (start // step, (start + window - 1) // step), "right")
    return bool(first == last)


def told(seen: Sequence[NDArray[Any]], extent: int, silent: int = 0) -> Spread:
    """What windows of sorted coordinates tell, beside so many that tell nothing.

    >>> told([np.arange(1024) // 2], 2**20)
    Spread(new=0.5, among=0.000244140625)
    """
    seen = [x for x in seen if len(x)]
    windows = len(seen) + silent
    if not seen:
        return EVEN
    new = (sum(_new(x, extent) for x in seen) + silent) / windows
    among = (sum(float(x[-1]) - float(x[0]) + 1 for x in seen) / extent + silent) / windows
    return Spread(_share(new), max(NEAREST, 4.0 ** round(math.log(among, 4))) if among < 0.25 else 1.0)


def _new(window: NDArray[Any], extent: int) -> float:
    """Which share of sorted coordinates is new: of few, a window sees all wherever entries lie."""
    distinct = 1 + np.count_nonzero(window[1:] != window[:-1])  # `np.unique` takes 15 times as long as sorting
    return float(distinct) / (extent if extent <= WINDOW // 4 else len(window))


def _share(new: float) -> float:
    """Rounded to a power of the root of two: with powers of two, a graph whose degrees are alike on
    both sides is told to differ more often."""
    return max(FEWEST, min(1.0, math.exp2(round(2.0 * math.log2(new)) / 2)))
