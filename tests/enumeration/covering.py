"""Covering arrays: few rows in which every pair of values of every two factors occurs together.

Greedy, one row at a time: a row starts from a pair that is not covered yet; every other factor, in random order, takes the value
that covers most pairs with what the row holds already. Source: AETG (Cohen, Dalal, Fredman, Patton, 1997).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence

Pair = tuple[int, int, int, int]
"""Two factors, the smaller number first, and their values: (factor, value, factor, value)."""


def anything(partial: Mapping[int, int]) -> bool:
    """No constraint."""
    return True


def pairs(sizes: Sequence[int], possible: Callable[[Mapping[int, int]], bool] = anything) -> set[Pair]:
    """Every pair that some row may hold. `possible` says whether chosen values, by factor, can be completed."""
    return {
        (f, x, g, y)
        for f, g in itertools.combinations(range(len(sizes)), 2)
        for x, y in itertools.product(range(sizes[f]), range(sizes[g]))
        if possible({f: x, g: y})
    }


def covering_array(
    sizes: Sequence[int], seed: int, possible: Callable[[Mapping[int, int]], bool] = anything
) -> list[tuple[int, ...]]:
    """Rows of one value per factor; factor f has the values 0 to sizes[f] - 1.

    >>> len(covering_array([2, 2, 2], 0)) <= 6
    True
    """
    rng = random.Random(seed)
    if len(sizes) < 2:
        return [(v,) for v in range(sizes[0])] if sizes else [()]
    missing = pairs(sizes, possible)
    rows = []
    while missing:
        f, x, g, y = min(missing)
        row = {f: x, g: y}
        others = [k for k in range(len(sizes)) if k not in row]
        rng.shuffle(others)
        for factor in others:
            allowed = [v for v in range(sizes[factor]) if possible({**row, factor: v})]
            rng.shuffle(allowed)
            row[factor] = max(allowed, key=lambda v: len(missing.intersection(_with(row, factor, v))))
        made = tuple(row[k] for k in range(len(sizes)))
        missing.difference_update(pairs_of(made))
        rows.append(made)
    return rows


def pairs_of(row: Sequence[int]) -> set[Pair]:
    """The pairs that a row holds."""
    return {(f, row[f], g, row[g]) for f, g in itertools.combinations(range(len(row)), 2)}


def _with(row: Mapping[int, int], factor: int, value: int) -> list[Pair]:
    """The pairs of a row that hold `factor` with `value`."""
    return [(f, x, factor, value) if f < factor else (factor, value, f, x) for f, x in row.items()]
