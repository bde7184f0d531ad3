"""Plans that run: steps over numbered registers."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sparsejax import config
from sparsejax.cached import cached_property, copied
from sparsejax.core.array import Array, made
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Jaxpr
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import statistics
from sparsejax.jit.graph import guards, partition, resize
from sparsejax.jit.runtime import donation, library_call, sequence, unkept
from sparsejax.jit.runtime.kernels import Into, KernelRunner, turn
from sparsejax.jit.runtime.system import threads
from sparsejax.jit.runtime.whole import program as programs
from sparsejax.jit.runtime.whole import sizes
from sparsejax.jit.runtime.whole.loop import Loop
from sparsejax.jit.runtime.whole.registers import Unbound
from sparsejax.jit.runtime.written import Direct
from sparsejax.lax.rounds import Body, Past, Rounds

FEWER = 8
"""How many times fewer entries go around than a loop was planned for, where it gets another plan."""

Step = KernelRunner | partition.CallStep


class Source(Protocol):
    """The program that a plan is of."""

    @property
    def jaxpr(self) -> Jaxpr: ...

    def written(self, storages: Sequence[Storage]) -> Plan:
        """The plan of the program as it is written: products are associated as it says."""


@dataclasses.dataclass(frozen=True)
class _Resized:
    """The program of a plan for many shapes, as the source of the plan for one of them."""

    made_of: Source
    change: resize.Change

    @property
    def jaxpr(self) -> Jaxpr:
        return self.made_of.jaxpr

    def written(self, storages: Sequence[Storage]) -> Plan:
        return self.made_of.written(storages).resized(self.change)


class Plan(Body):
    """Steps over numbered registers: constants and inputs first, then literals that are read, then results."""

    def __init__(
        self,
        layout: sequence.Layout,
        steps: Sequence[Step],
        literals: Sequence[Storage],
        out_avals: Sequence[Aval],
        fresh: bool,
        by_facts: bool,
        bodies: Mapping[int, Callable[[], list[Plan]]],
        source: Callable[[], Source],
    ) -> None:
        """Everything that running takes (found out in `plans`, or read from disk): the registers that steps read and make, what steps and literals these
        are, and the types of results. `bodies` give the plans of the jaxprs that steps run, by step; `source` what it is made of."""
        self.layout, self.steps, self.literals, self.source = layout, list(steps), list(literals), source
        self.operands, self.count = layout.operands, len(steps)
        self.reads, self.results, self.dead = layout.reads, layout.results, layout.dead
        self.made = layout.made
        """The registers that every step makes."""
        self.out_avals = list(out_avals)
        self.checks = guards.Placed({number: asked for number, asked in enumerate(layout.checks) if asked})
        """Where a value is not as it must be before some step, the program runs as it is written."""
        self.fresh = fresh
        """Whether results share no memory with operands: kernels make them, or library calls of what kernels made."""
        self.by_facts = by_facts
        """Whether what operands held in the first call decided what steps there are."""
        self._bodies = dict(bodies)
        self._tables: dict[Any, Any] = {}
        """Loops of which it is the body."""
        self.past = Past()
        calls = [self._call(number) for number in range(self.count)]
        self._line = sequence.Line(layout, calls, self.literals)
        single = self.count == 1 and not self.checks.before and self.results == (self.operands + len(self.literals),)
        straight = single and not self.literals and self.reads[0] == tuple(range(self.operands))
        self.alone = calls[0] if straight and self.fresh else None
        """The kernel that is all there is to do, if it reads the operands as they come."""
        self._programs = programs.Programs() if self._bodies and programs.has_loops(self) else None
        """What runs it as one table, where it has loops and that may be."""
        self._single = single and self.fresh and isinstance(calls[0], KernelRunner | library_call.NumPyCall)
        self._sized: dict[Any, sequence.Line] = {}
        self.sizes: dict[Any, Any] = {}
        """Loops of which it is the body, by tables that serve many sizes; beside each the condition (`whole.sizes`)."""
        self.origin: Plan | None = None
        """The plan for many shapes that this one is for one of."""

    @property
    def jaxpr(self) -> Jaxpr:
        """The program that it is of."""
        return self.source().jaxpr

    @property
    def has_bodies(self) -> bool:
        """Whether steps run other jaxprs."""
        return bool(self._bodies)

    def chosen(self, choose: str) -> None:
        """Plan its kernels with these alternatives, also for facts that are met later (`tuning`)."""
        for step in self.steps:
            if isinstance(step, KernelRunner):
                step.choose = choose
                if step.variants is not None:
                    step.variants.choosing = step.choosing

    @property
    def kernel(self) -> sequence.Step:
        """What makes its only result, on the shortest road."""
        straight = self.fresh and self._programs is None and len(self.results) == 1
        return self.alone or (self._line if straight else self)

    def call(self, storages: Sequence[Storage]) -> Storage:
        """The first result, as `outcome`."""
        return self.outcome(storages)[0]

    def resized(self, change: resize.Change) -> Plan:
        """The plan for one of the shapes that it serves; `change` gives the extents in place of bounds. Nothing is planned. O(steps)."""
        made = copied(self)
        made._tables, made._sized, made.sizes, made.origin = {}, {}, {}, self
        made._programs = None if self._programs is None else programs.Programs()
        made.out_avals = [a.resized(change) for a in self.out_avals]
        made.steps = [
            s.resized(change)
            if isinstance(s, KernelRunner)
            else partition.CallStep(resize.resized_alone(s.eqn, change))
            for s in self.steps
        ]
        made._bodies = {k: made_once(_all_resized, run, change) for k, run in self._bodies.items()}
        made.source = lambda: _Resized(self.source(), change)
        calls = [made._call(number) for number in range(len(made.steps))]
        made._line = sequence.Line(self._line.layout, calls, self.literals)
        made.alone = calls[0] if self.alone is not None else None
        return made

    def once(self, storages: Sequence[Storage], change: resize.Change) -> list[Array]:
        """The results of `resized(change)`, of which nothing is kept: what a shape costs that may not come back."""
        settings = config.planning()
        line = self._sized.get(settings)
        if line is None:
            line = self._sized[settings] = self._sized_line()
        found = line.call(storages, change)
        if found is None:
            return self._written(storages).once(storages, change)
        results = list(found) if type(found) is tuple else [found]
        if not self.fresh:
            results = library_call.all_owned(results, storages)
        avals = self.out_avals
        if len(results) == 1:  # most; on the shortest road
            return [made(results[0], avals[0] if self._ends[0] else avals[0].at(results[0].shape))]
        return [made(r, a if same else a.at(r.shape)) for r, a, same in zip(results, avals, self._ends)]

    def ready(self, change: resize.Change) -> Callable[[Sequence[Storage]], list[Array] | None] | None:
        """`once` for one shape that comes again, as a function of operands, under the settings of `config` as they are: None under others, and where that
        is to be asked. None where it did not run yet."""
        settings = config.planning()
        line, avals = self._sized.get(settings), list[Aval]()
        if line is None:
            return None

        def run(storages: Sequence[Storage]) -> list[Array] | None:
            if config.planning() is not settings or (found := line.call(storages, change)) is None:
                return None
            results = list(found) if type(found) is tuple else [found]
            if not self.fresh:
                results = library_call.all_owned(results, storages)
            if not avals:
                ends = zip(results, self.out_avals, self._ends, strict=True)
                avals.extend([a if same else a.at(r.shape) for r, a, same in ends])
            return list(map(made, results, avals))

        return run

    @cached_property
    def _ends(self) -> list[bool]:
        """Whether the type of a result is the same in all calls."""
        return [not resize.changes(a.shape) for a in self.out_avals]

    @cached_property
    def sizes_alone(self) -> bool:
        """Whether `alone_once` may serve."""
        step = self.steps[0] if self._single else None
        return step.exact if isinstance(step, KernelRunner) else step is not None

    def alone_once(self, storages: Sequence[Storage], shape: tuple[int, ...]) -> Array | None:
        """As `once`, of a plan that is one kernel or function of NumPy's, whose result has this shape, on the shortest road; None where that does not
        serve."""
        step = self.steps[0]
        if not isinstance(step, KernelRunner):
            direct = self.direct(storages)
            found = None if direct is None else direct(storages, shape)
        else:
            if self.alone is None:  # not all operands are read, or numbers of the program are
                storages = self._line.layout.picks[0](self.registers(storages))
            found = step.sized_once(storages, shape)
        return None if found is None else made(found, self.out_avals[0].at(shape))

    def direct(self, storages: Sequence[Storage]) -> Direct | None:
        """`alone_once` as one function for operands like these, where it has one."""
        step, taken, literals = self.steps[0], self._line.layout.picks[0], self.literals
        given = storages if self.alone is not None else taken([*storages, *literals])
        found = step.direct(given) if isinstance(step, KernelRunner) else library_call.Sized(step.eqn).numpy_once
        if found is None or self.alone is not None:
            return found
        return lambda operands, shape: found(taken([*operands, *literals]), shape)

    def _sized_line(self) -> sequence.Line:
        """What `once` runs, under the settings of `config` as they are."""
        steps, tried, shapes = list[sequence.Step](), set[int](), list[tuple[int, ...]]()
        constants = {self.operands + k: frozenset[Any]() for k in range(len(self.literals))}
        """Registers that no operand has to do with, with the extents that they depend on."""
        memories = unkept.memories(self._line.layout, list(map(_written, self.steps)))
        for number, (step, memory) in enumerate(zip(self.steps, memories, strict=True)):
            if isinstance(step, KernelRunner):
                tried.add(number)
                steps.append(unkept.Kernel(step, memory))
                shapes.append(step.output.shape)
            elif library_call.is_several(step.eqn):
                steps.append(unkept.Several(functools.partial(self._called_once, number)))
                shapes.append(())
            else:
                sized, shape = library_call.Sized(step.eqn, memory), step.eqn.outputs[0].aval.shape
                extents = sized.extents.union(*[constants.get(k, ()) for k in self.reads[number]])
                kept = constants.keys() >= set(self.reads[number]) and not step.eqn.effect
                constants.update(dict.fromkeys(self.made[number] if kept else (), extents))
                call = unkept.Call(sized, tuple(extents) if kept else None)
                tried |= {number} if call.first is not None else set()
                steps.append(call)
                shapes.append(shape)
        layout = dataclasses.replace(self._line.layout, shapes=tuple(shapes), tried=frozenset(tried))
        return sequence.Line(layout, steps, self.literals)

    def _called_once(self, number: int, inputs: Sequence[Storage], change: Callable[[Any], Any]) -> list[Storage]:
        """The results of a library call of `resized(change)` that has several, or runs other jaxprs."""
        step, run = self.steps[number], self._bodies.get(number)
        assert isinstance(step, partition.CallStep)
        if step.eqn.primitive.name == "while":  # its call asks for no extents
            later = [sizes.Later(plan, change) for plan in self.bodies(number)]
            return step.call(inputs, later)
        bodies = list if run is None else made_once(_all_resized, run, change)
        return library_call.Bodies(partition.CallStep(resize.resized_alone(step.eqn, change)), bodies).call(inputs)

    def _call(self, number: int) -> sequence.Step:
        step = self.steps[number]
        if isinstance(step, KernelRunner):
            return step
        if library_call.is_several(step.eqn):
            return library_call.Bodies(step, self._bodies.get(number, list), self._unread(number))
        return library_call.NumPyCall.of(step) or library_call.LibraryCall(step)

    def _unread(self, number: int) -> frozenset[int]:
        """The results of a step that nobody reads, by position."""
        read = {k for reads in (*self.reads, self.results) for k in reads} | self.checks.registers
        return frozenset(n for n, k in enumerate(self.made[number]) if k not in read)

    def _written(self, storages: Sequence[Storage]) -> Plan:
        """The plan of the program as it is written."""
        return self.source().written(storages)

    def registers(self, storages: Sequence[Storage]) -> list[Storage]:
        """The registers before the first step."""
        return [*storages, *self.literals]

    def bodies(self, number: int) -> list[Plan]:
        """The plans of the jaxprs that a step runs."""
        return self._bodies[number]() if number in self._bodies else []

    def step(
        self,
        number: int,
        registers: list[Storage],
        bodies: Sequence[Any] | None = None,
        spare: donation.Spare | None = None,
    ) -> list[Storage]:
        """Run one step, whose results become the next registers; what it read. `bodies` run in place of its own."""
        step, inputs = self.steps[number], [registers[k] for k in self.reads[number]]
        if isinstance(step, KernelRunner):
            registers.append(step.run(inputs, None if spare is None else self._memory(number, registers, spare)))
        else:
            registers.extend(step.call(inputs, self.bodies(number) if bodies is None else bodies))
        return inputs

    def forwarded(self) -> list[int | None]:
        """For every result, the operand that it is, if it is one."""
        return [k if k < self.operands else None for k in self.results]

    def loop(
        self,
        going: Body | None,
        asked: Sequence[Storage],
        given: Sequence[Storage],
        carry: Sequence[Storage],
        sample: Sequence[Storage] | None,
        rounds: Rounds | None = None,
        unread: Collection[int] = (),
    ) -> list[Storage] | None:
        """The loop of which it is the body, from a carry to the end, by one table (`whole.loop`): while `going` says so, or all `rounds`. It is made
        of what changes as it was in some round, the `sample`; None where there is no table, or no sample and none is known. What is `unread` of the
        last carry may be anything."""
        if not isinstance(going, Plan | None) or self._asks or (going is not None and going._asks):
            return None
        facts = tuple(s.cache.get("positions") or statistics.positions(s) for s in (*asked, *given))
        count = len(carry)
        key = id(going), config.planning(), threads.count(), facts
        usual = table = self._table(key, going, asked, given, sample, count)
        while table is not None and usual is not None:
            entries, few = None, usual.entries // FEWER
            if usual.varies:
                entries = (few, math.inf) if table is usual else (0, few * FEWER // 2)
            carry, ended = table.run((*asked, *given), carry, rounds, unread, entries)
            if ended:
                return carry
            if table is not usual:
                table = usual
            else:
                table = self._table((*key, "few"), going, asked, given, carry, count)
        return None if usual is None else usual.run((*asked, *given), carry, rounds, unread)[0]

    def _table(
        self,
        key: Any,
        going: Plan | None,
        asked: Sequence[Storage],
        given: Sequence[Storage],
        sample: Sequence[Storage] | None,
        count: int,
    ) -> Loop | None:
        """The table that is kept under a key, or made of a sample; None where there is none."""
        if key not in self._tables:
            if sample is None:
                return None
            with turn:
                try:
                    made = Loop(going, self, asked, given, sample[:count], sample[count:])
                except Unbound:
                    made = None
                if len(self._tables) >= 64:
                    self._tables.clear()
                self._tables[key] = made, going
                if made is not None and self.origin is not None and going is not None and made.sized:
                    many = going.origin
                    if len(self.origin.sizes) >= 64:
                        self.origin.sizes.clear()
                    self.origin.sizes[sizes.key_of(many, (*asked, *given))] = made, many
        found: Loop | None = self._tables[key][0]
        return found

    @cached_property
    def _asks(self) -> bool:
        """Whether functions of the user are called: no table calls them, and what runs to see what it is must not be seen."""
        return any(e.asks for e in self.jaxpr.eqns)

    def registers_of(self, storages: Sequence[Storage]) -> list[Storage]:
        """All registers after a run."""
        registers = self.registers(storages)
        for number in range(len(self.steps)):
            self.step(number, registers)
        return registers

    def _memory(self, number: int, registers: list[Storage], spare: donation.Spare) -> Into | None:
        """What gives donated memory for the result of a kernel; None where there is none."""
        step = self.steps[number]
        assert isinstance(step, KernelRunner)
        reads, out = self.reads[number], step.output
        size = math.prod(out.shape)
        if not step.bindable or not spare.fits(size, out.dtype):
            return None

        def memory(over: Sequence[int]) -> tuple[NDArray[Any], bool] | None:
            own = [reads[k] for k in over if reads.count(reads[k]) == 1]
            found = spare.take(number, size, out.dtype, own, registers)
            if found is None:
                return None
            registers[found[0]] = sequence.FREED
            return found[1], found[0] not in reads

        return memory

    def run(self, storages: Sequence[Storage], donated: Mapping[int, Storage] | None = None) -> list[Storage]:
        """The results; the memory of `donated` operands, by number, may be used for them."""
        if donated:
            return self._run_donated(storages, donated)
        if self._programs is not None:
            results = self._programs.run(self, storages)
            if results is not None:
                return results
        return self._in_steps(storages)

    def _in_steps(self, storages: Sequence[Storage]) -> list[Storage]:
        found = self._line.call(storages)
        if found is None:
            return self._written(storages).run(storages)
        return list(found) if type(found) is tuple else [found]

    def outcome(self, storages: Sequence[Storage], donated: Mapping[int, Storage] | None = None) -> list[Storage]:
        """As `run`; results are copied where they would share memory that the caller may change after the call."""
        if donated or self._programs is None:
            results = self.run(storages, donated)
        else:
            owned = self._programs.run(self, storages)
            if owned is not None:
                return owned
            results = self._in_steps(storages)
        return results if self.fresh else library_call.all_owned(results, storages)

    def _run_donated(self, storages: Sequence[Storage], donated: Mapping[int, Storage]) -> list[Storage]:
        if self.checks.later:  # what is checked later may have been overwritten by then
            return self._written(storages).run(storages, donated)
        registers = self.registers(storages)
        last = {k: number for number, reads in enumerate(self.reads) for k in reads}
        spare = donation.Spare({k: s for k, s in donated.items() if k not in self.results}, last)
        for number, dead in enumerate(self.dead):
            if number in self.checks.before and not self.checks.hold(number, registers):
                return self._written(storages).run(storages, donated)
            self.step(number, registers, spare=spare)
            for k in dead:
                registers[k] = sequence.FREED
        return [registers[k] for k in self.results]


def _written(step: Step) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """The dtype and the shape of the result of a step that writes into memory of ours."""
    if isinstance(step, KernelRunner):
        return (step.output.dtype, step.output.shape) if step.output.format.full else None
    return library_call.writes(step.eqn)


def made_once(function: Callable[..., list[Plan]], *args: Any) -> Callable[[], list[Plan]]:
    """`function` of arguments, called when it is first needed."""
    return functools.cache(functools.partial(function, *args))


def _all_resized(given: Callable[[], list[Plan]], change: Callable[[Any], Any]) -> list[Plan]:
    return [plan.resized(change) for plan in given()]
