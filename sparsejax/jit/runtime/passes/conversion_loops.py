"""The loops of the passes that conversions are made of (`formats.passes`): what one kernel for each runs, and `conversions` in a row.

    counted, summed, moved    entries ordered by buckets: count, add up, move entry by entry; the histogram becomes `pos`. What an entry
               will touch is prefetched: its bucket first, its new place later (2 to 3 times as fast on a million entries). Entries of
               an earlier part come first in every bucket
    owners     a vector of equal numbers at the beginning of every segment; the next segment overwrites what is too much
    offsets    of crowded rows: every entry writes where its row would end after it; of sparse ones: behind the row of the entry before, a
               vector of the entry's number. In both, what comes later overwrites what is too much. A row may be several numbers side by side
    turned     `ROWS` rows of a matrix at once, column by column
    distinct   every entry is written at the place of the one before or behind it, without a branch

Source: counting sort as in Gustavson, "Two fast algorithms for sparse matrices" (1978), and "Automatic Generation of Efficient Sparse
Tensor Format Conversion Routines", section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsejax.formats.levels.walk import lower_bound
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen import kernel_memory

LANES = 16
"""Numbers that are written at once: room for as many is left behind what `owners` writes."""
ROWS = 8
"""Rows that are looked at, or written, at once."""
SOON, LATER = 16, 32
"""How many entries ahead new places and buckets are prefetched."""


@dataclass(frozen=True)
class Vector:
    """A vector of elements of `size` bytes, whatever they are."""

    pointer: Val
    size: int

    @staticmethod
    def in_slot(b: Builder, slot: int, size: int, name: str) -> Vector:
        return Vector(b.slot(slot, "ptr", name), size)

    @property
    def type(self) -> str:
        return "<2 x i64>" if self.size == 16 else f"i{8 * self.size}"

    @property
    def _words(self) -> int:
        return 2 if self.size == 16 else 1

    def get(self, b: Builder, at: Val) -> Val:
        return b.load(self.pointer, b.mul(at, self._words), self.type)

    def number(self, b: Builder, at: Val) -> Val:
        """The element as a number that is not negative."""
        value = self.get(b, at)
        return value if self.type == "i64" else b.convert("zext", value, "i64")

    def element(self, b: Builder, number: Val) -> Val:
        """An i64 as an element."""
        return number if self.type == "i64" else b.convert("trunc", number, self.type)

    def of(self, b: Builder, source: Vector, at: Val) -> Val:
        """An element of a vector as one of this one: the low bits of a number where these are fewer."""
        value = source.get(b, at)
        return value if source.size <= self.size else b.convert("trunc", value, self.type)

    def put(self, b: Builder, at: Val, value: Val) -> None:
        b.store(self.pointer, b.mul(at, self._words), value)

    def prefetch(self, b: Builder, at: Val) -> None:
        """Fetch what is to be written later."""
        kernel_memory.prefetch(b, self.pointer, at, self.size, written=True)


Pairs = Sequence[tuple[Vector, Vector]]
"""Columns, and where their entries go."""


def owners(b: Builder, parents: Val, pos: Vector, out: Vector) -> None:
    with b.for_(b.i64(0), parents, "r") as r:
        value = b.splat(out.element(b, r), LANES)
        start, end = pos.get(b, r), pos.get(b, b.add(r, 1))
        b.store(out.pointer, start, value)  # of empty segments too: a branch would be hard to predict
        at = b.var("at", b.add(start, LANES))
        with b.while_(lambda: b.lt(b.get(at), end)):
            b.store(out.pointer, b.get(at), value)
            b.increment(at, LANES)


@dataclass(frozen=True)
class Rows:
    """The row of every entry, from a base on, of as many numbers side by side as a shift drops."""

    parent: Vector
    shift: Val
    base: Val

    def number(self, b: Builder, p: Val) -> Val:
        return b.binary("lshr", b.sub(self.parent.number(b, p), self.base), self.shift)


def offsets(
    b: Builder, first: Val, end: Val, entries: Val, parents: Val, parent: Vector | Rows, pos: Vector, crowded: bool
) -> None:
    """What the entries from `first` to `end` tell: each part writes places of its own, together all."""
    (_ends if crowded else _starts)(b, first, end, entries, parents, parent, pos)


def _ends(b: Builder, first: Val, end: Val, entries: Val, parents: Val, parent: Vector | Rows, pos: Vector) -> None:
    """Where rows end that end here: every entry writes the end of its row, of which the last one counts; empty rows get what is before."""
    low, high, stop = b.var("low", b.i64(0)), b.var("high", parents), b.var("stop", end)
    with b.if_(b.lt(b.i64(0), first)):
        b.set(low, b.add(parent.number(b, first), 1))
    with b.if_(b.lt(end, entries)):
        following = b.named("following", parent.number(b, end))
        b.set(high, following)
        b.set(stop, lower_bound(b, lambda p: b.lt(parent.number(b, p), following), first, end))
    after = b.named("after", b.add(b.get(high), 1))
    with b.if_(b.lt(b.get(low), after)):
        kernel_memory.clear(b, pos.pointer, b.get(low), after, pos.size)
        with b.for_(first, b.get(stop), "p") as p:
            pos.put(b, b.add(parent.number(b, p), 1), pos.element(b, b.add(p, 1)))
        start = b.named("start", b.max(b.get(low), b.i64(1)))
        vectors = b.binary("sdiv", b.sub(after, start), b.i64(ROWS))
        with b.for_(b.i64(0), vectors, "w") as w:
            at = b.named("at", b.add(start, b.mul(w, ROWS)))
            empty = b.eq(b.load(pos.pointer, at, f"<{ROWS} x {pos.type}>"), b.splat(b.const(pos.type, 0), ROWS))
            with b.if_(b.ne(b.convert("bitcast", empty, f"i{ROWS}"), b.const(f"i{ROWS}", 0))):
                _filled(b, pos, at, b.add(at, ROWS))
        _filled(b, pos, b.add(start, b.mul(vectors, ROWS)), after)


def _filled(b: Builder, pos: Vector, lo: Val, hi: Val) -> None:
    """Where nothing was written, what stands before."""
    with b.for_(lo, hi, "r") as r:
        here = pos.get(b, r)
        pos.put(b, r, b.select(b.eq(here, b.const(pos.type, 0)), pos.get(b, b.sub(r, 1)), here))


def _starts(b: Builder, first: Val, end: Val, entries: Val, parents: Val, parent: Vector | Rows, pos: Vector) -> None:
    """Where rows start that start here, and the empty ones before them: every entry writes its number behind the row of the one before,
    several times; the next row overwrites what is too much."""
    before, p = b.var("before", b.i64(-1)), b.var("p", first)
    with b.if_(b.lt(b.i64(0), first)):
        b.set(before, parent.number(b, b.sub(first, 1)))
    inside = b.var("inside", b.i64(-1))  # a vector behind an earlier row stays before the last one
    with b.if_(b.lt(first, end)):
        b.set(inside, b.sub(parent.number(b, b.sub(end, 1)), ROWS))
    bound = b.get(inside)
    with b.while_(lambda: b.and_(b.lt(b.get(p), end), b.lt(b.get(before), bound))):
        here, row = b.get(p), b.get(before)
        b.store(pos.pointer, b.add(row, 1), b.splat(pos.element(b, here), ROWS))
        now = b.named("now", parent.number(b, here))
        with b.if_(b.lt(b.add(row, ROWS), now)):
            _equal(b, pos, b.add(row, 1 + ROWS), b.add(now, 1), here)
        b.set(before, now)
        b.increment(p)
    with b.while_(lambda: b.lt(b.get(p), end)):
        here, now = b.get(p), parent.number(b, b.get(p))
        _equal(b, pos, b.add(b.get(before), 1), b.add(now, 1), here)
        b.set(before, now)
        b.increment(p)
    with b.if_(b.eq(end, entries)):
        _equal(b, pos, b.add(b.get(before), 1), b.add(parents, 1), entries)


def _equal(b: Builder, pos: Vector, lo: Val, hi: Val, value: Val) -> None:
    number = b.named("number", pos.element(b, value))
    with b.for_(lo, hi, "r") as r:
        pos.put(b, r, number)


def take(b: Builder, entries: Val, column: Vector, index: Vector, out: Vector) -> None:
    with b.for_(b.i64(0), entries, "p") as p:
        out.put(b, p, column.get(b, index.number(b, p)))


@dataclass(frozen=True)
class Part:
    """The entries from `first` to `end`, to be ordered by buckets of their keys; a place for each bucket."""

    first: Val
    end: Val
    buckets: Val
    shift: Val
    mask: Val
    key: Vector
    places: Vector

    def bucket(self, b: Builder, p: Val) -> Val:
        return b.named("bucket", b.and_(b.binary("lshr", self.key.number(b, p), self.shift), self.mask))


def counted(b: Builder, part: Part) -> None:
    """The entries of every bucket."""
    kernel_memory.clear(b, part.places.pointer, b.i64(0), part.buckets, part.places.size)
    with b.for_(part.first, part.end, "p") as p:
        here = part.bucket(b, p)
        part.places.put(b, here, b.add(part.places.get(b, here), 1))


def summed(b: Builder, parts: Val, buckets: Val, places: Vector, pos: Vector) -> None:
    """Numbers of entries become places, bucket by bucket, part by part; and where each bucket begins."""
    total = b.var("total", b.i64(0))
    with b.for_(b.i64(0), buckets, "r") as r:
        pos.put(b, r, b.get(total))
        at = b.var("at", r)
        with b.for_(b.i64(0), parts, "part"):
            here, before = b.get(at), b.get(total)
            b.increment(total, places.number(b, here))
            places.put(b, here, places.element(b, before))
            b.increment(at, buckets)
    pos.put(b, buckets, b.get(total))


def moved(b: Builder, part: Part, moves: Pairs, ahead: bool) -> None:
    """Entries to the places of their buckets."""
    last = b.sub(part.end, 1)
    with b.for_(part.first, part.end, "p") as p:
        if ahead:
            fetch(b, part, [target for _, target in moves], p, last)
        _move(b, part, moves, p)


def moved_by_rows(b: Builder, part: Part, rows: Val, pos: Vector, owner: Vector, moves: Pairs, ahead: bool) -> None:
    """The same for entries that lie row by row, the number of its row going to `owner` with each: no column has to be made of it before."""
    last = b.sub(part.end, 1)
    with b.for_(b.i64(0), rows, "r") as r:
        number = b.named("number", owner.element(b, r))
        with b.for_(pos.get(b, r), pos.get(b, b.add(r, 1)), "p") as p:
            if ahead:
                fetch(b, part, [owner, *(target for _, target in moves)], p, last)
            owner.put(b, _move(b, part, moves, p), number)


def fetch(b: Builder, part: Part, targets: Sequence[Vector], p: Val, last: Val) -> None:
    """Fetch what entries after `p` will touch, up to `last`."""
    part.places.prefetch(b, part.bucket(b, b.min(b.add(p, LATER), last)))
    soon = b.named("soon", part.places.number(b, part.bucket(b, b.min(b.add(p, SOON), last))))
    for target in targets:
        target.prefetch(b, soon)


def _move(b: Builder, part: Part, moves: Pairs, p: Val) -> Val:
    """Entry `p` to the next place of its bucket, which is returned."""
    here = part.bucket(b, p)
    to = b.named("to", part.places.number(b, here))
    for source, target in moves:
        target.put(b, to, target.of(b, source, p))
    part.places.put(b, here, part.places.element(b, b.add(to, 1)))
    return to


def distinct(b: Builder, entries: Val, number: Vector, moves: Pairs) -> None:
    place = b.var("place", b.i64(0))
    with b.if_(b.lt(b.i64(0), entries)):
        for source, target in moves:
            target.put(b, b.i64(0), source.get(b, b.i64(0)))
        number.put(b, b.i64(0), b.const(number.type, 0))
    with b.for_(b.i64(1), entries, "p") as p:
        fresh = b.const("i1", 0)
        values = [source.get(b, p) for source, _ in moves]
        for (source, _), value in zip(moves, values, strict=True):
            fresh = b.binary("or", fresh, b.ne(value, source.get(b, b.sub(p, 1))))
        b.increment(place, b.convert("zext", fresh, "i64"))
        here = b.get(place)
        for (_, target), value in zip(moves, values, strict=True):
            target.put(b, here, value)
        number.put(b, p, number.element(b, here))


def grid(b: Builder, count: Val, extent: Val, owners: Vector, numbers: Vector) -> None:
    with b.for_(b.i64(0), count, "r") as r:
        first = b.named("first", b.mul(r, extent))
        with b.for_(b.i64(0), extent, "c") as c:
            at = b.add(first, c)
            owners.put(b, at, owners.element(b, r))
            numbers.put(b, at, numbers.element(b, c))


def joined(b: Builder, entries: Val, size: Val, block: Vector, place: Vector, out: Vector) -> None:
    with b.for_(b.i64(0), entries, "p") as p:
        out.put(b, p, out.element(b, b.add(b.mul(block.number(b, p), size), place.number(b, p))))


def spread(b: Builder, entries: Val, vals: Vector, position: Vector, out: Vector) -> None:
    with b.for_(b.i64(0), entries, "p") as p:
        out.put(b, position.number(b, p), vals.get(b, p))


def turned(b: Builder, rows: Val, columns: Val, matrix: Vector, out: Vector) -> None:
    """The columns of a matrix: `ROWS` of its rows at a time, so that what is read and what is written are whole cache lines."""
    inner = b.named("inner", b.mul(b.binary("sdiv", rows, b.i64(ROWS)), ROWS))

    def column(r: Val, c: Val, count: int) -> None:
        read, write = b.named("read", b.add(b.mul(r, columns), c)), b.named("write", b.add(b.mul(c, rows), r))
        values = [matrix.get(b, b.add(read, b.mul(columns, k))) for k in range(count)]
        for k, value in enumerate(values):
            out.put(b, b.add(write, k), value)

    with b.for_(b.i64(0), inner, "r", ROWS) as r, b.for_(b.i64(0), columns, "c") as c:
        column(r, c, ROWS)
    with b.for_(inner, rows, "r") as r, b.for_(b.i64(0), columns, "c") as c:
        column(r, c, 1)
