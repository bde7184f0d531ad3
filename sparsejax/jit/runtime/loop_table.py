"""A `while` loop as a table of operations that machine code runs from the first round to the last (`table_text`), also where carries are sparse.

    while any(f): f, d = product(f, A), f + d            f coo, d dense

        COPY   slots of d, A ...                         once: what does not change from round to round
     1: COPY   any's slots of f;  CALL any;  UNLESS → out
        COPY   product's slots of f;  CALL product       allocates a sparse result, as many entries as there are
        COPY   sum's slots of f, d;  CALL sum            writes a dense result to memory that is there before
        FREE   f;  f = product's result                  a carry that grows takes over pointers
        d ↔ sum's result                                 a dense one changes places with what is written
        TICK;  JUMP → 1

A register is what a value is to a kernel: its slots, some words of the table (`codegen/abi`). All words are relative to one array, which
is copied for every call, so that calls may run side by side, and a loop inside of a call that it makes. Between rounds Python is
only asked after some time, for signals.

Where a loop has steps of other kinds (library calls, results that are converted, changing operands that a kernel wants in another format), there
is none: `Unbound`.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Eqn
from sparsejax.formats import Format, convert, copies
from sparsejax.formats.storage import Storage, dense_template
from sparsejax.jit.backend import compiler
from sparsejax.jit.codegen import abi
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.program import heads
from sparsejax.jit.runtime import allocator, binding, result_memory, table_kernels, table_text, threads
from sparsejax.jit.runtime.chunked import Chunked
from sparsejax.jit.runtime.table_text import CALL, CASE, COPY, FILL, FREE, HALT, JUMP, MOVE, ROOM, SET, TAKE, TICK, UNLESS

LINE = abi.ALIGNMENT
AWAY = 0.05
"""Seconds, about, after which Python is asked for signals."""


class Unbound(Exception):
    """A loop that has no table, and why."""


@dataclass(eq=False)
class Register:
    """A value: `size` words from `at` on are its slots as an input. A sparse one has its counts behind them."""

    at: int
    size: int
    aval: Aval
    sample: Storage
    """What it may be, to plan kernels by."""
    changes: bool = False
    """Whether its slots differ from round to round."""
    own: tuple[int, ...] = ()
    """Words with the addresses of its memory, where kernels allocate it."""
    holds: tuple[Register, ...] = ()
    """Whose memory it shares."""
    readers: int = 1
    """How many registers need its memory, itself included."""
    owned: int = -1
    """The word that tells whether its memory is its own (of carries); -1: always."""
    made: bool = False
    """Whether steps of the loop make it."""

    @property
    def vals(self) -> int:
        return self.at + self.size - 1

    @property
    def count(self) -> int:
        """The word that says how many entries its last sparse level has."""
        return self.at + _words(self.aval) - 1

    @property
    def dense(self) -> bool:
        return self.aval.format.full


def _tensor(aval: Aval) -> cin.Tensor:
    return cin.Tensor("x", aval.shape, aval.dtype, aval.format, aval.fill_value)


def _size(aval: Aval) -> int:
    """How many slots an input has."""
    return len(abi.slots_of(_tensor(aval), output=False))


def _words(aval: Aval) -> int:
    """The same with counts, as outputs have them."""
    return _size(aval) + len(heads(_tensor(aval)))


def _block(aval: Aval) -> int:
    """Values per entry of the last sparse level, or all of a dense array."""
    form = aval.format
    first = form.sparse[-1] + 1 if form.sparse else 0
    return math.prod(form.level_extents(aval.shape)[first:])


@dataclass
class Load:
    """Where a call puts the slots of an operand, converted to a format where there is one."""

    operand: int
    at: int
    size: int
    form: Format | None = None


@dataclass
class Carry:
    """A value that goes around: where it begins, and what it is after the last round. `operand` is its number; where it `stays`, it is that."""

    operand: int
    register: Register | None
    adoption: Any = None
    buffer: int = -1


@dataclass
class Table:
    """Operations and words while they are put together."""

    ops: list[list[int]] = field(default_factory=list)
    once: list[list[int]] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    buffers: list[tuple[int, int]] = field(default_factory=list)
    """Words that get the address of so many bytes."""
    static: list[tuple[int, Storage]] = field(default_factory=list)
    keep: list[Any] = field(default_factory=list)
    failures: dict[int, Callable[[NDArray[np.int64]], None]] = field(default_factory=dict)
    """By the number of an operation: what raises where it has failed."""

    def op(self, code: int, *args: int) -> None:
        self.ops.append([code, *args, *[0] * (table_text.WIDTH - 1 - len(args))])

    def room(self, values: Sequence[int]) -> int:
        """The number of the first of new words with these values."""
        at = len(self.words)
        self.words += values
        return at

    def buffer(self, word: int, size: int) -> None:
        """Memory for a dense result."""
        self.buffers.append((word, -(-max(size, 1) // LINE) * LINE))

    # ------------------------------------------------------------------------------------------------ registers

    def operand(self, number: int, storage: Storage, aval: Aval, form: Format | None = None) -> Register:
        """An operand that does not change, in a format."""
        if form is not None:
            storage = copies.converted(storage, form)
            aval = Aval(aval.shape, aval.dtype, form, aval.fill_value)
        size = _size(aval)
        at = self.room([0] * _words(aval))
        self.loads.append(Load(number, at, size, form))
        return Register(at, size, aval, storage)

    def literal(self, storage: Storage) -> Register:
        """A number of the program."""
        aval = Aval(storage.shape, storage.dtype, storage.format, storage.fill_value)
        at = self.room(_ints(binding.input_slots(storage)))
        self.keep.append(storage)
        return Register(at, 1, aval, storage)

    def carry(self, number: int, storage: Storage, aval: Aval) -> Register:
        """A carry, whose initial value is an operand."""
        made = Register(self.room([0] * _words(aval)), _size(aval), aval, storage, changes=True)
        if made.dense:
            self.words[made.at : made.vals] = _ints(binding.input_slots(storage))[:-1]
            self.buffer(made.vals, storage.vals.nbytes)
        else:
            made.owned = self.room([0])
            made.own = _pointers(made)
            self.loads.append(Load(number, made.at, made.size))
        return made

    def copied(self, register: Register) -> None:
        """The slots of an input of the kernel that is being called, as the next words."""
        at = self.room([0] * register.size)
        if register.changes:
            self.op(COPY, at, register.at, register.size)
        else:
            self.once.append([COPY, at, register.at, register.size, 0])

    def output(self, aval: Aval, sample: Storage) -> Register:
        """The slots of a result that a kernel allocates, as the next words."""
        shape = aval.format.level_extents(aval.shape) if aval.format.blocked else aval.shape
        at = self.room([*shape, *[0] * (_words(aval) - len(shape))])
        made = Register(at, _size(aval), aval, sample, changes=True, made=True)
        made.own = _pointers(made)
        return made

    def drop(self, register: Register) -> None:
        """Nobody reads it any more."""
        register.readers -= 1
        if register.readers == 0:
            for word in register.own:
                self.op(FREE, word, register.owned)
            for other in register.holds:
                self.drop(other)

    # ------------------------------------------------------------------------------------------------------ steps

    def kernel(self, runner: Any, given: Sequence[Register], sample: Storage, swapped: bool) -> Register:
        """A kernel on registers; `swapped`: its dense result changes places with a carry."""
        if not runner.exact or runner.large:
            raise Unbound("a result is converted, or out of proportion")
        planned = runner.plan(runner.observe([r.sample for r in given]))
        inputs = list(given)
        for position, form in planned.moves:
            inputs[position] = self._moved(inputs[position], form)
        bound: binding.Binding = planned.binding
        self.keep.append(planned)
        first = self.room(_ints(bound.prefix))
        for register in inputs:
            self.copied(register)
        aval = runner.aval.strong()
        if bound.dense:
            made = self._dense(bound, aval, sample, swapped)
            self._call(bound, first, made)
        elif bound.shared is not None:
            made = self._given(bound, aval, sample, inputs)
            self._call(bound, first, made)
        else:
            made = self.output(aval, sample)
            counts = range(made.at + made.size, made.at + _words(aval))
            rooms = self._call(bound, first, made, [(COPY, count, 0, 1) for count in counts], bound.room)
            for count, room in zip(counts, rooms, strict=True):
                self.op(ROOM, room, count)
        return made

    def _moved(self, register: Register, form: Format) -> Register:
        found = next((x for x in self.loads if x.at == register.at), None)
        if register.changes or found is None:
            raise Unbound("a value that changes is converted before a kernel reads it")
        aval = register.aval
        return self.operand(found.operand, register.sample, aval, form)

    def _dense(self, bound: binding.Binding, aval: Aval, sample: Storage, swapped: bool) -> Register:
        extents = _ints(bound.extents)
        made = Register(self.room([*extents, 0]), len(extents) + 1, aval, sample, changes=swapped, made=True)
        count = _block(aval)
        self.buffer(made.vals, count * aval.dtype.itemsize)
        if bound.content is not None:
            size, bits = _pattern(aval.dtype.type(bound.content), count)
            self.op(FILL, made.vals, count * aval.dtype.itemsize // size, bits, size)
        return made

    def _given(self, bound: binding.Binding, aval: Aval, sample: Storage, inputs: Sequence[Register]) -> Register:
        """The slots of a result over the positions of an input, whose values are allocated before the call."""
        shared = bound.shared
        assert shared is not None
        like = inputs[shared.input]
        if like.aval.format != aval.format or not shared.pos or shared.first > heads(_tensor(aval))[0]:
            raise Unbound("a result has the positions of an operand of another format")
        made = self.output(aval, sample)
        self.op(COPY, made.at, like.at, made.size - 1)
        for number in range(made.at + made.size, made.at + _words(aval)):
            self.op(COPY, number, like.at + like.size + number - made.at - made.size, 1)
        self.op(TAKE, made.vals, made.count, _block(aval) * aval.dtype.itemsize)
        made.own, made.holds = (made.vals,), (like,)
        like.readers += 1
        return made

    def _call(
        self,
        bound: binding.Binding,
        first: int,
        made: Register,
        before: Iterable[tuple[int, int, int, int]] = (),
        rooms: Sequence[int] = (),
    ) -> list[int]:
        """Call a kernel on the slots from `first` on; words with how many coordinates to make room for."""
        kernel: Any = bound.kernel
        if isinstance(kernel, Chunked):
            if kernel.alone and bound.dense:
                self.room([0, 1])
                kernel = kernel.kernel
            else:
                kernel = _Called(kernel, len(self.words) - first, 0 if bound.dense else _words(made.aval))
        places = [self.room([n]) for n in rooms]
        for (code, count, _, n), place in zip(before, places, strict=False):
            self.op(code, count, place, n)
        if isinstance(kernel, _Called):
            self.failures[len(self.ops)] = kernel.failed
        self.keep.append(kernel)
        self.op(CALL, kernel.address, first)
        return places

    def thinned(self, x: Register, tol: Register, sample: Storage) -> Register:
        """The entries of `x` that differ from its fill by more than `tol`."""
        kernel = table_kernels.thin(x.aval, tol.aval)
        if kernel is None:
            raise Unbound("entries of an array in this format are dropped")
        first = len(self.words)
        self.copied(x)
        self.copied(tol)
        made = self.output(x.aval, sample)
        self.keep.append(kernel)
        self.op(CALL, kernel.address, first)
        return made

    def checked(self, eqn: Eqn, x: Register, sample: Storage, swapped: bool) -> Register:
        """The index array `x` with numbers in bounds, negative ones counted from the end."""
        params = eqn.param_dict
        kernel = table_kernels.within(x.aval, params["drop"])
        if kernel is None or not x.dense or len(eqn.inputs) != 1:
            raise Unbound("an index array that is not dense is checked")
        first = self.room([params["extent"]])
        count = _block(x.aval)
        self.room([count])
        self.copied(x)
        extents = self.words[x.at : x.at + x.size - 1] if x.made else list(x.aval.shape)
        made = Register(self.room([*extents, 0]), x.size, x.aval, sample, changes=swapped, made=True)
        self.buffer(made.vals, count * x.aval.dtype.itemsize)

        def wrong(words: NDArray[np.int64]) -> None:
            vals = _values(int(words[x.vals]), count, x.aval.dtype)
            storage = Storage.dense(dense_template(x.aval.format, x.aval.shape, x.aval.fill_value), vals, {})
            assert eqn.primitive.call is not None
            eqn.primitive.call(storage, out_aval=eqn.outputs[0].aval, **params)

        self.failures[len(self.ops)] = wrong
        self.keep.append(kernel)
        self.op(CALL, kernel.address, first)
        return made

    def plan(
        self, plan: Any, given: Sequence[Register], swapped: bool, samples: list[Storage]
    ) -> list[Register]:
        """The steps of a plan; its results. `samples` are the values of its registers in some round."""
        if plan.checks.before:
            raise Unbound("values are looked at before they are used")
        registers = [*given, *(self.literal(s) for s in plan.literals)]
        first = len(registers)
        wanted = set(plan.results) if swapped else set()
        kept: dict[int, tuple[int, int]] = {}
        for number, (step, reads) in enumerate(zip(plan.steps, plan.reads, strict=True)):
            inputs, here = [registers[k] for k in reads], len(registers)
            if hasattr(step, "nest"):
                registers.append(self.kernel(step, inputs, samples[here], here in wanted))
            elif step.eqn.primitive.name == "kept" and _by_size(step.eqn):
                kept[here] = reads[0], reads[1]
                held = [r for r in inputs if r.own or r.holds]
                for register in held:
                    register.readers += 1
                registers.append(Register(0, 0, step.outputs[0].aval, samples[here], holds=tuple(held)))
            elif step.eqn.primitive.name == "thin" and kept.get(reads[1], (-1,))[0] == reads[0]:
                registers.append(self.thinned(inputs[0], registers[kept[reads[1]][1]], samples[here]))
            elif step.eqn.primitive.name == "checked":
                registers.append(self.checked(step.eqn, inputs[0], samples[here], here in wanted))
            elif step.eqn.primitive.name == "cond":
                raise Unbound("cond")
            else:
                raise Unbound(f"a library call, {step.eqn.primitive.name}")
            for k in plan.dead[number]:
                self.drop(registers[k])
        del first
        return [registers[k] for k in plan.results]


def _by_size(eqn: Eqn) -> bool:
    """Whether flags only say which entries differ from the fill by more than a number."""
    params = eqn.param_dict
    return params["bounded"] and params["keep"] is None and len(eqn.inputs) == 2


def _ints(packed: bytes) -> list[int]:
    return np.frombuffer(packed, np.int64).tolist()  # type: ignore[no-any-return]


def _pointers(register: Register) -> tuple[int, ...]:
    """The words of a sparse register that are addresses."""
    tensor = _tensor(register.aval)
    return tuple(range(register.at + abi.extents_of(tensor), register.at + register.size))


def _pattern(value: Any, count: int) -> tuple[int, int]:
    """How many bytes repeat in `count` times a number, up to 8, and their bits as a signed integer."""
    raw = np.asarray(value).tobytes()
    size = next(n for n in (1, 2, 4, 8, 16) if raw == raw[:n] * (len(raw) // n))
    if size == 16:
        raise Unbound("a result begins with a complex number of two parts")
    wide = 8 if count * len(raw) % 8 == 0 else size
    return wide, int.from_bytes(raw[:size] * (wide // size), "little", signed=True)


def _values(address: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A copy of dense values."""
    return np.frombuffer(ctypes.string_at(address, count * dtype.itemsize), dtype)


class _Called:
    """A kernel that runs in chunks, as a function of the address of its slots; what it raises is raised when the table has been left."""

    def __init__(self, kernel: Chunked, size: int, output: int) -> None:
        self._raised: list[BaseException] = []

        def run(address: int) -> int:
            try:
                if not output:
                    return kernel.run_at(address)
                status, after = kernel(ctypes.string_at(address, 8 * size))
                ctypes.memmove(address + 8 * (size - output), np.array(after[-output:], np.int64).tobytes(), 8 * output)
                return status
            except BaseException as error:  # to be raised where Python is asked next
                self._raised.append(error)
                return 1

        self._function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(run)
        self.address: int = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def failed(self, words: NDArray[np.int64]) -> None:
        if self._raised:
            raise self._raised.pop()


# ------------------------------------------------------------------------------------------------------------- loops


class While:
    """A loop that is ready to run: `run(operands, carry)` gives the last values of the carry."""

    def __init__(
        self,
        going: Any,
        step: Any,
        asked: Sequence[Storage],
        given: Sequence[Storage],
        carry: Sequence[Storage],
        samples: tuple[list[Storage], list[Storage]],
    ) -> None:
        """Plans of the condition and the body, operands, a carry of some round, and the registers of both plans in this round."""
        table, first = Table(), len(asked) + len(given)
        operands = [*asked, *given]
        avals = [*_avals(going)[: len(asked)], *_avals(step)]
        fixed = [table.operand(k, s, a) for k, (s, a) in enumerate(zip(operands, avals[:first], strict=True))]
        stays = [step.forwarded()[n : n + 1] == [len(given) + n] for n in range(len(carry))]
        self._carries: list[Carry] = []
        around: list[Register] = []
        for number, (s, aval, same) in enumerate(zip(carry, avals[first:], stays, strict=True)):
            if same:
                around.append(table.operand(first + number, s, aval))
                self._carries.append(Carry(first + number, None))
            else:
                around.append(table.carry(first + number, s, aval))
                adoption = None if aval.format.full else binding.Adoption(_tensor(aval))
                self._carries.append(Carry(first + number, around[-1], adoption))
        start = len(table.ops)
        (answer,) = table.plan(going, [*fixed[: len(asked)], *around], False, samples[0])
        leave = len(table.ops)
        table.op(UNLESS, answer.vals, 0)
        results = table.plan(step, [*fixed[len(asked) :], *around], True, samples[1])
        _rotate(table, [r for r, same in zip(around, stays, strict=True) if not same],
                [r for r, same in zip(results, stays, strict=True) if not same])
        table.op(TICK)
        table.op(JUMP, 0, start)
        table.ops[leave][2] = len(table.ops)
        table.op(HALT)
        self._finish(table)

    def _finish(self, table: Table) -> None:
        before = len(table.once)
        for op in table.ops:
            if op[0] in (UNLESS, JUMP):
                op[2] += before
        self._ops = np.array([*table.once, *table.ops], np.int64)
        self._failures = {k + before: raises for k, raises in table.failures.items()}
        self._template = np.array(table.words or [0], np.int64)
        self._loads, self._keep = table.loads, table.keep
        sizes = [size for _, size in table.buffers]
        self._buffers = np.array([word for word, _ in table.buffers], np.int64)
        self._offsets = np.array([0, *itertools.accumulate(sizes)], np.int64)
        self._driver = table_text.driver()
        self._slots = self._template, self._ops

    def run(self, operands: Sequence[Storage], carry: Sequence[Storage]) -> list[Storage]:
        """The last values of the carry."""
        every = [*operands, *carry]
        words = self._template.copy()
        kept = []
        for load in self._loads:
            s = every[load.operand]
            if load.form is not None:
                s = copies.converted(s, load.form)
                kept.append(s)
            slots = s.cache.get("slots") or binding.input_slots(s)
            words[load.at : load.at + load.size] = np.frombuffer(slots, np.int64)[: load.size]
        arena = allocator.take(int(self._offsets[-1]) + LINE)
        try:
            words[self._buffers] = self._offsets[:-1] + (arena + -arena % LINE)
            for c, s in zip(self._carries, carry, strict=True):
                if c.register is not None:
                    self._begin(c.register, s, words)
            try:
                self._drive(words)
            except BaseException:
                self._release(words)
                raise
            return [
                s if c.register is None else self._last(c, s, words) for c, s in zip(self._carries, carry, strict=True)
            ]
        finally:
            allocator.give(arena)

    def _begin(self, register: Register, s: Storage, words: NDArray[np.int64]) -> None:
        if register.dense:
            ctypes.memmove(int(words[register.vals]), result_memory.address_of(s.vals), s.vals.nbytes)
            return
        for k, level in enumerate(heads(_tensor(register.aval))):
            words[register.at + register.size + k] = len(s.buffers[level][-1])

    def _drive(self, words: NDArray[np.int64]) -> None:
        """Run the table, and ask for signals from time to time."""
        slots = np.array([result_memory.address_of(self._ops), result_memory.address_of(words), 0, 0], np.int64)
        address, run, budget = result_memory.address_of(slots), self._driver.function, 64
        while True:
            slots[3], started = budget, time.perf_counter()
            status = run(address)
            if status == table_text.PAUSED:
                budget = budget * 2 if time.perf_counter() - started < AWAY else max(1, budget // 2)
                continue
            if status:
                raises = self._failures.get(int(slots[2]))
                if raises is not None:
                    raises(words)
                compiler.check(status)
            return

    def _release(self, words: NDArray[np.int64]) -> None:
        """Free what kernels have allocated."""
        for op in self._ops:
            if op[0] == FREE and (op[2] < 0 or words[op[2]]) and words[op[1]]:
                allocator.give(int(words[op[1]]))
                words[op[1]] = 0
        for c in self._carries:
            if c.register is not None and not c.register.dense and words[c.register.owned]:
                for word in c.register.own:
                    if words[word]:
                        allocator.give(int(words[word]))
                        words[word] = 0

    def _last(self, c: Carry, s: Storage, words: NDArray[np.int64]) -> Storage:
        """The value of a carry when the loop has ended."""
        register = c.register
        assert register is not None
        if register.dense:
            count = s.vals.size
            vals, address = result_memory.fresh(count, s.dtype, None)
            ctypes.memmove(address, int(words[register.vals]), s.vals.nbytes)
            return Storage.dense((s.format, s.shape, s.fill_value, s.buffers), vals, {})
        if not words[register.owned]:
            return s
        made: Storage = c.adoption.take(tuple(words[register.at : register.at + _words(register.aval)].tolist()))
        return made


def _avals(plan: Any) -> list[Aval]:
    return [v.aval.strong() for v in (*plan.jaxpr.consts, *plan.jaxpr.inputs)]


def _rotate(table: Table, carries: Sequence[Register], results: Sequence[Register]) -> None:
    """Give the carries the values of results, all at once: sparse ones take over memory, dense ones change places with what they get; what is
    needed in two places, or again in the next round, is copied."""
    position = {id(r): k for k, r in enumerate(carries)}
    taken: set[int] = set()
    moves, copied = [], []
    for carry, result in zip(carries, results, strict=True):
        movable = id(result) not in taken and (id(result) in position or result.made)
        taken.add(id(result))
        if movable and not result.holds:
            moves.append((carry, result))
        elif result.dense and carry.dense:
            copied.append((carry, result))
        else:
            raise Unbound("a sparse value goes to two places, or does not change")
    for carry, result in zip(carries, results, strict=True):
        if carry.dense != result.dense or carry.size != result.size:
            raise Unbound("a carry changes its format")
    if copied and any(id(r) in taken for r in carries):
        raise Unbound("a value goes to two places, another around")
    for carry, result in copied:
        table.op(MOVE, carry.vals, result.vals, carry.sample.vals.nbytes)
    sources = [r for _, r in moves]
    kept = {id(r) for r in sources}
    temporary = {}
    for carry in carries:
        if not carry.dense and id(carry) not in kept:
            table.drop(carry)
    moved_carries = {id(c) for c, _ in moves}
    for _, result in moves:
        size = _words(result.aval)
        temporary[id(result)] = place = table.room([0] * (size + 1))
        table.op(COPY, place, result.at, size)
        if result.owned >= 0:
            table.op(COPY, place + size, result.owned, 1)
        else:
            table.words[place + size] = 1
    spare: dict[int, list[int]] = {}  # words with addresses of memory that nothing reads, by size
    for carry in carries:
        if carry.dense and id(carry) in moved_carries and id(carry) not in kept:
            place = table.room([0])
            spare.setdefault(carry.sample.vals.nbytes, []).append(place)
            table.op(COPY, place, carry.vals, 1)
    for carry, result in moves:
        size, place = _words(result.aval), temporary[id(result)]
        if carry.dense:
            table.op(COPY, carry.vals, place + result.size - 1, 1)
        else:
            table.op(COPY, carry.at, place, size)
            table.op(COPY, carry.owned, place + size, 1)
    for _, result in moves:
        if id(result) in position:
            continue
        if result.dense:
            table.op(COPY, result.vals, spare[result.sample.vals.nbytes].pop(), 1)
        else:
            for word in result.own:
                table.op(SET, word, 0)


def made(
    going: Any, step: Any, asked: Sequence[Storage], given: Sequence[Storage], carry: Sequence[Storage]
) -> While | None:
    """The loop as a table; None where there is none. The carry of some round is what kernels are planned for."""
    try:
        samples = going.registers_of([*asked, *carry]), step.registers_of([*given, *carry])
        return While(going, step, asked, given, carry, samples)
    except Unbound:
        return None
