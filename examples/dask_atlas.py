"""A single-cell atlas in shards: principal components of centred counts without a dense copy, then a graph network over the cells' neighbours.

    python examples/dask_atlas.py --workers 2
    python examples/dask_atlas.py --cells 400000 --folder /tmp/atlas --memory 2GB     # larger than the workers' memory

Counts are drawn as cells of a few types, with a power law of expressed genes; with --data PATH they are those of an .npz of SciPy's.
The components come from subspace iteration, (A - mean).T @ ((A - mean) @ Q), in which nothing but A is read at full size; results are
compared with NumPy's where the atlas is small.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp


def atlas(cells: int, genes: int, types: int, expressed: int, seed: int = 0) -> tuple[sp.csr_array, np.ndarray]:
    """log(1 + counts) of `cells` x `genes`, about `expressed` genes a cell, and the type of every cell."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, types, cells)
    indices, indptr = [], [0]
    profiles = [rng.permutation(genes) for _ in range(types)]
    ranks = (genes * rng.random((cells, expressed)) ** 2.5).astype(np.int64)
    for cell in range(cells):
        found = np.unique(profiles[kinds[cell]][ranks[cell]])
        indices.append(found)
        indptr.append(indptr[-1] + len(found))
    columns = np.concatenate(indices)
    counts = np.log1p(rng.geometric(0.3, len(columns)).astype(np.float64))
    return sp.csr_array((counts, columns, np.array(indptr)), shape=(cells, genes)), kinds


def subspace(A, mean, Q):
    """One step of subspace iteration on the centred matrix, which is never formed: (A - 1 m^T)^T (A - 1 m^T) Q."""
    P = A @ Q - mean @ Q
    made, _ = snp.linalg.qr(A.T @ P - snp.outer(mean, P.sum(axis=0)))
    return made


def project(A, mean, Q):
    return A @ Q - mean @ Q


def neighbours(points: np.ndarray, k: int) -> sp.csr_array:
    """The graph of the k nearest neighbours, rows summing to one."""
    from scipy.spatial import cKDTree

    _, near = cKDTree(points).query(points, k + 1)
    rows = np.repeat(np.arange(len(points)), k + 1)
    return sp.csr_array((np.full(len(rows), 1 / (k + 1)), (rows, near.ravel())), shape=(len(points), len(points)))


def loss(weights, G, H, labels):
    """Cross entropy of two layers over the neighbours' graph."""
    W1, W2 = weights
    scores = G @ (snp.maximum(G @ (H @ W1), 0) @ W2)
    scores = scores - scores.max(axis=1, keepdims=True)
    return (snp.log(snp.exp(scores).sum(axis=1)) - (scores * labels).sum(axis=1)).mean()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--cells", type=int, default=20_000)
    parser.add_argument("--genes", type=int, default=2_000)
    parser.add_argument("--components", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--data", type=Path, help="counts of cells x genes, an .npz of SciPy's")
    parser.add_argument("--folder", type=Path, help="keep shards in files there")
    parser.add_argument("--memory", default="auto", help="limit of a worker, for instance 2GB")
    parser.add_argument("--quick", action="store_true", help="a small atlas")
    args = parser.parse_args(arguments)
    if args.quick:
        args.cells, args.genes, args.epochs = 600, 200, 3

    import dask
    import distributed

    import sparsejax.dask as sd

    types = 6
    if args.data is None:
        counts, kinds = atlas(args.cells, args.genes, types, expressed=80)
    else:
        counts = sp.csr_array(sp.load_npz(args.data))
        kinds = np.zeros(counts.shape[0], np.int64)
    rng = np.random.default_rng(1)
    with (
        distributed.LocalCluster(
            n_workers=args.workers, threads_per_worker=1, memory_limit=args.memory, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        print(f"dashboard: {client.dashboard_link}")
        A = (
            sd.shard(counts, rows=args.shards)
            if args.folder is None
            else sd.save_shards(args.folder, counts, rows=args.shards)
        )
        print(A)
        start = time.perf_counter()
        mean = sd.jit(lambda A: A.mean(axis=0))(A).compute()
        Q = np.linalg.qr(rng.normal(size=(counts.shape[1], args.components)))[0]
        once = sd.jit(subspace)
        for _ in range(6):
            Q = once(A, mean, Q).compute()
        scores = sd.jit(project)(A, mean, Q).persist()
        distributed.progress(list(scores.__dask_graph__().values()), notebook=False)
        points = scores.compute().todense()
        print(
            f"\n{args.components} components: {time.perf_counter() - start:.2f} s, variance {points.var(axis=0).sum():.3f}"
        )
        if counts.shape[0] * counts.shape[1] <= 4_000_000:
            exact = np.linalg.svd(counts.toarray() - counts.mean(axis=0), compute_uv=False)[: args.components]
            print(f"NumPy's variance {np.sum(exact**2) / len(points):.3f}")

        scale = points.std(axis=0)
        points = points / scale
        G = sd.shard(neighbours(points, 10), rows=args.shards)
        H = sd.shard(points, rows=G.cuts[0])
        labels = sd.shard(np.eye(types)[kinds], rows=G.cuts[0])
        weights = [0.3 * rng.normal(size=s) for s in ((args.components, 32), (32, types))]
        epoch = sd.jit(sj.value_and_grad(loss))
        start = time.perf_counter()
        for k in range(args.epochs):
            value, slopes = epoch(weights, G, H, labels)
            value, *slopes = dask.compute(value, *slopes)
            weights = [w - 1.0 * s.todense() for w, s in zip(weights, slopes, strict=True)]
            if k in (0, args.epochs - 1):
                print(f"epoch {k}: loss {value.item():.4f}")
        print(f"{args.epochs} epochs: {time.perf_counter() - start:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
