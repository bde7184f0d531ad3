"""The machine code that runs a table of operations (`loop`), as LLVM text.

An operation is five 8-byte numbers: a code and four arguments. `words` is an array of 8-byte words, on which operations work; addresses in
it are numbers of words, `*x` is what the word `x` points to.

    HALT                            leave
    CALL   f x                      the kernel at address f, on the slots from word x on; where it fails, leave with its status
    COPY   x y n                    n words from y on, to x
    FILL   x n bits size            n elements of `size` bytes at *x
    TAKE   x y size                 x = memory for as many elements as word y says (`allocator`)
    FREE   x y                      give *x back and forget it; only forget it where word y is 0 (y < 0: there is no such word)
    UNLESS x k                      go on at operation k where the byte at *x is 0
    JUMP   k                        go on at operation k
    TICK                            leave with PAUSED where the budget of rounds is used up
    SET    x value
    ROOM   x y                      x = the larger of x and an eighth more than y
    MOVE   x y size                 `size` bytes from *y to *x
"""

from __future__ import annotations

import functools

from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.builder import OUT_OF_MEMORY
from sparsejax.jit.codegen import abi

HALT, CALL, COPY, FILL, TAKE, FREE, UNLESS, JUMP, TICK, SET, ROOM, MOVE = range(12)
WIDTH = 5
PAUSED = -1


@functools.cache
def kernel() -> compiler.Kernel:
    """The function: its slots are the addresses of the operations and of the words, the number of the operation to go on at, which it
    writes back, and the budget."""
    return compiler.compile_text(_TEXT)


_FILLS = "\n".join(
    f"""\
fill{bits}:
  %k{bits} = phi i64 [ 0, %filled ], [ %k{bits}.next, %fill{bits}.body ]
  %go{bits} = icmp slt i64 %k{bits}, %b
  br i1 %go{bits}, label %fill{bits}.body, label %next
fill{bits}.body:
  %p{bits} = getelementptr i{bits}, ptr %fill.to, i64 %k{bits}
  store i{bits} {f"%v{bits}" if bits < 64 else "%c"}, ptr %p{bits}, align {bits // 8}
  %k{bits}.next = add i64 %k{bits}, 1
  br label %fill{bits}"""
    for bits in (8, 16, 32, 64)
)
_TEXT = f"""\
declare ptr @{abi.NAME}(ptr, i64, i64)
declare ptr @memcpy(ptr, ptr, i64)

define i64 @kernel(ptr %args) nounwind "no-jump-tables"="true" {{
entry:
  %ops = load ptr, ptr %args, align 8
  %words.at = getelementptr i64, ptr %args, i64 1
  %words = load ptr, ptr %words.at, align 8
  %pc.at = getelementptr i64, ptr %args, i64 2
  %first = load i64, ptr %pc.at, align 8
  %budget.at = getelementptr i64, ptr %args, i64 3
  br label %at
next:
  %after = add i64 %pc, 1
  br label %at
at:
  %pc = phi i64 [ %first, %entry ], [ %after, %next ], [ %b, %jump ], [ %b, %unless.jump ]
  %row = mul i64 %pc, {WIDTH}
  %op = getelementptr i64, ptr %ops, i64 %row
  %code = load i64, ptr %op, align 8
  %a.at = getelementptr i64, ptr %op, i64 1
  %a = load i64, ptr %a.at, align 8
  %b.at = getelementptr i64, ptr %op, i64 2
  %b = load i64, ptr %b.at, align 8
  %c.at = getelementptr i64, ptr %op, i64 3
  %c = load i64, ptr %c.at, align 8
  %d.at = getelementptr i64, ptr %op, i64 4
  %d = load i64, ptr %d.at, align 8
  %x = getelementptr i64, ptr %words, i64 %a
  %y = getelementptr i64, ptr %words, i64 %b
  switch i64 %code, label %halt [
    i64 {CALL}, label %call
    i64 {COPY}, label %copy
    i64 {FILL}, label %fill
    i64 {TAKE}, label %take
    i64 {FREE}, label %free
    i64 {UNLESS}, label %unless
    i64 {JUMP}, label %jump
    i64 {TICK}, label %tick
    i64 {SET}, label %set
    i64 {ROOM}, label %room
    i64 {MOVE}, label %move
  ]
halt:
  store i64 %pc, ptr %pc.at, align 8
  ret i64 0
call:
  %function = inttoptr i64 %a to ptr
  %status = call i64 %function(ptr %y)
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %next, label %failed
failed:
  store i64 %pc, ptr %pc.at, align 8
  ret i64 %status
copy:
  %ck = phi i64 [ 0, %at ], [ %ck.next, %copy ]
  %from = getelementptr i64, ptr %y, i64 %ck
  %to = getelementptr i64, ptr %x, i64 %ck
  %word = load i64, ptr %from, align 8
  store i64 %word, ptr %to, align 8
  %ck.next = add i64 %ck, 1
  %more = icmp slt i64 %ck.next, %c
  br i1 %more, label %copy, label %next
fill:
  %fill.to = load ptr, ptr %x, align 8
  br label %filled
filled:
  %v8 = trunc i64 %c to i8
  %v16 = trunc i64 %c to i16
  %v32 = trunc i64 %c to i32
  switch i64 %d, label %fill64 [ i64 1, label %fill8 i64 2, label %fill16 i64 4, label %fill32 ]
{_FILLS}
take:
  %count = load i64, ptr %y, align 8
  %bytes = mul i64 %count, %c
  %some = icmp sgt i64 %bytes, 1
  %least = select i1 %some, i64 %bytes, i64 1
  %taken = call ptr @{abi.NAME}(ptr null, i64 %least, i64 {abi.PLAIN})
  store ptr %taken, ptr %x, align 8
  %none = icmp eq ptr %taken, null
  br i1 %none, label %full, label %next
full:
  store i64 %pc, ptr %pc.at, align 8
  ret i64 {OUT_OF_MEMORY}
free:
  %old = load ptr, ptr %x, align 8
  store ptr null, ptr %x, align 8
  %always = icmp slt i64 %b, 0
  br i1 %always, label %give, label %ask
ask:
  %owned = load i64, ptr %y, align 8
  %ours = icmp ne i64 %owned, 0
  br i1 %ours, label %give, label %next
give:
  %there = icmp ne ptr %old, null
  br i1 %there, label %gone, label %next
gone:
  %nothing = call ptr @{abi.NAME}(ptr %old, i64 0, i64 {abi.PLAIN})
  br label %next
unless:
  %flag.at = load ptr, ptr %x, align 8
  %flag = load i8, ptr %flag.at, align 1
  %off = icmp eq i8 %flag, 0
  br i1 %off, label %unless.jump, label %next
unless.jump:
  br label %at
jump:
  br label %at
tick:
  %budget = load i64, ptr %budget.at, align 8
  %left = sub i64 %budget, 1
  store i64 %left, ptr %budget.at, align 8
  %out = icmp sle i64 %left, 0
  br i1 %out, label %pause, label %next
pause:
  %resume = add i64 %pc, 1
  store i64 %resume, ptr %pc.at, align 8
  ret i64 {PAUSED}
set:
  store i64 %b, ptr %x, align 8
  br label %next
room:
  %used = load i64, ptr %y, align 8
  %eighth = lshr i64 %used, 3
  %wanted = add i64 %used, %eighth
  %known = load i64, ptr %x, align 8
  %larger = icmp sgt i64 %wanted, %known
  %needed = select i1 %larger, i64 %wanted, i64 %known
  store i64 %needed, ptr %x, align 8
  br label %next
move:
  %target = load ptr, ptr %x, align 8
  %source = load ptr, ptr %y, align 8
  %moved = call ptr @memcpy(ptr %target, ptr %source, i64 %c)
  br label %next
}}
"""
