"""Runs of equal neighbours in columns of sorted entries, and what they add up to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ADDED, PAIRWISE = 64, 8
"""Entries at one place up to which all but the first are added up one after the other; numbers up to which NumPy does."""


def changes(columns: Sequence[Array]) -> NDArray[np.bool_]:
    """Whether each entry differs from the one before it in some column (the first one does)."""
    fresh = np.ones(len(columns[0]), bool)
    rest = fresh[1:]
    for k, column in enumerate(columns):
        step = column[1:] != column[:-1]
        np.copyto(rest, step) if k == 0 else np.logical_or(rest, step, out=rest)
    return fresh


def added(vals: Array, starts: Array) -> Array:
    """The sums ("or" of bools) of runs of `vals`, which begin at `starts`: in a run of up to `ADDED`, all but the first one after the other, and these to
    the first; in a longer one pairwise, as NumPy does.

    >>> added(np.array([1.0, 2.0, 3.0]), np.array([0, 2]))
    array([3., 3.])
    """
    add = np.logical_or if vals.dtype == np.bool_ else np.add
    made: Array = add.reduceat(vals, starts).astype(vals.dtype, copy=False)
    if vals.dtype.kind in "fc":
        counts = np.diff(starts, append=len(vals))
        runs = np.flatnonzero((counts > PAIRWISE // (1 + (vals.dtype.kind == "c"))) & (counts <= ADDED))
        if len(runs):
            counts = counts[runs] - 1
            owners, nothing = np.arange(len(runs)).repeat(counts), np.negative(np.zeros(len(runs), vals.dtype))
            places = np.arange(len(owners)) + (starts[runs] + 1 - np.append(0, counts[:-1].cumsum())).repeat(counts)
            np.add.at(nothing, owners, vals[places])
            made[runs] = vals[starts[runs]] + nothing
    return made
