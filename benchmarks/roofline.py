"""Where kernels stand under the roofline of this machine: measured bandwidth and peak, operations and bytes by `cost_analysis`.

    python -m benchmarks.roofline results.json                     a line per row: intensity, GFLOP/s, share of the roof
    python -m benchmarks.roofline results.json --plot roofline.png [--dtype f8] [--threads 1] [--ops spmm,sddmm]

    roof(intensity) = min(peak, bandwidth * intensity)        intensity: operations per byte of operands and results

Bandwidth is that of a triad a = b + s c over arrays of 128 MB each, in streaming C order, with one thread per core asked for; peak is that of
a dense product in BLAS. Bytes count every operand and result once: a kernel that finds its operands in caches can lie above the roof.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

from benchmarks.store import Row, Store
from benchmarks.summary import chosen


def bandwidth(threads: int, dtype: str) -> float:
    """Bytes per second of a triad, by a kernel of our own; the result's memory is used again."""
    import numpy as np

    import sparsejax as sj

    n = (128 << 20) // np.dtype(dtype).itemsize
    sj.config.update("num_threads", threads)
    b, c = sj.array(np.ones(n, dtype)), sj.array(np.ones(n, dtype))
    triad = sj.jit(lambda a, b, c: b + c * a[0], donate_argnums=0)
    made = [triad(b + c, b, c)]

    def once() -> None:
        made[0] = triad(made[0], b, c)

    return 3 * n * np.dtype(dtype).itemsize / fastest(once)


def peak(dtype: str) -> float:
    """Operations per second of a dense product."""
    import numpy as np

    x = np.ones((1536, 1536), dtype)
    return 2 * 1536**3 / fastest(lambda: x @ x)


def fastest(run: Callable[[], object], rounds: int = 10) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


Roof = tuple[float, float]
"""Bandwidth and peak."""


def place(row: Row, roof: Roof) -> tuple[float, float, float] | None:
    """Intensity, operations per second and share of the roof of a row; None where it has none."""
    cost, seconds = row["cost"], row["seconds"].get("sparsejax")
    if seconds is None or not cost or not cost["flops"] or not cost["bytes"]:
        return None
    intensity, speed = cost["flops"] / cost["bytes"], cost["flops"] / seconds
    return intensity, speed, speed / min(roof[1], roof[0] * intensity)


def plot(rows: list[Row], roof: Roof, name: str, title: str) -> None:
    """A dot per row, a colour per operation, under the roof."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 6))
    places = {id(row): found for row in rows if (found := place(row, roof)) is not None}
    shown = [row for row in rows if id(row) in places]
    left = min([places[id(r)][0] for r in shown], default=0.01) / 2
    right = max([places[id(r)][0] for r in shown], default=10) * 2
    ridge = roof[1] / roof[0]
    line = [left, ridge, max(right, 2 * ridge)]
    axes.plot(
        line,
        [min(roof[1], roof[0] * x) / 1e9 for x in line],
        "k-",
        label=f"{roof[0] / 1e9:.0f} GB/s, {roof[1] / 1e9:.0f} GFLOP/s",
    )
    for number, operation in enumerate(dict.fromkeys(row["operation"] for row in shown)):
        dots = [places[id(row)] for row in shown if row["operation"] == operation]
        marker = "os^vD"[number // 10 % 5]
        axes.plot([d[0] for d in dots], [d[1] / 1e9 for d in dots], marker, color=f"C{number % 10}", label=operation)
    axes.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="GFLOP/s", title=title)
    axes.legend(fontsize="small", ncols=2)
    figure.tight_layout()
    figure.savefig(name, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="what benchmarks.run --json wrote")
    parser.add_argument("--plot", default="", help="also draw it into this file")
    parser.add_argument("--ops", default="", help="comma-separated operations")
    parser.add_argument("--dtype", default="f8", help="f4 or f8")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = str(options.threads)  # before NumPy is imported
    rows = chosen(Store(options.file).rows(), options.ops, options.dtype, options.threads)
    if not rows:
        sys.exit("the file has no such rows")
    roof = bandwidth(options.threads, options.dtype), peak(options.dtype)
    print(
        f"triad {roof[0] / 1e9:.1f} GB/s, dense product {roof[1] / 1e9:.1f} GFLOP/s, {options.threads} threads, {options.dtype}\n"
    )
    print("| operation | matrix | operations per byte | GFLOP/s | share of the roof |")
    print("|---" * 5 + "|")
    for row in rows:
        found = place(row, roof)
        if found is not None:
            print(
                f"| {row['operation']} | {row['matrix']} | {found[0]:.3g} | {found[1] / 1e9:.3g} | {100 * found[2]:.0f} % |"
            )
    if options.plot:
        plot(rows, roof, options.plot, f"{options.dtype}, {options.threads} threads")


if __name__ == "__main__":
    main()
