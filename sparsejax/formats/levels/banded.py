"""Banded: parent p stores every coordinate start[p] <= c < start[p] + pos[p+1] - pos[p], at position pos[p] + c - start[p].

    pos = [0, 3, 5]    start = [1, 4]    parent 0 stores 1, 2, 3 and parent 1 stores 4, 5

What lies between the first and the last coordinate of a parent is stored as fill. Also called skyline or variable band storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.level import Level, coordinate_at, ends_below
from sparsejax.formats.levels.segments import Above, Array, Buffers
from sparsejax.formats.levels.walk import Fiber, Place, Segment


@dataclass(frozen=True)
class Banded(Level):
    """A banded level: buffers `pos` (parents + 1) and `start` (one entry per parent).

    >>> Banded().buffer_names(False)
    ('pos', 'start')
    """

    letter: ClassVar[str] = "s"
    locates: ClassVar[bool] = True
    contiguous: ClassVar[bool] = True
    fills: ClassVar[bool] = True
    spread: ClassVar[bool] = True
    per: ClassVar[Mapping[str, str]] = {"pos": "edge", "start": "parent"}
    unwritten = ""

    def buffer_types(self) -> dict[str, str]:
        return {"pos": "pos", "start": "crd"}

    def positions(self, buffers: Buffers, parents: int, extents: Sequence[int]) -> int:
        return int(buffers[0][0][-1])

    def expand(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> tuple[Array, list[Array], Array | None]:
        pos, start = buffers[0]
        lo, hi = segments.segment_ends(pos, above)
        start = start if above.position is None else np.take(start, above.position)
        parent, position = segments.ranges(lo, hi)
        coordinate = (position + (start - lo)[parent]).astype(start.dtype, copy=False)
        return parent, [coordinate], None if above.position is None else position

    def count(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> int:
        lo, hi = segments.segment_ends(buffers[0][0], above)
        return int((hi - lo).sum())

    def lift(
        self, buffers: Buffers, position: Array, extents: Sequence[int]
    ) -> tuple[Array, list[Array], Array | None]:
        pos, start = buffers[0]
        parent = segments.owners_of(pos, position)
        return parent, [position - pos[parent] + start[parent]], None

    def assemble(
        self, above: Above, keys: Sequence[Array], extents: Sequence[int], distinct: bool, vals: Array
    ) -> tuple[list[tuple[Array, ...]], Array | None, int]:
        (key,), (extent,) = keys, extents
        parent = segments.raw_parents_of(above)
        first = np.flatnonzero(segments.changes([parent])) if len(key) else np.zeros(0, np.int64)
        last = np.append(first[1:], len(key))[: len(first)] - 1
        widths = key[last].astype(np.int64) - key[first] + 1
        total = segments.check_size(
            int(widths.sum()) if len(widths) * extent < 2**63 else sum(widths.tolist()), "a banded level"
        )
        start = np.zeros(above.positions, segments.crd_dtype(extent))
        pos = np.zeros(above.positions + 1, np.int64)
        start[parent[first]] = key[first]
        pos[parent[first] + 1] = widths
        np.cumsum(pos, out=pos)
        kind = segments.crd_dtype(max(total, extent))
        position = np.take((pos[:-1] - start).astype(kind), parent)
        position += key.astype(kind, copy=False)
        return [(pos, start)], position, total

    def of_segments(
        self, pos: Array, crd: Array, vals: Array, extent: int, fill: Any
    ) -> tuple[tuple[Array, ...], Array] | None:
        there = pos[1:] > pos[:-1]
        first, last = crd[pos[:-1][there]], crd[pos[1:][there] - 1]
        if int((last - first).sum(dtype=np.int64)) + len(first) != len(crd) or len(crd) * extent >= 2**63:
            return None  # there is something between them
        start = np.zeros(len(pos) - 1, crd.dtype)
        start[there] = first
        return (pos, start), vals

    def check(self, buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str]) -> int:
        (pos, start), (extent,), (name,) = buffers[0], extents, names
        segments.check_pos(pos, parents, None, f"pos of {name}")
        segments.check_length(start, parents, f"start of {name}", "one per position above")
        segments.check_bounds(start, max(extent, 1), f"start of {name}")
        past = np.flatnonzero(np.diff(pos) > extent - start)
        if len(past):
            k = int(past[0])
            raise FormatError(
                f"pos of {name} gives {pos[k + 1] - pos[k]} coordinates from {start[k]} to position {k}, "
                f"past the extent {extent}; shorten that segment"
            )
        return int(pos[-1])

    def segment(self, b: Any, buffers: Any, place: Place) -> Segment:
        lo, hi, first = self._band(b, buffers, place)

        def seek(at: Any, coordinate: Any) -> Any:
            return b.min(b.max(at, b.add(lo, b.sub(coordinate, first))), hi)

        return Segment(lo, hi, lambda at: b.add(first, b.sub(at, lo)), seek=seek, first=first)

    def locate(self, b: Any, buffers: Any, place: Place, coordinate: Any) -> tuple[Any, Any]:
        lo, hi, first = self._band(b, buffers, place)
        ahead = b.named("ahead", b.sub(coordinate, first))
        return b.add(lo, ahead), b.compare("ult", ahead, b.sub(hi, lo))

    def _band(self, b: Any, buffers: Any, place: Place) -> tuple[Any, Any, Any]:
        """First position, end, and first coordinate of the band."""
        lo, hi = ends_below(b, buffers, place.parent)
        return lo, hi, coordinate_at(b, buffers["start"], place.parent, "first")

    def place(self, b: Any, to: Fiber, coordinate: Any) -> Any:
        at = b.var("at", to.count)
        with b.if_(b.lt(to.first, to.count)):
            b.set(at, b.add(to.first, b.sub(coordinate, to.load("start", to.parent))))
            to.room(b.add(b.get(at), 1))
        return b.get(at)

    def commit(self, b: Any, to: Fiber, position: Any, coordinate: Any) -> Any:
        with b.if_(b.eq(to.first, to.count)):
            to.store("start", to.parent, coordinate)
        return b.add(position, 1)
