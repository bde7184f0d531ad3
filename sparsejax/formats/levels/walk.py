"""Segment: the stored coordinates below one parent position, as generated code walks them; Fiber: one that it appends to.

A walk visits places lo, after(lo), … below hi; a place has a coordinate, and a child position from which the next level goes on.
Most levels have one place per position, side by side:

    compressed   place = position, coordinate = crd[place]
    bitmap       place = coordinate, the next one found by counting zeros
    run-length   place = coordinate, the child being the run that covers it

A kernel that assembles a result visits the coordinates of a segment in order. For each it asks the level for a position (`Level.place`),
computes the values there, and commits the coordinate if there are any (`Level.commit`); at the end of the segment it closes it (`Level.close`),
and at the end of all it finishes the level (`Level.finish`).

    compressed   the next position; crd is written at once
    banded       as many positions on as coordinates were skipped, which hold the fill; start is that of the first
    run-length   the next position; a coordinate that goes on with the run before it, with the same value, only moves its end
    bitmap       parent * extent + coordinate; what lies before holds the fill; the bit is set
    hash         the next position; once the segment is closed, its entries move behind a table, and from there to its slots
    grouped      the next position; once the segment is closed, the rest of its last group is filled up

Machine values are those of a `jit.builder.Builder`; this file only names what a level hands to the compiler. Source of the events of an
append: "Format Abstraction for Sparse Tensor Algebra Compilers", append_coord / append_edges / append_finalize.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Value = Any
"""A machine value of the builder."""


def _same(place: Value, coordinate: Value) -> Value:
    return place


@dataclass(frozen=True)
class Segment:
    """Places lo <= place < hi.

    `coordinate(place)` is its coordinate as an i64, `child(place, coordinate)` the position below it, and
    `after(place, coordinate)` the next place, or None where places are side by side. Functions may only be called inside
    the range. Coordinates increase with places where the level is ordered.
    """

    lo: Value
    hi: Value
    coordinate: Callable[[Value], Value]
    child: Callable[[Value, Value], Value] = _same
    after: Callable[[Value, Value], Value] | None = None
    seek: Callable[[Value, Value], Value] | None = None
    first: Value | None = None
    runs: Runs | None = None


@dataclass(frozen=True)
class Runs:
    """Ranges lo <= q < hi: the coordinates start(q) <= c < stop(q) are those of child position q. No range is empty."""

    lo: Value
    hi: Value
    start: Callable[[Value], Value]
    stop: Callable[[Value], Value]


@dataclass(frozen=True)
class Place:
    """Where a level is asked for a segment: below position `parent`, along an axis of `extent`; `above` is the coordinate of
    the level above (None for the outermost level)."""

    parent: Value
    extent: Value
    above: Value | None = None


@dataclass(frozen=True)
class Fiber:
    """A segment that is open: below position `parent`, along an axis of `extent`.

    Positions and parents are counted from the first of this call, of which `before` parents are elsewhere; arrays over parents
    have those of all calls. `first` is the position where the segment begins, `count` the number of positions so far.
    `load(name, at)` and `store(name, at, value)` reach the buffers of the level, all of whose elements are taken for signed i64;
    `room(n)` makes room for n positions, `blank(lo, hi)` gives positions the fill (those of `spread` levels have it from the start),
    `move(source, target)` copies the values of a position, and `same(p, q)` tells whether two positions hold equal bits.
    """

    parent: Value
    before: Value
    extent: Value
    first: Value
    count: Value
    load: Callable[[str, Value], Value]
    store: Callable[[str, Value, Value], None]
    room: Callable[[Value], None]
    blank: Callable[[Value, Value], None]
    move: Callable[[Value, Value], None]
    same: Callable[[Value, Value], Value]


def lower_bound(b: Any, below: Callable[[Value], Value], lo: Value, hi: Value) -> Value:
    """The first place in [lo, hi) that is not `below`, where these come first; `hi` when all are. Halving: O(log (hi - lo))."""
    low, high = b.var("lo", lo), b.var("hi", hi)
    _halve(b, below, low, high)
    return b.get(low)


FEW = 16
"""Entries of a segment of which all are looked at where one is searched: how often a short search halves is not to be foreseen. The
bound of one loop, in which both ways stand: nobody chooses."""


def find(b: Any, coordinate: Callable[[Value], Value], lo: Value, hi: Value, wanted: Value) -> Value:
    """The place in [lo, hi) with the coordinate `wanted`, -1 where there is none; coordinates increase. All of a few are looked at, without
    a branch; else O(log (hi - lo))."""
    found = b.var("found", b.i64(-1))
    b.set(found, b.i64(-1))

    def few() -> None:
        with b.for_(lo, hi, "k") as k:
            b.set(found, b.select(b.eq(coordinate(k), wanted), k, b.get(found)))

    def many() -> None:
        b.set(found, halved(b, coordinate, lo, hi, wanted))

    b.if_else(b.lt(b.sub(hi, lo), FEW), few, many)
    return b.get(found)


def halved(b: Any, coordinate: Callable[[Value], Value], lo: Value, hi: Value, wanted: Value) -> Value:
    """As `find`, in O(log (hi - lo)) of any number of entries."""
    found = b.var("at", b.i64(-1))
    b.set(found, b.i64(-1))
    place = b.named("place", lower_bound(b, lambda k: b.lt(coordinate(k), wanted), lo, hi))
    with b.if_(b.lt(place, hi)):
        b.set(found, b.select(b.eq(coordinate(place), wanted), place, b.i64(-1)))
    return b.get(found)


def gallop(b: Any, below: Callable[[Value], Value], lo: Value, hi: Value) -> Value:
    """As `lower_bound`, in O(log d) where the place found is d steps away: steps are doubled until one goes too far."""
    low, high = b.var("lo", lo), b.var("hi", hi)
    probe, step = b.var("probe", lo), b.var("step", b.i64(1))
    going = b.var("going", b.lt(lo, hi))
    with b.while_(lambda: b.get(going)):
        here = b.named("here", b.get(probe))
        behind = b.named("behind", below(here))
        b.set(low, b.select(behind, b.add(here, 1), b.get(low)))
        b.set(high, b.select(behind, b.get(high), here))
        b.set(probe, b.add(here, b.get(step)))
        b.set(step, b.mul(b.get(step), 2))
        b.set(going, b.and_(behind, b.lt(b.get(probe), hi)))
    _halve(b, below, low, high)
    return b.get(low)


def end_of_range(b: Any, same: Callable[[Value], Value], lo: Value, hi: Value, near: int = 16) -> Value:
    """As `gallop`, where place lo - 1 may be read too. The first `near` places are looked at one by one: where ranges are alike, the processor
    foresees where they end, and nothing waits for what is read."""
    probe, step, last = b.var("probe", lo), b.var("step", b.i64(1)), b.sub(hi, 1)
    close = b.min(b.add(lo, near), hi)

    def within(end: Value) -> Value:
        return b.and_(b.lt(b.get(probe), end), same(b.min(b.get(probe), last)))

    with b.while_(lambda: within(close)):
        b.increment(probe)
    with b.while_(lambda: within(hi)):
        b.set(step, b.mul(b.get(step), 2))
        b.set(probe, b.add(b.get(probe), b.get(step)))
    low, high = b.var("lo", b.add(b.sub(b.get(probe), b.get(step)), 1)), b.var("hi", b.min(b.get(probe), hi))
    _halve(b, same, low, high)
    return b.get(low)


def _halve(b: Any, below: Callable[[Value], Value], low: Any, high: Any) -> None:
    with b.while_(lambda: b.lt(b.get(low), b.get(high))):
        half = b.named("half", b.binary("ashr", b.add(b.get(low), b.get(high)), b.i64(1)))
        behind = b.named("behind", below(half))
        b.set(low, b.select(behind, b.add(half, 1), b.get(low)))
        b.set(high, b.select(behind, b.get(high), half))
