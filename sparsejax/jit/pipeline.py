"""The compiler, top to bottom.

    clean         dead code and common subexpressions                     once per jaxpr
    fuse          kernels and library calls                               once per jaxpr
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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparsejax import config
from sparsejax.core.array import Array
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Literal, Var
from sparsejax.errors import FormatError, ScheduleError
from sparsejax.formats import Format, convert
from sparsejax.formats.storage import Storage
from sparsejax.jit import (
    adapt,
    algorithm1,
    autoschedule,
    binding,
    blocks,
    chunked,
    cin,
    concretize,
    facts,
    fuse,
    lower,
    parallel,
    runtime,
)
from sparsejax.jit.llvm import LLVMBuilder
from sparsejax.jit.nest import Nest
from sparsejax.jit.numbers import Numbers
from sparsejax.jit.pretty import PrettyBuilder
from sparsejax.transforms import staging

SCHEDULERS = {"cost": autoschedule.choose, "algorithm1": algorithm1.choose}
GIBIBYTE = 1 << 30


_turn = threading.RLock()
"""Held while something is planned, so that threads do not plan the same thing at the same time; and while the process forks, so
that a child does not wait for a thread that it does not have."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_turn.acquire, after_in_parent=_turn.release, after_in_child=_turn.release)


@dataclass(frozen=True)
class Planned:
    """A scheduled and compiled kernel."""

    schedule: autoschedule.Schedule
    program: lower.Program
    binding: binding.Binding
    moves: tuple[tuple[int, Format], ...]
    """Inputs, by position, that are converted first, with their formats."""


@dataclass
class KernelRunner:
    """A kernel step with its plans, one per scheduler and bucket of observed facts."""

    step: fuse.KernelStep
    shared: bool = False
    """Whether numbers are read at run time, so that the kernel serves other numbers too."""
    plans: dict[Any, Planned] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nest = blocks.adapted(self.step.nest)
        """What the kernel computes: with other formats where blocks do not fit together."""
        self.plain = blocks.split(self.nest)
        """The same without blocks: what is scheduled."""
        nest = self.nest
        self.exact = self.step.output.aval.format == nest.output.format
        self.bytes = math.prod(nest.output.shape) * nest.output.dtype.itemsize
        mixed = nest.output.format.is_dense and any(not t.format.is_dense for t in nest.inputs)
        self.large = mixed and self.bytes > GIBIBYTE

    def run(self, inputs: list[Storage]) -> Storage:
        if self.large:
            self._check_size(inputs)
        observed = tuple([s.cache.get("positions") or facts.positions(s) for s in inputs])
        planned = self.plans.get((*config.planning(), observed)) or self.plan(observed)
        if planned.moves:
            inputs = list(inputs)
            for position, form in planned.moves:
                inputs[position] = converted(inputs[position], form)
        made = planned.binding.run(inputs)
        return made if self.exact else adapt.finished(made, self.step.output.aval)

    def _check_size(self, inputs: list[Storage]) -> None:
        given = sum(a.nbytes for s in inputs for a in (s.vals, *itertools.chain(*s.buffers)))
        limit = config.dense_limit()
        if limit and self.bytes > limit * given:
            raise FormatError(
                f"a dense result of shape {self.step.nest.output.shape} would take {self.bytes} bytes, more than {limit} times its "
                "operands; ask for a sparse one with einsum(..., out_format=...), choose operands whose fills make it sparse, or "
                'raise the limit with sparsejax.config.update("dense_limit", ...)'
            )

    def plan(self, observed: tuple[tuple[float, ...], ...]) -> Planned:
        key = (*config.planning(), observed)
        with _turn:
            known = self.plans.get(key)
            if known is None:
                known = self.plans[key] = self._planned(observed)
        return known

    def _planned(self, observed: tuple[tuple[float, ...], ...]) -> Planned:
        schedule, program = self.schedule(observed)
        constants = Numbers() if self.shared else None
        nest = self.nest
        compiled = runtime.compile_text(lower.lower(program, LLVMBuilder(), constants))
        kernel = chunked.Chunked(compiled, nest.output, program) if program.chunking.count else compiled
        pairs = enumerate(zip(self.step.nest.inputs, program.inputs, strict=True))
        moves = tuple((k, read.stored) for k, (given, read) in pairs if read.stored != given.format)
        expected = autoschedule.output_sizes(self.plain, self.counts(observed))
        op = nest.producers[0].op if nest.direct else None
        bound = binding.Binding(kernel, nest.output, op, expected, None if constants is None else constants.area())
        return Planned(schedule, program, bound, moves)

    def counts(self, observed: Sequence[tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
        """Positions per level of the tensors that the scheduler sees: in the formats of `nest`, and split."""
        names = [t.name for t in self.step.nest.inputs]
        found = dict(zip(names, observed, strict=True))
        given = {a.tensor.name: a for a in cin.accesses(self.step.nest.composite)}
        parts = blocks.parts_of_nest(self.nest)
        for access in dict.fromkeys(cin.accesses(self.nest.composite)):
            name = access.tensor.name
            if access != given[name]:
                found[name] = facts.expected(access.tensor.format, access.tensor.shape, found[name][-1])
            found[name] = blocks.split_counts(access, parts, found[name])
        return found

    def schedule(self, observed: Sequence[tuple[float, ...]]) -> tuple[autoschedule.Schedule, lower.Program]:
        """The loop order, and the program with operands in the formats that it wants, marked where it runs in chunks."""
        nest = self.plain
        schedule = SCHEDULERS[config.scheduler()](nest, self.counts(observed), config.workspace())
        if schedule is None:
            raise ScheduleError(f"no loop order can run {nest.value} as one kernel")
        return schedule, parallel.parallelize(program_of(self.nest, schedule), schedule.cost)


def program_of(nest: Nest, schedule: autoschedule.Schedule) -> lower.Program:
    """The program of `nest` under a schedule of what it splits into; its inputs have the formats that the kernel reads."""
    reading = blocks.with_formats(nest, dict(schedule.conversions))
    reading = adapt.readable(reading, schedule.order, schedule.workspace)
    return concretize.concretize(blocks.split(reading), schedule.order, schedule.workspace)


def converted(storage: Storage, form: Format) -> Storage:
    """`storage` in the format a kernel wants; the copy is kept with the storage."""
    if storage.format == form:
        return storage
    copies = storage.cache.setdefault("converted", {})
    if form not in copies:
        copies[form] = convert.convert(storage, form)
    made: Storage = copies[form]
    return made


class Plan:
    """The steps of a jaxpr, over numbered registers: constants and inputs first, then literals that are read, then results."""

    def __init__(self, closed: ClosedJaxpr) -> None:
        self.jaxpr = staging.clean(closed.jaxpr)
        self.out_avals = [a.aval.strong() for a in self.jaxpr.outputs]
        self.steps = [
            KernelRunner(s, closed.shared) if isinstance(s, fuse.KernelStep) else s for s in fuse.fuse(self.jaxpr)
        ]
        self._numbers: dict[Var, int] = {}
        for var in (*self.jaxpr.consts, *self.jaxpr.inputs):
            self._numbers[var] = len(self._numbers)
        self._literals: list[Storage] = []
        first = len(self._numbers) + sum(isinstance(a, Literal) for atoms in self._atoms() for a in atoms)
        for k, step in enumerate(self.steps):
            self._numbers[_output(step)] = first + k
        *self._reads, self.results = [[self._number(a) for a in atoms] for atoms in self._atoms()]

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

    def step(self, number: int, registers: list[Storage]) -> list[Storage]:
        """Run one step, whose result becomes the next register; what it read."""
        step, inputs = self.steps[number], [registers[k] for k in self._reads[number]]
        if isinstance(step, KernelRunner):
            registers.append(step.run(inputs))
        else:
            eqn = step.eqn
            registers.append(eqn.primitive.call(*inputs, out_aval=step.output.aval, **eqn.param_dict))  # type: ignore[misc]
        return inputs

    def run(self, storages: Sequence[Storage]) -> list[Storage]:
        registers = self.registers(storages)
        for number in range(len(self.steps)):
            self.step(number, registers)
        return [registers[k] for k in self.results]


def _output(step: KernelRunner | fuse.CallStep) -> Var:
    return step.step.output if isinstance(step, KernelRunner) else step.output


def plan_of(closed: ClosedJaxpr) -> Plan:
    """The plan of a jaxpr, made once."""
    with _turn:
        known: Plan | None = closed.cache.get("plan")
        if known is None:
            known = closed.cache["plan"] = Plan(closed)
    return known


def execute(closed: ClosedJaxpr, arrays: Sequence[Array]) -> list[Array]:
    """Run `closed` on its inputs (constants are its own)."""
    plan: Plan = closed.cache.get("plan") or plan_of(closed)
    storages = [a._storage for a in (*closed.consts, *arrays)]
    made = plan.run(storages)
    borrowed = [s for s in storages if "transient" in s.cache]
    if borrowed:
        made = [_owned(s, borrowed) for s in made]
    return list(map(Array, made, plan.out_avals))


def _owned(made: Storage, borrowed: list[Storage]) -> Storage:
    """`made`, copied where it shares memory that the caller may change after the call."""
    if not any(np.may_share_memory(made.vals, s.vals) for s in borrowed):
        return made
    return Storage(made.format, made.shape, made.fill_value, made.buffers, made.vals.copy())


def as_text(closed: ClosedJaxpr, arrays: Sequence[Array], stage: str) -> str:
    """What a stage made of the jaxpr, for these arrays: "jaxpr", "plan", "cin", "loops", "llvm" or "asm"."""
    if stage == "jaxpr":
        return str(staging.clean(closed.jaxpr))
    if stage not in ("plan", "cin", "loops", "llvm", "asm"):
        raise ValueError(f"stage={stage!r} is not one of 'jaxpr', 'plan', 'cin', 'loops', 'llvm', 'asm'")
    plan = plan_of(closed)
    registers = plan.registers([a.storage for a in (*closed.consts, *arrays)])
    parts = []
    for number, step in enumerate(plan.steps):
        inputs = plan.step(number, registers)
        parts.append(_step_text(step, inputs, stage))
    return "\n".join(parts)


def _step_text(step: KernelRunner | fuse.CallStep, inputs: list[Storage], stage: str) -> str:
    if isinstance(step, fuse.CallStep):
        name = f"{step.eqn.primitive.name} -> {step.output.aval}"
        return f"library call: {name}" if stage in ("plan", "cin", "loops") else f"; library call: {name}"
    schedule, program = step.schedule([facts.positions(s) for s in inputs])
    if stage == "plan":
        return _plan_text(step, schedule, program)
    if stage == "cin":
        return "kernel" if program.stmt is None else cin.as_text(program.stmt)
    if stage == "loops":
        return lower.lower(program, PrettyBuilder())
    text = lower.lower(program, LLVMBuilder())
    return text if stage == "llvm" else runtime.assembly(text)


def _plan_text(step: KernelRunner, schedule: autoschedule.Schedule, program: lower.Program) -> str:
    nest = step.step.nest
    inputs = ", ".join(f"{t.name}:{t.dtype}{list(t.shape)} {t.format}" for t in nest.inputs)
    lines = [f"kernel out:{nest.output.dtype}{list(nest.output.shape)} {nest.output.format} from {inputs}"]
    lines += [f"  {p.target} reduces {p.op} of {p.rhs}" for p in nest.producers]
    lines.append(f"  out[{','.join(map(str, nest.indices))}] = {nest.value}")
    lines += [
        f"  loop order {','.join(map(str, c.order))}: estimated cost {c.cost.total:.4g}" for c in schedule.candidates
    ]
    pairs = zip(nest.inputs, program.inputs, strict=True)
    lines += [f"  {t.name} is converted to {read.stored} first" for t, read in pairs if t.format != read.stored]
    if schedule.workspace is not None:
        lines.append(f"  workspace {schedule.workspace}: {schedule.reason}")
    if not step.exact:
        lines.append(f"  the result is converted to {step.step.output.aval.format} last")
    return "\n".join(lines)
