"""What each stage of the compiler made of a program, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sparsejax.core.array import Array
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.formats.storage import Storage
from sparsejax.jit import cin, fuse, lower, runtime, schedules, witnesses
from sparsejax.jit.llvm import LLVMBuilder
from sparsejax.jit.pipeline import KernelRunner, Plan, plan_of
from sparsejax.jit.pretty import PrettyBuilder
from sparsejax.lax.rounds import Body


def as_text(closed: ClosedJaxpr, arrays: Sequence[Array], stage: str) -> str:
    """What a stage made of the jaxpr, for these arrays: "jaxpr", "plan", "cin", "loops", "llvm" or "asm"."""
    if stage == "jaxpr":
        return str(witnesses.clean(closed.jaxpr))
    if stage not in ("plan", "cin", "loops", "llvm", "asm"):
        raise ValueError(f"stage={stage!r} is not one of 'jaxpr', 'plan', 'cin', 'loops', 'llvm', 'asm'")
    storages = [a.storage for a in (*closed.consts, *arrays)]
    return "\n".join(_texts(plan_of(closed, storages), storages, stage)[0])


def _texts(plan: Plan, storages: Sequence[Storage], stage: str) -> tuple[list[str], list[Storage]]:
    """What a stage made of every step, and the results."""
    registers = plan.registers(storages)
    parts = []
    for number, step in enumerate(plan.steps):
        bodies = [_Listener(b, stage) for b in plan.bodies(number)]
        inputs = plan.step(number, registers, bodies)
        parts.append(_step_text(step, inputs, stage))
        note = "" if stage in ("plan", "cin", "loops") else "; "
        for k, body in enumerate(bodies):
            parts.append(f"{note}body {k} of {len(bodies)}{'' if body.parts else ': not run on these arrays'}")
            parts += body.parts
    return parts, [registers[k] for k in plan.results]


@dataclass
class _Listener(Body):
    """A body that says what it was at its first run."""

    plan: Plan
    stage: str
    parts: list[str] = field(default_factory=list)

    def run(self, storages: Sequence[Storage]) -> list[Storage]:
        if self.parts:
            return self.plan.run(storages)
        parts, results = _texts(self.plan, storages, self.stage)
        self.parts += parts or ["nothing to compute"]
        return results


def _step_text(step: KernelRunner | fuse.CallStep, inputs: list[Storage], stage: str) -> str:
    if isinstance(step, fuse.CallStep):
        what = "control flow" if step.eqn.bodies else "library call"
        name = f"{step.eqn.primitive.name} -> {', '.join(str(v.aval) for v in step.outputs)}"
        return f"{what}: {name}" if stage in ("plan", "cin", "loops") else f"; {what}: {name}"
    step, inputs = step.actual(inputs)
    schedule, program = step.schedule(step.observe(inputs))
    if stage == "plan":
        return _plan_text(step, schedule, program)
    if stage == "cin":
        return "kernel" if program.stmt is None else cin.as_text(program.stmt)
    if stage == "loops":
        return lower.lower(program, PrettyBuilder())
    text = lower.lower(program, LLVMBuilder())
    return text if stage == "llvm" else runtime.assembly(text)


def _plan_text(step: KernelRunner, schedule: schedules.Schedule, program: lower.Program) -> str:
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
    lines += [f"  {text}" for text in step.step.priced]
    if program.given is not None:
        lines.append(f"  the result has the positions of level {program.given.level} of {program.given.access.tensor}")
    if not step.exact:
        lines.append(f"  the result is converted to {step.step.output.aval.format} last")
    return "\n".join(lines)
