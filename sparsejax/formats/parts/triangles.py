"""The parts of matrices on and below a diagonal, or on and above it: of a row that lists its columns in order, what stands in front, or what
stands behind.

          columns 0 1 2     k = 0, lower     k = 0, upper
row 0     5 . 6             5                5 . 6
row 1     7 8 .             7 8                . 8
"""

from __future__ import annotations

from sparsejax.formats import passes
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.parts import unlisted
from sparsejax.formats.storage import Storage


def triangle(storage: Storage, k: int, lower: bool) -> Storage | None:
    """The entries of a matrix on and below its k-th diagonal (`lower`), or on and above it, in its format. None where rows, or columns, do not list
    what they have, and for matrices over another fill than 0. O(entries and rows); memory beside the result: two numbers for every row.

    >>> import numpy as np
    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.array([[5.0, 0.0, 6.0], [7.0, 8.0, 0.0]]), Format.parse("csr", 2), 0.0)
    >>> convert.to_dense(triangle(A, 0, lower=False))
    array([[5., 0., 6.],
           [0., 8., 0.]])
    """
    if storage.ndim != 2 or storage.fill_value:
        return None
    form = storage.format
    listed = unlisted.listed_rows(form)
    if listed is None or type(form.levels[1]) is not Compressed:
        return unlisted.by_rows(lambda rows: _cut(rows, k, lower), storage)
    return _cut(storage, k, lower)


def _cut(storage: Storage, k: int, lower: bool) -> Storage:
    """`triangle` of a matrix whose segments list their coordinates in order."""
    segment, coordinate = (storage.shape[d] for d in storage.format.order)
    if storage.format.order[0] == 1:
        k, lower = -k, not lower
    pos, crd = storage.buffers[1]
    over = passes.over(len(crd))
    ends = over.below(pos, crd, min(max(k if lower else k - 1, -segment), coordinate))
    if lower:
        start, made = pos[:-1], ends
    else:
        made = pos - ends
        start = pos[1:] - made[1:]
        start += made[:-1]
    if made[-1] == len(crd):
        return storage
    columns = over.copied(start, made, [crd, storage.vals])
    return Storage(storage.format, storage.shape, storage.fill_value, ((), (made, columns[0])), columns[1])
