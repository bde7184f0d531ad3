"""Tall and narrow products of dense operands: OpenBLAS beside a kernel, on one thread, over extents of the second operand.

    python -m benchmarks.narrow [--rows 1024,16384] [--dtype f8]

`NARROW` of `sparsejax/lax/contract.py` is the largest second operand with which the kernel is clearly faster on all rows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import threadpoolctl

import sparsejax as sj
import sparsejax.lax.contract
from sparsejax import config

EXTENTS = ((16, 16), (32, 32), (64, 64), (128, 128), (256, 256), (512, 16), (16, 512), (1433, 16))
ROUNDS = 15
contract: Any = sys.modules["sparsejax.lax.contract"]


def compiled(narrow: int, x: Any, y: Any) -> Callable[[], Any]:
    """The product, by a kernel where the second operand has at most `narrow` bytes."""
    kept = contract.NARROW, contract.MANY
    contract.NARROW, contract.MANY = narrow, 0
    try:
        made = sj.jit(lambda x, y: x @ y)
        made(x, y)
    finally:
        contract.NARROW, contract.MANY = kept
    return lambda: made(x, y)


def medians(functions: list[Callable[[], Any]]) -> list[float]:
    """Medians of interleaved rounds, in seconds of this thread."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(ROUNDS):
        for run, own in zip(functions, times, strict=True):
            start = time.thread_time()
            run()
            own.append(time.thread_time() - start)
    return [statistics.median(own) for own in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1024,2708,16384,65536")
    parser.add_argument("--dtype", default="f8")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    print("| rows | second operand | KiB | BLAS Gflop/s | kernel Gflop/s | ratio |\n|---:|---|---:|---:|---:|---:|")
    with config.using(num_threads=1), threadpoolctl.threadpool_limits(1):
        for rows in map(int, options.rows.split(",")):
            for inner, columns in EXTENTS:
                x = sj.array(rng.standard_normal((rows, inner)).astype(options.dtype))
                y = sj.array(rng.standard_normal((inner, columns)).astype(options.dtype))
                library, own = medians([compiled(0, x, y), compiled(sys.maxsize, x, y)])
                work, size = 2e-9 * rows * inner * columns, inner * columns * np.dtype(options.dtype).itemsize
                print(
                    f"| {rows} | {inner} x {columns} | {size >> 10} | {work / library:.1f} | {work / own:.1f} | {library / own:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
