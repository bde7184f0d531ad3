"""Instrumented kernels: how many iterations a schedule runs, counted while it runs. Tests and benchmarks use them.

Every body of a `for_` or `while_` adds one to a counter (times the lanes of the vector loops and strips that it is in, so
that counts do not depend on vectorisation), and memory that is cleared or copied adds one per cache line (not where it is
allocated zeroed: pages that are never touched cost nothing). The counter leaves through one slot behind all others. Ordinary
kernels hold no counter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sparsejax import config
from sparsejax.formats import copies
from sparsejax.formats.storage import Storage
from sparsejax.jit import pipeline
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.builder import Body, Builder, Val, Var
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen import abi, lower
from sparsejax.jit.cost import statistics
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.ir.program import Program
from sparsejax.jit.runtime import binding
from sparsejax.jit.schedule import counted, schedules

CACHE_LINE = 64


class CountingBuilder(LLVMBuilder):
    """The LLVM builder with a counter of iterations, written to slot `slot` at the end."""

    def has_masks(self) -> bool:
        return False  # bodies are counted for all lanes of a strip

    def __init__(self, slot: int) -> None:
        super().__init__()
        self._slot = slot
        self._counter = self.var("iterations", self.i64(0))
        self._lanes = [1]  # of the loops that are open
        self._step = 1  # of the loop that is about to open

    @contextmanager
    def for_(self, lo: Val, hi: Val, name: str = "i", step: int = 1, some: bool = False) -> Iterator[Val]:
        self._step = step
        with super().for_(lo, hi, name, step, some) as index:
            yield index

    @contextmanager
    def while_(self, condition: Callable[[], Val], some: bool = False) -> Iterator[None]:
        self._lanes.append(self._lanes[-1] * self._step)
        self._step = 1
        with super().while_(condition, some):
            self.increment(self._counter, self._lanes[-1])
            yield
        self._lanes.pop()

    @contextmanager
    def masked(self, lanes: int, count: Val) -> Iterator[None]:
        self.increment(self._counter, self.mul(count, self._lanes[-1]))
        with super().masked(lanes, count):
            yield

    def call(self, function: str, returns: str, args: Sequence[Val]) -> Val:
        if function in ("memset", "memcpy"):
            self.increment(self._counter, self.binary("udiv", args[2], self.i64(CACHE_LINE)))
        return super().call(function, returns, args)

    def routine(self, name: str, state: Sequence[Var], args: Mapping[str, Val], body: Body) -> None:
        """A routine counts too: the counter is one more variable of its state."""
        outside, lanes = self._counter, self._lanes

        def counted(b: Builder, own: list[Var], given: list[Val]) -> None:
            self._counter, self._lanes = own[-1], [1]
            body(b, own[:-1], given)
            self._counter, self._lanes = outside, lanes

        super().routine(name, [*state, outside], args, counted)

    def finish(self, epilogue: Callable[[], None]) -> str:
        def counted() -> None:
            epilogue()
            self.set_slot(self._slot, self.get(self._counter))

        return super().finish(counted)


class _Counted(compiler.Kernel):
    """A kernel with one more slot, whose content it remembers."""

    def __init__(self, kernel: compiler.Kernel) -> None:
        self._kernel = kernel
        self.iterations = 0
        self.run_packed = lambda *parts: self(*parts)[0]

    def __call__(self, *parts: bytes) -> tuple[int, tuple[int, ...]]:
        status, after = self._kernel(*parts, bytes(8))
        self.iterations = after[-1]
        return status, after[:-1]


@dataclass(frozen=True)
class Count:
    """What a schedule did: iterations of the kernel, and stored entries converted before it.

    Converting an entry of a d-dimensional array visits it 2 d + 2 times: `convert` counts and places it once
    for every dimension, reads it and writes it; `pos` buffers are read and written as well. `work` counts every visit
    as an iteration.
    """

    iterations: int
    converted: int
    visits: int

    @property
    def work(self) -> int:
        return self.iterations + self.visits


def run(nest: Nest, schedule: schedules.Schedule, inputs: Sequence[Storage]) -> tuple[Storage, Count]:
    """Run `nest` under `schedule` on `inputs` (one per tensor of `nest.inputs`); the result and what was counted. Entries are read one by one, as on
    processors that do not gather fast: a body that gathers would count for all lanes, masked ones too."""
    with config.using(skip=config.skip() | {"gathers"}):
        program = pipeline.program_of(nest, schedule)
        kernel = _Counted(compiler.compile_text(text(program)))
    bound = binding.Binding(kernel, nest.output, nest.op, shared=program.shared, whole=program.whole)
    given = [copies.converted(s, t.stored) for t, s in zip(program.inputs, inputs, strict=True)]
    copied = [s for s, g in zip(inputs, given, strict=True) if g is not s]
    visits = sum(_visits(s) for s in copied)
    visits += sum(_edges(g) for g, s in zip(given, inputs, strict=True) if g is not s)
    return bound.run(given), Count(kernel.iterations, sum(s.nnz for s in copied), visits)


def _visits(storage: Storage) -> int:
    return (2 * storage.ndim + 2) * storage.nnz + _edges(storage)


def _edges(storage: Storage) -> int:
    """The lengths of the `pos` buffers."""
    form = storage.format
    named = (zip(form.buffer_names(lv), storage.buffers[lv], strict=True) for lv in range(len(form.levels)))
    return sum(len(buffer) for pairs in named for name, buffer in pairs if name == "pos")


def plain(nest: Nest, schedule: schedules.Schedule, known: statistics.Facts) -> Callable[[Sequence[Storage]], Storage]:
    """A function that runs `nest` under `schedule` without counting, conversions included."""
    program = pipeline.program_of(nest, schedule)
    kernel = compiler.compile_text(lower.lower(program, LLVMBuilder()))
    expected = counted.output_sizes(nest, known)
    bound = binding.Binding(kernel, nest.output, nest.op, None, expected, None, program.shared, program.whole)

    def call(inputs: Sequence[Storage]) -> Storage:
        given = [copies.converted(s, t.stored) for t, s in zip(program.inputs, inputs, strict=True)]
        return bound.run(given)

    return call


def text(program: Program) -> str:
    """The LLVM text of the instrumented kernel of `program`."""
    return lower.lower(program, CountingBuilder(len(abi.layout(program.inputs, program.output))))
