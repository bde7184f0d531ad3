"""The entries of stored arrays: walks over the levels, outermost first.

A level without unused positions, below levels of the same kind, has one position per entry, in order; then positions are None
and nothing is looked up. All walks are linear in the entries (and in the words of bitmaps and the slots of hash tables).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sparsejax.formats.format import Format
from sparsejax.formats.segments import ROOT, Above, Array, Buffers


def expand(form: Format, shape: Sequence[int], buffers: Buffers) -> tuple[list[Array], Array | None]:
    """The coordinates of every entry, one array per dimension, in storage order; and its position (None: entry k is at k)."""
    columns: dict[int, Array] = {}
    position = ROOT.position
    for first, stop, parent, found, below in _walk(form, shape, buffers, form.ndim):
        if first:  # what is known above is repeated
            columns = {d: np.take(column, parent) for d, column in columns.items()}
        columns.update(zip(form.order[first:stop], found, strict=True))
        position = below.position
    return [columns[d] for d in range(form.ndim)], position


def counts(form: Format, shape: Sequence[int], buffers: Buffers) -> list[int]:
    """The number of entries of every level; entries of the last level are not expanded."""
    found: list[int] = []
    above = ROOT
    for first, stop in form.runs[-1:]:
        for start, end, _, _, below in _walk(form, shape, buffers, first):
            found += [below.entries] * (end - start)
            above = below
        count = form.levels[first].count(buffers[first:stop], above, _extents(form, shape, first, stop))
        found += [count] * (stop - first)
    return found


def used(form: Format, shape: Sequence[int], buffers: Buffers) -> Array | None:
    """The positions that hold entries, each once; None when no position is unused."""
    if all(level.compact for level in form.levels):
        return None
    above = ROOT
    first, stop = form.runs[-1]
    for *_, below in _walk(form, shape, buffers, first):
        above = below
    return form.levels[first].used(buffers[first:stop], above, _extents(form, shape, first, stop))


def _walk(
    form: Format, shape: Sequence[int], buffers: Buffers, end: int
) -> Iterator[tuple[int, int, Array, list[Array], Above]]:
    """The runs of the levels before `end`: first and stop, parents and coordinates of its entries, and what they are to the next."""
    above = ROOT
    for first, stop in form.runs:
        if stop > end:
            return
        here, extents, level = buffers[first:stop], _extents(form, shape, first, stop), form.levels[first]
        parent, found, position = level.expand(here, above, extents)
        above = Above(position, level.positions(here, above.positions, extents), found[-1])
        yield first, stop, parent, found, above


def _extents(form: Format, shape: Sequence[int], first: int, stop: int) -> list[int]:
    return [shape[d] for d in form.order[first:stop]]
