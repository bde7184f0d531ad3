"""Bitmap: one bit per coordinate tells whether it is stored; position = parent * extent + coordinate.

extent 70: two words per parent; bit c % 64 of words[parent * 2 + c // 64] belongs to coordinate c
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
from sparsejax.formats.levels.walk import Fiber, Place, Segment


@dataclass(frozen=True)
class Bitmap(Level):
    """A bitmap level: buffer `words` (parents * ceil(extent / 64)).

    >>> Bitmap().buffer_names(False)
    ('words',)
    """

    letter: ClassVar[str] = "b"
    locates: ClassVar[bool] = True
    consecutive: ClassVar[bool] = False
    placed: ClassVar[bool] = False
    compact: ClassVar[bool] = False
    spread: ClassVar[bool] = True
    per: ClassVar[Mapping[str, str]] = {"words": "word"}
    unwritten = ""

    def buffer_types(self) -> dict[str, str]:
        return {"words": "word"}

    def positions(self, buffers: Buffers, parents: int, extents: Sequence[int]) -> int:
        return parents * extents[0]

    def expand(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> tuple[Array, list[Array], Array | None]:
        ((words,),), (extent,) = buffers, extents
        rows = words.reshape(above.positions, _width(extent))
        rows = rows if above.position is None else np.take(rows, above.position, axis=0)
        parent, word = np.nonzero(rows)
        bits = np.unpackbits(rows[parent, word].astype("<u8").view(np.uint8), bitorder="little").reshape(-1, 64)
        which, bit = np.nonzero(bits)
        parent, coordinate = parent[which], word[which] * 64 + bit
        position = (parent if above.position is None else above.position[parent]) * extent + coordinate
        return parent, [coordinate.astype(segments.crd_dtype(extent))], position

    def count(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> int:
        ((words,),), (extent,) = buffers, extents
        if above.position is not None:
            words = np.take(words.reshape(above.positions, _width(extent)), above.position, axis=0)
        return int(np.bitwise_count(words).sum(dtype=np.int64))

    def lift(
        self, buffers: Buffers, position: Array, extents: Sequence[int]
    ) -> tuple[Array, list[Array], Array | None]:
        ((words,),), (extent,) = buffers, extents
        parent, coordinate = np.divmod(position, extent)
        word = words[parent * _width(extent) + coordinate // 64]
        return parent, [coordinate], (word >> (coordinate % 64).astype(np.uint64)) & np.uint64(1) == 1

    def assemble(
        self, above: Above, keys: Sequence[Array], extents: Sequence[int], distinct: bool, vals: Array
    ) -> tuple[list[tuple[Array, ...]], Array | None, int]:
        (key,), (extent,) = keys, extents
        count = segments.check_size(above.positions * extent, "a bitmap level")
        parent, key = segments.parents_of(above), key.astype(np.int64, copy=False)
        words = np.zeros(above.positions * _width(extent), np.uint64)
        word = parent * _width(extent) + key // 64
        if len(word):
            starts = np.flatnonzero(segments.changes([word]))
            bits = np.uint64(1) << (key % 64).astype(np.uint64)
            words[word[starts]] = np.bitwise_or.reduceat(bits, starts)
        return [(words,)], parent * extent + key, count

    def check(self, buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str]) -> int:
        ((words,),), (extent,), (name,) = buffers, extents, names
        width = _width(extent)
        segments.check_length(words, parents * width, f"words of {name}", f"{width} for each position above")
        if extent % 64 and parents:
            past = np.flatnonzero(words[width - 1 :: width] >> np.uint64(extent % 64))
            if len(past):
                raise FormatError(
                    f"words of {name} has bits past the extent {extent} at position {int(past[0] + 1) * width - 1}; clear them"
                )
        return parents * extent

    def segment(self, b: Any, buffers: Any, place: Place) -> Segment:
        words, base = buffers["words"].pointer, self._base(b, place)
        extent, first = place.extent, b.mul(place.parent, place.extent)

        def scan(start: Any) -> Any:
            """The first stored coordinate that is not below `start`; the extent when there is none."""
            at, going = b.var("at", start), b.var("going", b.lt(start, extent))
            with b.while_(lambda: b.get(going)):
                here = b.get(at)
                number = b.binary("lshr", here, b.i64(6))
                word = b.load(words, b.add(base, number), "i64", "word")
                bits = b.named("bits", b.binary("lshr", word, b.and_(here, b.i64(63))))
                empty = b.eq(bits, 0)
                skipped = b.binary("shl", b.add(number, 1), b.i64(6))
                hit = b.add(here, b.call("llvm.cttz.i64", "i64", [bits, b.const("i1", 0)]))
                b.set(at, b.min(b.named("next", b.select(empty, skipped, hit)), extent))
                b.set(going, b.and_(empty, b.lt(b.get(at), extent)))
            return b.get(at)

        return Segment(
            scan(b.i64(0)),
            extent,
            lambda at: at,
            lambda at, coordinate: b.add(first, coordinate),
            lambda at, coordinate: scan(b.add(at, 1)),
            lambda at, coordinate: scan(coordinate),
        )

    def locate(self, b: Any, buffers: Any, place: Place, coordinate: Any) -> tuple[Any, Any]:
        number = b.add(self._base(b, place), b.binary("lshr", coordinate, b.i64(6)))
        word = b.load(buffers["words"].pointer, number, "i64", "word")
        bit = b.and_(b.binary("lshr", word, b.and_(coordinate, b.i64(63))), b.i64(1))
        return b.add(b.mul(place.parent, place.extent), coordinate), b.eq(bit, 1)

    def place(self, b: Any, to: Fiber, coordinate: Any) -> Any:
        at = b.named("at", b.add(b.mul(b.sub(to.parent, to.before), to.extent), coordinate))
        to.room(b.add(at, 1))
        return at

    def commit(self, b: Any, to: Fiber, position: Any, coordinate: Any) -> Any:
        number = b.add(self._base(b, to), b.binary("lshr", coordinate, b.i64(6)))
        bit = b.binary("shl", b.i64(1), b.and_(coordinate, b.i64(63)))
        to.store("words", number, b.binary("or", to.load("words", number), bit))
        return b.add(position, 1)

    def close(self, b: Any, to: Fiber) -> Any:
        return to.count

    def finish(self, b: Any, to: Fiber) -> Any:
        end = b.named("end", b.mul(b.sub(to.parent, to.before), to.extent))
        to.room(end)
        return end

    def _base(self, b: Any, place: Place | Fiber) -> Any:
        """The number of the first word of the segment."""
        return b.mul(place.parent, b.binary("lshr", b.add(place.extent, 63), b.i64(6)))


def _width(extent: int) -> int:
    """Words per parent."""
    return -(-extent // 64)
