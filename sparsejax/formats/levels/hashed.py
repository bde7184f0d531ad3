"""Hash: the coordinates of parent p lie in an open-addressing table of pos[p+1] - pos[p] slots, -1 where a slot is empty.

A table has no slots, or a power of two of them, at least twice its entries. A coordinate c is looked for from slot
((c * 0x9E3779B97F4A7C15 mod 2^64) >> 32) mod size onwards, wrapping around, until it or an empty slot is met.

Tables are filled in linear time: entries sorted by their home slots take slot `i + max over j <= i of (home_j - j)`, those that run
past the end start again at slot 0. Source: linear probing in Knuth, "The Art of Computer Programming", volume 3, section 6.4
(the set of occupied slots does not depend on the order of insertion).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.level import Level, ends_below, segment_of
from sparsejax.formats.levels.segments import Above, Array, Buffers
from sparsejax.formats.levels.walk import Fiber, Place, Segment
from sparsejax.formats.ordering import sort_order

MULTIPLIER = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio (Fibonacci hashing)."""


@dataclass(frozen=True)
class Hash(Level):
    """A hash level: buffers `pos` (parents + 1) and `crd` (one entry per slot).

    >>> Hash().buffer_names(False), Hash().ordered
    (('pos', 'crd'), False)
    """

    letter: ClassVar[str] = "h"
    locates: ClassVar[bool] = True
    consecutive: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    compact: ClassVar[bool] = False
    stretches: ClassVar[bool] = True
    unwritten = ""

    def buffer_types(self) -> dict[str, str]:
        return {"pos": "pos", "crd": "crd"}

    def positions(self, buffers: Buffers, parents: int, extents: Sequence[int]) -> int:
        return len(buffers[0][1])

    def expand(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> tuple[Array, list[Array], Array | None]:
        parent, (crd,), position = segments.expand(buffers, above)
        slots = np.flatnonzero(crd >= 0)
        return parent[slots], [crd[slots]], slots if position is None else position[slots]

    def lift(
        self, buffers: Buffers, position: Array, extents: Sequence[int]
    ) -> tuple[Array, list[Array], Array | None]:
        parent, (crd,), _ = segments.lift(buffers, position)
        return parent, [crd], crd >= 0

    def assemble(
        self, above: Above, keys: Sequence[Array], extents: Sequence[int], distinct: bool, vals: Array
    ) -> tuple[list[tuple[Array, ...]], Array | None, int]:
        parent, (key,), group = segments.grouped(above, keys, not distinct)
        counts = np.bincount(parent, minlength=above.positions)
        sizes = np.left_shift(1, np.frexp(2 * counts - 1)[1], dtype=np.int64) * (counts > 0)
        pos = np.zeros(above.positions + 1, np.int64)
        np.cumsum(sizes, out=pos[1:])
        total = segments.check_size(int(pos[-1]), "a hash level")
        size = sizes[parent]
        position = pos[parent] + _slots(pos[parent], size, home(key, size), total)
        crd = np.full(total, -1, segments.crd_dtype(extents[0]))
        crd[position] = key
        return [(pos, crd)], position if group is None else position[group], total

    def check(self, buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str]) -> int:
        (pos, crd), (name,) = buffers[0], names
        segments.check_pos(pos, parents, len(crd), f"pos of {name}", "slots")
        parent, (found,), position = self.expand(buffers, Above(None, parents), extents)
        assert position is not None
        sizes, counts = np.diff(pos), np.bincount(parent, minlength=parents)
        wrong = np.flatnonzero((sizes & (sizes - 1) != 0) | (sizes < 2 * counts))
        if len(wrong):
            k = int(wrong[0])
            raise FormatError(
                f"pos of {name} gives {sizes[k]} slots to the {counts[k]} entries of position {k}; "
                "a table has a power of two slots, at least twice its entries, or none"
            )
        below = np.flatnonzero(crd < -1)
        if len(below):
            k = int(below[0])
            raise FormatError(f"crd of {name} is negative at position {k}: {crd[k]}; only -1 marks an empty slot")
        segments.check_bounds(found, extents[0], f"crd of {name}", position)
        order = sort_order([parent, found], [parents, extents[0]])
        columns = [parent, found] if order is None else [parent[order], found[order]]
        segments.check_order(
            columns, f"crd of {name}", unique=True, position=position if order is None else position[order]
        )
        empty = np.zeros(len(crd) + 1, np.int64)
        np.cumsum(crd < 0, out=empty[1:])
        low, high = pos[parent], pos[parent + 1]
        start = low + home(found, high - low)
        gaps = empty[position] - empty[start]
        gaps += np.where(position < start, empty[high] - empty[low], 0)  # around the end of the table
        lost = np.flatnonzero(gaps)
        if len(lost):
            k = int(position[lost[0]])
            raise FormatError(
                f"crd of {name} has coordinate {crd[k]} at position {k}, where no search finds it: "
                f"there is an empty slot between its first slot, {int(start[lost[0]])}, and there; insert by linear probing"
            )
        return len(crd)

    def segment(self, b: Any, buffers: Any, place: Place) -> Segment:
        crd = buffers["crd"]
        lo, hi = ends_below(b, buffers, place.parent)

        def scan(start: Any) -> Any:
            """The first slot in use from `start` on."""
            at, going = b.var("slot", start), b.var("going", b.lt(start, hi))
            with b.while_(lambda: b.get(going)):
                unused = b.eq(b.load(crd.pointer, b.get(at), crd.type, "c"), -1)
                b.increment(at, b.convert("zext", unused, "i64"))
                b.set(going, b.and_(unused, b.lt(b.get(at), hi)))
            return b.get(at)

        walk = segment_of(b, buffers, scan(lo), hi)
        return Segment(walk.lo, hi, walk.coordinate, after=lambda at, coordinate: scan(b.add(at, 1)))

    def locate(self, b: Any, buffers: Any, place: Place, coordinate: Any) -> tuple[Any, Any]:
        crd = buffers["crd"]
        lo, hi = ends_below(b, buffers, place.parent)
        size = b.sub(hi, lo)
        mask = b.sub(size, 1)
        mixed = _mixed(b, coordinate)
        slot, found = b.var("slot", b.i64(0)), b.var("found", b.const("i1", 0))
        wanted = coordinate if crd.type == "i64" else b.convert("trunc", coordinate, "i32")
        with b.if_(b.lt(b.i64(0), size)):
            b.set(slot, b.add(lo, b.and_(mixed, mask)))
            going = b.var("going", b.const("i1", 1))
            with b.while_(lambda: b.get(going)):
                here = b.load(crd.pointer, b.get(slot), crd.type, "c")
                b.set(found, b.eq(here, wanted))
                b.set(going, b.and_(b.ne(here, wanted), b.ne(here, -1)))
                following = b.add(lo, b.and_(b.add(b.sub(b.get(slot), lo), 1), mask))
                b.set(slot, b.select(b.get(going), following, b.get(slot)))
        return b.get(slot), b.get(found)

    def close(self, b: Any, to: Fiber) -> Any:
        """The entries are moved behind the table, and from there to its slots."""
        end = b.var("end", to.count)
        count = b.named("entries", b.sub(to.count, to.first))
        with b.if_(b.lt(b.i64(0), count)):
            free = b.call("llvm.ctlz.i64", "i64", [b.sub(b.mul(count, 2), 1), b.const("i1", 0)])
            size = b.named("size", b.binary("shl", b.i64(1), b.sub(b.i64(64), free)))
            b.set(end, b.add(to.first, size))
            to.room(b.add(b.get(end), count))
            with b.for_(b.i64(0), count, "k") as k:
                source, target = b.add(to.first, k), b.add(b.get(end), k)
                to.store("crd", target, to.load("crd", source))
                to.move(source, target)
            with b.for_(to.first, b.get(end), "slot") as slot:
                to.store("crd", slot, b.i64(-1))
            to.blank(to.first, b.get(end))
            with b.for_(b.i64(0), count, "k") as k:
                source = b.add(b.get(end), k)
                coordinate = to.load("crd", source)
                at = b.var("at", b.and_(_mixed(b, coordinate), b.sub(size, 1)))
                with b.while_(lambda: b.ne(to.load("crd", b.add(to.first, b.get(at))), -1)):
                    b.set(at, b.and_(b.add(b.get(at), 1), b.sub(size, 1)))
                slot = b.add(to.first, b.get(at))
                to.store("crd", slot, coordinate)
                to.move(source, slot)
        to.store("pos", b.add(to.parent, 1), b.get(end))
        return b.get(end)


def _mixed(b: Any, coordinate: Any) -> Any:
    """The hash of a coordinate, of which a table takes the lowest bits."""
    return b.binary("lshr", b.mul(coordinate, b.i64(MULTIPLIER)), b.i64(32))


def home(coordinate: Array, size: Array) -> Array:
    """The slot where the search for each coordinate starts, in a table of `size` slots.

    >>> home(np.array([0, 1, 2]), np.array([8, 8, 8]))
    array([0, 1, 2])
    """
    mixed = (coordinate.astype(np.uint64) * np.uint64(MULTIPLIER)) >> np.uint64(32)
    slot: Array = mixed.astype(np.int64) & (size - 1)
    return slot


def _slots(start: Array, size: Array, first: Array, total: int) -> Array:
    """The slot that every coordinate gets in its table (at `start`, of `size` slots), given where its search starts."""
    # tables get twice their space here, so that what runs past an end does not run into the next table
    wide, order = 2 * start + first, sort_order([start + first], [total])
    number = np.arange(len(wide))
    placed = number + np.maximum.accumulate((wide if order is None else wide[order]) - number)
    slot = np.empty_like(placed)
    slot[slice(None) if order is None else order] = placed
    slot -= 2 * start
    past = slot >= size
    if past.any():  # these tables again, from slot 0: since half of a table is empty, nothing runs past a second time
        full = np.zeros(total, bool)
        full[start[past]] = True
        again = full[start]
        slot[again] = _slots(start[again], size[again], np.where(past, 0, first)[again], total)
    return slot
