"""The measuring loop and the tables."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import datasets
from benchmarks.libraries import LIBRARIES, comparable
from benchmarks.matrices import MATRICES, QUICK, TENSORS
from benchmarks.operations import OPERATIONS, Data, Operation, Run, agree, operands

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
        default = ",".join(QUICK) if options.quick else ""
        names = chosen(options.matrices or default, [*MATRICES, *TENSORS], "matrices")
    for operation in selected:
        table = tensors if operation.kind == "tensor" else matrices
        for name in names or operation.matrices:
            if name in table:
                yield operation, name, table[name]


def installed(libraries: list[str]) -> list[str]:
    """The libraries that are there; the others are named."""
    missing = [name for name in libraries if importlib.util.find_spec(name) is None]
    if missing:
        print(f"not installed, columns left out: {', '.join(missing)}\n")
    return [name for name in libraries if name not in missing]


def fits(operation: Operation, matrix: Any) -> bool:
    """Whether an operation makes sense on a matrix and takes seconds rather than minutes."""
    if operation.kind == "pattern" and np.iscomplexobj(matrix.data):
        return False
    if operation.kind not in ("square", "pattern"):
        return True
    if matrix.shape[0] != matrix.shape[1]:
        return False
    uses = np.bincount(matrix.indices, minlength=matrix.shape[1])
    return float(np.dot(uses, np.diff(matrix.indptr))) <= LARGEST_PRODUCT


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


def measure(runs: dict[str, Run], seconds: float) -> dict[str, float]:
    """Median seconds of each, run in turn; each has run once before, to be checked. A peer that takes longer than a whole row
    should (some take minutes where SciPy takes milliseconds) is timed once and left out of the rounds."""
    first = {}
    for name, run in runs.items():
        start = time.perf_counter()
        run()
        first[name] = time.perf_counter() - start
    slow = {name: t for name, t in first.items() if t > max(1.0, seconds) and name not in ("scipy", "sparsejax")}
    rounds = max(3, min(200, int(seconds / max(1e-6, *(t for name, t in first.items() if name not in slow)))))
    times: dict[str, list[float]] = {name: [] for name in runs if name not in slow}
    for _ in range(rounds):
        for name, collected in times.items():
            start = time.perf_counter()
            runs[name]()
            collected.append(time.perf_counter() - start)
    return {name: statistics.median(t) for name, t in times.items()} | slow


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def environment(options: Namespace, libraries: list[str]) -> dict[str, Any]:
    """What the figures were measured with."""
    packages = ["numpy", *libraries]
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "versions": versions,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": options.threads,
    }


def run(options: Namespace) -> int:
    """Measure every row, print the tables, and return 1 if a result of sparsejax was wrong."""
    asked = chosen(options.peers, [name for name in LIBRARIES if name not in ("scipy", "sparsejax")], "peers")
    libraries = installed(["scipy", "sparsejax", *asked])
    others = [name for name in libraries if name != "scipy"]
    planned = list(rows(options))  # wrong names end the program here, before the table begins
    print("Speed relative to SciPy: above 1 is faster. Medians of interleaved rounds.\n")
    print(f"| operation | matrix | scipy ms | {' | '.join(others)} |")
    print("|---" * (len(others) + 3) + "|")
    ratios: dict[str, dict[str, list[float]]] = {}
    measured = []
    complaints = []
    load = functools.cache(lambda loader: loader())  # a matrix serves several operations
    for operation, name, loader in planned:
        matrix = load(loader)
        if not fits(operation, matrix):
            continue
        data = operands(operation, matrix)
        runs, faults = prepared(operation, data, libraries)
        complaints += [(library, f"{library}, {operation.name} on {name}: {text}") for library, text in faults.items()]
        if "scipy" not in runs:
            continue
        seconds = measure(runs, options.seconds)
        measured.append({"operation": operation.name, "matrix": name, "seconds": seconds, "faults": faults})
        cells = []
        for library in others:
            if library in seconds:
                ratio = seconds["scipy"] / seconds[library]
                ratios.setdefault(operation.name, {}).setdefault(library, []).append(ratio)
                cells.append(f"{ratio:.2f}")
            else:
                cells.append("wrong" if library in faults else "")
        print(f"| {operation.name} | {name} | {1e3 * seconds['scipy']:.3f} | {' | '.join(cells)} |", flush=True)
    if not measured:
        print("no row was measured: no chosen operation has operands among the chosen matrices")
    summary(ratios, others)
    for _, text in complaints:
        print(text)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"environment": environment(options, libraries), "rows": measured}, file, indent=1)
    return 1 if not measured or any(library == "sparsejax" for library, _ in complaints) else 0


def summary(ratios: dict[str, dict[str, list[float]]], libraries: list[str]) -> None:
    """Geometric means over matrices, each library over the rows it has (their number in brackets where rows are missing)."""
    print("\nGeometric means over matrices, relative to SciPy\n")
    print(f"| operation | matrices | {' | '.join(libraries)} | slowest sparsejax row |")
    print("|---" * (len(libraries) + 3) + "|")
    for operation, found in ratios.items():
        count = max(map(len, found.values()))
        cells = []
        for library in libraries:
            values = found.get(library, [])
            note = "" if len(values) == count else f" ({len(values)})"
            cells.append(f"{geometric_mean(values):.2f}{note}" if values else "")
        slowest = f"{min(found['sparsejax']):.2f}" if "sparsejax" in found else ""
        print(f"| {operation} | {count} | {' | '.join(cells)} | {slowest} |")
    print()
