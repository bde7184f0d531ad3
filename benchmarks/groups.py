"""Rows in groups beside compressed rows: products of real matrices with dense operands in float32, on one thread.

    python -m benchmarks.groups [--columns 128] [--formats groupcoo:4,groupcoo] [--least 50000] [--matrices 4elt,brack2]

Prints the median of ratios to csr, of calls in turns in a random order; "groupcoo" is the size that `sparsejax.formats.group_size` chooses, which
stands behind. `format/choices` runs under other alternatives than the cheapest: `groupcoo:4/loop_shape=groups`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import sparsejax as sj
from benchmarks import datasets
from sparsejax import config

FORMATS = "csr,groupcoo:2,groupcoo:4,groupcoo:8,groupcoo"
WORK = 6e8
"""Products of numbers that all rounds of a matrix compute, about; at least and at most so many rounds."""
FEWEST, MOST = 15, 60


def prepared(matrix: Any, operand: Any, name: str) -> tuple[Callable[[], Any], str]:
    """A call of the product with a matrix in a format, which has run before; and the name of the format."""
    form, _, choose = name.partition("/")
    A = matrix.asformat(form)
    product = sj.jit(lambda A, B: A @ B)

    def run() -> None:
        with config.using(choose=choose or "auto"):
            product(A, operand)

    for _ in range(3):
        run()
    return run, str(A.format)


def ratios(runs: list[Callable[[], Any]], rounds: int) -> list[float]:
    """The median time of each run over that of the first."""
    rng = np.random.default_rng(0)
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for k in rng.permutation(len(runs)):
            start = time.perf_counter()
            runs[k]()
            times[k].append(time.perf_counter() - start)
    return [statistics.median(t / first for t, first in zip(own, times[0], strict=True)) for own in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--formats", default=FORMATS)
    parser.add_argument("--least", type=int, default=50_000, help="entries of a matrix")
    parser.add_argument("--matrices", default="", help="comma-separated names (default: all)")
    options = parser.parse_args()
    names = ["csr", *(name for name in options.formats.split(",") if name != "csr")]
    logs: list[list[float]] = []
    print(f"{'':28} {'entries':>8} " + " ".join(f"{name[-16:]:>16}" for name in names))
    with config.using(num_threads=1, cache_dir="off"):
        for title in options.matrices.split(",") if options.matrices else datasets.matrix_names():
            matrix = datasets.matrix(title)
            if matrix.nnz < options.least or matrix.dtype.kind == "c":
                continue
            shape = (matrix.shape[1], options.columns)
            operand = sj.asarray(np.random.default_rng(0).normal(size=shape).astype("f4"))
            runs, forms = zip(
                *[prepared(sj.asarray(matrix.astype("f4")), operand, name) for name in names], strict=True
            )
            rounds = int(WORK / (matrix.nnz * options.columns))
            found = ratios(list(runs), max(FEWEST, min(MOST, rounds)))
            logs.append([math.log(ratio) for ratio in found])
            print(
                f"{title[:28]:28} {matrix.nnz:8} " + " ".join(f"{ratio:16.2f}" for ratio in found) + f"   {forms[-1]}",
                flush=True,
            )
    means = [math.exp(statistics.mean(column)) for column in zip(*logs, strict=True)]
    print(f"{'geometric mean':37} " + " ".join(f"{mean:16.2f}" for mean in means))


if __name__ == "__main__":
    main()
