"""Triplets that arrive in batches, in a matrix that grows: points that users give to items, none of which anybody has seen before.

    python examples/streaming.py            100 batches of about 5,000 points
    python examples/streaming.py --quick    10 batches of about 200

After each batch, the matrix of that batch and the sum of all so far are made; means by item are computed over a shape that is new every time. Exit code 1 if
sums differ from SciPy's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


def points(count: int, size: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Batches of (values, users, items): the later, the more users and items there are."""
    for number in range(1, count + 1):
        found = int(rng.integers(size // 2, 3 * size // 2))
        users, items = (rng.random((2, found)) ** 2 * [[40 * number], [15 * number]]).astype(np.int64)
        yield rng.integers(1, 6, found).astype(float), users, items


def grown(A: sj.Array, shape: tuple[int, int]) -> sj.Array:
    """The matrix with room for more rows and columns; nothing is stored there."""
    return snp.pad(A, [(0, n - m) for n, m in zip(shape, A.shape, strict=True)])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 batches of about 200")
    options = parser.parse_args(arguments)
    count, size = (10, 200) if options.quick else (100, 5_000)
    rng, worst, seconds = np.random.default_rng(0), 0.0, 0.0
    total, reference = snp.zeros((1, 1), format="csr"), sp.csr_array((1, 1))
    for values, users, items in points(count, size, rng):
        shape = max(total.shape[0], int(users.max()) + 1), max(total.shape[1], int(items.max()) + 1)
        started = time.perf_counter()
        batch = sj.array(
            (values, (users, items)), shape=shape, format="csr"
        )  # points of the same user for the same item add up
        total = grown(total, shape) + batch
        means = total.sum(axis=0) / snp.maximum(snp.count_nonzero(total, axis=0), 1)
        seconds += time.perf_counter() - started
        reference.resize(shape)
        reference = reference + sp.csr_array((values, (users, items)), shape=shape)
        by_item = reference.sum(axis=0) / np.maximum(reference.count_nonzero(axis=0), 1)
        worst = max(worst, float(np.abs(means.todense() - by_item).max()))
    best = int(means.argmax())
    print(
        f"{count} batches, {total.nnz:,} points of {total.shape[0]:,} users and {total.shape[1]:,} items; {1e3 * seconds / count:.2f} ms per batch"
    )
    print(
        f"item {best} has the most points per user, {float(means[best]):.2f}; largest difference to SciPy {worst:.1e}"
    )
    return 0 if worst < 1e-9 else 1


if __name__ == "__main__":
    sys.exit(main())
