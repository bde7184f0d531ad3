"""What calls cost besides the work: first calls, first calls of a second process, and warm calls on tiny operands beside SciPy.

    python -m benchmarks.first_calls                 three tables
    python -m benchmarks.first_calls --processes 9   medians over more processes
    python -m benchmarks.first_calls --warm          the last table alone

cold      the first call in a process that has compiled another kernel before (LLVM is loaded), nothing on disk
second    the first call of another process that finds plans and machine code on disk, less a warm call; how many kernels LLVM compiled
warm      calls on tiny operands beside SciPy's: a product of 100 entries, a layer of a GCN, a conversion

Milliseconds (warm: microseconds): medians of wall-clock time, and of processor time, which a busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

NAMES = ("spmv", "spmm", "spgemm", "sddmm", "gcn")
AIMS = {"spmv": 30, "spmm": 30, "spgemm": 60, "sddmm": 60, "gcn": 60}
"""Milliseconds that a cold first call may take."""


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The operations, on a matrix of 2,000 rows and 10,000 entries."""
    import numpy as np

    import sparsejax as sj
    import sparsejax.numpy as snp
    from benchmarks import matrices

    A, rng = sj.array(matrices.uniform(2000, 2000, 10_000)), np.random.default_rng(0)
    x, H, V, W = (sj.array(rng.standard_normal(shape)) for shape in (2000, (2000, 32), (2000, 32), (32, 16)))
    return {
        "other": (lambda A: (A * A).sum(axis=0), (A,)),
        "spmv": (lambda A, x: A @ x, (A, x)),
        "spmm": (lambda A, H: A @ H, (A, H)),
        "spgemm": (lambda A, B: A @ B, (A, A)),
        "sddmm": (lambda A, H, V: sj.einsum("ij,ik,jk->ij", A, H, V), (A, H, V)),
        "gcn": (lambda A, H, W: snp.maximum(A @ (H @ W), 0), (A, H, W)),
    }


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds of a call: by the wall clock, and of the processor."""
    wall, processor = time.perf_counter(), time.thread_time()
    run()
    return time.perf_counter() - wall, time.thread_time() - processor


def child(name: str, before: bool) -> None:
    """In a process of its own: print what the first call of an operation takes above a warm one, and compiles."""
    import sparsejax as sj
    from sparsejax.jit.backend import compiler

    known = programs()
    if before:
        function, arguments = known["other"]
        sj.jit(function)(*arguments)
    function, arguments = known[name]
    compiled, count = sj.jit(function), compiler.compile_count()
    gc.collect()  # what imports left behind is not the call's
    first = timed(lambda: compiled(*arguments))
    warm = sorted(timed(lambda: compiled(*arguments)) for _ in range(21))[10]
    print(json.dumps([first[0] - warm[0], first[1] - warm[1], compiler.compile_count() - count]))


def spawn(name: str, folder: str, before: bool) -> list[float]:
    environment = {
        **os.environ,
        "SPARSEJAX_CACHE_DIR": folder,
        "SPARSEJAX_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "benchmarks.first_calls", "--child", name, *(["--before"] if before else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def warm() -> None:
    """Calls on tiny operands, interleaved with SciPy's, many at a time; the first of each group is what the others are compared with."""
    import numpy as np

    import sparsejax as sj
    import sparsejax.numpy as snp
    from benchmarks import matrices

    rng = np.random.default_rng(0)
    S, x = matrices.uniform(50, 50, 100), rng.standard_normal(50)
    A, X, product = sj.array(S, copy=True), sj.array(x, copy=True), sj.jit(lambda A, x: A @ x)
    graph, h, w = matrices.uniform(100, 100, 400), rng.standard_normal((100, 32)), rng.standard_normal((32, 32))
    G, H, W = (sj.array(value, copy=True) for value in (graph, h, w))
    layer = sj.jit(lambda G, H, W: snp.maximum(G @ (H @ W), 0))
    coo = matrices.uniform(2708, 2708, 13_264).tocoo()
    C = sj.array(coo, copy=True)
    groups: list[dict[str, Callable[[], object]]] = [
        {
            "SciPy, A @ x, 100 entries": lambda: S @ x,
            "jitted, both ours": lambda: product(A, X),
            "jitted, NumPy's x": lambda: product(A, x),
            "outside jit": lambda: A @ X,
        },
        {"SciPy, A @ A, 100 entries": lambda: S @ S, "jitted": lambda: product(A, A)},
        {
            "SciPy and NumPy, layer of a GCN, 100 nodes": lambda: np.maximum(graph @ (h @ w), 0),
            "jitted, all ours": lambda: layer(G, H, W),
            "jitted, NumPy's features and weights": lambda: layer(G, h, w),
        },
        {"SciPy, COO to CSR, 13,264 entries": lambda: coo.tocsr(), "ours": lambda: C.tocsr()},
    ]
    runs = [(group, name, run) for group in groups for name, run in group.items()]
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(40):
        for found, (_, _, run) in zip(times, runs, strict=True):
            run()
            start = time.thread_time()
            for _ in range(300):
                run()
            found.append(1e6 * (time.thread_time() - start) / 300)
    print("\n| warm call | microseconds | of SciPy's |\n|---|---|---|")
    base, last = 0.0, None
    for found, (group, name, _) in zip(times, runs, strict=True):
        taken = statistics.median(found)
        base, last = (base if group is last else taken), group
        print(f"| {name} | {taken:.2f} | {taken / base:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=5, help="processes per figure")
    parser.add_argument("--warm", action="store_true", help="the last table alone")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    parser.add_argument("--before", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.before)
        return
    if options.warm:
        warm()
        return
    print("| first call | cold, ms | processor | aim | second process, ms | processor | aim | compiled |")
    print("|---" * 8 + "|")
    for name in NAMES:
        cold = [spawn(name, "off", True) for _ in range(options.processes)]
        with tempfile.TemporaryDirectory() as folder:
            spawn(name, folder, False)
            second = [spawn(name, folder, False) for _ in range(options.processes)]
        a, b, c, d = (1e3 * statistics.median(run[k] for run in runs) for runs in (cold, second) for k in (0, 1))
        print(
            f"| {name} | {a:.1f} | {b:.1f} | {AIMS[name]} | {c:.1f} | {d:.1f} | 5 | {sum(run[2] for run in second)} |",
            flush=True,
        )
    warm()


if __name__ == "__main__":
    main()
