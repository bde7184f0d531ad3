"""`explain`: what the compiler decided for a function on given data, and why.

    Explanation   the steps in order, compile times, memory of the whole
      Kernel      operands, candidate loop orders, the chosen one, its loops, workspaces, conversions, memory, times
      LibraryCall an operation between kernels

Every number is recomputed with the compiler's own functions; `str()` of each class is its part of the report.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparsejax import config
from sparsejax.core.avals import ShapeDtypeStruct
from sparsejax.core.jaxpr import Eqn, Jaxpr, Var
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit import pipeline
from sparsejax.jit.backend import compiler
from sparsejax.jit.cost import sampling, statistics
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.graph import expected, fuse, partition
from sparsejax.jit.inspect import explain_html, forecast, gathers, report, stages
from sparsejax.jit.inspect.ahead_of_time import Traced
from sparsejax.jit.ir import cin, infer_formats, simplify
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.ir.program import Program
from sparsejax.jit.runtime import kernels, plans
from sparsejax.jit.schedule import line_starts, schedules, search, statements
from sparsejax.jit.schedule.schedules import Candidate, Loop

SHOWN = 24  # candidate orders that are printed


@dataclass(frozen=True)
class Operand:
    """An input of a kernel: its name there, its type, the positions of each storage level as observed and as the
    scheduler rounds them, its bytes."""

    name: str
    type: str
    format: Format
    positions: tuple[float, ...]
    facts: tuple[float, ...]
    nbytes: int

    def __str__(self) -> str:
        counts = ", ".join(f"{p:.6g} (~{_power(f)})" for p, f in zip(self.positions, self.facts, strict=True))
        return f"{self.name}: {self.type} {self.format}, positions per level {counts}, {_bytes(self.nbytes)}"


@dataclass(frozen=True)
class Meeting:
    """Two operands that share a variable: how many pairs of their entries meet there, and how many times more these are than
    even degrees would make, as observed and as the scheduler rounds it."""

    names: tuple[str, str]
    variable: str
    pairs: float
    coupling: float
    fact: float

    def __str__(self) -> str:
        times = f"{self.coupling:.3g} times as many as with even degrees (~{_power(self.fact)})"
        return f"{' and '.join(self.names)} meet in {self.variable}: {self.pairs:.4g} pairs of entries, {times}"


@dataclass(frozen=True)
class Conversion:
    """An operand that is copied into another format before the kernel runs (the copy is kept with the array), or the result afterwards."""

    name: str
    before: Format
    after: Format
    nbytes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {self.after}, {_bytes(self.nbytes)}: {self.reason}"


@dataclass(frozen=True)
class Workspace:
    """A temporary inside a kernel: how it is stored, over which variables, inside which loops, and why there."""

    name: str
    policy: str
    variables: tuple[str, ...]
    loops: tuple[str, ...]
    nbytes: int
    reason: str

    def __str__(self) -> str:
        over = f" over {','.join(self.variables)}" if self.variables else ""
        where = f"inside {','.join(self.loops)}" if self.loops else "outside all loops"
        return f"{self.name}: {self.policy}{over}, {where}, {_bytes(self.nbytes)}: {self.reason}"


@dataclass(frozen=True)
class Memory:
    """Bytes: inputs as they are, the rest as expected."""

    inputs: int
    output: int
    workspaces: int
    conversions: int

    @property
    def total(self) -> int:
        return self.inputs + self.output + self.workspaces + self.conversions

    def __str__(self) -> str:
        parts = ("inputs", "output", "workspaces", "conversions")
        return ", ".join(f"{p} {_bytes(getattr(self, p))}" for p in parts) + f", together {_bytes(self.total)}"


@dataclass(frozen=True)
class Times:
    """Seconds of the stages of one kernel: loop order, loops to LLVM text, LLVM text to machine code; of a run on one thread, as the scheduler
    expects it and as it was measured, with copies made before."""

    schedule: float
    lower: float
    llvm: float
    expected: float
    run: float

    @property
    def total(self) -> float:
        """Of the stages."""
        return self.schedule + self.lower + self.llvm


@dataclass(frozen=True)
class Kernel:
    """One kernel and every decision about it."""

    expression: str
    inputs: tuple[Operand, ...]
    meetings: tuple[Meeting, ...]
    output: str
    output_format: Format
    entries: tuple[float, int]
    """Of the output: expected before the program ran, and made."""
    format_reasons: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    order: tuple[str, ...]
    reason: str
    fused: tuple[str, ...]
    gathers: tuple[str, ...]
    loops: tuple[Loop, ...]
    threads: str
    workspaces: tuple[Workspace, ...]
    conversions: tuple[Conversion, ...]
    memory: Memory
    times: Times
    cin: str

    def __str__(self) -> str:
        lines = [f"kernel {self.expression}"]
        lines += [f"  input {x}" for x in self.inputs]
        lines += [f"  {x}" for x in self.meetings]
        lines.append(f"  output {self.output} {self.output_format}")
        lines += [f"    {x}" for x in self.format_reasons]
        if not self.output_format.is_dense:
            lines.append(
                f"    {self.entries[0]:.4g} entries expected before the program ran, {self.entries[1]:.4g} made"
            )
        lines.append(
            f"  loop orders ({len(self.candidates)}), cost in nanoseconds = loops + memory + output + conversions"
        )
        for c in self.candidates[:SHOWN]:
            mark = "*" if tuple(map(str, c.order)) == self.order else " "
            lines.append(f"  {mark} {','.join(map(str, c.order)) or '(none)'}: {_cost(c.cost)}")
        if len(self.candidates) > SHOWN:
            lines.append(f"    and {len(self.candidates) - SHOWN} more")
        lines.append(f"  chosen: {','.join(self.order) or '(no loops)'}: {self.reason}")
        lines += [*(f"  fused: {x}" for x in self.fused), *(f"  {x}" for x in self.gathers)]
        for loop in self.loops:
            leads = f"led by {' and '.join(loop.leaders)}" if loop.leaders else "counted over its extent"
            lines.append(
                f"    {loop.var}: {leads}, {loop.iterations:.4g} iterations in {loop.starts:.4g} starts, "
                f"{loop.survivors:.4g} with something to do"
            )
        lines.append(f"  threads: {self.threads}")
        lines += [f"  workspace {x}" for x in self.workspaces] or ["  no workspace"]
        lines += [f"  conversion {x}" for x in self.conversions] or ["  no conversion"]
        lines.append(f"  memory {self.memory}")
        return "\n".join(lines)


@dataclass(frozen=True)
class LibraryCall:
    """An operation that runs between kernels."""

    name: str
    output: str
    reason: str

    def __str__(self) -> str:
        return f"library call {self.name} -> {self.output}: {self.reason}"


@dataclass(frozen=True)
class Branch:
    """A jaxpr that control flow runs: how often it ran, and the steps of its first run."""

    runs: int
    steps: tuple[Explained, ...]


@dataclass(frozen=True)
class ControlFlow:
    """A loop or a choice, which runs other steps."""

    name: str
    output: str
    bodies: tuple[Branch, ...]

    def __str__(self) -> str:
        lines = [f"control flow {self.name} -> {self.output}"]
        for k, body in enumerate(self.bodies):
            lines.append(f"  body {k}: {body.runs} runs")
            lines += [f"    {line}" for step in body.steps for line in str(step).splitlines()]
        return "\n".join(lines)


Explained = Kernel | LibraryCall | ControlFlow


@dataclass(frozen=True)
class Explanation:
    """What the compiler decided for one function on given data. Times are in seconds."""

    steps: tuple[Explained, ...]
    trace: float
    infer: float
    fuse: float

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(s for s in _flat(self.steps) if isinstance(s, Kernel))

    @property
    def calls(self) -> tuple[LibraryCall, ...]:
        return tuple(s for s in _flat(self.steps) if isinstance(s, LibraryCall))

    def times(self) -> str:
        """A table of milliseconds: one column per stage of compilation and their sum; then a run of each kernel, as expected and as measured."""
        head = ("", "trace", "infer", "fuse", "schedule", "lower", "LLVM", "total", "expected", "run")
        rows: list[tuple[str, ...]] = [head]
        first = self.trace + self.infer + self.fuse
        rows.append(("function", *map(_ms, (self.trace, self.infer, self.fuse)), "", "", "", _ms(first), "", ""))
        for n, k in enumerate(self.kernels, 1):
            t = k.times
            rows.append(
                (f"kernel {n}", "", "", "", *map(_ms, (t.schedule, t.lower, t.llvm, t.total, t.expected, t.run)))
            )
        parts = [sum(getattr(k.times, stage) for k in self.kernels) for stage in ("schedule", "lower", "llvm")]
        runs = [sum(getattr(k.times, of) for k in self.kernels) for of in ("expected", "run")]
        rows.append(("together", *map(_ms, (self.trace, self.infer, self.fuse, *parts, first + sum(parts), *runs))))
        widths = [max(len(r[c]) for r in rows) for c in range(len(head))]
        return "\n".join(
            "  "
            + "  ".join(x.ljust(w) if c == 0 else x.rjust(w) for c, (x, w) in enumerate(zip(r, widths, strict=True)))
            for r in rows
        )

    def __str__(self) -> str:
        return "\n".join([*map(str, self.steps), "times in ms", self.times()])

    def _repr_html_(self) -> str:
        """For notebooks: a row per step, loops folded."""
        return explain_html.explanation(self)


def _flat(steps: Sequence[Explained]) -> Iterator[Explained]:
    """The steps, and those that they run."""
    for step in steps:
        yield step
        if isinstance(step, ControlFlow):
            for body in step.bodies:
                yield from _flat(body.steps)


def explained(traced: Traced, tracing: float) -> Explanation:
    """How a traced function is compiled for its arguments; tracing it took so many seconds."""
    closed, leaves = traced.jaxpr, traced._leaves
    if any(isinstance(x, ShapeDtypeStruct) for x in leaves):
        raise TypeError("explain needs arrays: schedules depend on the data, not only on types (ShapeDtypeStruct)")
    infer = _infer_seconds(closed.jaxpr)
    started = time.perf_counter()
    storages = [a.storage for a in (*closed.consts, *leaves)]
    plan = plans.Plan(closed, storages)
    fusing = time.perf_counter() - started
    steps, _ = _explained(plan, storages)
    return Explanation(tuple(steps), max(0.0, tracing - infer), infer, fusing)


def _explained(plan: plans.Plan, storages: Sequence[Storage]) -> tuple[list[Explained], list[Storage]]:
    """The steps of a plan on these operands, and its results."""
    registers = plan.registers(storages)
    made_by = {eqn.outputs[0]: eqn for eqn in plan.jaxpr.eqns if eqn.primitive.notation is not None}
    given = dict(zip((*plan.jaxpr.consts, *plan.jaxpr.inputs), storages, strict=True))
    planned = [s.step if isinstance(s, kernels.KernelRunner) else s for s in plan.steps]
    known = expected.of_program(planned, plan.jaxpr, given)
    steps: list[Explained] = []
    for number, step in enumerate(plan.steps):
        bodies = [stages.Listener(b, _explained) for b in plan.bodies(number)]
        inputs = plan.step(number, registers, bodies)
        if isinstance(step, kernels.KernelRunner):
            entries = known.entries(step.step.output), registers[-1].nnz
            steps.append(_kernel(step, inputs, entries, made_by.get(step.step.output)))
        elif bodies:
            types = ", ".join(str(v.aval) for v in step.outputs)
            runs = tuple(Branch(b.runs, tuple(b.first or ())) for b in bodies)
            steps.append(ControlFlow(step.eqn.primitive.name, types, runs))
        else:
            steps.append(_call(step))
    return steps, [registers[k] for k in plan.results]


def _infer_seconds(jaxpr: Jaxpr) -> float:
    """The time that typing rules take, which is part of tracing."""
    started = time.perf_counter()
    for eqn in jaxpr.eqns:
        eqn.primitive.typing(*(a.aval for a in eqn.inputs), **eqn.param_dict)
    return time.perf_counter() - started


def _call(step: partition.CallStep) -> LibraryCall:
    eqn = step.eqn
    dense = all(a.aval.format.is_dense for a in eqn.inputs)
    if eqn.primitive.notation is None:
        reason = gathers.REASONS.get(eqn.primitive.name, "a view, conversion or reshape, which has no index notation")
    else:
        reason = "all operands are dense" if dense else "the operation prefers its library routine for these types"
    return LibraryCall(eqn.primitive.name, str(step.outputs[0].aval), reason)


def _kernel(
    runner: kernels.KernelRunner, inputs: Sequence[Storage], entries: tuple[float, int], eqn: Eqn | None
) -> Kernel:
    step, run = runner.step, _seconds(runner, inputs)
    runner, inputs = runner.actual(inputs)
    nest = runner.step.nest
    observed, exactly = runner.observe(inputs), runner.observe_exactly(inputs)
    exact = dict(zip((t.name for t in nest.inputs), exactly, strict=False))
    known, counted = runner.known(observed), runner.known(exactly)
    started = time.perf_counter()
    schedule, program = runner.schedule(observed)
    scheduled = time.perf_counter()
    text = pipeline.text_of(program)
    lowered = time.perf_counter()
    plain, facts = runner.looped(schedule, known)
    cost = forecast.nanoseconds(plain, schedule, facts, runner.looped(schedule, counted)[1]) / 1e9
    times = Times(scheduled - started, lowered - scheduled, compiler.compile_seconds(text), cost, run)
    operands = [
        Operand(t.name, f"{t.dtype}{list(t.shape)}", t.format, exact[t.name], o, s.nbytes)
        for t, o, s in zip(nest.inputs, observed[: len(inputs)], inputs, strict=True)
    ]
    conversions = _conversions(runner, schedule, program, exact, counted)
    workspaces = _workspaces(runner, schedule, program, counted)
    memory = Memory(
        sum(s.nbytes for s in {id(s): s for s in inputs}.values()),
        forecast.output_bytes(runner.plain, counted, sampling.entries(nest, inputs)),
        sum(w.nbytes for w in workspaces),
        sum(c.nbytes for c in conversions),
    )
    candidates = () if program.literal else statements.candidates(plain, facts, config.workspace())
    terms = [f"{p.target} {p.op or ''}= {p.rhs}" for p in nest.producers]
    expression = "; ".join([f"out[{','.join(map(str, nest.indices))}] = {nest.value}", *terms])
    return Kernel(
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


def _meetings(runner: kernels.KernelRunner, known: Facts, counted: Facts) -> tuple[Meeting, ...]:
    made = []
    for join in statistics.meetings(runner.plain):
        if join.key in known.couplings:
            names = join.left.tensor.name, join.right.tensor.name
            even = counted[names[0]][-1] * counted[names[1]][-1] / join.left.tensor.shape[join.key[1]]
            coupling = counted.couplings[join.key]
            made.append(Meeting(names, str(join.var), even * coupling, coupling, known.couplings[join.key]))
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
) -> tuple[Conversion, ...]:
    nest, made = runner.step.nest, []
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
        made.append(Conversion(tensor.name, tensor.format, after, nbytes, reason))
    if not runner.exact:
        output, after = runner.output, runner.aval.format
        why = "; ".join(dict.fromkeys(after.unwritten(output.shape, output.dtype.itemsize).values()))
        nbytes = forecast.conversion_bytes(output, after, search.level_counts(runner.plain, known))
        made.append(
            Conversion(output.name, output.format, after, nbytes, why or "its blocks are not those of the operands")
        )
    return tuple(made)


def _workspaces(
    runner: kernels.KernelRunner,
    schedule: schedules.Schedule,
    program: Program,
    exact: Facts,
) -> tuple[Workspace, ...]:
    nest, exact = runner.looped(schedule, exact)
    made = []
    for tensor, around, where, nbytes in report.workspaces(nest, schedule, program, exact):
        *_, write = cin.writes(where.producer)
        own = tuple(str(ix) for ix in write.lhs.indices)
        filled = {v for a in cin.accesses(where.producer) for v in cin.followed(a.indices)}
        looped = [v for v in dict.fromkeys((*schedule.order, *nest.variables)) if v in filled]
        reason = _workspace_reason(nest.storage_indices, looped, around, own, tensor.policy or "")
        if tensor.policy == schedule.workspace and schedule.reason:
            reason = f"{reason}; {schedule.reason}"
        made.append(Workspace(tensor.name, tensor.policy or "", own, tuple(map(str, around)), nbytes, reason))
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


def _cost(cost: schedules.Cost) -> str:
    if not math.isfinite(cost.total):
        return "cannot run: the configured workspace cannot hold its coordinates"
    return str(cost)


def _power(count: float) -> str:
    return "0" if count <= 0 else f"2^{round(math.log2(count))}"


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"
