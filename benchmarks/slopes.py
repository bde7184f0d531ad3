"""Does time grow as the work grows? Every operation on uniform matrices of 10^3 to 10^7 entries, ten per row.

    python -m benchmarks.slopes                      the table: milliseconds per size, and slopes of log time over log entries
    python -m benchmarks.slopes --threads 2 --ops spmm,spgemm
    python -m benchmarks.slopes --quick              up to 10^5 entries

Small sizes cost what a call costs, and cache misses come with large ones, so that the last two decades tell most: a slope near 1 is
time in proportion to entries. Work of every operation here is proportional to entries, times the extent of a dense dimension.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

OPERATIONS = (
    "spmv",
    "spmm32",
    "spgemm",
    "sddmm32",
    "add",
    "mul",
    "rowsum",
    "gcn32",
    "tocsc",
    "coo2csr",
    "mttkrp16",
    "ttm16",
)


def operand(kind: str, entries: int) -> Any:
    """A uniform matrix with ten entries per row, or a tensor with as many per slice."""
    from benchmarks import matrices

    n = max(10, entries // 10)
    if kind != "tensor":
        return matrices.uniform(n, n, entries)
    side = max(10, round(4 * entries ** (1 / 3)))
    return matrices.random_tensor((side, side, side), entries, 1.0)


def seconds(operation: Any, entries: int) -> float:
    """The fastest of some runs, processor time where one thread runs."""
    import sparsejax as sj
    from benchmarks import libraries, operations

    function, arguments = libraries.program(
        operation.stem, operations.operands(operation, operand(operation.kind, entries))
    )
    run, clock = sj.jit(function), time.thread_time if sj.config.num_threads() == 1 else time.perf_counter
    run(*arguments)
    times: list[float] = []
    while len(times) < 3 or (sum(times) < 0.3 and len(times) < 300):
        start = clock()
        run(*arguments)
        times.append(clock() - start)
    return min(times)


def slope(sizes: Sequence[int], times: Sequence[float]) -> float:
    """The slope of log time over log size, by least squares.

    >>> round(slope([10, 100, 1000], [1.0, 10.0, 100.0]), 3)
    1.0
    """
    xs, ys = [math.log(n) for n in sizes], [math.log(t) for t in times]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="comma-separated operations")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="up to 10^5 entries")
    options = parser.parse_args()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "SPARSEJAX_NUM_THREADS"):
        os.environ[name] = str(options.threads)  # before NumPy is imported
    import sparsejax as sj
    from benchmarks import operations

    sj.config.update("num_threads", options.threads)
    known = {o.name: o for o in operations.OPERATIONS}
    wanted = [n for n in options.ops.split(",") if n] or [n for n in OPERATIONS if n in known]
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        sys.exit(f"unknown operations: {', '.join(unknown)}; known are: {', '.join(known)}")
    sizes = [10**k for k in range(3, 6 if options.quick else 8)]
    print(f"| operation | {' | '.join(f'{n:.0e}' for n in sizes)} | slope | last two decades |")
    print("|---" * (len(sizes) + 3) + "|")
    for name in wanted:
        times = []
        for n in sizes:
            times.append(seconds(known[name], n))
            gc.collect()
        cells = " | ".join(f"{1e3 * t:.3g}" for t in times)
        print(f"| {name} | {cells} | {slope(sizes, times):.2f} | {slope(sizes[-3:], times[-3:]):.2f} |", flush=True)


if __name__ == "__main__":
    main()
