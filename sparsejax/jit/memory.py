"""Memory of a kernel: blocks from the C heap, cleared and filled."""

from __future__ import annotations

from sparsejax.jit import emit
from sparsejax.jit.builder import OUT_OF_MEMORY, Builder, Val, Var


def allocate(b: Builder, count: Val, size: int, zero: bool = True) -> Val:
    """`count` elements of `size` bytes from the C heap; the kernel fails when there is no memory."""
    some = b.named("some", b.max(count, b.i64(1)))
    pointer = b.call("calloc", "ptr", [some, b.i64(size)]) if zero else b.call("malloc", "ptr", [b.mul(some, size)])
    with b.if_(b.eq(b.convert("ptrtoint", pointer, "i64"), 0)):
        b.fail(OUT_OF_MEMORY)
    return pointer


def clear(b: Builder, pointer: Val, lo: Val, hi: Val, size: int) -> None:
    """Zero the elements lo to hi of `size` bytes each."""
    address = b.add(b.convert("ptrtoint", pointer, "i64"), b.mul(lo, size))
    count = b.mul(b.sub(hi, lo), size)
    b.call("memset", "ptr", [b.convert("inttoptr", address, "ptr"), b.const("i32", 0), count])


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


def resize(b: Builder, pointer: Var, count: Val, size: int) -> None:
    """Make the block `pointer` hold `count` elements of `size` bytes; the kernel fails, keeping it, when there is no memory."""
    fresh = b.call("realloc", "ptr", [b.get(pointer), b.mul(count, size)])
    check(b, fresh)
    b.set(pointer, fresh)


def release(b: Builder, pointer: Var) -> None:
    """Free the block `pointer` and forget it."""
    b.call("free", "void", [b.get(pointer)])
    b.set(pointer, null(b))


def check(b: Builder, pointer: Val) -> None:
    """Fail when an allocation has returned null."""
    with b.if_(b.eq(b.convert("ptrtoint", pointer, "i64"), 0)):
        b.fail(OUT_OF_MEMORY)
