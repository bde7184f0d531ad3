"""Values of an array where another one of its format stores entries: a walk of both, side by side, in every level that lists coordinates.

csr   pos 0 1 2, crd 4 2, vals a b   at pos 0 2 3, crd 0 4 3     0 a 0

Of levels above the last, it is found which of the positions of `like` are those of `x`; segments of `x` that are elsewhere are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sparsejax.formats import passes
from sparsejax.formats.parts import located
from sparsejax.formats.passes import Array
from sparsejax.formats.runs import before
from sparsejax.formats.storage import Storage


def carried(x: Storage, like: Storage) -> Array | None:
    """For every position of `like` the value of `x` at its coordinates, 0 where it has none. Both have one shape and format. None where levels are
    not dense, compressed or coordinate, in order, and where `x` has entries in a segment that `like` has not. O(positions of both).

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 7.0]]), Format.parse("csr", 2), 0.0)
    >>> carried(convert.from_dense(np.diag([0.0, 8.0]), A.format, 0.0), A)
    array([0., 0., 8.])
    """
    form, shape = x.format, x.shape
    if not located.searched(form) or any(math.prod(shape[d] for d in form.order[a:b]) >= 2**63 for a, b in form.runs):
        return None
    inside: Array | None = None  # whether the positions of `like` are positions of `x`; None for all
    for first, stop in form.runs:
        extents = [shape[d] for d in form.order[first:stop]]
        if not like.buffers[first]:
            inside = None if inside is None else inside.repeat(extents[0])
            continue
        (pos, *_), (to_pos, *_) = x.buffers[first], like.buffers[first]
        if inside is not None:
            if np.count_nonzero(inside) != len(pos) - 1:
                return None
            pos = pos[before(inside)]
        crd, to_crd = (_numbers([b[-1] for b in s.buffers[first:stop]], extents) for s in (x, like))
        last = stop == len(form.levels)
        vals = x.vals if last else np.ones(len(crd), bool)
        made = passes.over(len(to_crd)).carried(pos, crd, vals, to_pos, to_crd)
        if last:
            return made
        inside = made
    if inside is None:
        return x.vals
    if np.count_nonzero(inside) != len(x.vals):
        return None
    made = np.zeros(len(inside), x.vals.dtype)
    made[inside] = x.vals
    return made


def _numbers(columns: Sequence[Array], extents: Sequence[int]) -> Array:
    """The coordinates of a level, or the numbers of those of several in row-major order."""
    made = columns[0]
    for column, extent in zip(columns[1:], extents[1:], strict=True):
        made = made * np.int64(extent) + column
    return made
