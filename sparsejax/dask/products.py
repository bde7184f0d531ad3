"""What each row of a product costs, so that shards take as long as each other and not only store as much.

    A @ B, both sparse    row i:  MADE * entries of the result + APART * parts of a row of 64 columns that have one, if they are spread evenly
                                  + MULTIPLIED * multiplications + ENTERED * entries of A + STARTED
    A @ X, X dense        row i:  LANE * entries of A * columns + WRITTEN * columns

    multiplications       the entries of those rows of B that row i of A names: linear in the entries of A
    entries of a result   counted in rows at equal steps of the multiplications; a row between has as many for each multiplication as the nearest

Rows of equal multiplications take unlike time: those of the hubs of a graph meet in the same columns, and what is made, not what is added up, takes the time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparsejax.dask.cuts import weights_along
from sparsejax.dask.prices import LANE
from sparsejax.formats import convert
from sparsejax.formats.storage import Storage

MADE, APART, MULTIPLIED, ENTERED, STARTED, WRITTEN = 5.8, 6.0, 0.2, 90.0, 100.0, 1.0
"""Nanoseconds: of 22 parts, with as many multiplications each, of soc-slashdot0902, email-Enron, NotreDame_www, Wiki-Vote and ca-CondMat, times the whole."""
WIDTH = 64
"""Columns of a part of a row: what is made is looked for in so many at once (`codegen/workspaces/bitmap.py`)."""
SAMPLED, LARGEST = 256, 1 << 22
"""Rows that are counted, and their multiplications at most."""

Floats = NDArray[np.float64]


def row_costs(A: Storage, B: Storage) -> Floats:
    """The expected nanoseconds of every row of `A @ B`. O(entries), and the multiplications of some rows."""
    (rows, names), (n, _) = convert.to_coords(A)[0], A.shape
    entries = np.bincount(rows, minlength=n).astype(np.float64)
    if B.format.is_dense:
        columns = B.shape[1] if B.ndim > 1 else 1
        return LANE * columns * entries + WRITTEN * columns
    lengths = weights_along(B, 0)
    work = np.bincount(rows, lengths[names], minlength=n).astype(np.float64)
    made = work * _made(rows, names, work, B) if B.ndim > 1 else np.minimum(work, 1.0)
    parts = max(1.0, (B.shape[1] if B.ndim > 1 else 1) / WIDTH)
    spread = parts * -np.expm1(-made / parts)
    return MADE * made + APART * spread + MULTIPLIED * work + ENTERED * entries + STARTED


def _made(rows: NDArray[np.int64], names: NDArray[np.int64], work: Floats, B: Storage) -> Floats:
    """Entries of the result for each multiplication, of every row."""
    ends = np.cumsum(work)
    total = ends[-1] if len(ends) else 0.0
    if not total:
        return np.ones(len(work))
    points = (np.arange(SAMPLED) + 0.5) * (total / SAMPLED)
    drawn = np.unique(np.searchsorted(ends, points, "right"))
    drawn = drawn[:: max(1, -(-int(work[drawn].sum()) // LARGEST))]
    order = np.argsort(rows, kind="stable")
    names, starts = names[order], np.searchsorted(rows[order], np.arange(len(work) + 1))
    inner, columns = convert.to_coords(B)[0]
    order = np.argsort(inner, kind="stable")
    columns, begins = columns[order], np.searchsorted(inner[order], np.arange(B.shape[0] + 1))
    seen, shares = np.zeros(B.shape[1], bool), np.empty(len(drawn))
    for k, row in enumerate(drawn):
        own = names[starts[row] : starts[row + 1]]
        lo, hi = begins[own], begins[own + 1]
        at = np.arange(int((hi - lo).sum())) + np.repeat(lo - np.cumsum(hi - lo) + hi - lo, hi - lo)
        met = columns[at]
        seen[met] = True
        shares[k] = np.count_nonzero(seen) / len(met)
        seen[met] = False
    centres = ends - work / 2
    made: Floats = shares[np.searchsorted((centres[drawn[1:]] + centres[drawn[:-1]]) / 2, centres)]
    return made
