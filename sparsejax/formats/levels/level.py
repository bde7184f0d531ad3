"""The level protocol: what every storage level can say and do.

A level maps a parent position and a coordinate to a child position. Properties (static, per level):

    full        every coordinate is present under every parent, at parent * extent + coordinate
    chained     consecutive levels of the kind are a run: they share their positions
    ordered     coordinates increase inside a segment
    unique      no coordinate repeats inside a segment
    listed      the coordinates of all segments stand side by side in a buffer `crd`, one for each position
    stacked     they do so, but for positions between segments, which have coordinates too; `pos` counts steps of `group` positions
    compact     no position is unused
    locates     `locate` takes constant time
    shared      several coordinates may share one position (such a level is the last one)
    contiguous  the coordinates of a segment are consecutive, as are their positions (`Segment.first` is their first)
    consecutive the places of a walk are consecutive (`Segment.after` is None)
    placed      a place is a position of the next level (`Segment.child` gives its place)
    in_runs     ranges of coordinates share a position (`Segment.runs`)
    relative    its coordinates depend on those of the level above (such a level is not the outermost one)
    fills       what is assembled may have more entries than it was given, of the fill
    unwritten   why kernels do not write the level, whose results are assembled as compressed ones and converted; "": they write it
    settled     a coordinate that is appended takes the next position, and keeps it
    stretches   many coordinates may be appended at once, side by side
    spread      a segment may have as many positions as there are coordinates, however few of them are stored
    per         of what each buffer has an element: of every "position", "parent" or "edge" (parents and one more), or a "word" of every
                64 coordinates of a parent

The NumPy half works on runs: one level, or consecutive coordinate levels, which share their positions; `buffers` is one tuple
of arrays per level of the run, `extents` one number. It says what a level means, converts between formats and checks what users bring.
Entries are what is stored; positions are where: some may be unused, and some hold several entries. `above` (`segments.Above`) is
what is known of the entries above the run.

The code-generating half receives a builder (`jit.builder.Builder`) and machine values; `buffers` maps a buffer's name to its
`pointer` and element `type`. Source: "Format Abstraction for Sparse Tensor Algebra Compilers", section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sparsejax.formats.levels.segments import Above, Array, Buffers, buffer_dtype, check_vector
from sparsejax.formats.levels.walk import Fiber, Place, Segment


@dataclass(frozen=True)
class Level:
    """Base of all level types."""

    letter: ClassVar[str] = "?"
    full: ClassVar[bool] = False
    chained: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    listed: ClassVar[bool] = False
    compact: ClassVar[bool] = True
    locates: ClassVar[bool] = False
    shared: ClassVar[bool] = False
    relative: ClassVar[bool] = False
    contiguous: ClassVar[bool] = False
    consecutive: ClassVar[bool] = True
    placed: ClassVar[bool] = True
    in_runs: ClassVar[bool] = False
    fills: ClassVar[bool] = False
    settled: ClassVar[bool] = False
    stretches: ClassVar[bool] = False
    spread: ClassVar[bool] = False
    per: ClassVar[Mapping[str, str]] = {"pos": "edge", "crd": "position"}

    @property
    def unique(self) -> bool:
        return True

    @property
    def spelling(self) -> str:
        """The level in spelled formats: its letter, and its parameter where it has one."""
        return self.letter

    @property
    def kept(self) -> bool:
        """Whether a result keeps the level that all operands agree on; it is compressed where what is assembled would have no use for more."""
        return self.unique

    @property
    def group(self) -> int:
        """How many positions one step of its buffer `pos` stands for."""
        return 1

    @property
    def stacked(self) -> bool:
        return self.listed

    @property
    def plain(self) -> bool:
        """Whether positions are all coordinates of every parent, or those that are listed."""
        return self.listed

    @property
    def unwritten(self) -> str:
        """Why kernels do not write the level as it is ("": they do): its results are assembled as compressed ones and converted."""
        return f"{type(self).__name__} does not say how it is appended to"

    def buffer_types(self) -> dict[str, str]:
        """What each buffer holds: "pos" (int64), "crd" (32 or 64 bits, by the extent) or "word" (uint64)."""
        raise TypeError(f"{type(self).__name__} does not define its buffers")

    def buffer_names(self, continues: bool) -> tuple[str, ...]:
        """Names of the level's buffers; `continues` when it continues a coordinate run."""
        return tuple(self.buffer_types())

    def positions(self, buffers: Buffers, parents: int, extents: Sequence[int]) -> int:
        """The number of positions of the run below `parents` positions, used or not. O(1)."""
        raise TypeError(f"{type(self).__name__} does not say how many positions it has")

    def expand(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> tuple[Array, list[Array], Array | None]:
        """Every entry of the run: the entry above that it is below, its coordinate at every level, and its position.

        Positions are None when entry k is at position k, and no position is unused.
        """
        raise TypeError(f"{type(self).__name__} does not say which positions it has")

    def count(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> int:
        """The number of entries of the run: as many as `expand` finds."""
        return len(self.expand(buffers, above, extents)[0])

    def used(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> Array | None:
        """The positions of all entries of the run, each once; None when no position is unused."""
        return self.expand(buffers, above, extents)[2]

    def lift(
        self, buffers: Buffers, position: Array, extents: Sequence[int]
    ) -> tuple[Array, list[Array], Array | None]:
        """Of some positions of the run: the position above each, its coordinate at every level (relative to the one above, where the
        level is; the first, where several share it), and whether it is used (None: all are). O(position), times a search at most.
        """
        raise TypeError(f"{type(self).__name__} does not say what its positions hold")

    def assemble(
        self, above: Above, keys: Sequence[Array], extents: Sequence[int], distinct: bool, vals: Array
    ) -> tuple[list[tuple[Array, ...]], Array | None, int]:
        """The buffers of the run, the position of every entry in it (None: entry k is at k), and the number of positions.

        Entries come sorted by (position above, *keys), with a coordinate per level of the run and a value each; `distinct`
        promises that no two are equal. FormatError where no memory would hold all positions.
        """
        raise TypeError(f"{type(self).__name__} does not say how it is assembled")

    def to_segments(self, buffers: tuple[Array, ...], vals: Array) -> tuple[Array, Array, Array] | None:
        """(pos, crd, vals) of entries side by side that increase in every segment, of the buffers and values of the only level below a dense one, which
        may be shared; None where that is read entry by entry.
        """
        return None

    def of_segments(
        self, pos: Array, crd: Array, vals: Array, extent: int, fill: Any
    ) -> tuple[tuple[Array, ...], Array] | None:
        """The buffers of the level, and values, of entries side by side that increase in every segment, `pos[k] <= p < pos[k + 1]`, which may be shared;
        None where they are assembled.
        """
        return None

    def check(self, buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str]) -> int:
        """The number of positions of the run; FormatError unless its buffers, of the right types, are sound.

        `names` name its levels.
        """
        raise TypeError(f"{type(self).__name__} does not say what its buffers must be")

    def check_types(self, buffers: Sequence[Array], continues: bool, extent: int, name: str) -> None:
        """FormatError unless the buffers are contiguous vectors of the right types."""
        types = self.buffer_types()
        for what, buffer in zip(self.buffer_names(continues), buffers, strict=True):
            check_vector(buffer, f"{what} of {name}", buffer_dtype(types[what], extent))

    def segment(self, b: Any, buffers: Any, place: Place) -> Segment:
        """The stored coordinates at `place`, to be walked."""
        raise TypeError(f"{type(self).__name__} has no segments to walk")

    def locate(self, b: Any, buffers: Any, place: Place, coordinate: Any) -> tuple[Any, Any] | None:
        """(child position, whether `coordinate` is stored) without a walk; None where it must be searched in the segment."""
        return None

    def place(self, b: Any, to: Fiber, coordinate: Any) -> Any:
        """The position of a coordinate behind those that were appended to the segment; there is room for it."""
        return to.count

    def commit(self, b: Any, to: Fiber, position: Any, coordinate: Any) -> Any:
        """Note a coordinate, whose values are at `position`; the number of positions from now on."""
        to.store("crd", position, coordinate)
        return b.add(position, 1)

    def close(self, b: Any, to: Fiber) -> Any:
        """Note that the segment is complete; the number of positions from now on."""
        to.store("pos", b.add(to.parent, 1), to.count)
        return to.count

    def finish(self, b: Any, to: Fiber) -> Any:
        """Note that all segments are complete, `to.parent` of them; the number of positions."""
        return to.count


def coordinate_at(b: Any, buffer: Any, position: Any, name: str = "j") -> Any:
    """A stored coordinate as an i64; coordinates are never negative."""
    value = b.load(buffer.pointer, position, buffer.type, name)
    return value if buffer.type == "i64" else b.convert("zext", value, "i64")


def ends_below(b: Any, buffers: Any, parent: Any) -> tuple[Any, Any]:
    """`pos[parent], pos[parent + 1]`."""
    pos = buffers["pos"].pointer
    return b.load(pos, parent, "i64", "lo"), b.load(pos, b.add(parent, 1), "i64", "hi")


def segment_of(b: Any, buffers: Any, lo: Any, hi: Any) -> Segment:
    """The segment whose coordinates are `crd[lo:hi]`."""
    return Segment(lo, hi, lambda position: coordinate_at(b, buffers["crd"], position))


def segment_below(b: Any, buffers: Any, parent: Any) -> Segment:
    """The segment whose coordinates are `crd[pos[parent]:pos[parent + 1]]`."""
    return segment_of(b, buffers, *ends_below(b, buffers, parent))
