"""Entries are put between those of segments, in order: what one kernel runs.

    pos 0 2 3    crd 1 4 2    places (0, 1) (0, 3) (1, 2)    values a b c
    searched     at 0 1 2     here 1 0 1                     one is missing
    woven        pos 0 3 4    crd 1 3 4 2                    values a b . c with "replace", else those that were there and b; at 0 1 3

Each place is searched for in its segment, by one coordinate or by several, the first one first, from where the place before it was found; where none
is missing, that is all. Else what lies between two places is copied in one piece, and the ends of segments are written on the way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from sparsejax.formats.levels.walk import lower_bound
from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen.kernel_memory import moved
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, as_kernel, empty, run, vectors


def woven(
    pos: Array, crds: Sequence[Array], vals: Array, places: Sequence[Array], new: Array, replace: bool
) -> tuple[Array, list[Array], Array, Array, Array]:
    """See `formats.passes`."""
    row, *columns = places
    count, entries = len(row), len(vals)
    crds, columns = [*map(np.ascontiguousarray, crds)], [*map(np.ascontiguousarray, columns)]
    row, new, vals = np.ascontiguousarray(row), np.ascontiguousarray(new), np.ascontiguousarray(vals)
    at, here, missing = np.empty(count, INT64), np.empty(count, bool), np.empty(1, INT64)
    ends, room = empty(len(pos), INT64), empty if replace else np.empty  # of what stays, values are still added to
    values = room(entries + count, vals.dtype)
    grown = [empty(entries + count, crd.dtype) for crd in crds]
    sizes = tuple([(crd.itemsize, column.itemsize) for crd, column in zip(crds, columns, strict=True)])
    kernel = _woven(sizes, vals.itemsize, row.itemsize, replace)
    given = [a for three in zip(crds, columns, grown, strict=True) for a in three]
    run(kernel, count, len(pos) - 1, entries, pos, vals, row, new, at, here, missing, ends, values, *given)
    more = int(missing[0])
    if not more:
        return pos, crds, vals, at, here
    if more < count:
        grown, values = [column[: entries + more] for column in grown], values[: entries + more]
    return ends, grown, values, at, here


@as_kernel
def _woven(b: Builder, of: tuple[tuple[int, int], ...], vals_size: int, row_size: int, replace: bool) -> None:
    count, rows, entries = (b.slot(k, "i64", name) for k, name in enumerate(("count", "rows", "entries")))
    names = "pos", "vals", "row", "new", "at", "here", "missing", "ends", "values"
    sizes = 8, vals_size, row_size, vals_size, 8, 1, 8, 8, vals_size
    pos, vals, row, new, at, here, missing, ends, values = vectors(b, 3, sizes, names)
    lists = [
        vectors(b, 12 + 3 * k, (size, wanted, size), ("crd", "column", "grown")) for k, (size, wanted) in enumerate(of)
    ]
    absent, near = b.var("absent", b.i64(0)), b.var("near", b.i64(0))
    with b.for_(b.i64(0), count, "k") as k:
        r, wanted = b.named("r", row.number(b, k)), [b.named("c", column.number(b, k)) for _, column, _ in lists]
        stop = b.named("stop", pos.get(b, b.add(r, 1)))
        from_here = b.max(pos.get(b, r), b.get(near))
        low = b.named("low", _from(b, lambda p, own=wanted: _before(b, lists, p, own), from_here, stop))  # type: ignore[misc]
        b.set(near, low)
        at.put(b, k, low)
        found = b.var("found", b.i64(0))
        b.set(found, b.i64(0))
        with b.if_(b.lt(low, stop)):
            same = [b.eq(crd.number(b, low), c) for (crd, _, _), c in zip(lists, wanted, strict=True)]
            b.set(found, b.select(functools.reduce(b.and_, same), b.i64(1), b.i64(0)))
        here.put(b, k, here.element(b, b.get(found)))
        b.increment(absent, b.sub(b.i64(1), b.get(found)))
    missing.put(b, b.i64(0), b.get(absent))
    with b.if_(b.lt(b.i64(0), b.get(absent))):
        begin, more, segment = (b.var(name, b.i64(0)) for name in ("begin", "more", "segment"))

        def kept(stop: Val) -> None:
            """Copy what was there, up to `stop`."""
            start = b.named("start", b.get(begin))
            with b.if_(b.lt(start, stop)):
                length, to = b.named("length", b.sub(stop, start)), b.named("to", b.add(start, b.get(more)))
                for source, target in (*((crd, grown) for crd, _, grown in lists), (vals, values)):
                    _copy(b, source, target, start, to, length)
                b.set(begin, stop)

        def closed(stop: Val) -> None:
            """Write where the segments begin, up to `stop`."""
            with b.for_(b.get(segment), stop, "r") as r:
                ends.put(b, r, b.add(pos.get(b, r), b.get(more)))
            b.set(segment, b.max(b.get(segment), stop))

        with b.for_(b.i64(0), count, "k") as k:
            place = b.named("place", at.get(b, k))
            kept(place)
            closed(b.add(row.number(b, k), 1))
            to = b.named("to", b.add(place, b.get(more)))
            at.put(b, k, to)

            def added(k: Val = k, to: Val = to) -> None:
                for _, column, grown in lists:
                    grown.put(b, to, grown.element(b, column.number(b, k)))
                values.put(b, to, new.get(b, k))
                b.increment(more)

            def replaced(k: Val = k, to: Val = to, place: Val = place) -> None:
                if replace:
                    for crd, _, grown in lists:
                        grown.put(b, to, crd.get(b, place))
                    values.put(b, to, new.get(b, k))
                    b.set(begin, b.add(place, 1))

            b.if_else(b.eq(here.number(b, k), 0), added, replaced)
        kept(entries)
        closed(b.add(rows, 1))


def _from(b: Builder, below: Callable[[Val], Val], lo: Val, hi: Val) -> Val:
    """The first place from `lo` on, at most `hi`, that is not `below`, where these come first: steps twice as long each, then by halving. O(log) of how far
    it is."""
    low, step, more = b.var("low", lo), b.var("step", b.i64(1)), b.var("more", b.i64(1))
    for var, value in ((low, lo), (step, b.i64(1)), (more, b.i64(1))):
        b.set(var, value)
    with b.while_(lambda: b.ne(b.get(more), b.i64(0))):
        b.set(more, b.i64(0))
        p = b.named("p", b.sub(b.add(b.get(low), b.get(step)), 1))
        with b.if_(b.lt(p, hi)), b.if_(below(p)):
            b.set(low, b.add(p, 1))
            b.set(step, b.mul(b.get(step), 2))
            b.set(more, b.i64(1))
    found: Val = lower_bound(b, below, b.get(low), b.min(b.sub(b.add(b.get(low), b.get(step)), 1), hi))
    return found


def _before(b: Builder, lists: Sequence[Sequence[Vector]], p: Val, wanted: Sequence[Val]) -> Val:
    """Whether an entry comes before a place, by the first coordinate in which they differ."""
    made: Val | None = None
    for (crd, _, _), c in zip(reversed(lists), reversed(wanted), strict=True):
        own = b.named("own", crd.number(b, p))
        below = b.lt(own, c)
        made = below if made is None else b.binary("or", below, b.and_(b.eq(own, c), made))
    assert made is not None
    return made


def _copy(b: Builder, source: Vector, target: Vector, start: Val, to: Val, length: Val) -> None:
    size = source.size
    given = moved(b, target.pointer, b.mul(to, size)), moved(b, source.pointer, b.mul(start, size))
    b.call("memcpy", "ptr", [*given, b.mul(length, size)])
