"""A program with loops as one table (`table`, `driver`), with the kernels and conversions before and behind them.

    s = (index == source);  f = s.asformat("coo");  f, d = while_loop(.., (f, s));  return d - 1

before:   two kernels, a conversion, a `loop` and a kernel, each called from Python, with its operands packed and its result put together
after:    one call. Only results of the program become arrays

        TAKE    memory of all dense values between steps; ADD their places in it
        CALL    index == source;  CALL listed;  ...
        MOVE    d's first value;  COPY slots of f;  SET f's own ← 1      a carry takes over what nobody else reads
        ...                                                              the rounds (`loop.written`)
        COPY    address of the result;  CALL d - 1                       a kernel writes where the result is wanted
        FREE    all that is left

Where a step is of another kind, or a kernel has kernels by position beside it (`pattern_variants`), there is no such table: `Unbound`.
"""

from __future__ import annotations

import ctypes
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax import config
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Eqn
from sparsejax.formats import convert, copies
from sparsejax.formats.storage import Storage, Template
from sparsejax.jit.cost import statistics
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime import binding, library_call
from sparsejax.jit.runtime.kernels import KernelRunner, turn
from sparsejax.jit.runtime.system import allocator, result_memory, threads
from sparsejax.jit.runtime.whole import driver, loop
from sparsejax.jit.runtime.whole.branches import STEPS
from sparsejax.jit.runtime.whole.driver import ADD, ALIGN, COPY, FREE, HALT, JUMP, SET, TAKE, UNLESS
from sparsejax.jit.runtime.whole.merging import merged
from sparsejax.jit.runtime.whole.operations import Operations
from sparsejax.jit.runtime.whole.registers import Register, Unbound, ints_of, pointers_of, size_of, tensor_of, words_of
from sparsejax.jit.runtime.whole.sizes import bytes_of
from sparsejax.jit.runtime.whole.table import LINE, Table
from sparsejax.lax import rounds

CALLS = 3
"""In which call with operands like these a table is made, which costs as much as some calls."""
MOST, ASKED = 64, 128
"""Tables of one plan, and facts of operands that came too seldom for one, of which is kept how often."""

_Made = Callable[[Any, Sequence[Storage], list[Storage], set[int]], Storage]


class Programs:
    """The tables of a plan, by settings and by facts of the sparse operands (`statistics.positions`)."""

    def __init__(self) -> None:
        self._last: tuple[Any, int, Sequence[tuple[int, Any]], Program | None] = None, -1, (), None
        self._known: dict[Any, Program | None] = {}
        self._asked: dict[Any, int] = {}

    def run(self, plan: Any, storages: Sequence[Storage]) -> list[Storage] | None:
        """The results of `plan`, none in memory that the caller may change after the call; None where there is no table, or not yet."""
        settings, count, kept, program = self._last
        now = config.planning()
        if (now is settings or now == settings) and count == threads.count():
            for k, facts in kept:
                found = storages[k].cache.get("positions")
                if found is not facts and found != facts:
                    break
            else:
                return None if program is None else program.run(storages)
        return self._other(plan, storages)

    def _other(self, plan: Any, storages: Sequence[Storage]) -> list[Storage] | None:
        settings, count = config.planning(), threads.count()
        kept = [(k, statistics.positions(s)) for k, s in enumerate(storages) if not s.format.is_dense]
        key = settings, count, tuple(kept)
        if key not in self._known:
            asked = self._asked.pop(key, 0) + 1
            if asked < CALLS and not config.forcing:
                if len(self._asked) >= ASKED:  # facts that do not come back: those that came last are kept
                    self._asked = dict(list(self._asked.items())[ASKED // 2 :])
                self._asked[key] = asked
                return None
            registers = plan.registers_of(storages)
            with turn:
                made = _program(plan, registers)
            if len(self._known) >= MOST:
                self._known = {}
            self._known[key] = made
            if made is None or not config.forcing:
                return library_call.all_owned([registers[k] for k in plan.results], storages)
        program = self._known[key]
        self._last = settings, count, kept, program
        return None if program is None else program.run(storages)


def has_loops(plan: Any) -> bool:
    """Whether all steps of a plan may be one table, and some are loops."""
    return _known(plan) and any(not isinstance(s, KernelRunner) and s.eqn.primitive.name == "while" for s in plan.steps)


def _known(plan: Any, inside: bool = False) -> bool:
    steps = (*STEPS, "convert_format") if inside else (*STEPS, "convert_format", "while")
    return not plan.checks.before and all(
        (s.variants is None or inside) if isinstance(s, KernelRunner) else s.eqn.primitive.name in steps
        for s in plan.steps
    )


def _program(plan: Any, registers: list[Storage]) -> Program | None:
    """The table of a plan, whose registers were these in some call; None where there is none."""
    if choices.pick("rounds", rounds.WITH_PROGRAM, "program") != "program":
        return None
    if not all(_known(body, True) for number in range(len(plan.steps)) for body in plan.bodies(number)):
        return None
    try:
        return Program(plan, registers)
    except Unbound:
        return None


class Program:
    """A program that is ready to run; `Unbound` where there is no such table."""

    def __init__(self, plan: Any, samples: list[Storage]) -> None:
        """A plan, and the values of its registers in some call."""
        table = Table(loops=_while)
        table.room([0] * 4)  # the driver's own slots
        count = plan.operands
        operands = [table.operand(k, s, _aval(s)) for k, s in enumerate(samples[:count])]
        self._outputs: list[tuple[int, result_memory.Results, Template]] = []
        places = {k: table.room([0]) for k in dict.fromkeys(plan.results) if k >= count and samples[k].format.full}
        registers = table.plan(plan, operands, False, samples, (), places)
        of = dict(zip(plan.results, registers, strict=True))
        self._order = [list(of).index(k) for k in plan.results] if len(of) < len(plan.results) else None
        self._makers: list[_Made] = []
        for k, register in of.items():
            self._makers.append(self._result(table, places, k, register, samples[k]))
        self._only = self._makers[0] if len(self._makers) == 1 and type(self._makers[0]) is not _Given else None
        """What makes the only result, which shares no memory with operands."""
        adopted = {word for m in self._makers if isinstance(m, _Adopted) for word in m.words}
        self._finish(table, adopted, samples)

    def _result(self, table: Table, places: dict[int, int], number: int, r: Register, sample: Storage) -> _Made:
        """What makes a result of the program."""
        for load in table.loads:
            if load.at == r.at and load.form is None:
                return _Given(load.operand)
        if not r.dense:
            made = r.own == pointers_of(r) and not r.holds
            if not made or any(isinstance(m, _Adopted) and m.register is r for m in self._makers):
                raise Unbound("a result shares memory with another value")
            return _Adopted(r)
        size = sample.vals.nbytes
        if r.around and size >= result_memory.SMALLEST:
            return _Block(r, sample)
        place = places[number]
        if r.into != place:
            table.moved(place, r, size)
        slots = binding.input_slots(sample)
        results = result_memory.Results(len(sample.vals), sample.dtype, None, slots[:-8])
        template = sample.format, sample.shape, sample.fill_value, sample.buffers
        self._outputs.append((8 * place, results, template))
        return _Fresh(len(self._outputs) - 1)

    def _finish(self, table: Table, adopted: set[int], samples: Sequence[Storage]) -> None:
        """Put memory of dense values before the operations, and behind them what gives memory back. Numbers are put in their places as they are in
        `samples`: most are constants of the program, which every call passes."""
        together = [(word, number) for word, number in table.buffers if number not in table.around]
        sizes = [0 if k in table.around else size for k, size in enumerate(table.sizes)]
        starts = list(itertools.accumulate(sizes, initial=0))
        self._apart = [(word, table.sizes[number]) for word, number in table.buffers if number in table.around]
        table.held += [(word, -1) for word in table.kept]
        self._held = [h for h in table.held if h[0] not in adopted]
        self._all = table.held
        for word, owned in self._held:
            table.op(FREE, word, owned)
        before: list[list[int]] = []
        if together:
            raw, base, size = (table.room([n]) for n in (0, 0, starts[-1] + LINE))
            before = [[TAKE, raw, size, 1, 0], [ALIGN, base, raw, LINE, 0]]
            for word, number in together:
                table.words[word] = starts[number]
                before.append([ADD, word, base, 0, 0])
            table.op(FREE, raw, -1)
            self._all = [*table.held, (raw, -1)]
        table.op(HALT)
        table.ops, table.failures = merged(table.ops, table.failures)
        before += table.once
        _shift(table, len(before))
        self._ops, self._keep = Operations([*before, *table.ops], table.failures), table.keep
        template = np.array(table.words, np.int64)
        template[driver.OPS] = self._ops.address
        self._numbers: dict[int, Storage] = {}
        for x in table.loads:
            s = samples[x.operand]
            if x.form is None and s.shape == () and s.format.is_dense:
                template[x.at : x.at + x.size] = ints_of(binding.input_slots(s))
                self._numbers[x.operand] = s
        self._loads = [(x.operand, 8 * x.at, 8 * (x.at + x.size + len(x.heads)), x) for x in table.loads]
        self._few: tuple[Callable[..., Any], Any, list[Any]] | None = None
        self._template = template.tobytes()
        self._rooms: list[tuple[Any, Any, int]] = []

    def _changing(self, storages: Sequence[Storage]) -> tuple[Callable[..., Any], Any, list[Any]]:
        """What tells whether numbers are those that are in their places, and what is to be put there then: numbers that come again are constants."""
        there = [operand for operand, s in self._numbers.items() if storages[operand] is s]
        if len(there) < 2:
            there = []
        constants = operator.itemgetter(*there) if there else len
        self._few = constants, constants(storages), [load for load in self._loads if load[0] not in there]
        return self._few

    def _room(self) -> tuple[Any, Any, int]:
        """Memory for the words of a call, as bytes and as words, and where it is."""
        own = bytearray(self._template)
        view = memoryview(own)
        return view, view.cast("q"), result_memory.address_of(np.frombuffer(own, np.int64))

    def run(self, storages: Sequence[Storage]) -> list[Storage]:
        """The results for these operands, none in memory that the caller may change after the call."""
        try:
            memory, words, address = room = self._rooms.pop()
            memory[:] = self._template
        except IndexError:  # the first call, or others are running
            memory, words, address = room = self._room()
        converted = []  # alive while their addresses are in the table
        constants, numbers, loads = self._few or self._changing(storages)
        for operand, begin, end, load in loads if constants(storages) == numbers else self._loads:
            s = storages[operand]
            if load.form is not None:
                s = copies.converted(s, load.form) if load.kept else convert.convert(s, load.form)
                converted.append(s)
            if load.heads:
                memory[begin:end] = s.cache.get("counted") or _counted(s, load.heads)
            else:
                memory[begin:end] = s.cache.get("slots") or binding.input_slots(s)
        fresh: list[Storage] = []
        for place, results, template in self._outputs:
            made, slots = results.storage(template)
            memory[place : place + 8] = slots[-8:]
            fresh.append(made)
        blocks: set[int] = set()
        try:
            for word, size in self._apart:
                block = allocator.take(size)
                blocks.add(block)
                words[word] = block
            words[driver.WORDS] = address
            try:
                self._ops.drive(address, words, words, None)
            except BaseException:
                for word, owned in self._all:
                    if words[word] and (owned < 0 or words[owned]):
                        allocator.give(words[word])
                raise
            if self._only is not None:
                return [self._only(words, storages, fresh, blocks)]
            found = [maker(words, storages, fresh, blocks) for maker in self._makers]
            found = library_call.all_owned(found, storages)
            return found if self._order is None else [found[k] for k in self._order]
        finally:
            self._rooms.append(room)
            if blocks:
                allocator.release([*blocks])


def _counted(storage: Storage, heads: Sequence[int]) -> bytes:
    """The packed slots of an operand with how many coordinates there are, per level that starts a segment; they are kept with it."""
    counts = np.array([len(storage.buffers[level][-1]) for level in heads], np.int64)
    made = storage.cache["counted"] = binding.input_slots(storage) + counts.tobytes()
    return made


class _Given:
    """A result that is an operand."""

    def __init__(self, operand: int) -> None:
        self._operand = operand

    def __call__(self, words: Any, storages: Sequence[Storage], fresh: Any, blocks: set[int]) -> Storage:
        return storages[self._operand]


class _Fresh:
    """A dense result in memory that was made for it."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, words: Any, storages: Any, fresh: list[Storage], blocks: set[int]) -> Storage:
        return fresh[self._number]


class _Block:
    """A large dense carry, which takes its memory from `blocks`."""

    def __init__(self, register: Register, sample: Storage) -> None:
        self._vals, self._count, self._dtype = register.vals, len(sample.vals), sample.dtype
        self._template = sample.format, sample.shape, sample.fill_value, sample.buffers

    def __call__(self, words: Any, storages: Any, fresh: Any, blocks: set[int]) -> Storage:
        own = int(words[self._vals])
        if own in blocks:
            blocks.remove(own)
            vals = allocator.adopt(own, self._count, self._dtype)
        else:
            vals, address = result_memory.fresh(self._count, self._dtype, None)
            ctypes.memmove(address, own, vals.nbytes)
        return Storage.dense(self._template, vals, {})


class _Adopted:
    """A sparse result, whose memory kernels allocated; or an operand, where the loop never changed it."""

    def __init__(self, register: Register) -> None:
        self.register, self.words = register, register.own
        self._adoption = binding.Adoption(tensor_of(register.aval))
        self._at, self._end, self._owned = register.at, register.at + words_of(register.aval), register.owned
        self._slots = register.at + register.size

    def __call__(self, words: Any, storages: Sequence[Storage], fresh: Any, blocks: set[int]) -> Storage:
        if self._owned >= 0 and not words[self._owned]:
            slots = words[self._at : self._slots].tobytes()
            return next(s for s in storages if not s.format.full and binding.input_slots(s) == slots)
        return self._adoption.take(tuple(words[self._at : self._end].tolist()))


def _aval(s: Storage) -> Aval:
    return Aval(s.shape, s.dtype, s.format, s.fill_value)


def _shift(table: Table, by: int) -> None:
    """All operations come so much later."""
    for op in table.ops:
        if op[0] in (UNLESS, JUMP):
            op[2] += by
    table.failures = {k + by: raises for k, raises in table.failures.items()}


def _while(
    table: Table, eqn: Eqn, bodies: Sequence[Any], inputs: Sequence[Register], last: Sequence[Register]
) -> list[Register]:
    """A loop between other steps: its last carry. Nobody reads inputs that are `last` afterwards."""
    going, step = bodies
    first, second = eqn.param_dict["counts"]
    samples = [r.sample for r in inputs]
    asked, given, begin = samples[:first], samples[first : first + second], samples[first + second :]
    carry = rounds.sampled(going, step, asked, given, begin)
    stays = [step.forwarded()[n : n + 1] == [second + n] for n in range(len(carry))]
    if loop.varies([s for s, same in zip(carry, stays, strict=True) if not same]):
        raise Unbound("a loop may get another plan on its way")
    fixed = [_view(r) for r in inputs]
    around = [
        fixed[first + second + n] if same else _carry(table, inputs[first + second + n], carry[n], last)
        for n, same in enumerate(stays)
    ]
    before, earlier, failures = table.ops, table.once, table.failures
    table.ops, table.once, table.failures, table.loops = [], [], {}, None
    tested, stepped = going.registers_of([*asked, *carry]), step.registers_of([*given, *carry])
    loop.written(
        table, (going, tested), (step, stepped), fixed[:first], fixed[first : first + second], around, (), stays
    )
    start = [*before, *table.once]
    _shift(table, len(start))
    table.ops, table.once, table.failures, table.loops = (
        [*start, *table.ops],
        earlier,
        failures | table.failures,
        _while,
    )
    for n, same in enumerate(stays):
        if same:
            around[n] = inputs[first + second + n]
            around[n].readers += 1
    return around


def _view(r: Register) -> Register:
    """A value as an operand of a loop."""
    return Register(r.at, r.size, r.aval, r.sample)


def _carry(table: Table, r: Register, sample: Storage, last: Sequence[Register]) -> Register:
    """A carry that begins as the value of `r`."""
    if r.aval.format != sample.format or r.sample.dtype != sample.dtype or r.sample.shape != sample.shape:
        raise Unbound("a carry changes its type")
    aval = _aval(sample)
    made = Register(table.room([0] * words_of(aval)), size_of(aval), aval, sample, changes=True, around=True)
    if made.dense:
        table.words[made.at : made.vals] = ints_of(binding.input_slots(sample))[:-1]
        table.buffer(made.vals, bytes_of(sample.vals.size, aval, None))
        table.moved(made.vals, r, sample.vals.nbytes)
        return made
    made.owned = table.room([0])
    table.op(COPY, made.at, r.at, words_of(aval))
    if r.made and r.own == pointers_of(r) and not r.holds and r.readers == 1 and r.owned < 0 and r in last:
        table.op(SET, made.owned, 1)
        table.forget(r)
    elif r.made or r.around:
        table.cloned(made, pointers_of(made))
        table.op(SET, made.owned, 1)
    table.owns(made, pointers_of(made))
    return made
