"""The entries of segments whose coordinates a list names, as often as it does, numbered by their places in it: what three kernels run, and
of few entries one.

    kept       pos, crd           the entries that are named: each is written at the next place, which moves on where it is named, without a branch
    counted    of those           where every segment of the result ends; coordinates become ranks (`ranked_names`)
    numbered   of those           order[ends[r]:ends[r + 1]] in place of each rank r; then segments are put in order

Where the list names no coordinate twice, what is kept is as long as the result, and becomes that in its own memory. A list that names all coordinates
once is a permutation: entries stay in their segments, and `order` alone is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsejax.formats.passes import Array, Room, crd_dtype
from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.runtime.passes import block_by_block, lengths, segment_loops
from sparsejax.jit.runtime.passes.conversion_loops import SOON, Pairs, Vector
from sparsejax.jit.runtime.passes.listed import ranked_names
from sparsejax.jit.runtime.passes.listed.ranked_names import Names
from sparsejax.jit.runtime.passes.pass_kernels import (
    INT64,
    address,
    as_kernel,
    closed_up,
    empty,
    pairs_of,
    run,
    run_parts,
    vectors,
)
from sparsejax.jit.runtime.passes.pass_kernels import room as memory
from sparsejax.jit.runtime.passes.ranked_segments import Segments, aside, longest

SHORT = 16
"""Segments with fewer entries in the mean are not looked at one by one: how many each has is not to be foreseen."""
TOGETHER = 512
"""Entries whose numbers are counted before their segments are looked at."""
SPARE = 64
"""Entries that there is room for beyond twice as many as are expected; four times as many may stay behind a result."""
TOTAL, LONGEST = range(2)
"""What the kernel of few entries tells: how many there are, and how many of them in the longest segment."""
FARTHER = 1 << 20
"""Bytes of tables from which what is looked up is fetched ahead."""
Parts = Sequence[tuple[int, int]]


class Entries(NamedTuple):
    """Entries in segments, in the parts that threads take; `stops`, where those of each part end."""

    pos: Array
    crd: Array
    columns: Sequence[Array]
    parts: Parts
    stops: Sequence[int]


class Lookups(NamedTuple):
    """What is looked up for an entry, one after the other: the rank of its coordinate, the numbers of that, and their places."""

    table: Array | None
    ends: Array | None
    order: Array | None


Made = tuple[Array, Array, list[Array], bool]


def named(
    given: tuple[Array, Array, Sequence[Array]], names: Names, places: int, extent: int, parts: Parts, room: Room | None
) -> Made | None:
    """(pos, crd, columns, whether segments are still to be put in order) of the entries (pos, crd, columns) that a list of so many `places` names; `room`
    for as many coordinates and values may be given. None where segments are too long for several columns."""
    pos = given[0]
    entries = Entries(*given, parts, [int(pos[end]) for _, end in parts])
    if names.ends is not None:
        return _often(entries, names, places, room)
    if names.count < extent:
        return _once(entries, names, places, room)
    # a permutation: segments are as long as before
    made = pos - pos[0] if pos[0] else pos
    return _written(entries, made, Lookups(None, None, names.order), names.falls, places, room)


def _once(given: Entries, names: Names, places: int, room: Room | None) -> Made | None:
    """As `named`, where no coordinate is twice: what is kept becomes the result in its own memory."""
    near, lookups = names.near, Lookups(None if names.near else names.table, None, None if names.near else names.order)
    dtype = crd_dtype(places) if near else given.crd.dtype
    kept, written = _kept(given, names.table, dtype, near)
    pieces = [slice(int(given.pos[first]), stop) for (first, _), stop in zip(given.parts, kept.stops, strict=True)]
    _close_up(written, given.parts, pieces)
    made = kept.pos
    if room is not None or dtype != crd_dtype(places):
        return _written(kept._replace(pos=given.pos), made, lookups, names.falls, places, room)
    crd, columns = closed_up(kept.crd, pieces), [closed_up(column, pieces) for column in kept.columns]
    if near and (not names.falls or len(columns) == 1):
        return made, crd, columns, names.falls
    kept = Entries(made, crd, columns, given.parts, [int(made[end]) for _, end in given.parts])
    return _written(kept, made, lookups, names.falls, places, lambda _: (crd, *columns))


def _often(given: Entries, names: Names, places: int, room: Room | None) -> Made | None:
    """As `named`, where some are twice: what is kept is counted, and then each entry written as often as it is named."""
    assert names.ends is not None
    kept, _ = _kept(given, names.table, given.crd.dtype, False)
    made = kept.pos
    most = _counted(given.pos, kept.crd, names.table, names.ends, made, given.parts)
    kept = kept._replace(pos=given.pos)
    return _written(kept, made, Lookups(None, names.ends, names.order), names.falls, places, room, most)


def _kept(given: Entries, table: Array, dtype: np.dtype[Any], near: bool) -> tuple[Entries, Array]:
    """The entries that are named, those of a part from where its entries began; where these end in every segment, also to be written to. Of a table that is
    `near`, coordinates become the places there."""
    # there is room for all, of which the pages are touched that hold something
    pos, crd, columns, parts, stops = given
    out, moved = np.empty(len(crd), dtype), [np.empty(len(crd), column.dtype) for column in columns]
    made, written = memory(len(pos), INT64)
    pairs = [address(a) for pair in zip(columns, moved, strict=True) for a in pair]
    before, sums = [address(a) for a in (pos, crd, table, made, out)], np.empty((len(parts), TOGETHER + 1), INT64)
    sizes, short = tuple([column.itemsize for column in columns]), len(crd) < SHORT * len(pos)
    kernel = _keep(crd.itemsize, table.itemsize, out.itemsize, sizes, near, short)
    room, step = address(sums), sums.strides[0]
    run_parts(kernel, [(*pair, *before, room + k * step, *pairs) for k, pair in enumerate(parts)])
    ends = [int(made[end]) if first < end else stop for (first, end), stop in zip(parts, stops, strict=True)]
    return Entries(made, out, moved, parts, ends), written


def _close_up(made: Array, parts: Parts, pieces: Sequence[slice]) -> None:
    """Where segments end, of parts that have written from where their entries began, becomes where they end when these stand behind each other."""
    made[0], found = 0, 0
    for (begin, end), piece in zip(parts, pieces, strict=True):
        if found != piece.start:
            made[begin + 1 : end + 1] += found - piece.start
        found += piece.stop - piece.start


def _counted(pos: Array, crd: Array, table: Array, ends: Array, made: Array, parts: Parts) -> int:
    """The length of the longest segment of the result; `made`, where those of what is kept end, becomes where these do, and coordinates become ranks."""
    sums, length = np.empty((len(parts), TOGETHER + 1), INT64), np.zeros(1, INT64)
    kernel = _count(crd.itemsize, ends.itemsize, len(parts) == 1)
    behind, room, step = [address(a) for a in (pos, crd, table, ends, made, length)], address(sums), sums.strides[0]
    run_parts(kernel, [(*pair, *behind, room + k * step) for k, pair in enumerate(parts)])
    if len(parts) > 1:
        run(lengths.summed(), len(made) - 1, made, length)
    return int(length[0])


def _written(
    given: Entries,
    made: Array,
    lookups: Lookups,
    falls: bool,
    places: int,
    room: Room | None,
    most: int | None = None,
) -> Made | None:
    """As `named`: what is looked up of entries, in segments that end where `made` says, `most` of them in one, and put in order if the list `falls`; `room`
    may be the memory of what is given, where each entry stays one."""
    (pos, crd, others, parts, stops), dtype, found = given, crd_dtype(places), int(made[-1])
    long = falls and (block_by_block.longest(made) if most is None else most) > longest(dtype.itemsize)
    if long and len(others) != 1:
        return None
    if room is None:
        out, moved = empty(found, dtype), [empty(found, column.dtype) for column in others]
    else:
        out, *moved = room(found)
    sizes = tuple([column.itemsize for column in moved])
    widths = tuple([None if table is None else table.itemsize for table in lookups])
    ahead = any(table is not None and table.nbytes >= FARTHER for table in lookups[1:])
    kernel = _write(crd.itemsize, out.itemsize, sizes, widths, falls and not long, ahead)
    beside, rows = aside(len(parts), out.itemsize, sizes)
    slots = pos, made, crd, *others, out, *moved, *(table for table in lookups if table is not None)
    if len(parts) == 1:
        run(kernel, *parts[0], stops[0], len(out), *rows[0], *slots)
    else:
        behind = list(map(address, slots))
        run_parts(
            kernel, [(*pair, stop, len(out), *row, *behind) for pair, stop, row in zip(parts, stops, rows, strict=True)]
        )
    del beside  # until here, threads write to it
    return made, out, moved, long


@as_kernel
def _keep(
    b: Builder, size: int, table_size: int, out_size: int, sizes: tuple[int, ...], near: bool, short: bool
) -> None:
    first, end = b.slot(0, "i64", "first"), b.slot(1, "i64", "end")
    names = "pos", "crd", "table", "made", "out", "sums"
    pos, crd, table, made, out, sums = vectors(b, 2, (8, size, table_size, 8, out_size, 8), names)
    moves = pairs_of(b, 8, sizes)
    begin = b.named("begin", pos.get(b, first))
    at = b.var("at", begin)

    def keep(p: Val) -> None:
        to, c = b.get(at), b.named("c", crd.number(b, p))
        place = table.get(b, c) if near else c
        out.put(b, to, place if near else out.element(b, c))
        for source, target in moves:
            target.put(b, to, source.get(b, p))
        here = b.lt(b.const(table.type, -1), place) if near else ranked_names.is_named(b, table, c)
        b.increment(at, b.convert("zext", here, "i64") if near else here)

    if short:
        last = b.named("last", pos.get(b, end))
        _by_blocks(b, (first, end), (begin, last), pos, sums, at, keep, lambda r, here: made.put(b, b.add(r, 1), here))
    else:
        with b.for_(first, end, "r") as r:
            with b.for_(pos.get(b, r), pos.get(b, b.add(r, 1)), "p") as p:
                keep(p)
            made.put(b, b.add(r, 1), b.get(at))


@as_kernel
def _count(b: Builder, size: int, ends_size: int, alone: bool) -> None:
    first, end = b.slot(0, "i64", "first"), b.slot(1, "i64", "end")
    names = "pos", "crd", "table", "ends", "made", "longest", "sums"
    pos, crd, table, ends, made, longest, sums = vectors(b, 2, (8, size, 8, ends_size, 8, 8, 8), names)
    total, before, most, last = (b.var(name, b.i64(0)) for name in ("total", "before", "most", "last"))
    with b.if_(b.lt(first, end)):
        b.set(last, made.get(b, end))
    if alone:
        made.put(b, b.i64(0), b.i64(0))

    def count(p: Val) -> None:
        c = b.named("c", ranked_names.rank(b, table, b.named("c", crd.number(b, p))))
        crd.put(b, p, crd.element(b, c))
        b.increment(total, b.sub(ends.number(b, b.add(c, 1)), ends.number(b, c)))

    def put(r: Val, here: Val) -> None:
        length = b.named("length", b.sub(here, b.get(before)))
        b.set(most, b.max(b.get(most), length))
        b.set(before, here)
        made.put(b, b.add(r, 1), here if alone else length)

    _by_blocks(b, (first, end), (pos.get(b, first), b.get(last)), made, sums, total, count, put)
    if alone:
        longest.put(b, b.i64(0), b.get(most))


def _by_blocks(
    b: Builder,
    rows: tuple[Val, Val],
    entries: tuple[Val, Val],
    ends: Vector,
    sums: Vector,
    total: Var,
    each: Callable[[Val], None],
    put: Callable[[Val, Val], None],
) -> None:
    """Visit entries, which move `total` on, some at a time, before the segments that end among them are told what it was there: how many entries one has is
    not to be foreseen."""
    (first, end), (begin, last) = rows, entries
    r, at = b.var("r", first), b.var("at", begin)
    with b.while_(lambda: b.lt(b.get(r), end)):
        start = b.named("start", b.get(at))
        stop = b.named("stop", b.min(b.add(start, TOGETHER), last))
        sums.put(b, b.i64(0), b.get(total))
        with b.for_(start, stop, "p") as p:
            each(p)
            sums.put(b, b.add(b.sub(p, start), 1), b.get(total))
        b.set(at, stop)
        row_end = b.var("row_end", b.i64(0))

        def whole() -> Val:
            """Whether the next segment ends among these entries."""
            inside = b.lt(b.get(r), end)
            b.set(row_end, ends.get(b, b.add(b.min(b.get(r), b.sub(end, 1)), 1)))
            return b.and_(inside, b.compare("sle", b.get(row_end), stop))

        with b.while_(whole):
            put(b.get(r), b.named("here", sums.get(b, b.sub(b.get(row_end), start))))
            b.increment(r)


@as_kernel
def _write(
    b: Builder,
    size: int,
    out_size: int,
    sizes: tuple[int, ...],
    widths: tuple[int | None, ...],
    tidies: bool,
    ahead: bool,
) -> None:
    first, end, until, stop = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "until", "stop")))
    count = len(sizes)
    number, *kept = vectors(b, 4, (8, out_size, *sizes), ["number", *["kept"] * (count + 1)])
    begun = 6 + count
    pos, made, crd, *sources = vectors(b, begun, (8, 8, size, *sizes), ["pos", "made", *["source"] * (count + 1)])
    out, *targets = vectors(b, begun + 3 + count, (out_size, *sizes), ["target"] * (count + 1))
    tables = iter(
        vectors(b, begun + 4 + 2 * count, [w for w in widths if w], ["table"] * sum(w is not None for w in widths))
    )
    table, ends, order = (None if width is None else next(tables) for width in widths)
    moves, segments = list(zip(sources, targets, strict=True)), Segments((out, *targets), kept, number, stop)
    far = (order if ends is None else ends) if ahead else None
    at, begin = b.var("at", made.get(b, first)), b.named("begin", pos.get(b, first))

    def place(q: Val) -> Val:
        return q if order is None else order.number(b, q)

    with b.if_(b.lt(first, end)):
        last = b.named("last", b.sub(until, 1))
        with b.for_(begin, until, "p") as p:
            c = b.named("c", crd.number(b, p))
            if table is not None:
                c = b.named("c", ranked_names.rank(b, table, c))
            elif far is not None:
                far.prefetch(b, crd.number(b, b.min(b.add(p, SOON), last)))
            if ends is None:
                _put(b, at, place(c), p, out, moves)
            else:
                with b.for_(ends.number(b, c), ends.number(b, b.add(c, 1)), "q") as q:
                    _put(b, at, place(q), p, out, moves)
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
