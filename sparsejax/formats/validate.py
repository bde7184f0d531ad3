"""Validation: nothing malformed reaches a kernel. Every message names the fault, where it is, and what to do."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.errors import FormatError
from sparsejax.formats import entries
from sparsejax.formats.levels.segments import check_vector
from sparsejax.formats.storage import Storage


def validate(storage: Storage) -> None:
    """Raise FormatError unless the buffers of `storage` fit its shape and format. Linear in the buffers.

    Checked: lengths, dtypes and contiguity of every buffer; what each level demands, such as `pos` starting at 0, never decreasing
    and ending at the number of coordinates; coordinates in bounds, without repetition where the level is unique, and sorted, or
    found by probing; dtype of values and fill; the fill at unused positions.

    >>> from sparsejax.formats import Format, convert
    >>> validate(convert.from_dense(np.eye(3), Format.parse("csr", 2), 0.0))
    """
    form = storage.format
    shape = checked_shape(storage.shape)
    if len(shape) != form.ndim:
        raise FormatError(f"shape {shape} has {len(shape)} dimensions, but format {form} is for {form.ndim}")
    if len(storage.buffers) != len(form.levels):
        raise FormatError(
            f"format {form} needs buffers for {len(form.levels)} levels, but {len(storage.buffers)} are given"
        )
    extents = form.level_extents(shape)
    names = [
        f"level {level} (dimension {dimension}, {type(form.levels[level]).__name__.lower()})"
        for level, dimension in enumerate(form.order)
    ]
    for level, name in enumerate(names):
        wanted, given = form.buffer_names(level), len(storage.buffers[level])
        if given != len(wanted):
            raise FormatError(f"{name} needs the buffers {wanted}, but {given} are given")
        form.levels[level].check_types(storage.buffers[level], form.continues(level), extents[level], name)
    count = 1
    for first, stop in form.runs:
        count = form.levels[first].check(storage.buffers[first:stop], count, extents[first:stop], names[first:stop])
    if form.pads(shape):
        _check_inside(storage, names)
    _check_values(storage, count)


def _check_inside(storage: Storage, names: Sequence[str]) -> None:
    """Blocks that stick out of the shape have no coordinates there, but for levels that cannot do without."""
    form = storage.format
    for run in entries.walk(form, storage.shape, storage.buffers, len(form.levels)):
        level = form.levels[run.first]
        if run.dropped and not level.full and not level.relative:
            raise FormatError(
                f"{names[run.stop - 1]} holds {run.dropped} coordinates outside the shape {storage.shape}, in blocks that stick "
                "out of it; leave them out"
            )


def _check_values(storage: Storage, count: int) -> None:
    vals, fill = storage.vals, np.asarray(storage.fill_value)
    if vals.dtype.name not in dtypes.SHORT_NAMES:
        raise FormatError(
            f"vals has dtype {vals.dtype}, which is not supported; convert it with .astype, e.g. to float64"
        )
    check_vector(vals, "vals", dtypes.canonical(vals.dtype))
    if len(vals) != count:
        raise FormatError(f"vals has {len(vals)} entries, but the levels hold {count} positions; give one value each")
    if fill.shape != () or fill.dtype != vals.dtype:
        raise FormatError(
            f"the fill is {storage.fill_value!r}, but it must be a scalar of the dtype {vals.dtype} of vals"
        )
    used = entries.used(storage.format, storage.shape, storage.buffers)
    if used is not None:
        wrong = (vals != fill) & ((vals == vals) | (fill == fill))
        wrong[used] = False
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            raise FormatError(
                f"vals is {vals[k]} at position {k}, which is unused; unused positions hold the fill, {fill}"
            )


def checked_shape(shape: Iterable[Any]) -> tuple[int, ...]:
    """`shape` as Python integers; FormatError for extents that are negative or beyond 64 bits.

    >>> checked_shape((np.int32(2), 3))
    (2, 3)
    """
    if is_shape(shape):
        return shape  # type: ignore[return-value]
    try:
        made = tuple([operator.index(n) for n in shape])
    except TypeError:
        raise FormatError(f"shape={shape!r} must hold integers") from None
    check_extents(made, "shape")
    return made


def is_shape(shape: Any) -> bool:
    """Whether it is a tuple of Python's integers that are extents, so that nothing is left to check or convert."""
    if type(shape) is tuple:
        for n in shape:
            if type(n) is not int or not 0 <= n < 2**63:
                break
        else:
            return True
    return False


def check_extents(numbers: Sequence[Any], what: str, alone: bool = False) -> None:
    """FormatError, naming argument and axis, unless all numbers are from 0 to 2^63 - 1; `alone`: the argument is the only one of them. Those that
    are not known while a function is traced have 64 bits, but may be negative: what they are asked becomes a guard."""
    for axis, n in enumerate(numbers):
        if n < 0 or (type(n) is int and n >= 2**63):
            place = f"{what}={n} is no extent" if alone else f"axis {axis} of {what}={tuple(numbers)} has extent {n}"
            raise FormatError(f"{place}; extents are from 0 to 2^63 - 1")
