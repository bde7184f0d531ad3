"""Grouped: parent p stores len[p] coordinates in groups of g slots, pos[p] .. pos[p+1] of them; slots of the last group that are left over
repeat the last coordinate and hold the fill, and are no entries.

    g = 2    pos = [0, 2, 2, 3]    len = [3, 0, 1]    crd = [1, 4, 6, 6, 0, 0]    parent 0 stores 1, 4 and 6, parent 2 stores 0

With a dense level above, this is GroupCOO with the groups of a row side by side. Source: Won et al., "Insum: Sparse GPU Kernels Simplified and
Optimized with Indirect Einsums" (ASPLOS 2026), section 4; there padding is multiplied like entries, here it is never read as one.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.level import Level, segment_of
from sparsejax.formats.levels.segments import Above, Array, Buffers
from sparsejax.formats.levels.walk import Fiber, Place, Segment

LARGEST = 2**16
"""Slots of a group, at most."""


FAR = 8
"""Unused slots for each used one up to which groups and what stands behind them are put side by side; more are filled first."""


@dataclass(frozen=True)
class Grouped(Level):
    """A level of groups of `g` slots: buffers `pos` (parents + 1, counted in groups), `len` (one entry per parent) and `crd` (one per slot).

    `g` is an integer from 1 to 65536, else FormatError.

    >>> Grouped(4).buffer_names(False)
    ('pos', 'len', 'crd')
    """

    g: int
    letter: ClassVar[str] = "g"
    compact: ClassVar[bool] = False
    stretches: ClassVar[bool] = True
    per: ClassVar[Mapping[str, str]] = {"pos": "edge", "len": "parent", "crd": "position"}
    unwritten = ""

    def __post_init__(self) -> None:
        try:
            g = operator.index(self.g)
        except TypeError:
            raise FormatError(f"Grouped(g={self.g!r}): g must be an integer") from None
        if not 1 <= g <= LARGEST:
            raise FormatError(f"Grouped(g={g}): groups have from 1 to {LARGEST} slots")
        object.__setattr__(self, "g", g)

    @property
    def spelling(self) -> str:
        return f"g{self.g}"

    @property
    def stacked(self) -> bool:
        return True

    @property
    def group(self) -> int:
        return self.g

    def buffer_types(self) -> dict[str, str]:
        return {"pos": "pos", "len": "pos", "crd": "crd"}

    def positions(self, buffers: Buffers, parents: int, extents: Sequence[int]) -> int:
        return len(buffers[0][2])

    def expand(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> tuple[Array, list[Array], Array | None]:
        pos, lengths, crd = buffers[0]
        first = pos[:-1] if above.position is None else np.take(pos, above.position)
        lengths = lengths if above.position is None else np.take(lengths, above.position)
        parent, position = segments.ranges(first * self.g, first * self.g + lengths)
        return parent, [np.take(crd, position)], position

    def count(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> int:
        lengths = buffers[0][1]
        return int((lengths if above.position is None else np.take(lengths, above.position)).sum())

    def lift(
        self, buffers: Buffers, position: Array, extents: Sequence[int]
    ) -> tuple[Array, list[Array], Array | None]:
        pos, lengths, crd = buffers[0]
        parent = segments.owners_of(pos, position // self.g)
        return parent, [np.take(crd, position)], position - pos[parent] * self.g < lengths[parent]

    def assemble(
        self, above: Above, keys: Sequence[Array], extents: Sequence[int], distinct: bool, vals: Array
    ) -> tuple[list[tuple[Array, ...]], Array | None, int]:
        parent, (key,), number = segments.grouped(above, keys, not distinct)
        ends = segments.offsets(parent, above.positions)
        lengths = np.diff(ends)
        pos = np.concatenate([[0], np.cumsum(-(-lengths // self.g))])
        count = segments.check_size(int(pos[-1]) * self.g, "a grouped level")
        position = segments.moved(parent, pos[:-1] * self.g - ends[:-1], count)
        crd = np.empty(count, segments.crd_dtype(extents[0]))
        crd[position] = key
        owner, padding = segments.ranges(pos[:-1] * self.g + lengths, pos[1:] * self.g)
        crd[padding] = key[ends[1:][owner] - 1]
        return [(pos, lengths, crd)], position if number is None else position[number], count

    def to_segments(self, buffers: tuple[Array, ...], vals: Array) -> tuple[Array, Array, Array] | None:
        pos, lengths, crd = buffers
        return segments.closed(pos[:-1] * self.g, lengths, crd, vals)

    def of_segments(
        self, pos: Array, crd: Array, vals: Array, extent: int, fill: Any
    ) -> tuple[tuple[Array, ...], Array] | None:
        lengths = pos[1:] - pos[:-1]
        groups = segments.before(-(-lengths // self.g))
        unused = int(groups[-1]) * self.g - len(crd)
        if unused > FAR * len(crd):
            return None
        if unused:
            ends = groups * self.g - pos
            last = crd[np.maximum(pos[1:] - 1, 0)].repeat(ends[1:] - ends[:-1])
            crd, vals = segments.followed(pos, crd, vals, ends, last, fill)
        return (groups, lengths, crd), vals

    def check(self, buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str]) -> int:
        (pos, lengths, crd), (name,) = buffers[0], names
        segments.check_pos(pos, parents, None, f"pos of {name}")
        groups = int(pos[-1])
        segments.check_length(
            crd, groups * self.g, f"crd of {name}", f"{self.g} for each of the {groups} groups of pos"
        )
        segments.check_length(lengths, parents, f"len of {name}", "one per position above")
        segments.check_bounds(lengths, extents[0] + 1, f"len of {name}")
        wrong = np.flatnonzero(np.diff(pos) != -(-lengths // self.g))
        if len(wrong):
            k = int(wrong[0])
            raise FormatError(
                f"len of {name} is {lengths[k]} at position {k}, where pos gives {pos[k + 1] - pos[k]} groups of {self.g}; "
                f"{lengths[k]} coordinates take {-(-int(lengths[k]) // self.g)}"
            )
        parent, (found,), position = self.expand(buffers, Above(None, parents), extents)
        assert position is not None
        segments.check_bounds(found, extents[0], f"crd of {name}", position)
        segments.check_order([parent, found], f"crd of {name}", unique=True, position=position)
        ends = pos[:-1] * self.g + lengths
        owner, padding = segments.ranges(ends, pos[1:] * self.g)
        other = np.flatnonzero(crd[padding] != crd[ends[owner] - 1])
        if len(other):
            k = int(padding[other[0]])
            raise FormatError(
                f"crd of {name} is {crd[k]} at position {k}, an unused slot; unused slots repeat the last coordinate of "
                f"their group, {crd[ends[owner[other[0]]] - 1]}"
            )
        return len(crd)

    def segment(self, b: Any, buffers: Any, place: Place) -> Segment:
        lo = b.mul(b.load(buffers["pos"].pointer, place.parent, "i64", "group"), self.g)
        hi = b.add(lo, b.load(buffers["len"].pointer, place.parent, "i64", "len"))
        return segment_of(b, buffers, lo, hi)

    def close(self, b: Any, to: Fiber) -> Any:
        to.store("len", to.parent, b.sub(to.count, to.first))
        groups = b.named("groups", b.binary("udiv", b.add(to.count, self.g - 1), b.i64(self.g)))
        end = b.named("end", b.mul(groups, self.g))
        with b.if_(b.lt(to.count, end)):
            to.room(end)
            last = to.load("crd", b.sub(to.count, 1))
            with b.for_(to.count, end, "slot") as slot:
                to.store("crd", slot, last)
            to.blank(to.count, end)
        to.store("pos", b.add(to.parent, 1), groups)
        return end
