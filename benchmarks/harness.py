"""The measuring loop and the table."""

from __future__ import annotations

import importlib
import json
import math
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import datasets
from benchmarks.matrices import MATRICES, TENSORS
from benchmarks.operations import LIBRARIES, OPERATIONS, Operation, operands

LARGEST_PRODUCT = 3e8  # flops of A @ A beyond which a real matrix is left out of spgemm


def rows(options: Namespace) -> Iterator[tuple[Operation, str, Callable[[], Any]]]:
    """(operation, matrix name, loader) for every row of the table."""
    chosen = [o for o in OPERATIONS if not options.ops or o.name in options.ops.split(",")]
    if options.matrices == "real":
        for name in datasets.matrix_names():
            for operation in chosen:
                if operation.kind != "tensor":
                    yield operation, name, lambda name=name: datasets.matrix(name)
        for name in datasets.tensor_names():
            for operation in chosen:
                if operation.kind == "tensor":
                    yield operation, name, lambda name=name: datasets.tensor(name)
        return
    wanted = options.matrices.split(",") if options.matrices else None
    for operation in chosen:
        for name in operation.matrices if wanted is None else wanted:
            table = TENSORS if operation.kind == "tensor" else MATRICES
            if name in table:
                yield operation, name, table[name]


def dense_of(result: Any) -> Any:
    """Something comparable: a sparse result as csr, others as NumPy."""
    if hasattr(result, "to_scipy"):
        if result.format.is_dense:
            return result.todense()
        return result.to_scipy() if result.ndim == 2 else result.storage.vals
    return result


def agree(ours: Any, theirs: Any) -> bool:
    """Whether a result equals SciPy's."""
    ours = dense_of(ours)
    if sp.issparse(theirs):
        gap = abs(sp.csr_array(ours) - sp.csr_array(theirs)).max()
        return bool(gap <= 1e-9 * max(1.0, abs(theirs).max()))
    if sp.issparse(ours):
        ours = ours.data
    ours = np.asarray(ours).reshape(-1)
    return bool(np.allclose(ours, np.asarray(theirs).reshape(-1), rtol=1e-9, atol=1e-9))


def measure(runs: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Median time of each, run in turn."""
    first = {}
    for name, run in runs.items():
        run()
        start = time.perf_counter()
        run()
        first[name] = time.perf_counter() - start
    rounds = max(3, min(200, int(seconds / max(1e-6, max(first.values())))))
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) for name, t in times.items()}


def run(options: Namespace) -> int:
    """Measure every row, print the table, and return 1 if any result was wrong."""
    libraries = ["scipy", "sparsejax"]
    for name in filter(None, options.peers.split(",")):
        try:
            importlib.import_module(name)
            libraries.append(name)
        except ImportError:
            print(f"{name} is not installed; its column is left out")
    print(f"| operation | matrix | scipy ms | {' | '.join(libraries[1:])} |")
    print("|---" * (len(libraries) + 2) + "|")
    ratios: dict[str, dict[str, list[float]]] = {}
    medians = {}
    wrong = 0
    for operation, name, load in rows(options):
        matrix = load()
        squares = operation.kind in ("square", "pattern")
        if squares and (matrix.shape[0] != matrix.shape[1] or _flops(matrix) > LARGEST_PRODUCT):
            continue
        if operation.kind == "pattern" and np.iscomplexobj(matrix.data):
            continue
        data = operands(operation, matrix)
        runs = {}
        for library in libraries:
            made = LIBRARIES[library](operation.name, data)
            if made is not None:
                runs[library] = made
        if not agree(runs["sparsejax"](), runs["scipy"]()):
            wrong += 1
            print(f"WRONG: {operation.name} on {name}")
            continue
        found = measure(runs, options.seconds)
        medians[f"{operation.name} {name}"] = found
        cells = []
        for library in libraries[1:]:
            if library in found:
                ratio = found["scipy"] / found[library]
                ratios.setdefault(operation.name, {}).setdefault(library, []).append(ratio)
                cells.append(f"{ratio:.2f}")
            else:
                cells.append("")
        print(f"| {operation.name} | {name} | {1e3 * found['scipy']:.3f} | {' | '.join(cells)} |", flush=True)
    print("\ngeometric means over matrices, relative to SciPy")
    for name, by_library in ratios.items():
        means = ", ".join(f"{lib} {math.exp(statistics.mean(map(math.log, r))):.2f}" for lib, r in by_library.items())
        slowest = min(by_library["sparsejax"])
        print(f"  {name}: {means} (slowest sparsejax row {slowest:.2f})")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(medians, file, indent=1)
    return 1 if wrong else 0


def _flops(matrix: Any) -> float:
    return float(np.dot(np.bincount(matrix.indices, minlength=matrix.shape[1]), np.diff(matrix.indptr)))
