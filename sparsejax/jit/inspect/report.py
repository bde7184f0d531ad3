"""What a compiled function costs on given data: operations, bytes and entries, step by step.

    Step     one kernel or library call: operations, bytes read and written, temporary bytes, entries of its result
    Report   the steps, with the bytes of arguments and results

Operations are those of the plan that was chosen: of every loop nest, how often its innermost body has something to do, times the scalar
operators in it (a reduction counts its own). They are exact for products with one sparse operand, and forecast from the model of
the scheduler elsewhere; a complex operation counts once. Bytes are those of whole operands and results, as caches would have it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.jaxpr import ClosedJaxpr, Eqn
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import sampling, statistics
from sparsejax.jit.graph import partition
from sparsejax.jit.inspect import forecast, stages
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.ir.program import Program
from sparsejax.jit.runtime import kernels, plans
from sparsejax.jit.runtime.plan import Plan
from sparsejax.jit.schedule import schedules, search, statements


@dataclass(frozen=True)
class Step:
    """The cost of one kernel or library call."""

    name: str
    flops: float
    bytes_accessed: int
    temporaries: int
    entries: float


@dataclass(frozen=True)
class Report:
    """The cost of a function on given data."""

    steps: tuple[Step, ...]
    arguments: int
    results: int
    intermediates: int
    entries: float
    parts: tuple[stages.Part, ...] = ()
    """The steps as they ran, for what stages of the compiler made of them."""

    def cost(self) -> dict[str, float]:
        """Sums over the steps, under JAX's names; and the expected entries of the results."""
        return {
            "flops": sum(s.flops for s in self.steps),
            "bytes accessed": float(sum(s.bytes_accessed for s in self.steps)),
            "entries": self.entries,
        }

    def memory(self) -> MemoryStats:
        """Bytes while the function runs: intermediates live until its end, workspaces while their kernel runs."""
        temporary = self.intermediates + max((s.temporaries for s in self.steps), default=0)
        return MemoryStats(self.arguments, self.results, temporary)


@dataclass(frozen=True)
class MemoryStats:
    """Bytes of a compiled function, under JAX's names: arguments and constants, results, and what exists only meanwhile."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int

    @property
    def peak_memory_in_bytes(self) -> int:
        return self.argument_size_in_bytes + self.output_size_in_bytes + self.temp_size_in_bytes


def report(closed: ClosedJaxpr, arrays: Sequence[Array]) -> Report:
    """The cost of a jaxpr on these arrays. It is run once, as later steps depend on what earlier ones make."""
    given = [a.storage for a in (*closed.consts, *arrays)]
    return _reported(plans.plan_of(closed, given), given)[0]


def _reported(plan: Plan, given: Sequence[Storage]) -> tuple[Report, list[Storage]]:
    """The cost of a plan on these operands, and its results."""
    registers = plan.registers(given)
    first, made, entries, parts = len(registers), [], dict[int, float](), []
    for number, step in enumerate(plan.steps):
        bodies = [stages.Listener(b, _body, _added) for b in plan.bodies(number)]
        inputs = plan.step(number, registers, bodies)
        parts.append(stages.part_of(step, inputs, [b.first and b.first[1] for b in bodies]))
        if isinstance(step, kernels.KernelRunner):
            made.append(_kernel(step, inputs))
            entries[plan.made[number][0]] = made[-1].entries
        elif bodies:
            ran = [b.first[0] for b in bodies if b.first]
            made.append(_control(step, ran, [registers[k] for k in plan.made[number]]))
        else:
            made.append(_call(step, inputs, registers[-1]))
    results = {k: registers[k] for k in plan.results}
    counts = [entries.get(k, float(registers[k].nnz)) for k in plan.results]
    viewed = {id(s.vals) for s in (*registers[:first], *results.values())}
    inner = [s for k, s in enumerate(registers) if k >= first and k not in results and id(s.vals) not in viewed]
    told = Report(tuple(made), _bytes(given), _bytes(list(results.values())), _bytes(inner), sum(counts), tuple(parts))
    return told, [registers[k] for k in plan.results]


_Told = tuple[Step, tuple[stages.Part, ...]]


def _body(plan: Plan, given: Sequence[Storage]) -> tuple[_Told, list[Storage]]:
    """What one run of a body costs together, and its steps; its results."""
    told, results = _reported(plan, given)
    cost, memory = told.cost(), told.memory().temp_size_in_bytes + told.results
    return (Step("", cost["flops"], int(cost["bytes accessed"]), memory, 0.0), told.parts), results


def _added(before: _Told, now: _Told) -> _Told:
    """All runs of a body, with the memory of the largest; the steps of the first."""
    (x, parts), (y, _) = before, now
    flops, accessed = x.flops + y.flops, x.bytes_accessed + y.bytes_accessed
    return Step("", flops, accessed, max(x.temporaries, y.temporaries), 0.0), parts


def _control(step: partition.CallStep, ran: Sequence[Step], results: Sequence[Storage]) -> Step:
    """All runs of its bodies; the memory of the largest."""
    flops, accessed = sum(b.flops for b in ran), sum(b.bytes_accessed for b in ran)
    entries, memory = float(sum(s.nnz for s in results)), max((b.temporaries for b in ran), default=0)
    return Step(step.eqn.primitive.name, flops, accessed, memory, entries)


def _bytes(storages: Sequence[Storage]) -> int:
    """Bytes of storages; those with the same values count once."""
    return sum(s.nbytes for s in {id(s.vals): s for s in storages}.values())


def _kernel(runner: kernels.KernelRunner, inputs: Sequence[Storage]) -> Step:
    runner, inputs = runner.actual(inputs)
    planner = runner.planner
    given = planner.step.nest.inputs
    exact = runner.observe_exactly(inputs)
    schedule, program = planner.scheduled(runner.observe(inputs))
    nest, known = planner.looped(schedule, planner.known(exact))
    sampled = sampling.entries(planner.step.nest, inputs)
    output = forecast.output_bytes(nest, known, sampled)
    copies = sum(
        forecast.conversion_bytes(t, read.stored, counts)
        for t, read, counts in zip(given, program.inputs, exact[: len(given)], strict=True)
        if read.stored != t.format
    )
    spaces = sum(nbytes for *_, nbytes in workspaces(nest, schedule, program, known))
    dense = nest.output.format.full
    entries = search.level_counts(nest, known)[-1:] if sampled is None or dense else (sampled,)
    name = f"out[{','.join(map(str, nest.indices))}] = {nest.wholes[-1]}"
    count = entries[0] if entries else 1.0
    return Step(name, flops(nest, schedule, known, count), _bytes(inputs) + output, spaces + copies, count)


def flops(nest: Nest, schedule: schedules.Schedule, known: statistics.Facts, entries: float) -> float:
    """Scalar operations of `nest`: each reduction where its loops have something to do, then the value per entry."""
    loops = statements.loops(nest, known, schedule)
    total = 0.0
    for producer in nest.producers:
        own = set(cin.variables(producer.rhs)) | set(cin.variables(producer.target))
        times = next((x.survivors for x in reversed(loops) if x.var in own), 1.0)
        total += times * (_operators(producer.rhs) + (producer.op is not None))
    body = _operators(nest.value)
    if nest.producers:
        return total + entries * body
    return (loops[-1].survivors if loops else 1.0) * body


def _operators(expr: cin.Expr) -> int:
    if not isinstance(expr, cin.Call):
        return 0
    return (expr.op != "cast") + sum(map(_operators, expr.args))


def _call(step: partition.CallStep, inputs: Sequence[Storage], made: Storage) -> Step:
    eqn = step.eqn
    viewed = any(np.may_share_memory(made.vals, s.vals) for s in inputs)
    accessed = 0 if viewed else _bytes([*inputs, made])
    return Step(eqn.primitive.name, _flops_of_call(eqn), accessed, 0, float(made.nnz))


def _flops_of_call(eqn: Eqn) -> float:
    """Operations of a library call on dense operands; views, conversions and reshapes have none."""
    if eqn.primitive.notation is None:
        return 0.0
    tensors = [
        cin.Tensor(f"x{k}", a.aval.shape, a.aval.dtype, a.aval.format, a.aval.fill_value)
        for k, a in enumerate(eqn.inputs)
    ]
    definition = eqn.primitive.notation(*tensors, **eqn.param_dict)
    extents = cin.extents(cin.accesses(definition.rhs))
    return math.prod(extents.values()) * float(_operators(definition.rhs) + (definition.op is not None))


def workspaces(
    nest: Nest, schedule: schedules.Schedule, program: Program, known: statistics.Facts
) -> list[tuple[cin.Tensor, tuple[cin.IndexVar, ...], cin.Where, int]]:
    """Every workspace of a program: its tensor, the loops around it, its `where`, and its expected bytes."""
    loops = statements.loops(nest, known, schedule)
    made = []
    for tensor, around, where in forecast.workspaces(program):
        *_, write = cin.writes(where.producer)
        starts = max(1.0, next((x.survivors for x in reversed(loops) if x.var in around), 1.0))
        inserts = loops[-1].survivors / starts if loops else 1.0
        counts = search.level_counts(nest, known) or (math.inf,)
        entries = min(inserts, counts[-1] / starts) if write.lhs.indices else 1.0
        made.append((tensor, around, where, forecast.workspace_bytes(tensor, inserts, entries)))
    return made
