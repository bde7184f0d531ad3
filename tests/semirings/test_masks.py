"""Masks: patterns, complements, dense masks, where they are tested, and how they compose with `where` under jit."""

import random

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from tests.fuzz.levels import random_format

pytestmark = pytest.mark.rotating(24)

FORMATS = ("csr", "csc", "coo", "dcsr", "dcsc")


def matrix(seed, density=0.4, shape=(7, 7)):
    rng = np.random.default_rng(seed)
    return sp.csr_array(rng.random(shape) * (rng.random(shape) < density))


def with_zeros(pattern):
    """A sparse matrix that stores only zeros."""
    return sp.csr_array((np.zeros(pattern.nnz), pattern.indices, pattern.indptr), shape=pattern.shape)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("complement", [False, True])
def test_a_sparse_mask_is_its_pattern(form, complement):
    A, B, M = (matrix(k) for k in range(3))
    mask = sj.array(with_zeros(M)).asformat(form)
    made = snp.matmul(sj.array(A), sj.array(B), mask=mask, complement=complement)
    inside = (M.toarray() != 0) ^ complement
    np.testing.assert_allclose(made.todense(), np.where(inside, A.toarray() @ B.toarray(), 0))
    terms = ((A != 0).astype(int) @ (B != 0).astype(int)).toarray() > 0
    assert made.nnz == (terms & inside).sum()


@pytest.mark.parametrize("complement", [False, True])
def test_a_dense_mask_holds_by_value(complement):
    A, B, M = matrix(0), matrix(1), matrix(2).toarray() != 0
    made = sj.einsum("ik,kj->ij", sj.array(A), sj.array(B), mask=M, complement=complement)
    np.testing.assert_allclose(made.todense(), np.where(M ^ complement, A.toarray() @ B.toarray(), 0))
    terms = ((A != 0).astype(int) @ (B != 0).astype(int)).toarray() > 0
    assert str(made.format) == "csr" and made.nnz == (terms & (M ^ complement)).sum()


def test_dense_products_under_a_sparse_mask_are_sparse():
    U, V, M = np.random.default_rng(0).random((7, 3)), np.random.default_rng(1).random((3, 7)), matrix(2)
    step = sj.jit(lambda U, V, M: snp.matmul(U, V, mask=M))
    made = step(U, V, sj.array(M))
    assert str(made.format) == "csr" and made.nnz == M.nnz
    np.testing.assert_allclose(made.todense(), np.where(M.toarray() != 0, U @ V, 0))
    assert "library call" not in step.lower(U, V, sj.array(M)).as_text("plan")  # the whole product is never computed


@pytest.mark.parametrize("form", ["coo", "dcsr"])
def test_results_keep_the_outermost_sparse_level_of_a_mask(form):
    A, M = matrix(0), sj.array(matrix(2, 0.05)).asformat(form)
    made = snp.matmul(A.toarray(), A.toarray(), mask=M)
    assert str(made.format) == "dcsr" and made.nnz == M.nnz
    vector = sj.array((np.ones(2), (np.array([1, 4]),)), shape=(7,), format="coo")
    short = snp.matmul(sj.array(A), np.ones(7), mask=vector)
    assert not short.format.is_dense and short.nnz <= 2
    np.testing.assert_allclose(short.todense(), np.where(vector.todense() != 0, A.toarray().sum(axis=1), 0))


def test_a_mask_without_effect_on_formats():
    A, M = sj.array(matrix(0)), sj.array(matrix(2))
    assert str(snp.matmul(A, A, mask=M, complement=True).format) == "csr"
    assert snp.matmul(A, np.ones((7, 2)), mask=np.ones((7, 2), bool)).format.is_dense
    assert snp.matmul(A, np.ones((7, 7)), mask=M, complement=True).format.is_dense


def test_masks_are_tested_outside_the_loops_they_do_not_depend_on():
    A = sj.array(matrix(0))
    step = sj.jit(lambda A, x, seen: sj.einsum("ij,j->i", A, x, mask=seen, complement=True))
    text = step.lower(A, np.ones(7), np.zeros(7, bool)).as_text("loops").splitlines()
    test = next(k for k, line in enumerate(text) if line.lstrip().startswith("if"))
    inner = next(k for k, line in enumerate(text) if "for p" in line)
    assert test < inner


def test_masked_entries_are_the_zero_of_the_semiring():
    A, seen = matrix(0), np.array([True, False] * 3 + [True])
    made = sj.einsum("ij,j->i", sj.array(A), np.ones(7), semiring="min_plus", mask=seen)
    dense = np.where(A.toarray() == 0, np.inf, A.toarray())
    np.testing.assert_array_equal(made.todense(), np.where(seen, (dense + 1).min(axis=1), np.inf))


def test_masks_broadcast():
    A = matrix(0)
    row = np.array([True, False] * 3 + [True])
    want = np.where(row, A.toarray() @ A.toarray(), 0)
    np.testing.assert_allclose(snp.matmul(sj.array(A), sj.array(A), mask=row).todense(), want)
    column = sj.array(sp.csr_array(row[:, None].astype(float)))
    want = np.where(row[:, None], A.toarray() @ A.toarray(), 0)
    np.testing.assert_allclose(snp.matmul(sj.array(A), sj.array(A), mask=column).todense(), want)


def test_the_mask_may_be_an_operand():
    L = sp.csr_array(sp.tril(matrix(0, 0.6), -1))
    made = sj.einsum("ik,jk->ij", sj.array(L), sj.array(L), semiring="plus_pair", mask=sj.array(L))
    pattern = (L != 0).astype(float)
    np.testing.assert_array_equal(made.todense(), ((pattern @ pattern.T) * pattern).toarray())


def test_a_computed_mask():
    A, B = matrix(0), matrix(1)
    step = sj.jit(lambda A, B: snp.matmul(A, A, mask=2 * B, complement=True))
    inside = B.toarray() == 0
    np.testing.assert_allclose(step(sj.array(A), sj.array(B)).todense(), np.where(inside, A.toarray() @ A.toarray(), 0))


def random_operand(rng, dtype, fill):
    shape = rng.choice(((4, 5), (1, 5), (4, 1), (5,), ()))
    nrng = np.random.default_rng(rng.getrandbits(32))
    dense = np.where(nrng.random(shape) < 0.5, nrng.integers(-2, 3, shape), fill).astype(dtype)
    form = random_format(rng, len(shape))
    return sj.array(dense, format=form, fill_value=0 if form.is_dense else fill, copy=True), dense


@pytest.mark.parametrize("seed", range(60))
def test_where_of_any_formats_and_fills_composes_with_masks(seed):
    rng = random.Random(seed)
    (c, dc), (x, dx), (y, dy) = (
        random_operand(rng, t, rng.choice((0, 0, 1))) for t in (rng.choice(("?", "f8")), "f8", rng.choice(("f8", "i4")))
    )
    shape = np.broadcast_shapes(dc.shape, dx.shape, dy.shape)
    want = np.where(dc.astype(bool), dx, dy)
    np.testing.assert_array_equal(sj.jit(snp.where)(c, x, y).todense(), want)
    if len(shape) != 2:
        return
    A, M = matrix(seed, shape=(shape[0], 6)), matrix(seed + 1, shape=shape)
    B = matrix(seed + 2, shape=(6, shape[1]))

    @sj.jit
    def step(c, x, y, A, B, M):
        return snp.where(c, x, y + snp.matmul(A, B, mask=M))

    masked = np.where(M.toarray() != 0, A.toarray() @ B.toarray(), 0)
    got = step(c, x, y, sj.array(A), sj.array(B), sj.array(M))
    np.testing.assert_allclose(got.todense(), np.where(dc.astype(bool), dx, dy + masked), atol=1e-12)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"complement": True}, "needs a mask"),
        ({"mask": np.ones((2, 3), bool)}, "does not broadcast to the result's shape"),
    ],
)
def test_errors(options, text):
    with pytest.raises(ValueError, match=text):
        sj.einsum("ij,jk->ik", np.ones((2, 2)), np.ones((2, 2)), **options)


@pytest.mark.parametrize("complement", [False, True])
@pytest.mark.parametrize("form", FORMATS)
def test_a_dense_array_under_a_mask_without_a_sum(form, complement):
    X, M = matrix(0).toarray() + 1, matrix(2)
    mask = sj.array(M).asformat(form)
    made = sj.einsum("ij->ij", X, mask=mask, complement=complement)
    np.testing.assert_allclose(made.todense(), np.where((M.toarray() != 0) ^ complement, X, 0))
