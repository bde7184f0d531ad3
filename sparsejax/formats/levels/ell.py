"""Ell: parent p stores len[p] coordinates, at most `width`, at positions p * width onwards; unused slots hold 0 and the fill.

    width = [2]    len = [1, 2]    crd = [3, 0, 1, 4]    parent 0 stores 3, and parent 1 stores 1 and 4

With a dense level above, this is the ELLPACK format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats import passes
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.level import Level, segment_of
from sparsejax.formats.levels.segments import Above, Array, Buffers
from sparsejax.formats.levels.walk import Place, Segment

FAR = 8
"""Unused slots for each used one up to which rows and what stands behind them are put side by side; more are filled first."""
SLOTS = 1 << 16
"""Slots that are written at a time: what stands behind the coordinates is then small, and in the caches."""


@dataclass(frozen=True)
class Ell(Level):
    """An ELL level: buffers `width` (slots per parent), `len` (one entry per parent) and `crd` (one per slot).

    >>> Ell().buffer_names(False)
    ('width', 'len', 'crd')
    """

    letter: ClassVar[str] = "e"
    compact: ClassVar[bool] = False
    per: ClassVar[Mapping[str, str]] = {"width": "level", "len": "parent", "crd": "position"}
    unwritten = "every position depends on the fullest segment, which is known once all are there"

    def buffer_types(self) -> dict[str, str]:
        return {"width": "pos", "len": "pos", "crd": "crd"}

    def positions(self, buffers: Buffers, parents: int, extents: Sequence[int]) -> int:
        return len(buffers[0][2])

    def expand(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> tuple[Array, list[Array], Array | None]:
        width, lengths, crd = buffers[0]
        at = segments.parents_of(above)
        lengths = lengths if above.position is None else np.take(lengths, at)
        parent, position = segments.ranges(at * width[0], at * width[0] + lengths)
        return parent, [np.take(crd, position)], position

    def count(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> int:
        lengths = buffers[0][1]
        return int((lengths if above.position is None else np.take(lengths, above.position)).sum())

    def lift(
        self, buffers: Buffers, position: Array, extents: Sequence[int]
    ) -> tuple[Array, list[Array], Array | None]:
        width, lengths, crd = buffers[0]
        parent, slot = np.divmod(position, width[0])
        return parent, [np.take(crd, position)], slot < lengths[parent]

    def assemble(
        self, above: Above, keys: Sequence[Array], extents: Sequence[int], distinct: bool, vals: Array
    ) -> tuple[list[tuple[Array, ...]], Array | None, int]:
        parent, (key,), group = segments.grouped(above, keys, not distinct)
        pos = segments.offsets(parent, above.positions)
        lengths = np.diff(pos)
        width = int(lengths.max(initial=0))
        count = segments.check_size(above.positions * width, "an ell level")
        position = segments.moved(parent, np.arange(above.positions) * width - pos[:-1], count)
        key = key.astype(segments.crd_dtype(extents[0]), copy=False)
        crd = passes.over(count).spread(key, position, count, 0)
        return [(np.array([width]), lengths, crd)], position if group is None else position[group], count

    def to_segments(self, buffers: tuple[Array, ...], vals: Array) -> tuple[Array, Array, Array] | None:
        width, lengths, crd = buffers
        start = np.arange(len(lengths) + 1) * width[0]
        if (lengths == width[0]).all():
            return start, crd, vals
        return segments.closed(start[:-1], lengths, crd, vals)

    def of_segments(
        self, pos: Array, crd: Array, vals: Array, extent: int, fill: Any
    ) -> tuple[tuple[Array, ...], Array] | None:
        lengths = pos[1:] - pos[:-1]
        width = int(lengths.max(initial=0))
        unused = len(lengths) * width - len(crd)
        if unused > FAR * len(crd):
            return None
        if 0 < len(lengths) * width <= SLOTS and unused:
            crd, vals = _padded(pos, width, crd, vals, fill)
        elif unused:
            many, count, rows = passes.over(len(lengths) * width), len(lengths) * width, max(1, SLOTS // width)
            (own, columns), (made, values) = many.room(count, crd.dtype), many.room(count, vals.dtype)
            for first in range(0, len(lengths), rows):
                part = pos[first : first + rows + 1]
                entries, here = slice(part[0], part[-1]), slice(first * width, (first + len(part) - 1) * width)
                columns[here], values[here] = _padded(part - part[0], width, crd[entries], vals[entries], fill)
            crd, vals = own, made
        return (np.array([width]), lengths, crd), vals

    def check(self, buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str]) -> int:
        (width, lengths, crd), (name,) = buffers[0], names
        segments.check_length(width, 1, f"width of {name}", "the number of slots per position above")
        slots = int(width[0])
        if slots < 0:
            raise FormatError(f"width of {name} is {slots}; it must not be negative")
        segments.check_length(lengths, parents, f"len of {name}", "one per position above")
        segments.check_length(crd, parents * slots, f"crd of {name}", f"{slots} per position above, as width says")
        segments.check_bounds(lengths, slots + 1, f"len of {name}")
        parent, (found,), position = self.expand(buffers, Above(None, parents), extents)
        assert position is not None
        segments.check_bounds(found, extents[0], f"crd of {name}", position)
        segments.check_order([parent, found], f"crd of {name}", unique=True, position=position)
        unused = np.ones(len(crd), bool)
        unused[position] = False
        filled = np.flatnonzero(unused & (crd != 0))
        if len(filled):
            k = int(filled[0])
            raise FormatError(f"crd of {name} is {crd[k]} at position {k}, an unused slot; unused slots hold 0")
        return len(crd)

    def segment(self, b: Any, buffers: Any, place: Place) -> Segment:
        width = b.load(buffers["width"].pointer, b.i64(0), "i64", "width")
        lo = b.mul(place.parent, width)
        return segment_of(b, buffers, lo, b.add(lo, b.load(buffers["len"].pointer, place.parent, "i64", "len")))


def _padded(pos: Array, width: int, crd: Array, vals: Array, fill: Any) -> tuple[Array, Array]:
    """Coordinates and values of segments, each with unused slots behind it."""
    ends = np.arange(0, len(pos) * width, width) - pos
    return segments.followed(pos, crd, vals, ends, np.zeros(int(ends[-1]), crd.dtype), fill)
