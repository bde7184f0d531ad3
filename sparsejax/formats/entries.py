"""The entries of stored arrays: walks over the levels, outermost first.

A level without unused positions, below levels of the same kind, has one position per entry, in order; then positions are None
and nothing is looked up. All walks are linear in the entries (and in the words of bitmaps and the slots of hash tables).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsejax.formats import passes
from sparsejax.formats.format import Format
from sparsejax.formats.levels.segments import ROOT, Above, Array, Buffers

_walked: Callable[[Any], tuple[list[Array], Array] | None] | None = None


def use(walked: Callable[[Any], tuple[list[Array], Array] | None]) -> None:
    """Find coordinates and values of storages by `walked`, where it does so."""
    global _walked
    _walked = walked


def walks(storage: Any) -> tuple[list[Array], Array] | None:
    """What was registered by `use` finds of a storage whose coordinates are not all listed as they are; else None."""
    return None if _walked is None or listed(storage.format) >= 0 else _walked(storage)


def expand(
    form: Format, shape: Sequence[int], buffers: Buffers, within: Sequence[range] | None = None
) -> tuple[list[Array], Array | None]:
    """The coordinates of every entry, one array per dimension, in storage order; and its position (None: entry k is at k).

    With a range of coordinates per dimension, the entries `within` these alone: linear in the entries of the outermost level and
    in those below coordinates that are inside.
    """
    lowest = listed(form) if within is None else -1
    if lowest >= 0:
        pos, *_ = buffers[lowest]
        found = [level[-1] for level in buffers[lowest:]]
        if lowest:
            found.insert(0, passes.over(max(len(pos), len(found[0]))).owners(pos))
        return [found[k] for k in _places(form)], None
    columns: list[Array] = []
    position, counted = ROOT.position, False
    for run in walk(form, shape, buffers, len(form.levels), within):
        if (
            run.first
        ):  # what is known above is repeated; in a dense outermost level, the coordinate of an entry is its number
            many = passes.over(len(run.parent))
            columns = (
                [np.ascontiguousarray(run.parent)] if counted else [many.take(column, run.parent) for column in columns]
            )
        counted = not run.first and run.stop == 1 and form.levels[0].full and not run.dropped and within is None
        columns += run.found
        position = run.below.position
    return form.join(columns, shape), position


@functools.lru_cache(maxsize=1024)
def listed(form: Format) -> int:
    """Where the only run of levels that list coordinates begins, at the root or below one dense level; -1 in other formats."""
    first, stop = form.runs[-1] if form.levels else (0, 0)
    if form.blocked or first > 1 or not form.levels or stop < len(form.levels):
        return -1
    above, below = form.levels[:first], form.levels[first]
    return first if below.listed and below.compact and all(level.full for level in above) else -1


@functools.lru_cache(maxsize=1024)
def _places(form: Format) -> tuple[int, ...]:
    """The level of every dimension."""
    return tuple(form.order.index(d) for d in range(form.ndim))


def counts(form: Format, shape: Sequence[int], buffers: Buffers) -> list[int]:
    """The number of entries of every level; those of the last level are only expanded where its blocks stick out of the shape."""
    found: list[int] = []
    above = ROOT
    for first, stop in form.runs[-1:]:
        whole = _sticks_out(form, shape, first, stop)
        for run in walk(form, shape, buffers, stop if whole else first):
            found += [run.below.entries] * (run.stop - run.first)
            above = run.below
        if not whole:
            extents = form.level_extents(shape)[first:stop]
            found += [form.levels[first].count(buffers[first:stop], above, extents)] * (stop - first)
    return found


def used(form: Format, shape: Sequence[int], buffers: Buffers) -> Array | None:
    """The positions that hold entries, each once; None when no position is unused."""
    if all(level.compact for level in form.levels) and not form.pads(shape):
        return None
    above = ROOT
    first, stop = form.runs[-1]
    whole = _sticks_out(form, shape, first, stop) and not form.levels[first].shared
    for run in walk(form, shape, buffers, stop if whole else first):
        above = run.below
    if whole:
        return above.position
    return form.levels[first].used(buffers[first:stop], above, form.level_extents(shape)[first:stop])


class Run(NamedTuple):
    """The entries of the levels from `first` to `stop`: the entry above that each is below, its coordinate at every level, and
    what they are to the next run. `dropped` entries were outside the shape."""

    first: int
    stop: int
    parent: Array
    found: list[Array]
    below: Above
    dropped: int


def walk(
    form: Format, shape: Sequence[int], buffers: Buffers, end: int, within: Sequence[range] | None = None
) -> Iterator[Run]:
    """The runs of the levels before `end`, without what lies outside the shape, or outside the ranges `within`."""
    above = ROOT
    extents = form.level_extents(shape)
    outer: dict[int, Array] = {}
    for first, stop in form.runs:
        if stop > end:
            return
        here, level = buffers[first:stop], form.levels[first]
        parent, found, position = level.expand(here, above, extents[first:stop])
        outer = {d: np.take(column, parent) for d, column in outer.items()}
        inside: Array | None = None
        for number in range(first, stop):
            d, column, size = form.order[number], found[number - first], form.blocks[form.order[number]]
            wanted = None if within is None or len(within[d]) == shape[d] else within[d]
            last, rest = divmod(shape[d], size)
            if size > 1 and not form.is_inner(number):
                if rest or wanted is not None:
                    outer[d] = column
                continue
            fits: Array | None = None
            if size > 1 and d in outer:
                block = outer.pop(d)
                fits = (block < last) | (column < rest) if rest else None
                column = block.astype(np.int64) * size + column
            if wanted is not None:
                chosen = _inside(column, wanted)
                fits = chosen if fits is None else fits & chosen
            if fits is not None:
                inside = fits if inside is None else inside & fits
        dropped = 0 if inside is None else len(inside) - int(np.count_nonzero(inside))
        if inside is not None and dropped:
            kept = np.flatnonzero(inside)
            parent, found, position = (
                parent[kept],
                [c[kept] for c in found],
                kept if position is None else position[kept],
            )
            outer = {d: column[kept] for d, column in outer.items()}
        above = Above(position, level.positions(here, above.positions, extents[first:stop]), found[-1])
        yield Run(first, stop, parent, found, above, dropped)


def _inside(column: Array, wanted: range) -> Array:
    """Which coordinates are in a range."""
    if not wanted:
        return np.zeros(len(column), bool)
    ends = wanted[0], wanted[-1]
    found = (column >= min(ends)) & (column <= max(ends))
    return found if abs(wanted.step) == 1 else found & ((column - wanted.start) % wanted.step == 0)


def _sticks_out(form: Format, shape: Sequence[int], first: int, stop: int) -> bool:
    """Whether a level of the run lies inside blocks that stick out of the shape."""
    return any(shape[form.order[lv]] % form.blocks[form.order[lv]] and form.is_inner(lv) for lv in range(first, stop))
