"""Measures a machine: the prices that the scheduler works with (`cost.machine`), fitted to kernels that run here.

    python -m benchmarks.calibrate                           measure, fit, and print the table; what it predicts, and what was measured
    python -m benchmarks.calibrate --write machine.json      and write it to a file for SPARSEJAX_MACHINE
    python -m benchmarks.calibrate --conversions             the prices of conversions between formats instead (`conversion_price`)

Kernels of one statement are measured, those of the benchmark rows and of `benchmarks.cases`: processor times of one thread, medians. What a kernel
is expected to take is a sum of counts times prices, so that its counts are found by changing one price at a time. Prices are fitted to the
logarithms of the times, none of them far from what it was without a reason in the measurements: the square of the logarithm of what it changed by
counts as one kernel does that is wrong by `PRIOR` times. What only kernels of several statements, memory that is touched for the first time, and
compilation tell (`KEPT`) stays as it was. The prices of workspaces are measured by benchmarks/workspaces.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import cases, datasets, harness, matrices, prices
from sparsejax.errors import ScheduleError
from sparsejax.formats import Coordinate, Format, convert
from sparsejax.jit.cost import conversion_price, machine
from sparsejax.jit.cost.price_table import Machine
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.inspect import forecast
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import search

KEPT = ("store", "append", "whole", "gather", "look", "remember", "take", "compile", "multiply", "conversion", "short")
PRIOR = 4.0
NAMES = (
    "cora",
    "bcsstk16",
    "Wiki-Vote",
    "ca-CondMat",
    "cage10",
    "brack2",
    "soc-slashdot0902-directed",
    "NotreDame_www",
    "karate",
    "bfw782b",
    "p2p-Gnutella08",
)
FORMATS = ("csr", "csc", "coo", "dcsr", "dcsc")
SIZES = ((20_000, 13), (100_000, 61))
"""Rows of the cases, and every which of them is taken."""

Counts = dict[str, float]
"""How often each price is paid, by its name; of prices per level, with the number of the level."""


@dataclass(frozen=True)
class Sample:
    """A kernel that was measured: its loops in the order that was taken, and nanoseconds."""

    name: str
    nest: Nest
    facts: Facts
    order: tuple[cin.IndexVar, ...]
    measured: float

    def predicted(self, here: Machine) -> float:
        """What it costs on a machine."""
        model = search.Model(self.nest, self.facts, here=here)
        return model.total(model.walk(self.order)).running + here.call


def samples_of(name: str, function: Callable[..., object], arguments: Sequence[sj.Array]) -> Iterator[Sample]:
    """The kernels of one statement that a call runs."""
    for number, step, inputs in prices.kernels_of(function, arguments):
        runner, given = step.actual(inputs)
        if runner.planner.plain.nested:
            continue
        observed = runner.observe(given)
        schedule, _ = runner.planner.schedule(observed)
        took = prices.nanoseconds(step, inputs)
        print(f"{name} {number}: {took:,.0f} ns", flush=True)
        facts = forecast.not_rounded(
            runner.planner.known(observed), runner.planner.known(runner.observe_exactly(given))
        )
        yield Sample(f"{name} {number}", runner.planner.plain, facts, schedule.order, took)


def measured() -> Iterator[Sample]:
    """All kernels that prices are fitted to."""
    seen = set()
    for quick in (True, False):
        for name, function, arguments in harness.programs(Namespace(ops="", matrices="", quick=quick)):
            if name not in seen:
                seen.add(name)
                yield from samples_of(name, function, arguments)
    for size, every in SIZES:
        for case in itertools.islice(cases.family(), 3, None, every):
            try:
                yield from samples_of(f"{case} {size}", case.function, case.operands(size))
            except ScheduleError:
                continue


def free(here: Machine) -> dict[str, float]:
    """The prices that are fitted, by name."""
    made: dict[str, float] = {}
    for f in dataclasses.fields(Machine):
        value = getattr(here, f.name)
        if f.name in ("name", "caches", *KEPT):
            continue
        made |= {f"{f.name}.{k}": x for k, x in enumerate(value)} if isinstance(value, tuple) else {f.name: value}
    return made


def with_prices(here: Machine, found: Counts) -> Machine:
    """A machine with other prices."""
    changed: dict[str, object] = {}
    for name, value in found.items():
        field, _, level = name.partition(".")
        old = changed.get(field, getattr(here, field))
        changed[field] = tuple(value if k == int(level) else x for k, x in enumerate(old)) if level else value
    return dataclasses.replace(here, **changed)  # type: ignore[arg-type]


def counts(sample: Sample, here: Machine) -> Counts:
    """How often a kernel pays each price."""
    base = sample.predicted(here)
    found = {}
    for name, value in free(here).items():
        step = 0.01 * value
        found[name] = max(0.0, (sample.predicted(with_prices(here, {name: value + step})) - base) / step)
    return found


def fitted(samples: Sequence[Sample], here: Machine) -> Machine:
    """The machine whose prices fit the samples best, found from `here`."""
    before = free(here)
    paid = [counts(s, here) for s in samples]
    matrix = np.array([[c[n] for n in before] for c in paid])
    start = np.array(list(before.values()))
    rest = np.array([s.predicted(here) for s in samples]) - matrix @ start
    times = np.log([s.measured for s in samples])

    def wrong(change: np.ndarray) -> np.ndarray:
        total = matrix @ (start * np.exp(change)) + rest
        return np.concatenate([np.log(np.maximum(total, 1.0)) - times, change / math.log(PRIOR)])

    solved = scipy.optimize.least_squares(wrong, np.zeros(len(start)), loss="soft_l1", f_scale=0.3)
    made = {n: float(f"{x:.2g}") for n, x in zip(before, start * np.exp(solved.x), strict=True)}
    return with_prices(here, made)


def best(call: Callable[[], object], rounds: int = 5) -> float:
    """Seconds of processor time, the least of several runs."""
    took = []
    for _ in range(rounds):
        started = time.thread_time()
        call()
        took.append(time.thread_time() - started)
    return min(took)


def conversions(A: sp.csr_array) -> Iterator[tuple[dict[str, float], float]]:
    """The terms of every conversion of one matrix, and the nanoseconds that it takes."""
    for before, after in itertools.permutations((Format.parse(name, 2) for name in FORMATS), 2):
        if not isinstance(after.levels[0], Coordinate):
            storage = sj.array(A, format=str(before)).storage
            took = best(lambda s=storage, f=after: convert.convert(s, f))
            yield conversion_price.terms(before, after, storage.shape, float(storage.nnz)), 1e9 * took


def fitted_conversions(measured: Sequence[tuple[dict[str, float], float]]) -> dict[str, float]:
    """The constants of `conversion_price`, none negative, with the least squares of relative errors."""
    names = list(conversion_price.NANOSECONDS)
    matrix = np.array([[terms.get(n, 0.0) / took for n in names] for terms, took in measured])
    solved, _ = scipy.optimize.nnls(matrix, np.ones(len(measured)))
    return {n: float(f"{x:.3g}") for n, x in zip(names, solved, strict=True)}


def report(samples: Sequence[Sample], here: Machine) -> None:
    """Print what a machine's prices predict, the worst kernels last."""
    rows = [prices.Row(s.name, s.predicted(here), s.measured) for s in samples]
    for row in sorted(rows, key=lambda r: abs(math.log(r.ratio))):
        print(row)
    print(prices.summary(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", default="", help="a file for the table, as JSON")
    parser.add_argument("--name", default="here", help="of the machine")
    parser.add_argument("--conversions", action="store_true")
    parser.add_argument("--matrices", default=",".join(NAMES), help="of --conversions: matrices of the data folder")
    options = parser.parse_args()
    if options.conversions:
        present = set(datasets.matrix_names())
        given = {n: datasets.matrix(n).astype(float) for n in options.matrices.split(",") if n in present}
        if not given:
            print("no matrices in the data folder; generated ones instead")
            given = {n: matrices.MATRICES[n]() for n in ("uniform", "rmat16", "cora")}
        found = [pair for A in given.values() for pair in conversions(sp.csr_array(abs(A)))]
        print("fitted:", fitted_conversions(found))
        print("in use:", conversion_price.NANOSECONDS)
        return
    here = dataclasses.replace(machine.current(), name=options.name)
    with sj.config.using(num_threads=1):
        samples = list(measured())
    made = fitted(samples, fitted(samples, here))
    report(samples, made)
    print(prices.summary([prices.Row(s.name, s.predicted(here), s.measured) for s in samples]), "before")
    print(made)
    if options.write:
        with open(options.write, "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(made), file, indent=1)


if __name__ == "__main__":
    main()
