"""Every pair of entries of two matrices, in NumPy.

one      rows 0 and 1 with entries 0: 5, 1: 6    other    a row with entries 0: 7, 1: 8
result   row 0: 0: 5, 7    1: 5, 8               row 1: 2: 6, 7    3: 6, 8
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats.runs import crd_dtype

Array = NDArray[Any]


def crossed(
    one: tuple[Array, Array, Array],
    other: tuple[Array, Array, Array],
    width: int,
    extents: tuple[int, int],
    multiplied: bool,
) -> tuple[Array, ...]:
    """See `passes`."""
    (pos, crd, vals), (pos2, crd2, vals2) = one, other
    count, count2 = np.diff(pos), np.diff(pos2)
    m, lengths = len(count2), np.outer(count, count2).ravel()
    row = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    i, j = row // max(1, m), row % max(1, m)
    p, q = pos[i] + place // np.maximum(1, count2[j]), pos2[j] + place % np.maximum(1, count2[j])
    column = crd[p].astype(np.int64) * width + crd2[q]
    left, right = vals[p], vals2[q]
    with np.errstate(all="ignore"):
        values = (left * right,) if multiplied else (left, right)
    return row.astype(crd_dtype(extents[0])), column.astype(crd_dtype(extents[1])), *values
