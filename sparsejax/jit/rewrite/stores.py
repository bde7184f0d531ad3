"""Stores past the caches: what strips assign of a dense result that no cache holds goes to memory, whose lines are not read before.

before:  C[i,k0 .. k0 + 31] = t0 .. t3         after:  if C[i,k0] is where a line begins:
                                                         C[i,k0 .. k0 + 31] = t0 .. t3    past the caches
                                                       else: as before

A line that is stored in the usual way is brought into the cache first, drives out a line of what is read, and is written back later. Who reads the
result afterwards finds it in memory, not in a cache: that is priced, by how much of it a cache would have kept.

Legal where every element of the result is assigned once by strips (`rewrite/tile`, `rewrite/assigned_once`), whose rows are whole lines. C code
with such stores takes 0.71 to 0.92 of the time on five matrices of 55,000 rows and more, 0.98 on qp_BOYD1_A, whose rows are long (128 float32 columns,
an EPYC of the third generation). Where the last cache holds the result, stores past it take 0.86 of the time of the kernel alone (2,708 rows of 128
columns, four entries each), and 1.22 and 1.13 of the time of the kernel and of a sum or a maximum of all elements that follows it. A last cache of 480 MB
that many share is not as good: results of 9 to 166 MB take 0.68 to 0.95 of the time, 0.78 to 1.0 with a sum that follows, those of 1.4 MB 0.67 and 1.19
(Granite Rapids).
"""

from __future__ import annotations

import math
from dataclasses import replace

from sparsejax.jit.cost import machine
from sparsejax.jit.cost.memory import LINE
from sparsejax.jit.cost.price_table import Machine
from sparsejax.jit.ir import choices, cin
from sparsejax.jit.ir.bounded import Bounded
from sparsejax.jit.ir.program import Program


def noted(program: Program) -> Program:
    """`program`, which says whether the strips that assign its result store past the caches."""
    if not _legal(program):
        return program
    output = _bytes(program.output)
    read = sum(_bytes(t) for t in program.inputs if t.format.is_dense)
    cheapest = "past" if pays(output, read, machine.current()) else "cached"
    return replace(program, past=choices.pick("stores", ("cached", "past"), cheapest) == "past")


def pays(output: int, read: int, machine: Machine) -> bool:
    """Whether stores past the caches pay for so many bytes of a result, beside so many of what is read. Through the caches, a line that one does not
    keep is read from the next, written there, and drives out one that is read again. Past them, it is written alone, which takes half as long; a reader
    waits for memory where the last cache would have had it."""
    _, second, third = machine.beyond(output + read)
    cached = (second - third) * (machine.fill[1] + machine.line[1]) + third * (machine.fill[2] + machine.line[2])
    past = machine.fill[2] / 2 + (1.0 - third) * machine.line[2]
    return past < cached


def _legal(program: Program) -> bool:
    """Whether strips assign every element of a result, whose rows are whole lines."""
    output, stmt = program.output, program.stmt
    if not program.whole or program.chunking.partial or stmt is None or output.dtype.kind not in "iuf":
        return False
    extents = [output.shape[d] for d in output.format.order]
    if not extents or any(isinstance(n, Bounded) for n in extents) or extents[-1] * output.dtype.itemsize % LINE:
        return False
    return _strip(stmt) == output.name


def _strip(stmt: cin.Stmt, inside: bool = False) -> str:
    """The name of what the strips of a statement assign, if that is all that it does."""
    match stmt:
        case cin.Forall(_, body, kind):
            return _strip(body, inside or kind == "tile")
        case cin.Where(cin.Assign(lhs, None, _)) if inside:
            return lhs.tensor.name
    return ""


def _bytes(tensor: cin.Tensor) -> int:
    return math.prod(map(int, tensor.shape)) * tensor.dtype.itemsize
