"""Graph algorithms over semirings: each is a loop around one or two contractions, compiled as a whole where its state has fixed types.

    python examples/graphs.py                                 a random graph with communities and a heavy tail
    python examples/graphs.py --data PATH/karate.mtx.gz       a Matrix Market file, an npz file with csr parts, or an edge list

Every result is compared with scipy.sparse.csgraph, a sparse solver, or a plain implementation in Python (and networkx's where it is
installed). Exit code 1 where they differ.

Source: Kepner and Gilbert (eds.), "Graph Algorithms in the Language of Linear Algebra", 2011.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
from scipy.sparse import csgraph
from scipy.sparse.linalg import spsolve

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax

# ------------------------------------------------------------------------------------------------------ algorithms
# A is the adjacency of a graph, an edge from i to j where A[i, j] is stored; its values count only where distances are asked for.


@sj.jit
def bfs(A, source):
    """The number of edges on a shortest path from `source` to each node; -1 where there is none.

    The frontier is sparse: a step takes the edges of its nodes, and writes the levels of those that it reaches. Levels are counted from 1 on
    while it runs, so that 0 says that a node has none."""

    def step(state):
        frontier, levels, depth = state
        reached = sj.einsum("i,ij->j", frontier, A, semiring="or_pair", mask=levels, complement=True, out_format="coo")
        return reached, snp.where(reached, depth, levels), depth + 1

    start = np.arange(A.shape[0], dtype=np.int32) == source
    first = snp.asarray(start).asformat("coo"), start.astype(np.int32), np.int32(2)
    return lax.while_loop(lambda state: snp.any(state[0]), step, first)[1] - 1


@sj.jit
def shortest_paths(A, source):
    """The length of a shortest path from `source` to each node; inf where there is none.

    A step takes the edges of nodes whose distance has changed (Bellman and Ford). Where paths of many edges are shorter than those of few, most nodes
    would be taken many times: once half as many were taken as there are nodes, the nearest go first."""

    def every(state):
        changed, distance, taken = state
        return *reach(A, changed, distance), taken + count(changed)

    n = A.shape[0]
    start = snp.asarray(np.arange(n, dtype=np.int32) == source)
    first = snp.where(start.asformat("coo"), 0.0, np.inf), snp.where(start, 0.0, np.inf), 0
    if n < SMALL:
        return lax.while_loop(lambda s: snp.any(s[0] < np.inf), every, first)[1]
    changed, distance, _ = lax.while_loop(lambda s: snp.any(s[0] < np.inf) & (s[2] < n / 2), every, first)
    return nearest_first(A, changed, distance)


def nearest_first(A, waiting, distance):
    """Shortest paths where the nodes that wait with the least distances go first, about one in `WAITING` and at least `AT_ONCE`.

    How many that are is steered by how many were taken, up to what share of the way from the least distance to the mean of all that wait, so that it suits
    weights of any size. Sources: Meyer and Sanders, "Delta-stepping", 2003; Dong, Gu, Sun and Zhang, "Efficient stepping algorithms and
    implementations for parallel shortest paths", 2021."""

    def step(state):
        waiting, distance, share = state
        number, least = count(waiting), snp.min(waiting)
        mean = sj.einsum("i,->", waiting, 1.0, semiring="plus_first") / number
        limit = least + share * snp.maximum(mean - least, 0)
        near = sj.prune(snp.where(waiting <= limit, waiting, np.inf))
        others = sj.prune(snp.where(waiting > limit, waiting, np.inf))
        shorter, distance = reach(A, near, distance)
        wanted = snp.maximum(AT_ONCE, number / WAITING)
        return snp.minimum(others, shorter), distance, snp.clip(share * (wanted / count(near)) ** 1.5, 1e-12, 1e12)

    return lax.while_loop(lambda s: snp.any(s[0] < np.inf), step, (waiting, distance, 0.1))[1]


def reach(A, near, distance):
    """The nodes that edges of `near` ones lead to on shorter paths than those so far, and the distances with these."""
    reached = sj.einsum("i,ij->j", near, A, semiring="min_plus", out_format="coo")
    shorter = sj.prune(snp.where(reached < distance, reached, np.inf))
    return shorter, snp.minimum(distance, shorter)


def count(x):
    """How many entries a sparse vector has."""
    return sj.einsum("i,->", x, 1, semiring="plus_second", dtype="int64")


AT_ONCE, WAITING = 24, 16
"""Few, so that few nodes are taken again, and not so few that rounds cost more."""
SMALL = 1500
"""Nodes up to which it pays to take all at once."""


@sj.jit
def pagerank(A, damping=0.85, tolerance=1e-12):
    """The stationary distribution of a random walk that restarts with probability `1 - damping`.

    Every step needs the edges by the nodes that they lead to, so that they are sorted once."""
    n, links = A.shape[0], A.asformat("csc")
    degree = sj.einsum("ij,->i", A, 1.0, semiring="plus_second")

    def step(state):
        rank, _ = state
        share = snp.where(degree > 0, rank / snp.maximum(degree, 1), 0)
        lost = snp.sum(snp.where(degree > 0, 0, rank))
        flow = sj.einsum("i,ij->j", share, links, semiring="plus_first")
        new = (1 - damping + damping * lost) / n + damping * flow
        return new, snp.sum(abs(new - rank))

    return lax.while_loop(lambda state: state[1] > tolerance, step, (np.full(n, 1.0 / n), np.inf))[0]


@sj.jit
def components(A):
    """The smallest node of the weakly connected component of each node.

    Every node has a parent that is no larger. A step looks for the smallest parent of neighbours, along edges and against them, and hooks what is
    above a node to it, or shortens the paths upwards to a quarter until they have one edge: edges are read again when all trees are flat (Zhang,
    Azad and Buluc, "Parallel algorithms for finding connected components using linear algebra", 2020)."""

    def hook(parent):
        least = snp.minimum(parent, sj.einsum("ij,j->i", A, parent, semiring="min_second", dtype=parent.dtype))
        least = snp.minimum(least, sj.einsum("ji,j->i", A, least, semiring="min_second", dtype=parent.dtype))
        changed = snp.any(least != parent)
        hooked = lax.cond(changed, lambda p, l: snp.minimum(p.at[p].min(l), l), lambda p, l: p, parent, least)
        return hooked, changed, ~changed

    def climb(parent):
        upper = parent[parent]
        new = upper[upper]
        return new, snp.any(new != upper), False

    first = np.arange(A.shape[0], dtype=np.int32), False, False
    return lax.while_loop(lambda s: ~s[2], lambda s: lax.cond(s[1], climb, hook, s[0]), first)[0]


@sj.jit
def triangles(L):
    """The number of triangles of an undirected graph, given its edges from higher to lower nodes."""
    return sj.einsum("ik,jk->ij", L, L, semiring="plus_pair", mask=L, dtype="int64").sum()


@sj.jit
def forward(A, frontier, paths):
    return sj.einsum("si,ij->sj", frontier, A, semiring="plus_first", mask=paths, complement=True)


@sj.jit
def backward(A, dependency, paths, reached, before):
    share = snp.where(reached, (1 + dependency) / snp.where(paths, paths, 1), 0)
    return dependency + paths * sj.einsum("ij,sj->si", A, share, semiring="plus_second", mask=before)


def betweenness(A, sources):
    """For each node, the shortest paths from `sources` through it, as shares of all between the same two ends (Brandes)."""
    frontiers = [sj.array(sp.csr_array(sp.eye_array(A.shape[0], format="csr")[sources]))]
    paths = frontiers[0].todense()
    while frontiers[-1].nnz:
        frontiers.append(forward(A, frontiers[-1], paths))
        paths = paths + frontiers[-1]
    dependency = np.zeros(paths.shape)
    for before, reached in reversed(list(itertools.pairwise(frontiers[1:]))):
        # a dense mask is looked up; a sparse one would be walked once for every term
        dependency = backward(A, dependency, paths, reached, before.asformat("dense"))
    return dependency.sum(axis=0)


# ------------------------------------------------------------------------------------------------------ references


def pagerank_reference(A: sp.csr_array, damping: float = 0.85) -> np.ndarray:
    """The ranks as the solution of their linear equations, the share of nodes without edges scaled back in."""
    n, degree = A.shape[0], np.diff(A.indptr)
    walk = sp.csr_array((np.repeat(1.0 / np.maximum(degree, 1), degree), A.indices, A.indptr), shape=A.shape)
    made = spsolve(sp.csc_array(sp.eye_array(n) - damping * walk.T), np.full(n, 1.0 / n))
    return np.asarray(made / made.sum())


def betweenness_reference(A: sp.csr_array, sources: np.ndarray) -> np.ndarray:
    """Brandes' algorithm, node by node."""
    near = [A.indices[A.indptr[i] : A.indptr[i + 1]].tolist() for i in range(A.shape[0])]
    total = np.zeros(A.shape[0])
    for source in sources.tolist():
        depth, paths, order, queue = {source: 0}, {source: 1.0}, [], deque([source])
        while queue:
            i = queue.popleft()
            order.append(i)
            for j in near[i]:
                if j not in depth:
                    depth[j], paths[j] = depth[i] + 1, 0.0
                    queue.append(j)
                if depth[j] == depth[i] + 1:
                    paths[j] += paths[i]
        share = dict.fromkeys(order, 0.0)
        for i in reversed(order):
            share[i] = sum(paths[i] / paths[j] * (1 + share[j]) for j in near[i] if depth[j] == depth[i] + 1)
            total[i] += share[i] if i != source else 0
    return total


def levels_reference(A: sp.csr_array, source: int) -> np.ndarray:
    found = csgraph.shortest_path(A, unweighted=True, indices=source, method="D")
    return np.where(np.isinf(found), -1, found)


def components_reference(A: sp.csr_array) -> np.ndarray:
    """The smallest node of each weakly connected component, from csgraph's numbering."""
    count, label = csgraph.connected_components(A, directed=False)
    smallest = np.full(count, A.shape[0])
    np.minimum.at(smallest, label, np.arange(A.shape[0]))
    return smallest[label]


def lower_triangle(A: sp.csr_array) -> sp.csr_array:
    """The edges of the graph without directions and loops, each once, from the higher node to the lower."""
    both = sp.csr_array((A + A.T) != 0).astype(np.float64)
    return sp.csr_array(sp.tril(both, -1))


def triangles_reference(L: sp.csr_array) -> int:
    return int((L @ L).multiply(L).sum())


# ------------------------------------------------------------------------------------------------------ the program


def generated(nodes: int = 4000, edges: int = 24_000, seed: int = 0) -> sp.csr_array:
    """A directed graph with a heavy-tailed degree distribution, and a few nodes without any edge."""
    rng = np.random.default_rng(seed)
    i = (rng.random(edges) ** 2 * nodes).astype(np.int64)
    j = (i + 1 + (rng.random(edges) ** 3 * (nodes - 1)).astype(np.int64)) % nodes
    made = sp.csr_array((rng.integers(1, 10, edges).astype(np.float64), (i, j)), shape=(nodes, nodes))
    made.data = np.minimum(made.data, 9.0)
    return made


def read(path: str) -> sp.csr_array:
    """A square matrix as a graph: weights are the absolute values of its entries, or 1 where there are none but zeros."""
    if path.endswith((".mtx", ".mtx.gz")):
        made = sp.csr_array(scipy.io.mmread(path))
    elif path.endswith(".npz"):
        with np.load(path, allow_pickle=False) as data:
            head = "adj_" if "adj_indptr" in data else ""
            values = data[f"{head}data"] if f"{head}data" in data else np.ones(len(data[f"{head}indices"]))
            shape = tuple(int(n) for n in data[f"{head}shape"])
            made = sp.csr_array((values, data[f"{head}indices"], data[f"{head}indptr"]), shape=shape)
    else:
        ends = np.loadtxt(path, dtype=np.int64, comments="#").T
        n = int(ends.max()) + 1
        made = sp.csr_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(n, n))
    if made.shape[0] != made.shape[1]:
        sys.exit(f"{path} is not a graph: its shape is {made.shape}")
    return as_graph(made)


def as_graph(matrix: Any) -> sp.csr_array:
    """Canonical csr with positive weights."""
    made = sp.csr_array(matrix)
    made.sum_duplicates()
    made.data = np.abs(made.data).astype(np.float64)
    made.eliminate_zeros()
    return made


Comparison = tuple[str, Callable[[], Any], Callable[[], Any]]


def comparisons(graph: sp.csr_array, samples: int = 16) -> list[Comparison]:
    """(name, ours, reference) for a graph with positive weights."""
    A, lower = sj.array(graph), lower_triangle(graph)
    L = sj.array(lower)
    source = int(np.argmax(np.diff(graph.indptr)))
    sources = np.unique(np.linspace(0, graph.shape[0] - 1, min(samples, graph.shape[0])).astype(np.int64))
    return [
        ("breadth-first search", lambda: bfs(A, source), lambda: levels_reference(graph, source)),
        ("shortest paths", lambda: shortest_paths(A, source), lambda: csgraph.dijkstra(graph, indices=source)),
        ("PageRank", lambda: pagerank(A), lambda: pagerank_reference(graph)),
        ("connected components", lambda: components(A), lambda: components_reference(graph)),
        ("triangles", lambda: triangles(L), lambda: triangles_reference(lower)),
        ("betweenness", lambda: betweenness(A, sources), lambda: betweenness_reference(graph, sources)),
    ]


def difference(ours: Any, theirs: Any) -> float:
    """The largest difference of two results, relative to the largest finite value."""
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    if ours.shape != theirs.shape or not np.array_equal(np.isfinite(ours), np.isfinite(theirs)):
        return np.inf
    finite = np.isfinite(theirs)
    scale = max(1e-300, float(np.abs(theirs[finite]).max(initial=0)))
    return float(np.abs(ours[finite] - theirs[finite]).max(initial=0)) / scale


def networkx_betweenness(graph: sp.csr_array) -> np.ndarray | None:
    """Betweenness by networkx over all sources; None where it is not installed."""
    try:
        import networkx
    except ImportError:
        return None
    made = networkx.betweenness_centrality(networkx.DiGraph(graph), normalized=False)
    return np.array([made[i] for i in range(graph.shape[0])])


def timed(function: Callable[[], Any], repeats: int = 1) -> tuple[Any, float]:
    """The result, and the shortest time in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        made = function()
        times.append(time.perf_counter() - start)
    return made, min(times)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="a graph: .mtx, .mtx.gz, .npz with csr parts, or an edge list")
    parser.add_argument("--quick", action="store_true", help="a graph of 400 nodes, 4 sources of paths, timed once")
    options = parser.parse_args(arguments)
    path, quick = options.data, options.quick
    graph = read(path) if path else generated(400, 2400) if quick else generated()
    print(f"{path or 'generated graph'}: {graph.shape[0]} nodes, {graph.nnz} edges")
    print(f"{'':22}{'sparsejax':>12}{'reference':>12}{'difference':>12}")
    worst = 0.0
    for name, ours, reference in comparisons(graph, 4 if quick else 16):
        # the first call compiles
        (mine, seconds), (theirs, other) = timed(ours, repeats=2 if quick else 4), timed(reference)
        gap = difference(mine, theirs)
        worst = max(worst, gap)
        print(f"{name:22}{1e3 * seconds:9.2f} ms{1e3 * other:9.2f} ms{gap:12.1e}")
    return int(not worst < 1e-9)


if __name__ == "__main__":
    sys.exit(main())
