"""Segments whose coordinates begin elsewhere: what one kernel runs.

    cut 3 of 5    crd 0 3 4    vals a b c
    rotated           0 1 2         b c a

Where the second part of a segment begins is counted in a short one, and searched in others; both parts are copied as they are.
"""

from __future__ import annotations

import numpy as np

from sparsejax.formats.levels.walk import FEW, lower_bound
from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.runtime.passes.pass_kernels import address, as_kernel, empty, run_parts, vectors


def rotated(
    pos: Array, crd: Array, vals: Array, cut: int, extent: int, parts: list[tuple[int, int]]
) -> tuple[Array, Array]:
    """See `formats.passes`."""
    pos, crd, vals = (np.ascontiguousarray(a) for a in (pos, crd, vals))
    made, moved = empty(len(crd), crd.dtype), empty(len(vals), vals.dtype)
    behind = cut, extent, *(address(a) for a in (pos, crd, vals, made, moved))
    run_parts(_rotated(crd.itemsize, vals.itemsize), [(*part, *behind) for part in parts])
    return made, moved


@as_kernel
def _rotated(b: Builder, size: int, vals_size: int) -> None:
    first, end, cut, extent = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "cut", "extent")))
    names = "pos", "crd", "vals", "made", "moved"
    pos, crd, vals, made, moved = vectors(b, 4, (8, size, vals_size, size, vals_size), names)
    half, rest = b.var("half", b.i64(0)), b.named("rest", b.sub(extent, cut))
    with b.for_(first, end, "r") as r:
        lo, hi = b.named("lo", pos.get(b, r)), b.named("hi", pos.get(b, b.add(r, 1)))

        def counted(lo: Val = lo, hi: Val = hi) -> None:
            b.set(half, lo)
            with b.for_(lo, hi, "k") as k:
                b.increment(half, b.convert("zext", b.lt(crd.number(b, k), cut), "i64"))

        def searched(lo: Val = lo, hi: Val = hi) -> None:
            b.set(half, lower_bound(b, lambda k: b.lt(crd.number(b, k), cut), lo, hi))

        b.if_else(b.lt(b.sub(hi, lo), FEW), counted, searched)
        middle = b.named("middle", b.get(half))
        for begin, stop, back, shift in (
            (middle, hi, b.sub(lo, middle), b.sub(b.i64(0), cut)),
            (lo, middle, b.sub(hi, middle), rest),
        ):
            with b.for_(begin, stop, "p") as p:
                to = b.named("to", b.add(p, back))
                made.put(b, to, made.element(b, b.add(crd.number(b, p), shift)))
                moved.put(b, to, vals.get(b, p))
