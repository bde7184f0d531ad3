"""Synthetic matrices and tensors of the peer table, with fixed seeds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp


def uniform(rows: int, cols: int, entries: int, seed: int = 0) -> sp.csr_array:
    """Entries spread uniformly."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, rows, entries), rng.integers(0, cols, entries)
    made = sp.csr_array((rng.standard_normal(entries), (i, j)), shape=(rows, cols))
    made.sum_duplicates()
    return made


def rmat(scale: int, entries: int, seed: int = 0) -> sp.csr_array:
    """An R-MAT graph (0.57, 0.19, 0.19, 0.05) of 2**scale nodes."""
    rng = np.random.default_rng(seed)
    i = np.zeros(entries, np.int64)
    j = np.zeros(entries, np.int64)
    for _ in range(scale):
        quadrant = rng.choice(4, entries, p=[0.57, 0.19, 0.19, 0.05])
        i, j = 2 * i + quadrant // 2, 2 * j + quadrant % 2
    n = 1 << scale
    made = sp.csr_array((rng.standard_normal(entries), (i, j)), shape=(n, n))
    made.sum_duplicates()
    return made


def stencil(n: int) -> sp.csr_array:
    """The 27-point stencil on an n x n x n grid."""
    line = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(n, n))
    made = sp.csr_array(sp.kron(sp.kron(line, line), line))
    made.data = np.random.default_rng(0).standard_normal(len(made.data))
    return made


Tensor = tuple[np.ndarray, np.ndarray, tuple[int, int, int]]


def random_tensor(shape: tuple[int, int, int], entries: int, skew: float, seed: int = 0) -> Tensor:
    """(coords, values, shape) of a 3-way tensor; `skew` above one crowds the low coordinates."""
    rng = np.random.default_rng(seed)
    coords = np.stack([(rng.random(entries) ** skew * n).astype(np.int64) for n in shape])
    flat = np.unique(np.ravel_multi_index(tuple(coords), shape))
    coords = np.stack(np.unravel_index(flat, shape))
    return coords, rng.standard_normal(len(flat)), shape


MATRICES: dict[str, Callable[[], sp.csr_array]] = {
    "uniform": lambda: uniform(100_000, 100_000, 1_000_000),
    "rmat16": lambda: rmat(16, 1_000_000),
    "rmat13": lambda: rmat(13, 71_000),
    "stencil": lambda: stencil(50),
    "hyper": lambda: uniform(1_000_000, 1_000_000, 500_000),
    "cora": lambda: uniform(2708, 2708, 10_556),
    "dense10": lambda: uniform(4096, 4096, 1_677_721),
    "dense1k": lambda: uniform(1000, 1000, 100_000),
    "tiny": lambda: uniform(50, 50, 100),
}
TENSORS: dict[str, Callable[[], Tensor]] = {
    "t3u": lambda: random_tensor((2000, 2000, 2000), 1_000_000, 1.0),
    "t3s": lambda: random_tensor((2000, 2000, 2000), 1_000_000, 3.0),
    "t3d": lambda: random_tensor((200, 200, 200), 800_000, 1.0),
}
QUICK = ("cora", "rmat13", "dense1k", "t3u")
