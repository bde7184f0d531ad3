"""The parts of matrices on and below a diagonal, or on and above it: of a row that lists its columns in order, what stands in front, or what
stands behind.

          columns 0 1 2     k = 0, lower     k = 0, upper
row 0     5 . 6             5                5 . 6
row 1     7 8 .             7 8                . 8
"""

from __future__ import annotations

from sparsejax.formats import passes
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.parts import located, pruned, unlisted
from sparsejax.formats.storage import Storage


def triangle(storage: Storage, k: int, lower: bool) -> Storage | None:
    """The entries of a matrix, or of the last two dimensions, on and below the k-th diagonal (`lower`), or on and above it, in the same format. None where
    rows, or columns, do not list what they have, of more dimensions where rows that have something are not listed either, and over another fill than 0.
    O(entries and rows); memory beside the result: two numbers for every row.

    >>> import numpy as np
    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.array([[5.0, 0.0, 6.0], [7.0, 8.0, 0.0]]), Format.parse("csr", 2), 0.0)
    >>> convert.to_dense(triangle(A, 0, lower=False))
    array([[5., 0., 6.],
           [0., 8., 0.]])
    """
    if storage.fill_value:
        return None
    if storage.ndim != 2:
        return _inner(storage, k, lower)
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


def _inner(storage: Storage, k: int, lower: bool) -> Storage | None:
    """`triangle` of the last two dimensions, which the last two levels list."""
    form = storage.format
    if not located.searched(form) or {*form.order[-2:]} != {storage.ndim - 2, storage.ndim - 1}:
        return None
    if any(level.full for level in form.levels[-2:]):
        return None
    if form.order[-1] != storage.ndim - 1:
        k, lower = -k, not lower
    levels: list[pruned.Level] = []
    for first, stop in form.runs:
        own = storage.buffers[first:stop]
        levels.append((own[0][0], [level[-1] for level in own]) if own[0] else (None, []))
    pos, crds = levels.pop()
    assert pos is not None
    many = passes.over(len(storage.vals))
    if len(crds) > 1:
        apart = crds[-1] - crds[-2]
        inside = apart <= k if lower else apart >= k
        del apart
        pos, (*crds, vals) = many.chosen(pos, inside, [*crds, storage.vals])
        found = pruned.pruned(levels, pos)
        if found is None:
            return None
        pos = found
    else:
        ends, above = levels.pop()
        assert ends is not None
        (ends, *above), pos, crd, (vals,) = many.narrowed((ends, *above), pos, crds[0], (k, lower), [storage.vals])
        found = pruned.pruned(levels, ends)
        if found is None:
            return None
        levels.append((found, above))
        crds = [crd]
    levels.append((pos, crds))
    return Storage.of_frozen(form, storage.shape, storage.fill_value, pruned.buffers_of(levels), pruned.frozen(vals))
