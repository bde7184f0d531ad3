"""Block sparse matrices against SciPy's bsr_array: times of A @ x, A @ H, A + A and A @ A over block sizes.

    python -m benchmarks.blocks [--repeats 15] [--out table.md]

Both sides read the same buffers and take turns; a cell is the median of SciPy's times, the median of ours, both in milliseconds,
and the quotient. Results are compared first.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj

SIZES = (2, 3, 4, 8)
ROWS, PER_ROW, WIDTH, SMALL = 40_000, 40, 32, 4_000


def blocked(rows: int, b: int, per_row: int) -> sp.bsr_array:
    """Square, with `per_row` random blocks of b x b in every row of blocks."""
    rng = np.random.default_rng(b)
    count = rows // b
    indices = np.concatenate([np.sort(rng.choice(count, per_row, replace=False)) for _ in range(count)])
    indptr = np.arange(0, count * per_row + 1, per_row, dtype=np.int32)
    data = rng.standard_normal((count * per_row, b, b))
    return sp.bsr_array((data, indices.astype(np.int32), indptr), shape=(count * b, count * b))


def medians(runs: list[Callable[[], Any]], repeats: int) -> list[float]:
    """Milliseconds, the runs taking turns."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for run, found in zip(runs, times, strict=True):
            started = time.perf_counter()
            run()
            found.append(1e3 * (time.perf_counter() - started))
    return [statistics.median(found) for found in times]


def cell(theirs: Callable[[], Any], ours: Callable[[], Any], repeats: int) -> str:
    want = theirs()
    np.testing.assert_allclose(ours().todense(), want.toarray() if sp.issparse(want) else want, rtol=1e-9, atol=1e-9)
    x, y = medians([theirs, ours], repeats)
    return f"{x:.2f} / {y:.2f} = {x / y:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    product, add = sj.jit(lambda a, b: a @ b), sj.jit(lambda a, b: a + b)
    rng = np.random.default_rng(0)
    lines = ["| blocks | A @ x | A @ H (32) | A + A | A @ A |", "|---|---|---|---|---|"]
    for b in SIZES:
        S, s = blocked(ROWS, b, max(2, PER_ROW // b)), blocked(SMALL, b, 6)
        x, H = rng.standard_normal(S.shape[1]), rng.standard_normal((S.shape[1], WIDTH))
        A, a, X, HH = sj.array(S), sj.array(s), sj.array(x), sj.array(H)
        pairs: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
            (lambda S=S, x=x: S @ x, lambda A=A, X=X: product(A, X)),
            (lambda S=S, H=H: S @ H, lambda A=A, HH=HH: product(A, HH)),
            (lambda s=s: s + s, lambda a=a: add(a, a)),
            (lambda s=s: s @ s, lambda a=a: product(a, a)),
        ]
        lines.append(f"| {b} x {b} | " + " | ".join(cell(*pair, options.repeats) for pair in pairs) + " |")
        print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
