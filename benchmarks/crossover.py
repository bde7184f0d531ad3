"""From which share of absent blocks on a block-sparse product beats a dense one: a table, and a figure.

    python -m benchmarks.crossover [--size 4096] [--rounds 7] [--native] [--out docs/measurements/crossover.png]

float32, one thread, processor time; NumPy's dense product and ours take turns, and results are compared first. A cell is the median of NumPy's times
over ours: above one, the block-sparse product is faster. With `--native` the best of the C programs of `benchmarks.native_blocks` takes turns too, and has
a row of its own.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import tempfile
import time
from pathlib import Path

# before NumPy is imported: its threads would spin beside what runs next, as its time
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import native_blocks
from benchmarks.native_walk import compiled

SHARES = (20, 30, 35, 40, 50, 65, 80)
"""Percent of the blocks that are absent."""
PRODUCTS = ((32, 128), (32, 512), (8, 128), (8, 512))
"""Rows of a block, and columns of the other operand."""


def ratios(
    size: int, block: int, columns: int, share: int, rounds: int, library: ctypes.CDLL | None = None
) -> list[float]:
    """NumPy's time over ours, and over that of the best C program, where there is a library of these."""
    rng = np.random.default_rng(share)
    kept = rng.random((size // block, size // block)) * 100 >= share
    dense = rng.standard_normal((size, size), np.float32) * np.kron(kept, np.ones((block, block), np.float32))
    other = rng.standard_normal((size, columns), np.float32)
    A, B, product = sj.array(dense, format=f"bsr:{block}x{block}"), sj.array(other), sj.jit(lambda A, B: A @ B)
    runs = [lambda: dense @ other, lambda: product(A, B).todense()]
    if library is not None:
        walks = native_blocks.blocks_of(library, sp.bsr_array(dense, blocksize=(block, block)), other)
        runs.append(walks[native_blocks.fastest(walks, 3)])
    expected = dense @ other
    for run in runs[1:]:
        np.testing.assert_allclose(run(), expected, atol=1e-4 * abs(expected).max())
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, found in zip(runs, times, strict=True):
            started = time.process_time()
            run()
            found.append(time.process_time() - started)
    return [statistics.median(x / y for x, y in zip(times[0], found, strict=True)) for found in times[1:]]


def drawn(table: dict[tuple[int, int], list[float]], path: Path) -> None:
    """The table as curves, with the line at which both take as long."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.6))
    for (block, columns), ratios in table.items():
        axes.plot(SHARES, ratios, marker="o", label=f"{block} x {block}, {columns} columns")
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel("percent of blocks absent")
    axes.set_ylabel("NumPy's dense time over ours")
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--native", action="store_true", help="C programs too")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print(f"| percent absent | {' | '.join(map(str, SHARES))} |\n|---{'|---' * len(SHARES)}|")
    table = {}
    with tempfile.TemporaryDirectory() as folder, sj.config.using(num_threads=1):
        library = compiled(Path(folder), native_blocks.source()) if options.native else None
        for block, columns in PRODUCTS:
            found = [ratios(options.size, block, columns, s, options.rounds, library) for s in SHARES]
            ours, *others = ([cell[k] for cell in found] for k in range(len(found[0])))
            table[block, columns] = ours
            for name, row in zip(("", ", C"), (ours, *others), strict=False):
                cells = " | ".join(f"{x:.2f}" for x in row)
                print(f"| {block} x {block}, {columns} columns{name} | {cells} |", flush=True)
    if options.out is not None:
        drawn(table, options.out)


if __name__ == "__main__":
    main()
