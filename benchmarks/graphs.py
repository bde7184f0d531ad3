"""The graph algorithms of `examples/graphs.py` beside `scipy.sparse.csgraph`, on every real graph: `python -m benchmarks.graphs [--only NAME]`.

Results are compared first; the two take turns, on the time of this thread's processor, and the ratio is the median of the rounds' ratios (csgraph's
time over ours, more is better). csgraph has two roads to compare a breadth-first search with: the order alone, which is not the levels, and its
function for shortest paths by numbers of edges. It has no PageRank: SciPy's column is the same iteration, with as many steps, of a csr matrix and NumPy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

import sparsejax as sj
from benchmarks import datasets
from examples import graphs

Side = Callable[[], Any]
ROUNDS = 15
MESHES = "4elt", "copter2", "brack2"


def ranks(A: sp.csr_array, damping: float = 0.85, tolerance: float = 1e-12) -> np.ndarray:
    """PageRank by SciPy: the steps of `examples.graphs.pagerank`."""
    n, degree = A.shape[0], np.diff(A.indptr).astype(float)
    ends = degree == 0
    walk = sp.csr_array((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape).T.tocsr()
    rank, change = np.full(n, 1.0 / n), np.inf
    while change > tolerance:
        share = np.where(ends, 0, rank / np.maximum(degree, 1))
        new = (1 - damping + damping * rank[ends].sum()) / n + damping * (walk @ share)
        rank, change = new, np.abs(new - rank).sum()
    return rank


def levels(A: sp.csr_array, source: int) -> np.ndarray:
    """The levels of a breadth-first search by csgraph: its order and predecessors, and one pass over these."""
    order, before = csgraph.breadth_first_order(A, source)
    made = np.full(A.shape[0], -1)
    made[source] = 0
    for k in order[1:].tolist():
        made[k] = made[before[k]] + 1
    return made


def rows(graph: sp.csr_array) -> Iterator[tuple[str, Side, Side, Side]]:
    """Name, ours, csgraph's that is timed, and what results must be."""
    A, source = sj.array(graph), int(np.argmax(np.diff(graph.indptr)))
    ones = sp.csr_array((np.ones(graph.nnz), graph.indices, graph.indptr), shape=graph.shape)
    # the order alone is less than the levels: csgraph's shortest road
    yield (
        "BFS, order",
        lambda: graphs.bfs(A, source),
        lambda: csgraph.breadth_first_order(ones, source),
        lambda: levels(ones, source),
    )
    reference = lambda: graphs.levels_reference(graph, source)  # noqa: E731
    yield "BFS, levels", lambda: graphs.bfs(A, source), reference, reference
    paths = lambda: csgraph.dijkstra(graph, indices=source)  # noqa: E731
    yield "shortest paths", lambda: graphs.shortest_paths(A, source), paths, paths
    label = lambda: csgraph.connected_components(graph, directed=False)  # noqa: E731
    yield "components", lambda: graphs.components(A), label, lambda: graphs.components_reference(graph)
    yield "PageRank", lambda: graphs.pagerank(A), lambda: ranks(graph), lambda: ranks(graph)


def ratio(ours: Side, theirs: Side, rounds: int = ROUNDS) -> tuple[float, float, float]:
    """Milliseconds of both, and the median of ratios."""

    def timed(run: Side) -> float:
        started = time.thread_time()
        run()
        return 1e3 * (time.thread_time() - started)

    timed(ours), timed(theirs)
    found = np.array([(timed(ours), timed(theirs)) for _ in range(rounds)])
    a, b = np.median(found, axis=0)
    return float(a), float(b), float(np.median(found[:, 1] / found[:, 0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the name of a graph")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often both take turns")
    parser.add_argument("--meshes", action="store_true", help="finite element meshes too, whose paths are long")
    options = parser.parse_args()
    sj.config.update("num_threads", 1)
    print(f"{'graph':32}{'nodes':>8}{'edges':>9}  {'':15}{'ours ms':>9}{'SciPy ms':>9}{'ratio':>7}")
    data = datasets.folder()
    if data is None:
        raise FileNotFoundError("the data folder is absent; set SPARSEJAX_DATA")
    meshes = [data / "matrices" / f"{name}.mtx.gz" for name in MESHES] if options.meshes else []
    for path in (*sorted((data / "graphs").iterdir()), *meshes):
        if options.only not in path.name:
            continue
        graph = graphs.read(str(path))
        for name, ours, theirs, right in rows(graph):
            gap = graphs.difference(ours().todense(), right())
            a, b, times = ratio(ours, theirs, options.rounds)
            mark = "" if times >= 1 else " <"
            note = "" if gap < 1e-9 else f"  results differ by {gap:.1e}"
            head = f"{path.name:32}{graph.shape[0]:8}{graph.nnz:9}  {name:15}"
            print(f"{head}{a:9.2f}{b:9.2f}{times:7.2f}{mark}{note}", flush=True)


if __name__ == "__main__":
    main()
