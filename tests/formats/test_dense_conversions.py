"""Sparse arrays written out as dense ones by a kernel, against the passes of NumPy; lines and places of patterns that come back."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.formats.parts import located
from sparsejax.jit.runtime.passes.between import dense_conversions

FORMS = ["csr", "csc", "coo", "dcsr", "lil", "dia", "ell", "(d,s)", "(d,g4)", "(d,l)", "(c,c)", "(d,c)@(1,0)"]
OTHERS = ["(d,b)", "(d,h)", "(d,r)", "bsr:2x2", "(b,c)"]
TENSORS = ["csf", "coo", "(d,d,c)", "(d,c,d)", "(c,d,c)@(2,0,1)", "(d,q,q)", "(d,c,c)@(1,2,0)"]
DTYPES = [np.float64, np.float32, np.bool_, np.int8, np.int16, np.complex128]


def dense(shape, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 100
    x[rng.random(shape) < 0.7] = 0.0
    return x.astype(dtype)


def written(A):
    with config.using(choose="conversion=kernel"):
        return A.todense()


@pytest.mark.parametrize("form", FORMS + OTHERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
def test_matrices(form, dtype):
    for shape in [(7, 9), (1, 5), (0, 3), (30, 40)]:
        x = dense(shape, dtype)
        A = sj.array(x, format=form)
        np.testing.assert_array_equal(written(A), x)
        assert written(A).flags.writeable
        assert (dense_conversions._plan(A.format, x.itemsize, (False, False)) is not None) == (form in FORMS)


@pytest.mark.parametrize("form", TENSORS)
def test_tensors(form):
    x = dense((3, 4, 5))
    np.testing.assert_array_equal(written(sj.array(x, format=form)), x)


@pytest.mark.parametrize("fill", [3.0, -0.0, np.nan])
def test_fills(fill):
    x = np.where(dense((5, 6)) == 0, fill, 1.0)
    made = written(sj.array(x, format="csr", fill_value=fill))
    assert made.tobytes() == x.tobytes()


def test_few_and_many_calls_give_the_same():
    A = sj.array(dense((20, 30)), format="csr")
    first = A.todense()
    for _ in range(dense_conversions.COMPILED + 2):
        assert np.array_equal(A.todense(), first)


@pytest.mark.parametrize("form", ["csr", "csc", "ell", "(d,g4)"])
@pytest.mark.parametrize("offset", [0, 2, -3])
def test_diagonals_that_come_back(form, offset):
    x = dense((12, 9), seed=1)
    A = sj.array(x, format=form)
    for array, what in [(A, x), (A, x), (A, x), (A * 2.0, 2 * x), (-A, -x)]:
        for _ in range(2):
            found = array.diagonal(offset)
            assert str(found.format) == "coo"
            np.testing.assert_array_equal(found.todense(), np.diagonal(what, offset))


def test_blocks_of_places_and_rows(monkeypatch):
    x = dense((50, 40), seed=2)
    A = sj.array(x, format="csr")
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 50, 300), rng.integers(0, 40, 300)
    for block in (7, 1 << 17):
        monkeypatch.setattr(located, "BLOCK", block)
        B = sj.array(x, format="csr")
        np.testing.assert_array_equal(B[rows, columns].todense(), x[rows, columns])
        np.testing.assert_array_equal(B.diagonal().todense(), np.diagonal(x))
        np.testing.assert_array_equal(B[:, 3].todense(), x[:, 3])
    assert A[rows, columns].nnz == np.count_nonzero(x[rows, columns])


@pytest.mark.parametrize("length", [0, 1, 5, 15, 16, 17, 40])
def test_rows_around_the_bound_of_a_short_search(length):
    """`trace` looks for a coordinate in every row; those of up to `FEW` entries are looked through."""
    rng = np.random.default_rng(length)
    x = np.zeros((60, 60))
    for row in x:
        row[rng.choice(60, length, replace=False)] = rng.standard_normal(length)
    for form in ("csr", "csc", "dcsr", "lil", "ell"):
        np.testing.assert_allclose(sj.array(x, format=form).trace().todense(), np.trace(x), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("kind", ["max", "min", "any", "all"])
def test_whole_reductions_read_the_count_of_entries(kind):
    for x in (
        dense((6, 7)),
        -np.abs(dense((6, 7))),
        np.full((3, 4), -2.0),
        np.full((3, 4), -np.inf),
        dense((4, 4)) - 500,
    ):
        for form in ("csr", "coo", "csc", "ell"):
            A = sj.array(x, format=form)
            for run in (lambda A: getattr(A, kind)(), sj.jit(getattr(snp, kind)), lambda A: getattr(A, kind)()):
                assert run(A).todense() == getattr(x, kind)()
