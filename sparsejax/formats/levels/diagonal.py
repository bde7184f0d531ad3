"""Diagonal: below coordinate r of the level above, the coordinates r + off[d] that are inside, at position parent * D + d.

    count = [2]    off = [-1, 2]    below r = 1 of extent 5: coordinates 0 and 3; below r = 4: coordinate 3, and an unused slot

Every slot inside is stored, as fill where nothing else was given. With a dense level above, this is the DIA format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.level import Level
from sparsejax.formats.levels.segments import Above, Array, Buffers
from sparsejax.formats.levels.walk import Place, Segment, lower_bound
from sparsejax.formats.ordering import sort_order


@dataclass(frozen=True)
class Diagonal(Level):
    """A diagonal level, not the outermost of a format: buffers `count` (the number of diagonals) and `off` (increasing).

    >>> Diagonal().relative
    True
    """

    letter: ClassVar[str] = "o"
    compact: ClassVar[bool] = False
    relative: ClassVar[bool] = True
    placed: ClassVar[bool] = False
    fills: ClassVar[bool] = True
    per: ClassVar[Mapping[str, str]] = {"count": "level", "off": "diagonal"}
    unwritten = "every position depends on the diagonals of all segments, which are known once all are there"

    def buffer_types(self) -> dict[str, str]:
        return {"count": "pos", "off": "pos"}

    def positions(self, buffers: Buffers, parents: int, extents: Sequence[int]) -> int:
        return parents * len(buffers[0][1])

    def expand(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> tuple[Array, list[Array], Array | None]:
        off, (extent,) = buffers[0][1], extents
        assert above.coordinate is not None
        # a sum that wraps around is negative, and so outside, as it should be
        coordinate = np.add.outer(above.coordinate.astype(np.int64), off)
        parent, slot = np.nonzero((coordinate >= 0) & (coordinate < extent))
        position = (parent if above.position is None else above.position[parent]) * len(off) + slot
        return parent, [coordinate[parent, slot].astype(segments.crd_dtype(extent))], position

    def lift(
        self, buffers: Buffers, position: Array, extents: Sequence[int]
    ) -> tuple[Array, list[Array], Array | None]:
        off = buffers[0][1]
        parent, slot = np.divmod(position, len(off))
        return parent, [off[slot]], None

    def assemble(
        self, above: Above, keys: Sequence[Array], extents: Sequence[int], distinct: bool, vals: Array
    ) -> tuple[list[tuple[Array, ...]], Array | None, int]:
        assert above.coordinate is not None
        off, slot = _distinct(keys[0].astype(np.int64) - above.coordinate)
        count = segments.check_size(above.positions * len(off), "a diagonal level")
        return [(np.array([len(off)]), off)], segments.parents_of(above) * len(off) + slot, count

    def check(self, buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str]) -> int:
        (count, off), (name,) = buffers[0], names
        segments.check_length(count, 1, f"count of {name}", "the number of diagonals")
        segments.check_length(off, int(count[0]), f"off of {name}", "as count says")
        falls = np.flatnonzero(off[1:] <= off[:-1])
        if len(falls):
            k = int(falls[0]) + 1
            raise FormatError(
                f"off of {name} does not increase at position {k}: {off[k]} after {off[k - 1]}; sort the diagonals"
            )
        return segments.check_size(parents * len(off), name)

    def segment(self, b: Any, buffers: Any, place: Place) -> Segment:
        off = buffers["off"].pointer
        count = b.load(buffers["count"].pointer, b.i64(0), "i64", "count")
        row, lowest = place.above, b.mul(place.parent, count)

        def coordinate(at: Any) -> Any:
            return b.add(row, b.load(off, at, "i64", "off"))

        def first(bound: Any) -> Any:
            """The first offset whose coordinate is not below `bound`; coordinates themselves may wrap around."""
            least = b.sub(bound, row)
            return lower_bound(b, lambda at: b.lt(b.load(off, at, "i64", "off"), least), b.i64(0), count)

        return Segment(first(b.i64(0)), first(place.extent), coordinate, lambda at, coordinate: b.add(lowest, at))


def _distinct(numbers: Array) -> tuple[Array, Array]:
    """The distinct numbers in order, and the place of every number among them; linear.

    >>> _distinct(np.array([5, -1, 5]))
    (array([-1,  5]), array([1, 0, 1]))
    """
    if not len(numbers):
        return numbers, numbers
    low = int(numbers.min())
    span = int(numbers.max()) - low + 1
    shifted = numbers - low if span < 2**63 else numbers
    if span <= 8 * len(numbers):
        seen = np.zeros(span, bool)
        seen[shifted] = True
        return np.flatnonzero(seen) + low, (np.cumsum(seen) - 1)[shifted]
    if span >= 2**63:  # beyond what the counting passes take
        found, places = np.unique(numbers, return_inverse=True)
        return found, places
    order = sort_order([shifted], [span])
    ordered = shifted if order is None else shifted[order]
    fresh = segments.changes([ordered])
    places = np.empty(len(numbers), np.int64)
    places[slice(None) if order is None else order] = np.cumsum(fresh) - 1
    return ordered[fresh] + low, places
