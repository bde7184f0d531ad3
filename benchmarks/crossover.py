"""From which share of absent blocks on a block-sparse product beats a dense one: a table, and a figure.

    python -m benchmarks.crossover [--size 4096] [--rounds 7] [--out docs/measurements/crossover.png]

float32, one thread, processor time; NumPy's dense product and ours take turns, and results are compared first. A cell is the median of NumPy's times
over ours: above one, the block-sparse product is faster.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

import sparsejax as sj

SHARES = (20, 30, 35, 40, 50, 65, 80)
"""Percent of the blocks that are absent."""
PRODUCTS = ((32, 128), (32, 512), (8, 128), (8, 512))
"""Rows of a block, and columns of the other operand."""


def ratio(size: int, block: int, columns: int, share: int, rounds: int) -> float:
    """NumPy's time over ours."""
    rng = np.random.default_rng(share)
    kept = rng.random((size // block, size // block)) * 100 >= share
    dense = rng.standard_normal((size, size), np.float32) * np.kron(kept, np.ones((block, block), np.float32))
    other = rng.standard_normal((size, columns), np.float32)
    A, B, product = sj.array(dense, format=f"bsr:{block}x{block}"), sj.array(other), sj.jit(lambda A, B: A @ B)
    expected = dense @ other
    np.testing.assert_allclose(product(A, B).todense(), expected, atol=1e-4 * abs(expected).max())
    found = []
    for _ in range(rounds):
        started = time.process_time()
        dense @ other
        between = time.process_time()
        product(A, B)
        found.append((between - started) / (time.process_time() - between))
    return statistics.median(found)


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
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print(f"| percent absent | {' | '.join(map(str, SHARES))} |\n|---{'|---' * len(SHARES)}|")
    table = {}
    with sj.config.using(num_threads=1):
        for block, columns in PRODUCTS:
            table[block, columns] = [ratio(options.size, block, columns, s, options.rounds) for s in SHARES]
            cells = " | ".join(f"{x:.2f}" for x in table[block, columns])
            print(f"| {block} x {block}, {columns} columns | {cells} |", flush=True)
    if options.out is not None:
        drawn(table, options.out)


if __name__ == "__main__":
    main()
