"""RunLength: run q covers the coordinates start[q] <= c < stop[q], which share the position q, and so one value.

    pos = [0, 2]    start = [0, 5]    stop = [3, 6]    vals = [7, 8]    is    7 7 7 · · 8

Runs increase and are disjoint. What is assembled has the longest runs of values that are equal bit by bit; where a long run is
stored by few numbers, expanding it costs its coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats import passes
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.level import Level, coordinate_at, ends_below
from sparsejax.formats.levels.segments import Above, Array, Buffers
from sparsejax.formats.levels.walk import Fiber, Place, Runs, Segment, gallop, lower_bound


@dataclass(frozen=True)
class RunLength(Level):
    """A run-length level, the last of a format: buffers `pos` (parents + 1), `start` and `stop` (one entry per run).

    >>> RunLength().shared
    True
    """

    letter: ClassVar[str] = "r"
    shared: ClassVar[bool] = True
    consecutive: ClassVar[bool] = False
    placed: ClassVar[bool] = False
    in_runs: ClassVar[bool] = True
    per: ClassVar[Mapping[str, str]] = {"pos": "edge", "start": "position", "stop": "position"}
    unwritten = ""

    def buffer_types(self) -> dict[str, str]:
        return {"pos": "pos", "start": "crd", "stop": "crd"}

    def positions(self, buffers: Buffers, parents: int, extents: Sequence[int]) -> int:
        return len(buffers[0][1])

    def expand(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> tuple[Array, list[Array], Array | None]:
        pos, start, stop = buffers[0]
        segments.check_size(self.count(buffers, above, extents), "the coordinates of a run-length level")
        parent, run = segments.ranges(*segments.segment_ends(pos, above))
        which, coordinate = segments.ranges(start[run], stop[run])
        return parent[which], [coordinate.astype(start.dtype, copy=False)], run[which]

    def count(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> int:
        _, start, stop = buffers[0]
        run = self.used(buffers, above, extents)
        lengths = stop.astype(np.int64) - start if run is None else stop[run].astype(np.int64) - start[run]
        # beyond 64 bits in Python integers
        return int(lengths.sum()) if len(lengths) * extents[0] < 2**63 else sum(lengths.tolist())

    def used(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> Array | None:
        if above.position is None:
            return None
        return segments.ranges(*segments.segment_ends(buffers[0][0], above))[1]

    def lift(
        self, buffers: Buffers, position: Array, extents: Sequence[int]
    ) -> tuple[Array, list[Array], Array | None]:
        pos, start, _ = buffers[0]
        return segments.owners_of(pos, position), [np.take(start, position)], None

    def assemble(
        self, above: Above, keys: Sequence[Array], extents: Sequence[int], distinct: bool, vals: Array
    ) -> tuple[list[tuple[Array, ...]], Array | None, int]:
        (key,), dtype = keys, segments.crd_dtype(extents[0])
        parent = segments.raw_parents_of(above)
        fresh = segments.changes([parent, *_bits(vals)])
        if len(key):
            fresh[1:] |= key[1:] != key[:-1] + 1
        starts = np.flatnonzero(fresh)
        pos = segments.offsets(parent[starts], above.positions)
        ends = np.append(starts[1:] - 1, len(key) - 1) if len(starts) else starts
        start, stop = key[starts].astype(dtype), (key[ends].astype(np.int64) + 1).astype(dtype)
        position = np.cumsum(fresh, dtype=segments.crd_dtype(len(key) + 1))
        position -= 1
        return [(pos, start, stop)], position, len(starts)

    def to_segments(self, buffers: tuple[Array, ...], vals: Array) -> tuple[Array, Array, Array] | None:
        pos, start, stop = buffers
        return (pos, start, vals) if (stop - start == 1).all() else None

    def of_segments(
        self, pos: Array, crd: Array, vals: Array, extent: int, fill: Any
    ) -> tuple[tuple[Array, ...], Array] | None:
        if not len(crd):
            return (pos, crd, crd), vals
        fresh = np.ones(len(crd) + 1, bool)
        np.not_equal(crd[1:] - crd[:-1], 1, out=fresh[1:-1])
        for column in _bits(vals):
            fresh[1:-1] |= column[1:] != column[:-1]
        fresh[pos] = True
        if fresh.all():
            return (pos, crd, crd + crd.dtype.type(1)), vals
        many = passes.over(len(crd))
        pos, (start, vals) = many.chosen(pos, fresh[:-1], [crd, vals])
        _, (stop,) = many.chosen(np.array([0, len(crd)]), fresh[1:], [crd])
        return (pos, start, stop + stop.dtype.type(1)), vals

    def check(self, buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str]) -> int:
        (pos, start, stop), (name,) = buffers[0], names
        segments.check_length(stop, len(start), f"stop of {name}", "one per run, as start")
        segments.check_pos(pos, parents, len(start), f"pos of {name}", "runs")
        segments.check_bounds(start, extents[0], f"start of {name}")
        segments.check_bounds(stop, extents[0] + 1, f"stop of {name}")
        empty = np.flatnonzero(stop <= start)
        if len(empty):
            k = int(empty[0])
            raise FormatError(
                f"stop of {name} is {stop[k]} at position {k}, where the run starts at {start[k]}; runs are not empty"
            )
        parent = np.repeat(np.arange(parents), np.diff(pos))
        early = np.flatnonzero((parent[1:] == parent[:-1]) & (start[1:] < stop[:-1]))
        if len(early):
            k = int(early[0]) + 1
            raise FormatError(
                f"start of {name} is {start[k]} at position {k}, before the end {stop[k - 1]} of the run before; "
                "runs of one parent increase and do not overlap"
            )
        return len(start)

    def segment(self, b: Any, buffers: Any, place: Place) -> Segment:
        extent = place.extent
        lo, hi = ends_below(b, buffers, place.parent)
        run = b.var("run", lo)

        def start() -> Any:
            """The first coordinate of the present run; the extent behind the last."""
            at = b.var("at", extent)
            with b.if_(b.lt(b.get(run), hi)):
                b.set(at, coordinate_at(b, buffers["start"], b.get(run)))
            return b.get(at)

        def after(at: Any, coordinate: Any) -> Any:
            following = b.var("next", b.add(at, 1))
            with b.if_(b.eq(b.get(following), coordinate_at(b, buffers["stop"], b.get(run)))):
                b.increment(run)
                b.set(following, start())
            return b.get(following)

        def ended(coordinate: Any) -> Callable[[Any], Any]:
            return lambda q: b.compare("sle", coordinate_at(b, buffers["stop"], q), coordinate)

        def seek(at: Any, coordinate: Any) -> Any:
            b.set(run, gallop(b, ended(coordinate), b.get(run), hi))
            return b.max(start(), coordinate)

        def bound(name: str) -> Callable[[Any], Any]:
            return lambda q: coordinate_at(b, buffers[name], q)

        runs = Runs(lo, hi, bound("start"), bound("stop"))
        return Segment(start(), extent, lambda at: at, lambda at, coordinate: b.get(run), after, seek, runs=runs)

    def locate(self, b: Any, buffers: Any, place: Place, coordinate: Any) -> tuple[Any, Any]:
        lo, end = ends_below(b, buffers, place.parent)
        stop = buffers["stop"]
        run = b.named("run", lower_bound(b, lambda q: b.compare("sle", coordinate_at(b, stop, q), coordinate), lo, end))
        found = b.var("found", b.const("i1", 0))
        with b.if_(b.lt(run, end)):
            b.set(found, b.compare("sle", coordinate_at(b, buffers["start"], run), coordinate))
        return run, b.get(found)

    def commit(self, b: Any, to: Fiber, position: Any, coordinate: Any) -> Any:
        goes_on = b.var("goes_on", b.const("i1", 0))
        with b.if_(b.lt(to.first, position)):
            before = b.sub(position, 1)
            beside = b.eq(to.load("stop", before), coordinate)
            b.set(goes_on, b.and_(beside, to.same(before, position)))
        run = b.named("run", b.sub(position, b.convert("zext", b.get(goes_on), "i64")))
        to.store("stop", run, b.add(coordinate, 1))
        with b.if_(b.eq(run, position)):
            to.store("start", run, coordinate)
        return b.add(run, 1)


def _bits(vals: Array) -> list[Array]:
    """Values as integers of the same bits (two of them for the widest)."""
    size = vals.dtype.itemsize
    if size <= 8:
        return [vals.view(f"u{size}")]
    halves = np.ascontiguousarray(vals).view(np.uint64)
    return [halves[0::2], halves[1::2]]
