"""What `explain` tells: data, whose `str()` is the report.

Explanation   the steps in order, compile times, memory of the whole
  Kernel      operands, candidate loop orders, the chosen one, its loops, workspaces, conversions, memory, times
  LibraryCall an operation between kernels
  ControlFlow loops and branches, with the steps that they run
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparsejax.formats import Format
from sparsejax.jit.inspect import explain_html
from sparsejax.jit.schedule import schedules
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
