"""The entries of segments whose coordinates a list names, each once, numbered by their places in it: what two kernels run.

    placed     listed 4 1     -1 1 -1 -1 0     the place of every coordinate, -1 of those that are not named
    mapped     pos, crd       the entries that are named: each is written at the next place, which moves on where it is, without a branch

Where the list rises, segments are in order as they were.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.codegen import kernel_memory
from sparsejax.jit.runtime.passes.conversion_loops import SOON
from sparsejax.jit.runtime.passes.pass_kernels import INT64, address, as_kernel, closed_up, run, run_parts, vectors

TWICE, FALLS = 1, 2
"""What is found of a list: a coordinate comes twice; one is less than that before it."""


def placed(listed: Array, extent: int) -> tuple[Array, int]:
    """The place of every coordinate below `extent` in a list, and what is found of it."""
    listed, found = np.ascontiguousarray(listed), np.empty(1, INT64)
    table = np.empty(extent, crd_dtype(len(listed)))
    run(_placed(listed.itemsize, table.itemsize), len(listed), extent, listed, table, found)
    return table, int(found[0])


FARTHER = 1 << 20
"""Bytes of a table from which its places are fetched ahead."""

NEAR, SELDOM = 1 << 19, 4
"""Of an extent beyond this one, a list names one of so many coordinates at least: else marks of them all, which are nearer, are looked at first."""


def mapped(
    pos: Array, crd: Array, table: Array, vals: Array, parts: Sequence[tuple[int, int]]
) -> tuple[Array, Array, Array]:
    """(pos, crd, vals) of the entries that are named; segments are as they come."""
    first, count = int(pos[0]), int(pos[-1]) - int(pos[0])
    made, out, moved = np.empty(len(pos), INT64), np.empty(count, table.dtype), np.empty(count, vals.dtype)
    kernel = _mapped(crd.itemsize, table.itemsize, vals.itemsize, table.nbytes >= FARTHER)
    behind = len(pos) - 1, *map(address, (pos, crd, table, vals, made, out, moved))
    run_parts(kernel, [(*pair, *behind) for pair in parts])
    made[0], found = 0, 0
    pieces = []
    for begin, end in parts:  # each has written from where its entries began
        room, stop = int(pos[begin]) - first, int(made[end]) if begin < end else int(pos[begin]) - first
        pieces.append(slice(room, stop))
        if found != room:
            made[begin + 1 : end + 1] += found - room
        found += stop - room
    return made, closed_up(out, pieces), closed_up(moved, pieces)


@as_kernel
def _placed(b: Builder, size: int, table_size: int) -> None:
    count, extent = b.slot(0, "i64", "count"), b.slot(1, "i64", "extent")
    listed, table, found = vectors(b, 2, (size, table_size, 8), ("listed", "table", "found"))
    kernel_memory.clear(b, table.pointer, b.i64(0), extent, table_size, 255)
    twice, falls, before = b.var("twice", b.i64(0)), b.var("falls", b.i64(0)), b.var("before", b.i64(0))

    def also(var: Var, holds: Val) -> None:
        b.set(var, b.binary("or", b.get(var), b.convert("zext", holds, "i64")))

    with b.for_(b.i64(0), count, "k") as k:
        c = b.named("c", listed.number(b, k))
        also(twice, b.ne(table.get(b, c), b.const(table.type, -1)))
        also(falls, b.lt(c, b.get(before)))
        b.set(before, c)
        table.put(b, c, table.element(b, k))
    found.put(b, b.i64(0), b.binary("or", b.mul(b.get(twice), TWICE), b.mul(b.get(falls), FALLS)))


@as_kernel
def _mapped(b: Builder, size: int, table_size: int, vals_size: int, ahead: bool) -> None:
    first, end, rows = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "rows")))
    names = "pos", "crd", "table", "vals", "made", "out", "moved"
    sizes = 8, size, table_size, vals_size, 8, table_size, vals_size
    pos, crd, table, vals, made, out, moved = vectors(b, 3, sizes, names)
    at = b.var("at", b.sub(pos.get(b, first), pos.get(b, b.i64(0))))
    last = b.named("last", b.sub(pos.get(b, rows), 1))
    with b.for_(first, end, "r") as r:
        with b.for_(pos.get(b, r), pos.get(b, b.add(r, 1)), "p") as p:
            if ahead:
                kernel_memory.prefetch(b, table.pointer, crd.number(b, b.min(b.add(p, SOON), last)), table.size)
            to, place = b.get(at), table.get(b, crd.number(b, p))
            out.put(b, to, place)
            moved.put(b, to, vals.get(b, p))
            b.increment(at, b.convert("zext", b.lt(b.const(table.type, -1), place), "i64"))
        made.put(b, b.add(r, 1), b.get(at))
