"""Memory of a kernel: blocks (`allocator`), cleared and filled."""

from __future__ import annotations

from collections.abc import Callable

from sparsejax.jit.backend.builder import OUT_OF_MEMORY, Builder, Val, Var
from sparsejax.jit.codegen import abi, emit

LINE = 64
"""Bytes of a line of the cache."""


def block(b: Builder, old: Val, size: Val, what: int = abi.PLAIN) -> Val:
    """What `allocator` makes of a request."""
    return b.call(abi.NAME, "ptr", [old, size, b.i64(what)])


def allocate(b: Builder, count: Val, size: int, zero: bool = True) -> Val:
    """`count` elements of `size` bytes; the kernel fails when there is no memory."""
    some = b.named("some", b.max(count, b.i64(1)))
    pointer = block(b, null(b), b.mul(some, size), abi.SPARSE if zero else abi.PLAIN)
    check(b, pointer)
    return pointer


class Keeper:
    """Blocks that a caller may keep for the next call (`abi.KEPT`): as a call leaves them, the next one finds them. `cells` is the address of its
    words, null where nobody keeps anything: then blocks are freed."""

    def __init__(self, b: Builder, cells: Val) -> None:
        self._cells, self._count = cells, 0
        self._kept = b.var("kept", b.ne(b.convert("ptrtoint", cells, "i64"), 0))

    def left(self) -> int:
        """How many more blocks there are words for."""
        return abi.KEPT - self._count

    def block(self, b: Builder, count: Val, size: int, zero: bool, prepare: Callable[[Val], None] | None = None) -> Val:
        """The next block, of `count` elements of `size` bytes: allocated and prepared, unless it was kept."""
        number, pointer = b.i64(self._count), b.var("block", null(b))
        self._count += 1
        with b.if_(b.get(self._kept)):
            b.set(pointer, b.load(self._cells, number, "ptr"))
        with b.if_(b.eq(b.convert("ptrtoint", b.get(pointer), "i64"), 0)):
            fresh = allocate(b, count, size, zero)
            b.set(pointer, fresh)
            if prepare is not None:
                prepare(fresh)
            with b.if_(b.get(self._kept)):
                b.store(self._cells, number, fresh)
        return b.get(pointer)

    def free(self, b: Builder, pointer: Val) -> None:
        """Free a block that nobody keeps."""
        with b.if_(b.eq(b.get(self._kept), b.const("i1", 0))):
            free(b, pointer)


def aligned(b: Builder, pointer: Val, bytes: int = 64) -> Val:
    """The first address from `pointer` on that is a multiple of `bytes`, a power of two."""
    address = b.add(b.convert("ptrtoint", pointer, "i64"), bytes - 1)
    return b.convert("inttoptr", b.and_(address, b.i64(-bytes)), "ptr")


def moved(b: Builder, pointer: Val, by: Val) -> Val:
    """The address `by` bytes behind `pointer`."""
    return b.convert("inttoptr", b.add(b.convert("ptrtoint", pointer, "i64"), by), "ptr")


def clear(b: Builder, pointer: Val, lo: Val, hi: Val, size: int, byte: int = 0) -> None:
    """Set the bytes of the elements lo to hi of `size` bytes each."""
    count = b.mul(b.sub(hi, lo), size)
    b.call("memset", "ptr", [moved(b, pointer, b.mul(lo, size)), b.const("i32", byte), count])


def fill(b: Builder, pointer: Val, lo: Val, hi: Val, value: emit.Num) -> None:
    """`pointer[lo:hi] = value`."""
    if all(part == b.const(part.type, 0) for part in value.parts):
        clear(b, pointer, lo, hi, value.dtype.itemsize)
        return
    with b.for_(lo, hi, "z") as position:
        emit.store(b, pointer, position, value)


def null(b: Builder) -> Val:
    """The null pointer."""
    return b.convert("inttoptr", b.i64(0), "ptr")


def resized(b: Builder, pointer: Val, count: Val, size: int) -> Val:
    """The block `pointer` with room for `count` elements of `size` bytes, elsewhere perhaps; the kernel fails, keeping it, when there is no memory."""
    fresh = block(b, pointer, b.mul(count, size))
    check(b, fresh)
    return fresh


def resize(b: Builder, pointer: Var, count: Val, size: int) -> None:
    """Make the block `pointer` hold `count` elements of `size` bytes; the kernel fails, keeping it, when there is no memory."""
    b.set(pointer, resized(b, b.get(pointer), count, size))


def free(b: Builder, pointer: Val) -> None:
    """Give a block back, or nothing where there is none."""
    block(b, pointer, b.i64(0))


def release(b: Builder, pointer: Var) -> None:
    """Give the block `pointer` back and forget it."""
    free(b, b.get(pointer))
    b.set(pointer, null(b))


def check(b: Builder, pointer: Val) -> None:
    """Fail when an allocation has returned null."""
    with b.if_(b.eq(b.convert("ptrtoint", pointer, "i64"), 0)):
        b.fail(OUT_OF_MEMORY)


def prefetch(b: Builder, pointer: Val, position: Val, size: int, written: bool = False, near: bool = True) -> None:
    """Ask for the cache line of `pointer[position]`, an element of `size` bytes, to be read, or `written`; into the first cache, or the second one."""
    address = b.add(b.convert("ptrtoint", pointer, "i64"), b.mul(position, size))
    hints = [b.const("i32", n) for n in (int(written), 3 if near else 2, 1)]
    b.call("llvm.prefetch.p0", "void", [b.convert("inttoptr", address, "ptr"), *hints])
