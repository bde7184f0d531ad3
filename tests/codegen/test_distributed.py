"""Loops distributed over blocks of short rows (`loops/distributed`): the same numbers, whatever rows hold, and how many threads there are."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.cost import statistics
from tests import bounds


@pytest.fixture(autouse=True)
def everywhere(monkeypatch):
    """Blocks also where there are few entries."""
    monkeypatch.setattr(statistics, "MANY", 1)


def matrix(rows, mean, rng, dtype="f8", cols=60):
    """Rows of few entries or none; some long ones, a block with more entries than rows can bear, and empty rows at the end."""
    lengths = np.minimum(rng.poisson(mean, rows), cols)
    lengths[rng.integers(0, max(rows, 1), min(rows, 3))] = cols
    lengths[: rows // 10] += 5 * (rows > 5000)
    lengths[len(lengths) - rows // 8 :] = 0
    lengths = np.minimum(lengths, cols)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.concatenate([np.sort(rng.choice(cols, n, replace=False)) for n in lengths] or [np.zeros(0, int)])
    values = rng.integers(1, 5, len(indices)) * np.where(rng.random(len(indices)) < 0.5, 1, -1)
    made = sp.csr_array((values.astype(dtype), indices.astype(np.int32), indptr), shape=(rows, cols))
    return made


def loops(function, *args):
    return sj.jit(function).lower(*args).as_text("loops")


def by_rows(A, function):
    """`function` of the stored values of every row."""
    return np.concatenate([function(A.data[lo:hi]) for lo, hi in zip(A.indptr, A.indptr[1:])] or [A.data])


def softmax(x):
    e = np.exp(x - x.max(initial=-np.inf))
    return e / e.sum()


SIZES = [0, 1, 3, 63, 700, 2048, 2049, 9000]


@pytest.mark.rotating(3)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("mean", [0.4, 1.2])
def test_softmax(rows, mean, dtype):
    A = matrix(rows, mean, np.random.default_rng(rows), dtype)
    made = sj.jit(sj.nn.softmax)(sj.array(A))
    assert made.nnz == A.nnz
    exact = by_rows(A.astype("f8"), softmax)
    bounds.check(made.storage.vals, exact, exact)
    np.testing.assert_array_equal(made.storage.buffers[1][1], A.indices)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "i8", "c16", "c8"])
@pytest.mark.parametrize("rows", SIZES)
def test_reductions(rows, dtype):
    rng = np.random.default_rng(rows + 1)
    A, x, y = (
        matrix(rows, 0.7, rng, dtype),
        rng.integers(-4, 5, 60).astype(dtype),
        rng.integers(-4, 5, rows).astype(dtype),
    )
    S, dense = sj.array(A), A.toarray()
    np.testing.assert_array_equal(sj.jit(lambda S, x: S @ x)(S, x).todense(), dense @ x)
    made = sj.jit(lambda S, x, y: sj.einsum("ij,j,i->i", S, x, y) + y)(S, x, y)
    np.testing.assert_array_equal(made.todense(), (dense @ x) * y + y)
    np.testing.assert_array_equal(sj.jit(lambda S: (S * S).sum(axis=1))(S).todense(), (dense * dense).sum(1))
    np.testing.assert_array_equal(sj.jit(lambda S: S.sum(axis=1))(S).todense(), dense.sum(1))
    if dtype[0] != "c":
        np.testing.assert_array_equal(sj.jit(lambda S: S.max(axis=1))(S).todense(), dense.max(1))
        np.testing.assert_array_equal(sj.jit(lambda S: abs(S).min(axis=1))(S).todense(), abs(dense).min(1))


@pytest.mark.rotating(2)
@pytest.mark.parametrize("rows", SIZES)
def test_several_statements(rows):
    """Values at the positions of entries, which read what was reduced, and operands of rows and columns."""
    rng = np.random.default_rng(rows + 2)
    A, x, y = matrix(rows, 0.7, rng), rng.integers(1, 5, 60).astype(float), rng.integers(1, 5, rows).astype(float)
    S, dense = sj.array(A), A.toarray()
    size = np.maximum(abs(dense).sum(1), 1.0)

    def shares(S, x, y):
        size = snp.maximum(abs(S).sum(axis=1), 1.0)
        return S * x / size[:, None] * y[:, None]

    np.testing.assert_allclose(sj.jit(shares)(S, x, y).todense(), dense * x / size[:, None] * y[:, None], rtol=1e-14)

    def rooted(S):
        return snp.sqrt((S * S).sum(axis=1)) + S.max(axis=1)

    np.testing.assert_allclose(sj.jit(rooted)(S).todense(), np.sqrt((dense**2).sum(1)) + dense.max(1), rtol=1e-14)


def test_two_patterns():
    """What is kept of the rows of one operand is read for the entries of another."""
    rng = np.random.default_rng(9)
    A, B = matrix(6000, 0.6, rng), matrix(6000, 0.9, rng)
    made = sj.jit(lambda A, B: A * B.sum(axis=1)[:, None])(sj.array(A), sj.array(B))
    np.testing.assert_array_equal(made.todense(), A.toarray() * B.toarray().sum(1)[:, None])
    same = sj.array(A)
    made = sj.jit(lambda A, B: A * B.sum(axis=1)[:, None])(same, same * 2)
    np.testing.assert_array_equal(made.todense(), A.toarray() * 2 * A.toarray().sum(1)[:, None])


def test_what_is_not_a_number_stays_in_its_row():
    rng = np.random.default_rng(4)
    A = matrix(4000, 0.8, rng)
    A.data[rng.random(A.nnz) < 0.2] = np.nan
    A.data[rng.random(A.nnz) < 0.1] = np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(sj.jit(lambda S: S.sum(axis=1))(sj.array(A)).todense(), A.toarray().sum(1))
        np.testing.assert_array_equal(sj.jit(lambda S: S.max(axis=1))(sj.array(A)).todense(), A.toarray().max(1))


def test_it_runs():
    """That these programs are distributed at all, and others are not."""
    rng = np.random.default_rng(3)
    S = sj.array(matrix(4000, 0.7, rng))
    for function in (sj.nn.softmax, lambda S: S.sum(axis=1), lambda S: S / S.max(axis=1)[:, None]):
        assert "_rows" in loops(function, S)
    assert "_rows" not in loops(lambda S: S.sum(axis=1), sj.array(matrix(4000, 9, rng)))
    assert "_rows" not in loops(lambda S: S * 2, S)


def test_bits_do_not_depend_on_threads(by_threads):
    rng = np.random.default_rng(5)
    A = matrix(20_000, 1.0, rng)
    A.data *= rng.standard_normal(A.nnz)
    S, x = sj.array(A), sj.array(rng.standard_normal(60))
    made = by_threads(
        lambda: (
            np.asarray(sj.jit(lambda S, x: S @ x)(S, x).todense()).tobytes(),
            sj.jit(sj.nn.softmax)(S).storage.vals.tobytes(),
        )
    )
    assert made[0] == made[1] == made[2]


def test_derivatives():
    rng = np.random.default_rng(6)
    A = matrix(3000, 0.8, rng)
    S, weights = sj.array(A), sj.array(rng.standard_normal(60))
    got = sj.jit(sj.grad(lambda S: (sj.nn.softmax(S) @ weights).sum()))(S)
    p, w = by_rows(A, softmax), np.asarray(weights.todense())[A.indices]
    row = np.repeat(np.arange(3000), np.diff(A.indptr))
    mean = np.bincount(row, p * w, 3000)
    np.testing.assert_allclose(got.storage.vals, p * (w - mean[row]), atol=1e-13)
