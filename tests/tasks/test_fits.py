"""Tasks of statistics and learning, as their users would write them at first: scikit-learn, scipy.optimize, and a few lines by hand."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from numpy.testing import assert_allclose

import sparsejax as sj
import sparsejax.numpy as snp

datasets = pytest.importorskip("sklearn.datasets")
linear_model = pytest.importorskip("sklearn.linear_model")


def test_logistic_regression_by_scipy():
    X, y = datasets.make_classification(200, 20, random_state=0)
    X[np.abs(X) < 0.5] = 0
    A = sj.array(sp.csr_array(X))

    def loss(w):
        return snp.sum(snp.logaddexp(0, -(2 * y - 1) * (A @ w))) + 0.5 * w @ w

    options = {"ftol": 1e-14, "gtol": 1e-8}
    found = scipy.optimize.minimize(
        sj.jit(sj.value_and_grad(loss)), np.zeros(20), jac=True, method="L-BFGS-B", options=options
    )
    want = linear_model.LogisticRegression(fit_intercept=False, tol=1e-10, max_iter=1000).fit(X, y)
    assert_allclose(found.x, want.coef_[0], atol=1e-5)


def test_ridge_by_products_of_the_hessian():
    A, b = sj.array(sp.random_array((100, 30), density=0.1, rng=0, format="csr")), np.ones(100)

    @sj.jit
    def loss(x):
        return snp.sum((A @ x - b) ** 2) + snp.sum(x**2)

    @sj.jit
    def product(x, v):
        return sj.jvp(sj.grad(loss), (x,), (v,))[1]

    jac = sj.jit(sj.grad(loss))
    found = scipy.optimize.minimize(loss, np.zeros(30), jac=jac, hessp=product, method="Newton-CG", tol=1e-10)
    want = linear_model.Ridge(alpha=1.0, fit_intercept=False, tol=1e-12).fit(A.to_scipy(), b)
    assert_allclose(found.x, want.coef_, atol=1e-6)


def test_lasso_by_proximal_steps():
    rng = np.random.default_rng(0)
    S = sp.random_array((100, 30), density=0.2, rng=0, format="csr")
    b = S @ (rng.random(30) * (rng.random(30) < 0.2))
    A = sj.asarray(S)
    rate = 100 / float(sj.scipy.sparse.linalg.svds(A, k=1)[1][0]) ** 2

    @sj.jit
    def solution(x):
        def step(i, x):
            z = x - rate * A.T @ (A @ x - b) / 100
            return snp.sign(z) * snp.maximum(snp.abs(z) - 1e-3 * rate, 0)

        return sj.lax.fori_loop(0, 2000, step, x)

    want = linear_model.Lasso(alpha=1e-3, fit_intercept=False, tol=1e-10, max_iter=10000).fit(S, b).coef_
    assert_allclose(solution(np.zeros(30)), want, atol=1e-6)


def test_estimators_and_searches():
    model_selection = pytest.importorskip("sklearn.model_selection")
    pipeline, preprocessing = pytest.importorskip("sklearn.pipeline"), pytest.importorskip("sklearn.preprocessing")
    bayes = pytest.importorskip("sklearn.naive_bayes")
    X, y = datasets.load_digits(return_X_y=True)
    A, S = sj.csr_array(X), sp.csr_array(X)
    wrap = sj.interop.scipy
    A1, A2, y1, y2 = wrap(model_selection.train_test_split)(A, y, random_state=0)
    assert isinstance(A1, sj.Array)
    assert A1.shape[0] == len(y1)
    model = wrap(pipeline.make_pipeline(preprocessing.MaxAbsScaler(), bayes.MultinomialNB())).fit(A1, y1)
    assert model.score(A2, y2) > 0.85
    search = wrap(model_selection.GridSearchCV(bayes.MultinomialNB(), {"alpha": [0.1, 1.0]}, cv=3)).fit(A, y)
    want = model_selection.GridSearchCV(bayes.MultinomialNB(), {"alpha": [0.1, 1.0]}, cv=3).fit(S, y)
    assert search.best_params_ == want.best_params_
    assert_allclose(search.best_estimator_.predict(A), want.best_estimator_.predict(S))


def test_kmeans():
    cluster = pytest.importorskip("sklearn.cluster")
    X, y = datasets.make_blobs(120, 10, centers=3, random_state=1)
    X[np.abs(X) < 1] = 0
    A, start = sj.csr_array(X), X[[np.flatnonzero(y == k)[0] for k in range(3)]]

    @sj.jit
    def step(C):
        d = snp.sum(A**2, axis=1)[:, None] - 2 * (A @ C.T) + snp.sum(C**2, axis=1)
        return sj.nn.segment_mean(A, snp.argmin(d, axis=1), num_segments=3)

    C = start
    for _ in range(20):
        C = step(C)
    assert_allclose(C.todense(), cluster.KMeans(3, init=start, n_init=1).fit(X).cluster_centers_)


def test_tfidf_and_search():
    text = pytest.importorskip("sklearn.feature_extraction.text")
    documents = ["the cat sat", "the dog sat on the cat", "dogs and cats", "a bird sang"]
    counts = text.CountVectorizer().fit_transform(documents)
    X = sj.array(counts).astype(np.float64)
    idf = snp.log((1 + X.shape[0]) / (1 + snp.sum(X != 0, axis=0))) + 1
    T = X * idf
    T = T / snp.linalg.norm(T, axis=1, keepdims=True)
    want = text.TfidfTransformer().fit_transform(counts)
    assert_allclose(T.todense(), want.toarray())
    assert T.nnz == want.nnz
    assert np.argsort(-(T @ T[1].todense()))[1] == 0


def test_topics_by_multiplicative_updates():
    rng = np.random.default_rng(0)
    A = sj.array(sp.random_array((40, 30), density=0.2, rng=0))
    W, H = rng.random((40, 4)), rng.random((4, 30))

    def update(A, W, H):
        H = H * (W.T @ A) / (W.T @ W @ H + 1e-12)
        return W * (A @ H.T) / (W @ (H @ H.T) + 1e-12), H

    w, h, fast = W, H, sj.jit(update)
    for _ in range(10):
        W, H = fast(A, W, H)
        w, h = update(A.todense(), w, h)
    assert_allclose(W, w)
    assert_allclose(H, h)


def test_tensor_factors():
    rng = np.random.default_rng(0)
    T = np.einsum("ir,jr,kr->ijk", *(rng.random((n, 2)) * (rng.random((n, 2)) < 0.8) for n in (8, 9, 10)))
    X = sj.array(T, format="csf")
    A, B, C = (rng.random((n, 2)) for n in T.shape)

    @sj.jit
    def sweep(A, B, C):
        A = snp.linalg.solve((B.T @ B) * (C.T @ C), sj.einsum("ijk,jr,kr->ri", X, B, C)).T
        B = snp.linalg.solve((A.T @ A) * (C.T @ C), sj.einsum("ijk,ir,kr->rj", X, A, C)).T
        C = snp.linalg.solve((A.T @ A) * (B.T @ B), sj.einsum("ijk,ir,jr->rk", X, A, B)).T
        return A, B, C

    for _ in range(200):
        A, B, C = sweep(A, B, C)
    assert_allclose(np.einsum("ir,jr,kr->ijk", A, B, C), T, atol=1e-6)
