"""What several products of three operands can begin with is computed once (`shared_products`), against NumPy; and where."""

import itertools
import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.jit.graph import reassociate
from tests.fuzz import engine

FORMATS = ("csr", "csc", "coo", "dcsr", "bsr:2x3", "dense")


@pytest.fixture(autouse=True)
def quick():
    with engine.quick():
        yield


@pytest.fixture
def always(monkeypatch):
    """Whatever can be shared is."""
    monkeypatch.setattr(reassociate, "SURE", 1e9)


def matrix(rng, n, m, form="csr", density=0.2):
    """Small integers, some rows empty: sums are exact in any order."""
    values = np.where(rng.random((n, m)) < density, rng.integers(1, 5, (n, m)), 0).astype(float)
    values[:: max(2, n // 5)] = 0
    return sj.array(values).asformat(form), values


def integers(rng, *shape):
    return rng.integers(-4, 5, shape).astype(float)


def layer(A, H, W, D):
    """A layer, and the gradient by its weights."""
    return A @ (H @ W), H.T @ (A.T @ D)


def text(f, *args, stage="plan"):
    return sj.jit(f).lower(*args).as_text(stage)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.usefixtures("always")
def test_a_layer_and_its_gradient_share_a_product(form):
    rng = np.random.default_rng(0)
    A, a = matrix(rng, 30, 20, form)
    H, W, D = integers(rng, 20, 6), integers(rng, 6, 4), integers(rng, 30, 4)
    got = sj.jit(layer)(A, H, W, D)
    for x, want in zip(got, (a @ H @ W, H.T @ (a.T @ D)), strict=True):
        np.testing.assert_array_equal(x.todense(), want)
    with config.using(skip={"shared_products"}):
        for x, y in zip(got, sj.jit(lambda *args: layer(*args))(A, H, W, D), strict=True):
            np.testing.assert_array_equal(x.todense(), y.todense())


def test_what_is_shared_is_made_once():
    rng = np.random.default_rng(0)
    A, _ = matrix(rng, 600, 3000, density=0.002)
    args = A, rng.random((3000, 32)), rng.random((32, 16)), rng.random((600, 16))
    assert "for 2 products" in text(layer, *args)
    with config.using(skip={"shared_products"}):
        assert "for 2 products" not in text(layer, *args)


@pytest.mark.usefixtures("always")
def test_not_where_an_inner_result_has_another_reader():
    def more(A, H, W, D):
        return *layer(A, H, W, D), H @ W, A.T @ D

    rng = np.random.default_rng(0)
    A, a = matrix(rng, 30, 20)
    H, W, D = integers(rng, 20, 6), integers(rng, 6, 4), integers(rng, 30, 4)
    assert "for 2 products" not in text(more, A, H, W, D)
    for x, want in zip(sj.jit(more)(A, H, W, D), (a @ H @ W, H.T @ a.T @ D, H @ W, a.T @ D), strict=True):
        np.testing.assert_array_equal(np.asarray(x.todense()), want)


@pytest.mark.usefixtures("always")
def test_products_that_read_each_other_are_left_apart():
    def chained(A, H, W, V):
        first = A @ (H @ W)
        return first, H.T @ (A.T @ (first @ V))

    rng = np.random.default_rng(0)
    A, a = matrix(rng, 30, 20)
    H, W, V = integers(rng, 20, 6), integers(rng, 6, 4), integers(rng, 4, 3)
    want = a @ H @ W
    for x, y in zip(sj.jit(chained)(A, H, W, V), (want, H.T @ (a.T @ (want @ V))), strict=True):
        np.testing.assert_array_equal(x.todense(), y)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("bad", [np.inf, np.nan, 1e200])
@pytest.mark.usefixtures("always")
def test_what_is_not_finite_runs_as_it_is_written(bad):
    rng = np.random.default_rng(0)
    A, a = matrix(rng, 30, 20)
    H, W, D = integers(rng, 20, 6), integers(rng, 6, 4), integers(rng, 30, 4)
    f = sj.jit(layer)
    f(A, H, W, D)
    H[3, 2], D[2, 1] = bad, bad
    stored = a != 0
    with np.errstate(all="ignore"):
        inner, outer = H @ W, D
        products = [
            np.where(s[:, :, None], v[:, :, None] * x[None], 0).sum(axis=1)
            for s, v, x in ((stored, a, inner), (stored.T, a.T, outer))
        ]
        want = products[0], H.T @ products[1]
    for x, y in zip(f(A, H, W, D), want, strict=True):
        np.testing.assert_allclose(x.todense(), y, rtol=1e-12)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("seed", range(9))
@pytest.mark.usefixtures("always")
def test_random_programs_of_products(seed):
    """Several products of three of few operands, in any order and nested either way: exact, as all numbers are small integers."""
    rng, nrng = random.Random(seed), np.random.default_rng(seed)
    n, ring = rng.choice((4, 7)), rng.choice((None, "min_plus"))
    pairs = [matrix(nrng, n, n, rng.choice(FORMATS)) if ring is None else (None, None) for _ in range(2)]
    dense = [integers(nrng, n, n) for _ in range(2)]
    pairs = [p for p in pairs if p[0] is not None] + [(snp.asarray(d), d) for d in dense]
    chosen = [(rng.sample(range(len(pairs)), 2) + [rng.randrange(len(pairs))], rng.random() < 0.5) for _ in range(4)]
    turned = [[rng.random() < 0.3 for _ in range(3)] for _ in chosen]

    def program(product, *arrays):
        made = []
        for (numbers, left), flips in zip(chosen, turned, strict=True):
            x, y, z = (arrays[k].T if flip else arrays[k] for k, flip in zip(numbers, flips, strict=True))
            made.append(product(product(x, y), z) if left else product(x, product(y, z)))
        return tuple(made)

    def ours(x, y):
        return sj.einsum("ij,jk->ik", x, y, semiring=ring)

    def numpys(x, y):
        return x @ y if ring is None else (x[:, :, None] + y[None]).min(axis=1)

    got = sj.jit(lambda *arrays: program(ours, *arrays))(*(p[0] for p in pairs))
    for x, want in itertools.zip_longest(got, program(numpys, *(p[1] for p in pairs))):
        np.testing.assert_array_equal(x.todense(), want)


def test_gradients_of_two_layers():
    rng = np.random.default_rng(0)
    A, a = matrix(rng, 60, 60)
    X, W, V, y = rng.random((60, 8)), rng.random((8, 5)), rng.random((5, 3)), rng.random((60, 3))

    def loss(weights):
        W, V = weights
        return (((A @ (snp.maximum(A @ (X @ W), 0) @ V)) - y) ** 2).sum()

    hidden = np.maximum(a @ X @ W, 0)
    error = 2 * (a @ hidden @ V - y)
    want = X.T @ (a.T @ ((a.T @ error @ V.T) * (hidden > 0))), hidden.T @ (a.T @ error)
    for x, g in zip(sj.jit(sj.grad(loss))((W, V)), want, strict=True):
        np.testing.assert_allclose(x.todense(), g, rtol=1e-10)


def test_plans_for_many_shapes_share_what_one_for_a_shape_does():
    """Products are priced at the extents at hand, not at those that bound a bucket."""
    rng = np.random.default_rng(0)

    def loss(W, V, A, H):
        return (snp.tanh(A @ (H @ W)) @ V).sum()

    def operands(rows, columns):
        values = np.zeros((rows, columns))
        values[np.arange(rows)[:, None], rng.integers(0, columns, (rows, 5))] = 0.2
        return rng.random((32, 16)), rng.random((16, 8)), sj.array(values, format="csr"), rng.random((columns, 32))

    many, alone = sj.jit(sj.value_and_grad(loss)), sj.jit(sj.value_and_grad(loss), dynamic=False)
    many(*operands(1700, 4900))
    given = operands(1850, 5300)
    np.testing.assert_allclose(many(*given)[1].todense(), alone(*given)[1].todense(), rtol=1e-9)
    (family,) = many._families.values()
    (plan,) = family._members[0].bounds.values()
    (own,) = [t.closed.cache["plan"] for t in alone._cache.values()]
    assert [type(s) for s in plan.steps] == [type(s) for s in own.steps]
