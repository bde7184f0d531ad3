"""Gradients of windows of sparse arrays, in every format, beside those of the dense array at the entries: entries go back where they were."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.lax.window_places import serves
from tests import rotation

FORMS = {
    2: ["csr", "csc", "dcsr", "coo", "(c,d)", "bsr:2x2", "ell", "bitmap", "dia", "rle"],
    3: ["csf", "coo", "(d,d,c)", "(d,c,c)", "(c,d,d)"],
    1: ["coo"],
}
KEYS = {
    1: [np.s_[2:5], np.s_[::2], np.s_[::-1], np.s_[4:1:-2], np.s_[5:2]],
    2: [
        *(np.s_[3], np.s_[1:4], np.s_[::2], np.s_[::-1], np.s_[:, 2], np.s_[:, 1:], np.s_[:, ::-2], np.s_[2:5, 1:3]),
        *(np.s_[2:5, 3], np.s_[4:1:-1, ::2], np.s_[3:3], np.s_[1, 2]),
    ],
    3: [np.s_[1], np.s_[:, 2], np.s_[..., 1], np.s_[1:3, ::-1, 2:], np.s_[1, 2], np.s_[::2, 1], np.s_[1:, 1:, 1:]],
}
CASES = [(n, form, key) for n in FORMS for form, key in itertools.product(FORMS[n], range(len(KEYS[n])))]


def operands(ndim, form, dtype=float):
    rng = np.random.default_rng(ndim)
    shape = (7, 6, 5)[:ndim]
    dense = np.where(rng.random(shape) < 0.4, rng.integers(1, 9, shape), 0).astype(dtype)
    return dense, sj.array(dense, format=form)


def check(loss, A, wanted):
    """The gradient, at once and traced, in the format of the operand."""
    for gradient in (sj.grad(loss), sj.jit(sj.grad(loss))):
        made = gradient(A)
        assert made.format == A.format
        np.testing.assert_allclose(made.todense(), wanted, rtol=1e-12)


@pytest.mark.parametrize(("ndim", "form", "key"), rotation.share(CASES, 12))
def test_gradients(ndim, form, key):
    dense, A = operands(ndim, form)
    key = KEYS[ndim][key]
    weights = np.random.default_rng(1).random(dense[key].shape)

    def loss(A):
        return (A[key] * A[key] * weights).sum()

    wanted = np.zeros(dense.shape)
    wanted[key] = 2 * dense[key] * weights
    check(loss, A, np.where(dense != 0, wanted, 0))

    def slope(A):
        return (sj.grad(loss)(A) * A).sum()

    again = np.zeros(dense.shape)
    again[key] = 4 * dense[key] * weights
    np.testing.assert_allclose(sj.grad(slope)(A).todense(), np.where(dense != 0, again, 0), rtol=1e-12)
    _, tangent = sj.jvp(sj.grad(loss), (A,), (A,))
    np.testing.assert_allclose(tangent.todense(), np.where(dense != 0, wanted, 0), rtol=1e-12)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr"])
def test_batches(form):
    """Of weights, of values over one pattern, and of patterns."""
    dense, A = operands(2, form)
    rng = np.random.default_rng(2)
    weights = rng.random((3, 3, 6))

    def gradient(A, w):
        return sj.grad(lambda A: (A[1:4] * w).sum())(A)

    made = sj.vmap(gradient, (None, 0))(A, weights)
    for k in range(3):
        wanted = np.zeros((7, 6))
        wanted[1:4] = weights[k]
        np.testing.assert_allclose(made.todense()[k], np.where(dense != 0, wanted, 0), rtol=1e-12)
    whole = snp.stack([A, A * 2, sj.array(np.roll(dense, 1, 0), format=form)])
    made = sj.vmap(gradient, (0, None))(whole, weights[0])
    wanted = np.zeros((7, 6))
    wanted[1:4] = weights[0]
    for k in range(3):
        np.testing.assert_allclose(made.todense()[k], np.where(whole.todense()[k] != 0, wanted, 0), rtol=1e-12)


def test_formats_that_are_served():
    """The others have contractions with selections."""
    counts = {
        form: str(sj.make_jaxpr(sj.grad(lambda A: A[1:4].sum()))(operands(2, form)[1])).count("window_places")
        for form in FORMS[2]
    }
    assert counts == {form: int(serves(operands(2, form)[1].format, ())) for form in FORMS[2]}
    assert sum(counts.values()) == 5


def test_complex_and_narrow_entries():
    for dtype in ("c16", "f4"):
        dense, A = operands(2, "csr", dtype)
        made = sj.grad(lambda A: (A[1:4] * A[1:4]).real.sum())(A)
        wanted = np.zeros(dense.shape, dtype)
        wanted[1:4] = 2 * dense[1:4]
        assert made.dtype == np.dtype(dtype)
        np.testing.assert_allclose(made.todense(), np.where(dense != 0, wanted, 0), rtol=1e-6)
