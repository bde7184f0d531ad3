"""Aggregation over the neighbours of a graph, and scores of its edges: one indirect einsum each, from arrays of groups and of edges.

    python examples/insum_graphs.py --quick                                          a small graph
    OMP_NUM_THREADS=1 python examples/insum_graphs.py                                a random graph with a power law of degrees, 20,000 nodes
    OMP_NUM_THREADS=1 python examples/insum_graphs.py --data PATH/astro-ph-cc1.npz   an npz file with csr parts, or a list of edges as text

Sums over neighbours take the rows R, columns K and values V of groups of edges. They are compared with SciPy's product by the adjacency; the scores of edges,
with products of gathered rows in NumPy. Times are processor time of all threads, medians of runs in turn. Exit code 1 if results differ by more than
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

NEIGHBOURS = "Out[R[p],f] += V[p,q] * H[K[p,q],f]"
SCORES = "S[e] = Q[R[e],f] * P[K[e],f]"


def power_law(nodes: int, rng: np.random.Generator) -> sp.csr_array:
    """A random graph with a few nodes of many neighbours."""
    ends = (nodes * rng.random((2, 6 * nodes)) ** 2).astype(np.int64)
    graph = sp.coo_array((np.ones(6 * nodes), tuple(ends)), shape=(nodes, nodes)).tocsr()
    return sp.csr_array((graph + graph.T).astype(bool))


def read(path: str) -> sp.csr_array:
    """The adjacency in an npz file with csr parts, or in a list of edges as text."""
    if path.endswith(".npz"):
        with np.load(path, allow_pickle=False) as parts:
            ones = np.ones(len(parts["indices"]), bool)
            return sp.csr_array((ones, parts["indices"], parts["indptr"]), shape=tuple(parts["shape"]))
    edges = np.loadtxt(path, dtype=np.int64, comments="#")[:, :2].T
    count = int(edges.max()) + 1
    return sp.csr_array(sp.coo_array((np.ones(edges.shape[1], bool), tuple(edges)), shape=(count, count)))


def means(graph: sp.csr_array) -> sp.csr_array:
    """Every row divided by its number of entries."""
    counts = np.diff(graph.indptr)
    shares = np.repeat(1 / np.maximum(counts, 1), counts).astype(np.float32)
    return sp.csr_array((shares, graph.indices, graph.indptr), shape=graph.shape)


@sj.jit
def neighbours(R: Any, K: Any, V: Any, H: Any) -> Any:
    """Sums over the neighbours of all nodes, of rows of H (nodes, f)."""
    return sj.insum(NEIGHBOURS, Out=snp.zeros(H.shape, H.dtype), R=R, K=K, V=V, H=H)


@sj.jit
def scores(R: Any, K: Any, Q: Any, P: Any) -> Any:
    """The product of two rows for every edge."""
    return sj.insum(SCORES, R=R, K=K, Q=Q, P=P)


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
    parser.add_argument("--data", help="a graph")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--quick", action="store_true", help="300 nodes, 16 features")
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    graph = read(options.data) if options.data else power_law(300 if options.quick else 20_000, rng)
    adjacency, width = means(graph), 16 if options.quick else options.features
    H, Q, P = rng.standard_normal((3, graph.shape[0], width), np.float32)
    R, K, V = sj.formats.to_groupcoo(sj.array(adjacency))
    row, column = (sj.array(x) for x in graph.tocoo().coords)
    ends = graph.tocoo().coords
    sums, found = adjacency @ H, np.einsum("ef,ef->e", Q[ends[0]], P[ends[1]])
    worst = float(np.abs(neighbours(R, K, V, H).todense() - sums).max() / np.abs(sums).max())
    worst = max(worst, float(np.abs(scores(row, column, Q, P).todense() - found).max() / np.abs(found).max()))
    runs = {
        "neighbours": lambda: neighbours(R, K, V, H),
        "neighbours, SciPy's csr": lambda: adjacency @ H,
        "scores": lambda: scores(row, column, Q, P),
        "scores, NumPy": lambda: np.einsum("ef,ef->e", Q[ends[0]], P[ends[1]]),
    }
    print(f"{graph.shape[0]:,} nodes, {graph.nnz:,} edges in {len(R):,} groups of {K.shape[1]}; {width} features")
    for name, seconds in medians(runs, 3 if options.quick else 11).items():
        print(f"{name:24} {1e3 * seconds:8.2f} ms")
    print(
        f"H[K] is not made: {K.size * width * 4 / 1e6:.1f} MB; nor are Q[R] and P[K]: {2 * graph.nnz * width * 4 / 1e6:.1f} MB"
    )
    if os.environ.get("OMP_NUM_THREADS") != "1":
        print(
            "processor time of all threads: those of NumPy's BLAS that wait count too; OMP_NUM_THREADS=1 for one thread"
        )
    print(f"largest difference to NumPy and SciPy {worst:.1e} of the largest value")
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
