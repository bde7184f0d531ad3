"""Entries are put between those of segments, in order: what one kernel runs.

    pos 0 2 3    crd 1 4 2    places (0, 1) (0, 3) (1, 2)    values a b c
    searched     at 0 1 2     here 1 0 1                     one is missing
    woven        pos 0 3 4    crd 1 3 4 2                    values a b . c with "replace", else those that were there and b; at 0 1 3

Each place is searched for in its segment; where none is missing, that is all. Else what lies between two places is copied in one piece, and the
ends of segments are written on the way.
"""

from __future__ import annotations

import numpy as np

from sparsejax.formats.levels.walk import lower_bound
from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen.kernel_memory import moved
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, as_kernel, run, vectors


def woven(
    pos: Array, crd: Array, vals: Array, row: Array, column: Array, new: Array, replace: bool
) -> tuple[Array, Array, Array, Array, Array]:
    """See `formats.passes`."""
    count = len(row)
    row, column, new = np.ascontiguousarray(row), np.ascontiguousarray(column), np.ascontiguousarray(new)
    at, here, missing = np.empty(count, INT64), np.empty(count, bool), np.empty(1, INT64)
    ends = np.empty(len(pos), INT64)
    grown, values = np.empty(len(crd) + count, crd.dtype), np.empty(len(crd) + count, vals.dtype)
    kernel = _woven(crd.itemsize, vals.itemsize, row.itemsize, column.itemsize, replace)
    given = pos, crd, vals, row, column, new, at, here, missing, ends, grown, values
    run(kernel, count, len(pos) - 1, len(crd), *given)
    more = int(missing[0])
    if not more:
        return pos, crd, vals, at, here
    if more < count:
        grown, values = grown[: len(crd) + more], values[: len(crd) + more]
    return ends, grown, values, at, here


@as_kernel
def _woven(b: Builder, size: int, vals_size: int, row_size: int, column_size: int, replace: bool) -> None:
    count, rows, entries = (b.slot(k, "i64", name) for k, name in enumerate(("count", "rows", "entries")))
    names = "pos", "crd", "vals", "row", "column", "new", "at", "here", "missing", "ends", "grown", "values"
    sizes = 8, size, vals_size, row_size, column_size, vals_size, 8, 1, 8, 8, size, vals_size
    pos, crd, vals, row, column, new, at, here, missing, ends, grown, values = vectors(b, 3, sizes, names)
    absent = b.var("absent", b.i64(0))
    with b.for_(b.i64(0), count, "k") as k:
        r, c = b.named("r", row.number(b, k)), b.named("c", column.number(b, k))
        stop = b.named("stop", pos.get(b, b.add(r, 1)))
        low = b.named("low", lower_bound(b, lambda p, c=c: b.lt(crd.number(b, p), c), pos.get(b, r), stop))  # type: ignore[misc]
        at.put(b, k, low)
        found = b.var("found", b.i64(0))
        b.set(found, b.i64(0))
        with b.if_(b.lt(low, stop)):
            b.set(found, b.select(b.eq(crd.number(b, low), c), b.i64(1), b.i64(0)))
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
                for source, target in ((crd, grown), (vals, values)):
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
                grown.put(b, to, grown.element(b, column.number(b, k)))
                values.put(b, to, new.get(b, k))
                b.increment(more)

            def replaced(k: Val = k, to: Val = to, place: Val = place) -> None:
                if replace:
                    grown.put(b, to, crd.get(b, place))
                    values.put(b, to, new.get(b, k))
                    b.set(begin, b.add(place, 1))

            b.if_else(b.eq(here.number(b, k), 0), added, replaced)
        kept(entries)
        closed(b.add(rows, 1))


def _copy(b: Builder, source: Vector, target: Vector, start: Val, to: Val, length: Val) -> None:
    size = source.size
    given = moved(b, target.pointer, b.mul(to, size)), moved(b, source.pointer, b.mul(start, size))
    b.call("memcpy", "ptr", [*given, b.mul(length, size)])
