"""Memory that kernels and their results have: aligned to 64 bytes, large blocks used again.

below `SMALLEST`  the C heap, which recycles blocks itself; of those beyond `LEAST` bytes, rounded to a quarter of a power of two, a few of each size
                  are kept here
above             pages of the system. What is given back goes to one list of free blocks, whoever had it: results, intermediate results,
                  workspaces, the segments that threads fill. A fresh page costs a fault when it is first touched, ten times what
                  writing it costs; a recycled one costs nothing.

    take     the smallest free block with room, twice what is needed at most. Where all of it will be used: the one that was given back last, twice
             what is needed at most; from `HUGE` bytes on, the smallest, a quarter more at most. Else pages of the system, `HUGE` ones aligned
             to huge pages, which are asked for
    resize   up to `COPIED` bytes, into a free block with room; else in place, or by moving pages to where there is room for more of
             them, without copying
    settle   the pages behind what a result uses go back to the system where they are more than it uses, from `HUGE` bytes on always: a kept result holds
             twice of what it is at most, as one in a recycled block does
    give     to the end of the list; the oldest blocks go back to the system while more than `limit()` bytes are free, or `FULL` blocks
    drop     all free blocks go back to the system; so does `take` before it fails

A block begins with a line of its own: its size with that line (0 on the C heap), the bytes that may be resident (on the C heap: that were asked
for), and whether it goes to the list.

All of this is one function of machine code, `sparsejax_block(old, size, what)`, which kernels call by this name (`loader.PROVIDED`) on any
thread, and Python by `ctypes`. It takes no lock: an entry of the list is taken and put back by one exchange, so that a fork at any
moment leaves a list that works. Where there is no `mremap` (not on Linux), it is the C heap.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import config
from sparsejax.jit.backend import compiler, host, loader
from sparsejax.jit.codegen.abi import EXACT, NAME, PLAIN, SETTLE, STATE, ZERO
from sparsejax.jit.runtime.system import allocator_object, allocator_text

SMALL = 1 << 14
"""Bytes up to which copying a result is cheaper than an object that owns foreign memory."""
_LIMIT, _HELD = 0, 1

_state = (ctypes.c_int64 * allocator_text.WORDS)()
"""What it holds: `allocator_text`."""


def limit() -> int:
    """Bytes of free blocks that are kept."""
    return config.free_memory() << 20


def compiled() -> compiler.Kernel:
    """The machine code for this system: it is here for Linux on x86-64, else compiled."""
    mremap = host.has("mremap")
    if mremap and host.has("loader"):
        return compiler.loaded(allocator_object.DIGEST, loader.unpacked(allocator_object.OBJECT))
    name = "the allocator" if mremap else "the allocator without mremap"
    return compiler.compile_written(name, lambda: allocator_text.text(mremap), plain=True)


@functools.cache
def _code() -> compiler.Kernel:
    code = compiled()
    compiler.keep(code)  # blocks are given back until the very end
    compiler.keep(_state)
    return code


@functools.cache
def _function() -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(_code().address)


loader.PROVIDED[NAME] = lambda: _code().address
loader.PROVIDED[STATE] = lambda: ctypes.addressof(_state)


def take(size: int, zero: bool = False) -> int:
    """The address of `size` bytes, zeros where asked; MemoryError when there is no memory, also after all free blocks were dropped."""
    _state[_LIMIT] = limit()
    address: int | None = _function()(None, max(1, size), ZERO if zero else EXACT)
    if not address:
        raise MemoryError("sparsejax: the result of this operation does not fit in memory")
    return address


def give(address: int) -> None:
    """Give a block back."""
    _function()(address, 0, PLAIN)


def release(addresses: Sequence[int]) -> None:
    """Give back what a failed kernel left behind."""
    for address in addresses:
        if address:
            give(address)


def held() -> int:
    """Bytes of free blocks."""
    return int(_state[_HELD])


def drop() -> None:
    """Give all free blocks back to the system."""
    _function()(None, -1, PLAIN)


class Owned:
    """A block that NumPy arrays refer to, read-only; it is free when the last of them goes."""

    def __init__(self, address: int, count: int, dtype: np.dtype[Any]) -> None:
        self._address, self._give = address, _function()
        self.__array_interface__ = {
            "version": 3,
            "shape": (count,),
            "typestr": dtype.str,
            "data": (address, True),
        }

    def __del__(self, plain: int = PLAIN) -> None:
        # bound when the class is made: at the end of the interpreter, the names of a module are None
        self._give(self._address, 0, plain)


def adopt(address: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A read-only array over `count` elements that a kernel allocated; the array owns the block (or a copy, when small)."""
    size = count * dtype.itemsize
    if address == 0 or size <= SMALL:
        copied = np.frombuffer(ctypes.string_at(address, size) if size else b"", dtype)
        release((address,))
        return copied
    _state[_LIMIT] = limit()
    _function()(address, size, SETTLE)
    return np.asarray(Owned(address, count, dtype))


def array(count: int, dtype: np.dtype[Any], zero: bool) -> tuple[NDArray[Any], int]:
    """A read-only array of `count` elements for a kernel to write, zeros where asked, and its address. O(count)."""
    address = take(count * dtype.itemsize, zero)
    return np.asarray(Owned(address, count, dtype)), address
