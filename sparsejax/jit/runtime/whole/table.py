"""Kernels and library calls of a loop as operations of one table, over registers (`registers`); see `loop`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Eqn
from sparsejax.formats import Format, convert, copies
from sparsejax.formats.storage import Storage, dense_template
from sparsejax.jit.codegen import abi
from sparsejax.jit.ir.program import heads
from sparsejax.jit.runtime import binding, library_call
from sparsejax.jit.runtime.chunked import Chunked
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.runtime.system import result_memory
from sparsejax.jit.runtime.whole import branches, driver, kernels
from sparsejax.jit.runtime.whole.driver import ASK, CALL, CLONE, COPY, DONE, FILL, FREE, HERE, MOVE, ROOM, SET, TAKE
from sparsejax.jit.runtime.whole.registers import (
    Load,
    Register,
    Unbound,
    block_of,
    ints_of,
    parts_of,
    pattern_of,
    pointers_of,
    size_of,
    tensor_of,
    words_of,
)
from sparsejax.jit.runtime.whole.sizes import Bytes, Sizes, bytes_of

LINE = abi.ALIGNMENT


@dataclass
class Table:
    """Operations and words while they are put together."""

    ops: list[list[int]] = field(default_factory=list)
    once: list[list[int]] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    buffers: list[tuple[int, int]] = field(default_factory=list)
    """Words that get the address of a buffer, by number."""
    sizes: list[int] = field(default_factory=list)
    """The bytes of every buffer, whole lines."""
    each: list[Bytes] = field(default_factory=list)
    """The same, by what these depend on."""
    around: set[int] = field(default_factory=set)
    """Buffers that carries take turns in, if they are large: blocks of their own, of which results keep theirs."""
    steps: list[tuple[int, int]] = field(default_factory=list)
    """Words with addresses of slices of stacks, and with how far it is to the next one."""
    many: bool = False
    """Whether it may serve many sizes: types with bounds are known of operands, too."""
    by_size: Sizes = field(default_factory=Sizes)
    """The words that depend on extents."""
    spare: dict[Bytes, list[int]] = field(default_factory=dict)
    """Buffers that nobody reads any more in a round, by size."""
    exchanged: list[Register] = field(default_factory=list)
    """What is about to change places with the results of a branch."""
    pinned: list[Register] = field(default_factory=list)
    """Whose memory another register may point to, so that nobody overwrites it."""
    held: list[tuple[int, int]] = field(default_factory=list)
    """Words with addresses of memory that operations have taken, 0 where it was given back or went to another register; and the word that tells
    whether it is their own (-1: always). What is there when an operation fails is given back."""
    kept: list[int] = field(default_factory=list)
    """Words with addresses of memory that kernels find again in the next round (`abi.KEPT`), 0 where there is none."""
    keep: list[Any] = field(default_factory=list)
    loops: Callable[..., list[Register]] | None = None
    """What writes the rounds of a loop that is met; None inside of one."""
    failures: dict[int, Callable[[NDArray[np.int64]], None]] = field(default_factory=dict)
    """By the number of an operation: what raises where it has failed."""

    def op(self, code: int, *args: int) -> None:
        if code in (FREE, SET):
            args = (*args[:2], 1)
        self.ops.append([code, *args, *[0] * (driver.WIDTH - 1 - len(args))])

    def room(self, values: Sequence[int]) -> int:
        """The number of the first of new words with these values."""
        at = len(self.words)
        self.words += values
        return at

    def buffer(self, word: int, size: Bytes, stays: bool = True) -> None:
        """Memory for a dense value; where that does not stay until the next round, it may have been another's."""
        spare = [] if stays else self.spare.get(size, [])
        number = spare.pop() if spare else len(self.sizes)
        if number == len(self.sizes):
            self.sizes.append(lines_of(size[0]))
            self.each.append(size)
        if stays and self.sizes[number] >= result_memory.SMALLEST:
            self.around.add(number)
        self.buffers.append((word, number))

    def moved(self, to: int, source: Register, size: int) -> None:
        """Move so many bytes, all of a dense value, to where the word `to` points."""
        word = self.room([size])
        self.by_size.fixed |= source.bounded is None and source.aval.shape != ()
        self.by_size.bytes(word, bytes_of(size // source.aval.dtype.itemsize, source.aval, source.bounded))
        self.op(MOVE, to, source.vals, word)

    # ------------------------------------------------------------------------------------------------ registers

    def operand(
        self,
        number: int,
        storage: Storage,
        aval: Aval,
        form: Format | None = None,
        kept: bool = True,
        bounded: Aval | None = None,
    ) -> Register:
        """An operand that does not change, in a format; it keeps its copy in that, or not."""
        if form is not None:
            storage = copies.converted(storage, form) if kept else convert.convert(storage, form)
            aval = Aval(aval.shape, aval.dtype, form, aval.fill_value)
        size = size_of(aval)
        at = self.room([0] * words_of(aval))
        self.loads.append(Load(number, at, size, heads(tensor_of(aval)), form, kept))
        return Register(at, size, aval, storage, bounded=bounded)

    def literal(self, storage: Storage) -> Register:
        """A number of the program, or what it makes of extents alone."""
        aval = Aval(storage.shape, storage.dtype, storage.format, storage.fill_value)
        at = self.room(ints_of(binding.input_slots(storage)))
        self.keep.append(storage)
        return Register(at, size_of(aval), aval, storage)

    def carry(self, number: int, storage: Storage, aval: Aval, bounded: Aval | None = None) -> Register:
        """A carry, whose initial value is an operand."""
        made = Register(self.room([0] * words_of(aval)), size_of(aval), aval, storage, changes=True, around=True)
        made.bounded = bounded
        if made.dense:
            self.words[made.at : made.vals] = ints_of(binding.input_slots(storage))[:-1]
            self.by_size.extents(made.at, bounded)
            self.buffer(made.vals, bytes_of(storage.vals.size, aval, bounded))
        else:
            self.by_size.fixed = True
            made.owned = self.room([0])
            made.own = pointers_of(made)
            self.loads.append(Load(number, made.at, made.size, heads(tensor_of(aval))))
        return made

    def part(self, storage: Storage, aval: Aval) -> Register:
        """A slice of a stack of dense arrays, every round the next one."""
        made = Register(self.room([0] * words_of(aval)), size_of(aval), aval, storage, changes=True)
        self.by_size.fixed = True
        self.words[made.at : made.vals] = ints_of(binding.input_slots(storage))[:-1]
        self.steps.append((made.vals, self.room([0])))
        return made

    def put(self, register: Register) -> None:
        """Move a dense value to its place in a stack, every round the next one."""
        if not register.dense:
            raise Unbound("sparse values are stacked")
        self.steps.append((self.room([0]), self.room([0])))
        self.by_size.fixed = True
        self.moved(self.steps[-1][0], register, block_of(register.aval) * register.aval.dtype.itemsize)

    def another(self, register: Register) -> Register:
        """A dense register like this one, with memory of its own."""
        slots = [*self.words[register.at : register.vals], 0]
        made = Register(self.room(slots), register.size, register.aval, register.sample, changes=True, made=True)
        made.bounded = register.bounded
        self.by_size.extents(made.at, made.bounded)
        self.buffer(made.vals, bytes_of(register.sample.vals.size, register.aval, register.bounded))
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
        made = self._places(aval, sample)
        self.owns(made, pointers_of(made))
        return made

    def _places(self, aval: Aval, sample: Storage) -> Register:
        shape = aval.format.level_extents(aval.shape) if aval.format.blocked else aval.shape
        self.by_size.fixed = True
        at = self.room([*shape, *[0] * (words_of(aval) - len(shape))])
        return Register(at, size_of(aval), aval, sample, changes=True, made=True)

    def owns(self, register: Register, words: tuple[int, ...]) -> None:
        """What these words of a new register point to will be its own."""
        register.own = words
        self.held += [(word, register.owned) for word in words]

    def drop(self, register: Register) -> None:
        """Nobody reads it any more."""
        register.readers -= 1
        if register.readers == 0:
            for word in register.own:
                self.op(FREE, word, register.owned)
            for other in register.holds:
                self.drop(other)
            if register.made and register.dense and not register.changes:
                number = next(number for word, number in self.buffers if word == register.vals)
                self.spare.setdefault(self.each[number], []).append(number)

    def own(self, register: Register) -> None:
        """All memory of a sparse value is its own from now on: what it shares is taken over where nobody else reads that, else copied."""
        if not register.holds:
            return
        alone = all(r.made and r.readers == 1 and r.owned < 0 and not r.holds for r in register.holds)
        if not alone:
            self.cloned(register, [word for word in pointers_of(register) if word not in register.own])
        for other in register.holds:
            if alone and other.own:
                self.op(FREE, other.vals, -1)
                self.forget(other)
            elif not alone:
                self.drop(other)
        register.own, register.holds = pointers_of(register), ()

    def forget(self, register: Register) -> None:
        """Its memory is another register's from now on."""
        for word in register.own:
            self.op(SET, word, 0)

    def cloned(self, register: Register, words: Collection[int]) -> None:
        """Copy what these words of a sparse value point to."""
        for word, counter, size, more in parts_of(register):
            if word in words:
                self.op(CLONE, word, counter, size, more)

    def copy(self, register: Register) -> Register:
        """A copy of a sparse value."""
        made = self.output(register.aval, register.sample)
        self.op(COPY, made.at, register.at, words_of(register.aval))
        self.cloned(made, made.own)
        return made

    # ------------------------------------------------------------------------------------------------------ steps

    def kernel(
        self,
        runner: Any,
        given: Sequence[Register],
        sample: Storage,
        swapped: bool,
        free: Sequence[int] = (),
        into: int | None = None,
    ) -> Register:
        """A kernel on registers; `swapped`: its dense result changes places with a carry. Nobody reads the inputs that are `free` afterwards, by
        position: where the result may overwrite one of them, it is this register from now on. A dense result is written where the word `into`
        points to, if there is one."""
        if not runner.exact or runner.large:
            raise Unbound("a result is converted, or out of proportion")
        planned = runner.plan(runner.observe([r.sample for r in given]))
        inputs = list(given)
        for position, form in planned.moves:
            inputs[position] = self._moved(inputs[position], form)
        bound: binding.Binding = planned.binding
        self.keep.append(planned)
        first = self.room(ints_of(bound.prefix))
        for register in inputs:
            self.copied(register)
        aval = runner.aval.strong()
        over: list[Register] = [given[k] for k in planned.over if k in free and inputs[k] is given[k]]
        if bound.dense and over:
            made = over[0]
            at = self.room([*ints_of(bound.extents), 0])
            self.by_size.extents(at, made.bounded)
            self.op(COPY, len(self.words) - 1, made.vals, 1)
            self._call(bound, first, Register(at, made.size, aval, sample))
        elif bound.dense:
            bounded = runner.origin.aval if self.many and runner.origin is not None else None
            made, size = self._dense(bound, aval, bounded, sample, swapped, into)
            self._call(
                bound, first, made, clear=None if bound.content is None else lambda: self._fill(bound, made, size)
            )
        elif bound.shared is not None:
            made = self._given(bound, aval, sample, inputs)
            self._call(bound, first, made)
        else:
            made = self.output(aval, sample)
            counts = range(made.at + made.size, made.at + words_of(aval))
            self._keeps(made, bound)
            rooms = self._call(bound, first, made, [(COPY, count, 0, 1) for count in counts], bound.room)
            for count, room in zip(counts, rooms, strict=True):
                self.op(ROOM, room, count)
        return made

    def _sized(self, plan: Any, number: int, made: Register) -> None:
        """What the step of a plan makes of extents alone is another value for other sizes."""
        if not self.many or plan.origin is None:
            return
        eqn = plan.origin.steps[number].eqn
        sized, shape = library_call.Sized(eqn), eqn.outputs[0].aval.shape
        made.bounded = eqn.outputs[0].aval
        if sized.extents:
            self.by_size.constants.append((made.at, lambda change: sized.once((), tuple(map(change, shape)), change)))

    def _moved(self, register: Register, form: Format, kept: bool = True) -> Register:
        found = next((x for x in self.loads if x.at == register.at), None)
        if register.changes or found is None or found.form is not None:
            raise Unbound("a value that changes is converted before a kernel reads it")
        return self.operand(found.operand, register.sample, register.aval, form, kept)

    def converted(self, register: Register, form: Format, sample: Storage) -> Register:
        """A value in another format: a list of the entries of a dense vector, or an operand that does not change."""
        if not register.dense:
            if form.is_dense:
                raise Unbound("a sparse value is written out as a dense one")
            return self._moved(register, form, kept=False)
        x = register.sample
        kernel = kernels.listed(Aval(x.shape, x.dtype, x.format, x.fill_value), form)
        if kernel is None:
            raise Unbound("a dense value that is no vector becomes sparse")
        first = len(self.words)
        self.copied(register)
        made = self.output(Aval(sample.shape, sample.dtype, sample.format, sample.fill_value), sample)
        self.keep.append(kernel)
        self.op(CALL, kernel.address, first)
        return made

    def _dense(
        self,
        bound: binding.Binding,
        aval: Aval,
        bounded: Aval | None,
        sample: Storage,
        swapped: bool,
        into: int | None = None,
    ) -> tuple[Register, Bytes]:
        """The slots of a dense result, and how many bytes it has."""
        extents = ints_of(bound.extents)
        made = Register(self.room([*extents, 0]), len(extents) + 1, aval, sample, changes=swapped, made=True)
        made.bounded = bounded
        self.by_size.fixed |= bounded is None
        self.by_size.extents(made.at, bounded)
        size = bytes_of(block_of(aval), aval, bounded)
        if into is None:
            self.buffer(made.vals, size, swapped)
        else:
            made.changes, made.into = True, into
            self.op(COPY, made.vals, into, 1)
        return made, size

    def _fill(self, bound: binding.Binding, made: Register, size: Bytes) -> None:
        """Fill the memory of a dense result with what a kernel adds to."""
        width, bits = pattern_of(made.aval.dtype.type(bound.content), made.into < 0 or size[0] % 8 == 0)
        word = self.room([size[0]])
        self.by_size.bytes(word, size)
        self.op(FILL, made.vals, word, bits, width)

    def _given(self, bound: binding.Binding, aval: Aval, sample: Storage, inputs: Sequence[Register]) -> Register:
        """The slots of a result over the positions of an input, whose values are allocated before the call."""
        shared = bound.shared
        assert shared is not None
        like = inputs[shared.input]
        if like.aval.format != aval.format or not shared.pos or shared.first > heads(tensor_of(aval))[0]:
            raise Unbound("a result has the positions of an operand of another format")
        made = self._places(aval, sample)
        self.op(COPY, made.at, like.at, made.size - 1)
        for number in range(made.at + made.size, made.at + words_of(aval)):
            self.op(COPY, number, like.at + like.size + number - made.at - made.size, 1)
        self.op(TAKE, made.vals, made.count, block_of(aval) * aval.dtype.itemsize)
        self.owns(made, (made.vals,))
        made.holds = (like,)
        like.readers += 1
        return made

    def _call(
        self,
        bound: binding.Binding,
        first: int,
        made: Register,
        before: Iterable[tuple[int, int, int, int]] = (),
        rooms: Sequence[int] = (),
        clear: Callable[[], None] | None = None,
    ) -> list[int]:
        """Call a kernel on the slots from `first` on, which end with the last word so far; words with how many coordinates to make room for. `clear`
        comes before the call."""
        kernel: Any = bound.kernel
        if isinstance(kernel, Chunked):
            grows = not bound.dense and bound.shared is None
            if kernel.alone and not grows:
                self.room([0, 1])
                kernel = kernel.kernel
            else:
                self.by_size.fixed = True
                kernel = Called(kernel, len(self.words) - first, words_of(made.aval) if grows else 0)
                done = self.room([0])
        if clear is not None:
            clear()
        places = [self.room([n]) for n in rooms]
        for (code, count, _, n), place in zip(before, places, strict=False):
            self.op(code, count, place, n)
        if isinstance(kernel, Called):
            self.failures[len(self.ops)] = kernel.failed
            self.op(ASK, kernel.address, first, done)
        else:
            self.op(CALL, kernel.address, first)
        self.keep.append(kernel)
        return places

    def _keeps(self, made: Register, bound: binding.Binding) -> None:
        """Keep the workspaces of a kernel with this result from round to round: as large as extents, they would be cleared in every one."""
        if self.loops is None and not isinstance(bound.kernel, Chunked):
            cells, kept = self.room([0] * abi.CELLS), self.room([0])
            self.kept += [*range(cells, cells + abi.KEPT), *range(cells + abi.SPARE, cells + abi.CELLS)]
            made.cells = cells if abi.is_list(tensor_of(made.aval)) else -1
            self.once.append([HERE, kept, cells, 0, 0])
            self.op(COPY, made.vals, kept, 1)

    def taken_over(self, old: Register, made: Register) -> None:
        """The kernel of `made` is given the memory of `old` in the next round; the value of `made` takes the place of `old`."""
        rooms = made.cells + abi.ROOMS
        self.op(driver.SPARE, made.cells + abi.SPARE, old.own[0], len(old.own), old.owned)
        self.op(COPY, rooms, rooms + 2, 4)
        old.readers = 0

    def thinned(self, x: Register, tol: Register, sample: Storage) -> Register:
        """The entries of `x` that differ from its fill by more than `tol`."""
        kernel = kernels.thin(x.aval, tol.aval)
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
        kernel = kernels.within(x.aval, params["drop"], swapped)
        if kernel is None or not x.dense or len(eqn.inputs) != 1:
            raise Unbound("an index array that is not dense is checked")
        self.by_size.fixed = True
        first = self.room([params["extent"]])
        count = block_of(x.aval)
        self.room([count])
        self.copied(x)
        extents = self.words[x.at : x.at + x.size - 1] if x.made else list(x.aval.shape)
        made = Register(self.room([*extents, 0]), x.size, x.aval, sample, changes=swapped, made=True)
        if swapped:
            self.buffer(made.vals, bytes_of(count, x.aval, None))
        else:  # it may be `x` itself
            self.buffer(self.room([0]), bytes_of(count, x.aval, None))
            made.made, made.changes, made.holds = False, True, (x,)
            x.readers += 1

        at, form, shape, dtype, fill = x.vals, x.aval.format, x.aval.shape, x.aval.dtype, x.aval.fill_value

        def wrong(words: NDArray[np.int64]) -> None:
            vals = values_at(int(words[at]), count, dtype)
            assert eqn.primitive.call is not None
            storage = Storage.dense(dense_template(form, shape, fill), vals, {})
            eqn.primitive.call(storage, out_aval=eqn.outputs[0].aval, **params)

        self.failures[len(self.ops)] = wrong
        self.keep.append(kernel)
        self.op(CALL, kernel.address, first)
        return made

    def plan(
        self,
        plan: Any,
        given: Sequence[Register],
        swapped: bool,
        samples: list[Storage],
        gone: Collection[Register] = (),
        into: Mapping[int, int] | None = None,
    ) -> list[Register]:
        """The steps of a plan; its results. `samples` are the values of its registers in some round. Nobody reads operands that are `gone`
        after the plan; dense results are written where words `into` point to, by the number of the result's register."""
        if plan.checks.before:
            raise Unbound("values are looked at before they are used")
        registers = [*given, *(self.literal(s) for s in plan.literals)]
        first, places = len(registers), into or {}
        wanted = set(plan.results) if swapped else set()
        kept: dict[int, tuple[int, int]] = {}
        ends = _ends(plan)
        for number, (step, reads) in enumerate(zip(plan.steps, plan.reads, strict=True)):
            inputs, here = [registers[k] for k in reads], len(registers)
            last = [
                n
                for n, k in enumerate(reads)
                if ends.get(k) == (number, 1)
                and (k >= first or registers[k] in gone)
                and registers[k] not in self.pinned
                and inputs.count(registers[k]) == 1
            ]
            if isinstance(step, KernelRunner):
                free = [n for n in last if swapped and inputs[n].around]
                registers.append(self.kernel(step, inputs, samples[here], here in wanted, free, places.get(here)))
            elif step.eqn.primitive.name == "cond":
                outputs = range(here, here + len(step.outputs))
                registers += branches.branched(
                    self,
                    step.eqn,
                    plan.bodies(number),
                    inputs,
                    [inputs[n] for n in last],
                    [samples[k] for k in outputs],
                    [k in wanted for k in outputs],
                )
            elif step.eqn.primitive.name == "kept" and _by_size(step.eqn):
                kept[here] = reads[0], reads[1]
                held = [r for r in inputs if r.own or r.holds]
                for register in held:
                    register.readers += 1
                registers.append(Register(0, 0, step.outputs[0].aval, samples[here], holds=tuple(held)))
            elif step.eqn.primitive.name == "thin" and kept.get(reads[1], (-1,))[0] == reads[0]:
                registers.append(self.thinned(inputs[0], registers[kept[reads[1]][1]], samples[here]))
            elif step.eqn.primitive.name == "convert_format":
                registers.append(self.converted(inputs[0], step.outputs[0].aval.format, samples[here]))
            elif step.eqn.primitive.name == "while" and self.loops is not None:
                registers += self.loops(self, step.eqn, plan.bodies(number), inputs, [inputs[n] for n in last])
            elif step.eqn.primitive.name == "checked":
                registers.append(self.checked(step.eqn, inputs[0], samples[here], here in wanted))
            elif not (inputs or step.eqn.effect or step.eqn.asks) and samples[here].format.is_dense:
                registers.append(self.literal(samples[here]))  # an extent, or the numbers up to it
                self._sized(plan, number, registers[-1])
            else:
                raise Unbound(f"a library call, {step.eqn.primitive.name}")
            for k in plan.dead[number]:
                self.drop(registers[k])
        return [registers[k] for k in plan.results]


def lines_of(size: int) -> int:
    """The bytes of whole lines that so many bytes are in."""
    return -(-max(size, 1) // LINE) * LINE


def _ends(plan: Any) -> dict[int, tuple[int, int]]:
    """For every register that is read, the last step that reads it, and how often; who reads a checked index array may read what it is made of."""
    of: dict[int, int] = {}
    for number, (step, reads) in enumerate(zip(plan.steps, plan.reads, strict=True)):
        if not isinstance(step, KernelRunner) and step.eqn.primitive.name == "checked":
            of[plan.made[number][0]] = of.get(reads[0], reads[0])
    every = [[x for k in reads for x in {k, of.get(k, k)}] for reads in (*plan.reads, plan.results)]
    return {k: (number, reads.count(k)) for number, reads in enumerate(every) for k in reads}


def _by_size(eqn: Eqn) -> bool:
    """Whether flags only say which entries differ from the fill by more than a number."""
    params = eqn.param_dict
    return params["bounded"] and params["keep"] is None and len(eqn.inputs) == 2


def values_at(address: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A copy of dense values."""
    return np.frombuffer(ctypes.string_at(address, count * dtype.itemsize), dtype)


class Called:
    """A kernel that runs in chunks, as a function of the address of its slots, which writes its status behind these; what it raises is raised when the
    table has been left."""

    def __init__(self, kernel: Chunked, size: int, output: int) -> None:
        self._raised: list[BaseException] = []

        def run(address: int) -> int:
            try:
                if not output:
                    status = kernel.run_at(address)
                    ctypes.c_int64.from_address(address + 8 * size).value = DONE + status
                    return 0
                status, after = kernel(ctypes.string_at(address, 8 * size))
                ctypes.memmove(address + 8 * (size - output), np.array(after[-output:], np.int64).tobytes(), 8 * output)
                ctypes.c_int64.from_address(address + 8 * size).value = DONE + status
            except BaseException as error:  # to be raised where Python is asked next
                self._raised.append(error)
            return 0

        self._function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(run)
        self.address: int = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def failed(self, words: NDArray[np.int64]) -> None:
        if self._raised:
            raise self._raised.pop()
