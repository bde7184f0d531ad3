"""The entries of segments whose coordinates a list names, as often as it does, numbered by their places in it: what four kernels run, and
of few entries one.

    marked     ends 0 0 1 3 3     0 1 1 0    a bit for every coordinate, which stays in a near cache where `ends` does not
    kept       pos, crd           the entries that are named: each is written at the next place, which moves on where it is, without a branch
    counted    of those           where every segment of the result ends
    numbered   of those           order[ends[c]:ends[c + 1]] in place of each coordinate c; then segments are put in order

A permutation names all coordinates once: entries stay in their segments, and `order` alone is looked up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.runtime.passes import segment_loops
from sparsejax.jit.runtime.passes.conversion_loops import SOON, Pairs, Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, address, as_kernel, run, run_parts, vectors
from sparsejax.jit.runtime.passes.ranked_segments import Segments, aside, longest

BITS, LANES = 64, 16
"""Of a word of marks; coordinates that are marked at once."""
TOGETHER = 512
"""Entries whose numbers are counted before their segments are looked at."""
SPARE = 64
"""Entries that there is room for beyond twice as many as are expected; four times as many may stay behind a result."""
TOTAL, LONGEST = range(2)
"""What the kernel of few entries tells: how many there are, and how many of them in the longest segment."""
Parts = Sequence[tuple[int, int]]


def marked(ends: Array) -> Array:
    """A bit for every coordinate, which is set where it is named."""
    extent = len(ends) - 1
    words = np.empty(extent // BITS + 1, INT64)
    run(_marked(ends.itemsize), extent, ends, words)
    return words


def kept(
    pos: Array,
    crd: Array,
    ends: Array,
    columns: Sequence[Array],
    made: Array,
    parts: Parts,
    marks: Array | None = None,
) -> tuple[Array, list[Array]]:
    """(crd, columns): the entries that are named, those of a part from where its entries began; where segments end goes to `made`."""
    count, words = len(crd), marked(ends) if marks is None else marks
    # there is room for all, of which the pages are touched that hold something
    out, moved = np.empty(count, crd.dtype), [np.empty(count, column.dtype) for column in columns]
    pairs = [address(a) for pair in zip(columns, moved, strict=True) for a in pair]
    behind = *map(address, (pos, crd, words, made, out)), *pairs
    run_parts(_kept(crd.itemsize, tuple([column.itemsize for column in columns])), [(*pair, *behind) for pair in parts])
    return out, moved


def counted(pos: Array, crd: Array, ends: Array, made: Array, longest: Array, parts: Parts) -> None:
    """`made`, where segments of entries end, becomes where those of the result do, and `longest` the length of the longest one; of several parts, `made`
    becomes the lengths."""
    sums = np.empty((len(parts), TOGETHER + 1), INT64)
    kernel = _counted(crd.itemsize, ends.itemsize, len(parts) == 1)
    behind, room, step = [address(a) for a in (pos, crd, ends, made, longest)], address(sums), sums.strides[0]
    run_parts(kernel, [(*pair, *behind, room + k * step) for k, pair in enumerate(parts)])


def numbered(
    pos: Array,
    stops: Sequence[int] | None,
    made: Array,
    places: tuple[Array, Array],
    columns: tuple[Array, Sequence[Array]],
    targets: tuple[Array, Sequence[Array]],
    parts: Parts,
    tidies: bool = True,
) -> None:
    """`targets` become the coordinates and columns of the entries that were kept, up to a stop of each part, or, without `stops`, of all, permuted; in
    every segment in order, if that is to be done here."""
    (ends, order), (crd, others), (out, moved) = places, columns, targets
    sizes = tuple([column.itemsize for column in moved])
    kernel = _numbered(crd.itemsize, ends.itemsize, order.itemsize, out.itemsize, sizes, stops is None, tidies)
    room, rows = aside(len(parts), out.itemsize, sizes)
    slots = pos, made, ends, order, crd, *others, out, *moved
    until = [int(pos[end]) for _, end in parts] if stops is None else stops
    if len(parts) == 1:
        run(kernel, *parts[0], until[0], len(out), *slots, *rows[0])
    else:
        behind = [len(out), *map(address, slots)]
        run_parts(kernel, [(*pair, stop, *behind, *row) for pair, stop, row in zip(parts, until, rows, strict=True)])
    del room  # until here, threads write to it


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
    pos, crd, words, made, out = vectors(b, 2, (8, size, 8, 8, size), ("pos", "crd", "words", "made", "out"))
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
        made.put(b, b.add(r, 1), b.get(at))


@as_kernel
def _counted(b: Builder, size: int, ends_size: int, alone: bool) -> None:
    """Some entries at a time are counted, up to each of them, before their segments are looked at: how many entries one has is not to be foreseen."""
    first, end = b.slot(0, "i64", "first"), b.slot(1, "i64", "end")
    names = "pos", "crd", "ends", "made", "longest", "sums"
    pos, crd, ends, made, longest, sums = vectors(b, 2, (8, size, ends_size, 8, 8, 8), names)
    total, before, most = (b.var(name, b.i64(0)) for name in ("total", "before", "most"))
    r, at, last = b.var("r", first), b.var("at", pos.get(b, first)), b.var("last", b.i64(0))
    with b.if_(b.lt(first, end)):
        b.set(last, made.get(b, end))
    if alone:
        made.put(b, b.i64(0), b.i64(0))
    with b.while_(lambda: b.lt(b.get(r), end)):
        start = b.named("start", b.get(at))
        stop = b.named("stop", b.min(b.add(start, TOGETHER), b.get(last)))
        sums.put(b, b.i64(0), b.get(total))
        with b.for_(start, stop, "p") as p:
            c = b.named("c", crd.number(b, p))
            b.increment(total, b.sub(ends.number(b, b.add(c, 1)), ends.number(b, c)))
            sums.put(b, b.add(b.sub(p, start), 1), b.get(total))
        b.set(at, stop)
        row_end = b.var("row_end", b.i64(0))

        def whole() -> Val:
            """Whether the next segment ends among these entries."""
            inside = b.lt(b.get(r), end)
            b.set(row_end, made.get(b, b.add(b.min(b.get(r), b.sub(end, 1)), 1)))
            return b.and_(inside, b.compare("sle", b.get(row_end), stop))

        with b.while_(whole):
            here = b.named("here", sums.get(b, b.sub(b.get(row_end), start)))
            length = b.named("length", b.sub(here, b.get(before)))
            b.set(most, b.max(b.get(most), length))
            b.set(before, here)
            made.put(b, b.add(b.get(r), 1), here if alone else length)
            b.increment(r)
    if alone:
        longest.put(b, b.i64(0), b.get(most))


@as_kernel
def _numbered(
    b: Builder,
    size: int,
    ends_size: int,
    order_size: int,
    out_size: int,
    sizes: tuple[int, ...],
    whole: bool,
    tidies: bool,
) -> None:
    first, end, until, stop = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "until", "stop")))
    pos, made, ends, order = vectors(b, 4, (8, 8, ends_size, order_size), ("pos", "made", "ends", "order"))
    count = len(sizes)
    crd, *sources = vectors(b, 8, (size, *sizes), ["source"] * (count + 1))
    out, *targets = vectors(b, 9 + count, (out_size, *sizes), ["target"] * (count + 1))
    number, *kept = vectors(b, 10 + 2 * count, (8, out_size, *sizes), ["number", *["kept"] * (count + 1)])
    moves, segments = list(zip(sources, targets, strict=True)), Segments((out, *targets), kept, number, stop)
    at, begin = b.var("at", made.get(b, first)), b.named("begin", pos.get(b, first))
    with b.if_(b.lt(first, end)):
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
    if tidies:
        with b.for_(first, end, "r") as r:
            segments.tidy(b, made.get(b, r), made.get(b, b.add(r, 1)))


def _put(b: Builder, at: Var, number: Val, p: Val, out: Vector, moves: Pairs) -> None:
    """Entry `p`, with this number, to the next place."""
    to = b.get(at)
    out.put(b, to, out.element(b, number))
    for source, target in moves:
        target.put(b, to, source.get(b, p))
    b.increment(at)


def few(
    pos: Array, crd: Array, listed: Array, extent: int, columns: Sequence[Array]
) -> tuple[Array, Array, list[Array]] | None:
    """(pos, crd, columns) of few entries, with one column, in one kernel: the list is turned around, entries are counted, numbered and put in order. There is
    room for twice as many as lists name on the average; where more are named, the kernel tells how many, and runs once more. None where a segment is too
    long to be ranked."""
    (vals,) = columns
    rows, count, entries = len(pos) - 1, len(listed), int(pos[-1]) - int(pos[0])
    width = crd_dtype(count)
    made, told, table = np.empty(rows + 1, INT64), np.empty(2, INT64), np.empty(extent + 1 + count, np.int32)
    aside_room, (slots,) = aside(1, width.itemsize, (vals.itemsize,))
    kernel = _few(crd.itemsize, listed.itemsize, width.itemsize, vals.itemsize)
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
def _few(b: Builder, size: int, listed_size: int, out_size: int, vals_size: int) -> None:
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
