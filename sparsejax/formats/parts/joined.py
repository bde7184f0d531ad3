"""Arrays of one format one behind the other along a dimension.

    csr, rows       pos of all, one behind the other, over one crd
    csr, columns    pos added up; in every row, the segments of all, one behind the other
    coo, rows       crd of all, one behind the other, the rows of each shifted
    nothing around  pos goes on where it ends (`surrounded`)

Below the level of that dimension, positions of one array follow those of the one before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from sparsejax.formats import passes
from sparsejax.formats.parts import located, unlisted
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.formats.storage import Storage


def joined(storages: Sequence[Storage], axis: int) -> Storage | None:
    """Arrays of one format, dtype and fill, whose shapes differ along `axis` alone, one behind the other. Linear in their buffers. None where
    levels are not dense, compressed or coordinate, or entries would have to be ordered.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.eye(2), Format.parse("csr", 2), 0.0)
    >>> joined([A, A], 1).buffers[1]
    (array([0, 2, 4]), array([0, 2, 1, 3], dtype=int32))
    """
    form = storages[0].format
    place = form.order.index(axis)
    level = form.levels[place]
    if not located.searched(form):
        return None
    if place and not level.full and all(lv.full for lv in form.levels[:place]):
        return _interleaved(storages, axis) if place + 1 == len(form.levels) else None
    return None if place else _behind(storages, axis)


def _behind(storages: Sequence[Storage], axis: int) -> Storage:
    """Along the outermost dimension."""
    first = storages[0]
    form, shape = first.format, _shape(storages, axis)
    starts = [0, *accumulate(s.shape[axis] for s in storages)]
    buffers: list[tuple[Array, ...]] = []
    entries = sum(len(s.vals) for s in storages)
    many = passes.over(entries)
    for k, (level, d) in enumerate(zip(form.levels, form.order, strict=True)):
        if level.full:
            buffers.append(())
            continue
        crds = [s.buffers[k][-1] for s in storages]
        crd = _strung(many, storages, crds, starts[:-1] if k == 0 else None, crd_dtype(shape[d]))
        if form.continues(k):
            buffers.append((crd,))
        elif k == 0:
            buffers.append((np.array([0, len(crd)]), crd))
        else:
            ends = [0, *accumulate(map(len, crds))]
            pos = [s.buffers[k][0][:-1] for s in storages]
            pos.append(np.zeros(1, np.int64))
            buffers.append((many.strung(pos, ends, np.dtype(np.int64)), crd))
    vals = _strung(many, storages, [s.vals for s in storages], None, first.dtype)
    return Storage(form, shape, first.fill_value, tuple(buffers), vals)


def _interleaved(storages: Sequence[Storage], axis: int) -> Storage:
    """Along the innermost dimension, listed below dense levels."""
    first = storages[0]
    shape = _shape(storages, axis)
    starts = [0, *accumulate(s.shape[axis] for s in storages)]
    kind = crd_dtype(shape[axis])
    alone = _alone(storages)
    if alone is not None:
        source, shift = storages[alone], starts[alone]
        pos, crd = source.buffers[-1]
        crd = np.add(crd, shift, dtype=kind, casting="unsafe") if shift else crd.astype(kind, copy=False)
        return Storage(first.format, shape, first.fill_value, (*first.buffers[:-1], (pos, crd)), source.vals)
    segments = [(s.buffers[-1][0], s.buffers[-1][1].astype(kind, copy=False), s.vals) for s in storages]
    entries = sum(len(s.vals) for s in storages)
    pos, crd, vals = passes.over(max(entries, len(segments[0][0]))).interleaved(segments, starts[:-1])
    return Storage(first.format, shape, first.fill_value, (*first.buffers[:-1], (pos, crd)), vals)


def surrounded(storage: Storage, widths: Sequence[tuple[int, int]]) -> Storage | None:
    """The array with as many coordinates before and after those of each dimension, nothing stored there. O(rows of an outermost dense level), and
    linear in the coordinates of dimensions that get some before; other buffers are shared. None where a dense level below others grows.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.eye(2), Format.parse("csr", 2), 0.0)
    >>> surrounded(A, [(1, 0), (0, 5)]).buffers[1]
    (array([0, 0, 1, 2]), array([0, 1], dtype=int32))
    """
    form = storage.format
    grown = [widths[d] for d in form.order]
    if form.is_dense or not located.searched(form) or "transient" in storage.cache:
        return None
    if any(k and level.full and any(grown[k]) for k, level in enumerate(form.levels)):
        return None
    shape = tuple([n + before + after for n, (before, after) in zip(storage.shape, widths, strict=True)])
    buffers = list(storage.buffers)
    if form.levels[0].full and any(grown[0]):
        listed = next(k for k, level in enumerate(form.levels) if not level.full)
        size = math.prod([storage.shape[d] for d in form.order[1:listed]])
        (pos, crd), (before, after) = buffers[listed], grown[0]
        made = np.empty(len(pos) + size * (before + after), pos.dtype)
        made[: size * before] = 0
        made[size * before : size * before + len(pos)] = pos
        made[size * before + len(pos) :] = pos[-1]
        buffers[listed] = made, crd
    for k, (level, d) in enumerate(zip(form.levels, form.order, strict=True)):
        if not level.full and any(grown[k]):
            *above, crd = buffers[k]
            before, kind = grown[k][0], crd_dtype(shape[d])
            crd = np.add(crd, before, dtype=kind, casting="unsafe") if before else crd.astype(kind, copy=False)
            buffers[k] = (*above, crd)
    return Storage(form, shape, storage.fill_value, tuple(buffers), storage.vals)


def gridded(rows: Sequence[Sequence[Storage]]) -> Storage | None:
    """Matrices of one format, dtype and fill, in rows of equal heights, as one matrix: every entry is written once, to where it stays. None where
    their format is not one whose rows are counted and whose columns are listed in order, or shapes do not fit.

    >>> from sparsejax.formats import Format, convert
    >>> A = convert.from_dense(np.eye(2), Format.parse("csr", 2), 0.0)
    >>> gridded([[A, A], [A, A]]).buffers[1]
    (array([0, 2, 4, 6, 8]), array([0, 2, 1, 3, 0, 2, 1, 3], dtype=int32))
    """
    first = rows[0][0]
    widths = {sum(s.shape[1] for s in row) for row in rows}
    if unlisted.listed_rows(first.format) != (0, 1) or len(widths) > 1:
        return None
    if any(s.shape[0] != row[0].shape[0] for row in rows for s in row):
        return None
    shape = sum(row[0].shape[0] for row in rows), widths.pop()
    kind, entries = crd_dtype(shape[1]), sum(len(s.vals) for row in rows for s in row)
    many = passes.over(max(entries, shape[0]))
    pos, crd, vals = np.zeros(shape[0] + 1, np.int64), np.empty(entries, kind), np.empty(entries, first.dtype)
    at = begin = 0
    for row in rows:
        segments = [(s.buffers[1][0], s.buffers[1][1].astype(kind, copy=False), s.vals) for s in row]
        starts = [0, *accumulate(s.shape[1] for s in row)]
        count, height = sum(len(s.vals) for s in row), row[0].shape[0]
        out = crd[begin : begin + count], vals[begin : begin + count]
        own, _, _ = many.interleaved(segments, starts[:-1], out)
        np.add(own[1:], begin, out=pos[at + 1 : at + height + 1])
        at, begin = at + height, begin + count
    return Storage(first.format, shape, first.fill_value, ((), (pos, crd)), vals)


def _alone(storages: Sequence[Storage]) -> int | None:
    """The number of the only array with entries, if its memory may be shared: the others make it larger, and nothing else."""
    full = [k for k, s in enumerate(storages) if len(s.vals)]
    return full[0] if len(full) == 1 and "transient" not in storages[full[0]].cache else None


def _strung(
    many: passes.Passes,
    storages: Sequence[Storage],
    columns: Sequence[Array],
    shifts: Sequence[int] | None,
    kind: np.dtype[Any],
) -> Array:
    """Columns of arrays, one behind the other, each shifted; that of the only one with entries as it is."""
    alone = _alone(storages)
    if alone is not None and not (shifts and shifts[alone]) and columns[alone].dtype == kind:
        return columns[alone]
    return many.strung(columns, shifts, kind)


def _shape(storages: Sequence[Storage], axis: int) -> tuple[int, ...]:
    shape = list(storages[0].shape)
    shape[axis] = sum(s.shape[axis] for s in storages)
    return tuple(shape)
