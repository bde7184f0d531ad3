"""Entries of equal coordinates that stand next to each other in a segment become one: what one kernel for each dtype runs.

Every entry is compared with the one before it, without a branch: the first of a run is written at the next place, and what those behind it add up to, by
themselves and one after the other, is added to it there, as `runs.added` does with up to `ADDED` entries, so that results have the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.formats.passes import Array
from sparsejax.formats.runs import ADDED
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, as_kernel, empty, run, vectors


def folded(pos: Array, crd: Array, vals: Array, inplace: bool) -> tuple[Array, Array, Array] | None:
    """(pos, crd, vals) of the sums, in the memory of what was given if `inplace`: no run may be longer then; None where one is."""
    made, longest = empty(len(pos), INT64), np.zeros(1, INT64)
    left, sums = (crd, vals) if inplace else (empty(len(crd), crd.dtype), empty(len(vals), vals.dtype))
    run(_folded(crd.itemsize, vals.dtype), len(pos) - 1, pos, crd, vals, made, left, sums, longest)
    if vals.dtype.kind in "fc" and longest[0] > ADDED:
        return None
    count = int(made[-1])
    if 2 * count < len(crd):
        return made, left[:count].copy(), sums[:count].copy()
    return made, left[:count], sums[:count]


def longest_run(pos: Array, crd: Array) -> int:
    """How many equal coordinates follow each other in a segment, at most."""
    longest = np.zeros(1, INT64)
    run(_longest_run(crd.itemsize), len(pos) - 1, pos, crd, longest)
    return int(longest[0])


class Runs:
    """Equal coordinates that follow each other become one, with the sum of their values: each entry goes to `place`, or where the one before went."""

    def __init__(self, b: Builder, dtype: np.dtype[Any], crd: Vector, sums: Val) -> None:
        """What is written goes to `crd` and `sums`, from their beginning on."""
        self._parts = 1 + (dtype.kind == "c")
        width = dtype.itemsize // self._parts
        self._kind = {4: "float", 8: "double"}[width] if dtype.kind in "fc" else f"i{8 * width}"
        self._add = {"b": "or", "i": "add", "u": "add", "f": "fadd", "c": "fadd"}[dtype.kind]
        # what is added to it stays as it is
        self._nothing = b.const(self._kind, -0.0 if dtype.kind in "fc" else 0)
        self._crd, self._sums = crd, sums
        self._first, self._rest = ([b.var(n, self._nothing) for _ in range(self._parts)] for n in ("first", "rest"))
        self.place, self._count, self.most, self._last = (
            b.var(name, b.i64(0)) for name in ("place", "count", "most", "last")
        )

    def begin(self, b: Builder) -> None:
        """A segment begins: its first coordinate is none of before."""
        b.set(self._last, b.i64(-1))

    def value(self, b: Builder, pointer: Val, at: Val) -> list[Val]:
        """The parts of a value."""
        return [b.named("x", b.load(pointer, b.add(b.mul(at, self._parts), k), self._kind)) for k in range(self._parts)]

    def add(self, b: Builder, coordinate: Val, own: list[Val]) -> None:
        """An entry, without a branch."""
        c = b.named("c", coordinate if coordinate.type == "i64" else b.convert("zext", coordinate, "i64"))
        again = b.named("again", b.eq(c, b.get(self._last)))
        b.set(self._last, c)
        b.set(self._count, b.select(again, b.add(b.get(self._count), 1), b.i64(1)))
        b.set(self.most, b.max(b.get(self.most), b.get(self._count)))
        b.increment(self.place, b.select(again, b.i64(0), b.i64(1)))
        to = b.named("to", b.sub(b.get(self.place), 1))
        self._crd.put(b, to, coordinate)
        for k, (x, y, new) in enumerate(zip(self._first, self._rest, own, strict=True)):
            b.set(y, b.select(again, b.binary(self._add, b.get(y), new), self._nothing))
            b.set(x, b.select(again, b.get(x), new))
            total = b.binary(self._add, b.get(x), b.get(y))
            b.store(self._sums, b.add(b.mul(to, self._parts), k), total)


@as_kernel
def _longest_run(b: Builder, size: int) -> None:
    rows, (pos, crd, longest) = b.slot(0, "i64", "rows"), vectors(b, 1, (8, size, 8), ("pos", "crd", "longest"))
    count, most, last = (b.var(name, b.i64(0)) for name in ("count", "most", "last"))
    with b.for_(b.i64(0), rows, "r") as r:
        b.set(last, b.i64(-1))
        with b.for_(pos.get(b, r), pos.get(b, b.add(r, 1)), "p") as p:
            c = b.named("c", crd.number(b, p))
            b.set(count, b.select(b.eq(c, b.get(last)), b.add(b.get(count), 1), b.i64(1)))
            b.set(last, c)
            b.set(most, b.max(b.get(most), b.get(count)))
    longest.put(b, b.i64(0), b.get(most))


@as_kernel
def _folded(b: Builder, size: int, dtype: np.dtype[Any]) -> None:
    rows, (pos, crd) = b.slot(0, "i64", "rows"), vectors(b, 1, (8, size), ("pos", "crd"))
    vals, (made, left) = b.slot(3, "ptr", "vals"), vectors(b, 4, (8, size), ("made", "left"))
    sums, (longest,) = b.slot(6, "ptr", "sums"), vectors(b, 7, (8,), ("longest",))
    runs = Runs(b, dtype, left, sums)
    made.put(b, b.i64(0), b.i64(0))
    with b.for_(b.i64(0), rows, "r") as r:
        runs.begin(b)
        with b.for_(pos.get(b, r), pos.get(b, b.add(r, 1)), "p") as p:
            runs.add(b, crd.get(b, p), runs.value(b, vals, p))
        made.put(b, b.add(r, 1), b.get(runs.place))
    longest.put(b, b.i64(0), b.get(runs.most))
