"""Halves of segments that change places, and segments with a number added to each: what one kernel for each runs.

    pos 0 3 4    crd 0 2 4 | 1    cut 2    halves 1 4
    swapped      2 4 0 | 1        with -2 added to second halves, 3 to first ones: 0 2 3 | 4

Of positions in what is below, whose segments are swapped likewise, what is added follows from where these begin, and their halves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsejax.formats.levels.walk import FEW, lower_bound
from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder
from sparsejax.jit.runtime.passes import lengths
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, address, as_kernel, empty, pairs_of, run_parts, vectors

Parts = Sequence[tuple[int, int]]


def halves(pos: Array, crd: Array, cut: int, parts: Parts) -> Array:
    """See `formats.joining_passes`."""
    crd, made = np.ascontiguousarray(crd), empty(len(pos) - 1, INT64)
    behind = cut, *map(address, (pos, crd, made))
    run_parts(_halves(crd.itemsize), [(*pair, *behind) for pair in parts])
    return made


def swapped(
    pos: Array,
    half: Array,
    columns: Sequence[Array],
    shifts: tuple[int, int] | tuple[Array, Array] | None,
    parts: Parts,
) -> list[Array]:
    """See `formats.joining_passes`."""
    kept = [*map(np.ascontiguousarray, columns)]
    made = [empty(len(column), column.dtype) for column in kept]
    pairs = [address(a) for pair in zip(kept, made, strict=True) for a in pair]
    numbers = [address(s) if isinstance(s, np.ndarray) else s for s in shifts or (0, 0)]
    below = shifts is not None and isinstance(shifts[0], np.ndarray)
    kernel = _swapped(tuple([column.itemsize for column in kept]), shifts is not None, below)
    behind = *numbers, address(pos), address(half), *pairs
    run_parts(kernel, [(*pair, *behind) for pair in parts])
    return made


def shifted(pos: Array, pieces: tuple[Array, Array], below: tuple[Array, Array], parts: Parts) -> Array:
    """See `formats.joining_passes`."""
    if not len(pieces[0]):
        return np.zeros(1, INT64)
    made = empty(int(pieces[1][-1]) + 1, INT64)
    kept = [np.ascontiguousarray(a, INT64) for a in (*pieces, *below, pos)]
    behind = [*map(address, kept), address(made)]
    run_parts(_shifted(), [(*pair, *behind) for pair in parts])
    return made


@as_kernel
def _halves(b: Builder, size: int) -> None:
    (first, end), cut = lengths.share(b), b.slot(2, "i64", "cut")
    pos, crd, made = vectors(b, 3, (8, size, 8), ("pos", "crd", "made"))
    half = b.var("half", b.i64(0))
    with b.for_(first, end, "r") as r:
        lo, hi = b.named("lo", pos.get(b, r)), b.named("hi", pos.get(b, b.add(r, 1)))

        def counted() -> None:
            b.set(half, lo)
            with b.for_(lo, hi, "k") as k:
                b.increment(half, b.convert("zext", b.lt(crd.number(b, k), cut), "i64"))

        def searched() -> None:
            b.set(half, lower_bound(b, lambda k: b.lt(crd.number(b, k), cut), lo, hi))

        b.if_else(b.lt(b.sub(hi, lo), FEW), counted, searched)
        made.put(b, r, b.get(half))


@as_kernel
def _swapped(b: Builder, sizes: tuple[int, ...], moves: bool, below: bool) -> None:
    (first, end), (pos, half) = lengths.share(b), vectors(b, 4, (8, 8), ("pos", "half"))
    pairs = pairs_of(b, 6, sizes)
    if below:
        under, middles = (Vector.in_slot(b, k, 8, name) for k, name in ((2, "under"), (3, "middles")))
    front, back = b.i64(0), b.i64(0)
    if moves and not below:
        front, back = b.slot(2, "i64", "front"), b.slot(3, "i64", "back")
    with b.for_(first, end, "r") as r:
        lo, middle, hi = pos.get(b, r), half.get(b, r), pos.get(b, b.add(r, 1))
        if below:
            split = b.named("split", middles.get(b, r))
            front = b.named("front", b.sub(under.get(b, r), split))
            back = b.named("back", b.sub(under.get(b, b.add(r, 1)), split))
        for begin, stop, by, shift in ((middle, hi, b.sub(lo, middle), front), (lo, middle, b.sub(hi, middle), back)):
            by = b.named("by", by)
            with b.for_(begin, stop, "p") as p:
                to = b.named("to", b.add(p, by))
                for k, (source, target) in enumerate(pairs):
                    number = moves and not k
                    value = target.element(b, b.add(source.number(b, p), shift)) if number else source.get(b, p)
                    target.put(b, to, value)


@as_kernel
def _shifted(b: Builder) -> None:
    first, end = lengths.share(b)
    start, ends, begin, to, pos, made = vectors(b, 2, (8,) * 6, ("start", "ends", "begin", "to", "pos", "made"))
    with b.for_(first, end, "r") as r:
        lo, hi = ends.get(b, r), ends.get(b, b.add(r, 1))
        offset, more = (
            b.named("offset", b.sub(start.get(b, r), lo)),
            b.named("more", b.sub(to.get(b, r), begin.get(b, r))),
        )
        # one more of the last piece: its end, where the first piece of the next thread writes the same number
        with b.for_(lo, b.add(hi, b.convert("zext", b.eq(b.add(r, 1), end), "i64")), "p") as p:
            made.put(b, p, b.add(pos.get(b, b.add(p, offset)), more))
