"""Tasks on graphs, as their users would write them at first: NetworkX, csgraph, and plain linear algebra."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.sparse import csgraph

import sparsejax as sj
import sparsejax.numpy as snp


@pytest.fixture
def karate():
    return pytest.importorskip("networkx").karate_club_graph()


def test_pagerank(karate):
    networkx = pytest.importorskip("networkx")
    A = sj.interop.from_networkx(karate, weight=None)
    n = A.shape[0]
    P = A / A.sum(axis=1)[:, None]

    def step(state):
        r, _ = state
        new = 0.85 * (r @ P) + 0.15 / n
        return new, snp.abs(new - r).sum()

    r, _ = sj.lax.while_loop(lambda s: s[1] > 1e-12, step, (snp.full(n, 1 / n), 1.0))
    want = networkx.pagerank(karate, weight=None, tol=1e-12)
    assert_allclose(r, [want[v] for v in karate], atol=1e-8)


def test_triangles_of_nodes(karate):
    networkx = pytest.importorskip("networkx")
    A = sj.interop.from_networkx(karate, weight=None)
    want = networkx.triangles(karate)
    assert snp.sum(A * (A @ A)) == 6 * (sum(want.values()) // 3)
    assert_allclose(snp.sum(A * (A @ A), axis=1) / 2, [want[v] for v in karate])


def test_shortest_paths():
    G = sp.random_array((60, 60), density=0.06, rng=0, format="csr")
    A = sj.array(G)
    assert_allclose(
        sj.interop.scipy(csgraph.shortest_path)(A, directed=False), csgraph.shortest_path(G, directed=False)
    )
    d = snp.full(60, np.inf).at[0].set(0.0)
    for _ in range(60):  # Bellman and Ford
        d = snp.minimum(d, sj.einsum("ij,i->j", A, d, semiring="min_plus"))
    assert_allclose(d, csgraph.dijkstra(G, indices=0))


def test_spectral_clustering():
    datasets, neighbors = pytest.importorskip("sklearn.datasets"), pytest.importorskip("sklearn.neighbors")
    cluster = pytest.importorskip("sklearn.cluster")
    X, y = datasets.make_circles(200, factor=0.4, noise=0.04, random_state=0)
    A = sj.array(neighbors.kneighbors_graph(X, 8))
    A = snp.maximum(A, A.T)
    d = A.sum(axis=1)
    L = sj.eye(200) - A / snp.sqrt(snp.outer(d, d))
    _, V = sj.scipy.sparse.linalg.eigsh(L, k=2, sigma=-1e-3)
    agreeing = (cluster.KMeans(2, n_init=5, random_state=0).fit_predict(V) == y).mean()
    assert max(agreeing, 1 - agreeing) > 0.98


def test_stationary_distribution():
    P = np.array([[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0, 0.5, 0.5]])
    A = sj.array(P, format="csr")
    _, v = sp.linalg.eigs(A.T, k=1, v0=np.ones(3))
    assert_allclose(np.real(v[:, 0] / v[:, 0].sum()), [0.25, 0.5, 0.25])
    assert_allclose(snp.linalg.matrix_power(A, 40).todense(), np.linalg.matrix_power(P, 40))


def test_classification_of_nodes(karate):
    n = len(karate)
    A = sj.interop.from_networkx(karate, weight=None) + sj.eye(n)
    d = 1 / snp.sqrt(A.sum(axis=1))
    A = d[:, None] * A * d
    y = np.array([karate.nodes[v]["club"] == "Officer" for v in karate]).astype(int)
    known = np.array([0, 33])

    def network(p, A):
        return A @ (snp.tanh(A @ p["first"]) @ p["second"])

    def loss(p, A):
        return -snp.mean(sj.nn.log_softmax(network(p, A)[known])[np.arange(2), y[known]])

    keys = sj.random.split(sj.random.key(0))
    p = {"first": sj.random.normal(keys[0], (n, 8)) * 0.3, "second": sj.random.normal(keys[1], (8, 2)) * 0.3}
    step = sj.jit(lambda p, A: sj.tree.map(lambda a, g: a - 0.5 * g, p, sj.grad(loss)(p, A)))
    for _ in range(100):
        p = step(p, A)
    assert (np.argmax(network(p, A), axis=1) == y).mean() > 0.9
