"""Lists of all coordinates one behind the other along an inner axis, some entries at a time: entries whose first coordinates are in one range are put in
order by themselves, and written to where they stay.

    (0, 1) (2, 0) (5, 3)  and  (0, 0) (5, 1)     coordinates 0 to 2: (0, 1) (0, 4) (2, 0), then 3 to 5: (5, 3) (5, 5)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from sparsejax.formats import convert, ordering, passes
from sparsejax.formats.parts import unlisted
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.formats.storage import Storage

BLOCK = 1 << 17
"""Entries of the array with most of them that are put in order at a time, or those of one first coordinate: they stay in the caches."""


def behind(storages: Sequence[Storage], axis: int) -> Storage | None:
    """Arrays of one format, dtype and fill, whose shapes differ along `axis` alone, one behind the other. Linear in the entries. None where they do not list
    all coordinates in order, and along the first of these.

    >>> from sparsejax.formats import Format
    >>> A = convert.from_dense(np.eye(2), Format.parse("coo", 2), 0.0)
    >>> convert.to_dense(behind([A, A], 1))[0]
    array([1., 0., 1., 0.])
    """
    first = storages[0]
    form, fill = first.format, first.fill_value
    if unlisted.rows_format(form) is None or form.order[0] == axis:
        return None
    places = convert.levels_to_sort(form, form, axis)
    shape = list(first.shape)
    shape[axis] = sum(s.shape[axis] for s in storages)
    if places is None:
        return None
    lists = [[*(level[-1] for level in s.buffers), s.vals] for s in storages]
    total, along = sum(len(s.vals) for s in storages), form.order.index(axis)
    extents = form.level_extents(tuple(shape))
    kinds = [*map(crd_dtype, extents), first.dtype]
    many = passes.over(total)
    made, written = zip(*[many.room(total, kind) for kind in kinds], strict=True)
    shifts = [0, *accumulate(s.shape[axis] for s in storages[:-1])]
    longest = max((columns[0] for columns in lists), key=len)
    cuts = np.unique(longest[BLOCK::BLOCK])
    ends = [np.concatenate(([0], columns[0].searchsorted(cuts), [len(columns[0])])) for columns in lists]
    at = 0
    for k in range(len(cuts) + 1):
        parts = [[column[cut[k] : cut[k + 1]] for column in columns] for columns, cut in zip(lists, ends, strict=True)]
        count = sum(len(part[0]) for part in parts)
        low, high = int(cuts[k - 1]) if k else 0, int(cuts[k]) if k < len(cuts) else extents[0]
        target = [column[at : at + count] for column in written]
        if along == 1 and high - low <= max(passes.MANY, 2 * count):
            _side_by_side(parts, shifts, range(low, high), target)
        else:
            _in_order(parts, shifts, along, range(low, high), (high - low, *extents[1:]), places, target)
        at += count
    *crds, vals = made
    ends_of_all = np.array([0, total])
    return Storage(form, tuple(shape), fill, ((ends_of_all, crds[0]), *((crd,) for crd in crds[1:])), vals)


def _side_by_side(parts: Sequence[list[Array]], shifts: Sequence[int], rows: range, target: Sequence[Array]) -> None:
    """Write what stands in some rows, those of every part behind those of the one before, as lists are that go on along their second coordinate."""
    (row, *made), most = target, max(len(part[0]) for part in parts)
    segments: list[tuple[Array, ...]] = []
    for listed, *columns in parts:
        pos = passes.over(max(most, len(rows))).offsets(listed, len(rows), 0, np.int64, rows.start)
        segments.append((pos, *(own.astype(to.dtype, copy=False) for own, to in zip(columns, made, strict=True))))
    many = passes.over(max(len(row), len(rows)))
    pos, *_ = many.interleaved(segments, shifts, made)
    np.add(many.owners(pos), rows.start, out=row, dtype=row.dtype, casting="unsafe")


def _in_order(
    parts: Sequence[list[Array]],
    shifts: Sequence[int],
    along: int,
    rows: range,
    extents: tuple[int, ...],
    places: int,
    target: Sequence[Array],
) -> None:
    """Write what stands in some rows, put in order by as many columns."""
    held = [
        np.concatenate(pieces, dtype=to.dtype, casting="unsafe") for *pieces, to in zip(*parts, target, strict=True)
    ]
    place = 0
    for (own, *_), shift in zip(parts, shifts, strict=True):
        held[along][place : place + len(own)] += shift
        place += len(own)
    held[0] -= held[0].dtype.type(rows.start)
    ordering.arrange(held, extents, places)
    np.add(held[0], rows.start, out=target[0], dtype=target[0].dtype, casting="unsafe")
    for to, column in zip(target[1:], held[1:], strict=True):
        to[:] = column
