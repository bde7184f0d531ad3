"""The level protocol: what every storage level can say and do.

A level maps a parent position and a coordinate to a child position. Properties (static, per level):

    full        every coordinate is present under every parent
    ordered     coordinates increase inside a segment
    unique      no coordinate repeats inside a segment
    branchless  exactly one child position per parent position
    compact     no position is unused

The NumPy half works on runs: one level, or consecutive coordinate levels, which share their positions; `buffers` is one tuple
of arrays per level of the run, `extents` one number. It says what a level means, converts between formats and checks what users bring.

The code-generating half receives a builder (`jit.builder.Builder`) and machine values; `buffers` maps a buffer's name to its
`pointer` and element `type`. Source: "Format Abstraction for Sparse Tensor Algebra Compilers", section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sparsejax.formats.segments import Array, Buffers


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

    def expand(self, buffers: Buffers, parents: int, extents: Sequence[int]) -> tuple[Array, list[Array]]:
        """The parent of every position below `parents` positions, and its coordinate at every level of the run."""
        raise TypeError(f"{type(self).__name__} does not say which positions it has")

    def assemble(
        self, parent: Array, parents: int, keys: Sequence[Array], extents: Sequence[int], distinct: bool
    ) -> tuple[list[tuple[Array, ...]], Array, int]:
        """The buffers of the run, the position of every entry in it, and the number of positions.

        Entries come sorted by (parent, *keys), a position above and a coordinate per level of the run; `distinct` promises
        that no two are equal.
        """
        raise TypeError(f"{type(self).__name__} does not say how it is assembled")

    def check(self, buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str]) -> int:
        """The number of positions of the run; FormatError unless its buffers are sound. `names` name its levels."""
        raise TypeError(f"{type(self).__name__} does not say what its buffers must be")

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
