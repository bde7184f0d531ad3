"""scikit-learn, csgraph, networkx, anndata, pandas and xarray with our arrays, through the adapter or as they are."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import csgraph

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import interop

RNG = np.random.default_rng(0)
X = RNG.random((40, 6)) * (RNG.random((40, 6)) < 0.5)
GRAPH = np.array([[0.0, 2, 0, 7], [2, 0, 3, 0], [0, 3, 0, 1], [7, 0, 1, 0]])
A, G = sj.array(X, format="csr"), sj.array(GRAPH, format="csr")


def test_memory_is_shared_and_nobody_may_write():
    seen = []
    interop.scipy(lambda M, x: seen.extend([M, x]))(A, A.asformat("dense"))
    M, x = seen
    assert isinstance(M, sp.csr_array) and np.shares_memory(M.data, A.data) and not M.data.flags.writeable
    assert isinstance(x, np.ndarray)
    with pytest.raises(ValueError, match="read-only"):
        interop.scipy(lambda M: M.data.__setitem__(0, 1.0))(A)
    assert interop.scipy(lambda M: M.sum(), copy=True)(A) == pytest.approx(X.sum())
    with pytest.raises(TypeError, match="pure_callback"):
        sj.jit(interop.scipy(np.sum))(A)


def test_results_are_ours():
    made = interop.scipy(lambda d: {"a": d["a"] * 2, "b": (np.ones(2), "text", d["a"].T)})({"a": A})
    assert isinstance(made["a"], sj.Array) and str(made["a"].format) == "csr" and str(made["b"][2].format) == "csc"
    assert isinstance(made["b"][0], sj.Array) and made["b"][1] == "text"


def test_graphs():
    distances = interop.scipy(csgraph.shortest_path)(G)
    np.testing.assert_array_equal(distances.todense(), csgraph.shortest_path(GRAPH))
    tree = interop.scipy(csgraph.minimum_spanning_tree)(G)
    assert isinstance(tree, sj.Array) and tree.nnz == 3
    assert interop.scipy(csgraph.connected_components)(G)[0] == 1
    laplacian = interop.scipy(csgraph.laplacian)(G)
    np.testing.assert_array_equal(laplacian.todense(), np.diag(GRAPH.sum(1)) - GRAPH)


def test_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    decomposition = pytest.importorskip("sklearn.decomposition")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    neighbors = pytest.importorskip("sklearn.neighbors")
    y = (X[:, 0] > 0.3).astype(int)
    model = interop.scipy(linear_model.LogisticRegression())
    assert model.fit(A, y) is model
    want = linear_model.LogisticRegression().fit(sp.csr_array(X), y)
    np.testing.assert_array_equal(model.predict(A).todense(), want.predict(sp.csr_array(X)))
    assert isinstance(model.coef_, sj.Array) and model.score(A, y) == want.score(X, y)
    search = pytest.importorskip("sklearn.model_selection").GridSearchCV(linear_model.Ridge(), {"alpha": [1.0]}, cv=2)
    assert isinstance(interop.scipy(search).fit(A, y).best_estimator_.predict(A), sj.Array)
    reduced = interop.scipy(decomposition.TruncatedSVD(2, random_state=0)).fit_transform(A)
    assert isinstance(reduced, sj.Array) and reduced.shape == (40, 2)
    scaled = interop.scipy(preprocessing.normalize)(A)
    assert str(scaled.format) == "csr"
    np.testing.assert_allclose(snp.linalg.norm(scaled, axis=1).todense().max(), 1)
    graph = interop.scipy(neighbors.kneighbors_graph)(A, 3)
    assert isinstance(graph, sj.Array) and graph.nnz == 120
    made = interop.scipy(linear_model.Ridge)(alpha=2.0).fit(A, X[:, 1])
    assert made.adapted.alpha == 2.0 and made.predict(A).shape == (40,)


def test_networkx():
    networkx = pytest.importorskip("networkx")
    graph = interop.scipy(networkx.from_scipy_sparse_array)(G)
    assert networkx.shortest_path_length(graph, 0, 3, weight="weight") == 6
    back = interop.scipy(networkx.to_scipy_sparse_array)(graph)
    assert isinstance(back, sj.Array)
    np.testing.assert_array_equal(back.todense(), GRAPH)


def test_anndata():
    anndata = pytest.importorskip("anndata")
    made = anndata.AnnData(A.to_scipy(copy=True), layers={"scaled": (A * 2).to_scipy(copy=True)})
    made.X *= 2
    np.testing.assert_allclose(sj.array(made.X).todense(), 2 * X)
    np.testing.assert_allclose(sj.array(made.layers["scaled"]).todense(), 2 * X)
    totals = sj.array(made.X).sum(axis=1)
    made.obs["total"] = np.asarray(totals)
    assert made.obs["total"].sum() == pytest.approx(2 * X.sum())
    sub = sj.array(made[:5].X)
    np.testing.assert_allclose(sub.todense(), 2 * X[:5])


def test_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X.copy())
    ours = sj.array(frame)
    frame.iloc[0, 0] = 99.0
    np.testing.assert_array_equal(ours.todense(), X)
    assert pandas.DataFrame(np.asarray(ours)).shape == (40, 6)
    assert pandas.DataFrame.sparse.from_spmatrix(A.to_scipy()).sparse.density == pytest.approx(A.nnz / X.size)
    series = pandas.Series(np.asarray(ours.sum(axis=1)))
    assert series.sum() == pytest.approx(X.sum())


def test_xarray():
    xarray = pytest.importorskip("xarray")
    for given in (A, A.asformat("dense")):
        data = xarray.DataArray(given, dims=("cell", "gene"))
        assert isinstance(data.data, sj.Array)
        np.testing.assert_allclose(data.sum("cell").data.todense(), X.sum(0))
        np.testing.assert_allclose(data.mean("gene").data.todense(), X.mean(1))
        np.testing.assert_allclose((data * 2 + data).data.todense(), X * 3)
        np.testing.assert_allclose(data.where(data > 0.2, 0).data.todense(), np.where(X > 0.2, X, 0))
        both = xarray.concat([data, data], "cell")
        np.testing.assert_allclose(both.data.todense(), np.vstack([X, X]))
        np.testing.assert_allclose(data.isel(cell=slice(3, 7)).data.todense(), X[3:7])
        np.testing.assert_allclose(data.T.data.todense(), X.T)
        grouped = data.assign_coords(kind=("cell", np.arange(40) % 2)).groupby("kind").sum()
        np.testing.assert_allclose(grouped.data.todense(), [X[::2].sum(0), X[1::2].sum(0)])
        dataset = xarray.Dataset({"x": data})
        np.testing.assert_allclose(dataset.mean()["x"].data.todense(), X.mean())
        np.testing.assert_allclose(np.sqrt(data).data.todense(), np.sqrt(X))
