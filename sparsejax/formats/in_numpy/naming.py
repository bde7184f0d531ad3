"""The entries of segments whose coordinates a list names, in NumPy.

before:  pos = 0 2, crd = 0 2, the list 2 0 2
after:   pos = 0 3, crd = 0 1 2: coordinate 2 at places 0 and 2 of the list, 0 at place 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats.runs import before, crd_dtype

Array = NDArray[Any]


def named(
    pos: Array, crd: Array, places: Sequence[Array], columns: Sequence[Array]
) -> tuple[Array, Array, list[Array]]:
    """(pos, crd, columns) of those that a list names, whose `places` are numbered: see `passes.Passes.named`."""
    ends, order = places
    first, end = int(pos[0]), int(pos[-1])
    crd = crd[first:end]
    begin = ends[crd]
    counts = ends[crd + 1] - begin
    total = before(counts)
    made = total[pos - first]
    number = np.arange(len(crd)).repeat(counts)
    number += first
    place = np.arange(len(number)) + (begin - total[:-1]).repeat(counts)
    new = order[place]
    extent = len(order)
    key = np.arange(len(pos) - 1).repeat(made[1:] - made[:-1]) * extent + new
    sort = key.argsort(kind="stable")
    number = number[sort]
    return made, new[sort].astype(crd_dtype(extent), copy=False), [column[number] for column in columns]
