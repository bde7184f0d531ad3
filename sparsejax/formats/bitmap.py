"""Bitmap: one bit per coordinate tells whether it is stored; position = parent * extent + coordinate.

extent 70: two words per parent; bit c % 64 of words[parent * 2 + c // 64] belongs to coordinate c
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats import segments
from sparsejax.formats.level import Level
from sparsejax.formats.segments import Above, Array, Buffers


@dataclass(frozen=True)
class Bitmap(Level):
    """A bitmap level: buffer `words` (parents * ceil(extent / 64)).

    >>> Bitmap().buffer_names(False)
    ('words',)
    """

    letter: ClassVar[str] = "b"
    compact: ClassVar[bool] = False

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

    def assemble(
        self, above: Above, keys: Sequence[Array], extents: Sequence[int], distinct: bool, vals: Array
    ) -> tuple[list[tuple[Array, ...]], Array, int]:
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


def _width(extent: int) -> int:
    """Words per parent."""
    return -(-extent // 64)
