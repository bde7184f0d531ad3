"""Segments: what levels with `pos` and `crd` buffers share, in NumPy.

A run is one compressed level, or consecutive coordinate levels, which share their positions:

    pos = [0, 2, 3]    crd = [1, 4, 0]    segment of parent 0: positions 0 and 1, of parent 1: position 2

Functions whose name starts with `check` raise FormatError, naming the fault, where it is and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.errors import FormatError

Array = NDArray[Any]
Buffers = Sequence[Sequence[Array]]


def crd_dtype(extent: int) -> np.dtype[Any]:
    """The dtype of coordinates below `extent`: int32 where it fits.

    >>> crd_dtype(2**40)
    dtype('int64')
    """
    return np.dtype(np.int32 if extent <= 2**31 - 1 else np.int64)


def expand(buffers: Buffers, parents: int) -> tuple[Array, list[Array]]:
    """The parent of every position of a run, and its coordinate at every level of the run."""
    parent = np.repeat(np.arange(parents, dtype=crd_dtype(parents)), np.diff(buffers[0][0]))
    return parent, [level[-1] for level in buffers]


def assemble(
    parent: Array, parents: int, keys: Sequence[Array], extents: Sequence[int], merge: bool
) -> tuple[list[tuple[Array, ...]], Array, int]:
    """The buffers of a run, the position of every entry in it, and the number of positions.

    Entries come sorted by (parent, *keys); with `merge`, equal neighbours get one position.
    """
    size = len(parent)
    fresh = changes([parent, *keys]) if merge else None
    if fresh is None or fresh.all():
        first, position, count = parent, np.arange(size), size
    else:
        first, position, count = parent[fresh], np.cumsum(fresh) - 1, int(np.count_nonzero(fresh))
        keys = [key[fresh] for key in keys]
    pos = np.zeros(parents + 1, np.int64)
    np.cumsum(np.bincount(first, minlength=parents), out=pos[1:])
    crds = [np.array(key, crd_dtype(extent)) for key, extent in zip(keys, extents, strict=True)]
    return [(pos, crds[0]), *((crd,) for crd in crds[1:])], position, count


def changes(columns: Sequence[Array]) -> NDArray[np.bool_]:
    """Whether each entry differs from the one before it in some column (the first one does)."""
    fresh = np.ones(len(columns[0]), bool)
    rest = fresh[1:]
    for k, column in enumerate(columns):
        step = column[1:] != column[:-1]
        np.copyto(rest, step) if k == 0 else np.logical_or(rest, step, out=rest)
    return fresh


# ---------------------------------------------------------------------------------------------------------- checks


def check_run(buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str], unique: bool) -> int:
    """Check the buffers of a run below `parents` positions, level by level; the number of its positions."""
    pos, crds = buffers[0][0], [level[-1] for level in buffers]
    check_vector(pos, f"pos of {names[0]}", np.dtype(np.int64))
    for crd, extent, name in zip(crds, extents, names, strict=True):
        check_vector(crd, f"crd of {name}", crd_dtype(extent))
    check_pos(pos, parents, len(crds[0]), f"pos of {names[0]}")
    for crd, extent, name in zip(crds, extents, names, strict=True):
        if len(crd) != len(crds[0]):
            raise FormatError(
                f"crd of {name} has {len(crd)} entries, but the level above has {len(crds[0])} positions; give one each"
            )
        check_bounds(crd, extent, f"crd of {name}")
    check_order([expand(buffers, parents)[0], *crds], f"crd of {names[-1]}", unique)
    return len(crds[0])


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


def check_pos(pos: Array, parents: int, entries: int, what: str) -> None:
    """`pos` starts at 0, never decreases, and ends at the number of entries."""
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
    if pos[-1] != entries:
        raise FormatError(f"{what} ends at {pos[-1]}, but there are {entries} coordinates; it must end at their number")


def check_bounds(crd: Array, extent: int, what: str) -> None:
    """All coordinates are in [0, extent)."""
    if not len(crd) or (crd.min() >= 0 and crd.max() < extent):
        return
    k = int(np.flatnonzero((crd < 0) | (crd >= extent))[0])
    fault = "negative" if crd[k] < 0 else "out of bounds"
    raise FormatError(f"{what} is {fault} at position {k}: {crd[k]} is not in [0, {extent})")


def check_order(columns: Sequence[Array], what: str, unique: bool) -> None:
    """Entries increase lexicographically by `columns` (the parent first)."""
    if len(columns[0]) < 2:
        return
    tied = np.ones(len(columns[0]) - 1, bool)
    bad = np.zeros(len(columns[0]) - 1, bool)
    for column in columns:
        bad |= tied & (column[1:] < column[:-1])
        tied &= column[1:] == column[:-1]
    if bad.any():
        k = int(np.flatnonzero(bad)[0]) + 1
        raise FormatError(f"{what} is not sorted at position {k}; sort the entries, or pass them as (data, coords)")
    if unique and tied.any():
        k = int(np.flatnonzero(tied)[0]) + 1
        raise FormatError(
            f"{what} repeats a coordinate at position {k}; sum the duplicates, or pass them as (data, coords)"
        )
