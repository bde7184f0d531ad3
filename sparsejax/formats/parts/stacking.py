"""Stacks: arrays of one type as the slices of an array of one more dimension, the first, which a dense level stores.

    slices of shape (n, m)  d c           crd0, crd1, …
    their stack             d d c         pos of all, one behind the other, over one crd

Types of slices and stacks follow from each other's types alone. Levels besides dense, compressed and coordinate ones become
compressed, so that a slice is a part of every buffer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats import convert, selection
from sparsejax.formats.format import Format
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.coordinate import Coordinate
from sparsejax.formats.levels.dense import Dense
from sparsejax.formats.levels.level import Level
from sparsejax.formats.storage import Storage, dense_template


def _plain(levels: Sequence[Level]) -> list[Level]:
    """Levels whose segments lie one behind the other."""
    return [level if isinstance(level, Dense | Coordinate) else Compressed() for level in levels]


def stacked(form: Format) -> Format:
    """The format of a stack of arrays in `form`.

    >>> stacked(Format.parse("csc", 2))
    Format('(d,d,c)@(0,2,1)')
    """
    return Format([Dense(), *_plain(form.levels)], (0, *(d + 1 for d in form.order)), (1, *form.blocks))


def slices(form: Format) -> Format:
    """The format of the slices, along the first dimension, of an array in `form`: that of `A[0]` (`selection.without`).

    >>> slices(Format.parse("csr", 2)), slices(Format.parse("csc", 2)), slices(Format.parse("ell", 2))
    (Format('csf'), Format('coo'), Format('csf'))
    """
    if form.is_dense:
        return Format([Dense()] * (form.ndim - 1), [d - 1 for d in form.order if d])
    made = selection.without(form, (0,))
    return Format(_plain(made.levels), made.order, made.blocks)


def stack(parts: Sequence[Storage], form: Format, shape: tuple[int, ...], fill: Any, dtype: Any) -> Storage:
    """The stack of `parts`, all of `shape`, dtype and fill, in the format `stacked(form)`. O(stored entries)."""
    whole, full = stacked(form), (len(parts), *shape)
    inner = Format(whole.levels[1:], form.order, form.blocks)
    parts = [convert.convert(p, inner) for p in parts]
    count = [1] * len(parts)
    buffers: list[tuple[NDArray[Any], ...]] = [()]
    for k, (level, extent) in enumerate(zip(inner.levels, inner.level_extents(shape), strict=True)):
        if level.full:
            buffers.append(())
            count = [n * extent for n in count]
            continue
        own = [p.buffers[k] for p in parts]
        crd = _joined([b[-1] for b in own], convert.crd_dtype(extent))
        if inner.continues(k):
            buffers.append((crd,))
            continue
        starts = np.cumsum([0, *(len(b[-1]) for b in own)])
        edges = [b[0][:-1] + start for b, start in zip(own, starts[:-1], strict=True)]
        buffers.append((_joined([*edges, starts[-1:]], np.dtype(np.int64)), crd))
        count = [len(b[-1]) for b in own]
    vals = _joined([p.vals for p in parts], np.dtype(dtype))
    return Storage(whole, full, fill, tuple(buffers), vals)


def _joined(arrays: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.zeros(0, dtype)


class Slicer:
    """The slices of a stack, over views of its buffers, but for positions: O(1) where they are dense, else O(positions)."""

    def __init__(self, whole: Storage) -> None:
        self.whole = whole
        form = whole.format
        self.format = Format(form.levels[1:], tuple(d - 1 for d in form.order[1:]), form.blocks[1:])
        self.extents = form.level_extents(whole.shape)[1:]
        self.template = dense_template(self.format, whole.shape[1:], whole.fill_value) if form.is_dense else None

    def at(self, k: int) -> Storage:
        """Slice `k`."""
        whole, first, last = self.whole, k, k + 1
        if self.template is not None:
            size = math.prod(self.extents)
            return Storage.dense(self.template, whole.vals[k * size : (k + 1) * size], {})
        buffers: list[tuple[NDArray[Any], ...]] = []
        for n, extent in enumerate(self.extents):
            own = whole.buffers[n + 1]
            if self.format.levels[n].full:
                buffers.append(())
                first, last = first * extent, last * extent
            elif self.format.continues(n):
                buffers.append((own[0][first:last],))
            else:
                pos = own[0][first : last + 1]
                first, last = int(pos[0]), int(pos[-1])
                buffers.append((pos - first, own[1][first:last]))
        return Storage(self.format, whole.shape[1:], whole.fill_value, tuple(buffers), whole.vals[first:last])
