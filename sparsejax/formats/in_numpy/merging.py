"""Segments of two arrays put in one order, and parts of segments, in NumPy.

united    0 3 | 1  and  3 4 | 1      0 3 4 | 1, and how many entries of each come before
merged    the same with every entry  0 3 3 4 | 1 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats.runs import before, changes, crd_dtype

Array = NDArray[Any]


def _owners(pos: Array) -> Array:
    return np.arange(len(pos) - 1).repeat(pos[1:] - pos[:-1])


def united(one: Sequence[Array], other: Sequence[Array]) -> tuple[Array, list[Array], Array, Array]:
    """See `joining_passes`."""
    columns = [
        np.concatenate([_owners(one[0]), _owners(other[0])]),
        *map(np.concatenate, zip(one[1:], other[1:], strict=True)),
    ]
    order = np.lexsort(columns[::-1])
    columns = [column[order] for column in columns]
    starts = changes(columns).nonzero()[0]
    row, *crds = [column[starts] for column in columns]
    count = len(one[1])
    number = np.append(before(order < count)[starts], count)
    others = np.append(starts, len(order)) - number
    pos = before(np.bincount(row, minlength=len(one[0]) - 1))
    kinds = crd_dtype(count + 1), crd_dtype(len(other[1]) + 1)
    return pos, crds, number.astype(kinds[0]), others.astype(kinds[1])


def merged(one: Sequence[Array], other: Sequence[Array], by: int, shift: int) -> list[Array]:
    """See `joining_passes`."""
    keys = [np.concatenate([_owners(one[0]), _owners(other[0])])]
    keys += map(np.concatenate, zip(one[1 : by + 1], other[1 : by + 1], strict=True))
    order = np.lexsort(keys[::-1])
    made = []
    for k, (left, right) in enumerate(zip(one[1:], other[1:], strict=True)):
        made.append(np.concatenate([left, right + right.dtype.type(shift) if k == by else right])[order])
    return made


def spliced(parts: Sequence[tuple[Array, Array, Array]], end: int) -> Array:
    """See `joining_passes`."""
    order = np.concatenate([_owners(pos) for pos, _, _ in parts]).argsort(kind="stable")
    column = np.concatenate([column + shift.repeat(pos[1:] - pos[:-1]) for pos, column, shift in parts])
    return np.append(column[order], end)
