"""`named_segments` of few entries, in one kernel: the list is turned around, entries are counted, numbered and put in order.

There is room for twice as many entries as lists name on the average; where more are named, the kernel tells how many, and runs once more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.jit.backend.builder import Builder
from sparsejax.jit.runtime.passes import segment_loops
from sparsejax.jit.runtime.passes.pass_kernels import INT64, address, as_kernel, run, vectors
from sparsejax.jit.runtime.passes.ranked_segments import Segments, aside, longest

SPARE = 64
"""Entries that there is room for beyond twice as many as are expected; four times as many may stay behind a result."""
TOTAL, LONGEST = range(2)
"""What a kernel tells: how many entries there are, and how many of them in the longest segment."""


def named(
    pos: Array, crd: Array, listed: Array, extent: int, columns: Sequence[Array]
) -> tuple[Array, Array, list[Array]] | None:
    """See `formats.passes`; of one column. None where a segment is too long to be ranked."""
    (vals,) = columns
    rows, count, entries = len(pos) - 1, len(listed), int(pos[-1]) - int(pos[0])
    width = crd_dtype(count)
    made, told, table = np.empty(rows + 1, INT64), np.empty(2, INT64), np.empty(extent + 1 + count, np.int32)
    aside_room, (slots,) = aside(1, width.itemsize, (vals.itemsize,))
    kernel = _named(crd.itemsize, listed.itemsize, width.itemsize, vals.itemsize)
    ends = address(table)
    given = pos, crd, vals, listed, ends, ends + 4 * (extent + 1), told, made
    room = min(entries * count, 2 * entries * count // max(1, extent) + SPARE)
    while True:
        out, moved = np.empty(room, width), np.empty(room, vals.dtype)
        run(kernel, rows, extent, count, room, *given, out, moved, *slots)
        found, most = told.tolist()
        if most > longest(width.itemsize):
            return None
        if found <= room:
            break
        room = found
    del aside_room  # until here, the kernel writes to it
    if found + 4 * SPARE < room > 2 * found:
        return made, out[:found].copy(), [moved[:found].copy()]
    return made, out[:found], [moved[:found]]


@as_kernel
def _named(b: Builder, size: int, listed_size: int, out_size: int, vals_size: int) -> None:
    rows, extent, count, room = (b.slot(k, "i64", name) for k, name in enumerate(("rows", "extent", "count", "room")))
    names = "pos", "crd", "vals", "listed", "ends", "order", "told", "made", "out", "moved", "number", "kept", "kept"
    sizes = 8, size, vals_size, listed_size, 4, 4, 8, 8, out_size, vals_size, 8, out_size, vals_size
    pos, crd, vals, listed, ends, order, told, made, out, moved, number, *kept = vectors(b, 4, sizes, names)
    segment_loops.numbered(b, count, extent, listed, ends, order)
    total, most, begin = b.var("total", b.i64(0)), b.var("most", b.i64(0)), b.var("begin", b.i64(0))
    made.put(b, b.i64(0), b.i64(0))
    with b.for_(b.i64(0), rows, "r") as r:
        b.set(begin, b.get(total))
        with b.for_(pos.get(b, r), pos.get(b, b.add(r, 1)), "p") as p:
            c = b.named("c", crd.number(b, p))
            b.increment(total, b.sub(ends.number(b, b.add(c, 1)), ends.number(b, c)))
        made.put(b, b.add(r, 1), b.get(total))
        b.set(most, b.max(b.get(most), b.sub(b.get(total), b.get(begin))))
    told.put(b, b.i64(TOTAL), b.get(total))
    told.put(b, b.i64(LONGEST), b.get(most))
    fits = b.and_(b.lt(b.get(total), b.add(room, 1)), b.lt(b.get(most), longest(out_size) + 1))
    at, segments = b.var("at", b.i64(0)), Segments((out, moved), kept, number, room)
    with b.if_(fits):
        with b.for_(pos.get(b, b.i64(0)), pos.get(b, rows), "p") as p:
            c = b.named("c", crd.number(b, p))
            with b.for_(ends.number(b, c), ends.number(b, b.add(c, 1)), "q") as q:
                out.put(b, b.get(at), out.element(b, order.number(b, q)))
                moved.put(b, b.get(at), vals.get(b, p))
                b.increment(at)
        with b.for_(b.i64(0), rows, "r") as r:
            segments.tidy(b, made.get(b, r), made.get(b, b.add(r, 1)))
