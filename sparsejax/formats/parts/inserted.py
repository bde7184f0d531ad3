"""Entries put between those of an array, level by level, outermost first.

csf   pos 0 1, crd 2      new at (0, 5), (2, 4): the first level gets 0      pos 0 2, crd 0 2
      pos 0 1, crd 3      below it an empty segment, then two entries        pos 0 1 3, crd 5 3 4

In each level, places that share their coordinates so far are one; what is there tells by its position where to search in the next level, and what is not gets
an empty segment there. Levels that list the coordinates of several dimensions side by side are searched by all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from sparsejax.formats import passes
from sparsejax.formats.format import Format
from sparsejax.formats.parts import located
from sparsejax.formats.passes import Array
from sparsejax.formats.runs import changes
from sparsejax.formats.storage import Storage


@functools.lru_cache(maxsize=1024)
def lists(form: Format) -> bool:
    """Whether entries can be put into arrays of a format: levels list coordinates in order, each once, below dense ones if any."""
    dense = [level.full for level in form.levels]
    return located.searched(form) and not form.is_dense and form.ndim > 0 and dense == sorted(dense, reverse=True)


def merged(storage: Storage, columns: Sequence[Array], vals: Array, add: bool) -> Storage:
    """Values written or added at places, one vector of coordinates for every dimension, in the order of the format and each once. Linear in the buffers, plus
    a search per place and level.

    >>> from sparsejax.formats import convert
    >>> A = convert.from_dense(np.array([[[0.0, 5.0]], [[0.0, 0.0]]]), Format.parse("csf", 3), 0.0)
    >>> convert.to_dense(merged(A, [np.array([0, 1]), np.array([0, 0]), np.array([1, 0])], np.array([6.0, 7.0]), True)).tolist()
    [[[0.0, 11.0]], [[7.0, 0.0]]]
    """
    form, old, fill = storage.format, storage.vals, storage.fill_value
    parent: Array = np.zeros(len(vals), np.int8)
    buffers: list[tuple[Array, ...]] = []
    pos: Array | None = None
    for first, stop in form.runs:
        dims = form.order[first:stop]
        if form.levels[first].full:
            parent = parent * np.int64(storage.shape[dims[0]]) + columns[dims[0]] if first else columns[dims[0]]
            buffers.append(())
            continue
        pos = storage.buffers[first][0] if pos is None else pos
        crds: Sequence[Array] = [level[-1] for level in storage.buffers[first:stop]]
        wanted = [columns[d] for d in dims]
        if stop < len(form.levels):
            fresh = changes([parent, *wanted])
            number, (parent, *wanted) = fresh.cumsum() - 1, (column[fresh] for column in (parent, *wanted))
            ends, crds, parent, below = _opened(pos, crds, parent, wanted, storage.buffers[stop][0])
            parent = parent[number]
        else:
            new = (fill + vals).astype(vals.dtype, copy=False) if add and fill != 0 else vals
            many = passes.over(len(crds[0]))
            ends, crds, made, at, here = many.woven(pos, crds, old, [parent, *wanted], new, not add)
        buffers += [(ends, crds[0]), *((crd,) for crd in crds[1:])]
        if stop < len(form.levels):
            pos = below
    if made is old:
        made = old.copy()
        made[at] = old[at] + vals if add else vals
        return storage.with_values(made, fill)
    if add and here.any():
        there = at[here]
        made[there] += vals[here]
    return Storage(form, storage.shape, fill, tuple(buffers), made)


def _opened(
    pos: Array, crds: Sequence[Array], parent: Array, wanted: Sequence[Array], below: Array
) -> tuple[Array, Sequence[Array], Array, Array]:
    """`pos` and coordinates of a level with all that are wanted, where these are, and `pos` of the level below, whose segments of new ones are empty."""
    nothing = np.zeros(len(parent), below.dtype)
    many = passes.over(len(crds[0]))
    ends, crds, begins, at, here = many.woven(pos, crds, below[:-1], [parent, *wanted], nothing, False)
    if here.all():
        return ends, crds, at, below
    made = np.empty(len(begins) + 1, below.dtype)
    made[:-1] = begins
    new = at[~here]
    made[new] = below[new - np.arange(len(new))]
    made[-1] = below[-1]
    return ends, crds, at, made
