"""Tasks that drop entries, a line each: Markov clustering, neighbours, networks that are pruned, correlations above a threshold."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csgraph

import sparsejax as sj
import sparsejax.numpy as snp

RNG = np.random.default_rng(0)


def blocks(count=4, size=12):
    """A graph of some groups with many edges inside and few between."""
    group = np.repeat(np.arange(count), size)
    inside = group[:, None] == group
    dense = RNG.random((count * size, count * size)) < np.where(inside, 0.6, 0.01)
    return sp.csr_array(np.triu(dense, 1) + np.triu(dense, 1).T + np.eye(len(dense))), group


def test_markov_clustering():
    S, group = blocks()
    M, T = sj.array(S / S.sum(axis=0)).asformat("csr"), sp.csr_array(S / S.sum(axis=0))
    for _ in range(25):
        P = (M @ M) ** 2
        M = sj.prune(P / P.sum(axis=0), tol=1e-4)  # the step, in one line each
        T = (T @ T).power(2)
        T = sp.csr_array(T / T.sum(axis=0))
        T.data[T.data <= 1e-4] = 0
        T.eliminate_zeros()
    assert M.nnz == T.nnz
    assert_allclose(M.todense(), T.toarray(), atol=1e-12)
    count, label = csgraph.connected_components(M.to_scipy(), directed=False)
    assert count == 4 and len(set(zip(label, group))) == 4


def test_nearest_neighbours():
    neighbors = pytest.importorskip("sklearn.neighbors")
    X = RNG.normal(size=(80, 3))
    near = neighbors.radius_neighbors_graph(X, 1.5, mode="distance")
    similar = snp.exp(-sj.array(near))  # near points have large entries; what is not stored is exp(0)
    K = sj.prune(sj.lax.refill(similar, 0), keep=5)
    want = np.zeros((80, 80))
    for i in range(80):
        row = near[[i]]
        chosen = row.indices[np.argsort(row.data, kind="stable")[:5]]
        want[i, chosen] = np.exp(-near[[i], chosen])
    assert_allclose(K.todense(), want)
    assert_array_equal(K.getnnz(axis=1), np.minimum(5, np.diff(near.indptr)))


def test_nearest_neighbours_of_points():
    X = RNG.normal(size=(60, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    K = sj.prune(X @ X.T, predicate=lambda s: s > 0, keep=6)  # cosines, of which the largest are the nearest
    S = X @ X.T
    order = np.argsort(-S, axis=1)[:, :6]
    want = np.zeros_like(S)
    np.put_along_axis(want, order, np.take_along_axis(S, order, 1), 1)
    assert_array_equal(K.todense(), np.where(want > 0, want, 0))


def test_a_layer_that_becomes_sparse():
    W = RNG.normal(size=(30, 20))
    S = sj.prune(W, keep=60, axis=None)
    assert S.nnz == 60
    assert_array_equal(S.todense(), np.where(np.abs(W) >= np.sort(np.abs(W).ravel())[-60], W, 0))


def test_a_pruned_network():
    X, y = RNG.normal(size=(200, 10)), RNG.normal(size=10) * (np.arange(10) < 3)
    W = sj.array(RNG.normal(size=(10, 1)), format="csr")

    def loss(W):
        return snp.mean((X @ W - (X @ y)[:, None]) ** 2)

    step = sj.jit(lambda W: W - 0.1 * sj.grad(loss)(W))
    for kept in (10, 6, 3):
        for _ in range(60):
            W = step(W)
        W = sj.prune(W, keep=kept, axis=None)  # weights that went are no parameters any more
        assert W.nnz == kept
        want = sp.csr_array(W.todense())
        assert_allclose(step(W).todense()[want.toarray() == 0], 0)
    for _ in range(200):
        W = step(W)
    assert_allclose(W.todense()[:, 0], y, atol=1e-6)


def test_thresholded_correlations():
    X = RNG.normal(size=(60, 5)) @ RNG.normal(size=(5, 30)) + RNG.normal(size=(60, 30))
    R = sj.prune(snp.corrcoef(X.T), tol=0.5)
    want = sp.csr_array(np.corrcoef(X.T))
    want.data[np.abs(want.data) <= 0.5] = 0
    want.eliminate_zeros()
    assert R.nnz == want.nnz
    assert_allclose(R.todense(), want.toarray())
