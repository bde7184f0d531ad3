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


@dataclass(frozen=True)
class Place:
    """Where a level is asked for a segment: below position `parent`, along an axis of `extent`; `above` is the coordinate of
    the level above (None for the outermost level)."""

    parent: Value
    extent: Value
    above: Value | None = None
