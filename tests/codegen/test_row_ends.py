"""Ends of rows: lanes behind a row read what is stored there, and leave it out."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.jit.rewrite import loop_shapes

pytestmark = pytest.mark.rotating(24)

LENGTHS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 0, 0, 8, 3, 30]


@pytest.fixture(autouse=True, params=[0.0, loop_shapes.FEW], ids=["vectors", "pairs"])
def single_loads(monkeypatch, gathers, request):
    """Operands are put together from single loads, as where processors gather slowly (`tests/codegen/test_gathered.py` has the others); rows of
    few entries too, or two by two."""
    monkeypatch.setattr(loop_shapes, "FEW", request.param)
    gathers(False)


def matrix(lengths, cols, dtype, rng):
    dense = np.zeros((len(lengths), cols))
    for row, length in enumerate(lengths):
        dense[row, rng.choice(cols, length, replace=False)] = rng.integers(1, 5, length)
    return dense.astype(dtype)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "c16"])
@pytest.mark.parametrize("form", ["csr", "dcsr", "coo", "lil", "ell", "groupcoo:4", "(d,h)"])
def test_rows_of_all_lengths(form, dtype):
    rng = np.random.default_rng(0)
    for ends in (2, 5, len(LENGTHS)):
        dense = matrix(LENGTHS[:ends], 40, dtype, rng)
        x, y = rng.integers(-4, 5, 40).astype(dtype), rng.integers(-4, 5, ends).astype(dtype)
        A = sj.array(dense, format=form)
        np.testing.assert_array_equal(sj.jit(lambda A, x: A @ x)(A, x).todense(), dense @ x)
        made = sj.jit(lambda A, x, y: sj.einsum("ij,j,j,i->i", A, x, x, y))(A, x, y)
        np.testing.assert_array_equal(made.todense(), dense @ (x * x) * y)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("form", ["csr", "dcsr", "coo"])
def test_what_stands_behind_a_row_does_not_matter(form, bad):
    """Every second row reads numbers that spoil a sum, which lanes of the row before read too."""
    rng = np.random.default_rng(1)
    dense = np.zeros((60, 50))
    for row in range(60):
        half = rng.choice(25, rng.integers(0, 10), replace=False)
        dense[row, half + 25 * (row % 2)] = 1
    x = np.where(np.arange(50) < 25, rng.integers(1, 5, 50), bad)
    made = np.asarray(sj.jit(lambda A, x: A @ x)(sj.array(dense, format=form), x).todense())
    np.testing.assert_array_equal(made[::2], dense[::2, :25] @ x[:25])
    assert not np.isfinite(made[1::2][dense[1::2].any(axis=1)]).any()


def test_a_tensor_of_short_fibers():
    rng = np.random.default_rng(2)
    dense = np.where(rng.random((5, 6, 20)) < rng.random((5, 6, 1)), rng.integers(1, 5, (5, 6, 20)), 0).astype(float)
    x = rng.integers(-4, 5, 20).astype(float)
    for form in ("csf", "(d,d,c)", "coo", "(d,c,d)"):
        made = sj.jit(lambda T, x: sj.einsum("ijk,k->ij", T, x))(sj.array(dense, format=form), x)
        np.testing.assert_array_equal(made.todense(), dense @ x)


def test_one_vector_ends_a_row(processor):
    processor(masks=True)
    text = sj.jit(lambda A, x: A @ x).lower(sj.array(np.ones((3, 21)), format="csr"), np.ones(21)).as_text("loops")
    assert "+4 below" in text


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "c16"])
def test_rows_of_less_than_two_entries(dtype):
    """Rows of which most are empty or hold one entry, and some many; what stands behind a row spoils it if it is read."""
    rng = np.random.default_rng(4)
    lengths = rng.choice([0, 0, 0, 1, 1, 2, 3], 200)
    lengths[[20, 199]] = 8, 25
    dense = matrix(lengths, 40, dtype, rng)
    for form in ("csr", "coo", "(d,h)"):
        A = sj.array(dense, format=form)
        np.testing.assert_array_equal(sj.jit(lambda A: A.sum(axis=1))(A).todense(), dense.sum(axis=1))
        np.testing.assert_array_equal(sj.jit(lambda A: (A * A + A).sum(axis=1))(A).todense(), (dense**2 + dense).sum(1))
        if dtype != "c16":
            np.testing.assert_array_equal(sj.jit(lambda A: A.max(axis=1))(A).todense(), dense.max(axis=1))
            np.testing.assert_array_equal(sj.jit(lambda A: A.min(axis=1))(A).todense(), dense.min(axis=1))
    if dtype == "f8":
        dense = np.where((dense > 0) & (np.arange(200)[:, None] % 2 == 0), np.inf, dense)
        A = sj.array(dense, format="csr")
        np.testing.assert_array_equal(sj.jit(lambda A: A.sum(axis=1))(A).todense(), dense.sum(axis=1))
