"""The graph algorithms of examples/graphs.py against csgraph and plain Python, on random and on real graphs."""

import ast
import inspect

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import datasets
from examples import graphs

NAMES = ["breadth-first search", "shortest paths", "PageRank", "connected components", "triangles", "betweenness"]
REAL = ["karate", "GD98_a", "celegansneural", "Erdos971", "bcspwr07", "G51", "p2p-Gnutella08", "as-caida20071105"]
ALGORITHMS = {
    "breadth-first search": ("bfs",),
    "shortest paths": ("shortest_paths", "reach"),
    "shortest paths, nearest first": ("nearest_first", "count"),
    "PageRank": ("pagerank",),
    "connected components": ("components",),
    "triangles": ("triangles",),
    "betweenness": ("forward", "backward", "betweenness"),
}


def random_graph(seed, nodes=40):
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 9, (nodes, nodes)) * (rng.random((nodes, nodes)) < rng.choice((0.01, 0.04, 0.1, 0.4)))
    return sp.csr_array(weights.astype(np.float64))


@pytest.mark.rotating(3)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_random_graph(number, seed):
    name, ours, reference = graphs.comparisons(random_graph(seed))[number]
    assert name == NAMES[number]
    assert graphs.difference(ours(), reference()) < 1e-9


@pytest.mark.rotating(2)
@pytest.mark.parametrize("seed", range(8))
def test_edges_of_no_length(seed):
    """Directed graphs in parts, with loops, nodes without edges and stored weights of 0, from sources of all kinds."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    ends = rng.integers(0, n, (2, int(rng.integers(0, 3 * n))))
    graph = sp.csr_array((rng.integers(0, 4, ends.shape[1]).astype(np.float64), ends), shape=(n, n))
    A = sj.array(graph)
    for source in {0, n - 1, int(rng.integers(n))}:
        found = graphs.shortest_paths(A, source).todense()
        np.testing.assert_array_equal(found, graphs.csgraph.dijkstra(graph, indices=source))
        np.testing.assert_array_equal(graphs.bfs(A, source).todense(), graphs.levels_reference(graph, source))
    np.testing.assert_array_equal(graphs.components(A).todense(), graphs.components_reference(graph))


WEIGHTS = {
    "integers": lambda rng, size: rng.integers(0, 4, size).astype(float),
    "of any size": lambda rng, size: 10.0 ** rng.uniform(-30, 5, size),
    "equal": lambda rng, size: np.full(size, 0.1),
    "huge": lambda rng, size: rng.uniform(1e307, 1e308, size),
    "with infinite ones": lambda rng, size: rng.choice([0.5, 1.5, np.inf], size),
}


@pytest.mark.parametrize("at_once", [1, 24])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_nearest_first(kind, at_once, monkeypatch):
    """Grids, on which paths of many edges are often shorter than those of few, and random graphs; all of the graph counts as large."""
    monkeypatch.setattr(graphs, "SMALL", 0)
    monkeypatch.setattr(graphs, "AT_ONCE", at_once)
    ours = sj.jit(graphs.shortest_paths.__wrapped__)
    rng = np.random.default_rng(len(kind))
    for side in (9, 14):
        path = sp.csr_array(sp.diags_array(WEIGHTS[kind](rng, 40 * side), offsets=1, shape=(40 * side + 1,) * 2))
        with np.errstate(over="ignore"):
            expected = graphs.csgraph.dijkstra(path, indices=3)
        np.testing.assert_array_equal(ours(sj.array(path), 3).todense(), expected)
        node = np.arange(side * side).reshape(side, side)
        i, j = np.concatenate([(node[1:].ravel(), node[:-1].ravel()), (node[:, 1:].ravel(), node[:, :-1].ravel())], 1)
        more = rng.integers(0, side * side, (2, side * side))
        ends = np.concatenate([i, j, more[0]]), np.concatenate([j, i, more[1]])
        graph = sp.csr_array(sp.coo_array((np.ones(len(ends[0])), ends)).tocsr())
        graph.data = WEIGHTS[kind](rng, graph.nnz)
        A = sj.array(graph)
        for source in (0, 7, side * side - 1, 5):
            with np.errstate(over="ignore"):
                expected = graphs.csgraph.dijkstra(graph, indices=source)
            np.testing.assert_array_equal(ours(A, source).todense(), expected)


@pytest.mark.rotating(3)
@pytest.mark.skipif(datasets.folder() is None, reason="no real data: set SPARSEJAX_DATA to its folder")
@pytest.mark.parametrize("data", REAL)
@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_real_graph(number, data):
    graph = graphs.as_graph(datasets.matrix(data))
    if NAMES[number] == "PageRank" and graph.shape[0] > 5000:
        pytest.skip("the direct solver of the reference fills in")
    _, ours, reference = graphs.comparisons(graph, samples=4)[number]
    assert graphs.difference(ours(), reference()) < 1e-9


@pytest.mark.rotating(3)
@pytest.mark.parametrize("format", ["csc", "coo", "dcsr", "dcsc"])
@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_other_formats(number, format, monkeypatch):
    monkeypatch.setattr(graphs.sj, "array", lambda x, old=sj.array: old(x, format=format))
    _, ours, reference = graphs.comparisons(random_graph(7))[number]
    assert graphs.difference(ours(), reference()) < 1e-9


def test_betweenness_of_networkx():
    networkx = pytest.importorskip("networkx")
    assert networkx is not None
    graph = random_graph(3)
    theirs = graphs.networkx_betweenness(graph)
    assert graphs.difference(graphs.betweenness(sj.array(graph), np.arange(graph.shape[0])), theirs) < 1e-9


def test_a_difference_is_found():
    assert graphs.difference(np.array([1.0, np.inf]), np.array([1.0, 2.0])) == np.inf
    assert graphs.difference(np.array([1.0, 2.0]), np.array([1.0, 2.1])) > 0.04


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_has_at_most_fifteen_lines(name):
    lines = 0
    for part in ALGORITHMS[name]:
        function = getattr(graphs, part)
        tree = ast.parse(inspect.getsource(getattr(function, "__wrapped__", function))).body[0]
        body = tree.body[1:] if ast.get_docstring(tree) else tree.body
        lines += 1 + len(ast.unparse(ast.Module(body, [])).splitlines())
    assert lines <= 15


def test_the_program_runs(capsys):
    assert graphs.main(["--quick"]) == 0
    assert "400 nodes" in capsys.readouterr().out


def test_the_program_reads_files(tmp_path, capsys):
    path = tmp_path / "edges.txt"
    path.write_text("# a triangle and a tail\n0 1\n1 2\n2 0\n2 3\n")
    assert graphs.main(["--data", str(path)]) == 0
    assert "4 nodes, 4 edges" in capsys.readouterr().out
