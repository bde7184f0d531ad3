"""Segments: what levels with `pos` and `crd` buffers share, in NumPy.

A run is one compressed level, or consecutive coordinate levels, which share their positions:

    pos = [0, 2, 3]    crd = [1, 4, 0]    segment of parent 0: positions 0 and 1, of parent 1: position 2

What is above a run comes as `Above`: the entries that are stored there, and the positions they have among all positions there are.
Below levels with unused positions, an entry is not the same as a position.

Functions whose name starts with `check` raise FormatError, naming the fault, where it is and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats import passes
from sparsejax.formats.passes import Array as Array
from sparsejax.formats.passes import crd_dtype as crd_dtype
from sparsejax.formats.runs import before as before
from sparsejax.formats.runs import changes as changes

Buffers = Sequence[Sequence[Array]]

BLOCK = 1 << 14
"""Entries that are looked at at a time, where what is made of all would be as large as they are."""
MAX_POSITIONS = 2**38
"""More positions than this are an error at once, rather than an allocation that cannot succeed."""


class Above(NamedTuple):
    """The entries above a run: where they are stored, and their coordinates at the level just above it."""

    position: Array | None
    """The position of every entry; None: entry k is at position k, and no position is unused."""
    positions: int
    """How many positions there are, used or not."""
    coordinate: Array | None = None
    """The coordinate of every entry at the level just above; None at the root."""

    @property
    def entries(self) -> int:
        return self.positions if self.position is None else len(self.position)


ROOT = Above(None, 1)
"""What is above the outermost level: one position without coordinates."""


def check_size(count: int, what: str) -> int:
    """`count` positions, unless no memory holds as many."""
    if count > MAX_POSITIONS:
        raise FormatError(
            f"{what} would need {count} positions, more than any memory holds; store that dimension compressed instead"
        )
    return count


_ROOT = np.zeros(1, np.int32)
_ROOT.setflags(write=False)


def at_root(entries: int) -> Array:
    """The position above each of so many entries that lie below the root: 0, in one place of memory."""
    made: Array = np.ndarray(entries, np.int32, _ROOT, 0, (0,))  # what `broadcast_to` does, in an eighth of the time
    return made


def expand(buffers: Buffers, above: Above) -> tuple[Array, list[Array], Array | None]:
    """What levels with `pos` and `crd` expand to: see `Level.expand`."""
    pos, crds = buffers[0][0], [level[-1] for level in buffers]
    if above.position is None and above.positions == 1:
        return at_root(len(crds[0])), crds, None
    if above.position is None:
        return passes.over(max(len(pos), len(crds[0]))).owners(pos), crds, None
    parent, position = ranges(*segment_ends(pos, above))
    return parent, [np.take(crd, position) for crd in crds], position


def lift(buffers: Buffers, position: Array) -> tuple[Array, list[Array], Array | None]:
    """What positions of levels with `pos` and `crd` hold: see `Level.lift`."""
    return owners_of(buffers[0][0], position), [np.take(level[-1], position) for level in buffers], None


def owners_of(pos: Array, position: Array) -> Array:
    """The segment that each of some positions lies in.

    >>> owners_of(np.array([0, 0, 2, 3]), np.array([0, 2]))
    array([1, 2])
    """
    owner: Array = np.searchsorted(pos, position, "right") - 1
    return owner


def segment_ends(pos: Array, above: Above) -> tuple[Array, Array]:
    """The segments `lo <= position < hi` below every entry above."""
    if above.position is None:
        return pos[:-1], pos[1:]
    return np.take(pos, above.position), np.take(pos, above.position + 1)


def ranges(lo: Array, hi: Array) -> tuple[Array, Array]:
    """(owner, number): every number of every range `lo[k] <= number < hi[k]`, in order, and the k that it is of.

    >>> ranges(np.array([5, 0, 1]), np.array([7, 0, 2]))
    (array([0, 0, 2], dtype=int32), array([5, 6, 1]))
    """
    counts = hi.astype(np.int64) - lo
    owner = np.repeat(np.arange(len(lo), dtype=crd_dtype(len(lo))), counts)
    ends = np.cumsum(counts)
    return owner, np.arange(len(owner)) + np.repeat(lo - (ends - counts), counts)


def assemble(
    above: Above, keys: Sequence[Array], extents: Sequence[int], merge: bool
) -> tuple[list[tuple[Array, ...]], Array | None, int]:
    """The buffers of a run, the position of every entry in it (None: entry k is at k), and the number of positions.

    Entries come sorted by (position above, *keys); with `merge`, equal neighbours get one position.
    """
    entries = len(keys[0])
    columns = list(keys) if above.positions == 1 else [raw_parents_of(above), *keys]
    number: Array | None = None
    if merge:
        columns, number = passes.over(entries).distinct(columns)
    found = len(columns[-1])
    pos = np.array([0, found]) if above.positions == 1 else offsets(columns[0], above.positions)
    crds = [c.astype(crd_dtype(n), copy=False) for c, n in zip(columns[-len(keys) :], extents, strict=True)]
    return [(pos, crds[0]), *((crd,) for crd in crds[1:])], None if found == entries else number, found


def grouped(above: Above, keys: Sequence[Array], merge: bool) -> tuple[Array, list[Array], Array | None]:
    """(parents, keys) without equal neighbours, and the number of every entry among them; as they are without `merge`, and None."""
    parent = raw_parents_of(above)
    if not merge:
        return parent, list(keys), None
    (parent, *keys), number = passes.over(len(parent)).distinct([parent, *keys])
    return parent, list(keys), number


def moved(parent: Array, begins: Array, positions: int) -> Array:
    """The position of every entry, in order, below `positions`: its number, and what all entries of its parent are moved on by."""
    made = np.arange(len(parent), dtype=crd_dtype(positions))
    begins = begins.astype(made.dtype, copy=False)
    for k in range(0, len(made), BLOCK):
        made[k : k + BLOCK] += begins.take(parent[k : k + BLOCK])
    return made


def closed(start: Array, lengths: Array, crd: Array, vals: Array) -> tuple[Array, Array, Array]:
    """(pos, crd, vals) of the segments that begin at `start`, of these lengths, side by side.

    >>> closed(np.array([2, 0]), np.array([1, 2]), np.array([5, 6, 7]), np.array([1, 2, 3]))
    (array([0, 1, 3]), array([7, 5, 6]), array([3, 1, 2]))
    """
    pos = before(lengths)
    crd, vals = passes.over(max(len(pos), int(pos[-1]))).copied(start, pos, [crd, vals])
    return pos, crd, vals


def followed(pos: Array, crd: Array, vals: Array, ends: Array, more: Array, fill: Any) -> tuple[Array, Array]:
    """(crd, vals) with the coordinates `more`, which begin at `ends` for every segment, behind those of the segments, and the fill there.

    >>> followed(np.array([0, 1, 3]), np.array([5, 0, 1]), np.array([7, 8, 9]), np.array([0, 1, 1]), np.array([6]), 0)
    (array([5, 6, 0, 1]), array([7, 0, 8, 9]))
    """
    many = passes.over(len(crd) + len(more))
    both = [(pos, crd, vals), (ends, more, np.full(len(more), fill, vals.dtype))]
    _, crd, vals = many.interleaved(both, (0, 0))
    return crd, vals


def parents_of(above: Above) -> Array:
    """The position of every entry above, as int64."""
    return raw_parents_of(above).astype(np.int64, copy=False)


def raw_parents_of(above: Above) -> Array:
    """The position of every entry above."""
    return np.arange(above.positions) if above.position is None else above.position


def offsets(parent: Array, parents: int) -> Array:
    """`pos`: see `passes.Passes.offsets`."""
    return passes.over(max(len(parent), parents)).offsets(parent, parents)


# ---------------------------------------------------------------------------------------------------------- checks


def check_run(buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str], unique: bool) -> int:
    """Check the buffers of a run below `parents` positions, level by level; the number of its positions."""
    pos, crds = buffers[0][0], [level[-1] for level in buffers]
    check_pos(pos, parents, len(crds[0]), f"pos of {names[0]}")
    for crd, extent, name in zip(crds, extents, names, strict=True):
        if len(crd) != len(crds[0]):
            raise FormatError(
                f"crd of {name} has {len(crd)} entries, but the level above has {len(crds[0])} positions; give one each"
            )
        check_bounds(crd, extent, f"crd of {name}")
    check_order([expand(buffers, Above(None, parents))[0], *crds], f"crd of {names[-1]}", unique)
    return len(crds[0])


def check_length(buffer: Array, length: int, what: str, reason: str) -> None:
    """`buffer` has `length` entries."""
    if len(buffer) != length:
        raise FormatError(f"{what} has {len(buffer)} entries; it must have {length}, {reason}")


def buffer_dtype(kind: str, extent: int) -> np.dtype[Any]:
    """The dtype of a buffer of `kind` ("pos", "crd" or "word") of a level of `extent`."""
    return {"pos": np.dtype(np.int64), "crd": crd_dtype(extent), "word": np.dtype(np.uint64)}[kind]


def check_vector(buffer: Any, what: str, dtype: np.dtype[Any]) -> None:
    """`buffer` is a contiguous vector of `dtype`."""
    if not isinstance(buffer, np.ndarray) or buffer.ndim != 1:
        raise FormatError(f"{what} is {_described(buffer)}; it must be a one-dimensional NumPy array")
    if buffer.dtype != dtype:
        raise FormatError(f"{what} has dtype {buffer.dtype}; it must be {dtype}")
    if not buffer.flags.c_contiguous:
        raise FormatError(f"{what} is not contiguous; pass a copy made with np.ascontiguousarray")


def _described(buffer: Any) -> str:
    return f"of shape {buffer.shape}" if isinstance(buffer, np.ndarray) else f"of type {type(buffer).__name__}"


def check_pos(pos: Array, parents: int, entries: int | None, what: str, of: str = "coordinates") -> None:
    """`pos` starts at 0, never decreases, and ends at the number of entries (None: anywhere), which are called `of`."""
    if len(pos) != parents + 1:
        raise FormatError(
            f"{what} has {len(pos)} entries; it must have {parents + 1}, one more than the positions above"
        )
    if pos[0] != 0:
        raise FormatError(f"{what} starts at {pos[0]}; it must start at 0")
    falls = np.flatnonzero(pos[1:] < pos[:-1])  # compared, not subtracted: differences of wild numbers wrap around
    if len(falls):
        k = int(falls[0])
        raise FormatError(f"{what} decreases from {pos[k]} to {pos[k + 1]} at position {k + 1}; it must never decrease")
    if entries is not None and pos[-1] != entries:
        raise FormatError(f"{what} ends at {pos[-1]}, but there are {entries} {of}; it must end at their number")


def check_bounds(crd: Array, extent: int, what: str, position: Array | None = None) -> None:
    """All coordinates are in [0, extent); entry k is called position[k]."""
    if not len(crd) or (crd.min() >= 0 and crd.max() < extent):
        return
    k = int(np.flatnonzero((crd < 0) | (crd >= extent))[0])
    fault = "negative" if crd[k] < 0 else "out of bounds"
    at = k if position is None else position[k]
    raise FormatError(f"{what} is {fault} at position {at}: {crd[k]} is not in [0, {extent})")


def check_order(columns: Sequence[Array], what: str, unique: bool, position: Array | None = None) -> None:
    """Entries increase lexicographically by `columns` (the parent first); entry k is called position[k]."""
    if len(columns[0]) < 2:
        return
    tied = np.ones(len(columns[0]) - 1, bool)
    bad = np.zeros(len(columns[0]) - 1, bool)
    for column in columns:
        bad |= tied & (column[1:] < column[:-1])
        tied &= column[1:] == column[:-1]
    if bad.any():
        k = int(np.flatnonzero(bad)[0]) + 1
        k = k if position is None else int(position[k])
        raise FormatError(f"{what} is not sorted at position {k}; sort the entries, or pass them as (data, coords)")
    if unique and tied.any():
        k = int(np.flatnonzero(tied)[0]) + 1
        k = k if position is None else int(position[k])
        raise FormatError(
            f"{what} repeats a coordinate at position {k}; sum the duplicates, or pass them as (data, coords)"
        )
