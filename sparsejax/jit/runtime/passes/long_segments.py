"""Long segments are put in order by the digits of their coordinates, the lowest first: what one kernel runs.

    crd 7 2 9 5    in binary, by one digit at a time: 2 | 7 9 5, then 9 5 | 2 7, then 9 2 | 5 7, then 2 5 7 | 9

Digits have `BITS` bits, and there are as many as the largest coordinate of the segment has. Entries are counted by a digit, and moved to and fro between
the segment and as much memory beside it; all of that stays in a near cache, unless the segment is longer. Those in order already are found out first.

Source: Knuth, "The Art of Computer Programming", volume 3, section 5.2.5 (distribution by the least significant digit first).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen import kernel_memory
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, address, as_kernel, run_parts, vectors

BITS = 8
"""Of a digit: as many counts as a segment that is not ranked has entries."""


def ordered(pos: Array, crd: Array, vals: Array, limit: int, most: int, parts: Sequence[tuple[int, int]]) -> None:
    """The entries of segments of more than `limit`, `most` at most, in order of their coordinates, stably."""
    room = [(np.empty(most, crd.dtype), np.empty(most, vals.dtype), np.empty(1 << BITS, INT64)) for _ in parts]
    given = limit, *map(address, (pos, crd, vals))
    kernel = _ordered(crd.itemsize, vals.itemsize)
    run_parts(kernel, [(*part, *given, *map(address, own)) for part, own in zip(parts, room, strict=True)])


@as_kernel
def _ordered(b: Builder, size: int, vals_size: int) -> None:
    first, end, limit = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "limit")))
    names = "pos", "crd", "vals", "other", "moved", "counts"
    pos, crd, vals, other, moved, counts = vectors(b, 3, (8, size, vals_size, size, vals_size, 8), names)
    most, falls, before = b.var("most", b.i64(0)), b.var("falls", b.const("i1", 0)), b.var("before", b.i64(0))
    with b.for_(first, end, "r") as r:
        begin = b.named("begin", pos.get(b, r))
        count = b.named("count", b.sub(pos.get(b, b.add(r, 1)), begin))
        with b.if_(b.lt(limit, count)):
            own, values = (
                Vector(kernel_memory.moved(b, column.pointer, b.mul(begin, column.size)), column.size)
                for column in (crd, vals)
            )
            b.set(most, b.i64(0))
            b.set(before, b.i64(0))
            b.set(falls, b.const("i1", 0))
            with b.for_(b.i64(0), count, "k") as k:
                c = b.named("c", own.number(b, k))
                b.set(falls, b.binary("or", b.get(falls), b.lt(c, b.get(before))))
                b.set(most, b.max(b.get(most), c))
                b.set(before, c)
            with b.if_(b.get(falls)):
                _by_digits(b, count, b.get(most), (own, values), (other, moved), counts)


def _by_digits(
    b: Builder, count: Val, most: Val, columns: tuple[Vector, Vector], others: tuple[Vector, Vector], counts: Vector
) -> None:
    """Coordinates up to `most`, and values with them, in order, in place; `others` and `counts` are room for as many."""
    shift, away = b.var("shift", b.i64(0)), b.var("away", b.const("i1", 0))
    b.set(shift, b.i64(0))
    b.set(away, b.const("i1", 0))
    total = b.var("total", b.i64(0))
    # behind the eighth digit nothing is left, and a shift by 64 is none
    with b.while_(lambda: b.ne(b.binary("lshr", most, b.min(b.get(shift), b.i64(63))), 0)):
        by, there = b.named("by", b.get(shift)), b.get(away)
        crd, vals = (
            Vector(b.select(there, o.pointer, c.pointer), c.size) for c, o in zip(columns, others, strict=True)
        )
        out, moved = (
            Vector(b.select(there, c.pointer, o.pointer), c.size) for c, o in zip(columns, others, strict=True)
        )

        def digit(k: Val, crd: Vector = crd, by: Val = by) -> Val:
            return b.named("digit", b.and_(b.binary("lshr", crd.number(b, k), by), b.i64((1 << BITS) - 1)))

        kernel_memory.clear(b, counts.pointer, b.i64(0), b.i64(1 << BITS), 8)
        with b.for_(b.i64(0), count, "k") as k:
            d = digit(k)
            counts.put(b, d, b.add(counts.get(b, d), 1))
        b.set(total, b.i64(0))
        with b.for_(b.i64(0), b.i64(1 << BITS), "d") as d:
            here = b.named("here", counts.get(b, d))
            counts.put(b, d, b.get(total))
            b.increment(total, here)
        with b.for_(b.i64(0), count, "k") as k:
            d = digit(k)
            to = b.named("to", counts.get(b, d))
            out.put(b, to, crd.get(b, k))
            moved.put(b, to, vals.get(b, k))
            counts.put(b, d, b.add(to, 1))
        b.increment(shift, BITS)
        b.set(away, b.binary("xor", b.get(away), b.const("i1", 1)))
    with b.if_(b.get(away)):
        for column, from_there in zip(columns, others, strict=True):
            b.call("memcpy", "ptr", [column.pointer, from_there.pointer, b.mul(count, column.size)])
