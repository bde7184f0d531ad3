"""What comes from outside is looked at before it comes in, in NumPy: `passes.Passes.admitted`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats.runs import crd_dtype

Array = NDArray[Any]
Admitted = tuple[Array | None, list[Array], Array, bool]


def admitted(
    pos: Array | None, columns: Sequence[Array], extents: Sequence[int], vals: Array, copies: bool
) -> Admitted | None:
    """See `passes`.

    >>> admitted(np.array([0, 2, 3]), [np.array([0, 4, 2])], [5], np.array([5.0, 6.0, 7.0]), False)
    (array([0, 2, 3]), [array([0, 4, 2])], array([5., 6., 7.]), True)
    >>> admitted(np.array([0, 2, 1]), [np.array([0, 4, 2])], [5], np.array([5.0, 6.0, 7.0]), False)
    """
    for column, extent in zip(columns, extents, strict=True):
        if len(column) and (column.min() < 0 or column.max() >= extent):
            return None
    increases = np.zeros(max(0, len(vals) - 1), bool)
    for column in reversed(columns):
        increases &= column[1:] == column[:-1]
        increases |= column[1:] > column[:-1]
    if pos is not None:
        if pos[0] or pos[-1] != len(vals) or (pos[1:] < pos[:-1]).any():
            return None
        pos = pos.astype(np.int64)
        edges = pos[1:-1]
        increases[edges[(edges > 0) & (edges < len(vals))] - 1] = True
    if copies:
        columns = [column.astype(crd_dtype(n)) for column, n in zip(columns, extents, strict=True)]
        vals = vals.copy()
        for made in (*columns, vals):
            made.flags.writeable = False
    return pos, list(columns), vals, bool(increases.all())
