"""Peak memory of sparse products, each point in a fresh process.

    python -m benchmarks.memory [--only TEXT]

A point is run once, so that it is compiled; copies of operands and the result are dropped; then the peak of the resident set is
reset and the point is run again. `peak` is what the second run added at most, with the inputs; `bound` the inputs, the result, and the
workspaces and copies that the forecast declares for them; `forecast` what `memory_analysis()` tells beforehand.
At most twice the bound, and SLACK more for what an allocator keeps, is what is allowed. Needs Linux.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import counting, datasets, matrices, workspace_points
from benchmarks.workspace_points import CSC, CSR, DCSC, DCSR, Point
from sparsejax import jit
from sparsejax import numpy as snp
from sparsejax.core.array import Array
from sparsejax.formats import ingest
from sparsejax.formats.storage import Storage
from sparsejax.jit import pipeline
from sparsejax.jit.cost import statistics
from sparsejax.jit.inspect import forecast, report
from sparsejax.jit.runtime.system import allocator, threads
from sparsejax.jit.schedule import row_blocking, search

SLACK = 2 << 20
ALLOWED = 2.0


def families() -> Iterator[Callable[[], Iterator[Point]]]:
    """Products over every structure; real tensors."""
    yield lambda: workspace_points.uniform(30_000, 8, 2)
    yield lambda: workspace_points.hypersparse(10**6, 200_000, 5)
    yield lambda: workspace_points.hypersparse(2**40, 200_000, 6)
    yield lambda: inner("uniform 2000", 2_000, 40_000, CSR, CSC)
    yield lambda: inner("hypersparse 10^6", 10**6, 4_000, DCSR, DCSC)
    yield lambda: inner("hypersparse 2^40", 2**40, 4_000, DCSR, DCSC)
    rmat = workspace_points.of_scipy(matrices.rmat(13, 40_000))
    yield lambda: workspace_points.products("R-MAT 2^13", rmat, rmat)
    for name in datasets.tensor_names():
        rank = 64 if name == "fb15k-237" else 512
        yield lambda name=name, rank=rank: workspace_points.tensor_points(
            name, workspace_points.real_tensor(name), rank, 0.1, 3
        )


def inner(name: str, n: int, entries: int, rows: object, columns: object) -> Iterator[Point]:
    """The product of a matrix by rows and one by columns, entry by entry of the result."""
    a, b = (workspace_points.scattered((n, n), entries, f, k) for k, f in enumerate((rows, columns)))  # type: ignore[arg-type]
    yield workspace_points.kernel(f"SpGEMM inner {name}", "ik,kj->ij", "ijk", rows, [a, b])  # type: ignore[arg-type]


@dataclass(frozen=True)
class Program:
    """A whole program with its operands, and the bytes that it keeps between them and its result."""

    name: str
    function: Callable[..., Any]
    arguments: list[Array]
    kept: int


def programs() -> Iterator[Callable[[], Program]]:
    """Layers of graph convolution: a product with weights, one with a graph, and a function of that."""
    yield lambda: layer("GCN layer uniform", workspace_points.scattered((65_536, 65_536), 1_000_000, CSR, 0))
    yield lambda: layer("GCN layer R-MAT 2^16", workspace_points.of_scipy(matrices.rmat(16, 1_000_000)))


def layer(name: str, graph: Storage, width: int = 32) -> Program:
    """One layer over `graph`, from as many columns to as many; one panel of rows is kept by every thread."""
    rng = np.random.default_rng(0)
    features, weights = (Array(ingest.as_storage(rng.random((n, width)))) for n in (graph.shape[0], width))
    kept = threads.count() * row_blocking.ROWS * width * 8
    return Program(name, jit(lambda A, H, W: snp.maximum(A @ (H @ W), 0)), [Array(graph), features, weights], kept)


def measure_program(program: Program) -> dict[str, float | str]:
    """Peak and bound of a program, in bytes."""
    made = program.function(*program.arguments)
    size = nbytes([made.storage])
    del made
    given = nbytes([a.storage for a in program.arguments])
    peak = given + _grown(lambda: program.function(*program.arguments))
    return {
        "name": program.name,
        "policy": "-",
        "inputs": given,
        "result": size,
        "declared": program.kept,
        "peak": peak,
        "bound": given + size + program.kept,
        "forecast": given + size + program.kept,
    }


def _grown(run: Callable[[], object]) -> int:
    """What a run adds to the resident set, at most."""
    settle()
    before = status("VmRSS")
    run()
    return status("VmHWM") - before


def settle() -> None:
    """Give up memory that nobody uses, and reset the peak of the resident set."""
    gc.collect()
    allocator.drop()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def status(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(f"{field}:")))


def nbytes(storages: list[Storage]) -> int:
    return sum(s.nbytes for s in storages)


def measure(point: Point) -> dict[str, float | str]:
    """Peak and bound of a point, in bytes."""
    nest, inputs = point.nest, point.inputs
    observed = statistics.of(nest, inputs)
    schedule = search.schedule_of(nest, observed, point.order)
    program = pipeline.program_of(nest, schedule)
    run = counting.plain(nest, schedule, observed)
    spaces = report.workspaces(nest, schedule, program, observed)
    expected = sum(size for *_, size in spaces)
    copies = sum(
        forecast.conversion_bytes(t, read.stored, observed[t.name])
        for t, read in zip(nest.inputs, program.inputs, strict=True)
        if t.format != read.stored
    )
    result = run(inputs)
    made = nbytes([result])
    ones = [replace(s, vals=np.ones_like(s.vals)) for s in inputs]
    inserts = float(run(ones).vals.sum())  # every insertion adds one
    # a workspace for the whole result holds what the result does; others are forecast, and reused
    whole = [forecast.workspace_bytes(t, inserts, result.nnz) if not around else size for t, around, _, size in spaces]
    del result, ones
    for storage in inputs:
        storage.cache.pop("converted", None)
    peak = _grown(lambda: run(inputs)) + nbytes(inputs)
    return {
        "name": point.name,
        "policy": schedule.workspace or "-",
        "inputs": nbytes(inputs),
        "result": made,
        "declared": sum(whole) + copies,
        "peak": peak,
        "bound": nbytes(inputs) + made + sum(whole) + copies,
        "forecast": nbytes(inputs) + expected + copies + forecast.output_bytes(nest, observed),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="points whose names contain this")
    parser.add_argument("--program", type=int, help="measure one program, here")
    parser.add_argument("--point", type=int, nargs=2, help="measure one point of one family, here")
    options = parser.parse_args()
    if options.program is not None:
        print(json.dumps(measure_program(list(programs())[options.program]())))
        return 0
    if options.point is not None:
        family, number = options.point
        print(json.dumps(measure(list(list(families())[family]())[number])))
        return 0
    print("| point | workspace | inputs | result | declared | peak | peak / bound | peak / forecast |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    exceeded = 0
    named = [(["--point", str(f), str(n)], p.name) for f, made in enumerate(families()) for n, p in enumerate(made())]
    named += [(["--program", str(n)], make().name) for n, make in enumerate(programs())]
    for which, name in named:
        if options.only not in name:
            continue
        command = [sys.executable, "-m", "benchmarks.memory", *which]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"| {name} | {done.stderr.strip().splitlines()[-1]} |")
            exceeded += 1
            continue
        row = json.loads(done.stdout)
        sizes = " | ".join(f"{row[k] / 2**20:.2f} MiB" for k in ("inputs", "result", "declared", "peak"))
        over = row["peak"] > ALLOWED * row["bound"] + SLACK
        exceeded += over
        ratio = f"{row['peak'] / row['bound']:.2f}{' (!)' if over else ''}"
        print(f"| {name} | {row['policy']} | {sizes} | {ratio} | {row['peak'] / row['forecast']:.2f} |", flush=True)
    print(f"\n{exceeded} points need more than {ALLOWED:g} times inputs, result and declared workspace")
    return int(exceeded > 0)


if __name__ == "__main__":
    sys.exit(main())
