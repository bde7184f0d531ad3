"""The level protocol: what every storage level can say and do.

A level maps a parent position and a coordinate to a child position. Properties (static, per level):

    full        every coordinate is present under every parent
    ordered     coordinates increase inside a segment
    unique      no coordinate repeats inside a segment
    branchless  exactly one child position per parent position
    compact     no position is unused

The code-generating half receives a builder (`jit.builder.Builder`) and machine values; `buffers` maps a buffer's name to its
`pointer` and element `type`. Source: "Format Abstraction for Sparse Tensor Algebra Compilers", section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Level:
    """Base of all level types."""

    letter: ClassVar[str] = "?"
    full: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    branchless: ClassVar[bool] = False
    compact: ClassVar[bool] = True

    @property
    def unique(self) -> bool:
        return True

    def buffer_names(self, continues: bool) -> tuple[str, ...]:
        """Names of the level's buffers; `continues` when it continues a coordinate run."""
        raise TypeError(f"{type(self).__name__} does not define its buffers")

    def bounds(self, b: Any, buffers: Any, parent: Any) -> tuple[Any, Any]:
        """The positions of the segment below `parent`."""
        raise TypeError(f"{type(self).__name__} has no segments to walk")

    def coordinate(self, b: Any, buffers: Any, position: Any) -> Any:
        """The coordinate stored at `position`, as an i64."""
        raise TypeError(f"{type(self).__name__} stores no coordinates")


def segment_bounds(b: Any, buffers: Any, parent: Any) -> tuple[Any, Any]:
    """`pos[parent], pos[parent + 1]`."""
    pos = buffers["pos"]
    return b.load(pos.pointer, parent, pos.type, "lo"), b.load(pos.pointer, b.add(parent, 1), pos.type, "hi")


def stored_coordinate(b: Any, buffers: Any, position: Any) -> Any:
    """`crd[position]` widened to 64 bits (coordinates are never negative)."""
    crd = buffers["crd"]
    value = b.load(crd.pointer, position, crd.type, "j")
    return value if crd.type == "i64" else b.convert("zext", value, "i64")
