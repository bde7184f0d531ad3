"""Predicted beside measured: what the scheduler expects of every kernel of the benchmark rows, and what the kernel takes.

    python -m benchmarks.prices                       all rows of the peer table
    python -m benchmarks.prices --family 20000        kernels of `benchmarks.cases`, with so many rows (one of every ten; --every 1: all)
    python -m benchmarks.prices --ops spmm --matrices cora

Both are nanoseconds of one thread: processor time, the median of several runs, after copies that the kernel reads have been made. The last
lines say how many predictions are within a factor of two, and which are not.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import sparsejax as sj
from benchmarks import cases, harness
from sparsejax.errors import ScheduleError
from sparsejax.formats.storage import Storage
from sparsejax.jit.inspect import forecast
from sparsejax.jit.runtime import kernels, plans

WITHIN = 2.0
SECONDS, RUNS = 0.05, 5


@dataclass(frozen=True)
class Row:
    """A kernel: the row and step that it belongs to, and nanoseconds."""

    name: str
    predicted: float
    measured: float

    def __str__(self) -> str:
        return f"{self.name:66} {self.predicted:14,.0f} {self.measured:14,.0f} {self.ratio:8.2f}"

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured


def nanoseconds(runner: kernels.KernelRunner, inputs: Sequence[Storage]) -> float:
    """The processor time of one run of a kernel: the median."""
    took: list[float] = []
    until = time.perf_counter() + SECONDS
    while len(took) < RUNS or time.perf_counter() < until:
        started = time.thread_time_ns()
        runner.run(inputs)
        took.append(time.thread_time_ns() - started)
    return statistics.median(took)


def kernels_of(
    function: Callable[..., object], arguments: Sequence[sj.Array]
) -> Iterator[tuple[int, kernels.KernelRunner, list[Storage]]]:
    """The kernels of one call of a function, by the number of the step, with what they read."""
    traced = sj.jit(function).trace(*arguments)
    storages = [x.storage for x in (*traced.jaxpr.consts, *traced._leaves)]
    plan = plans.planned(traced.jaxpr, storages)
    registers = plan.registers(storages)
    for number, step in enumerate(plan.steps):
        inputs = plan.step(number, registers)
        if isinstance(step, kernels.KernelRunner):
            yield number, step, inputs


def of_call(name: str, function: Callable[..., object], arguments: Sequence[sj.Array]) -> Iterator[Row]:
    """The kernels of one call of a function, priced and measured."""
    for number, step, inputs in kernels_of(function, arguments):
        runner, given = step.actual(inputs)
        schedule, _ = runner.planner.schedule(runner.observe(given))
        nest, known = runner.planner.looped(schedule, runner.planner.known(runner.observe(given)))
        _, counted = runner.planner.looped(schedule, runner.planner.known(runner.observe_exactly(given)))
        yield Row(f"{name} {number}", forecast.nanoseconds(nest, schedule, known, counted), nanoseconds(step, inputs))


def benchmark_rows(options: Namespace) -> Iterator[Row]:
    """The rows of `benchmarks.run`."""
    for name, function, arguments in harness.programs(options):
        yield from of_call(name, function, arguments)


def family_rows(size: int, every: int) -> Iterator[Row]:
    """The kernels of `benchmarks.cases`."""
    for case in itertools.islice(cases.family(), 0, None, every):
        try:
            yield from of_call(str(case), case.function, case.operands(size))
        except ScheduleError:
            continue


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="")
    parser.add_argument("--matrices", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--family", type=int, default=0)
    parser.add_argument("--every", type=int, default=10)
    options = parser.parse_args()
    found = []
    with sj.config.using(num_threads=1):
        for row in family_rows(options.family, options.every) if options.family else benchmark_rows(options):
            print(row, flush=True)
            found.append(row)
    print(summary(found))


def summary(rows: Sequence[Row]) -> str:
    """How many predictions are about right."""
    within = [r for r in rows if 1 / WITHIN <= r.ratio <= WITHIN]
    off = math.exp(statistics.mean(abs(math.log(r.ratio)) for r in rows))
    return f"{len(within)} of {len(rows)} within {WITHIN:g}; off by {off:.2f} in the geometric mean"


if __name__ == "__main__":
    main()
