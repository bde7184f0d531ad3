"""The entries of segments whose coordinates a list names, as often as it does, numbered by their places in it: what four kernels run.

    marked     ends 0 0 1 3 3     0 1 1 0    a bit for every coordinate, which stays in a near cache where `ends` does not
    kept       pos, crd           the entries that are named: each is written at the next place, which moves on where it is, without a branch
    counted    of those           how many entries every segment of the result has
    numbered   of those           order[ends[c]:ends[c + 1]] in place of each coordinate c; then segments are put in order

A permutation names all coordinates once: entries stay in their segments, and `order` alone is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.runtime.passes.conversion_loops import SOON, Pairs, Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, address, as_kernel, run, run_parts, vectors
from sparsejax.jit.runtime.passes.ranked_segments import Segments, aside

BITS, LANES = 64, 16
"""Of a word of marks; coordinates that are marked at once."""
Parts = Sequence[tuple[int, int]]


def kept(
    pos: Array, crd: Array, ends: Array, columns: Sequence[Array], parts: Parts
) -> tuple[Array, Array, list[Array]]:
    """(stops, crd, columns): the entries that are named, where their segments end; those of a part begin where those of all entries do."""
    extent, count = len(ends) - 1, len(crd)
    words, stops = np.empty(extent // BITS + 1, INT64), np.empty(len(pos) - 1, INT64)
    run(_marked(ends.itemsize), extent, ends, words)
    # there is room for all, of which the pages are touched that hold something
    out, moved = np.empty(count, crd.dtype), [np.empty(count, column.dtype) for column in columns]
    pairs = [address(a) for pair in zip(columns, moved, strict=True) for a in pair]
    behind = *map(address, (pos, crd, words, stops, out)), *pairs
    run_parts(_kept(crd.itemsize, tuple([column.itemsize for column in columns])), [(*pair, *behind) for pair in parts])
    return stops, out, moved


def numbered(
    pos: Array,
    stops: Array | None,
    made: Array,
    places: tuple[Array, Array],
    columns: tuple[Array, Sequence[Array]],
    targets: tuple[Array, Sequence[Array]],
    parts: Parts,
) -> None:
    """`targets` become the coordinates and columns of the entries that were kept, or, without `stops`, of all, permuted."""
    (ends, order), (crd, others), (out, moved) = places, columns, targets
    sizes = tuple([column.itemsize for column in moved])
    kernel = _numbered(crd.itemsize, ends.itemsize, order.itemsize, out.itemsize, sizes, stops is None)
    room, rows = aside(len(parts), out.itemsize, sizes)
    slots = pos, pos if stops is None else stops, made, ends, order, crd, *others, out, *moved
    if len(parts) == 1:
        run(kernel, *parts[0], len(out), *slots, *rows[0])
    else:
        behind = [len(out), *map(address, slots)]
        run_parts(kernel, [(*pair, *behind, *row) for pair, row in zip(parts, rows, strict=True)])
    del room  # until here, threads write to it


def lengths(b: Builder, first: Val, end: Val, given: tuple[Vector, ...]) -> Callable[[Val], Val]:
    """The length of a segment of the result; of all from `first` to `end`, in order. Sums over all entries before are made first: how many a
    segment has is not to be foreseen."""
    pos, stops, crd, ends, sums = given
    total, begin = b.var("total", b.i64(0)), b.named("begin", pos.get(b, first))
    with b.if_(b.lt(first, end)), b.for_(begin, stops.get(b, b.sub(end, 1)), "p") as p:
        c = b.named("c", crd.number(b, p))
        b.increment(total, b.sub(ends.number(b, b.add(c, 1)), ends.number(b, c)))
        sums.put(b, b.add(p, 1), b.get(total))
    before = b.var("before", b.i64(0))

    def of(r: Val) -> Val:
        stop = b.named("stop", stops.get(b, r))
        here = b.named("here", b.select(b.lt(begin, stop), sums.get(b, stop), b.i64(0)))
        made = b.named("length", b.sub(here, b.get(before)))
        b.set(before, here)
        return made

    return of


@as_kernel
def _marked(b: Builder, size: int) -> None:
    extent, (ends, words) = b.slot(0, "i64", "extent"), vectors(b, 1, (size, 8), ("ends", "words"))
    whole = b.named("whole", b.binary("lshr", extent, b.i64(6)))
    with b.for_(b.i64(0), whole, "w") as w:
        bits = b.i64(0)
        for k in range(0, BITS, LANES):
            at = b.add(b.mul(w, BITS), k)
            here, behind = (b.load(ends.pointer, p, f"<{LANES} x {ends.type}>") for p in (at, b.add(at, 1)))
            part = b.convert("bitcast", b.compare("ne", here, behind), f"i{LANES}")
            bits = b.binary("or", bits, b.binary("shl", b.convert("zext", part, "i64"), b.i64(k)))
        words.put(b, w, bits)
    last, begin = b.var("last", b.i64(0)), b.named("begin", b.mul(whole, BITS))
    with b.for_(begin, extent, "c") as c:
        more = b.convert("zext", b.ne(ends.get(b, c), ends.get(b, b.add(c, 1))), "i64")
        b.set(last, b.binary("or", b.get(last), b.binary("shl", more, b.sub(c, begin))))
    words.put(b, whole, b.get(last))


@as_kernel
def _kept(b: Builder, size: int, sizes: tuple[int, ...]) -> None:
    first, end = b.slot(0, "i64", "first"), b.slot(1, "i64", "end")
    pos, crd, words, stops, out = vectors(b, 2, (8, size, 8, 8, size), ("pos", "crd", "words", "stops", "out"))
    moves = [
        (Vector.in_slot(b, 7 + 2 * k, own, "source"), Vector.in_slot(b, 8 + 2 * k, own, "target"))
        for k, own in enumerate(sizes)
    ]
    at = b.var("at", pos.get(b, first))
    with b.for_(first, end, "r") as r:
        with b.for_(pos.get(b, r), pos.get(b, b.add(r, 1)), "p") as p:
            to, c = b.get(at), b.named("c", crd.number(b, p))
            out.put(b, to, crd.get(b, p))
            for source, target in moves:
                target.put(b, to, source.get(b, p))
            word = words.get(b, b.binary("lshr", c, b.i64(6)))
            b.increment(at, b.and_(b.binary("lshr", word, b.and_(c, b.i64(BITS - 1))), b.i64(1)))
        stops.put(b, r, b.get(at))


@as_kernel
def _numbered(
    b: Builder, size: int, ends_size: int, order_size: int, out_size: int, sizes: tuple[int, ...], whole: bool
) -> None:
    first, end, stop = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "stop")))
    names = "pos", "stops", "made", "ends", "order"
    pos, stops, made, ends, order = vectors(b, 3, (8, 8, 8, ends_size, order_size), names)
    count = len(sizes)
    crd, *sources = vectors(b, 8, (size, *sizes), ["source"] * (count + 1))
    out, *targets = vectors(b, 9 + count, (out_size, *sizes), ["target"] * (count + 1))
    number, *kept = vectors(b, 10 + 2 * count, (8, out_size, *sizes), ["number", *["kept"] * (count + 1)])
    moves, segments = list(zip(sources, targets, strict=True)), Segments((out, *targets), kept, number, stop)
    at, begin = b.var("at", made.get(b, first)), b.named("begin", pos.get(b, first))
    with b.if_(b.lt(first, end)):
        until = b.named("until", pos.get(b, end) if whole else stops.get(b, b.sub(end, 1)))
        last = b.named("last", b.sub(until, 1))
        with b.for_(begin, until, "p") as p:
            c, later = b.named("c", crd.number(b, p)), crd.number(b, b.min(b.add(p, SOON), last))
            if whole:
                order.prefetch(b, later)
                _put(b, at, order.number(b, c), p, out, moves)
            else:
                ends.prefetch(b, later)
                with b.for_(ends.number(b, c), ends.number(b, b.add(c, 1)), "q") as q:
                    _put(b, at, order.number(b, q), p, out, moves)
    with b.for_(first, end, "r") as r:
        segments.tidy(b, made.get(b, r), made.get(b, b.add(r, 1)))


def _put(b: Builder, at: Var, number: Val, p: Val, out: Vector, moves: Pairs) -> None:
    """Entry `p`, with this number, to the next place."""
    to = b.get(at)
    out.put(b, to, out.element(b, number))
    for source, target in moves:
        target.put(b, to, source.get(b, p))
    b.increment(at)
