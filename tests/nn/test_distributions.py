"""Distributions beside SciPy's, by Kolmogorov and Smirnov's test on fixed keys; random sparse arrays; initialisers and norms."""

import numpy as np
import pytest
import scipy.stats as stats

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import nn, random

pytestmark = pytest.mark.rotating(16)

KEY = random.key(3)
N = 3000
CONTINUOUS = {
    "exponential": (lambda: random.exponential(KEY, (N,)), stats.expon()),
    "gumbel": (lambda: random.gumbel(KEY, (N,)), stats.gumbel_r()),
    "laplace": (lambda: random.laplace(KEY, (N,)), stats.laplace()),
    "logistic": (lambda: random.logistic(KEY, (N,)), stats.logistic()),
    "cauchy": (lambda: random.cauchy(KEY, (N,)), stats.cauchy()),
    "truncated_normal": (lambda: random.truncated_normal(KEY, -1.0, 2.0, (N,)), stats.truncnorm(-1, 2)),
    "gamma": (lambda: random.gamma(KEY, 2.5, (N,)), stats.gamma(2.5)),
    "gamma_small": (lambda: random.gamma(KEY, 0.3, (N,)), stats.gamma(0.3)),
    "beta": (lambda: random.beta(KEY, 2.0, 0.5, (N,)), stats.beta(2.0, 0.5)),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name):
    draw, law = CONTINUOUS[name]
    made = draw().todense()
    assert stats.kstest(made, law.cdf).pvalue > 1e-3
    np.testing.assert_allclose(sj.jit(draw)().todense(), made, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("lam", [0.0, 0.7, 8.0, 25.0, 400.0])
def test_poisson(lam):
    made = random.poisson(KEY, lam, (N,)).todense()
    assert made.dtype == np.int64 and made.min() >= 0
    if not lam:
        assert not made.any()
        return
    assert abs(made.mean() - lam) < 5 * np.sqrt(lam / N) and abs(made.var() / lam - 1) < 0.15
    mixed = random.poisson(KEY, np.array([lam, 100.0 - lam / 5])).todense()
    assert mixed.shape == (2,)


def test_categories_and_choices():
    p = np.array([0.1, 0.6, 0.3])
    drawn = random.categorical(KEY, np.log(p), shape=(N,)).todense()
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / N, p, atol=0.04)
    rows = random.categorical(KEY, np.array([[0.0, -np.inf], [-np.inf, 0.0]]), axis=1).todense()
    np.testing.assert_array_equal(rows, [0, 1])
    drawn = random.choice(KEY, np.array([5.0, 6.0, 7.0]), (N,), p=p).todense()
    np.testing.assert_allclose([(drawn == v).mean() for v in (5, 6, 7)], p, atol=0.04)
    for given in ({}, {"p": np.full(10, 0.1)}):
        drawn = random.choice(KEY, 10, (6,), replace=False, **given).todense()
        assert len(set(drawn.tolist())) == 6
    assert random.choice(KEY, sj.array(np.eye(4), format="csr"), (2, 3)).shape == (2, 3, 4)
    with pytest.raises(ValueError, match="replacement"):
        random.choice(KEY, 3, (4,), replace=False)
    assert set(random.rademacher(KEY, (50,)).todense().tolist()) == {-1, 1}
    assert int(random.PRNGKey(5)) == int(random.key(5))


def test_vectors():
    drawn = random.dirichlet(KEY, np.array([1.0, 2.0, 3.0]), (500,)).todense()
    np.testing.assert_allclose(drawn.sum(1), 1)
    np.testing.assert_allclose(drawn.mean(0), [1 / 6, 1 / 3, 1 / 2], atol=0.05)
    cov = np.array([[2.0, 0.5], [0.5, 1.0]])
    drawn = random.multivariate_normal(KEY, np.array([1.0, -1.0]), cov, (N,)).todense()
    np.testing.assert_allclose(np.cov(drawn.T), cov, atol=0.2)


@pytest.mark.parametrize("form", ["csr", "coo", "csc"])
def test_random_sparse_arrays(form):
    A = random.sparse(KEY, (30, 40), 0.1, format=form)
    assert A.nnz == 120 and str(A.format) == form and (A.data >= 0).all()
    np.testing.assert_array_equal(A.todense(), random.sparse(KEY, (30, 40), 0.1).todense())
    B = random.sparse(random.key(4), (30, 40), 0.1, sampler=random.normal)
    assert (B.data < 0).any() and not np.array_equal(A.todense() != 0, B.todense() != 0)
    assert (
        random.sparse(KEY, (3, 4, 5), 1.0, format="csf").nnz == 60
        and random.sparse(KEY, (9,), 0.0, format="coo").nnz == 0
    )
    with pytest.raises(ValueError, match="density"):
        random.sparse(KEY, (3, 4), 2.0)


@pytest.mark.parametrize(
    "name", ["glorot_uniform", "glorot_normal", "lecun_uniform", "lecun_normal", "he_uniform", "he_normal"]
)
def test_initialisers_have_their_variance(name):
    made = getattr(nn.initializers, name)()(KEY, (60, 80)).todense()
    fan, scale = {"g": (70, 1.0), "l": (60, 1.0), "h": (60, 2.0)}[name[0]]
    np.testing.assert_allclose(made.var(), scale / fan, rtol=0.1)


def test_other_initialisers():
    w = nn.initializers.orthogonal()(KEY, (2, 3, 4)).todense().reshape(6, 4)
    np.testing.assert_allclose(w.T @ w, np.eye(4), atol=1e-12)
    assert not nn.initializers.zeros(KEY, (2,)).todense().any() and nn.initializers.ones(KEY, (2,)).todense().all()
    assert abs(nn.initializers.truncated_normal(0.1)(KEY, (100,)).todense()).max() <= 0.2
    with pytest.raises(ValueError, match="inputs and outputs"):
        nn.initializers.he_normal()(KEY, (3,))


def test_norms_and_activations():
    x = np.random.default_rng(0).normal(size=(5, 3))
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(nn.layer_norm(x, np.arange(3.0), 1.0).todense(), normal * np.arange(3) + 1)
    features = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
    np.testing.assert_allclose(nn.batch_norm(x).todense(), features)
    np.testing.assert_allclose(nn.batch_norm(x, mean=np.ones(3), var=np.ones(3)).todense(), (x - 1) / np.sqrt(1 + 1e-5))
    np.testing.assert_allclose(nn.rms_norm(x).todense(), x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5))
    assert nn.rms_norm(sj.array(np.eye(3), format="csr")).nnz == 3
    np.testing.assert_allclose(nn.log_sigmoid(x).todense(), -np.logaddexp(0, -x))
    np.testing.assert_allclose(nn.swish(x).todense(), x / (1 + np.exp(-x)))
    np.testing.assert_allclose(nn.glu(np.hstack([x, x])).todense(), x / (1 + np.exp(-x)))
    for name in ("celu", "selu", "hard_tanh", "hard_sigmoid", "relu6", "soft_sign"):
        assert np.isfinite(sj.grad(lambda v, name=name: snp.sum(getattr(nn, name)(v)))(x).todense()).all()


def test_parameters_that_no_distribution_has():
    """Nothing is drawn for ever: nan, or -1 of integers, as in JAX."""
    given = np.array([-1.0, np.nan, 0.0, np.inf, 2.0])
    made = random.gamma(KEY, given).todense()
    np.testing.assert_array_equal(np.isnan(made), [True, True, False, False, False])
    assert made[2] == 0 and made[3] == np.inf and 0 < made[4] < np.inf
    np.testing.assert_array_equal(np.isnan(random.beta(KEY, given, 1.0).todense())[[0, 1, 4]], [True, True, False])
    assert np.isnan(random.dirichlet(KEY, np.array([[1.0, -1.0], [np.nan, 2.0]])).todense()).all()
    made = random.poisson(KEY, np.array([-1.0, np.nan, 0.0, np.inf, 1e300, 3e9, 2.0]), dtype=np.int32).todense()
    np.testing.assert_array_equal(made[:6], [-1, -1, 0, *[np.iinfo(np.int32).max] * 3])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_have_the_dtype_that_is_asked_for(dtype):
    a = np.array([0.3, 2.0])
    assert random.gamma(KEY, a, dtype=dtype).dtype == random.beta(KEY, a, 2.0, dtype=dtype).dtype == dtype
    assert random.dirichlet(KEY, a, dtype=dtype).dtype == dtype


def test_shares_of_numbers_too_small_for_their_type():
    made = random.beta(KEY, 1e-4, 1e-4, (2000,)).todense()
    assert abs(made.mean() - 0.5) < 0.06 and not np.isnan(made).any()
    made = random.dirichlet(KEY, np.array([1e-4, 3e-4]), (2000,)).todense()
    np.testing.assert_allclose(made.sum(1), 1)
    np.testing.assert_allclose(made.mean(0), [0.25, 0.75], atol=0.06)
