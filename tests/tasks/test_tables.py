"""Tasks with tables, cells and labelled arrays, as their users would write them at first: pandas, anndata, xarray."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

import sparsejax as sj
import sparsejax.numpy as snp

RNG = np.random.default_rng(0)


def cells(n=100, genes=60):
    return sp.csr_matrix(RNG.poisson(0.3, (n, genes)).astype(np.float32))


def test_recommendations():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"user": RNG.integers(0, 30, 400), "item": RNG.integers(0, 20, 400)})
    table = table.drop_duplicates().assign(rating=lambda t: t.user % 3 + t.item % 2 + 1.0)
    R = sj.array((table["rating"], (table["user"], table["item"])), shape=(30, 20))
    assert_allclose(R.todense(), table.pivot(index="user", columns="item", values="rating").fillna(0))
    seen = R != 0

    def loss(p):
        U, V = p
        return snp.sum((R - seen * (U @ V.T)) ** 2) + 0.1 * (snp.sum(U**2) + snp.sum(V**2))

    step = sj.jit(sj.value_and_grad(loss))
    p = sj.random.normal(sj.random.key(0), (30, 3)), sj.random.normal(sj.random.key(1), (20, 3))
    first, g = step(p)
    for _ in range(200):
        last, g = step(p)
        p = sj.tree.map(lambda a, b: a - 0.005 * b, p, g)
    assert last < first / 5
    assert sj.lax.top_k(p[0] @ p[1].T, 3)[1].shape == (30, 3)


def test_means_of_categories():
    pandas = pytest.importorskip("pandas")
    category, y = pandas.Series(RNG.choice(list("abcd"), 50)), RNG.random(50)
    dummies = pandas.get_dummies(category, sparse=True, dtype=float)
    X = sj.interop.from_pandas(dummies)
    means = (X.T @ y) / X.sum(axis=0)
    made = pandas.Series(means, index=dummies.columns)
    assert_allclose(made, pandas.Series(y).groupby(category).mean())
    assert_allclose(sj.interop.to_pandas(X).sparse.to_dense(), dummies.to_numpy())


def test_normalisation_of_cells():
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    names = [f"cell{i}" for i in range(100)]
    adata = anndata.AnnData(cells(), obs=pandas.DataFrame({"kind": RNG.choice(list("ab"), 100)}, index=names))
    A = sj.array(adata.X)
    N = snp.log1p(A / A.sum(axis=1, keepdims=True) * 1e4)
    assert N.nnz == A.nnz
    chosen = np.argsort(-N.var(axis=0))[:20]
    adata.layers["normal"], adata.obs["total"], adata.var["mean"] = N.to_scipy(), A.sum(axis=1), N.mean(axis=0)
    dense = np.log1p(adata.X.toarray() / adata.X.sum(1).A1[:, None] * 1e4)
    assert_allclose(adata[:, np.asarray(chosen)].layers["normal"].toarray(), N[:, chosen].todense())
    assert_allclose(adata.var["mean"], dense.mean(0), rtol=1e-5)
    kinds, _ = pandas.factorize(adata.obs["kind"])
    means = sj.nn.segment_mean(N, kinds, num_segments=2).todense()
    assert_allclose(means[0], dense[kinds == 0].mean(0), rtol=1e-5)


def test_components_of_cells():
    decomposition = pytest.importorskip("sklearn.decomposition")
    A = sj.array(cells(300, 80).astype(float)) * np.linspace(1, 3, 80)
    mu = A.mean(axis=0)
    want = decomposition.PCA(5, svd_solver="full").fit(A.todense()).singular_values_
    centred = sj.scipy.sparse.linalg.aslinearoperator(A) - mu
    assert_allclose(np.sort(sj.scipy.sparse.linalg.svds(centred, k=5)[1])[::-1], want)

    @sj.jit
    def randomised(A, Q):
        for _ in range(12):
            Q, _ = snp.linalg.qr((A - mu).T @ ((A - mu) @ Q))
        return snp.linalg.svdvals((A - mu) @ Q)

    assert_allclose(randomised(A, sj.random.normal(sj.random.key(0), (80, 40)))[:5], want, rtol=1e-4)


def test_rain():
    xarray, pandas = pytest.importorskip("xarray"), pytest.importorskip("pandas")
    dense = RNG.random((24, 3, 4)) * (RNG.random((24, 3, 4)) < 0.3)
    time = pandas.date_range("2020-01-01", periods=24, freq="MS")
    ours, plain = (
        xarray.DataArray(x, dims=("time", "lat", "lon"), coords={"time": time}, name="rain")
        for x in (sj.array(dense, format="coo"), dense)
    )
    weights = xarray.DataArray(np.arange(1.0, 4), dims="lat")
    for task in [
        lambda a: a.mean("time"),
        lambda a: a.groupby("time.month").mean(),
        lambda a: a - a.mean("time"),
        lambda a: a.sel(time="2020-03-01"),
        lambda a: a.where(a > 0.8, 0),
        lambda a: a.weighted(weights).mean("lat"),
        lambda a: a.coarsen(time=12).sum(),
        lambda a: xarray.dot(a, a, dim="time"),
        lambda a: a.resample(time="YE").max(),
        lambda a: a.quantile(0.9, "time"),
        lambda a: a.stack(place=("lat", "lon")).transpose("place", "time"),
        lambda a: xarray.Dataset({"rain": a, "twice": a * 2}).std("time").twice,
    ]:
        made = task(ours).data
        assert isinstance(made, sj.Array)
        assert_allclose(made.todense(), task(plain).data, rtol=1e-12, atol=1e-15)
    xarray.testing.assert_allclose(ours, ours * 1.0)
