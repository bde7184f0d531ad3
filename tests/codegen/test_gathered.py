"""Walks in vectors whose operands are gathered (`loops/reduce`), as on processors where that is fast, whatever this one is."""

import re

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.cost import statistics
from sparsejax.jit.rewrite import loop_shapes
from tests.prices import longer_rows


@pytest.fixture(autouse=True, params=[1, 1 << 15], ids=["blocks", "rows"])
def fast(monkeypatch, gathers, request):
    """As if gathers were fast, for few entries too; rows also in blocks, where some are alike."""
    monkeypatch.setattr(statistics, "MANY", request.param)
    longer_rows(monkeypatch)
    monkeypatch.setattr(loop_shapes, "FEW", 0.0)
    gathers(True)


def matrix(rows, mean, rng, dtype="f8", cols=130):
    """Rows of any lengths, some of one length one behind the other, and one that is full; the last ones are empty, but one."""
    lengths = np.minimum(rng.poisson(mean, rows), cols)
    lengths[rows // 2 : rows // 2 + 300] = mean
    lengths[rng.integers(0, rows, 2)] = cols
    lengths[-9:-1] = 0
    dense = np.zeros((rows, cols), dtype)
    for row, length in enumerate(lengths):
        dense[row, rng.choice(cols, length, replace=False)] = rng.integers(1, 5, length)
    return dense


def loops(function, *args):
    return sj.jit(function).lower(*args).as_text("loops")


@pytest.mark.rotating(3)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "i8", "u4"])
@pytest.mark.parametrize("mean", [2, 3, 5, 9, 30])
def test_products(mean, dtype):
    rng = np.random.default_rng(mean)
    dense = matrix(1100, mean, rng, dtype)
    x, y = rng.integers(0, 5, 130).astype(dtype), rng.integers(0, 5, 1100).astype(dtype)
    A = sj.array(dense, format="csr")
    np.testing.assert_array_equal(sj.jit(lambda A, x: A @ x)(A, x).todense(), dense @ x)
    made = sj.jit(lambda A, x, y: sj.einsum("ij,j,j->i", A, x, x) * y + 1)(A, x, y)
    np.testing.assert_array_equal(made.todense(), dense @ (x * x) * y + 1)
    np.testing.assert_array_equal(sj.jit(lambda A: (A * A).sum(axis=1))(A).todense(), (dense * dense).sum(1))


@pytest.mark.parametrize("form", ["csr", "csc", "dcsr", "coo", "(d,d,c)@(0,1,2)"])
def test_formats_and_strides(form):
    """Operands that are read along columns, in the order of another operand, or with a stride."""
    rng = np.random.default_rng(3)
    dense = matrix(400, 8, rng)
    if form.count(",") > 1:
        dense = dense.reshape(20, 20, 130)
    A, X = sj.array(dense, format=form), rng.integers(-4, 5, (130, 3)).astype(float)
    made = sj.jit(lambda A, X: sj.einsum("...j,jk->...k", A, X))(A, X)
    np.testing.assert_array_equal(made.todense(), dense @ X)
    made = sj.jit(lambda A, X: A @ X[:, 1] + A @ X[:, 2])(A, X)
    np.testing.assert_array_equal(made.todense(), dense @ (X[:, 1] + X[:, 2]))


@pytest.mark.parametrize("op", ["max", "min", "prod"])
def test_other_reductions(op):
    rng = np.random.default_rng(4)
    dense, x = matrix(500, 9, rng), rng.integers(-3, 4, 130).astype(float)
    made = sj.jit(lambda A, x: getattr(snp, op)(A * x, axis=1))(sj.array(dense, format="csr"), x)
    np.testing.assert_array_equal(made.todense(), getattr(np, op)(dense * x, axis=1))


def test_what_stands_behind_a_row_does_not_matter():
    """Numbers that spoil a sum stand in every second row; vectors of the rows before reach their places."""
    rng = np.random.default_rng(8)
    dense = matrix(700, 6, rng)
    dense[::2, 100:], dense[1::2, :100] = 0, 0
    x = np.where(np.arange(130) < 100, rng.integers(1, 5, 130), np.nan)
    made = np.asarray(sj.jit(lambda A, x: A @ x)(sj.array(dense, format="csr"), x).todense())
    np.testing.assert_array_equal(made[::2], dense[::2, :100] @ x[:100])
    assert np.isnan(made[1::2][dense[1::2].any(axis=1)]).all()


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 1), (5, 0), (9, 8), (2049, 16)])
def test_sizes(shape):
    rng = np.random.default_rng(shape[0])
    dense = rng.integers(0, 3, shape).astype(float)
    x = rng.integers(-4, 5, shape[1]).astype(float)
    made = sj.jit(lambda A, x: A @ x)(sj.array(dense, format="csr"), x)
    np.testing.assert_array_equal(made.todense(), dense @ x)


def test_it_runs():
    """That products are gathered at all; of few entries, and of types that cannot be gathered, they are not."""
    rng = np.random.default_rng(3)
    A, x = sj.array(matrix(400, 20, rng), format="csr"), rng.random(130)
    gathered = re.compile(r"B\.vals\[j(_\d)? below ")
    assert gathered.search(loops(lambda A, x: A @ x, A, x))
    assert not gathered.search(loops(lambda A, x: A @ x, A.astype("i2"), x.astype("i2")))
