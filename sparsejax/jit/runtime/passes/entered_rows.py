"""Entries in any order become rows that list their columns, each once: what one kernel runs.

    row 1 0 1 1    column 2 0 1 2    vals a b c d
    counted     0 1 4            where rows end; and whether all rows and columns are below their extents
    moved       0 | 2 1 2        row by row, in the order in which they came
    settled     0 | 1 2          in order, what is equal added up (a+d), from where the row before ends: pos 0 1 3

What has not been read yet lies behind what is written. A row of as many columns as a vector has, which increase already, is found out by one
comparison: entries in the order of a grid come so. Others are ranked (`ranked_segments`). Sums have the bits of `duplicates`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.formats.runs import ADDED
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen import kernel_memory
from sparsejax.jit.cost.machine import FAR
from sparsejax.jit.runtime.passes.conversion_loops import Part, Vector, fetch
from sparsejax.jit.runtime.passes.duplicates import Runs
from sparsejax.jit.runtime.passes.pass_kernels import INT64, as_kernel, empty, run, vectors
from sparsejax.jit.runtime.passes.ranked_segments import Segments, aside, longest

OUTSIDE, LONGEST, RUN = range(3)
"""What a kernel tells: whether a row or a column is outside, the length of the longest row, and of the longest run of equal columns."""


def entered(row: Array, column: Array, vals: Array, rows: int, extent: int) -> tuple[Array, Array, Array] | None:
    """(pos, crd, vals) of the entries; None where some are outside, a row is too long to be ranked, or a sum to be added up one by one."""
    width = crd_dtype(extent)
    pos, crd, sums = empty(rows + 1, INT64), empty(len(vals), width), empty(len(vals), vals.dtype)
    places, told = np.empty(rows + 1, INT64), np.zeros(3, INT64)
    room, (slots,) = aside(1, width.itemsize, (vals.itemsize,))
    kernel = _entered(row.itemsize, column.itemsize, width.itemsize, vals.dtype, len(vals) >= FAR)
    run(kernel, len(vals), rows, extent, row, column, vals, pos, crd, sums, places, told, *slots)
    del room  # until here, the kernel writes to it
    if told[OUTSIDE] or told[LONGEST] > longest(width.itemsize) or (vals.dtype.kind in "fc" and told[RUN] > ADDED):
        return None
    count = int(pos[-1])
    if 2 * count < len(vals):
        return pos, crd[:count].copy(), sums[:count].copy()
    return pos, crd[:count], sums[:count]


@as_kernel
def _entered(b: Builder, row_size: int, column_size: int, size: int, dtype: np.dtype[Any], ahead: bool) -> None:
    """Of many entries, the places of later ones are fetched `ahead`."""
    entries, rows, extent = (b.slot(k, "i64", name) for k, name in enumerate(("entries", "rows", "extent")))
    row, column, vals = vectors(b, 3, (row_size, column_size, dtype.itemsize), ("row", "column", "vals"))
    pos, crd, sums = vectors(b, 6, (8, size, dtype.itemsize), ("pos", "crd", "sums"))
    places, told, number, *kept = vectors(
        b, 9, (8, 8, 8, size, dtype.itemsize), ("places", "told", "number", "kept", "kept")
    )
    outside, most = _counted(b, entries, rows, extent, row, column, places)
    told.put(b, b.i64(OUTSIDE), outside)
    told.put(b, b.i64(LONGEST), most)
    with b.if_(b.and_(b.eq(outside, 0), b.lt(most, longest(size) + 1))):
        part, last = Part(b.i64(0), entries, rows, b.i64(0), b.i64(-1), row, places), b.sub(entries, 1)
        with b.for_(b.i64(0), entries, "p") as p:
            if ahead:
                fetch(b, part, [crd, sums], p, last)
            here = row.number(b, p)
            to = b.named("to", places.get(b, here))
            crd.put(b, to, crd.element(b, column.number(b, p)))
            sums.put(b, to, vals.get(b, p))
            places.put(b, here, b.add(to, 1))
        runs = Runs(b, dtype, crd, sums.pointer)
        begin = b.var("begin", b.i64(0))
        pos.put(b, b.i64(0), b.i64(0))
        segments = Segments((crd, sums), kept, number, entries)
        with b.for_(b.i64(0), rows, "r") as r:
            end = b.named("end", places.get(b, r))
            _settled(b, segments, runs, b.get(begin), end)
            pos.put(b, b.add(r, 1), b.get(runs.place))
            b.set(begin, end)
        told.put(b, b.i64(RUN), b.get(runs.most))


def _counted(
    b: Builder, entries: Val, rows: Val, extent: Val, row: Vector, column: Vector, places: Vector
) -> tuple[Val, Val]:
    """1 where a row or a column is outside, else 0, and the length of the longest row; `places` has where each row begins. Rows outside are counted behind
    the last one."""
    kernel_memory.clear(b, places.pointer, b.i64(0), b.add(rows, 1), 8)
    widest = b.var("widest", b.i64(0))
    with b.for_(b.i64(0), entries, "p") as p:
        here = b.named("here", row.number(b, p))
        here = b.select(b.compare("ult", here, rows), here, rows)
        places.put(b, here, b.add(places.get(b, here), 1))
        c = column.number(b, p)
        b.set(widest, b.select(b.compare("ult", b.get(widest), c), c, b.get(widest)))
    wrong = b.binary("or", b.compare("uge", b.get(widest), extent), b.ne(places.get(b, rows), 0))
    total, most = b.var("total", b.i64(0)), b.var("most", b.i64(0))
    with b.for_(b.i64(0), rows, "r") as r:
        count, before = b.named("count", places.get(b, r)), b.get(total)
        b.set(most, b.max(b.get(most), count))
        places.put(b, r, before)
        b.set(total, b.add(before, count))
    return b.convert("zext", wrong, "i64"), b.get(most)


def _settled(b: Builder, segments: Segments, runs: Runs, begin: Val, end: Val) -> None:
    """The entries of a row in order, sums in place of what is equal, behind the row before."""
    crd, sums = segments.columns
    ranked = b.var("ranked", b.i64(0))
    b.set(ranked, b.i64(0))
    count = b.named("count", b.sub(end, begin))
    runs.begin(b)
    with b.if_(b.lt(b.i64(1), count)):
        b.set(ranked, segments.order(b, begin, end))
    in_place = b.var("in_place", b.i64(0))
    b.set(in_place, b.select(b.eq(b.get(ranked), 0), count, b.i64(0)))
    with b.for_(begin, b.add(begin, b.get(in_place)), "p") as p:
        runs.add(b, crd.get(b, p), runs.value(b, sums.pointer, p))
    with b.for_(b.get(in_place), count, "k") as k:
        own = b.named("own", segments.number.number(b, k))
        runs.add(b, segments.kept[0].get(b, own), runs.value(b, segments.kept[1].pointer, own))
