"""Backward passes beside forward passes: SpMM, SDDMM, SpGEMM, and a graph convolutional network of two layers.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.backward                    the matrices of benchmarks/matrices.py that are quick
    OPENBLAS_NUM_THREADS=1 python -m benchmarks.backward --matrices cora,rmat16 --columns 64 --seconds 2

Processor time in ms of a call on one thread, medians of interleaved calls, all jitted. forward: the value of half the sum of squares of the
result; both: value and gradient by all operands in one program; backward: both minus forward, over forward. flops: what the products of
the backward pass need, over those of the forward pass: as many products again as there are operands.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from benchmarks.matrices import MATRICES

DEFAULT = "cora,rmat13,dense1k,stencil,uniform"
LARGEST = 5e7  # multiplications of A @ A beyond which it is left out


def half_squares(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: (f(*args) ** 2).sum() / 2


def spmm(A: Any, X: Any) -> Any:
    return A @ X


def sddmm(A: Any, U: Any, W: Any) -> Any:
    return sj.einsum("ij,ik,jk->ij", A, U, W)


def gcn(W1: Any, W2: Any, A: Any, X: Any) -> Any:
    return A @ (snp.maximum(A @ (X @ W1), 0) @ W2)


def cases(matrix: Any, columns: int) -> list[tuple[str, Callable[..., Any], tuple[Any, ...], tuple[int, ...], str]]:
    """(name, function, arguments, the arguments that it is differentiated by, products of the backward pass over forward ones)."""
    rng = np.random.default_rng(0)
    A, n, m = sj.array(matrix), *matrix.shape
    B = sj.array(matrix.copy())
    U, V = rng.standard_normal((n, columns)), rng.standard_normal((m, columns))
    X, W1, W2 = rng.standard_normal((m, 64)), rng.standard_normal((64, 16)) / 8, rng.standard_normal((16, 7)) / 4
    made = [
        ("SpMM by A, X", spmm, (A, V), (0, 1), "2"),
        ("SpMM by X", spmm, (A, V), (1,), "1"),
        ("SDDMM by A, U, W", sddmm, (A, U, V), (0, 1, 2), "3"),
        ("SDDMM by U, W", sddmm, (A, U, V), (1, 2), "2"),
        ("GCN by weights", gcn, (W1, W2, A, X), (0, 1), "1 to 2"),
        ("GCN by weights, A", gcn, (W1, W2, A, X), (0, 1, 2), "2 to 3"),
    ]
    products = np.bincount(matrix.indices, minlength=m) @ np.diff(matrix.indptr)
    if products <= LARGEST:
        made.append(("SpGEMM by A, B", spmm, (A, B), (0, 1), "2"))
        made.append(("SpGEMM A @ A", lambda A: A @ A, (A,), (0,), "2"))
    return made


def interleaved(functions: list[Callable[[], Any]], seconds: float) -> list[float]:
    """Median processor time in ms of a call of each; they take turns."""
    for function in functions:
        function()
    times: list[list[float]] = [[] for _ in functions]
    end = time.process_time() + seconds
    while time.process_time() < end or len(times[0]) < 5:
        for function, found in zip(functions, times, strict=True):
            started = time.process_time()
            function()
            found.append(time.process_time() - started)
    return [1e3 * statistics.median(found) for found in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matrices", default=DEFAULT)
    parser.add_argument("--columns", type=int, default=32)
    parser.add_argument("--only", default="", help="cases whose names begin so")
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    sj.config.update("num_threads", 1)
    print(f"{'':10} {'':20} {'forward':>9} {'both':>9} {'backward':>9} {'flops':>7}")
    for name in options.matrices.split(","):
        for what, f, args, argnums, flops in cases(MATRICES[name](), options.columns):
            if not what.startswith(options.only):
                continue
            loss = half_squares(f)
            forward, both = sj.jit(loss), sj.jit(sj.value_and_grad(loss, argnums))
            one, two = interleaved(
                [lambda run=forward, on=args: run(*on), lambda run=both, on=args: run(*on)],  # type: ignore[misc]
                options.seconds,
            )
            print(f"{name:10} {what:20} {one:9.3f} {two:9.3f} {two / one - 1:9.2f} {flops:>7}", flush=True)


if __name__ == "__main__":
    main()
