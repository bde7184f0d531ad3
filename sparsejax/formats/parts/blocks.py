"""Lists of all coordinates one behind the other along an inner axis, some entries at a time: entries whose first coordinates are in one range are put in
order by themselves, and written to where they stay.

    (0, 1) (2, 0) (5, 3)  and  (0, 0) (5, 1)     coordinates 0 to 2: (0, 1) (0, 4) (2, 0), then 3 to 5: (5, 3) (5, 5)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsejax.formats import convert, ordering
from sparsejax.formats.parts import unlisted
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.formats.storage import Storage

BLOCK = 1 << 16
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
    made = [np.empty(total, kind) for kind in kinds]
    longest = max((columns[0] for columns in lists), key=len)
    cuts = np.unique(longest[BLOCK::BLOCK])
    ends = [np.concatenate(([0], columns[0].searchsorted(cuts), [len(columns[0])])) for columns in lists]
    at = 0
    for k in range(len(cuts) + 1):
        held: list[Array] = []
        for number, kind in enumerate(kinds):
            pieces = [own[number][cut[k] : cut[k + 1]] for own, cut in zip(lists, ends, strict=True)]
            held.append(np.concatenate(pieces, dtype=kind, casting="unsafe"))
        place, shift = 0, 0
        for storage, cut in zip(storages, ends, strict=True):
            held[along][place : place + int(cut[k + 1] - cut[k])] += shift
            place, shift = place + int(cut[k + 1] - cut[k]), shift + storage.shape[axis]
        low, high = int(cuts[k - 1]) if k else 0, int(cuts[k]) if k < len(cuts) else extents[0]
        held[0] -= kinds[0].type(low)
        ordering.arrange(held, (high - low, *extents[1:]), places)
        held[0] = np.add(held[0], low, dtype=kinds[0], casting="unsafe")
        for target, column in zip(made, held, strict=True):
            target[at : at + place] = column
        at += place
    *crds, vals = made
    ends_of_all = np.array([0, total])
    return Storage(form, tuple(shape), fill, ((ends_of_all, crds[0]), *((crd,) for crd in crds[1:])), vals)
