"""Workspace policy against policy, over collision rate, size, structure and expression; and how good the automatic choice is.

    python -m benchmarks.workspaces [--quick] [--only TEXT] [--fit] [--json FILE [--forecast]] [--markdown FILE] [--plot FILE]

Every policy runs every point (`workspace_points`) in turn; a cell is the median processor time of its runs. Results are compared between
policies. `regret` is the time of the policy that the cost model takes over that of the best one: under the forecast that the scheduler
makes from facts, and under the true numbers of insertions and entries. `--fit` fits the constants of the cost model to the
points that are there for it and prints them; regret is then that of the fitted constants. The comparison is that of "Compilation of
Modular and General Sparse Workspaces", figures 15 to 18 and 22 and table 3. A plot needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pprint
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.optimize

from benchmarks import workspace_points
from benchmarks.workspace_points import Point
from sparsejax.formats import convert
from sparsejax.formats.storage import Storage
from sparsejax.jit import pipeline
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen import lower
from sparsejax.jit.cost import statistics, workspace_choice, workspace_price
from sparsejax.jit.ir import policies
from sparsejax.jit.runtime import binding
from sparsejax.jit.schedule import assembly, counted, schedules, search

ROUNDS, SECONDS = 15, 0.6  # runs of every policy: at most, and in all
GIVE_UP = 20.0  # a policy that takes so many times as long as the best is not run again
LARGEST = 2**27  # positions of a bitmap that is tried
GOOD = 1.2
PULL = 0.3
BY_HAND = {"start", "block", "whole"}
Run = Callable[[list[Storage]], Storage]


@dataclass(frozen=True)
class Row:
    """What was measured at one point: milliseconds by policy; counts are true ones, `forecast` holds the scheduler's."""

    name: str
    fitted: bool
    shape: tuple[int, ...]
    itemsize: int
    inserts: float
    entries: float
    uses: float
    forecast: tuple[float, float]
    times: dict[str, float]

    def regret(self, constants: workspace_price.Terms, forecast: bool) -> tuple[str, float]:
        """The policy that is chosen, and its time over that of the best."""
        inserts, entries = self.forecast if forecast else (self.inserts, self.entries)
        chosen = workspace_choice.choose(
            self.shape, self.itemsize, inserts, entries, self.uses, constants=constants
        ).policy
        return chosen, self.times.get(chosen, math.nan) / min(self.times.values())


def compiled(point: Point, policy: str) -> Run:
    """The kernel of a point with a policy, and room for the result as a plan would make it."""
    program = pipeline.in_order(point.nest, schedules.unpriced(point.order, policy))
    kernel = compiler.compile_text(lower.lower(program, LLVMBuilder()))
    return binding.Binding(kernel, program.output, "add", counted.output_sizes(point.nest, observed(point))).run


def observed(point: Point) -> statistics.Facts:
    return statistics.of(point.nest, point.inputs)


def seconds(run: Run, inputs: list[Storage]) -> float:
    started = time.thread_time()  # kernels run in one thread; waiting for a busy processor does not count
    run(inputs)
    return time.thread_time() - started


def measure(point: Point, fitted: bool) -> Row:
    """Run every policy at a point."""
    p = assembly.assembly(point.nest.output, point.nest.storage_indices, point.order)[1]
    shape = tuple(point.nest.output.shape[point.nest.indices.index(v)] for v in point.nest.storage_indices[p:])
    tried = [n for n in policies.SPARSE if n not in workspace_choice.DENSE or math.prod(map(float, shape)) <= LARGEST]
    runs = {name: compiled(point, name) for name in tried}
    reference = None
    first = {}
    for name, run in runs.items():
        coords, vals = convert.to_coords(run(point.inputs))
        reference = reference or (coords, vals)
        assert np.array_equal(coords, reference[0]) and np.allclose(vals, reference[1]), f"{point.name}: {name} differs"
        first[name] = seconds(run, point.inputs)
    best = min(first.values())
    slow = {name for name, t in first.items() if t > GIVE_UP * best}
    times: dict[str, list[float]] = {name: [first[name]] if name in slow else [] for name in runs}
    started, rounds = time.thread_time(), 0
    while rounds < 3 or (rounds < ROUNDS and time.thread_time() - started < SECONDS):
        rounds += 1
        for name, run in runs.items():
            if name not in slow:
                times[name].append(seconds(run, point.inputs))
    ones = [replace(s, vals=np.ones_like(s.vals)) for s in point.inputs]
    inserts = float(runs["hash"](ones).vals.sum())  # every insertion adds one
    uses, expected = forecast(point)
    assert reference is not None
    return Row(
        point.name,
        fitted,
        shape,
        point.nest.output.dtype.itemsize,
        inserts,
        float(reference[1].size),
        uses,
        expected,
        {name: 1e3 * median(t) for name, t in times.items()},
    )


def forecast(point: Point) -> tuple[float, tuple[float, float]]:
    """What the scheduler expects: how often the workspace is used; insertions and entries."""
    p = assembly.assembly(point.nest.output, point.nest.storage_indices, point.order)[1]
    known = observed(point)
    loops = counted.loops(point.nest, known, point.order)
    inserts = counted.points(point.nest, known)
    count = min(inserts, search.level_counts(point.nest, known)[-1])
    return loops[p - 1].survivors if p else 1.0, (inserts, count)


def fit(rows: Sequence[Row]) -> workspace_price.Terms:
    """Constants, none negative, with the least squares of relative errors; those `BY_HAND`, and of terms that no row has, stay. What all
    policies take at a row, its loops and the call, is one more unknown per row: at most what the fastest takes."""
    found = {policy: dict(own) for policy, own in workspace_price.NANOSECONDS.items()}
    names = [(policy, name) for policy, own in found.items() for name in own if name not in BY_HAND]
    lines, target, least = [], [], [1e6 * min(row.times.values()) for row in rows]
    for k, row in enumerate(rows):
        terms = workspace_price.terms(row.shape, row.itemsize, row.inserts, row.entries, row.uses)
        for policy, t in row.times.items():
            if policy in terms:
                shared = np.zeros(len(rows))
                shared[k] = least[k]
                counts = [terms[policy].get(n, 0.0) if p == policy else 0.0 for p, n in names]
                lines.append(np.array([*counts, *shared]) / (1e6 * t))
                known = sum(found[policy][n] * terms[policy].get(n, 0.0) for n in BY_HAND & found[policy].keys())
                target.append(max(0.0, 1.0 - known / (1e6 * t)))
    matrix = np.stack(lines)
    shares = (
        np.eye(matrix.shape[1])[len(names) :] * PULL
    )  # a weak pull to nothing: what policies have in common is theirs first
    solved, _ = scipy.optimize.nnls(np.vstack([matrix, shares]), np.concatenate([target, np.zeros(len(rows))]))
    for (policy, name), x, used in zip(names, solved[: len(names)], matrix.any(0), strict=False):
        if used:
            found[policy][name] = float(f"{x:.3g}")
    return found


def summary(rows: Sequence[Row], constants: workspace_price.Terms) -> list[str]:
    """How many points of either half lose less than `GOOD`."""
    lines = []
    for title, part in (("fitted", True), ("held out", False)):
        own = [r for r in rows if r.fitted == part]
        for known, forecast in (("true counts", False), ("the scheduler's forecast", True)):
            losses = [r.regret(constants, forecast)[1] for r in own]
            if losses:
                good = sum(x <= GOOD for x in losses)
                lines.append(
                    f"{title}, {known}: within {GOOD} of the best policy on {good} of {len(own)} points "
                    f"({good / len(own):.0%}), median {median(losses):.2f}, worst {max(losses):.2f}"
                )
    return lines


def table(rows: Sequence[Row], constants: workspace_price.Terms) -> str:
    """The rows as a Markdown table."""
    head = ["point", "insertions", "entries", *policies.SPARSE, "chosen", "regret"]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        chosen, loss = row.regret(constants, True)
        cells = [row.name, f"{row.inserts:.3g}", f"{row.entries:.3g}"]
        best = min(row.times.values())
        for name in policies.SPARSE:
            t = row.times.get(name)
            cells.append("-" if t is None else f"**{t:.3g}**" if t == best else f"{t:.3g}")
        lines.append("| " + " | ".join([*cells, chosen, f"{loss:.2f}"]) + " |")
    return "\n".join([*lines, "", *summary(rows, constants)])


def plot(rows: Sequence[Row], path: str) -> None:
    """Time per insertion of every policy over the collision rate, for workspaces of one variable and of more."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for side, (axis, title) in enumerate(zip(axes, ("one variable (per row)", "several variables"), strict=True)):
        chosen = [r for r in rows if (len(r.shape) > 1) == bool(side)]
        for policy, marker in zip(policies.SPARSE, "oxsv^D", strict=True):
            points = [(r.inserts / r.entries, 1e6 * r.times[policy] / r.inserts) for r in chosen if policy in r.times]
            axis.scatter(*zip(*points, strict=True), s=14, marker=marker, label=policy, alpha=0.75)
        axis.set(xscale="log", yscale="log", xlabel="insertions per entry", title=title)
    axes[0].set_ylabel("ns per insertion")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def points(quick: bool) -> Iterator[tuple[Point, bool]]:
    """Every point, and whether constants are fitted to it."""
    for fitted, families in ((True, workspace_points.fitted), (False, workspace_points.held_out)):
        for family in families(quick):
            yield from ((point, fitted) for point in family())


def measured(quick: bool, only: str) -> Iterator[Row]:
    """Measure the points whose names contain `only`."""
    for point, fitted in points(quick):
        if only in point.name:
            row = measure(point, fitted)
            print(f"{point.name}: " + ", ".join(f"{n} {t:.3g}" for n, t in row.times.items()), flush=True)
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small operands")
    parser.add_argument(
        "--only", default="", help="points whose names contain this; others are kept as --json has them"
    )
    parser.add_argument("--fit", action="store_true", help="fit the constants of the cost model and print them")
    parser.add_argument(
        "--json", help="write what was measured here; read from there instead of measuring where it exists"
    )
    parser.add_argument("--forecast", action="store_true", help="make the forecasts of the rows in --json anew")
    parser.add_argument("--markdown", help="write the table here")
    parser.add_argument("--plot", help="draw the times here")
    options = parser.parse_args()
    known: dict[str, Row] = {}
    if options.json and os.path.exists(options.json):
        known = {row.name: row for row in map(_row, json.loads(Path(options.json).read_text())["rows"])}
    if options.forecast:
        for point, _ in points(options.quick):
            if point.name in known:
                uses, expected = forecast(point)
                known[point.name] = replace(known[point.name], uses=uses, forecast=expected)
    if not known or options.only:
        for row in measured(options.quick, options.only):
            known[row.name] = row
            if options.json:
                Path(options.json).write_text(
                    json.dumps({"rows": [asdict(r) for r in known.values()]}, indent=1) + "\n"
                )
    rows = list(known.values())
    constants = fit([r for r in rows if r.fitted]) if options.fit else workspace_price.NANOSECONDS
    if options.fit:
        pprint.pprint(constants, sort_dicts=False, width=120)
    text = table(rows, constants)
    print(text)
    if options.markdown:
        Path(options.markdown).write_text(text + "\n")
    if options.plot:
        plot(rows, options.plot)


def _row(entry: dict[str, Any]) -> Row:
    return Row(**{**entry, "shape": tuple(entry["shape"]), "forecast": tuple(entry["forecast"])})


if __name__ == "__main__":
    main()
