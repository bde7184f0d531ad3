"""A matrix with vectors on its diagonals, in NumPy.

before:  extents 2 3, offsets 0 2, lines 5 6 and 7
after:   pos 0 2 3, crd 0 2 1, vals 5 7 6
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats.runs import before, crd_dtype

Array = NDArray[Any]


def lined(
    extents: tuple[int, int], offsets: Sequence[int], lines: Sequence[Array] | None
) -> tuple[Array, Array, Array | None]:
    """(pos, crd, vals) of the rows, with the vectors at increasing offsets: of one value, or of one for every place.

    >>> lined((2, 3), [0, 2], [np.array([5, 6]), np.array([7])])
    (array([0, 2, 3]), array([0, 2, 1], dtype=int32), array([5, 7, 6]))
    """
    rows, extent = extents
    columns = np.add.outer(np.arange(rows, dtype=crd_dtype(extent)), np.array(offsets, crd_dtype(extent)))
    inside = (columns >= 0) & (columns < extent)
    pos = before(inside.sum(axis=1))
    if lines is None:
        return pos, columns[inside], None
    slots = np.empty(columns.shape, lines[0].dtype)
    for number, (k, line) in enumerate(zip(offsets, lines, strict=True)):
        first, end = max(0, -k), min(rows, extent - k)
        if first < end:
            slots[first:end, number] = line
    return pos, columns[inside], slots[inside]
