"""Entries of equal coordinates that stand next to each other in a segment become one: what one kernel for each dtype runs.

Every entry is compared with the one before it, without a branch: the first of a run is written at the next place, and what those behind it add up to, by
themselves and one after the other, is added to it there, as `passes.added` does with up to `ADDED` entries, so that results have the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.formats.passes import ADDED, Array
from sparsejax.jit.backend.builder import Builder, Val
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


@as_kernel
def _folded(b: Builder, size: int, dtype: np.dtype[Any]) -> None:
    rows, (pos, crd) = b.slot(0, "i64", "rows"), vectors(b, 1, (8, size), ("pos", "crd"))
    vals, (made, left) = b.slot(3, "ptr", "vals"), vectors(b, 4, (8, size), ("made", "left"))
    sums, (longest,) = b.slot(6, "ptr", "sums"), vectors(b, 7, (8,), ("longest",))
    parts = 1 + (dtype.kind == "c")
    width = dtype.itemsize // parts
    kind = {4: "float", 8: "double"}[width] if dtype.kind in "fc" else f"i{8 * width}"
    add = {"b": "or", "i": "add", "u": "add", "f": "fadd", "c": "fadd"}[dtype.kind]

    def value(b: Builder, pointer: Val, at: Val) -> list[Val]:
        return [b.load(pointer, b.add(b.mul(at, parts), k), kind) for k in range(parts)]

    def put(b: Builder, at: Val, numbers: list[Val]) -> None:
        for k, number in enumerate(numbers):
            b.store(sums, b.add(b.mul(at, parts), k), number)

    nothing = b.const(kind, -0.0 if dtype.kind in "fc" else 0)  # what is added to it stays as it is
    first, rest = ([b.var(name, nothing) for _ in range(parts)] for name in ("first", "rest"))
    place, count, most, last = (b.var(name, b.i64(0)) for name in ("place", "count", "most", "last"))
    made.put(b, b.i64(0), b.i64(0))
    with b.for_(b.i64(0), rows, "r") as r:
        b.set(last, b.i64(-1))
        with b.for_(pos.get(b, r), pos.get(b, b.add(r, 1)), "p") as p:
            c, own = b.named("c", crd.number(b, p)), [b.named("x", x) for x in value(b, vals, p)]
            again = b.named("again", b.eq(c, b.get(last)))
            b.set(last, c)
            b.set(count, b.select(again, b.add(b.get(count), 1), b.i64(1)))
            b.set(most, b.max(b.get(most), b.get(count)))
            b.increment(place, b.select(again, b.i64(0), b.i64(1)))
            total = []
            for x, y, new in zip(first, rest, own, strict=True):
                b.set(y, b.select(again, b.binary(add, b.get(y), new), nothing))
                b.set(x, b.select(again, b.get(x), new))
                total.append(b.binary(add, b.get(x), b.get(y)))
            to = b.named("to", b.sub(b.get(place), 1))
            left.put(b, to, crd.get(b, p))
            put(b, to, total)
        made.put(b, b.add(r, 1), b.get(place))
    longest.put(b, b.i64(0), b.get(most))
