"""The machine code that reads a table of operations (`loop`) and does what they say.

An operation is five 8-byte numbers: a code and four arguments. `words` is an array of 8-byte words, on which operations work; addresses in
it are numbers of words, `*x` is what the word `x` points to.

    HALT                            leave
    CALL   f x                      the kernel at address f, on the slots from word x on; where it fails, leave with its status
    ASK    f x y                    the function of Python at address f, on the slots from word x on; where word y is not `DONE` then, leave with the
                                    difference
    COPY   x y n                    n words from y on, to x
    FILL   x y bits size            elements of `size` bytes at *x, until there are as many bytes as word y says
    TAKE   x y size                 x = memory for as many elements as word y says (`allocator`)
    FREE   x y n                    give *x and what the n - 1 words behind x point to back, and forget it; only forget it where word y is 0 (y < 0:
                                    there is no such word)
    UNLESS x k                      go on at operation k where the byte at *x is 0
    JUMP   _ k                      go on at operation k
    TICK                            leave with PAUSED where the budget of rounds is used up
    SET    x value n                n words from x on
    ROOM   x y                      x = the larger of x and an eighth more than y
    MOVE   x y z                    as many bytes from *y to *x as word z says
    ADD    x y                      x = x + y
    CLONE  x y size more            x = the address of a copy of what is at *x, which has `size` bytes for each that word y counts (y < 0: of
                                    none) and `more`
    ALIGN  x y n                    x = the first multiple of n, a power of two, from y on
    HERE   x y                      x = the address of word y
    SPARE  x y n z                  n words from y on, to x, where word z is not 0; else 0
    SWITCH x n size signed          go on at one of the n operations that follow: which one is the number of `size` bytes at *x, or the nearest
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.builder import OUT_OF_MEMORY, Val
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen import kernel_memory
from sparsejax.jit.codegen.kernel_memory import block, null

HALT, CALL, COPY, FILL, TAKE, FREE, UNLESS, JUMP, TICK, SET, ROOM, MOVE, ADD, SWITCH, CLONE, ALIGN, ASK, HERE, SPARE = (
    range(19)
)
WIDTH = 5
PAUSED = -1
DONE = 7
"""What a function of Python (`table.Called`) adds to its status when it has come to its end. One that an interrupt leaves before its first statement writes
nothing, and what `ctypes` returns then is left over from another call: nobody but the word tells."""
LANES = 8
"""Words that are filled at once."""
OPS, WORDS, AT, BUDGET = range(4)
"""The slots: addresses of the operations and of the words, the number of the operation to go on at, which is written back, and the budget."""


@functools.cache
def kernel() -> compiler.Kernel:
    """The function of these slots."""
    return compiler.compile_text(written(LLVMBuilder()))


def written(b: LLVMBuilder) -> str:
    """Its text."""
    run = Run(b)
    others = [run.todo[k] for k in range(len(run.todo))]
    with b.while_(lambda: b.get(run.going)):  # half of all operations copy words, and most others call kernels
        code = run.begin()
        rest = functools.partial(_switch, b, code, others)
        b.if_else(b.eq(code, COPY), run.copy, functools.partial(b.if_else, b.eq(code, CALL), run.call, rest))
        b.set(run.at, b.get(run.next))
    return b.finish(lambda: b.set_slot(AT, b.get(run.at)))


def _drop(value: Val) -> None:
    """Nobody needs a result."""


def _switch(b: LLVMBuilder, code: Val, todo: Sequence[Callable[[], None]], first: int = 0) -> None:
    """Do the one of this number: half of them are left after each test."""
    if len(todo) == 1:
        todo[0]()
        return
    half = len(todo) // 2
    b.if_else(
        b.lt(code, first + half),
        lambda: _switch(b, code, todo[:half], first),
        lambda: _switch(b, code, todo[half:], first + half),
    )


class Run:
    """The code of every operation: its number is `at`, its arguments are `a` to `d`; `next` comes after it."""

    def __init__(self, b: LLVMBuilder) -> None:
        self.builder = b
        self.ops, self.words = b.slot(OPS, "ptr", "ops"), b.slot(WORDS, "ptr", "words")
        self.at, self.next = b.var("at", b.slot(AT, "i64", "first")), b.var("next", b.i64(0))
        self.going = b.var("going", b.const("i1", 1))
        self.todo: dict[int, Callable[[], None]] = {
            HALT: lambda: b.set(self.going, b.const("i1", 0)),
            CALL: self.call,
            ASK: self.ask,
            COPY: self.copy,
            FILL: self.fill,
            TAKE: self.take,
            FREE: self.free,
            UNLESS: self.unless,
            JUMP: lambda: b.set(self.next, self.b),
            TICK: self.tick,
            SET: self.set,
            ROOM: self.room,
            MOVE: lambda: _drop(
                b.call("memcpy", "ptr", [self.pointer(self.a), self.pointer(self.b), self.word(self.c)])
            ),
            ADD: lambda: b.store(self.words, self.a, b.add(self.word(self.a), self.word(self.b))),
            SWITCH: self.switch,
            CLONE: self.clone,
            ALIGN: self.align,
            SPARE: self.spare,
            HERE: lambda: b.store(self.words, self.a, kernel_memory.moved(b, self.words, b.mul(self.b, 8))),
        }

    def begin(self) -> Val:
        """Read an operation; its code."""
        b, at = self.builder, self.builder.get(self.at)
        first = b.named("first", b.mul(at, WIDTH))
        code, self.a, self.b, self.c, self.d = (b.load(self.ops, b.add(first, k), "i64") for k in range(WIDTH))
        b.set(self.next, b.add(at, 1))
        return code

    def word(self, number: Val) -> Val:
        return self.builder.load(self.words, number, "i64")

    def pointer(self, number: Val) -> Val:
        return self.builder.load(self.words, number, "ptr")

    def call(self) -> None:
        b = self.builder
        slots = kernel_memory.moved(b, self.words, b.mul(self.b, 8))
        status = b.call_at(b.convert("inttoptr", self.a, "ptr"), "i64", [slots])
        with b.if_(b.ne(status, 0)):
            b.fail(status)

    def ask(self) -> None:
        b = self.builder
        slots = kernel_memory.moved(b, self.words, b.mul(self.b, 8))
        b.store(self.words, self.c, b.i64(0))
        _drop(b.call_at(b.convert("inttoptr", self.a, "ptr"), "i64", [slots]))
        status = self.word(self.c)
        with b.if_(b.ne(status, DONE)):
            b.fail(b.sub(status, DONE))

    def copy(self) -> None:
        b = self.builder
        with b.for_(b.i64(0), self.c, "k", some=True) as k:
            b.store(self.words, b.add(self.a, k), self.word(b.add(self.b, k)))

    def fill(self) -> None:
        b, to, zero = self.builder, self.pointer(self.a), self.builder.i64(0)
        size_of = b.named("bytes", self.word(self.b))

        def of(size: int) -> None:
            bits = b.convert("trunc", self.c, f"i{8 * size}")
            count = b.binary("lshr", b.add(size_of, size - 1), b.i64(size.bit_length() - 1))
            rest = b.and_(count, b.i64(-LANES)) if size == 8 else zero
            with b.for_(zero, rest, "k", step=LANES) as k:
                b.store(to, k, b.splat(bits, LANES))
            with b.for_(rest, count, "k") as k:
                b.store(to, k, bits)

        def others() -> None:
            for size in (1, 2, 4, 8):
                with b.if_(b.eq(self.d, size)):
                    of(size)

        def zeros() -> None:
            b.call("memset", "ptr", [to, b.const("i32", 0), size_of])

        b.if_else(b.eq(self.c, 0), zeros, others)

    def take(self) -> None:
        b = self.builder
        self._taken(b.mul(self.word(self.b), self.c))

    def _taken(self, size: Val) -> Val:
        """Memory of so many bytes, whose address is put to its word."""
        b = self.builder
        taken = block(b, null(b), b.max(size, b.i64(1)))
        b.store(self.words, self.a, taken)
        with b.if_(b.eq(b.convert("ptrtoint", taken, "i64"), 0)):
            b.fail(OUT_OF_MEMORY)
        return taken

    def clone(self) -> None:
        b, old, count = self.builder, self.pointer(self.a), self.builder.var("count", self.builder.i64(0))
        b.set(count, b.i64(0))
        with b.if_(b.lt(b.i64(-1), self.b)):
            b.set(count, self.word(self.b))
        size = b.add(b.mul(b.get(count), self.c), self.d)
        _drop(b.call("memcpy", "ptr", [self._taken(size), old, size]))

    def align(self) -> None:
        b = self.builder
        up = b.add(self.word(self.b), b.sub(self.c, 1))
        b.store(self.words, self.a, b.and_(up, b.sub(b.i64(0), self.c)))

    def free(self) -> None:
        b, owned = self.builder, self.builder.var("owned", self.builder.i64(1))
        b.set(owned, b.i64(1))
        with b.if_(b.lt(b.i64(-1), self.b)):
            b.set(owned, self.word(self.b))
        with b.for_(b.i64(0), self.c, "k", some=True) as k:
            old = self.word(b.add(self.a, k))
            b.store(self.words, b.add(self.a, k), b.i64(0))
            with b.if_(b.and_(b.ne(b.get(owned), 0), b.ne(old, 0))):
                kernel_memory.free(b, b.convert("inttoptr", old, "ptr"))

    def spare(self) -> None:
        b, own = self.builder, self.builder.ne(self.word(self.d), 0)
        with b.for_(b.i64(0), self.c, "k", some=True) as k:
            b.store(self.words, b.add(self.a, k), b.select(own, self.word(b.add(self.b, k)), b.i64(0)))

    def set(self) -> None:
        b = self.builder
        with b.for_(b.i64(0), self.c, "k", some=True) as k:
            b.store(self.words, b.add(self.a, k), self.b)

    def unless(self) -> None:
        b = self.builder
        flag = b.load(self.pointer(self.a), b.i64(0), "i8")
        with b.if_(b.eq(flag, 0)):
            b.set(self.next, self.b)

    def switch(self) -> None:
        b, number = self.builder, self.builder.var("number", self.builder.i64(0))
        for size in (1, 2, 4, 8):
            with b.if_(b.eq(self.c, size)):
                b.set(number, b.select(b.ne(self.d, 0), self.number(size, 1), self.number(size, 0)))
        b.set(self.next, b.add(b.get(self.next), self.nearest(b.get(number))))

    def number(self, size: int, signed: int) -> Val:
        """The number of so many bytes at *a."""
        b = self.builder
        raw = b.load(self.pointer(self.a), b.i64(0), f"i{8 * size}")
        return b.convert("sext" if signed else "zext", raw, "i64")

    def nearest(self, found: Val) -> Val:
        """The number of the branch, of those that there are, for the number `found`."""
        b, last = self.builder, self.builder.sub(self.b, 1)
        large = b.and_(b.eq(self.d, 0), b.lt(found, 0))  # of 64 bits without a sign
        return b.select(large, last, b.max(b.min(found, last), b.i64(0)))

    def tick(self) -> None:
        b = self.builder
        left = b.sub(b.slot(BUDGET, "i64", "budget"), 1)
        b.set_slot(BUDGET, left)
        with b.if_(b.lt(left, 1)):
            b.set(self.at, b.get(self.next))
            b.fail(PAUSED)

    def room(self) -> None:
        b, used = self.builder, self.word(self.b)
        wanted = b.add(used, b.binary("lshr", used, b.i64(3)))
        b.store(self.words, self.a, b.max(wanted, self.word(self.a)))
