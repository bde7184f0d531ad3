"""What is kept for a row stands where the row of the result will: legality, and the same numbers as NumPy's."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import nn
from sparsejax.jit.backend import host
from tests import bounds
from tests.fuzz import engine


@pytest.fixture(scope="module", params=[True, False], ids=["masks", "no masks"], autouse=True)
def masks(request):
    """Processors that load and store some lanes of a vector, and others."""
    with pytest.MonkeyPatch.context() as patch, engine.quick():
        patch.setattr(host, "has_masks", lambda: request.param)
        yield request.param


def rows(form, dtype="f8", seed=0):
    """A matrix with an empty row, a full one, rows of one entry and of every length around the number of lanes."""
    rng = np.random.default_rng(seed)
    dense = np.zeros((40, 37), dtype)
    for i, count in enumerate(np.r_[0, 37, np.arange(1, 37), 0, 1]):
        dense[i, rng.choice(37, count, replace=False)] = rng.standard_normal(count) + 3
    return sj.array(dense, format=form), dense


def softmax(x, stored=None):
    """Of the entries that are not zero, or that are `stored`."""
    stored = x != 0 if stored is None else stored
    lines = np.where(stored, x, -np.inf)
    grown = np.exp(lines - np.max(lines, axis=-1, keepdims=True, initial=-1e9))
    sums = grown.sum(axis=-1, keepdims=True)
    return grown / np.where(sums == 0, 1, sums)


def program(function, *args):
    return sj.jit(function).lower(*args).as_text("loops")


@pytest.mark.rotating(3)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "lil", "ell", "groupcoo:2"])
def test_softmax_of_rows(form, dtype):
    A, x = rows(form, dtype)
    made = sj.jit(nn.softmax)(A)
    exact = softmax(bounds.wide(x))
    bounds.check(made.todense(), exact, exact)
    assert made.nnz == A.nnz


def test_softmax_of_fibers():
    rng = np.random.default_rng(1)
    x = np.where(rng.random((4, 5, 21)) < 0.4, rng.standard_normal((4, 5, 21)) + 3, 0)
    made = sj.jit(nn.softmax)(sj.array(x, format="csf"))
    np.testing.assert_allclose(made.todense(), softmax(x), rtol=1e-13)


def test_chunks():
    A, x = rows("csr")
    with sj.config.using(parallel_work=0, num_threads=2):
        np.testing.assert_allclose(sj.jit(nn.softmax)(A).todense(), softmax(x), rtol=1e-13)


def test_nothing_is_appended(masks):
    rng = np.random.default_rng(0)  # of rows that are fuller, exponentials are computed twice
    A = sj.array(np.where(rng.random((300, 300)) < 0.1, rng.random((300, 300)), 0), format="csr")
    text = program(nn.softmax, A)
    assert (": +8 below" in text) == masks
    assert "realloc" not in text and "out_vals[" in text
    told = sj.explain(nn.softmax)(A)
    (kernel,) = told.kernels
    assert [w.policy for w in kernel.workspaces if w.policy != "scalar"] == ["overlay"]


@pytest.mark.parametrize("form", ["csr", "dcsr", "coo"])
def test_rows_that_are_scaled(form):
    A, x = rows(form)
    size = np.abs(x).sum(axis=1, keepdims=True)
    made = sj.jit(
        lambda A: A / snp.where(abs(A).sum(axis=1, keepdims=True) == 0, 1, abs(A).sum(axis=1, keepdims=True))
    )(A)
    np.testing.assert_allclose(made.todense(), x / np.where(size == 0, 1, size), rtol=1e-13)


def test_two_values_are_kept():
    """One of them stands where the result will; what is read with it at other places is not lost."""
    A, x = rows("csr")

    def f(A):
        e = nn.softmax(A)
        return nn.softmax(e * A) * e

    e = softmax(x)
    again = np.where(x != 0, e * x, 0)
    np.testing.assert_allclose(sj.jit(f)(A).todense(), softmax(again, x != 0) * e, rtol=1e-12)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_two_patterns(form):
    """What is stored in one of two operands only."""
    A, x = rows(form)
    B, y = rows(form, seed=5)
    made = sj.jit(lambda A, B: nn.softmax(A) * B / (1 + B.sum(axis=1, keepdims=True)))(A, B)
    expected = softmax(x) * y / (1 + y.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(made.todense(), expected, rtol=1e-12)


def test_derivatives():
    A, x = rows("csr")
    weights = np.random.default_rng(3).random(x.shape)
    made = sj.jit(sj.grad(lambda A: (nn.softmax(A) * weights).sum()))(A)
    y = softmax(x)
    expected = y * (weights - (y * weights).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(made.todense(), np.where(x != 0, expected, 0), rtol=1e-9, atol=1e-14)
