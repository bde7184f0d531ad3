"""A table of operations as machine code of its own (`driver` reads a table, and looks what each operation is).

    27 COPY 51 42 4            words[51], ..., words[54] = words[42], ..., words[45]
    28 CALL f 51               status = f(words + 51);  leave at 28 with it where it is not 0
    29 UNLESS 55 46            go to 46 where the byte at words[55] is 0

A round of few entries takes as long as its operations do: 1.5 nanoseconds each where they are read, a third of that here. The text has numbers of
words and of operations. Addresses of functions and what depends on extents are read from the table, so that programs that differ in these alone
have one text.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.runtime.whole.driver import (
    ADD,
    ALIGN,
    ASK,
    AT,
    CALL,
    CLONE,
    COPY,
    FILL,
    FREE,
    HALT,
    HERE,
    JUMP,
    MOVE,
    ROOM,
    SET,
    SPARE,
    SWITCH,
    TAKE,
    TICK,
    UNLESS,
    WIDTH,
    Run,
)

SHOWN = {
    HALT: "",
    CALL: "-x",
    ASK: "-xy",
    COPY: "xyn",
    FILL: "xy-s",
    TAKE: "xy-",
    FREE: "xyn",
    UNLESS: "xk",
    JUMP: "-k",
    TICK: "",
    SET: "x-n",
    ROOM: "xy",
    MOVE: "xyz",
    ADD: "xy",
    CLONE: "xy--",
    ALIGN: "xy-",
    HERE: "xy",
    SPARE: "xynz",
    SWITCH: "xnss",
}
"""The arguments that are in the text, by operation; those that are read from the table are marked by a line."""
FAILING = CALL, ASK, TAKE, CLONE
MOST = 16
"""Words of one operation that are written one by one."""


def kernel(ops: Sequence[Sequence[int]]) -> compiler.Kernel:
    """The function of this table, of the same slots as `driver.kernel`."""
    shown = [(op[0], *(x if how != "-" else "-" for x, how in zip(op[1:], SHOWN[op[0]], strict=False))) for op in ops]
    return compiler.compile_written(f"table {shown}", lambda: written(ops), True)


def written(ops: Sequence[Sequence[int]]) -> str:
    """Its text."""
    b = LLVMBuilder()
    run = Run(b)
    again = [k + 1 for k, op in enumerate(ops) if op[0] == TICK]
    b.switch(b.get(run.at), {k: _label(k) for k in again}, _label(0))
    targets = _targets(ops) | {0, *again}
    for k, op in enumerate(ops):
        if k in targets:
            b.mark(_label(k))
        args = zip(op[1:], SHOWN[op[0]].ljust(WIDTH - 1, "0"), strict=True)
        run.a, run.b, run.c, run.d = (
            b.load(run.ops, b.i64(WIDTH * k + n), "i64") if how == "-" and op[0] != JUMP else b.i64(x)
            for n, (x, how) in enumerate(args, 1)
        )
        if op[0] in FAILING:
            b.set(run.at, b.i64(k))
        _one(b, run, k, op)
    return b.finish(lambda: b.set_slot(AT, b.get(run.at)))


def _label(number: int) -> str:
    return f"op_{number}"


def _targets(ops: Sequence[Sequence[int]]) -> set[int]:
    """The operations that another one than that before them may go on at."""
    made = set()
    for k, op in enumerate(ops):
        if op[0] in (UNLESS, JUMP):
            made |= {op[2], k + 1}
        elif op[0] == SWITCH:
            made |= {k + 1 + n for n in range(op[2])}
    return made


def _one(b: LLVMBuilder, run: Run, k: int, op: Sequence[int]) -> None:
    """The operation of this number."""
    code, x, y, n, z = op
    if code == HALT:
        b.go("leave")
    elif code == JUMP:
        b.go(_label(y))
    elif code == UNLESS:
        flag = b.load(run.pointer(run.a), b.i64(0), "i8")
        b.branch(b.eq(flag, 0), _label(y), _label(k + 1))
    elif code == SWITCH:
        nearest = run.nearest(run.number(n, z))
        b.switch(nearest, {m: _label(k + 1 + m) for m in range(y - 1)}, _label(k + y))
    elif code == TICK:
        b.set(run.next, b.i64(k + 1))
        run.tick()
    elif code == COPY and n <= MOST:
        for m, word in enumerate([run.word(b.i64(y + m)) for m in range(n)]):
            b.store(run.words, b.i64(x + m), word)
    elif code == SET and n <= MOST:
        for m in range(n):
            b.store(run.words, b.i64(x + m), run.b)
    elif code == SPARE and n <= MOST:
        own = b.ne(run.word(b.i64(z)), 0)
        for m, word in enumerate([run.word(b.i64(y + m)) for m in range(n)]):
            b.store(run.words, b.i64(x + m), b.select(own, word, b.i64(0)))
    else:
        run.todo[code]()
