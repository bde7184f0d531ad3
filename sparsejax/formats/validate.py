"""Validation: nothing malformed reaches a kernel. Every message names the fault, where it is, and what to do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.errors import FormatError
from sparsejax.formats.compressed import Compressed
from sparsejax.formats.convert import crd_dtype
from sparsejax.formats.dense import Dense
from sparsejax.formats.storage import Storage


def validate(storage: Storage) -> None:
    """Raise FormatError unless the buffers of `storage` fit its shape and format. Linear in the buffers."""
    form, shape = storage.format, storage.shape
    if len(shape) != form.ndim:
        raise FormatError(f"shape {shape} has {len(shape)} dimensions, but format {form} has {form.ndim} levels")
    if any(n < 0 for n in shape):
        raise FormatError(f"shape {shape} has a negative extent; extents are zero or more")
    if len(storage.buffers) != form.ndim:
        raise FormatError(f"format {form} needs buffers for {form.ndim} levels, but {len(storage.buffers)} are given")
    count = 1
    run: list[NDArray[Any]] = []
    for level, dimension in enumerate(form.order):
        names, buffers = form.buffer_names(level), storage.buffers[level]
        where = f"level {level} (dimension {dimension}, {type(form.levels[level]).__name__.lower()})"
        if len(buffers) != len(names):
            raise FormatError(f"{where} needs the buffers {names}, but {len(buffers)} are given")
        if isinstance(form.levels[level], Dense):
            count *= shape[dimension]
            continue
        for name, buffer in zip(names, buffers, strict=True):
            wanted = np.dtype(np.int64) if name == "pos" else crd_dtype(shape[dimension])
            check_vector(buffer, f"{name} of {where}", wanted)
        crd = buffers[-1]
        if names[0] == "pos":
            check_pos(buffers[0], count, len(crd), f"pos of {where}")
            run = [segments(buffers[0], len(crd)), crd]
        else:
            if len(crd) != count:
                raise FormatError(f"crd of {where} has {len(crd)} entries, but the level above has {count} positions")
            run.append(crd)
        count = len(crd)
        check_bounds(crd, shape[dimension], f"crd of {where}")
        closes = level + 1 == form.ndim or not form.continues(level + 1)
        kind = form.levels[level]
        if closes:
            check_order(run, f"crd of {where}", unique=not isinstance(kind, Compressed) or kind.unique)
    if storage.vals.ndim != 1 or len(storage.vals) != count:
        raise FormatError(f"vals has shape {storage.vals.shape}, but the levels hold {count} positions")


def check_vector(buffer: Any, what: str, dtype: np.dtype[Any]) -> None:
    """`buffer` is a contiguous vector of `dtype`."""
    if not isinstance(buffer, np.ndarray) or buffer.ndim != 1:
        raise FormatError(f"{what} must be a one-dimensional NumPy array")
    if buffer.dtype != dtype:
        raise FormatError(f"{what} has dtype {buffer.dtype}; it must be {dtype}")
    if not buffer.flags.c_contiguous:
        raise FormatError(f"{what} is not contiguous; pass a copy made with np.ascontiguousarray")


def check_pos(pos: NDArray[Any], parents: int, entries: int, what: str) -> None:
    """`pos` starts at 0, never decreases, and ends at the number of entries."""
    if len(pos) != parents + 1:
        raise FormatError(
            f"{what} has {len(pos)} entries; it must have {parents + 1}, one more than the positions above"
        )
    if pos[0] != 0:
        raise FormatError(f"{what} starts at {pos[0]}; it must start at 0")
    falls = np.flatnonzero(np.diff(pos) < 0)
    if len(falls):
        k = int(falls[0])
        raise FormatError(f"{what} decreases from {pos[k]} to {pos[k + 1]} at position {k + 1}; it must never decrease")
    if pos[-1] != entries:
        raise FormatError(f"{what} ends at {pos[-1]}, but there are {entries} coordinates; it must end at their number")


def check_bounds(crd: NDArray[Any], extent: int, what: str) -> None:
    """All coordinates are in [0, extent)."""
    wrong = np.flatnonzero((crd < 0) | (crd >= extent))
    if len(wrong):
        k = int(wrong[0])
        fault = "negative" if crd[k] < 0 else "out of bounds"
        raise FormatError(f"{what} is {fault} at position {k}: {crd[k]} is not in [0, {extent})")


def segments(pos: NDArray[Any], entries: int) -> NDArray[Any]:
    """The parent of every entry."""
    return np.repeat(np.arange(len(pos) - 1), np.diff(pos))[:entries]


def check_order(columns: list[NDArray[Any]], what: str, unique: bool) -> None:
    """Entries increase lexicographically by `columns` (the parent first)."""
    if len(columns[0]) < 2:
        return
    tied = np.ones(len(columns[0]) - 1, bool)
    bad = np.zeros(len(columns[0]) - 1, bool)
    for column in columns:
        step = np.diff(column.astype(np.int64))
        bad |= tied & (step < 0)
        tied &= step == 0
    if bad.any():
        k = int(np.flatnonzero(bad)[0]) + 1
        raise FormatError(f"{what} is not sorted at position {k}; sort the entries, or pass them as (data, coords)")
    if unique and tied.any():
        k = int(np.flatnonzero(tied)[0]) + 1
        raise FormatError(
            f"{what} repeats a coordinate at position {k}; sum the duplicates, or pass them as (data, coords)"
        )


def check_size(shape: tuple[int, ...]) -> None:
    """A dense array of `shape` can exist."""
    if math.prod(shape) > 2**62:
        raise FormatError(f"a dense array of shape {shape} does not fit in memory; use a sparse format")
