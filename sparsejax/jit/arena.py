"""Memory of dense results: aligned to 64 bytes, read-only for Python, and used again when the last array over it is gone.

up to `TINY` bytes     slices of one block, which lives as long as one of them: a call takes the next one
below `SMALLEST`       a block each, from NumPy; the C library recycles it
above                  blocks that are recycled here: a fresh one costs a page fault for every page that is touched, a
                       recycled one only has to be cleared
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
SMALLEST = 256 << 10
"""Bytes from which results come from here: below, the C library's own recycling is as fast. Between, it gives blocks back to the system and
takes fresh ones: a product with its gradient, whose intermediate results have 2 MB, takes 1.7 ms instead of 5.3 (processor time,
medians; two runs of each in turn, one matrix).
"""


def _limit() -> int:
    """A sixteenth of the memory of the machine, between 256 MiB and 1 GiB."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not known here
        memory = 0
    return min(max(memory >> 4, 256 << 20), 1 << 30)


LIMIT = _limit()
"""Bytes of free blocks that are kept."""
TINY, PAGE = 512, 8192
"""Bytes of the largest results that share a block, and of that block."""

_first_byte: Any = ctypes.c_char.from_buffer


def address_of(array: NDArray[Any]) -> int:
    """Where a contiguous array is in memory; in a fifth of the time of `array.ctypes.data` when it is writeable."""
    try:
        return ctypes.addressof(_first_byte(array))
    except (TypeError, ValueError):  # read-only, or empty
        return array.ctypes.data


class Results:
    """Memory for the dense results of one kernel: read-only arrays of `count` elements that are `value` (None: anything), one after
    the other.

    >>> results = Results(3, np.dtype("f8"), 1.0)
    >>> vals, slot = results.take()
    >>> vals, int.from_bytes(slot, "little") % 64
    (array([1., 1., 1.]), 0)
    """

    def __init__(self, count: int, dtype: np.dtype[Any], value: Any, prefix: bytes = b"") -> None:
        self._count, self._dtype, self._value, self._prefix = count, dtype, value, prefix
        self._behind = struct.Struct(f"{len(prefix)}sq").pack
        self._size = count * dtype.itemsize
        self.ready: list[tuple[NDArray[Any], bytes]] = []
        """What `take` would give, from the end; each may be taken once, by popping it."""

    def take(self) -> tuple[NDArray[Any], bytes]:
        """An array, and its address as a packed slot behind the prefix."""
        if self._size <= TINY:
            made = self._slices()
            first = made.pop()
            self.ready = made  # what another thread has just put there is lost, and nothing is given out twice
            return first
        if self._size < SMALLEST:
            vals, address = aligned(self._count, self._dtype, self._value)
            vals.setflags(write=False)
        else:
            vals, address = full(self._count, self._dtype, self._value)
        return vals, self._behind(self._prefix, address)

    def _slices(self) -> list[tuple[NDArray[Any], bytes]]:
        stride = max(1, -(-self._size // ALIGNMENT)) * ALIGNMENT
        step, number = stride // self._dtype.itemsize, PAGE // stride
        whole, start = aligned(number * step, self._dtype, self._value)
        whole.setflags(write=False)
        slots = map(functools.partial(self._behind, self._prefix), range(start, start + number * stride, stride))
        return list(zip(whole.reshape(number, step)[:, : self._count], slots, strict=True))


def aligned(count: int, dtype: np.dtype[Any], value: Any) -> tuple[NDArray[Any], int]:
    """An array of `count` elements that are `value` (None: anything) in fresh memory, and its address, a multiple of `ALIGNMENT`. O(count)."""
    spare = ALIGNMENT // dtype.itemsize
    whole = np.zeros(count + spare, dtype)
    address = address_of(whole)
    start = -address % ALIGNMENT // dtype.itemsize
    made = whole[start : start + count]
    if value is not None and value != 0:
        made.fill(value)
    return made, address + start * dtype.itemsize


class _Memory:
    """One block, in use or free."""

    __slots__ = ("address", "fresh", "raw", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.raw: NDArray[Any] = np.zeros(size + ALIGNMENT, np.uint8)
        self.address = -(-self.raw.ctypes.data // ALIGNMENT) * ALIGNMENT
        self.fresh = True


class _Lease:
    """What the arrays over a block refer to; the block is free when it goes."""

    def __init__(self, memory: _Memory, count: int, dtype: np.dtype[Any]) -> None:
        self._memory = memory
        self.__array_interface__ = {
            "version": 3,
            "shape": (count,),
            "typestr": dtype.str,
            "data": (memory.address, True),
        }

    def __del__(self) -> None:
        _give(self._memory)


_free: list[
    _Memory
] = []  # oldest first; every use of it is one atomic operation, as leases end in any thread at any time


def _give(memory: _Memory) -> None:
    memory.fresh = False
    _free.append(memory)
    while sum(m.size for m in tuple(_free)) > LIMIT:
        _free.pop(0)


def _take(size: int) -> _Memory:
    for memory in tuple(_free):
        if memory.size == size:
            try:
                _free.remove(memory)
            except ValueError:  # another thread was faster
                continue
            return memory
    try:
        return _Memory(size)
    except MemoryError:
        _free.clear()
        return _Memory(size)


def _class_of(size: int) -> int:
    """`size` rounded up to an eighth of a power of two, so that results of similar sizes share blocks.

    >>> _class_of(1 << 20), _class_of((1 << 20) + 1)
    (1048576, 1179648)
    """
    step = 1 << max(0, (size - 1).bit_length() - 4)
    return -(-size // step) * step


def full(count: int, dtype: np.dtype[Any], value: Any) -> tuple[NDArray[Any], int]:
    """A read-only array of `count` elements that are `value` (None: anything) for a kernel to write, `count * dtype.itemsize >= SMALLEST`; and its address.

    MemoryError when there is no memory, also after all free blocks were given up. O(count).
    """
    size = count * dtype.itemsize
    memory = _take(_class_of(size))
    if value is None:
        pass
    elif value != 0:
        start = memory.address - memory.raw.ctypes.data
        memory.raw[start : start + size].view(dtype).fill(value)
    elif not memory.fresh:
        ctypes.memset(memory.address, 0, size)
    return np.asarray(_Lease(memory, count, dtype)), memory.address


def empty(count: int, dtype: np.dtype[Any], least: int = SMALLEST) -> NDArray[Any]:
    """A read-only array of `count` elements for a kernel to write, all of them: from `least` bytes on as `full`, else from NumPy."""
    size = count * dtype.itemsize
    if size >= least:
        return np.asarray(_Lease(_take(_class_of(size)), count, dtype))
    made = np.empty(count, dtype)
    made.flags.writeable = False
    return made


def held() -> int:
    """Bytes of free blocks."""
    return sum(m.size for m in tuple(_free))


def drop() -> None:
    """Give all free blocks back to the system."""
    _free.clear()
