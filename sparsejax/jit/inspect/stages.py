"""What each stage of the compiler made of a program, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sparsejax.core.array import Array
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.formats.storage import Storage
from sparsejax.jit import pipeline
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.backend.pretty import PrettyBuilder
from sparsejax.jit.codegen import lower
from sparsejax.jit.graph import partition
from sparsejax.jit.ir.program import Program
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.runtime.plan import Plan
from sparsejax.jit.runtime.plans import plan_of
from sparsejax.jit.runtime.runnable import Observed
from sparsejax.jit.schedule import schedules
from sparsejax.lax.rounds import Body

Told = TypeVar("Told")
STAGES = "jaxpr", "plan", "cin", "loops", "llvm", "asm"


def check(stage: str) -> None:
    """ValueError unless there is such a stage."""
    if stage not in STAGES:
        raise ValueError(f"stage={stage!r} is not one of {', '.join(map(repr, STAGES))}")


def as_text(closed: ClosedJaxpr, parts: Callable[[], Sequence[Part]], stage: str) -> str:
    """What a stage made of the jaxpr: "jaxpr", "plan", "cin", "loops", "llvm" or "asm"; all but the first tell of its steps, `parts`."""
    check(stage)
    if stage == "jaxpr":
        return str(pipeline.cleaned(closed.jaxpr))
    return "\n".join(line for part in parts() for line in part.texts(stage))


def parts_on(closed: ClosedJaxpr, arrays: Sequence[Array]) -> list[Part]:
    """The steps of a jaxpr as they run on these arrays."""
    storages = [a.storage for a in (*closed.consts, *arrays)]
    return _parts(plan_of(closed, storages), storages)[0]


def _parts(plan: Plan, storages: Sequence[Storage]) -> tuple[list[Part], list[Storage]]:
    """The steps, and the results."""
    registers, parts = plan.registers(storages), []
    for number, step in enumerate(plan.steps):
        bodies = [Listener(b, _parts) for b in plan.bodies(number)]
        inputs = plan.step(number, registers, bodies)
        parts.append(part_of(step, inputs, [b.first for b in bodies]))
    return parts, [registers[k] for k in plan.results]


@dataclass
class Listener(Body, Generic[Told]):
    """A body that keeps what `tell` says of its first run (None before), and with `add`, what that makes of all runs."""

    plan: Plan
    tell: Callable[[Plan, Sequence[Storage]], tuple[Told, list[Storage]]]
    add: Callable[[Told, Told], Told] | None = None
    runs: int = 0
    first: Told | None = None

    def run(self, storages: Sequence[Storage]) -> list[Storage]:
        self.runs += 1
        if self.first is not None and self.add is None:
            return self.plan.run(storages)
        told, results = self.tell(self.plan, storages)
        self.first = told if self.first is None or self.add is None else self.add(self.first, told)
        return results


@dataclass(frozen=True)
class Part:
    """A step as it ran: what a kernel's plan depends on, and the steps of its bodies at their first runs (None: they did not run)."""

    step: KernelRunner | partition.CallStep
    observed: Observed
    bodies: tuple[Sequence[Part] | None, ...]

    def texts(self, stage: str) -> list[str]:
        """What a stage made of it."""
        if isinstance(self.step, KernelRunner):
            return [_kernel_text(self.step, self.observed, stage)]
        what = "control flow" if self.step.eqn.bodies else "library call"
        note = "" if stage in ("plan", "cin", "loops") else "; "
        types = ", ".join(str(v.aval) for v in self.step.outputs)
        made = [f"{note}{what}: {self.step.eqn.primitive.name} -> {types}"]
        for k, body in enumerate(self.bodies):
            made.append(f"{note}body {k} of {len(self.bodies)}{': not run on these arrays' if body is None else ''}")
            for part in body or ():
                made += part.texts(stage)
            if body is not None and not body:
                made.append("nothing to compute")
        return made


def part_of(
    step: KernelRunner | partition.CallStep, inputs: Sequence[Storage], bodies: Sequence[Sequence[Part] | None]
) -> Part:
    """A step that ran on these operands."""
    if isinstance(step, partition.CallStep):
        return Part(step, (), tuple(bodies))
    runner, given = step.actual(inputs)
    return Part(runner, runner.observe(given), ())


def _kernel_text(step: KernelRunner, observed: Observed, stage: str) -> str:
    schedule, program = step.planner.scheduled(observed)
    if stage == "plan":
        return _plan_text(step, schedule, program)
    if stage == "cin":
        return str(program) or "kernel"
    if stage == "loops":
        return lower.lower(program, PrettyBuilder())
    text = lower.lower(program, LLVMBuilder())
    return text if stage == "llvm" else compiler.assembly(text)


def _plan_text(step: KernelRunner, schedule: schedules.Schedule, program: Program) -> str:
    nest = step.planner.step.nest
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
    lines += [f"  {text}" for text in step.planner.step.priced]
    if program.given is not None:
        lines.append(f"  the result has the positions of level {program.given.level} of {program.given.access.tensor}")
    if not step.exact:
        lines.append(f"  the result is converted to {step.aval.format} last")
    return "\n".join(lines)
