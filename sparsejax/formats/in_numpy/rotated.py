"""Segments whose coordinates begin elsewhere, and entries several times, in NumPy.

before:  pos 0 2 3, crd 0 2 1, vals 5 6 7, coordinate 1 of 3 as the first
after:   pos 0 2 3, crd 1 2 0, vals 6 5 7
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def rotated(pos: Array, crd: Array, vals: Array, cut: int, extent: int) -> tuple[Array, Array]:
    """See `passes`."""
    before = crd < cut
    made = crd - crd.dtype.type(cut)
    made[before] += crd.dtype.type(extent)
    key = np.arange(len(pos) - 1).repeat(pos[1:] - pos[:-1])
    key *= 2
    key += before
    order = key.argsort(kind="stable")
    return made[order], vals[order]


def repeated(column: Array, count: int, counted: np.dtype[Any] | None) -> Array:
    """See `passes`."""
    if counted is None:
        return column.repeat(count)
    made = np.empty((len(column), count), counted)
    np.multiply(column[:, None], count, out=made[:, :1], dtype=counted, casting="unsafe")
    np.add(made[:, :1], np.arange(1, count, dtype=counted), out=made[:, 1:])
    return made.reshape(-1)
