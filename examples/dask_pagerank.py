"""PageRank of a graph in shards, on a cluster of Dask's; compared with SciPy.

    python examples/dask_pagerank.py --workers 2
    python examples/dask_pagerank.py --nodes 1000000 --links 20 --folder /tmp/graph     # shards in files, read by the workers

The graph is cut by stored entries, not by rows; each round is one task per shard, and the ranks are what moves.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import sparsejax as sj


def power_law(nodes: int, links: int, seed: int = 0) -> sp.csr_array:
    """A graph with `nodes * links` links between nodes that are popular by a power law, its columns summing to one."""
    rng = np.random.default_rng(seed)
    weights = (np.arange(nodes) + 10.0) ** -0.8
    cumulative = np.cumsum(weights / weights.sum())
    ends = [np.minimum(np.searchsorted(cumulative, rng.random(nodes * links)), nodes - 1) for _ in range(2)]
    graph = sp.coo_array((np.ones(nodes * links), (ends[0], ends[1])), shape=(nodes, nodes)).tocsr()
    out = np.maximum(graph.sum(axis=0), 1)
    return sp.csr_array(graph @ sp.diags_array(1 / out))


def pagerank(A, x, rounds):
    n = x.shape[0]
    return sj.lax.fori_loop(0, rounds, lambda k, x: 0.85 * (A @ x) + (1 - 0.85 * x.sum()) / n, x)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--shards", type=int, default=8, help="results have the same bits for any number of workers, not of shards"
    )
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--links", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="keep shards in files there")
    parser.add_argument("--memory", default="auto", help="limit of a worker, for instance 2GB")
    parser.add_argument("--quick", action="store_true", help="a small graph")
    args = parser.parse_args(arguments)
    if args.quick:
        args.nodes, args.rounds = 2_000, 5

    import distributed

    import sparsejax.dask as sd

    graph = power_law(args.nodes, args.links)
    x = np.full(args.nodes, 1 / args.nodes)
    with (
        distributed.LocalCluster(
            n_workers=args.workers, threads_per_worker=1, memory_limit=args.memory, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        print(f"dashboard: {client.dashboard_link}")
        if args.folder is None:
            A = sd.shard(graph, rows=args.shards)
        elif (args.folder / "shards.json").exists():
            A = sd.open_shards(args.folder)
        else:
            A = sd.save_shards(args.folder, graph, rows=args.shards)
        print(A)
        ranked = sd.jit(pagerank, static_argnums=2)
        print(ranked.explain(A, x, 1))
        for run in ("first", "second"):
            start = time.perf_counter()
            ranks = ranked(A, x, args.rounds).persist()
            distributed.progress(list(ranks.__dask_graph__().values()), notebook=False)
            distributed.wait(list(ranks.__dask_graph__().values()))
            print(f"\n{run} run: {time.perf_counter() - start:.2f} s")
            found = ranks.compute().todense()
            del ranks
        start = time.perf_counter()
        y = x
        for _ in range(args.rounds):
            y = 0.85 * (graph @ y) + (1 - 0.85 * y.sum()) / args.nodes
        print(f"SciPy on one core: {time.perf_counter() - start:.2f} s")
        np.testing.assert_allclose(found, y, rtol=1e-9)
        best = np.argsort(-found)[:5]
        print("best:", ", ".join(f"{k} ({found[k]:.2e})" for k in best))
    return 0


if __name__ == "__main__":
    sys.exit(main())
