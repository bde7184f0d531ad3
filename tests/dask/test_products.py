"""Cuts by what rows of a product cost, against products that SciPy makes."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj

pytest.importorskip("dask.array", reason="dask is not installed: pip install 'sparsejax[dask]'")

import sparsejax.dask as sd
from sparsejax.dask import products

rng = np.random.default_rng(0)


def power_law(nodes, links):
    """Links between nodes of which few have most."""
    ends = np.minimum((nodes * rng.random((2, links)) ** 3).astype(int), nodes - 1)
    return sp.coo_array((np.ones(links), tuple(ends)), shape=(nodes, nodes)).tocsr()


def counted(A, B):
    """What rows cost, with the entries and multiplications of SciPy's product."""
    ones = [sp.csr_array((np.ones(M.nnz), M.indices, M.indptr), M.shape) for M in (A, B)]
    work, made = ones[0] @ np.diff(B.indptr), np.diff((ones[0] @ ones[1]).indptr)
    parts = max(1.0, B.shape[1] / products.WIDTH)
    return (
        products.MADE * made
        + products.APART * parts * (1 - np.exp(-made / parts))
        + products.MULTIPLIED * work
        + products.ENTERED * np.diff(A.indptr)
        + products.STARTED * np.ones(A.shape[0])
    )


@pytest.mark.parametrize("left", ["csr", "csc", "coo", "(c,c)"])
@pytest.mark.parametrize("right", ["csr", "csc"])
def test_rows_with_products_of_their_own_are_counted_exactly(left, right):
    """Every row has as many multiplications as the others, so that each is drawn."""
    n = 128  # of which each has two of the SAMPLED points
    A = sp.csr_array(sp.eye_array(n)) + sp.csr_array(sp.eye_array(n, k=1)) + sp.csr_array(sp.eye_array(n, k=1 - n))
    B = sp.random_array((n, n), density=0.0, format="lil")
    for k in range(n):
        B[k, [(k // 7 + j * (1 + k % 3)) % n for j in range(5)]] = 1.0
    A, B = (sp.csr_array(M) for M in (A, B))
    found = products.row_costs(sj.array(A, format=left)._storage, sj.array(B, format=right)._storage)
    np.testing.assert_allclose(found, counted(A, B), rtol=1e-12)


@pytest.mark.parametrize("shards", [2, 4])
def test_parts_of_products_of_power_laws_cost_alike(shards):
    for seed_links in (20_000, 60_000):
        A = power_law(4000, seed_links)
        exact = counted(A, A)
        by_cost, by_entries = (sd.shard(A, rows=shards, **how).cuts[0] for how in ({"times": A}, {}))
        balance = [
            float(np.add.reduceat(exact, cut[:-1]).max() / exact.sum() * shards) for cut in (by_cost, by_entries)
        ]
        assert balance[0] < 1.1 < balance[1]


def test_many_multiplications_are_counted_in_fewer_rows(monkeypatch):
    A = power_law(2000, 20_000)
    every = products.row_costs(sj.array(A)._storage, sj.array(A)._storage)
    monkeypatch.setattr(products, "LARGEST", 1 << 14)
    some = products.row_costs(sj.array(A)._storage, sj.array(A)._storage)
    assert 0.7 < some.sum() / every.sum() < 1.4
    assert not np.array_equal(some, every)


def test_of_a_dense_array_entries_and_rows_count():
    A = sp.random_array((50, 40), density=0.2, format="csr", rng=rng)
    for B, columns in ((np.ones(40), 1), (np.ones((40, 8)), 8)):
        found = products.row_costs(sj.array(A)._storage, sj.array(B)._storage)
        np.testing.assert_allclose(found, columns * (products.LANE * np.diff(A.indptr) + products.WRITTEN))


def test_nothing_to_multiply_is_cut_evenly():
    A = sp.csr_array((10, 10))
    assert sd.shard(A, rows=2, times=A).cuts[0] == (0, 5, 10)
    assert sd.shard(sp.csr_array((0, 10)), rows=2, times=A).shape == (0, 10)


def test_products_of_such_shards_are_right():
    A = power_law(300, 2000)
    made = sd.jit(lambda A: A @ A)(sd.shard(A, rows=3, times=A)).compute()
    np.testing.assert_array_equal(made.todense(), (A @ A).toarray())


def test_what_cannot_be_multiplied_is_refused():
    A = power_law(30, 60)
    with pytest.raises(ValueError, match=r"times has shape \(20,\), but A has shape \(30, 30\)"):
        sd.shard(A, rows=2, times=np.ones(20))
    with pytest.raises(ValueError, match="pass times or row_cost"):
        sd.shard(A, rows=2, times=A, row_cost=3)
    with pytest.raises(TypeError, match="times is in shards"):
        sd.shard(A, rows=2, times=sd.shard(A, rows=2))
    with pytest.raises(ValueError, match="is cut where its chunks are"):
        sd.shard(sd.shard(A, rows=2).to_dask_array(), times=A)
