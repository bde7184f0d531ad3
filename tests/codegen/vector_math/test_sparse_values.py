"""Stored values walked in lanes: entries appended side by side, and reductions of what functions make of them."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests.codegen.vector_math.kernels import apply

pytestmark = pytest.mark.rotating(16)


def ragged(dtype, fill=0.0):
    """A matrix with 0 to 39 entries in a row."""
    rng = np.random.default_rng(3)
    dense = np.full((40, 60), fill, dtype)
    for row in range(40):
        dense[row, rng.permutation(60)[:row]] = rng.uniform(0.1, 2, row)
    return dense


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "ell", "groupcoo:2", "bitmap", "lil", "csf", "dense"])
def test_maps_keep_patterns_and_bits(form, dtype):
    dense = ragged(dtype)
    x = sj.array(dense, format=form)
    made = sj.jit(lambda x: snp.expm1(x) * dtype(2))(x)
    true = apply("expm1", dense.ravel(), 1).reshape(dense.shape) * dtype(2)
    np.testing.assert_array_equal(made.todense(), true)
    assert made.nnz == x.nnz
    assert made.dtype == dtype


@pytest.mark.parametrize("form", ["csr", "coo", "dcsr", "ell", "csc"])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_reductions_of_functions(form, axis):
    dense = ragged(np.float64)
    x = sj.array(dense, format=form)
    np.testing.assert_allclose(snp.sum(snp.expm1(x), axis=axis).todense(), np.expm1(dense).sum(axis), rtol=1e-13)
    np.testing.assert_allclose(snp.max(snp.tanh(x), axis=axis).todense(), np.tanh(dense).max(axis), rtol=4e-15)


def test_values_beside_what_does_not_change_in_a_row():
    """Softmax-like: a number of every row beside the stored values; vectors along the walk must be looked up one by one."""
    dense = ragged(np.float64)
    x, row, column = sj.array(dense, format="csr"), np.linspace(1, 2, 40), np.linspace(1, 2, 60)
    f = sj.jit(lambda x, r: snp.expm1(x * r[:, None]) / r[:, None])
    np.testing.assert_allclose(f(x, row).todense(), np.expm1(dense * row[:, None]) / row[:, None], rtol=1e-13)
    assert "step 8" in f.trace(x, row).lower().as_text("loops")
    g = sj.jit(lambda x, c: snp.expm1(x * c))
    np.testing.assert_allclose(g(x, column).todense(), np.expm1(dense * column), rtol=1e-13)


def test_appended_fills():
    """exp of an array with fill 0 has fill 1 and the same entries; empty rows stay empty."""
    dense = ragged(np.float64)
    made = snp.exp(sj.array(dense, format="csr"))
    assert made.fill_value == 1
    np.testing.assert_allclose(made.todense(), np.exp(dense), rtol=4e-15)
    assert made.nnz == np.count_nonzero(dense)
