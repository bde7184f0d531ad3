"""Arrays of one format one behind the other along an inner dimension, level by level.

csf, along the last axis    0: 1 3 | 2: 0    and    0: 3 | 1: 2        levels above that axis have what either has
                            0: 1 3 | 1: 2' | 2: 0                      segments that one has not are empty there
                            then segments of both, one behind the other, and what is below them likewise
coo                         two lists in one order, by the coordinates before that axis

Positions of a level that one array has in a segment follow each other in the result, and so does what is below them: nothing is listed for each entry.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsejax import config
from sparsejax.formats import passes
from sparsejax.formats.format import Format
from sparsejax.formats.parts import located
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.formats.runs import changes
from sparsejax.formats.storage import Storage

LEAST, ROUND = 1024, 8
"""Entries that two arrays have in the mean, so that this is sooner done than all entries sorted; and how many times as many for each further round of pairs
(six arrays of 20,000 entries take 0.7 to 1.1 of the time, of 100,000 0.8 to 0.9)."""

Level = tuple[Array, list[Array]] | int
"""`pos` and coordinates of a run of levels, or the extent of a dense level."""


def behind(storages: Sequence[Storage], axis: int) -> Storage | None:
    """Arrays of one format, dtype and fill, whose shapes differ along `axis` alone, one behind the other, two of them at a time. Linear in their buffers, times
    the logarithm of their number. None where levels are not dense, compressed or coordinate, for an axis that a dense level stores or the outermost
    level, and for many small arrays.

    >>> from sparsejax.formats import convert
    >>> A = convert.from_dense(np.eye(2), Format.parse("dcsr", 2), 0.0)
    >>> with config.using(choose="passes=numpy"):
    ...     convert.to_dense(behind([A, A], 1))[0]
    array([1., 0., 1., 0.])
    """
    form = storages[0].format
    place = form.order.index(axis)
    if not place or form.levels[place].full or not located.searched(form):
        return None
    least = LEAST * ROUND ** ((len(storages) - 1).bit_length() - 1)
    if sum(len(s.vals) for s in storages) < least * len(storages) and not config.forcing:
        return None
    left = list(storages)
    while len(left) > 1:
        odd = left[len(left) // 2 * 2 :]
        left = [_both(one, other, axis, place) for one, other in zip(left[::2], left[1::2], strict=False)] + odd
    return left[0]


def _both(one: Storage, other: Storage, axis: int, place: int) -> Storage:
    form, shape = one.format, list(one.shape)
    shape[axis] += other.shape[axis]
    entries = len(one.vals) + len(other.vals)
    many = passes.over(entries)
    runs, cut = _levels(form, place)
    levels = _read(one, shape, runs, cut), _read(other, shape, runs, cut)
    number = next(k for k, (first, stop) in enumerate(runs) if first <= place < stop)
    shift, last = one.shape[axis], number + 1 == len(runs)
    made: list[Level] = []
    ends = _above(many, (levels[0][:number], levels[1][:number]), (levels[0][number], levels[1][number]), made)
    lists = [_lists(level) for level in (levels[0][number], levels[1][number])]
    by = place - runs[number][0]
    if by:
        total = np.asarray(ends[0] + ends[1]) if runs[number][0] else np.array((0, entries))
        *crds, vals = many.merged((ends[0], *lists[0], one.vals), (ends[1], *lists[1], other.vals), by, shift)
        made.append((total, crds))
    elif last:
        parts = [(own, *crds, s.vals) for own, crds, s in zip(ends, lists, (one, other), strict=True)]
        total, *crds, vals = many.interleaved(parts, (0, shift))
        made.append((total, crds))
    else:
        total, *crds = many.interleaved([(own, *crds) for own, crds in zip(ends, lists, strict=True)], (0, shift))
        made.append((total, crds))
        ends = _below(many, (levels[0][number + 1 :], levels[1][number + 1 :]), ends, made)
        _, vals = many.interleaved([(ends[0], one.vals), (ends[1], other.vals)], None)
    if cut:
        _whole(many, made, number - 1)
    return Storage(form, tuple(shape), one.fill_value, _buffers(made), vals)


def _levels(form: Format, place: int) -> tuple[list[tuple[int, int]], bool]:
    """The runs of levels. One with others below it, of which `place` is not the first, becomes two: whether it did."""
    made: list[tuple[int, int]] = []
    cut = False
    for first, stop in form.runs:
        if first < place < stop < len(form.levels):
            made += [(first, place), (place, stop)]
            cut = True
        else:
            made.append((first, stop))
    return made, cut


def _read(storage: Storage, shape: Sequence[int], runs: Sequence[tuple[int, int]], cut: bool) -> list[Level]:
    """The levels of an array, with coordinates as those of one of this shape."""
    form = storage.format
    made: list[Level] = []
    for first, stop in runs:
        dims = form.order[first:stop]
        if form.levels[first].full:
            made.append(shape[dims[0]])
            continue
        columns = (level[-1] for level in storage.buffers[first:stop])
        crds = [c.astype(crd_dtype(shape[d]), copy=False) for c, d in zip(columns, dims, strict=True)]
        if cut and form.continues(first):
            assert made
            above = made.pop()
            assert isinstance(above, tuple)
            pos, lead = above
            fresh = changes(lead)
            fresh[pos[:-1][pos[:-1] < len(fresh)]] = True
            begins = np.append(fresh.nonzero()[0], len(fresh))
            made += [(begins.searchsorted(pos), [c[begins[:-1]] for c in lead]), (begins, crds)]
        else:
            made.append((storage.buffers[first][0], crds))
    return made


def _lists(level: Level) -> list[Array]:
    assert isinstance(level, tuple)
    return level[1]


def _above(
    many: passes.Passes, levels: tuple[list[Level], list[Level]], wanted: tuple[Level, Level], made: list[Level]
) -> tuple[Array, Array]:
    """The levels above some that list coordinates, as both arrays have them, and the `pos` of each below these."""
    numbers: list[Array] = []
    width = 1
    for pair in (*zip(*levels, strict=True), wanted):
        if isinstance(pair[0], int):
            made.append(pair[0])
            width *= pair[0]
            continue
        ends = [level[0] for level in pair if isinstance(level, tuple)]
        if numbers:
            ends = [_spread(many, pos, numbers.pop(0), width) for pos in ends]
        if pair[0] is wanted[0]:
            break
        lists = [_lists(level) for level in pair]
        pos, crds, *numbers = many.united((ends[0], *lists[0]), (ends[1], *lists[1]))
        width = 1
        made.append((pos, crds))
    return ends[0], ends[1]


def _spread(many: passes.Passes, pos: Array, number: Array, width: int) -> Array:
    """`pos` with the segments of so many positions above, `width` of them each, empty ones where there is none."""
    if width == 1:
        return many.take(pos, number)
    begin = number[:-1].astype(np.int64) * width
    step = number[1:] > number[:-1]
    made = np.empty(len(begin) * width + 1, pos.dtype)
    np.take(
        pos,
        np.add.outer(begin, np.arange(width)) * step[:, None] + (begin * ~step)[:, None],
        out=made[:-1].reshape(len(begin), width),
    )
    made[-1] = pos[-1]
    return made


def _below(
    many: passes.Passes, levels: tuple[list[Level], list[Level]], ends: tuple[Array, Array], made: list[Level]
) -> tuple[Array, Array]:
    """The levels below segments that stand one behind the other, and where those of each array end in what is below all levels."""
    for left, right in zip(*levels, strict=True):
        if isinstance(left, int) or isinstance(right, int):
            assert isinstance(left, int)
            ends = ends[0] * left, ends[1] * left
            made.append(left)
            continue
        (pos, crds), (pos2, crds2) = left, right
        below = many.take(pos, ends[0]), many.take(pos2, ends[1])
        parts = [(ends[0], pos[:-1], below[1][:-1]), (ends[1], pos2[:-1], below[0][1:])]
        own = many.spliced(parts, int(pos[-1]) + int(pos2[-1]))
        _, *lists = many.interleaved([(below[0], *crds), (below[1], *crds2)], None)
        made.append((own, lists))
        ends = below
    return ends


def _whole(many: passes.Passes, made: list[Level], number: int) -> None:
    """Two levels become the run that they were."""
    (pos, lead), (own, crds) = (level for level in made[number : number + 2] if isinstance(level, tuple))
    owners = many.owners(own)
    made[number : number + 2] = [(many.take(own, pos), [*(many.take(crd, owners) for crd in lead), *crds])]


def _buffers(levels: Sequence[Level]) -> tuple[tuple[Array, ...], ...]:
    made: list[tuple[Array, ...]] = []
    for level in levels:
        if isinstance(level, int):
            made.append(())
        else:
            pos, (crd, *more) = level
            made += [(pos, crd), *((column,) for column in more)]
    return tuple(made)
