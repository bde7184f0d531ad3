"""Coordinate: a run of consecutive coordinate levels is an N-D COO.

The first level of a run has `pos` and `crd`, the others `crd` only: all levels of a run share their positions. Inside a
run, the outer coordinates repeat; a whole coordinate tuple never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sparsejax.formats.levels import segments
from sparsejax.formats.levels.level import Level, segment_below
from sparsejax.formats.levels.segments import Above, Array, Buffers
from sparsejax.formats.levels.walk import Place, Segment


@dataclass(frozen=True)
class Coordinate(Level):
    """A coordinate level.

    >>> Coordinate().buffer_names(True)
    ('crd',)
    """

    letter: ClassVar[str] = "q"
    listed: ClassVar[bool] = True
    chained: ClassVar[bool] = True
    unwritten = ""
    settled: ClassVar[bool] = True
    stretches: ClassVar[bool] = True

    def buffer_types(self) -> dict[str, str]:
        return {"pos": "pos", "crd": "crd"}

    def buffer_names(self, continues: bool) -> tuple[str, ...]:
        return ("crd",) if continues else ("pos", "crd")

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
        return segments.assemble(above, keys, extents, merge=not distinct)

    def check(self, buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str]) -> int:
        return segments.check_run(buffers, parents, extents, names, unique=True)

    def segment(self, b: Any, buffers: Any, place: Place) -> Segment:
        return segment_below(b, buffers, place.parent)
