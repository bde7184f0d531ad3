"""A block-sparse matrix times a dense one, from the arrays of a blocked format: one indirect einsum.

    python examples/insum_blocks.py --quick                                     a small matrix
    OMP_NUM_THREADS=1 python examples/insum_blocks.py                           4096 x 4096, blocks of 32 x 32, a fifth of them stored, 128 columns
    OMP_NUM_THREADS=1 python examples/insum_blocks.py --block 8 --stored 0.05

The arrays are those of blocks in groups (rows R of the groups, columns K and values V of their blocks), and those of blocks by rows (bsr: where
rows begin, columns, values) with the rows written out. Both products are compared with NumPy's product of the dense matrix, and timed beside it and beside
SciPy's product of the same blocks: processor time of all threads, medians of runs in turn. Exit code 1 if results differ by more than
1e-5 of the largest value.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

GROUPS = "C[R[p],i,n] += V[p,q,i,j] * B[K[p,q],j,n]"
ROWS = "C[R[p],i,n] += V[p,i,j] * B[K[p],j,n]"


def blocks(size: int, block: int, stored: float, rng: np.random.Generator) -> np.ndarray:
    """A matrix of which so large a share of the blocks is stored, at random."""
    kept = rng.random((size // block, size // block)) < stored
    values = rng.standard_normal((size, size), np.float32)
    return values * np.kron(kept, np.ones((block, block), np.float32))


def product(text: str, rows: int) -> Callable[..., Any]:
    """The product by `text` of arrays R, K and V, and of B in blocks of rows: (rows of blocks, rows of a block, columns)."""

    def computed(R: Any, K: Any, V: Any, B: Any) -> Any:
        C = snp.zeros((rows, V.shape[-2], B.shape[-1]), B.dtype)
        return sj.insum(text, C=C, R=R, K=K, V=V, B=B)

    return sj.jit(computed)


def rows_of(A: Any) -> tuple[np.ndarray, Any, Any]:
    """Rows, columns and values of the blocks of a matrix in bsr."""
    counts = np.diff(np.asarray(A.indptr))
    return np.repeat(np.arange(len(counts)), counts), A.indices, A.data


def medians(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Processor seconds of each, medians of runs in turn."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            started = time.process_time()
            run()
            taken[name].append(time.process_time() - started)
    return {name: statistics.median(times) for name, times in taken.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--stored", type=float, default=0.2, help="the share of blocks that are stored")
    parser.add_argument("--quick", action="store_true", help="128 x 128, blocks of 16 x 16, 32 columns")
    options = parser.parse_args(arguments)
    size, block, columns = (128, 16, 32) if options.quick else (options.size, options.block, options.columns)
    rng = np.random.default_rng(0)
    dense = blocks(size, block, options.stored, rng)
    B = rng.standard_normal((size, columns), np.float32)
    stored = sj.array(dense, format=f"bsr:{block}x{block}")
    in_groups, by_rows = sj.formats.to_groupcoo(stored), rows_of(stored)
    peer = sp.bsr_array(dense, blocksize=(block, block))
    parts = B.reshape(-1, block, columns)
    grouped, rowwise = (product(text, size // block) for text in (GROUPS, ROWS))
    runs = {
        "groups": lambda: grouped(*in_groups, parts),
        "rows": lambda: rowwise(*by_rows, parts),
        "NumPy, dense": lambda: dense @ B,
        "SciPy, bsr": lambda: peer @ B,
    }
    expected = dense @ B
    worst = max(np.abs(runs[name]().todense().reshape(size, columns) - expected).max() for name in ("groups", "rows"))
    worst = float(worst / np.abs(expected).max())
    R, K, V = in_groups
    gathered = K.size * block * columns * B.itemsize
    print(
        f"{size} x {size}, {len(by_rows[0]):,} blocks of {block} x {block} in {len(R):,} groups of {K.shape[1]}; {columns} columns"
    )
    for name, seconds in medians(runs, 3 if options.quick else 15).items():
        print(f"{name:14} {1e3 * seconds:8.2f} ms")
    print(f"B[K] is not made: {gathered / 1e6:.1f} MB beside {V.nbytes / 1e6:.1f} MB of blocks")
    if os.environ.get("OMP_NUM_THREADS") != "1":
        print(
            "processor time of all threads: those of NumPy's BLAS that wait count too; OMP_NUM_THREADS=1 for one thread"
        )
    print(f"largest difference to NumPy {worst:.1e} of the largest value")
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
