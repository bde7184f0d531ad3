"""The level protocol: what every storage level can say and do.

A level maps a parent position and a coordinate to a child position. Properties (static, per level):

    full        every coordinate is present under every parent
    ordered     coordinates increase inside a segment
    unique      no coordinate repeats inside a segment
    branchless  exactly one child position per parent position
    compact     no position is unused
    locates     `locate` takes constant time

The NumPy half works on runs: one level, or consecutive coordinate levels, which share their positions; `buffers` is one tuple
of arrays per level of the run, `extents` one number. It says what a level means, converts between formats and checks what users bring.

The code-generating half receives a builder (`jit.builder.Builder`) and machine values; `buffers` maps a buffer's name to its
`pointer` and element `type`. Source: "Format Abstraction for Sparse Tensor Algebra Compilers", section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sparsejax.formats.segment import Place, Segment
from sparsejax.formats.segments import Array, Buffers


@dataclass(frozen=True)
class Level:
    """Base of all level types."""

    letter: ClassVar[str] = "?"
    full: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    branchless: ClassVar[bool] = False
    compact: ClassVar[bool] = True
    locates: ClassVar[bool] = False

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

    def segment(self, b: Any, buffers: Any, place: Place) -> Segment:
        """The stored coordinates at `place`, to be walked."""
        raise TypeError(f"{type(self).__name__} has no segments to walk")

    def locate(self, b: Any, buffers: Any, place: Place, coordinate: Any) -> tuple[Any, Any] | None:
        """(child position, whether `coordinate` is stored) without a walk; None where it must be searched in the segment."""
        return None


def segment_of(b: Any, buffers: Any, lo: Any, hi: Any) -> Segment:
    """The segment whose coordinates are `crd[lo:hi]`."""
    crd = buffers["crd"]

    def coordinate(position: Any) -> Any:
        value = b.load(crd.pointer, position, crd.type, "j")
        return value if crd.type == "i64" else b.convert("zext", value, "i64")  # coordinates are never negative

    return Segment(lo, hi, coordinate)


def segment_below(b: Any, buffers: Any, parent: Any) -> Segment:
    """The segment whose coordinates are `crd[pos[parent]:pos[parent + 1]]`."""
    pos = buffers["pos"]
    lo = b.load(pos.pointer, parent, pos.type, "lo")
    return segment_of(b, buffers, lo, b.load(pos.pointer, b.add(parent, 1), pos.type, "hi"))
