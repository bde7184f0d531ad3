"""Memory of dense results: aligned to 64 bytes, read-only for Python, and used again when the last array over it is gone.

up to `RETURNED`       a block each, which is used again as soon as nobody refers to it (`reuse`): up to `PAGE`, with its storage
up to `TINY` bytes     beyond those, slices of one block, which lives as long as one of them: a call takes the next one
below `SMALLEST`       a block each, from NumPy; the C library recycles it
above                  blocks of `allocator`, which recycles them
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats import Format
from sparsejax.formats.storage import Storage, Template
from sparsejax.jit.backend import host
from sparsejax.jit.codegen.abi import ALIGNMENT
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime.system import allocator, reuse
from sparsejax.jit.runtime.system.reuse import Block, Own, Recycled, Repeated, Stored

SMALLEST = 256 << 10
"""Bytes from which results come from `allocator`: below, NumPy's own recycling is as fast. Between, the C library gives blocks back to the system and
takes fresh ones: a product with its gradient, whose intermediate results have 2 MB, takes 1.7 ms instead of 5.3 (processor time,
medians; two runs of each in turn, one matrix).
"""
TINY, PAGE = 4 << 10, 32 << 10
"""Bytes of the largest results that share a block, and of that block. A block of its own takes 1.3 microseconds, as long as a product of fifty
rows; what is kept of a shared one keeps all of it."""
RETURNED = 128 << 10
"""Bytes of the largest results whose memory what made them keeps, to use it again (`reuse.ALTOGETHER` of all together)."""
OWN = 512 << 10
"""The same of steps whose results have any size (`reuse.Own`)."""
SAME = 8
"""Blocks of one size that are kept for results of any."""
PASSING = 2 << 20
"""The same where no result is there any more when a call ends: as much as the second cache holds."""
Passing = tuple[Own | None, int]
"""Memory for results that pass, and bytes of the largest."""

_BYTE = np.dtype(np.uint8)

freeze: Any = np.ndarray.setflags
"""`freeze(array, False)` is `array.setflags(write=False)` in half of the time, as no argument has a name."""
_all: Any = (ctypes.c_size_t * (1 << 58)).from_address(0)
"""All memory as words of eight bytes: a word is read without an object in between."""
_bytes: Any = (ctypes.c_char * (1 << 58)).from_address(0)
"""The same, byte by byte: views of parts need no type of ctypes for every length."""
HEAD = object.__basicsize__
"""Bytes of an array's object before the pointer to where the array is."""
_array = np.ndarray


def _by_interface(array: NDArray[Any]) -> int:
    """Where an array is in memory, by NumPy's protocol (`array.ctypes` imports, which fails at the end of the interpreter)."""
    return int(array.__array_interface__["data"][0])


def _by_structure(array: NDArray[Any]) -> int:
    """The same in a sixteenth of the time: the pointer stands behind the head of the object, as NumPy's binary interface has it."""
    address: int = _all[id(array) + HEAD >> 3]
    return address


def _agrees() -> bool:
    """Whether objects lie in memory as that expects: where they are at their identity."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_size_t) != 8 or HEAD % 8:
        return False
    samples = np.arange(5), np.zeros(3, np.float32)[1:]
    return all(_by_structure(x) == _by_interface(x) for x in samples)


address_of = _by_structure if _agrees() else _by_interface
"""Where a contiguous array is in memory."""
words: Any = _all if address_of is _by_structure else None
"""All memory as words of eight bytes, if arrays are where `address_of` finds them there: `words[id(array) + HEAD >> 3]`; else None."""


def word_at(address: int) -> int:
    """The word of eight bytes at an address, which is a multiple of eight."""
    word: int = _all[address >> 3]
    return word


def _passed_by_structure(slots: Sequence[int | NDArray[Any]]) -> list[int]:
    return [s if type(s) is int else _all[id(s) + HEAD >> 3] if isinstance(s, _array) else s for s in slots]


def _passed_by_interface(slots: Sequence[int | NDArray[Any]]) -> list[int]:
    return [_by_interface(s) if isinstance(s, np.ndarray) else s for s in slots]


passed = _passed_by_structure if address_of is _by_structure else _passed_by_interface
"""Slots of a call: numbers as they are, contiguous arrays by where they are in memory."""


class Results:
    """Memory for the dense results of one kernel: read-only arrays of `count` elements that are `value` (None: anything), one after
    the other.

    >>> results = Results(3, np.dtype("f8"), 1.0)
    >>> vals, slot = results.take()
    >>> vals, int.from_bytes(slot, "little") % 64
    (array([1., 1., 1.]), 0)
    """

    def __init__(self, count: int, dtype: np.dtype[Any], value: Any, prefix: bytes = b"") -> None:
        self._count, self._dtype, self._prefix = count, dtype, prefix
        self.content = value
        """What memory holds when it is given out (None: anything)."""
        self._behind = struct.Struct(f"{len(prefix)}sq").pack
        self._size = count * dtype.itemsize
        self._slots = 1
        """Results that are made room for at once, twice as many every time: the first may be the only one, of a shape that does not come back."""
        self.ready: list[tuple[NDArray[Any], bytes]] = []
        """What `take` would give, from the end; each may be taken once, by popping it."""
        recycles = (
            0 < self._size <= RETURNED
            and host.has("recycling")
            and choices.pick("memory", ("recycled", "fresh"), "recycled") == "recycled"
        )
        self.recycled = Recycled() if recycles and self._size > PAGE else None
        self.stored = Stored(self) if recycles and self._size <= PAGE else None
        """Storages of results up to `PAGE` bytes."""

    def release(self, vals: NDArray[Any]) -> None:
        """Do not use memory that was given out again: somebody else does."""
        if self.recycled is not None:
            self.recycled.release(vals)
        if self.stored is not None:
            self.stored.release(vals)

    def storage(self, template: Template) -> tuple[Storage, bytes]:
        """The storage of a result that is to be written, and its slots. `template` is that of all of these results (`dense_template`)."""
        again = None if self.stored is None else self.stored.again()
        if again is None:
            return self.another(template)
        if self.content is not None:
            again[2].fill(self.content)
        return again[:2]

    def another(self, template: Template) -> tuple[Storage, bytes]:
        """`storage`, where none of those that are kept will do."""
        stored = self.stored
        if stored is None or len(stored.kept) >= stored.many:
            vals, slots = self.next()
        else:
            vals, address = fresh(self._count, self._dtype, self.content)
            slots = self._behind(self._prefix, address)
        made = Storage.result(template, vals, {"slots": slots, "maker": self})
        if stored is not None and len(stored.kept) < stored.many:
            stored.keep((vals, vals.base, made, slots))  # type: ignore[arg-type]
        return made, slots

    def next(self) -> tuple[NDArray[Any], bytes]:
        """`take`, or what it has prepared."""
        try:
            return self.ready.pop() if self.ready else self.take()
        except IndexError:  # another thread was faster
            return self.take()

    def take(self) -> tuple[NDArray[Any], bytes]:
        """An array, and its address as a packed slot behind the prefix."""
        if self._size <= TINY and (self._slots > 1 or not self._size):
            made = self._slices()
            first = made.pop()
            self.ready = made  # what another thread has just put there is lost, and nothing is given out twice
            return first
        if self.recycled is not None:
            again = self.recycled.again()
            if again is not None:
                if self.content is not None:
                    again[0].base.fill(self.content)  # type: ignore[union-attr]
                return again
        self._slots = 2
        vals, address = fresh(self._count, self._dtype, self.content)
        slots = self._behind(self._prefix, address)
        if self.recycled is not None:
            self.recycled.keep((vals, slots))
        return vals, slots

    def _slices(self) -> list[tuple[NDArray[Any], bytes]]:
        stride = max(1, -(-self._size // ALIGNMENT)) * ALIGNMENT
        step, number = stride // self._dtype.itemsize, min(self._slots, PAGE // stride)
        self._slots *= 2
        whole, start = aligned(number * step, self._dtype, self.content)
        freeze(whole, False)
        slots = map(functools.partial(self._behind, self._prefix), range(start, start + number * stride, stride))
        return list(zip(whole.reshape(number, step)[:, : self._count], slots, strict=True))


def fresh(count: int, dtype: np.dtype[Any], value: Any) -> tuple[NDArray[Any], int]:
    """A read-only array of `count` elements that are `value` (None: anything) for a kernel to write, and its address. O(count)."""
    if count * dtype.itemsize >= SMALLEST:
        return full(count, dtype, value)
    vals, address = aligned(count, dtype, value)
    freeze(vals, False)
    return vals, address


_pages: dict[Any, list[tuple[NDArray[Any], int, int]]] = {}
"""By dtype and by what they hold (`_holds`): a block that the next small result is a slice of, the address where that begins, and how many elements were
given out. Who takes a result takes the block off the list meanwhile, so that a thread beside begins another one."""


def taker(dtype: np.dtype[Any], value: Any, mine: Passing | None = None) -> Callable[[int], tuple[NDArray[Any], int]]:
    """`fresh` of so many elements as a function, for results that may be the only ones of their size: up to `TINY` bytes, a slice of a block that it
    shares with others, up to `OWN` of one that another result of the function had, whatever its size was (`reuse.Own`); of results that pass, `mine`.

    >>> take = taker(np.dtype("f8"), 1.0)
    >>> take(3)[0], take(2)[1] % 64
    (array([1., 1., 1.]), 0)
    """
    size, filled, (blocks, largest) = dtype.itemsize, value is not None, mine or own(dtype)
    least, most = TINY // size, largest // size if blocks is not None else 0
    pages, room = _pages.setdefault((dtype, _holds(value)), []), PAGE // size
    line = ALIGNMENT // size if not ALIGNMENT % size else 0
    writes = filled and value != 0

    def take(count: int) -> tuple[NDArray[Any], int]:
        if not 0 < count <= least or not line:
            if not least < count <= most:
                return fresh(count, dtype, value)
            whole, begin, address = blocks.take(count)  # type: ignore[union-attr]
            made = whole[begin : begin + count]
            if filled:
                made.fill(value)
            freeze(made, False)
            return made, address
        lines = -(-count // line) * line
        try:
            whole, begin, given = pages.pop()
        except IndexError:  # the first result, or a thread beside takes one
            given = room
        if given + lines > room:
            whole, begin = aligned(room, dtype, 0 if filled else None)
            freeze(whole, writes)
            given = 0
        pages.append((whole, begin, given + lines))
        made = whole[given : given + count]  # read-only, as the block is
        if writes:
            made.fill(value)
            freeze(made, False)
        return made, begin + given * size

    return take


def repeated(form: Format, dtype: np.dtype[Any], fill: Any, value: Any) -> Repeated | None:
    """Storages of dense results of any shape that hold `value` (None: anything) before a kernel writes them; None where they are not used again."""
    if not host.has("recycling"):
        return None
    most, buffers, behind = (
        PAGE // dtype.itemsize,
        ((),) * len(form.levels),
        struct.Struct(f"{len(form.levels) + 1}q").pack,
    )

    def make(shape: tuple[int, ...]) -> tuple[Storage, bytes] | None:
        count = math.prod(shape)
        if count > most:
            return None
        vals, address = fresh(count, dtype, value)
        made = Storage.result((form, shape, fill, buffers), vals, {})
        return made, behind(*shape, address)

    return Repeated(make)


def _holds(value: Any) -> str:
    """What blocks hold that results are slices of: anything, zeros, or what each result is filled with."""
    return "anything" if value is None else "zeros" if value == 0 else "values"


def _same(count: int, dtype: np.dtype[Any]) -> Own | None:
    """Memory of about so many elements that any results had; None where it is not used again."""
    if not host.has("recycling"):
        return None
    size = reuse.roomy(count)
    kept = _sames.get((dtype, size))
    if kept is None:
        made = Own(lambda _: _begun(size, dtype), math.inf, 0, SAME)
        kept = _sames.setdefault((dtype, size), made)
    return kept


def passing(dtype: np.dtype[Any]) -> Passing:
    """Memory for results that nobody has when a call ends, of steps of a plan of which one has none while the other does."""
    return _own(dtype, math.inf), PASSING


def own(dtype: np.dtype[Any]) -> Passing:
    """Memory for results of one step, whatever their size, which others may have when a call ends."""
    return _own(dtype), OWN


def _own(dtype: np.dtype[Any], loose: float = 2) -> Own | None:
    """Memory that results of one step had, whatever their size; None where it is not used again."""
    return Own(lambda count: _begun(count, dtype), loose) if host.has("recycling") else None


def blocks() -> Callable[[int], Block]:
    """Read-only blocks of bytes, aligned, for the vectors of one result: a function of how many. What it returns an earlier block was, where nobody refers
    to that any more and it is hardly larger."""

    def make(count: int) -> Block:
        whole, begin, address = _begun(count, _BYTE)
        freeze(whole, False)
        return whole, begin, address

    return Own(make, loose=1.25, spare=0).take if host.has("recycling") else make


def written(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Memory for a result that may be the only one of its size: flat and read-only, and as an array of this shape that may be written."""
    count = math.prod(shape)
    same = _same(count, dtype) if TINY < count * dtype.itemsize <= RETURNED else None
    if same is not None:
        whole, begin, _ = same.take(count)
        vals = whole[begin : begin + count]
        made = vals.reshape(shape)
    elif count * dtype.itemsize >= SMALLEST and host.has("mremap"):
        vals, address = allocator.array(count, dtype, zero=False)
        return vals, _writable(vals, address).reshape(shape)
    else:
        whole, begin, _ = _begun(count, dtype)
        vals = whole[begin : begin + count]
        made = vals.reshape(shape)
    freeze(vals, False)
    return vals, made


def lined(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """As `written`, of a result that begins with a line of the cache, in memory that is kept for no later one. A flat array of less than `SMALLEST` bytes
    has the other one as its base. Kernels that read rows of whole lines take up to twice as long where these begin anywhere."""
    size = math.prod(shape) * dtype.itemsize
    if size >= SMALLEST and host.has("mremap"):
        return written(shape, dtype)
    raw = bytearray(size + ALIGNMENT)  # an array in its place would be the base of both
    start = -address_of(np.frombuffer(raw, np.uint8)) % ALIGNMENT
    made: NDArray[Any] = np.ndarray(shape, dtype, raw, start)
    vals = made.reshape(-1)
    freeze(vals, False)
    return vals, made


def aligned(count: int, dtype: np.dtype[Any], value: Any) -> tuple[NDArray[Any], int]:
    """An array of `count` elements that are `value` (None: anything) in fresh memory, and its address, a multiple of `ALIGNMENT`. O(count)."""
    whole, start, address = _begun(count, dtype, np.empty if value is None else np.zeros)
    made = whole[start : start + count]
    if value is not None and value != 0:
        made.fill(value)
    return made, address


def _begun(count: int, dtype: np.dtype[Any], make: Callable[..., NDArray[Any]] = np.empty) -> Block:
    """An array with room for `count` elements, where these begin, and the address there."""
    spare = ALIGNMENT // dtype.itemsize
    whole = make(count + spare, dtype)
    address = address_of(whole)
    start = -address % ALIGNMENT // dtype.itemsize
    return whole, start, address + start * dtype.itemsize


_sames: dict[tuple[np.dtype[Any], int], Own] = {}
"""By dtype and by how many elements there is room for."""


def release(vals: NDArray[Any]) -> None:
    """Do not use the memory of a result again, if it is of `taker` or `written`: its array is given up and something else is written there."""
    if isinstance(vals.base, np.ndarray):
        reuse.release(vals.base)


def full(count: int, dtype: np.dtype[Any], value: Any) -> tuple[NDArray[Any], int]:
    """A read-only array of `count` elements that are `value` (None: anything) for a kernel to write, `count * dtype.itemsize >= SMALLEST`; and its address.

    MemoryError when there is no memory, also after all free blocks were given up. O(count).
    """
    if not host.has("mremap"):
        made, address = aligned(count, dtype, value)
        freeze(made, False)
        return made, address
    made, address = allocator.array(count, dtype, zero=value is not None and value == 0)
    if value is not None and value != 0:
        fill(made, address, value)
    return made, address


def fill(array: NDArray[Any], address: int, value: Any) -> None:
    """Set all elements of a read-only array, whose memory is at `address` and which nobody else sees yet."""
    _writable(array, address).fill(value)


def _writable(array: NDArray[Any], address: int) -> NDArray[Any]:
    """The memory of a read-only array, which is at `address`."""
    return np.frombuffer(_bytes, array.dtype, array.size, address)


def from_line(array: NDArray[Any]) -> NDArray[Any]:
    """An array of one dimension where it begins with a line of the cache, else a copy that does, read-only. O(1), or O(size)."""
    if not address_of(array) % ALIGNMENT or not array.size:
        return array
    large = array.nbytes >= SMALLEST
    made, address = (full if large else aligned)(array.size, array.dtype, None)
    _writable(made, address)[:] = array
    freeze(made, False)
    return made


def empty(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A read-only array of `count` elements for a kernel to write, all of them: from `SMALLEST` bytes on as `full`, else from NumPy."""
    if count * dtype.itemsize >= SMALLEST:
        return full(count, dtype, None)[0]
    made = np.empty(count, dtype)
    freeze(made, False)
    return made
