"""A session at a prompt: fifty different operations on operands of fifty different shapes, each once, in a process of its own.

    python -m benchmarks.session                 five processes after one that fills the folder of plans and machine code
    python -m benchmarks.session --processes 9   medians over more

Operands exist before the clock starts. Every result is compared with NumPy's of dense arrays, and SciPy's or NumPy's time for the same operations in
the same process stands beside ours. The first process has an empty folder; the others find what it left.
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
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg

AIM = 100
"""Milliseconds that fifty operations may take in a second process."""


@dataclass
class Side:
    """Operands of one shape (m, n): sparse A, B (m, n) and C (n, k); dense x (n,), y (m,), X (n, k), Y (m, k); an index array, a mask of rows."""

    A: Any
    B: Any
    C: Any
    x: Any
    y: Any
    X: Any
    Y: Any
    rows: Any
    mask: Any
    snp: Any


Operation = Callable[[Side], Any]


def _softmax(s: Side) -> Any:
    if s.snp is not np:
        import sparsejax as sj

        return sj.nn.softmax(s.Y, axis=1)
    e = np.exp(s.Y - s.Y.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


OPERATIONS: dict[str, Operation | tuple[Operation, Operation]] = {
    "A @ x": lambda s: s.A @ s.x,
    "A @ X": lambda s: s.A @ s.X,
    "A.T @ y": lambda s: s.A.T @ s.y,
    "A @ C": lambda s: s.A @ s.C,
    "A.T @ B": lambda s: s.A.T @ s.B,
    "y @ A": lambda s: s.y @ s.A,
    "Y.T @ A": lambda s: s.Y.T @ s.A,
    "A * 2": lambda s: s.A * 2,
    "-A": lambda s: -s.A,
    "abs(A)": lambda s: abs(s.A),
    "A + B": lambda s: s.A + s.B,
    "A - B": lambda s: s.A - s.B,
    "A * B": (lambda s: s.A * s.B, lambda s: s.A.multiply(s.B)),
    "A * x": (lambda s: s.A * s.x, lambda s: s.A.multiply(s.x).tocsr()),
    "A * y[:, None]": (lambda s: s.A * s.y[:, None], lambda s: s.A.multiply(s.y[:, None]).tocsr()),
    "A / 3": lambda s: s.A / 3,
    "A > 0.5": lambda s: s.A > 0.5,
    "A != B": lambda s: s.A != s.B,
    "maximum": (lambda s: s.snp.maximum(s.A, s.B), lambda s: s.A.maximum(s.B)),
    "tanh": (lambda s: s.snp.tanh(s.A), lambda s: s.A.tanh()),
    "expm1": (lambda s: s.snp.expm1(s.A), lambda s: s.A.expm1()),
    "sign": (lambda s: s.snp.sign(s.A), lambda s: s.A.sign()),
    "sum": lambda s: s.A.sum(),
    "sum(0)": lambda s: s.A.sum(axis=0),
    "sum(1)": lambda s: s.A.sum(axis=1),
    "mean(1)": lambda s: s.A.mean(axis=1),
    "max": lambda s: s.A.max(),
    "max(0)": lambda s: s.A.max(axis=0),
    "min(1)": lambda s: s.A.min(axis=1),
    "argmax(1)": lambda s: s.A.argmax(axis=1),
    "norm": (lambda s: s.snp.linalg.norm(s.A), lambda s: scipy.sparse.linalg.norm(s.A)),
    "norm(1)": (lambda s: s.snp.linalg.norm(s.A, axis=1), lambda s: scipy.sparse.linalg.norm(s.A, axis=1)),
    "count_nonzero(0)": (lambda s: s.snp.count_nonzero(s.A, axis=0), lambda s: s.A.count_nonzero(axis=0)),
    "A[3:]": lambda s: s.A[3:],
    "A[::2]": lambda s: s.A[::2],
    "A[:, 2:9]": lambda s: s.A[:, 2:9],
    "A[2:9, 1:7]": lambda s: s.A[2:9, 1:7],
    "A[rows]": lambda s: s.A[s.rows],
    "A[mask]": lambda s: s.A[s.mask],
    "A[5]": lambda s: s.A[5],
    "A[:, 5]": lambda s: s.A[:, 5],
    "diagonal": lambda s: s.A.diagonal(),
    "vstack": (lambda s: s.snp.vstack([s.A, s.B]), lambda s: sp.vstack([s.A, s.B])),
    "hstack": (lambda s: s.snp.hstack([s.A, s.B]), lambda s: sp.hstack([s.A, s.B], "csr")),
    "kron": (lambda s: s.snp.kron(s.A, s.B), lambda s: sp.kron(s.A, s.B, "csr")),
    "tocsc": (lambda s: s.A.asformat("csc"), lambda s: s.A.tocsc()),
    "tocoo": (lambda s: s.A.asformat("coo"), lambda s: s.A.tocoo()),
    "tril": (lambda s: s.snp.tril(s.A), lambda s: sp.tril(s.A, format="csr")),
    "einsum": (
        lambda s: s.snp.einsum("ij,ik,jk->ij", s.A, s.Y, s.X),
        lambda s: s.A.multiply(s.Y @ s.X.T).tocsr(),
    ),
    "softmax": _softmax,
}


def sides(number: int) -> tuple[Side, Side]:
    """Operands of a shape that no other operation has: ours, and SciPy's."""
    import sparsejax as sj
    import sparsejax.numpy as snp

    rng = np.random.default_rng(number)
    m, n, k = 20 + 3 * number, 230 - 4 * number, 4 + number % 7

    def sparse(rows: int, columns: int) -> Any:
        return sp.random_array((rows, columns), density=0.08, format="csr", rng=rng)

    A, B, C = sparse(m, n), sparse(m, n), sparse(n, k)
    x, y, X, Y = (rng.standard_normal(shape) for shape in (n, m, (n, k), (m, k)))
    rows, mask = rng.integers(0, m, m // 2), rng.random(m) < 0.5
    theirs = Side(A, B, C, x, y, X, Y, rows, mask, np)
    return Side(*map(sj.array, (A, B, C)), *map(sj.array, (x, y, X, Y)), rows, mask, snp), theirs


def plain(result: Any) -> np.ndarray[Any, Any]:
    dense = result.todense() if hasattr(result, "todense") else result
    return np.asarray(dense)


def child() -> None:
    """In a process of its own: print the milliseconds of all operations, ours and SciPy's, and of each of ours."""
    from sparsejax.jit.backend import compiler

    operands = [sides(number) for number in range(len(OPERATIONS))]
    runs = [(name, *(how if isinstance(how, tuple) else (how, how))) for name, how in OPERATIONS.items()]
    gc.collect()
    taken, results = {}, []
    for (name, run, _), (ours, _) in zip(runs, operands, strict=True):
        started = time.perf_counter()
        results.append(run(ours))
        taken[name] = 1e3 * (time.perf_counter() - started)
    expected, middle = [], time.perf_counter()
    for (_, _, run), (_, theirs) in zip(runs, operands, strict=True):
        expected.append(run(theirs))
    spent = 1e3 * (time.perf_counter() - middle)
    for (name, _, _), a, b in zip(runs, results, expected, strict=True):
        left, right = plain(a), plain(b)
        assert left.shape == right.shape, f"{name}: shapes {left.shape} and {right.shape}"
        assert np.allclose(left, right), f"{name}: values differ from SciPy's"
    print(json.dumps([sum(taken.values()), spent, compiler.compile_count(), taken]))


def spawn(folder: str) -> Any:
    one = dict.fromkeys(("SPARSEJAX_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    environment = {**os.environ, **one, "SPARSEJAX_CACHE_DIR": folder}
    command = [sys.executable, "-m", "benchmarks.session", "--child"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=5, help="processes with a warm folder")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child()
    with tempfile.TemporaryDirectory() as folder:
        first, *later = [spawn(folder) for _ in range(1 + options.processes)]
    ours, theirs = (statistics.median(found[k] for found in later) for k in (0, 1))
    print(f"{len(OPERATIONS)} operations on as many shapes: {ours:.1f} ms (aim {AIM}), SciPy and NumPy {theirs:.1f} ms")
    print("processes:", ", ".join(f"{found[0]:.1f}" for found in later), f"; kernels compiled {later[0][2]}")
    print(f"with an empty folder: {first[0]:.0f} ms, {first[2]} kernels compiled")
    each = {name: statistics.median(found[3][name] for found in later) for name in OPERATIONS}
    print("slowest:", ", ".join(f"{name} {t:.1f}" for name, t in sorted(each.items(), key=lambda x: -x[1])[:10]))


if __name__ == "__main__":
    main()
