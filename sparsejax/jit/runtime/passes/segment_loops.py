"""The loops of the passes that take parts of arrays (`formats.passes`), segment by segment: what one kernel for each runs.

lengths    how many entries each segment of the result has: of segments that are picked, inside a range, or named; `summed` makes `pos`
copied     the segments from where they begin to where they go; the beginnings of later ones are prefetched
compacted  every entry is written at the next place, without a branch, which moves on where it is inside; until there are all
located    a binary search in every segment, without branches but for its end
lined      rows at whose ends some diagonals are outside entry by entry; between these, `ROWS` rows at once
recurred   one multiplication and one sum after the other
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparsejax.formats.levels.walk import find
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen.kernel_memory import clear
from sparsejax.jit.runtime.passes.conversion_loops import Pairs, Vector
from sparsejax.jit.runtime.passes.ranked_segments import Segments

AHEAD = 16
"""How many segments ahead entries are prefetched."""
ROWS = 8
"""Rows of as many entries each that are written at once."""


@dataclass(frozen=True)
class Lengths:
    """The lengths of the segments from `first` to `end` of a result, each behind its place in `made`; where these are all (`alone`), `made`
    becomes their `pos` at once, and `longest` gets the largest length."""

    first: Val
    end: Val
    made: Vector
    longest: Vector
    alone: bool

    def put(self, b: Builder, of: Callable[[Val], Val]) -> None:
        if self.alone:
            _summed(b, self.end, self.made, self.longest, of)
            return
        with b.for_(self.first, self.end, "r") as r:
            self.made.put(b, b.add(r, 1), of(r))


def summed(b: Builder, rows: Val, made: Vector, longest: Vector) -> None:
    """Lengths become `pos`; and the longest of them."""
    _summed(b, rows, made, longest, lambda r: made.get(b, b.add(r, 1)))


def _summed(b: Builder, rows: Val, made: Vector, longest: Vector, of: Callable[[Val], Val]) -> None:
    total, most = b.var("total", b.i64(0)), b.var("most", b.i64(0))
    made.put(b, b.i64(0), b.i64(0))
    with b.for_(b.i64(0), rows, "r") as r:
        length = b.named("length", of(r))
        b.increment(total, length)
        b.set(most, b.max(b.get(most), length))
        made.put(b, b.add(r, 1), b.get(total))
    longest.put(b, b.i64(0), b.get(most))


def numbered(b: Builder, count: Val, extent: Val, listed: Vector, ends: Vector, order: Vector) -> None:
    """How often each coordinate comes, where its numbers begin, and the numbers: where they begin is moved on, and back again."""
    clear(b, ends.pointer, b.i64(0), b.add(extent, 1), ends.size)

    def put(at: Val, number: Val) -> None:
        ends.put(b, at, ends.element(b, number))

    with b.for_(b.i64(0), count, "k") as k:
        c = b.named("c", listed.number(b, k))
        put(c, b.add(ends.number(b, c), 1))
    total = b.var("total", b.i64(0))
    with b.for_(b.i64(0), b.add(extent, 1), "c") as c:
        here = b.named("here", ends.number(b, c))
        put(c, b.get(total))
        b.increment(total, here)
    with b.for_(b.i64(0), count, "k") as k:
        c = b.named("c", listed.number(b, k))
        at = b.named("at", ends.number(b, c))
        order.put(b, at, order.element(b, k))
        put(c, b.add(at, 1))
    before = b.var("before", b.i64(0))
    with b.for_(b.i64(0), extent, "c") as c:
        here = b.named("here", ends.number(b, c))
        put(c, b.get(before))
        b.set(before, here)


def picked(b: Builder, lengths: Lengths, pos: Vector, index: Vector, start: Vector, ends: Vector | None) -> None:
    def length(r: Val) -> Val:
        p = b.named("p", index.get(b, r))
        begin = b.named("begin", pos.get(b, p))
        start.put(b, r, begin)
        count = b.i64(1) if ends is None else b.sub(ends.get(b, b.add(r, 1)), ends.get(b, r))
        return b.sub(pos.get(b, b.add(p, count)), begin)

    lengths.put(b, length)


def copied(
    b: Builder, first: Val, end: Val, start: Vector, pos: Vector, moves: Pairs, ahead: bool, place: Vector | None = None
) -> None:
    last = b.sub(end, 1)
    with b.for_(first, end, "r") as r:
        if ahead:
            later = b.named("later", start.get(b, b.min(b.add(r, AHEAD), last)))
            for source, _ in moves:
                source.prefetch(b, later)
        begin, lo, hi = start.get(b, r), pos.get(b, r), pos.get(b, b.add(r, 1))
        offset = b.named("offset", b.sub(begin, lo))
        with b.for_(lo, hi, "p") as p:
            for source, target in moves:
                target.put(b, p, source.get(b, b.add(p, offset)))
            if place is not None:
                place.put(b, p, b.add(p, offset))


def counted(b: Builder, lengths: Lengths, pos: Vector, of: Callable[[Val], Val]) -> None:
    """What the entries of every segment count, added up."""
    _counted(b, lengths, pos, lambda r: of)


def counted_below(b: Builder, lengths: Lengths, pos: Vector, crd: Vector, k: Val) -> None:
    """How many coordinates of every segment r are r + k at most."""

    def of(r: Val) -> Callable[[Val], Val]:
        end = b.named("end", b.add(r, k))
        return lambda p: b.convert("zext", b.compare("sle", crd.number(b, p), end), "i64")

    _counted(b, lengths, pos, of)


def _counted(b: Builder, lengths: Lengths, pos: Vector, of: Callable[[Val], Callable[[Val], Val]]) -> None:
    def length(r: Val) -> Val:
        total, counts = b.var("sum", b.i64(0)), of(r)
        b.set(total, b.i64(0))
        with b.for_(pos.get(b, r), pos.get(b, b.add(r, 1)), "p") as p:
            b.increment(total, counts(p))
        return b.get(total)

    lengths.put(b, length)


def inside(b: Builder, c: Val, start: Val, span: Val, step: Val | None) -> Val:
    """1 where a coordinate is one of `span` numbers from `start` on, of which every `step`-th counts; else 0."""
    distance = b.named("distance", b.sub(c, start))
    found = b.compare("ult", distance, span)
    if step is not None:
        found = b.and_(found, b.eq(b.binary("urem", distance, step), 0))
    return b.convert("zext", found, "i64")


def compacted(
    b: Builder,
    begin: Val,
    place: Val,
    stop: Val,
    start: Val,
    span: Val,
    step: Val | None,
    crd: Vector,
    out: Vector,
    moves: Pairs,
) -> None:
    """The entries from `begin` on that are inside, from `place` on, until there are `stop`."""
    p, at = b.var("p", begin), b.var("at", place)
    with b.while_(lambda: b.lt(b.get(at), stop)):
        here, to = b.get(p), b.get(at)
        c = b.named("c", crd.number(b, here))
        distance = b.sub(c, start)
        out.put(b, to, out.element(b, distance if step is None else b.binary("udiv", distance, step)))
        for source, target in moves:
            target.put(b, to, source.get(b, here))
        b.increment(at, inside(b, c, start, span, step))
        b.increment(p)


def filtered(
    b: Builder,
    rows: Val,
    start: Val,
    span: Val,
    step: Val | None,
    pos: Vector,
    crd: Vector,
    made: Vector,
    out: Vector,
    moves: Pairs,
) -> None:
    """What `counted` and `compacted` do, at once: there is room for all entries."""
    at = b.var("at", b.i64(0))
    made.put(b, b.i64(0), b.i64(0))
    with b.for_(b.i64(0), rows, "r") as r:
        with b.for_(pos.get(b, r), pos.get(b, b.add(r, 1)), "p") as p:
            to, c = b.get(at), b.named("c", crd.number(b, p))
            distance = b.sub(c, start)
            out.put(b, to, out.element(b, distance if step is None else b.binary("udiv", distance, step)))
            for source, target in moves:
                target.put(b, to, source.get(b, p))
            b.increment(at, inside(b, c, start, span, step))
        made.put(b, b.add(r, 1), b.get(at))


def found(b: Builder, crd: Vector, pos: Vector, segment: Val, c: Val) -> Val:
    """The position of coordinate `c` in a segment, -1 where it is not stored."""
    return found_in(b, crd, pos.get(b, segment), pos.get(b, b.add(segment, 1)), c)


def found_in(b: Builder, crd: Vector, lo: Val, hi: Val, c: Val) -> Val:
    """The position of coordinate `c` between two of them, -1 where it is not stored."""
    made: Val = find(b, lambda k: crd.number(b, k), lo, hi, c)
    return made


def located(
    b: Builder, first: Val, end: Val, pos: Vector, crd: Vector, parent: Vector, wanted: Vector, out: Vector
) -> None:
    with b.for_(first, end, "q") as q:
        p, c = b.named("p", parent.number(b, q)), b.named("c", wanted.number(b, q))
        out.put(b, q, found(b, crd, pos, p, c))


def met(
    b: Builder, first: Val, end: Val, here: Callable[[Val], Val], number: Vector, count: Vector, move: Pairs
) -> None:
    """Of the places from `first` to `end`, those that are stored, which is `here`, or at -1. What is found goes from `first` on, and how many they are
    to `count`."""
    ((source, target),) = move
    at = b.var("at", first)
    with b.for_(first, end, "q") as q:
        place = b.named("here", here(q))
        with b.if_(b.lt(b.i64(-1), place)):
            number.put(b, b.get(at), number.element(b, q))
            target.put(b, b.get(at), source.get(b, place))
            b.increment(at)
    count.put(b, b.i64(0), b.sub(b.get(at), first))


def recurred(b: Builder, count: Val, kind: str, parts: int, given: Sequence[Val], begins: Vector, out: Val) -> None:
    """One step after the other: `kind` is the type of a number, of which complex ones have two `parts`; `given` are the pointers of x and b."""
    state = [b.var("y", b.const(kind, 0.0)) for _ in range(parts)]

    def times(x: Sequence[Val], y: Sequence[Val]) -> list[Val]:
        if parts == 1:
            return [b.binary("fmul", x[0], y[0])]
        (xr, xi), (yr, yi) = x, y
        real = b.binary("fsub", b.binary("fmul", xr, yr), b.binary("fmul", xi, yi))
        return [real, b.binary("fadd", b.binary("fmul", xr, yi), b.binary("fmul", xi, yr))]

    with b.for_(b.i64(0), count, "k") as k:
        places = [b.add(b.mul(k, parts), n) for n in range(parts)]
        x, more = ([b.load(pointer, place, kind) for place in places] for pointer in given)
        start = b.named("start", b.ne(begins.number(b, k), b.i64(0)))
        for var, own, grown, place in zip(state, more, times(x, [b.get(v) for v in state]), places, strict=True):
            b.set(var, b.select(start, own, b.binary("fadd", own, grown)))
            b.store(out, place, b.get(var))


def interleaved(
    b: Builder, first: Val, end: Val, parts: Val, table: Vector, made: Vector, columns: Sequence[Vector], shifted: bool
) -> None:
    """The table holds, for every part, the addresses of its pos and columns, coordinates first, and what is added to these where they are `shifted`."""
    words, sizes = len(columns) + 2, (8, *(column.size for column in columns))
    with b.for_(first, end, "r") as r:
        at = b.var("at", b.i64(0))
        b.set(at, made.get(b, r))
        with b.for_(b.i64(0), parts, "k") as k:
            *own, shift = [b.named("word", table.get(b, b.add(b.mul(k, words), n))) for n in range(words)]
            pos, *sources = (
                Vector(b.convert("inttoptr", word, "ptr"), size) for word, size in zip(own, sizes, strict=True)
            )
            with b.for_(pos.get(b, r), pos.get(b, b.add(r, 1)), "p") as p:
                to = b.get(at)
                for n, (source, column) in enumerate(zip(sources, columns, strict=True)):
                    moved = shifted and not n
                    column.put(
                        b, to, column.element(b, b.add(source.number(b, p), shift)) if moved else source.get(b, p)
                    )
                b.increment(at)


def crossed(
    b: Builder,
    first: Val,
    end: Val,
    rows: Val,
    width: Val,
    one: Sequence[Vector],
    other: Sequence[Vector],
    made: Sequence[Vector],
    floats: bool | None,
) -> None:
    """Of the segments from `first` to `end` of one matrix: before them stand as many pairs as entries before, times all entries of the other.
    `made` has room for the values of both, or for their products, of `floats` or not."""
    (pos, crd, vals), (pos2, crd2, vals2), (row, column, left, *right) = one, other, made
    at = b.var("at", b.mul(pos.get(b, first), pos2.get(b, rows)))
    with b.for_(first, end, "i") as i:
        lo, hi = b.named("lo", pos.get(b, i)), b.named("hi", pos.get(b, b.add(i, 1)))
        with b.for_(b.i64(0), rows, "j") as j:
            lo2, hi2 = b.named("lo", pos2.get(b, j)), b.named("hi", pos2.get(b, b.add(j, 1)))
            number = b.named("number", row.element(b, b.add(b.mul(i, rows), j)))
            with b.for_(lo, hi, "p") as p:
                before, value = b.named("before", b.mul(crd.number(b, p), width)), vals.get(b, p)
                with b.for_(lo2, hi2, "q") as q:
                    to = b.get(at)
                    row.put(b, to, number)
                    column.put(b, to, column.element(b, b.add(before, crd2.number(b, q))))
                    beside = vals2.get(b, q)
                    if right:
                        left.put(b, to, value)
                        right[0].put(b, to, beside)
                    else:
                        left.put(b, to, _product(b, value, beside, bool(floats)))
                    b.increment(at)


def _product(b: Builder, x: Val, y: Val, floats: bool) -> Val:
    if not floats:
        return b.mul(x, y)
    kind = {"i32": "float", "i64": "double"}[x.type]
    left, right = (b.convert("bitcast", v, kind) for v in (x, y))
    return b.convert("bitcast", b.binary("fmul", left, right), x.type)


def regrouped(
    b: Builder, first: Val, end: Val, sources: Sequence[tuple[Val, Vector]], targets: Sequence[tuple[Val, Vector]]
) -> None:
    """Columns with their extents, and columns to be written with theirs."""
    *outer, (row, inner) = targets
    base, kept = b.var("base", b.sub(b.i64(0), row)), [b.var("kept", b.i64(0)) for _ in outer]
    with b.for_(first, end, "p") as p:
        flat = b.i64(0)
        for extent, source in sources:
            flat = b.add(b.mul(flat, extent), source.number(b, p))
        flat = b.named("flat", flat)
        with b.if_(b.compare("uge", b.sub(flat, b.get(base)), row)):
            rest = b.named("rest", b.binary("udiv", flat, row))
            b.set(base, b.mul(rest, row))
            for (extent, _), var in zip(reversed(outer), reversed(kept), strict=True):
                above = b.named("above", b.binary("udiv", rest, extent))
                b.set(var, b.sub(rest, b.mul(above, extent)))
                rest = above
        inner.put(b, p, inner.element(b, b.sub(flat, b.get(base))))
        for (_, target), var in zip(outer, kept, strict=True):
            target.put(b, p, target.element(b, b.get(var)))


def lined(
    b: Builder,
    extents: tuple[Val, Val],
    whole: tuple[Val, Val],
    offsets: Sequence[Val],
    lines: Sequence[tuple[Vector, bool]],
    made: tuple[Vector, Vector, Vector],
) -> None:
    """The matrix of `extents` with `lines`, each a vector, or one element for all of its places, on the diagonals `offsets`; all are inside of it in
    the `whole` rows."""
    (rows, extent), (low, high), (pos, crd, vals) = extents, whole, made
    place, width = b.var("place", b.i64(0)), len(offsets)
    firsts = [b.named("first", b.max(b.i64(0), b.sub(b.i64(0), offset))) for offset in offsets]

    def value(number: int, r: Val) -> Val:
        line, same = lines[number]
        return line.get(b, b.i64(0) if same else b.sub(r, firsts[number]))

    def edge(first: Val, end: Val) -> None:
        with b.for_(first, end, "r") as r:
            pos.put(b, r, b.get(place))
            for number, offset in enumerate(offsets):
                column = b.named("column", b.add(r, offset))
                with b.if_(b.compare("ult", column, extent)):
                    crd.put(b, b.get(place), crd.element(b, column))
                    if lines:
                        vals.put(b, b.get(place), value(number, r))
                    b.increment(place)

    edge(b.i64(0), low)
    ends = b.splat(b.i64(0), ROWS)
    columns = b.splat(crd.element(b, b.i64(0)), ROWS * width)
    for row in range(ROWS):
        ends = b.insert(ends, row, b.i64(row * width))
        for number, offset in enumerate(offsets):
            columns = b.insert(columns, row * width + number, crd.element(b, b.add(offset, row)))
    inner = b.named("inner", b.add(low, b.mul(b.binary("sdiv", b.sub(high, low), b.i64(ROWS)), ROWS)))
    constant = None
    if lines and vals.size <= 8 and all(same for _, same in lines):
        constant = b.splat(value(0, low), ROWS * width)
        for k in range(1, ROWS * width if width > 1 else 0):
            constant = b.insert(constant, k, value(k % width, low))
    with b.for_(low, inner, "r", ROWS) as r:
        here = b.named("here", b.get(place))
        b.store(pos.pointer, r, b.binary("add", b.splat(here, ROWS), ends))
        b.store(crd.pointer, here, b.binary("add", b.splat(crd.element(b, r), ROWS * width), columns))
        if constant is not None:
            b.store(vals.pointer, here, constant)
        elif lines and width == 1 and vals.size <= 8:
            b.store(vals.pointer, here, b.load(lines[0][0].pointer, b.sub(r, firsts[0]), f"<{ROWS} x {vals.type}>"))
        else:
            for row in range(ROWS if lines else 0):
                for number in range(width):
                    vals.put(b, b.add(here, row * width + number), value(number, b.add(r, row)))
        b.increment(place, ROWS * width)
    edge(inner, rows)
    pos.put(b, rows, b.get(place))


def tidied(b: Builder, first: Val, end: Val, pos: Vector, segments: Segments, twice: Vector) -> None:
    """Segments in place, and at `twice` whether coordinates are equal in one."""
    found = b.var("found", b.i64(0))
    with b.for_(first, end, "r") as r:
        b.set(found, b.binary("or", b.get(found), segments.tidy(b, pos.get(b, r), pos.get(b, b.add(r, 1)))))
    twice.put(b, b.i64(0), b.get(found))
