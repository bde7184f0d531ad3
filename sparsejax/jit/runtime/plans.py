"""Plans that run: the steps of a jaxpr over numbered registers."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import config
from sparsejax.cached import cached_property, copied
from sparsejax.core.array import Array, delete, made
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Eqn, Literal, Var
from sparsejax.core.primitive import Primitive
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit import pipeline
from sparsejax.jit.cost import statistics
from sparsejax.jit.graph import (
    guards,
    partition,
    reassociate,
    resize,
    static_constants,
)
from sparsejax.jit.runtime import donation, library_call, sequence, unkept
from sparsejax.jit.runtime.direct import Direct
from sparsejax.jit.runtime.kernels import Into, KernelRunner, turn
from sparsejax.jit.runtime.system import threads
from sparsejax.jit.runtime.whole import program as programs
from sparsejax.jit.runtime.whole.loop import Loop
from sparsejax.jit.runtime.whole.registers import Unbound
from sparsejax.lax.rounds import Body, Rounds


class Seen(Mapping[Var, Storage]):
    """What the operands of a first call hold, and whether somebody has looked."""

    def __init__(self, known: Mapping[Var, Storage]) -> None:
        self._known, self.seen = known, False

    def __getitem__(self, var: Var) -> Storage:
        self.seen = True
        return self._known[var]

    def __iter__(self) -> Iterator[Var]:
        self.seen = True
        return iter(self._known)

    def __len__(self) -> int:
        self.seen = True
        return len(self._known)


class Plan(Body):
    """The steps of a jaxpr, over numbered registers: constants and inputs first, then literals that are read, then results.

    `storages` are those of a first call: what they hold decides which kernels are merged (`fuse_reductions`)."""

    def __init__(
        self,
        closed: ClosedJaxpr,
        storages: Sequence[Storage] = (),
        refused: frozenset[Var] | None = frozenset(),
        constants: Mapping[int, Storage] | None = None,
    ) -> None:
        """Products that are `refused` are associated as the program says, or all of them (None). `constants` are inputs, by number, that never
        change."""
        self.jaxpr = closed.jaxpr if "clean" in closed.cache else pipeline.cleaned(closed.jaxpr)
        self.shared = closed.shared
        self._other: Plan | None = None
        self.out_avals = [a.aval.strong() for a in self.jaxpr.outputs]
        notes: list[reassociate.Chosen] = []
        self._constants = {} if closed.shared else dict(zip(self.jaxpr.consts, [c._storage for c in closed.consts]))
        self._constants |= {self.jaxpr.inputs[k]: s for k, s in (constants or {}).items()}
        self.by_facts = False
        """Whether what operands held in the first call decided what steps there are."""
        steps = closed.cache.get("steps") or self._steps(storages, refused, notes)
        computed: set[Var] = set()
        for s in steps:
            computed.update(partition.made_anew(s, computed))
        anew = frozenset(computed)
        self.steps = [
            KernelRunner(s, closed.shared, made=anew) if isinstance(s, partition.KernelStep) else s for s in steps
        ]
        self.count = len(self.steps)
        self.operands = len(self.jaxpr.consts) + len(self.jaxpr.inputs)
        self._numbers: dict[Var, int] = {}
        for var in (*self.jaxpr.consts, *self.jaxpr.inputs):
            self._numbers[var] = len(self._numbers)
        self.literals: list[Storage] = []
        first = len(self._numbers) + sum(isinstance(a, Literal) for atoms in self._atoms() for a in atoms)
        self._tables: dict[Any, Any] = {}
        """Loops of which it is the body."""
        self.made: list[range] = []
        """The registers that every step makes."""
        for step in self.steps:
            outputs = _outputs(step)
            self._numbers.update(zip(outputs, itertools.count(first)))
            self.made.append(range(first, first + len(outputs)))
            first += len(outputs)
        lost = {n.output for n in notes if any(c.var not in self._numbers for c in n.checks)}
        if refused is not None and lost:
            self.__init__(closed, storages, refused | lost, constants)  # type: ignore[misc]
            return
        checks = [c for n in notes for c in n.checks]
        self.checks = guards.placed(checks, self._numbers, self.made) if checks else guards.NOTHING
        """Where a value is not as it must be before some step, the program runs as it is written."""
        *self.reads, self.results = [[self._number(a) for a in atoms] for atoms in self._atoms()]
        last = {k: number for number, reads in enumerate(self.reads) for k in reads}
        made = {k for registers in self.made for k in registers} - set(self.results)
        self.dead = [
            [k for k in dict.fromkeys(reads) if k in made and last[k] == n] for n, reads in enumerate(self.reads)
        ]
        """The registers that no step reads any more after each step."""
        fresh: set[int] = set()
        for step, reads, registers in zip(self.steps, self.reads, self.made, strict=True):
            if isinstance(step, KernelRunner) or (reads and fresh.issuperset(reads)):
                fresh.update(registers)
        self.fresh = fresh.issuperset(self.results) and not self.checks.before
        """Whether results share no memory with operands: kernels make them, or library calls of what kernels made."""
        calls = ((k, s.eqn) for k, s in enumerate(self.steps) if isinstance(s, partition.CallStep))
        self._bodies = {
            k: _once(_plans_of, eqn, self._constants) for k, eqn in calls if eqn.primitive.bodies is not None
        }
        """What gives the plans of the jaxprs that steps run."""
        self._connect()

    def chosen(self, choose: str) -> None:
        """Plan its kernels with these alternatives, also for facts that are met later (`tuning`)."""
        for step in self.steps:
            if isinstance(step, KernelRunner):
                step.choose = choose
                if step.variants is not None:
                    step.variants.choosing = step._choosing

    def _connect(self) -> None:
        """Put the steps in a row."""
        calls = [self._call(number) for number in range(len(self.steps))]
        count = self.operands
        layout = sequence.Layout(
            count,
            len(self.literals),
            tuple(map(tuple, self.reads)),
            tuple(map(tuple, self.made)),
            tuple([not isinstance(s, KernelRunner) and library_call.is_several(s.eqn) for s in self.steps]),
            tuple(map(tuple, self.dead)),
            tuple(self.results),
            tuple([tuple(self.checks.before.get(number, ())) for number in range(len(self.steps))]),
        )
        self._line = sequence.Line(layout, calls, self.literals)
        single = len(calls) == 1 and not self.checks.before and self.results == [count + len(self.literals)]
        straight = single and not self.literals and self.reads[0] == list(range(count))
        self.alone = calls[0] if straight and self.fresh else None
        """The kernel that is all there is to do, if it reads the operands as they come."""
        self._programs = programs.Programs() if self._bodies and programs.has_loops(self) else None
        """What runs it as one table, where it has loops and that may be."""
        self._single = single and self.fresh and isinstance(calls[0], KernelRunner)
        self._sized: dict[Any, sequence.Line] = {}

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
        made._tables, made._sized = {}, {}
        made._programs = None if self._programs is None else programs.Programs()
        made.out_avals = [a.resized(change) for a in self.out_avals]
        made.steps = [
            s.resized(change)
            if isinstance(s, KernelRunner)
            else partition.CallStep(resize.resized_alone(s.eqn, change))
            for s in self.steps
        ]
        made._bodies = {k: _once(_all_resized, run, change) for k, run in self._bodies.items()}
        made._written = lambda storages: self._written(storages).resized(change)  # type: ignore[method-assign]
        calls = [made._call(number) for number in range(len(made.steps))]
        made._line = sequence.Line(self._line.layout, calls, self.literals)
        made.alone = calls[0] if self.alone is not None else None
        return made

    def once(self, storages: Sequence[Storage], change: resize.Change) -> list[Array]:
        """The results of `resized(change)`, of which nothing is kept: what a shape costs that may not come back."""
        results = self._once(storages, change)
        return [made(r, a if same else a.shaped(r.shape)) for r, a, same in zip(results, self.out_avals, self._ends)]

    @cached_property
    def _ends(self) -> list[bool]:
        """Whether the type of a result is the same in all calls."""
        return [not resize.changes(a.shape) for a in self.out_avals]

    def _once(self, storages: Sequence[Storage], change: resize.Change) -> list[Storage]:
        settings = config.planning()
        line = self._sized.get(settings)
        if line is None:
            line = self._sized[settings] = self._sized_line()
        found = line.call(storages, change)
        if found is None:
            return self._written(storages)._once(storages, change)
        results = list(found) if type(found) is tuple else [found]
        return results if self.fresh else library_call.all_owned(results, storages)

    @property
    def sizes_alone(self) -> bool:
        """Whether `alone_once` may serve."""
        runner = self.steps[0] if self._single else None
        return isinstance(runner, KernelRunner) and runner.exact

    def alone_once(self, storages: Sequence[Storage], shape: tuple[int, ...]) -> Array | None:
        """As `once`, of a plan that is one kernel, whose result has this shape, on the shortest road; None where that does not serve."""
        runner = self.steps[0]
        assert isinstance(runner, KernelRunner)
        if self.alone is None:  # not all operands are read, or numbers of the program are
            storages = self._line.layout.picks[0](self.registers(storages))
        found = runner.sized_once(storages, shape)
        return None if found is None else made(found, self.out_avals[0].shaped(shape))

    def direct(self, storages: Sequence[Storage]) -> Direct | None:
        """`alone_once` as one function for operands like these, where it has one."""
        runner = self.steps[0]
        assert isinstance(runner, KernelRunner)
        if self.alone is not None:
            return runner.direct(storages)
        taken, literals = self._line.layout.picks[0], self.literals
        found = runner.direct(taken([*storages, *literals]))
        return None if found is None else lambda operands, shape: found(taken([*operands, *literals]), shape)

    def _sized_line(self) -> sequence.Line:
        """What `once` runs, under the settings of `config` as they are."""
        steps, kernels, shapes = list[sequence.Step](), set[int](), list[tuple[int, ...]]()
        for number, step in enumerate(self.steps):
            if isinstance(step, KernelRunner):
                kernels.add(number)
                steps.append(unkept.Kernel(step))
                shapes.append(step.output.shape)
            elif library_call.is_several(step.eqn):
                steps.append(unkept.Several(functools.partial(self._called_once, number)))
                shapes.append(())
            else:
                kept = not step.eqn.inputs and not step.eqn.effect
                steps.append(unkept.Call(library_call.Sized(step.eqn), kept))
                shapes.append(step.eqn.outputs[0].aval.shape)
        layout = dataclasses.replace(self._line.layout, shapes=tuple(shapes), tried=frozenset(kernels))
        return sequence.Line(layout, steps, self.literals)

    def _called_once(self, number: int, inputs: Sequence[Storage], change: Callable[[Any], Any]) -> list[Storage]:
        """The results of a library call of `resized(change)` that has several, or runs other jaxprs."""
        step, run = self.steps[number], self._bodies.get(number)
        assert isinstance(step, partition.CallStep)
        bodies = list if run is None else _once(_all_resized, run, change)
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

    def _steps(
        self, storages: Sequence[Storage], refused: frozenset[Var] | None, notes: list[reassociate.Chosen]
    ) -> list[partition.Step]:
        """The steps; `notes` get what was decided of products."""
        given = zip((*self.jaxpr.consts, *self.jaxpr.inputs), storages, strict=False)
        observed = Seen(dict(given))
        steps, found = pipeline.steps_of(self.jaxpr, observed, refused, self._constants)
        notes += found
        self.by_facts = observed.seen
        return steps

    def _written(self, storages: Sequence[Storage]) -> Plan:
        """The plan of the program as it is written."""
        with turn:
            if self._other is None:
                self._other = Plan(ClosedJaxpr(self.jaxpr, (), self.shared), storages, None)
        return self._other

    def _atoms(self) -> list[Sequence[Atom]]:
        """What every step reads, and last what the jaxpr returns."""
        reads: list[Sequence[Atom]] = [
            s.step.arguments if isinstance(s, KernelRunner) else s.eqn.inputs for s in self.steps
        ]
        return [*reads, self.jaxpr.outputs]

    def _number(self, atom: Atom) -> int:
        if isinstance(atom, Var):
            return self._numbers[atom]
        value = np.asarray(atom.value, atom.aval.dtype).reshape(1)
        self.literals.append(Storage(Format(()), (), atom.aval.dtype.type(0), (), value))
        return len(self.jaxpr.consts) + len(self.jaxpr.inputs) + len(self.literals) - 1

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
        count = len(self.jaxpr.inputs) + len(self.jaxpr.consts)
        return [k if k < count else None for k in self.results]

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
        table, _ = self._tables[key]
        return None if table is None else table.run((*asked, *given), carry, rounds, unread)

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
        found = self._line.call(storages)
        if found is None:
            return self._written(storages).run(storages)
        return list(found) if type(found) is tuple else [found]

    def outcome(self, storages: Sequence[Storage], donated: Mapping[int, Storage] | None = None) -> list[Storage]:
        """As `run`; results are copied where they would share memory that the caller may change after the call."""
        results = self.run(storages, donated)
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


def _once(function: Callable[..., list[Plan]], *args: Any) -> Callable[[], list[Plan]]:
    """`function` of arguments, called when it is first needed."""
    return functools.cache(functools.partial(function, *args))


def _plans_of(eqn: Eqn, constants: Mapping[Var, Storage]) -> list[Plan]:
    """The plans of the jaxprs that an operation runs; those that read constants of few entries are its own (`static_constants`)."""
    kept = [()] * len(eqn.bodies) if eqn.primitive.kept is None else eqn.primitive.kept(**eqn.param_dict)
    made = []
    for body, numbers in zip(eqn.bodies, kept, strict=True):
        read = [(k, constants.get(v)) for k, v in enumerate(eqn.inputs[n] for n in numbers) if isinstance(v, Var)]
        few = {k: s for k, s in read if s is not None and static_constants.is_constant(s)}
        with turn:
            made.append(Plan(body, constants=few) if few and "planned" not in body.cache else plan_of(body))
    return made


def _all_resized(given: Callable[[], list[Plan]], change: Callable[[Any], Any]) -> list[Plan]:
    return [plan.resized(change) for plan in given()]


def _outputs(step: KernelRunner | partition.CallStep) -> tuple[Var, ...]:
    return (step.step.output,) if isinstance(step, KernelRunner) else step.outputs


def plan_of(closed: ClosedJaxpr, storages: Sequence[Storage] = ()) -> Plan:
    """The plan of a jaxpr, made once."""
    name = "plan" if not config.forcing or (forced := config.forced()) is None else ("plan", forced)
    known: Plan | None = closed.cache.get(name)
    if known is not None:
        return known
    with turn:
        known = closed.cache.get(name)
        if known is None:
            planned = closed.cache.get("planned")  # a jaxpr for one of many shapes (`shapes`)
            known = closed.cache[name] = Plan(closed, storages) if planned is None else planned(storages)
    return known


def directly(primitive: Primitive, arrays: Sequence[Array], aval: Aval, params: dict[str, Any]) -> Array:
    """The result of one library call, of this type, without a plan."""
    assert primitive.call is not None
    storages = [a._storage for a in arrays]
    (result,) = library_call.all_owned([primitive.call(*storages, out_aval=aval, **params)], storages)
    return made(result, aval.strong())


def execute(closed: ClosedJaxpr, arrays: Sequence[Array], donated: Collection[int] = ()) -> list[Array]:
    """Run `closed` on its inputs (constants are its own). Those that are `donated`, by number, are deleted."""
    spare = {k for k in donated if donation.is_sole(arrays[k])} if donated else ()
    storages = [a._storage for a in ((*closed.consts, *arrays) if closed.consts else arrays)]
    plan: Plan | None = None if config.forcing else closed.cache.get("plan")
    plan = plan or plan_of(closed, storages)
    for k in donated:
        delete(arrays[k])
    first = len(closed.consts)
    results = plan.outcome(storages, {first + k: storages[first + k] for k in spare} if spare else None)
    return list(map(made, results, plan.out_avals))
