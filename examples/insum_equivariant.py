"""The tensor product of an equivariant network: features, spherical harmonics, Clebsch-Gordan coefficients and weights in one indirect einsum.

    python examples/insum_equivariant.py --quick                                      batch 50
    OMP_NUM_THREADS=1 python examples/insum_equivariant.py                            l up to 1, batch 10,000, 16 channels
    OMP_NUM_THREADS=1 python examples/insum_equivariant.py --data PATH/cg_l2_sh.npz   coefficients of an npz file: `coords` (entries, 4), `values`, `shape`

The coefficients CG[p,i,j,k] are a sparse array that never changes (a static argument, for whose entries code is written out): p numbers the paths
(l1, l2, l3), and i, j, k the components of all irreps, l after l. The result is compared with a program of NumPy (a product for each coefficient, then one
of matrices for each path and component), by processor time of all threads, medians of runs in turn. For l up to 1, features of rotated inputs are rotated
features. Exit code 1 if results differ by more than 1e-5 of the largest value.

Layers: Geiger and Smidt, "e3nn: Euclidean Neural Networks", 2022 (a fully connected tensor product; one channel in Y).
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import sparsejax as sj

PRODUCT = "Out[b,k,w] = CG[p,i,j,k] * X[b,i,u] * Y[b,j] * W[p,u,w]"


def coefficients() -> np.ndarray:
    """All five paths of l up to 1, (5, 4, 4, 4): products of numbers and vectors, dot and cross products, each result of variance 1."""
    cg, one = np.zeros((5, 4, 4, 4)), np.eye(3)
    cg[0, 0, 0, 0] = np.sqrt(1 / 2)
    cg[1, 0, 1:, 1:] = one / np.sqrt(3)
    cg[2, 1:, 0, 1:] = one / np.sqrt(3)
    cg[3, 1:, 1:, 0] = one / np.sqrt(6)
    cg[4, 1:, 1:, 1:] = np.cross(one[:, None], one) / np.sqrt(6)
    return cg


def read(path: str) -> Any:
    """The coefficients in an npz file, sparse."""
    with np.load(path, allow_pickle=False) as parts:
        shape = tuple(int(n) for n in parts["shape"])
        return sj.array((parts["values"].astype(np.float32), parts["coords"].T), shape=shape)


@functools.partial(sj.jit, static_argnames="CG")
def product(CG: Any, X: Any, Y: Any, W: Any) -> Any:
    """X (batch, components, u) times Y (batch, components) with weights W (paths, u, w): (batch, components, w)."""
    return sj.insum(PRODUCT, CG=CG, X=X, Y=Y, W=W)


def by_paths(CG: Any, X: np.ndarray, Y: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, int]:
    """The same in NumPy, coefficient by coefficient, and the bytes of the sums that it keeps."""
    sums: dict[tuple[int, int], np.ndarray] = {}
    for path, i, j, k, value in zip(*CG.coords, CG.data, strict=True):
        term = (value * Y[:, j, None]) * X[:, i]
        sums[path, k] = sums[path, k] + term if (path, k) in sums else term
    out = np.zeros((len(X), CG.shape[3], W.shape[2]), X.dtype)
    for (path, k), term in sums.items():
        out[:, k] += term @ W[path]
    return out, sum(term.nbytes for term in sums.values())


def rotated(x: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Numbers stay, vectors (components 1 to 3 along axis 1) are rotated."""
    return np.concatenate([x[:, :1], np.einsum("ij,bj...->bi...", by, x[:, 1:])], axis=1)


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
    parser.add_argument("--data", help="an npz file with coefficients")
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--quick", action="store_true", help="batch 50, 8 channels")
    options = parser.parse_args(arguments)
    CG = read(options.data) if options.data else sj.array(coefficients().astype(np.float32), format="coo")
    batch, channels = (50, 8) if options.quick else (options.batch, options.channels)
    rng, (paths, components, *_) = np.random.default_rng(0), CG.shape
    X = rng.standard_normal((batch, components, channels), np.float32)
    Y = rng.standard_normal((batch, components), np.float32)
    W = rng.standard_normal((paths, channels, channels), np.float32) / np.float32(np.sqrt(channels))
    (expected, kept), found = by_paths(CG, X, Y, W), product(CG, X, Y, W).todense()
    worst = float(np.abs(found - expected).max() / np.abs(expected).max())
    print(f"{paths} paths, {CG.nnz} coefficients; batch {batch:,}, {channels} channels")
    if components == 4:
        turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        turn = (turn * np.linalg.det(turn)).astype(np.float32)
        after = product(CG, rotated(X, turn), rotated(Y, turn), W).todense()
        turned = float(np.abs(after - rotated(found, turn)).max() / np.abs(found).max())
        worst = max(worst, turned)
        print(f"rotated before or after: {turned:.1e} of the largest value")
    runs = {"insum": lambda: product(CG, X, Y, W), "NumPy": lambda: by_paths(CG, X, Y, W)}
    for name, seconds in medians(runs, 3 if options.quick else 11).items():
        print(f"{name:6} {1e3 * seconds:8.2f} ms")
    print(f"products before the weights are not kept: {kept / 1e6:.1f} MB")
    if os.environ.get("OMP_NUM_THREADS") != "1":
        print(
            "processor time of all threads: those of NumPy's BLAS that wait count too; OMP_NUM_THREADS=1 for one thread"
        )
    print(f"largest difference to NumPy {worst:.1e} of the largest value")
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
