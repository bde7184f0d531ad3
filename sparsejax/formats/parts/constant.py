"""Dense arrays of one value. Nobody writes to an array: zeros take no memory, however many, as the system has all of them already."""

from __future__ import annotations

import math
import mmap
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats import ingest
from sparsejax.formats.format import Format
from sparsejax.formats.storage import Storage, dense_template

_NORESERVE = 0x4000
"""Linux: the mapping may be larger than what memory there is."""
_SMALL = 1 << 20
"""Bytes of an array for which there is memory."""
_NUMBERS = frozenset([bool, int])


def filled(shape: tuple[int, ...], value: Any, dtype: np.dtype[Any], format: str | Format | None = None) -> Storage:
    """A dense array of one value; of zeros it is kept that nothing else is in it.

    >>> is_zeros(filled((2, 3), 0.0, np.dtype(float))), is_zeros(filled((2, 3), -0.0, np.dtype(float)))
    (True, False)
    """
    held = type(value) in _NUMBERS or (type(value) is float and dtype.char in "dD")
    if format is None and held and math.prod(shape) * dtype.itemsize <= _SMALL:
        zero = value == 0 and math.copysign(1.0, value) > 0
        vals = np.zeros(math.prod(shape), dtype) if zero else np.full(math.prod(shape), value, dtype)
        vals.flags.writeable = False
        template = dense_template(Format.parse("dense", len(shape)), shape, dtype.type(0))
        return Storage.dense(template, vals, {"zeros": True} if zero else {})
    if any(ingest.fill_scalar(value, dtype).tobytes()):
        return ingest.as_storage(np.full(shape, value, dtype), format)
    wanted = Format.parse("dense" if format is None else format, len(shape))
    made = ingest.as_storage(_zeros(shape, dtype), Format(wanted.levels), copy=False)
    if wanted != made.format:  # in another order of axes
        made = Storage.dense(dense_template(wanted, made.shape, made.fill_value), made.vals, made.cache)
    made.cache["zeros"] = True
    return made


def is_zeros(storage: Storage) -> bool:
    """Whether a dense array was made of zeros alone."""
    return "zeros" in storage.cache


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    try:
        return np.zeros(shape, dtype)
    except MemoryError as error:
        if sys.platform != "linux":
            raise
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
        try:
            untouched = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=flags)
        except (OSError, OverflowError):
            raise error from None
        return np.frombuffer(untouched, dtype).reshape(shape)
