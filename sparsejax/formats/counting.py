"""The numbers 0 1 2 3 ...: where the segments of rows with one entry each begin, and the columns of a diagonal. Nobody writes to index buffers, so that
all arrays share one memory of them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT = 1 << 20
"""Numbers that are kept: 8 MB of them, as soon as somebody asks for half as many. Longer ones are written each time."""
LEAST = 1 << 13

_numbers: dict[Any, NDArray[Any]] = {}


@functools.lru_cache(maxsize=64)
def counting(first: int, end: int, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """The numbers from `first` to `end`, read-only and in shared memory, the same object each time; None where they are too many to be kept.

    >>> counting(2, 5, np.dtype(np.int32)), counting(0, KEPT + 1, np.dtype(np.int64))
    (array([2, 3, 4], dtype=int32), None)
    """
    if end > KEPT:
        return None
    found = _numbers.get(dtype)
    if found is None or len(found) < end:
        found = np.arange(max(LEAST, 1 << (end - 1).bit_length()), dtype=dtype)
        found.setflags(write=False)
        _numbers[dtype] = found
    return found[first:end]


def counted(first: int, end: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The same, however many."""
    shared = counting(first, end, dtype)
    return np.arange(first, end, dtype=dtype) if shared is None else shared
