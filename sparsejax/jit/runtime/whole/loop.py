"""A `while_loop` or a `scan` as a table of operations that machine code runs from the first round to the last (`driver`), also where carries are sparse.

    while any(f): f, d = product(f, A), f + d            f coo, d dense

        COPY   slots of d, A ...                         once: what does not change from round to round
     1: COPY   any's slots of f;  CALL any;  UNLESS → out
        COPY   product's slots of f;  CALL product       allocates a sparse result, as many entries as there are
        COPY   sum's slots of f, d;  CALL sum            writes a dense result to memory that is there before
        SPARE  f;  f = product's result                  a carry that grows takes over pointers; the product writes to its memory next
        d ↔ sum's result                                 a dense one changes places with what is written
        TICK;  JUMP → 1

Of a `scan` it is known how many rounds there are: as many as the budget of TICK. Slices of what is scanned are read where they are, and results
that are stacked are moved to their places; addresses of slices grow by one stride in every round (ADD).

A register is what a value is to a kernel: its slots, some words of the table (`codegen/abi`). All words are relative to one array, which
is copied for every call, so that calls may run side by side, and a loop inside of a call that it makes. Between rounds Python is
only asked after some time, for signals.

Kernels are planned for what goes around in some round. Where sparse carries have far fewer entries later, beside large dense ones, a table is left
between rounds, and another one goes on (`runtime.plan.Plan.loop`).

Where a loop has steps of other kinds (library calls, results that are converted, changing operands that a kernel wants in another format), there
is none: `Unbound`.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.cached import copied
from sparsejax.core.avals import Aval
from sparsejax.formats import convert, copies
from sparsejax.formats.storage import Storage
from sparsejax.jit.graph.resize import Change
from sparsejax.jit.runtime import binding
from sparsejax.jit.runtime.system import allocator, result_memory
from sparsejax.jit.runtime.whole.driver import ADD, COPY, HALT, JUMP, SET, TICK, UNLESS
from sparsejax.jit.runtime.whole.merging import merged
from sparsejax.jit.runtime.whole.operations import Operations
from sparsejax.jit.runtime.whole.registers import Register, Unbound, block_of, pointers_of, tensor_of, words_of
from sparsejax.jit.runtime.whole.sizes import Bytes, bytes_of, product
from sparsejax.jit.runtime.whole.table import LINE, Table, lines_of
from sparsejax.lax.rounds import Rounds

WIDE = 1 << 20
"""Bytes of dense carries from which a loop whose sparse ones shrink is planned again."""


def varies(carry: Sequence[Storage]) -> bool:
    """Whether another plan may suit a loop where sparse carries have far fewer entries than it was planned for: what rounds do for all elements of
    dense ones takes most of the time then."""
    dense = sum(s.vals.nbytes for s in carry if s.format.full)
    return dense >= WIDE and not all(s.format.full for s in carry)


@dataclass
class Carry:
    """A value that goes around: the number of its operand, the words of its slots with their counts from `at` on, where the address of its values
    is, and the others of its own; where its memory is its own, if that is asked for, and how its storage is made of slots."""

    number: int
    at: int
    size: int
    vals: int
    own: tuple[int, ...]
    owned: int
    adoption: binding.Adoption | None

    @staticmethod
    def of(number: int, register: Register) -> Carry:
        adoption = None if register.dense else binding.Adoption(tensor_of(register.aval))
        size = words_of(register.aval)
        return Carry(number, register.at, size, register.vals, register.own, register.owned, adoption)

    def begin(self, s: Storage, words: NDArray[np.int64]) -> None:
        """Put the first value there: a copy, as a dense one will be overwritten."""
        if self.adoption is None:
            ctypes.memmove(int(words[self.vals]), result_memory.address_of(s.vals), s.vals.nbytes)

    def last(self, s: Storage, every: Sequence[Storage], words: NDArray[np.int64], blocks: set[int]) -> Storage:
        """The value when the loop has ended; the first one was `s`. Where it is one of `every` operand and first value, it is that; else it takes its
        memory from `blocks`, where that is one of them."""
        if self.adoption is None:
            own = int(words[self.vals])
            if own in blocks:
                blocks.remove(own)
                vals = allocator.adopt(own, s.vals.size, s.dtype)
            else:
                vals, address = result_memory.fresh(s.vals.size, s.dtype, None)
                ctypes.memmove(address, own, s.vals.nbytes)
            return Storage.dense((s.format, s.shape, s.fill_value, s.buffers), vals, {})
        if not words[self.owned]:
            slots = words[self.at : self.vals + 1].tobytes()
            return next(x for x in every if not x.format.full and binding.input_slots(x) == slots)
        return self.adoption.take(tuple(words[self.at : self.at + self.size].tolist()))

    def forget(self, words: NDArray[np.int64]) -> None:
        """Give back what memory of its own it has, but for that of a dense one, which is the loop's."""
        if self.adoption is not None and words[self.owned]:
            allocator.release([int(words[word]) for word in self.own])


class Loop:
    """A loop that is ready to run; `Unbound` where there is no such table."""

    def __init__(
        self,
        going: Any,
        step: Any,
        asked: Sequence[Storage],
        given: Sequence[Storage],
        carry: Sequence[Storage],
        parts: Sequence[Storage],
    ) -> None:
        """Plans of the condition (None: of a `scan`) and the body, their operands, and the carry and slices of some round, which kernels are
        planned for."""
        table, first = Table(many=step.origin is not None), len(asked) + len(given)
        tested = [] if going is None else going.registers_of([*asked, *carry])
        stepped = step.registers_of([*given, *carry, *parts])
        operands = [*asked, *given]
        avals = [Aval(s.shape, s.dtype, s.format, s.fill_value) for s in (*operands, *carry, *parts)]
        bounds = _bounds(going, step, len(asked), len(avals))
        fixed = [
            table.operand(k, s, a, bounded=b)
            for k, (s, a, b) in enumerate(zip(operands, avals[:first], bounds[:first], strict=True))
        ]
        stays = [step.forwarded()[n : n + 1] == [len(given) + n] for n in range(len(carry))]
        self._carries: list[Carry] = []
        self.entries, self._counts = 0, list[int]()
        """How many entries sparse carries had that it was planned for, and the words that say how many they have."""
        around: list[Register] = []
        for number, (s, aval, same) in enumerate(zip(carry, avals[first:], stays, strict=False)):
            if same:
                around.append(table.operand(first + number, s, aval, bounded=bounds[first + number]))
            else:
                around.append(table.carry(first + number, s, aval, bounds[first + number]))
                self._carries.append(Carry.of(number, around[-1]))
                if not around[-1].dense:
                    self.entries += len(s.vals) // max(1, block_of(aval))
                    self._counts.append(around[-1].count)
        self.varies = going is not None and varies([carry[c.number] for c in self._carries])
        slices = [table.part(s, a) for s, a in zip(parts, avals[first + len(carry) :], strict=True)]
        rounds = fixed[: len(asked)], fixed[len(asked) :], around, slices
        written(table, (going, tested), (step, stepped), *rounds, stays)
        table.op(HALT)
        self._finish(table)

    def _finish(self, table: Table) -> None:
        table.ops, table.failures = merged(table.ops, table.failures)
        table.once, _ = merged(table.once, {})
        before = len(table.once)
        for op in table.ops:
            if op[0] in (UNLESS, JUMP):
                op[2] += before
        failures = {k + before: raises for k, raises in table.failures.items()}
        self._ops = Operations([*table.once, *table.ops], failures)
        self._template = np.array(table.words or [0], np.int64)
        self._loads, self._keep, self._steps, self._held = table.loads, table.keep, table.steps, table.held
        self._kept = table.kept
        self._by_size, self._each, self._around = table.by_size, table.each, table.around
        self._all = table.buffers
        self._placed(table.sizes)

    def _placed(self, sizes: Sequence[int]) -> None:
        """Where buffers of these sizes are."""
        together = [(word, number) for word, number in self._all if number not in self._around]
        self._apart = [(word, sizes[number]) for word, number in self._all if number in self._around]
        self._buffers = np.array([word for word, _ in together], np.int64)
        starts = [0, *itertools.accumulate(0 if k in self._around else size for k, size in enumerate(sizes))]
        self._starts, self._bytes = np.array([starts[number] for _, number in together], np.int64), starts[-1] + LINE

    @property
    def sized(self) -> bool:
        """Whether `resized` serves."""
        return not self._by_size.fixed

    def resized(self, change: Change) -> Loop:
        """The loop over values of other sizes; `change` gives the extents in place of bounds. O(words that depend on them)."""
        made, known = copied(self), self._by_size
        made._template = words = self._template.copy()
        for word, shape, factor in known.words:
            words[word] = product(shape, factor, change)
        values = [constant(change) for _, constant in known.constants]
        for (at, _), value in zip(known.constants, values, strict=True):
            slots = np.frombuffer(binding.input_slots(value), np.int64)
            words[at : at + len(slots)] = slots
        made._keep = [*self._keep, *values]
        made._placed([lines_of(product(shape, size, change) if shape else n) for n, shape, size in self._each])
        return made

    def run(
        self,
        operands: Sequence[Storage],
        carry: Sequence[Storage],
        rounds: Rounds | None = None,
        unread: Collection[int] = (),
        entries: tuple[float, float] | None = None,
    ) -> tuple[list[Storage], bool]:
        """The last values of the carry, after all `rounds` of a `scan`, and True; in place of those that are `unread` stand the first ones. Or, where
        the sparse ones have other than as many `entries` (from the one to the other) after some rounds, their values then, and False."""
        every = [*operands, *carry]
        words = self._template.copy()
        if rounds is not None:
            for (address, stride), (begin, size) in zip(self._steps, rounds.places(), strict=True):
                words[address], words[stride] = begin, size
        converted = []  # alive while their addresses are in the table
        for load in self._loads:
            s = every[load.operand]
            if load.form is not None:
                s = copies.converted(s, load.form) if load.kept else convert.convert(s, load.form)
                converted.append(s)
            slots = s.cache.get("slots") or binding.input_slots(s)
            words[load.at : load.at + load.size] = np.frombuffer(slots, np.int64)[: load.size]
            for k, level in enumerate(load.heads):
                words[load.at + load.size + k] = len(s.buffers[level][-1])
        arena, blocks = allocator.take(self._bytes), set()
        try:
            if self._starts.size:
                words[self._buffers] = self._starts + (arena + -arena % LINE)
            for word, size in self._apart:
                address = allocator.take(size)
                blocks.add(address)
                words[word] = address
            for c in self._carries:
                c.begin(carry[c.number], words)
            try:
                ended = self._drive(words, None if rounds is None else len(rounds.order), entries)
            except BaseException:
                self._release(words)
                raise
            results = list(carry)
            for c in self._carries:
                if ended and c.number in unread:
                    c.forget(words)
                    continue
                results[c.number] = c.last(carry[c.number], every, words, blocks)
            return results, ended
        finally:
            allocator.release([arena, *blocks, *(address for k in self._kept if (address := int(words[k])))])

    def _drive(self, words: NDArray[np.int64], left: int | None, entries: tuple[float, float] | None) -> bool:
        """Run the table, so many rounds or (None) until it leaves, and ask for signals from time to time. Whether it came to its end."""
        slots = np.array([self._ops.address, result_memory.address_of(words), 0, 0], np.int64)
        suits = None if entries is None else lambda: entries[0] <= int(words[self._counts].sum()) <= entries[1]
        return self._ops.drive(result_memory.address_of(slots), slots, words, left, suits)

    def _release(self, words: NDArray[np.int64]) -> None:
        """Free what operations have taken."""
        for word, owned in self._held:
            if words[word] and (owned < 0 or words[owned]):
                allocator.give(int(words[word]))
        for c in self._carries:
            c.forget(words)


def written(
    table: Table,
    going: tuple[Any, list[Storage]],
    step: tuple[Any, list[Storage]],
    asked: Sequence[Register],
    given: Sequence[Register],
    around: Sequence[Register],
    slices: Sequence[Register],
    stays: Sequence[bool],
) -> None:
    """The operations of all rounds. Condition (None: of a `scan`) and body stand beside the values of their registers in some round; carries that
    stay are not changed."""
    start, leave = len(table.ops), None
    if going[0] is not None:
        (answer,) = table.plan(going[0], [*asked, *around], False, going[1])
        leave = len(table.ops)
        table.op(UNLESS, answer.vals, 0)
    results = table.plan(step[0], [*given, *around, *slices], True, step[1], around)
    for result in results[len(around) :]:
        table.put(result)
    _rotate(
        table,
        [r for r, same in zip(around, stays, strict=True) if not same],
        [r for r, same in zip(results, stays, strict=False) if not same],
    )
    for address, stride in table.steps:
        table.op(ADD, address, stride)
    table.op(TICK)
    table.op(JUMP, 0, start)
    if leave is not None:
        table.ops[leave][2] = len(table.ops)


def _bounds(going: Any, step: Any, asked: int, count: int) -> list[Aval | None]:
    """The types with bounds of what the condition alone reads, of what the body is given, and of what changes, where plans serve many sizes."""
    if step.origin is None:
        return [None] * count
    own = [v.aval for v in (*step.jaxpr.consts, *step.jaxpr.inputs)]
    others = [] if going is None else [v.aval for v in (*going.jaxpr.consts, *going.jaxpr.inputs)][:asked]
    return [*others, *own]


def _bytes(register: Register) -> Bytes:
    return bytes_of(register.sample.vals.size, register.aval, register.bounded)


def _rotate(table: Table, carries: Sequence[Register], results: Sequence[Register]) -> None:
    """Give the carries the values of results, all at once: sparse ones take over memory, dense ones change places with what they get; what is
    needed in two places, or again in the next round, is copied."""
    position = {id(r): k for k, r in enumerate(carries)}
    taken: set[int] = set()
    moves, copied = [], []
    for carry, result in zip(carries, results, strict=True):
        movable = id(result) not in taken and (id(result) in position or result.made)
        taken.add(id(result))
        if movable and not (result.dense and result.holds):
            table.own(result)
            moves.append((carry, result))
        elif result.dense and carry.dense:
            copied.append((carry, result))
        else:
            moves.append((carry, table.copy(result)))
    for carry, result in zip(carries, results, strict=True):
        if carry.dense != result.dense or carry.size != result.size:
            raise Unbound("a carry changes its format")
    elsewhere = {id(result) for carry, result in zip(carries, results, strict=True) if result is not carry}
    for carry, result in copied:
        to = carry
        if id(carry) in elsewhere:  # what is there is needed
            to = table.another(result)
            moves.append((carry, to))
        table.moved(to.vals, result, carry.sample.vals.nbytes)
    moves = [(carry, result) for carry, result in moves if result is not carry]
    sources = [r for _, r in moves]
    kept = {id(r) for r in sources}
    temporary = {}
    found = {id(carry): result for carry, result in moves}
    for carry in carries:
        if not carry.dense and id(carry) not in kept:
            result = found.get(id(carry), carry)
            fits = result.cells >= 0 and result.owned < 0 and result.own == pointers_of(result) and not result.holds
            if fits and carry.own == pointers_of(carry) and carry.owned >= 0 and carry.readers == 1 and not carry.holds:
                table.taken_over(carry, result)
            else:
                table.drop(carry)
    moved_carries = {id(c) for c, _ in moves}
    for _, result in moves:
        size = words_of(result.aval)
        if id(result) not in position:  # it stays where it is until it is copied
            continue
        temporary[id(result)] = place = table.room([0] * (size + 1))
        table.op(COPY, place, result.at, size)
        if result.owned >= 0:
            table.op(COPY, place + size, result.owned, 1)
        else:
            table.words[place + size] = 1
    spare: dict[Bytes, list[int]] = {}  # words with addresses of memory that nothing reads, by size
    alike = [_bytes(carry) == _bytes(result) for carry, result in moves if carry.dense and id(result) not in position]
    table.by_size.fixed |= not all(alike)
    for carry in carries:
        if carry.dense and id(carry) in moved_carries and id(carry) not in kept:
            place = table.room([0])
            spare.setdefault(_bytes(carry), []).append(place)
            table.op(COPY, place, carry.vals, 1)
    for carry, result in moves:
        size, place = words_of(result.aval), temporary.get(id(result), result.at)
        if carry.dense:
            table.op(COPY, carry.vals, place + result.size - 1, 1)
            continue
        table.op(COPY, carry.at, place, size)
        if place == result.at and result.owned < 0:
            table.op(SET, carry.owned, 1)
        else:
            table.op(COPY, carry.owned, place + size if place != result.at else result.owned, 1)
    for _, result in moves:
        if id(result) in position:
            continue
        if result.dense:
            places = spare.get(_bytes(result), []) or next(
                p for k, p in spare.items() if p and k[0] == _bytes(result)[0]
            )
            table.op(COPY, result.vals, places.pop(), 1)
        else:
            table.forget(result)
