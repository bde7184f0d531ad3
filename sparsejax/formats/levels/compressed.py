"""Compressed: the coordinates of parent p are crd[pos[p]:pos[p+1]], in order; with `unique=False` they may repeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sparsejax.formats.levels import segments
from sparsejax.formats.levels.level import Level, segment_below
from sparsejax.formats.levels.segments import Above, Array, Buffers
from sparsejax.formats.levels.walk import Place, Segment


@dataclass(frozen=True)
class Compressed(Level):
    """A compressed level: buffers `pos` (parents + 1) and `crd`.

    >>> Compressed().buffer_names(False)
    ('pos', 'crd')
    """

    unique: bool = True
    letter: ClassVar[str] = "c"
    listed: ClassVar[bool] = True
    settled: ClassVar[bool] = True
    stretches: ClassVar[bool] = True

    @property
    def spelling(self) -> str:
        return self.letter if self.unique else "n"

    @property
    def unwritten(self) -> str:
        return "" if self.unique else "kernels add up what repeats, so that nothing does"

    def buffer_types(self) -> dict[str, str]:
        return {"pos": "pos", "crd": "crd"}

    def positions(self, buffers: Buffers, parents: int, extents: Sequence[int]) -> int:
        return len(buffers[-1][-1])

    def expand(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> tuple[Array, list[Array], Array | None]:
        return segments.expand(buffers, above)

    def lift(
        self, buffers: Buffers, position: Array, extents: Sequence[int]
    ) -> tuple[Array, list[Array], Array | None]:
        return segments.lift(buffers, position)

    def assemble(
        self, above: Above, keys: Sequence[Array], extents: Sequence[int], distinct: bool, vals: Array
    ) -> tuple[list[tuple[Array, ...]], Array | None, int]:
        return segments.assemble(above, keys, extents, merge=self.unique and not distinct)

    def check(self, buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str]) -> int:
        return segments.check_run(buffers, parents, extents, names, unique=self.unique)

    def segment(self, b: Any, buffers: Any, place: Place) -> Segment:
        return segment_below(b, buffers, place.parent)
