"""Coordinate: a run of consecutive coordinate levels is an N-D COO.

The first level of a run has `pos` and `crd`, the others `crd` only: all levels of a run share their positions. Inside a
run, the outer coordinates repeat; a whole coordinate tuple never does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sparsejax.formats.level import Level, segment_bounds, stored_coordinate


@dataclass(frozen=True)
class Coordinate(Level):
    """A coordinate level.

    >>> Coordinate().buffer_names(True)
    ('crd',)
    """

    letter: ClassVar[str] = "q"

    def buffer_names(self, continues: bool) -> tuple[str, ...]:
        return ("crd",) if continues else ("pos", "crd")

    def bounds(self, b: Any, buffers: Any, parent: Any) -> tuple[Any, Any]:
        return segment_bounds(b, buffers, parent)

    def coordinate(self, b: Any, buffers: Any, position: Any) -> Any:
        return stored_coordinate(b, buffers, position)
