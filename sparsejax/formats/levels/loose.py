"""LooseCompressed: the coordinates of parent p are crd[lo[p]:hi[p]], in order; segments lie anywhere, with slack between them.

    lo = [4, 0]    hi = [6, 1]    crd = [2, ·, ·, ·, 1, 3, ·]    segment of parent 0: positions 4 and 5, of parent 1: position 0

What is assembled has neither slack nor disorder. Source: the loose compressed level of MLIR's sparse tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.level import Level, segment_of
from sparsejax.formats.levels.segments import Above, Array, Buffers
from sparsejax.formats.levels.walk import Place, Segment


@dataclass(frozen=True)
class LooseCompressed(Level):
    """A loose compressed level: buffers `lo` and `hi` (one entry per parent) and `crd` (of any capacity).

    >>> LooseCompressed().buffer_names(False)
    ('lo', 'hi', 'crd')
    """

    letter: ClassVar[str] = "l"
    compact: ClassVar[bool] = False
    per: ClassVar[Mapping[str, str]] = {"lo": "parent", "hi": "parent", "crd": "position"}
    kept = False
    unwritten = "it is a compressed level with other edges: no entry is moved"

    def buffer_types(self) -> dict[str, str]:
        return {"lo": "pos", "hi": "pos", "crd": "crd"}

    def positions(self, buffers: Buffers, parents: int, extents: Sequence[int]) -> int:
        return len(buffers[0][2])

    def to_segments(self, buffers: tuple[Array, ...], vals: Array) -> tuple[Array, Array, Array] | None:
        lo, hi, crd = buffers
        if len(lo) and lo[0] == 0 and hi[-1] == len(crd) and (lo[1:] == hi[:-1]).all():
            return np.append(lo, hi[-1:]), crd, vals
        return segments.closed(lo, hi - lo, crd, vals)

    def expand(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> tuple[Array, list[Array], Array | None]:
        lo, hi, crd = buffers[0]
        if above.position is not None:
            lo, hi = np.take(lo, above.position), np.take(hi, above.position)
        parent, position = segments.ranges(lo, hi)
        return parent, [np.take(crd, position)], position

    def lift(
        self, buffers: Buffers, position: Array, extents: Sequence[int]
    ) -> tuple[Array, list[Array], Array | None]:
        lo, hi, crd = buffers[0]
        filled = np.flatnonzero(hi > lo)
        if not len(filled):
            return np.zeros_like(position), [np.zeros_like(position)], np.zeros(len(position), bool)
        filled = filled[np.argsort(lo[filled])]
        parent = filled[np.maximum(segments.owners_of(lo[filled], position), 0)]
        return parent, [np.take(crd, position)], (lo[parent] <= position) & (position < hi[parent])

    def assemble(
        self, above: Above, keys: Sequence[Array], extents: Sequence[int], distinct: bool, vals: Array
    ) -> tuple[list[tuple[Array, ...]], Array | None, int]:
        [(pos, crd)], position, count = segments.assemble(above, keys, extents, merge=not distinct)
        return [(pos[:-1].copy(), pos[1:].copy(), crd)], position, count

    def check(self, buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str]) -> int:
        (lo, hi, crd), (name,) = buffers[0], names
        for what, ends in (("lo", lo), ("hi", hi)):
            segments.check_length(ends, parents, f"{what} of {name}", "one per position above")
            segments.check_bounds(ends, len(crd) + 1, f"{what} of {name}")
        falls = np.flatnonzero(hi < lo)
        if len(falls):
            k = int(falls[0])
            raise FormatError(
                f"hi of {name} is {hi[k]} at position {k}, less than lo, {lo[k]}; empty segments have hi equal to lo"
            )
        filled = hi > lo
        owners = np.bincount(lo[filled], minlength=len(crd) + 1) - np.bincount(hi[filled], minlength=len(crd) + 1)
        shared = np.flatnonzero(np.cumsum(owners) > 1)
        if len(shared):
            raise FormatError(
                f"segments of {name} overlap at position {int(shared[0])}; every position belongs to one parent at most"
            )
        parent, (found,), position = self.expand(buffers, Above(None, parents), extents)
        segments.check_bounds(found, extents[0], f"crd of {name}", position)
        segments.check_order([parent, found], f"crd of {name}", unique=True, position=position)
        return len(crd)

    def segment(self, b: Any, buffers: Any, place: Place) -> Segment:
        lo, hi = (b.load(buffers[n].pointer, place.parent, "i64", n) for n in ("lo", "hi"))
        return segment_of(b, buffers, lo, hi)
