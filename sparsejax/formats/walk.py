"""Segment: the stored coordinates below one parent position, as generated code walks them.

A walk visits places lo, after(lo), … below hi; a place has a coordinate, and a child position from which the next level goes on.
Most levels have one place per position, side by side:

    compressed   place = position, coordinate = crd[place]
    bitmap       place = coordinate, the next one found by counting zeros
    run-length   place = coordinate, the child being the run that covers it

Machine values are those of a `jit.builder.Builder`; this file only names what a level hands to the compiler.
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

    @property
    def places_are_positions(self) -> bool:
        """Whether `child(place, coordinate)` is `place`."""
        return self.child is _same


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


def lower_bound(b: Any, below: Callable[[Value], Value], lo: Value, hi: Value) -> Value:
    """The first place in [lo, hi) that is not `below`, where these come first; `hi` when all are. Halving: O(log (hi - lo))."""
    low, high = b.var("lo", lo), b.var("hi", hi)
    _halve(b, below, low, high)
    return b.get(low)


FEW = 16
"""Entries of a segment of which all are looked at where one is searched: how often a short search halves is not to be foreseen."""


def find(b: Any, coordinate: Callable[[Value], Value], lo: Value, hi: Value, wanted: Value) -> Value:
    """The place in [lo, hi) with the coordinate `wanted`, -1 where there is none; coordinates increase. All of a few are looked at, without
    a branch; else O(log (hi - lo))."""
    found = b.var("found", b.i64(-1))
    b.set(found, b.i64(-1))

    def few() -> None:
        with b.for_(lo, hi, "k") as k:
            b.set(found, b.select(b.eq(coordinate(k), wanted), k, b.get(found)))

    def many() -> None:
        place = b.named("place", lower_bound(b, lambda k: b.lt(coordinate(k), wanted), lo, hi))
        with b.if_(b.lt(place, hi)):
            b.set(found, b.select(b.eq(coordinate(place), wanted), place, b.i64(-1)))

    b.if_else(b.lt(b.sub(hi, lo), FEW), few, many)
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


def _halve(b: Any, below: Callable[[Value], Value], low: Any, high: Any) -> None:
    with b.while_(lambda: b.lt(b.get(low), b.get(high))):
        half = b.named("half", b.binary("ashr", b.add(b.get(low), b.get(high)), b.i64(1)))
        behind = b.named("behind", below(half))
        b.set(low, b.select(behind, b.add(half, 1), b.get(low)))
        b.set(high, b.select(behind, b.get(high), half))
