"""The measuring loop and the tables."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import datasets, summary
from benchmarks.libraries import LIBRARIES, comparable, cost, program
from benchmarks.matrices import MATRICES, QUICK, TENSORS
from benchmarks.operations import OPERATIONS, Data, Operation, Run, agree, operands
from benchmarks.store import Row, Store

SAMPLE, PAUSE, WAKING = 1e-3, 3e-3, 1e-2
"""Seconds that a sample takes at least; between two libraries with several threads; of a run that waking threads would distort."""
LARGEST_PRODUCT = 3e8  # multiplications in A @ A beyond which a matrix is left out of the products


def chosen(text: str, known: list[str], what: str) -> list[str]:
    """The names in a comma-separated option; one that does not exist ends the program."""
    names = [name for name in text.split(",") if name]
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"unknown {what}: {', '.join(unknown)}; known are: {', '.join(known)}")
    return names


def rows(options: Namespace) -> Iterator[tuple[Operation, str, Callable[[], Any]]]:
    """(operation, matrix name, loader) for every row of the table; `spmm` selects `spmm32` and `spmm128`."""
    known = list(dict.fromkeys(name for o in OPERATIONS for name in (o.stem, o.name)))
    wanted = chosen(options.ops, known, "operations")
    selected = [o for o in OPERATIONS if not wanted or o.name in wanted or o.stem in wanted]
    if options.matrices == "real":
        if datasets.folder() is None:
            sys.exit("the real data is absent: set SPARSEJAX_DATA to its folder")
        matrices = {name: functools.partial(datasets.matrix, name) for name in datasets.matrix_names()}
        tensors = {name: functools.partial(datasets.tensor, name) for name in datasets.tensor_names()}
        names = list(matrices) + list(tensors)
    else:
        matrices, tensors = dict(MATRICES), dict(TENSORS)
        matrices |= {
            name: functools.partial(datasets.matrix, name) for name in set(datasets.matrix_names()) - {*MATRICES}
        }
        default = ",".join(QUICK) if options.quick else ""
        names = chosen(options.matrices or default, [*matrices, *tensors], "matrices")
    for operation in selected:
        table = tensors if operation.kind == "tensor" else matrices
        for name in names or operation.matrices:
            if name in table:
                yield operation, name, table[name]


def installed(libraries: list[str]) -> list[str]:
    """The libraries that are there; the others are named."""
    found = {name: importlib.util.find_spec(name) for name in libraries}
    missing = [name for name, spec in found.items() if spec is None]
    if missing:
        print(f"not installed, columns left out: {', '.join(missing)}\n")
    return [name for name in libraries if name not in missing]


def fits(operation: Operation, matrix: Any) -> bool:
    """Whether an operation makes sense on a matrix and takes seconds rather than minutes."""
    if (operation.kind == "pattern" or operation.stem == "softmax") and np.iscomplexobj(matrix.data):
        return False  # complex numbers have no largest
    if operation.kind not in ("square", "pattern"):
        return True
    if matrix.shape[0] != matrix.shape[1]:
        return False
    uses = np.bincount(matrix.indices, minlength=matrix.shape[1])
    return float(np.dot(uses, np.diff(matrix.indptr))) <= LARGEST_PRODUCT


def programs(options: Namespace) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """The rows as functions of our arrays, with these."""
    for operation, name, load in rows(options):
        matrix = load()
        if fits(operation, matrix):
            yield f"{operation.name} {name}", *program(operation.stem, operands(operation, matrix))


def prepared(operation: Operation, data: Data, libraries: list[str]) -> tuple[dict[str, Run], dict[str, str]]:
    """The runs whose results equal SciPy's, and what is wrong with the others."""
    runs: dict[str, Run] = {}
    faults: dict[str, str] = {}
    expected = None
    for library in libraries:
        try:
            made = LIBRARIES[library](operation.stem, data)
            if made is None:
                continue
            result = comparable(made())
        except Exception as error:  # whatever a library throws is a cell of the table, not the end of it
            faults[library] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            continue
        if library == "scipy":
            expected = result
        elif not agree(operation, data, result, expected):
            faults[library] = "its result differs from SciPy's"
            continue
        runs[library] = made
    return runs, faults


def measure(runs: dict[str, Run], seconds: float, threads: int = 1) -> dict[str, float]:
    """Median seconds of each, run in turn; each has run once before, to be checked. Short runs are timed many at a time. A peer that
    takes longer than a whole row should (some take minutes where SciPy takes milliseconds) is timed once and left out of the rounds.

    With several threads, everybody waits before its turn until the threads of the one before sleep, and runs once untimed to wake its
    own: libraries let their threads spin for milliseconds, on cores that the next one needs.
    """
    first = {}
    for name, run in runs.items():
        first[name] = _seconds(run)
        if first[name] < WAKING:  # the first run after another library's finds nothing in the caches
            first[name] = min(_seconds(run) for _ in range(5))
    slow = {name: t for name, t in first.items() if t > max(1.0, seconds) and name not in ("scipy", "sparsejax")}
    repeats = {name: max(1, int(SAMPLE / max(t, 1e-7))) for name, t in first.items() if name not in slow}
    longest = max(SAMPLE, *(t for name, t in first.items() if name not in slow))
    rounds = max(3, min(200, int(seconds / longest)))
    times: dict[str, list[float]] = {name: [] for name in repeats}
    for _ in range(rounds):
        for name, collected in times.items():
            run, repeat = runs[name], repeats[name]
            if threads > 1:
                time.sleep(PAUSE)
                if first[name] < WAKING:
                    run()
            start = time.perf_counter()
            for _ in range(repeat):
                run()
            collected.append((time.perf_counter() - start) / repeat)
    return {name: statistics.median(t) for name, t in times.items()} | slow


def _seconds(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _version(name: str) -> str:
    """The version of a package, which need not be installed."""
    try:
        return importlib.metadata.version({"graphblas": "python-graphblas"}.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        return str(importlib.import_module(name).__version__)


def environment(options: Namespace, libraries: list[str]) -> dict[str, Any]:
    """What the figures were measured with."""
    versions = {name: _version(name) for name in ("numpy", *libraries)}
    return {
        "versions": versions,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": options.threads,
    }


def run(options: Namespace) -> int:
    """Measure every row that is not known yet, print the tables, and return 1 if a result of sparsejax was wrong."""
    asked = chosen(options.peers, [name for name in LIBRARIES if name not in ("scipy", "sparsejax")], "peers")
    libraries = installed(["scipy", "sparsejax", *asked])
    others = [name for name in libraries if name != "scipy"]
    planned = list(rows(options))  # wrong names end the program here, before the table begins
    store = Store(options.json)
    store.note(environment(options, libraries))
    print("Speed relative to SciPy: above 1 is faster. Medians of interleaved rounds.\n")
    print(f"| operation | matrix | scipy ms | {' | '.join(others)} |")
    print("|---" * (len(others) + 3) + "|")
    measured = []
    loaded: tuple[Callable[[], Any] | None, Any] = None, None  # a matrix serves the operations that follow
    for operation, name, loader in planned:
        key = operation.name, name, options.dtype, options.threads
        row = None if options.again else store.known(key, libraries)
        if row is None:
            if loaded[0] is not loader:
                loaded = loader, loader()
            row = measured_row(operation, name, loaded[1], libraries, options)
            if row is None:
                continue
            store.add(row)
        measured.append(row)
        print(line(row, others), flush=True)
    if not measured:
        print("no row was measured: no chosen operation has operands among the chosen matrices")
    print()
    print(summary.tables(measured))
    return 1 if not measured or any("sparsejax" in row["faults"] for row in measured) else 0


def measured_row(operation: Operation, name: str, matrix: Any, libraries: list[str], options: Namespace) -> Row | None:
    """One row of the table; None where the operation makes no sense on the matrix."""
    if not fits(operation, matrix):
        return None
    data = operands(operation, matrix, options.dtype)
    runs, faults = prepared(operation, data, libraries)
    if "scipy" not in runs:
        return None
    return {
        "operation": operation.name,
        "matrix": name,
        "dtype": options.dtype,
        "threads": options.threads,
        "asked": libraries,
        "seconds": measure(runs, options.seconds, options.threads),
        "faults": faults,
        "cost": cost(operation.stem, data) if options.json and "sparsejax" in runs else {},
    }


def line(row: Row, others: list[str]) -> str:
    """A row of the table that is printed meanwhile."""
    seconds = row["seconds"]
    cells = [
        f"{seconds['scipy'] / seconds[name]:.2f}" if name in seconds else "wrong" if name in row["faults"] else ""
        for name in others
    ]
    return f"| {row['operation']} | {row['matrix']} | {1e3 * seconds['scipy']:.3f} | {' | '.join(cells)} |"
