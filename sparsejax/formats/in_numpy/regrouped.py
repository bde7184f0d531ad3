"""The same places in row-major order under other extents, in NumPy.

before:  coordinates 0 2 and 1 0 under extents 3 2
after:   coordinates 0 1 and 1 1 under extents 2 3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats.runs import crd_dtype

Array = NDArray[Any]


def regrouped(columns: Sequence[Array], old: Sequence[int], new: Sequence[int]) -> list[Array]:
    """Coordinates under extents `new`: see `passes.Passes.regrouped`."""
    flat = columns[0].astype(np.int64)
    for column, extent in zip(columns[1:], old[1:], strict=True):
        flat *= extent
        flat += column
    made = []
    for extent in reversed(new[1:]):
        above = flat // max(1, extent)
        made.append((flat - above * extent).astype(crd_dtype(extent), copy=False))
        flat = above
    return [flat.astype(crd_dtype(new[0]), copy=False), *reversed(made)]
