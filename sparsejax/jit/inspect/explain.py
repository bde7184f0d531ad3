"""`explain`: what the compiler decided for a function on given data, and why (`explanation`).

Every number is recomputed with the compiler's own functions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from sparsejax import config
from sparsejax.core.avals import ShapeDtypeStruct
from sparsejax.core.jaxpr import Eqn, Jaxpr, Var
from sparsejax.formats.storage import Storage
from sparsejax.jit import pipeline
from sparsejax.jit.backend import compiler
from sparsejax.jit.cost import sampling, statistics
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.graph import expected, fuse, partition
from sparsejax.jit.inspect import explanation, forecast, gathers, report, stages
from sparsejax.jit.inspect.ahead_of_time import Traced
from sparsejax.jit.ir import cin, infer_formats, simplify
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.ir.program import Program
from sparsejax.jit.runtime import kernels, plans
from sparsejax.jit.runtime.plan import Plan
from sparsejax.jit.schedule import line_starts, schedules, search, statements
from sparsejax.jit.schedule.schedules import Candidate


def explained(traced: Traced, tracing: float) -> explanation.Explanation:
    """How a traced function is compiled for its arguments; tracing it took so many seconds."""
    closed, leaves = traced.jaxpr, traced._leaves
    if any(isinstance(x, ShapeDtypeStruct) for x in leaves):
        raise TypeError("explain needs arrays: schedules depend on the data, not only on types (ShapeDtypeStruct)")
    infer = _infer_seconds(closed.jaxpr)
    started = time.perf_counter()
    storages = [a.storage for a in (*closed.consts, *leaves)]
    plan = plans.planned(closed, storages)
    fusing = time.perf_counter() - started
    steps, _ = _explained(plan, storages)
    return explanation.Explanation(tuple(steps), max(0.0, tracing - infer), infer, fusing)


def _explained(plan: Plan, storages: Sequence[Storage]) -> tuple[list[explanation.Explained], list[Storage]]:
    """The steps of a plan on these operands, and its results."""
    registers = plan.registers(storages)
    made_by = {eqn.outputs[0]: eqn for eqn in plan.jaxpr.eqns if eqn.primitive.notation is not None}
    given = dict(zip((*plan.jaxpr.consts, *plan.jaxpr.inputs), storages, strict=True))
    planned = [s.planner.step if isinstance(s, kernels.KernelRunner) else s for s in plan.steps]
    known = expected.of_program(planned, plan.jaxpr, given)
    steps: list[explanation.Explained] = []
    for number, step in enumerate(plan.steps):
        bodies = [stages.Listener(b, _explained) for b in plan.bodies(number)]
        inputs = plan.step(number, registers, bodies)
        if isinstance(step, kernels.KernelRunner):
            output = step.planner.step.output
            entries = known.entries(output), registers[-1].nnz
            steps.append(_kernel(step, inputs, entries, made_by.get(output)))
        elif bodies:
            types = ", ".join(str(v.aval) for v in step.outputs)
            runs = tuple(explanation.Branch(b.runs, tuple(b.first or ())) for b in bodies)
            steps.append(explanation.ControlFlow(step.eqn.primitive.name, types, runs))
        else:
            steps.append(_call(step))
    return steps, [registers[k] for k in plan.results]


def _infer_seconds(jaxpr: Jaxpr) -> float:
    """The time that typing rules take, which is part of tracing."""
    started = time.perf_counter()
    for eqn in jaxpr.eqns:
        eqn.primitive.typing(*(a.aval for a in eqn.inputs), **eqn.param_dict)
    return time.perf_counter() - started


def _call(step: partition.CallStep) -> explanation.LibraryCall:
    eqn = step.eqn
    dense = all(a.aval.format.is_dense for a in eqn.inputs)
    if eqn.primitive.notation is None:
        reason = gathers.REASONS.get(eqn.primitive.name, "a view, conversion or reshape, which has no index notation")
    else:
        reason = "all operands are dense" if dense else "the operation prefers its library routine for these types"
    return explanation.LibraryCall(eqn.primitive.name, str(step.outputs[0].aval), reason)


def _kernel(
    runner: kernels.KernelRunner, inputs: Sequence[Storage], entries: tuple[float, int], eqn: Eqn | None
) -> explanation.Kernel:
    step, run = runner.planner.step, _seconds(runner, inputs)
    runner, inputs = runner.actual(inputs)
    planner = runner.planner
    nest = planner.step.nest
    observed, exactly = runner.observe(inputs), runner.observe_exactly(inputs)
    exact = dict(zip((t.name for t in nest.inputs), exactly, strict=False))
    known, counted = planner.known(observed), planner.known(exactly)
    started = time.perf_counter()
    schedule, program = planner.schedule(observed)
    scheduled = time.perf_counter()
    text = pipeline.text_of(program)
    lowered = time.perf_counter()
    plain, facts = planner.looped(schedule, known)
    cost = forecast.nanoseconds(plain, schedule, facts, planner.looped(schedule, counted)[1]) / 1e9
    times = explanation.Times(scheduled - started, lowered - scheduled, compiler.compile_seconds(text), cost, run)
    operands = [
        explanation.Operand(t.name, f"{t.dtype}{list(t.shape)}", t.format, exact[t.name], o, s.nbytes)
        for t, o, s in zip(nest.inputs, observed[: len(inputs)], inputs, strict=True)
    ]
    conversions = _conversions(runner, schedule, program, exact, counted)
    workspaces = _workspaces(runner, schedule, program, counted)
    memory = explanation.Memory(
        sum(s.nbytes for s in {id(s): s for s in inputs}.values()),
        forecast.output_bytes(planner.plain, counted, sampling.entries(nest, inputs)),
        sum(w.nbytes for w in workspaces),
        sum(c.nbytes for c in conversions),
    )
    candidates = () if program.literal else statements.candidates(plain, facts, config.workspace())
    terms = [f"{p.target} {p.op or ''}= {p.rhs}" for p in nest.producers]
    expression = "; ".join([f"out[{','.join(map(str, nest.indices))}] = {nest.value}", *terms])
    return explanation.Kernel(
        expression,
        tuple(operands),
        _meetings(runner, known, counted),
        f"{nest.output.dtype}{list(nest.output.shape)}",
        step.nest.output.format,
        entries,
        () if eqn is None else _format_reasons(step, eqn),
        candidates,
        tuple(map(str, schedule.order)),
        schedule.reason if program.literal else _order_reason(schedule.order, candidates) + _later(schedule),
        step.priced,
        (*step.notes, *gathers.lines(nest, schedule), *_copied(plain, facts, schedule)),
        () if program.literal else statements.loops(plain, facts, schedule),
        str(program.chunking),
        workspaces,
        conversions,
        memory,
        times,
        str(program),
    )


def _copied(nest: Nest, known: Facts, schedule: schedules.Schedule) -> list[str]:
    """What is said of operands that are copied to where a line begins."""
    names = sorted(line_starts.copied(nest, known, schedule))
    return [
        f"{x} is copied where it does not begin with a line of the cache: vectors would lie across two" for x in names
    ]


def _seconds(runner: kernels.KernelRunner, inputs: Sequence[Storage]) -> float:
    """The processor time of a run that follows others, on one thread."""
    with config.using(num_threads=1):
        runner.run(inputs)  # leaves memory for the next result
        started = time.thread_time()
        runner.run(inputs)
        return time.thread_time() - started


def _meetings(runner: kernels.KernelRunner, known: Facts, counted: Facts) -> tuple[explanation.Meeting, ...]:
    made = []
    for join in statistics.meetings(runner.planner.plain):
        if join.key in known.couplings:
            names = join.left.tensor.name, join.right.tensor.name
            even = counted[names[0]][-1] * counted[names[1]][-1] / join.left.tensor.shape[join.key[1]]
            coupling = counted.couplings[join.key]
            made.append(explanation.Meeting(names, str(join.var), even * coupling, coupling, known.couplings[join.key]))
    return tuple(made)


def _later(schedule: schedules.Schedule) -> str:
    found = schedule.remembered
    order = "" if found is None else ",".join(map(str, found.order))
    return order and f"; {order} on the same patterns again and again, once copies have paid off"


def _order_reason(order: tuple[cin.IndexVar, ...], candidates: Sequence[Candidate]) -> str:
    """Why an order was taken: against the next best, the parts in which they differ."""
    own = next((c for c in candidates if c.order == order), None)
    if own is None:
        return f"taken by choose={config.choose()!r}"
    others = [c for c in candidates if c.order != order]
    if not others:
        return "the only order"
    if not math.isfinite(others[0].cost.total):
        return "the only order that runs as one kernel"
    best = others[0]
    name = ",".join(map(str, best.order))
    if best.cost.total == own.cost.total:
        return f"as cheap as {name}, which follows it in the order of search"
    parts = [
        f"{part} {getattr(own.cost, part):.4g} against {getattr(best.cost, part):.4g}"
        for part in ("loops", "memory", "output", "conversions")
        if getattr(own.cost, part) != getattr(best.cost, part)
    ]
    ratio = best.cost.total / own.cost.total if own.cost.total else math.inf
    verb = "cheapest" if ratio >= 1 else "not the cheapest"
    if config.choose() != "auto":
        verb = f"taken by choose={config.choose()!r}, {verb}"
    return f"{verb}; {name} costs {ratio:.3g} times as much ({', '.join(parts)})"


def _conversions(
    runner: kernels.KernelRunner,
    schedule: schedules.Schedule,
    program: Program,
    exact: dict[str, tuple[float, ...]],
    known: Facts,
) -> tuple[explanation.Conversion, ...]:
    nest, made = runner.planner.step.nest, []
    moved = dict(schedule.conversions)
    for tensor, read in zip(nest.inputs, program.inputs, strict=True):
        after = read.stored
        if after == tensor.format:
            continue
        if schedule.panels is not None and tensor.name == schedule.panels[0]:
            reason = "in panels of rows, column by column: entries of a column share what it leads to"
        elif tensor.name in moved:
            access = next(a for a in nest.reads if a.tensor == tensor)
            stored = ",".join(str(access.level_index(lv)) for lv in range(len(tensor.format.levels)))
            if tensor.format.order == after.order:
                reason = f"{access.level_index(0)} is then located, not searched for through all that is stored"
            else:
                order = ",".join(map(str, schedule.order))
                reason = f"it is stored by {stored}, which the loops {order} do not follow"
        elif tensor.format.blocked and not after.blocked:
            reason = "its blocks are not those of the other arrays"
        else:
            reason = "kernels do not walk its levels directly"
        nbytes = forecast.conversion_bytes(tensor, after, exact[tensor.name])
        made.append(explanation.Conversion(tensor.name, tensor.format, after, nbytes, reason))
    if not runner.exact:
        output, after = runner.output, runner.aval.format
        why = "; ".join(dict.fromkeys(after.unwritten(output.shape, output.dtype.itemsize).values()))
        nbytes = forecast.conversion_bytes(output, after, search.level_counts(runner.planner.plain, known))
        made.append(
            explanation.Conversion(
                output.name, output.format, after, nbytes, why or "its blocks are not those of the operands"
            )
        )
    return tuple(made)


def _workspaces(
    runner: kernels.KernelRunner,
    schedule: schedules.Schedule,
    program: Program,
    exact: Facts,
) -> tuple[explanation.Workspace, ...]:
    nest, exact = runner.planner.looped(schedule, exact)
    made = []
    for tensor, around, where, nbytes in report.workspaces(nest, schedule, program, exact):
        *_, write = cin.writes(where.producer)
        own = tuple(str(ix) for ix in write.lhs.indices)
        filled = {v for a in cin.accesses(where.producer) for v in cin.followed(a.indices)}
        looped = [v for v in dict.fromkeys((*schedule.order, *nest.variables)) if v in filled]
        reason = _workspace_reason(nest.storage_indices, looped, around, own, tensor.policy or "")
        if tensor.policy == schedule.workspace and schedule.reason:
            reason = f"{reason}; {schedule.reason}"
        made.append(
            explanation.Workspace(tensor.name, tensor.policy or "", own, tuple(map(str, around)), nbytes, reason)
        )
    return tuple(made)


def _workspace_reason(
    storage: Sequence[cin.IndexVar],
    order: Sequence[cin.IndexVar],
    around: Sequence[cin.IndexVar],
    own: Sequence[str],
    policy: str,
) -> str:
    reduced = ",".join(str(v) for v in order if v not in storage and v not in around)
    over = ",".join(own)
    match policy:
        case "scalar":
            return "every output variable is bound there" + (
                f", and {reduced} is reduced in a register" if reduced else ""
            )
        case "dense":
            return f"an operation follows the reduction over {reduced}, and the output is dense in {over}"
        case _:
            if not reduced:
                return f"the output is sparse in {over}, which the loops reach in another order"
            return f"the output is sparse in {over}, and {reduced} is reduced outside the loop over {own[-1]}"


def _format_reasons(step: partition.KernelStep, eqn: Eqn) -> tuple[str, ...]:
    """Why the kernel's last operation has its result format, in the kernel's names."""
    if eqn.param_dict.get("out_format") is not None:
        return ("pinned by out_format",)
    assert eqn.primitive.notation is not None
    nest = step.nest
    names: dict[Var, str] = {}
    for tensor, var in zip(nest.inputs, step.arguments, strict=True):
        names.setdefault(var, tensor.name)
    operands: list[cin.Tensor | cin.Literal] = []
    for n, atom in enumerate(eqn.inputs):
        if isinstance(atom, Var):
            operands.append(fuse.tensor_of(names.get(atom, f"operand {n} of {eqn.primitive.name}"), atom.aval))
        else:
            operands.append(simplify.literal(atom.value, atom.aval.dtype))
    made = eqn.primitive.notation(*operands, **eqn.param_dict)
    rename: dict[cin.Index, cin.Index] = dict(zip(made.indices, nest.indices, strict=True))
    taken = {str(ix) for ix in rename.values()}
    for inner in cin.variables(made.rhs):
        if inner not in rename:
            rename[inner] = cin.IndexVar(f"{inner}'" if str(inner) in taken else str(inner))
    made = cin.Definition(tuple(rename[ix] for ix in made.indices), made.op, cin.rename(made.rhs, rename))
    if infer_formats.infer(made, nest.output.shape, nest.output.dtype)[0] != nest.output.format:
        return (f"a rule of {eqn.primitive.name}",)
    return infer_formats.reasons(made, nest.output.shape, nest.output.dtype)
