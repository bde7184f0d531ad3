"""Rows in blocks (`loops/row_blocks`): the same sums, whatever the lengths of rows, how many there are, and how many threads add them up."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.jit.cost import statistics
from tests.prices import longer_rows

pytestmark = pytest.mark.rotating(20)


@pytest.fixture(autouse=True)
def everywhere(monkeypatch, gathers):
    """Blocks also where there are few entries, on processors that gather slowly."""
    monkeypatch.setattr(statistics, "MANY", 1)
    longer_rows(monkeypatch)
    gathers(False)


def matrix(rows, mean, rng, dtype="f8", cols=300):
    """Rows of any lengths; some blocks with rows of one length, and some with more entries than fit."""
    lengths = np.minimum(rng.poisson(mean, rows), cols)
    lengths[rows // 2 : rows // 2 + 300] = mean
    lengths[rng.integers(0, rows, 3)] = cols
    lengths[-300:][::7] = 0
    dense = np.zeros((rows, cols), dtype)
    for row, length in enumerate(lengths):
        dense[row, rng.choice(cols, length, replace=False)] = rng.integers(1, 5, length)
    return dense


def loops(function, *args):
    return sj.jit(function).lower(*args).as_text("loops")


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "i8"])
@pytest.mark.parametrize("mean", [3, 7, 30])
def test_products(mean, dtype):
    rng = np.random.default_rng(mean)
    dense = matrix(1500, mean, rng, dtype)
    x, y = rng.integers(-4, 5, 300).astype(dtype), rng.integers(-4, 5, 1500).astype(dtype)
    A = sj.array(dense, format="csr")
    assert "A_t" in loops(lambda A, x: A @ x, A, x)
    np.testing.assert_array_equal(sj.jit(lambda A, x: A @ x)(A, x).todense(), dense @ x)
    made = sj.jit(lambda A, x, y: sj.einsum("ij,j,j->i", A, x, x) * y + 1)(A, x, y)
    np.testing.assert_array_equal(made.todense(), dense @ (x * x) * y + 1)
    np.testing.assert_array_equal(sj.jit(lambda A: (A * A).sum(axis=1))(A).todense(), (dense * dense).sum(1))


def test_what_stands_behind_a_block_does_not_matter():
    """Numbers that spoil a sum stand in every second row; lanes of the rows before read their places."""
    rng = np.random.default_rng(8)
    dense = matrix(700, 5, rng)
    dense[::2, 100:], dense[1::2, :100] = 0, 0
    x = np.where(np.arange(300) < 100, rng.integers(1, 5, 300), np.nan)
    made = np.asarray(sj.jit(lambda A, x: A @ x)(sj.array(dense, format="csr"), x).todense())
    np.testing.assert_array_equal(made[::2], dense[::2, :100] @ x[:100])
    assert np.isnan(made[1::2][dense[1::2].any(axis=1)]).all()


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 200, 2048, 2100])
def test_last_blocks(rows):
    rng = np.random.default_rng(rows)
    for mean in (0.4, 9):
        dense = np.where(rng.random((rows, 50)) < mean / 50, rng.integers(1, 5, (rows, 50)), 0).astype(float)
        x = rng.integers(-4, 5, 50).astype(float)
        made = sj.jit(lambda A, x: A @ x)(sj.array(dense, format="csr"), x)
        np.testing.assert_array_equal(made.todense(), dense @ x)


def test_bits_do_not_depend_on_threads(by_threads):
    rng = np.random.default_rng(5)
    dense = matrix(3000, 6, rng) * rng.standard_normal((3000, 300))
    A, x = sj.array(dense, format="csr"), sj.array(rng.standard_normal(300))
    made = by_threads(lambda: np.asarray(sj.jit(lambda A, x: A @ x)(A, x).todense()).tobytes())
    assert len(set(made)) == 1
