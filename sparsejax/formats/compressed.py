"""Compressed: the coordinates of parent p are crd[pos[p]:pos[p+1]], in order; with `unique=False` they may repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sparsejax.formats.level import Level, segment_bounds, stored_coordinate


@dataclass(frozen=True)
class Compressed(Level):
    """A compressed level: buffers `pos` (parents + 1) and `crd`.

    >>> Compressed().buffer_names(False)
    ('pos', 'crd')
    """

    unique: bool = True
    letter: ClassVar[str] = "c"

    def buffer_names(self, continues: bool) -> tuple[str, ...]:
        return ("pos", "crd")

    def bounds(self, b: Any, buffers: Any, parent: Any) -> tuple[Any, Any]:
        return segment_bounds(b, buffers, parent)

    def coordinate(self, b: Any, buffers: Any, position: Any) -> Any:
        return stored_coordinate(b, buffers, position)
