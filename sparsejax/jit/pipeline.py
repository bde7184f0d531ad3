"""The compiler, top to bottom.

    clean         dead code and common subexpressions                     once per jaxpr
    fuse          kernels and library calls                               once per jaxpr
    fills         sums over operands with a fill taken apart              "
    intermediates storage of values between kernels                      "
    rows          kernels merged across reductions                        "
    autoschedule  loop order and conversions, from observed facts         once per kernel and bucket of facts
    concretize    loops, workspaces, vector marks                         "
    parallelize   the mark of an outermost loop that is cut into chunks   "
    lower         LLVM text through the builder                           "
    compile       machine code                                            once per text
    bind, call    slots, allocation, one call                             every time

`execute` runs a jaxpr; `as_text` shows what each stage made of it.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import config
from sparsejax.core.array import Array, delete, made
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Literal, Var
from sparsejax.errors import FormatError, ScheduleError
from sparsejax.formats import Format, copies
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen import lower
from sparsejax.jit.codegen.constants import Numbers
from sparsejax.jit.cost import collisions, skew, statistics
from sparsejax.jit.graph import (
    expected,
    fuse,
    fuse_reductions,
    guards,
    intermediate_storage,
    pattern_sources,
    reassociate,
    shared_patterns,
    split_fills,
)
from sparsejax.jit.ir import blocks
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.rewrite import concretize, legalize, parallelize
from sparsejax.jit.runtime import binding, chunked, donation, library_call, plan_cache, sequence
from sparsejax.jit.runtime.bound_loop import Bound
from sparsejax.jit.schedule import replan, row_blocking, schedules, scorch, search, statements
from sparsejax.lax.rounds import Body

Observed = tuple[tuple[Any, ...], ...]
"""Positions per level of every input; the couplings of all joins of the kernel, if it has any; its points and collisions, if these can
be known."""

Into = Callable[[Sequence[int]], tuple[NDArray[Any], bool] | None]
"""Memory for the result of a kernel, and whether it may be cleared, given the inputs, by position, that the result may overwrite."""

SCHEDULERS = {"cost": search.choose, "algorithm1": scorch.choose}


_turn = threading.RLock()
"""Held while something is planned, so that threads do not plan the same thing at the same time; and while the process forks, so
that a child does not wait for a thread that it does not have."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_turn.acquire, after_in_parent=_turn.release, after_in_child=_turn.release)


@dataclass(frozen=True)
class Planned:
    """A scheduled and compiled kernel."""

    binding: binding.Binding
    moves: tuple[tuple[int, Format], ...]
    """Inputs, by position, that are converted first, with their formats."""
    observed: Observed = ()
    account: replan.Account | None = None
    """Of a plan with remembered copies, where there is one."""
    over: tuple[int, ...] = ()
    """Inputs, by position, that the result may overwrite (`donation`)."""


@dataclass
class KernelRunner:
    """A kernel step with its plans, one per scheduler and bucket of observed facts."""

    step: fuse.KernelStep
    shared: bool = False
    """Whether numbers are read at run time, so that the kernel serves other numbers too."""
    plans: dict[Any, Planned] = field(default_factory=dict)
    positional: bool = True
    """Whether kernels by position may run in its place."""

    def __post_init__(self) -> None:
        self.nest = blocks.adapted(self.step.nest)
        """What the kernel computes: with other formats where blocks do not fit together."""
        self.plain = blocks.split(self.nest)
        """The same without blocks: what is scheduled."""
        nest = self.nest
        self.exact = self.step.output.aval.format == nest.output.format
        self.bytes = math.prod(nest.output.shape) * nest.output.dtype.itemsize
        mixed = nest.output.format.is_dense and any(not t.format.is_dense for t in nest.inputs)
        self.large = mixed and self.bytes > config.GIBIBYTE
        self.joins = self._joins()
        self.meeting = collisions.plan(self.step.nest)
        joined = {k for a, _, b, _ in self.joins.values() for k in (a, b)}
        if self.meeting is not None:
            met = {a.tensor.name for a in self.meeting.accesses}
            joined |= {k for k, t in enumerate(self.step.nest.inputs) if t.name in met}
        sparse = (k for k, t in enumerate(self.step.nest.inputs) if k in joined or not t.format.is_dense)
        self._watched = [(k, "mark" if k in joined else "positions") for k in sparse]
        """Where storages of these inputs keep what the plan depends on."""
        self._last: tuple[object, list[tuple[int, str, object]], Planned | None] = None, [], None
        """Settings at the last call; where in the cache of which input was what else it depended on; and its plan."""
        own = weakref.ref(self)  # what refers to itself would be freed late
        self._plainly: Callable[[Sequence[Storage]], Storage] = lambda inputs: own().run(inputs)  # type: ignore[union-attr]
        self.call: Callable[[Sequence[Storage]], Storage] = self._plainly
        """`run` on inputs alone: on the shortest road where the kernel is all there is to do, as long as the last plan serves."""
        found = shared_patterns.patterns(self.step) if self.positional else None
        self.variants = None if found is None else shared_patterns.Variants(self.step, found, self._positional)
        self.beside = shared_patterns.beside(self.step.nest)

    def run(self, inputs: Sequence[Storage], into: Into | None = None, origins: Sequence[Storage] = ()) -> Storage:
        """The result for these inputs; `into` gives memory for a dense one. `origins` are the arrays that inputs hold the values of,
        where they are by position."""
        if self.large:
            self._check_size(inputs)
        planned = None if into is None else self._current(inputs)
        memory = None if into is None or planned is None else into(planned.over)
        if self.variants is not None and memory is None:
            variant = self.variants.of(inputs)
            if variant is not None:
                return variant[1].run_by_position(variant[0], inputs)
        if planned is None:
            planned = self._current(inputs)
        if planned.moves:
            inputs = self._moved(planned, inputs, origins)
        if memory is not None:
            return planned.binding.run_into(inputs, *memory)
        result = planned.binding.run(inputs)
        if planned.account is not None:
            planned.account.made(result)
        return result if self.exact else legalize.finished(result, self.step.output.aval)

    def _current(self, inputs: Sequence[Storage]) -> Planned:
        """The plan for these inputs."""
        settings, kept, planned = self._last
        for k, name, value in kept:
            if inputs[k].cache.get(name) != value:
                settings = None
                break
        if settings != config.planning():
            planned = self.plan(self.observe(inputs))
            kept = [(k, name, inputs[k].cache[name]) for k, name in self._watched]
            self._last = settings, kept, planned = config.planning(), kept, planned
            self.call, bound = self._plainly, planned.binding
            alone = not planned.moves and planned.account is None
            if alone and self.exact and not self.large and self.variants is None:
                self.call = bound.quick(kept, settings, self._plainly)
        assert planned is not None
        if planned.account is not None and planned.account.pays(inputs):
            return self.plan(planned.observed, planned.account.later.order)
        return planned

    def actual(self, inputs: Sequence[Storage]) -> tuple[KernelRunner, list[Storage]]:
        """What runs on these inputs: this kernel, or one by position, and on what."""
        variant = None if self.variants is None else self.variants.of(inputs)
        return (self, list(inputs)) if variant is None else (variant[1], variant[0].inputs(inputs))

    def _positional(self, made: shared_patterns.Positional, inputs: Sequence[Storage]) -> KernelRunner | None:
        """The runner of a kernel by position; None where no loop order can run it."""
        runner = KernelRunner(made.step, self.shared, positional=False)
        try:
            runner.plan(runner.observe(made.inputs(inputs)))
        except ScheduleError:
            return None
        return runner

    def run_by_position(self, made: shared_patterns.Positional, inputs: Sequence[Storage]) -> Storage:
        """The result for the operands of the kernel that this one is made of."""
        given, origins = made.inputs(inputs), made.origins(inputs)
        if made.like is None:
            return self.run(given, origins=origins)
        planned, like = self._current(given), inputs[made.like]
        if planned.moves:
            given = self._moved(planned, given, origins)
        result = like.with_values(planned.binding.run_over(given, like), made.fill_value)
        if planned.account is not None:
            planned.account.made(result)
        return result

    def _moved(self, planned: Planned, inputs: Sequence[Storage], origins: Sequence[Storage] = ()) -> list[Storage]:
        """The inputs in the formats that the kernel reads."""
        made = list(inputs)
        for position, form in planned.moves:
            for number, head in self.beside:
                if head == position:
                    made[number] = shared_patterns.values_of(copies.converted(origins[number], form))
            made[position] = copies.converted(inputs[position], form)
        return made

    @property
    def bindable(self) -> bool:
        """Whether it can be bound to buffers once: its result is dense."""
        return self.exact and self.nest.output.format.is_dense and not self.large

    def bind(
        self, bound: Bound, inputs: list[Storage], fixed: Sequence[bool], vals: NDArray[Any] | None
    ) -> Storage | None:
        """Bind the kernel; where its result is: in `vals`, if given. None where an input that changes (is not `fixed`) must be converted
        before every run."""
        planned = self.plan(self.observe(inputs))
        if not all(fixed[position] for position, _ in planned.moves):
            return None
        inputs = self._moved(planned, inputs)
        return bound.add(planned.binding, inputs, vals)

    def observe(self, inputs: Sequence[Storage]) -> Observed:
        """The facts that a plan depends on, rounded."""
        for position, name in self._watched:
            if name == "mark":
                skew.mark(inputs[position])
        return self._observed(inputs, exact=False)

    def observe_exactly(self, inputs: Sequence[Storage]) -> Observed:
        """The same, not rounded: for reports and forecasts."""
        return self._observed(inputs, exact=True)

    def _observed(self, inputs: Sequence[Storage], exact: bool) -> Observed:
        found: list[tuple[Any, ...]] = list(map(statistics.exact_positions if exact else statistics.positions, inputs))
        pairs = [skew.coupling(inputs[a], d, inputs[b], e) for a, d, b, e in self.joins.values()]
        if pairs:
            found.append(tuple(pairs if exact else map(statistics.rounded, pairs)))
        if self.meeting is not None:
            named = {t.name: s for t, s in zip(self.step.nest.inputs, inputs, strict=True)}
            found.append(statistics.product(self.meeting, named, dict(zip(self.joins, pairs, strict=True)), exact))
        return tuple(found)

    def _joins(self) -> dict[tuple[str, int, str, int], tuple[int, int, int, int]]:
        """Where inputs meet, by name; and by their numbers. Tensors in blocks are taken to have even degrees."""
        given = self.step.nest.inputs
        numbers = {t.name: k for k, t in enumerate(given)}
        ranks = {t.name: len(t.shape) for t in given}
        split = {t.name for t in self.plain.inputs if len(t.shape) != ranks[t.name]}
        found = {j.key for j in statistics.meetings(self.plain, split)}
        return {(a, d, b, e): (numbers[a], d, numbers[b], e) for a, d, b, e in sorted(found)}

    def _check_size(self, inputs: Sequence[Storage]) -> None:
        given = sum(a.nbytes for s in inputs for a in (s.vals, *itertools.chain(*s.buffers)))
        limit = config.dense_limit()
        if limit and self.bytes > limit * given:
            raise FormatError(
                f"a dense result of shape {self.step.nest.output.shape} would take {self.bytes} bytes, more than {limit} times its "
                "operands; ask for a sparse one with einsum(..., out_format=...), choose operands whose fills make it sparse, or "
                'raise the limit with sparsejax.config.update("dense_limit", ...)'
            )

    def plan(self, observed: Observed, order: replan.Order = ()) -> Planned:
        key = (*config.planning(), order, observed)
        with _turn:
            known = self.plans.get(key)
            if known is None:
                known = self.plans[key] = self._planned(observed, order)
        return known

    def _planned(self, observed: Observed, order: replan.Order) -> Planned:
        key = plan_cache.key(self.step.nest, self.shared, config.planning(), observed, order)
        constants = Numbers() if self.shared else None
        recipe = plan_cache.load(key)
        if recipe is None:
            recipe = self._recipe(observed, constants, order)
            if not constants:
                plan_cache.store(key, recipe)
        compiled, output = compiler.compile_text(recipe.text), self.nest.output
        kernel = compiled if recipe.cut is None else chunked.Chunked(compiled, output, recipe.cut)
        area = None if constants is None else constants.area()
        bound = binding.Binding(kernel, output, self.nest.op, recipe.expected, area, recipe.shared, recipe.whole)
        account = None if recipe.later is None else replan.Account(recipe.later)
        return Planned(bound, recipe.moves, observed, account, recipe.over)

    def _recipe(self, observed: Observed, constants: Numbers | None, order: replan.Order = ()) -> plan_cache.Recipe:
        """The kernel scheduled and lowered; the numbers that it reads when it runs are added to `constants`."""
        schedule, program = self.schedule(observed, order)
        text = lower.lower(program, LLVMBuilder(), constants)
        pairs = enumerate(zip(self.step.nest.inputs, program.inputs, strict=True))
        moves = tuple((k, read.stored) for k, (given, read) in pairs if read.stored != given.format)
        expected = search.output_sizes(self.plain, self.known(observed))
        cut = chunked.Cut.of(program, self.shared) if program.chunking.count else None
        later = replan.later(schedule, self.step.nest, self.plain, self.known(observed))
        over = donation.overwritable(program)
        return plan_cache.Recipe(text, moves, expected, cut, program.shared, program.whole, later, over)

    def known(self, observed: Observed) -> statistics.Facts:
        """What is known of the tensors that the scheduler sees: in the formats of `nest`, and split."""
        given = self.step.nest
        count = len(given.inputs)
        couplings = dict(zip(self.joins, observed[count], strict=True)) if self.joins else {}
        found = expected.split(given, self.nest, observed[:count])
        return statistics.Facts(found, couplings, *(observed[-1] if self.meeting else ()))

    def schedule(self, observed: Observed, order: replan.Order = ()) -> tuple[schedules.Schedule, lower.Program]:
        """The loop order, and the program with operands in the formats that it wants, marked where it runs in chunks."""
        nest, known = self.plain, self.known(observed)
        if order:
            schedule: schedules.Schedule | None = replan.schedule(nest, known, order, config.workspace())
        elif nest.nested:
            schedule = statements.choose(nest, known)
        else:
            schedule = SCHEDULERS[config.scheduler()](nest, known, config.workspace())
        if schedule is None:
            raise ScheduleError(f"no loop order can run {nest.value} as one kernel")
        moved = dict(schedule.conversions)
        lengths, taken = statistics.lengths(nest.inputs, known, moved), statistics.blocks(nest.inputs, known, moved)
        program = program_of(self.nest, schedule).settled()
        now = row_blocking.levels(nest.inputs, program.inputs)
        program = replace(
            program, lengths={now[x]: n for x, n in lengths.items()}, blocks={now[x]: n for x, n in taken.items()}
        )
        return schedule, parallelize.parallelize(program, schedule.cost, lambda: search.level_counts(nest, known)[-1])


def program_of(nest: Nest, schedule: schedules.Schedule) -> lower.Program:
    """The program of `nest` under a schedule of what it splits into; its inputs have the formats that the kernel reads."""
    reading = blocks.with_formats(nest, dict(schedule.conversions))
    reading = legalize.readable(reading, schedule)
    made, schedule = row_blocking.cut(blocks.split(reading), schedule)
    return concretize.concretize(made, schedule.order, schedule.workspace, schedule.places, schedule.scattered)


class Plan(Body):
    """The steps of a jaxpr, over numbered registers: constants and inputs first, then literals that are read, then results.

    `storages` are those of a first call: what they hold decides which kernels are merged (`rows`)."""

    def __init__(
        self, closed: ClosedJaxpr, storages: Sequence[Storage] = (), refused: frozenset[Var] | None = frozenset()
    ) -> None:
        """Products that are `refused` are associated as the program says, or all of them (None)."""
        self.jaxpr, self.shared = pattern_sources.clean(closed.jaxpr), closed.shared
        self._other: Plan | None = None
        self.out_avals = [a.aval.strong() for a in self.jaxpr.outputs]
        notes: list[reassociate.Chosen] = []
        steps = closed.cache.get("steps") or self._steps(storages, refused, notes)
        self.steps = [KernelRunner(s, closed.shared) if isinstance(s, fuse.KernelStep) else s for s in steps]
        self._numbers: dict[Var, int] = {}
        for var in (*self.jaxpr.consts, *self.jaxpr.inputs):
            self._numbers[var] = len(self._numbers)
        self._literals: list[Storage] = []
        first = len(self._numbers) + sum(isinstance(a, Literal) for atoms in self._atoms() for a in atoms)
        self.made: list[range] = []
        """The registers that every step makes."""
        for step in self.steps:
            outputs = _outputs(step)
            self._numbers.update(zip(outputs, itertools.count(first)))
            self.made.append(range(first, first + len(outputs)))
            first += len(outputs)
        lost = {n.output for n in notes if any(c.var not in self._numbers for c in n.checks)}
        if refused is not None and lost:
            self.__init__(closed, storages, refused | lost)  # type: ignore[misc]
            return
        self.checks = guards.placed([c for n in notes for c in n.checks], self._numbers, self.made)
        """Where a value is not as it must be before some step, the program runs as it is written."""
        *self._reads, self.results = [[self._number(a) for a in atoms] for atoms in self._atoms()]
        last = {k: number for number, reads in enumerate(self._reads) for k in reads}
        made = {k for registers in self.made for k in registers} - set(self.results)
        self._dead = [
            [k for k in dict.fromkeys(reads) if k in made and last[k] == n] for n, reads in enumerate(self._reads)
        ]
        """The registers that no step reads any more after each step."""
        kernels = {
            k for s, made in zip(self.steps, self.made, strict=True) if isinstance(s, KernelRunner) for k in made
        }
        self.fresh = kernels.issuperset(self.results) and not self.checks.before
        """Whether results share no memory with operands: kernels make them."""
        calls = [self._call(number) for number in range(len(self.steps))]
        self._line = sequence.Line(calls, self._reads, self._dead, self.results, self.checks)
        count = len(self.jaxpr.consts) + len(self.jaxpr.inputs)
        single = len(calls) == 1 and not self.checks.before and not self._literals and self.results == [count]
        self.alone = calls[0] if single and self._reads[0] == list(range(count)) and self.fresh else None
        """The kernel that is all there is to do, if it reads the operands as they come."""

    def _call(self, number: int) -> sequence.Step:
        step = self.steps[number]
        if isinstance(step, KernelRunner):
            return step
        if step.eqn.bodies or step.eqn.primitive.multiple:
            return library_call.Bodies(step, lambda: [plan_of(b) for b in step.eqn.bodies])
        return library_call.NumPyCall.of(step) or library_call.LibraryCall(step)

    def _steps(
        self, storages: Sequence[Storage], refused: frozenset[Var] | None, notes: list[reassociate.Chosen]
    ) -> list[fuse.Step]:
        """The steps; `notes` get what was decided of products."""
        given = zip((*self.jaxpr.consts, *self.jaxpr.inputs), storages, strict=False)
        observed = dict(given)
        jaxpr, found = (self.jaxpr, []) if refused is None else reassociate.cheapest(self.jaxpr, observed, refused)
        steps = split_fills.apart(fuse.fuse(jaxpr), jaxpr, observed)
        if len(steps) > 1:
            steps = fuse_reductions.merged(intermediate_storage.stored(steps, jaxpr, observed), jaxpr, observed)
        for note in found:
            steps = note.noted(steps)
        notes += found
        return steps

    def _written(self, storages: Sequence[Storage]) -> Plan:
        """The plan of the program as it is written."""
        with _turn:
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
        self._literals.append(Storage(Format(()), (), atom.aval.dtype.type(0), (), value))
        return len(self.jaxpr.consts) + len(self.jaxpr.inputs) + len(self._literals) - 1

    def registers(self, storages: Sequence[Storage]) -> list[Storage]:
        """The registers before the first step."""
        return [*storages, *self._literals]

    def bodies(self, number: int) -> list[Plan]:
        """The plans of the jaxprs that a step runs."""
        step = self.steps[number]
        return [] if isinstance(step, KernelRunner) else [plan_of(b) for b in step.eqn.bodies]

    def step(
        self,
        number: int,
        registers: list[Storage],
        bodies: Sequence[Any] | None = None,
        spare: donation.Spare | None = None,
    ) -> list[Storage]:
        """Run one step, whose results become the next registers; what it read. `bodies` run in place of its own."""
        step, inputs = self.steps[number], [registers[k] for k in self._reads[number]]
        if isinstance(step, KernelRunner):
            registers.append(step.run(inputs, None if spare is None else self._memory(number, registers, spare)))
        else:
            registers.extend(step.call(inputs, self.bodies(number) if bodies is None else bodies))
        return inputs

    def forwarded(self) -> list[int | None]:
        """For every result, the operand that it is, if it is one."""
        count = len(self.jaxpr.inputs) + len(self.jaxpr.consts)
        return [k if k < count else None for k in self.results]

    def bound(
        self, storages: Sequence[Storage], fixed: Sequence[bool], outputs: Sequence[NDArray[Any] | None]
    ) -> Bound | None:
        """The plan bound to operands, of which those that are not `fixed` are dense buffers whose values change, and to memory for
        results, where given. None where it cannot be."""
        if self.checks.before:
            return self._written(storages).bound(storages, fixed, outputs)
        if not all(isinstance(s, KernelRunner) and s.bindable for s in self.steps):
            return None
        registers, made = self.registers(storages), Bound()
        stays = [*fixed, *(True for _ in self._literals)]
        wanted = {k: vals for k, vals in zip(self.results, outputs, strict=True) if vals is not None}
        first = len(registers)
        for step, reads in zip(self.steps, self._reads, strict=True):
            assert isinstance(step, KernelRunner)
            own, flags = [registers[k] for k in reads], [stays[k] for k in reads]
            register = step.bind(made, own, flags, wanted.get(len(registers)))
            if register is None:
                return None
            registers.append(register)
            stays.append(False)
        for k, vals in zip(self.results, outputs, strict=True):
            if vals is not None and (k < first or vals is not wanted[k]):
                made.copy(vals, registers[k])
        made.results = [registers[k] for k in self.results]
        return made

    def _memory(self, number: int, registers: list[Storage], spare: donation.Spare) -> Into | None:
        """What gives donated memory for the result of a kernel; None where there is none."""
        step = self.steps[number]
        assert isinstance(step, KernelRunner)
        reads, out = self._reads[number], step.nest.output
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
        found = self._line.run(self.registers(storages))
        return self._written(storages).run(storages) if found is None else list(found)

    def outcome(self, storages: Sequence[Storage], donated: Mapping[int, Storage] | None = None) -> list[Storage]:
        """As `run`; results are copied where they would share memory that the caller may change after the call."""
        results = self.run(storages, donated)
        if self.fresh:
            return results
        borrowed = [s for s in storages if "transient" in s.cache]
        return [library_call.owned(s, borrowed) for s in results] if borrowed else results

    def call(self, storages: Sequence[Storage]) -> Storage:
        """The first result, as `outcome`."""
        found = self._line.run([*storages, *self._literals]) if self.fresh else None
        return self.outcome(storages)[0] if found is None else found[0]

    def _run_donated(self, storages: Sequence[Storage], donated: Mapping[int, Storage]) -> list[Storage]:
        if self.checks.later:  # what is checked later may have been overwritten by then
            return self._written(storages).run(storages, donated)
        registers = self.registers(storages)
        last = {k: number for number, reads in enumerate(self._reads) for k in reads}
        spare = donation.Spare({k: s for k, s in donated.items() if k not in self.results}, last)
        for number, dead in enumerate(self._dead):
            if number in self.checks.before and not self.checks.hold(number, registers):
                return self._written(storages).run(storages, donated)
            self.step(number, registers, spare=spare)
            for k in dead:
                registers[k] = sequence.FREED
        return [registers[k] for k in self.results]


def _outputs(step: KernelRunner | fuse.CallStep) -> tuple[Var, ...]:
    return step.step.outputs if isinstance(step, KernelRunner) else step.outputs


def plan_of(closed: ClosedJaxpr, storages: Sequence[Storage] = ()) -> Plan:
    """The plan of a jaxpr, made once."""
    known: Plan | None = closed.cache.get("plan")
    if known is not None:
        return known
    with _turn:
        known = closed.cache.get("plan")
        if known is None:
            known = closed.cache["plan"] = Plan(closed, storages)
    return known


def execute(closed: ClosedJaxpr, arrays: Sequence[Array], donated: Collection[int] = ()) -> list[Array]:
    """Run `closed` on its inputs (constants are its own). Those that are `donated`, by number, are deleted."""
    spare = {k for k in donated if donation.is_sole(arrays[k])} if donated else ()
    storages = [a._storage for a in ((*closed.consts, *arrays) if closed.consts else arrays)]
    plan: Plan = closed.cache.get("plan") or plan_of(closed, storages)
    for k in donated:
        delete(arrays[k])
    first = len(closed.consts)
    results = plan.outcome(storages, {first + k: storages[first + k] for k in spare} if spare else None)
    return list(map(made, results, plan.out_avals))
