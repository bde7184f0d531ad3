"""What a list names, to be looked up by coordinate: a bit for each of them, and how many are named before every 64, so that a coordinate has a rank among
those that are named. That stays in a near cache where a table with an element for every coordinate does not, and is a sixteenth of it.

    listed 4 1 4     table     0 1 0 0 1 | 0     coordinate 1 has rank 0, coordinate 4 rank 1
                     ends      0 1 3             rank 1 is at 1 and 2 of `order`; none where each coordinate comes once
                     order     1 0 2             where in the list; none where the list rises, and place k is k

Of a small extent, of which a list names much, and nothing twice, places are as near as the bits:

    listed 4 1       table     -1 1 -1 -1 0
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.codegen import kernel_memory
from sparsejax.jit.runtime.passes import segment_loops
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, as_kernel, empty, run, vectors

BITS = 64
"""Coordinates of a word."""
NEAR, SELDOM = 1 << 18, 4
"""Up to this extent places are as near as bits, if one of so many coordinates is named at least."""
FALLS, TWICE, COUNT = 0, 1, 1
"""What is told of a list: whether a coordinate is less than that before it, and whether one comes twice, or how many there are."""


@dataclass(frozen=True)
class Names:
    """What a list names."""

    table: Array
    near: bool
    """Whether the table has the place of every coordinate, -1 of those that are not named."""
    count: int
    falls: bool
    ends: Array | None
    order: Array | None


def names(listed: Array, extent: int) -> Names:
    """What a list of coordinates below an extent names. Linear in the list, and in the words of all coordinates."""
    listed, count, told = np.ascontiguousarray(listed), len(listed), np.empty(2, INT64)
    kind = crd_dtype(count)
    if extent <= NEAR and SELDOM * count >= extent:
        table = np.empty(extent, kind)
        run(_placed(listed.itemsize, kind.itemsize), count, extent, listed, table, told)
        if not told[TWICE]:
            falls = bool(told[FALLS])
            return Names(table, True, count, falls, None, table if falls else None)
    table, number = np.empty(2 * (extent // BITS + 1), INT64), np.empty(count, kind)
    run(_ranked(listed.itemsize, kind.itemsize), count, extent, listed, table, number, told)
    falls, distinct = bool(told[FALLS]), int(told[COUNT])
    order, ends = empty(count, kind) if falls else None, None
    if distinct < count:
        ends, order = empty(distinct + 1, crd_dtype(count + 1)), empty(count, kind)
        run(numbered(kind.itemsize, ends.itemsize, kind.itemsize), count, distinct, number, ends, order)
    elif order is not None:
        run(_placed(kind.itemsize, kind.itemsize), count, 0, number, order, told)
    return Names(table, False, distinct, falls, ends, order if falls else None)


def is_named(b: Builder, table: Vector, c: Val) -> Val:
    """1 if a coordinate is named, else 0."""
    word = table.get(b, _word(b, c))
    return b.and_(b.binary("lshr", word, b.and_(c, b.i64(BITS - 1))), b.i64(1))


def rank(b: Builder, table: Vector, c: Val) -> Val:
    """How many coordinates are named before one."""
    at = b.named("at", _word(b, c))
    below = b.sub(b.binary("shl", b.i64(1), b.and_(c, b.i64(BITS - 1))), 1)
    here = b.call("llvm.ctpop.i64", "i64", [b.and_(table.get(b, at), below)])
    return b.add(table.get(b, b.add(at, 1)), here)


def _word(b: Builder, c: Val) -> Val:
    """Where the word of a coordinate is."""
    return b.binary("shl", b.binary("lshr", c, b.i64(6)), b.i64(1))


@as_kernel
def _ranked(b: Builder, size: int, number_size: int) -> None:
    count, extent = b.slot(0, "i64", "count"), b.slot(1, "i64", "extent")
    listed, table, number, told = vectors(b, 2, (size, 8, number_size, 8), ("listed", "table", "number", "told"))
    words = b.named("words", b.add(b.binary("lshr", extent, b.i64(6)), 1))
    kernel_memory.clear(b, table.pointer, b.i64(0), b.mul(words, 2), 8)
    falls, before, total = (b.var(name, b.i64(0)) for name in ("falls", "before", "total"))
    with b.for_(b.i64(0), count, "k") as k:
        c = b.named("c", listed.number(b, k))
        at = b.named("at", _word(b, c))
        bit = b.binary("shl", b.i64(1), b.and_(c, b.i64(BITS - 1)))
        table.put(b, at, b.binary("or", table.get(b, at), bit))
        _also(b, falls, b.lt(c, b.get(before)))
        b.set(before, c)
    with b.for_(b.i64(0), words, "w") as w:
        at = b.named("at", b.mul(w, 2))
        table.put(b, b.add(at, 1), b.get(total))
        b.increment(total, b.call("llvm.ctpop.i64", "i64", [table.get(b, at)]))
    with b.for_(b.i64(0), count, "k") as k:
        number.put(b, k, number.element(b, rank(b, table, listed.number(b, k))))
    told.put(b, b.i64(COUNT), b.get(total))
    told.put(b, b.i64(FALLS), b.get(falls))


@as_kernel
def _placed(b: Builder, size: int, table_size: int) -> None:
    """Where each number of a list is in it; -1 of all others below an extent."""
    count, extent = b.slot(0, "i64", "count"), b.slot(1, "i64", "extent")
    listed, table, told = vectors(b, 2, (size, table_size, 8), ("listed", "table", "told"))
    kernel_memory.clear(b, table.pointer, b.i64(0), extent, table_size, 255)
    falls, before, twice = (b.var(name, b.i64(0)) for name in ("falls", "before", "twice"))
    with b.for_(b.i64(0), count, "k") as k:
        c = b.named("c", listed.number(b, k))
        _also(b, twice, b.ne(table.get(b, c), b.const(table.type, -1)))
        _also(b, falls, b.lt(c, b.get(before)))
        b.set(before, c)
        table.put(b, c, table.element(b, k))
    told.put(b, b.i64(TWICE), b.get(twice))
    told.put(b, b.i64(FALLS), b.get(falls))


def _also(b: Builder, var: Var, holds: Val) -> None:
    b.set(var, b.binary("or", b.get(var), b.convert("zext", holds, "i64")))


@as_kernel
def numbered(b: Builder, size: int, ends_size: int, order_size: int) -> None:
    """Where each number of a list is in it, side by side, and where these begin."""
    count, extent = b.slot(0, "i64", "count"), b.slot(1, "i64", "extent")
    listed, ends, order = vectors(b, 2, (size, ends_size, order_size), ("listed", "ends", "order"))
    segment_loops.numbered(b, count, extent, listed, ends, order)
