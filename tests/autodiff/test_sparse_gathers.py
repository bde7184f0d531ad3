"""Gradients of `A[index]` of sparse arrays by index arrays, in every format and both ways, beside those of the dense array at the entries."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.lax.indirect import returned_entries
from tests import rotation
from tests.autodiff.test_sparse_windows import check, operands

ROWS, COLUMNS = np.array([5, 0, 3, 3, -1]), np.array([1, 4, 4, 0, 2])
PERMUTED = np.random.default_rng(5).permutation(6)
FORMS = {
    2: ["csr", "csc", "dcsr", "coo", "(c,d)", "bsr:2x2", "ell", "bitmap"],
    3: ["csf", "coo", "(d,d,c)"],
    1: ["coo"],
}
KEYS = {
    1: [(ROWS,), (np.array([2, 2, 2]),)],
    2: [
        *(
            (ROWS,),
            (np.s_[:], COLUMNS),
            (ROWS, COLUMNS),
            (ROWS, 2),
            (1, COLUMNS),
            (np.s_[1:4], COLUMNS),
            (ROWS, np.s_[::2]),
        ),
        *((np.s_[:], PERMUTED), (ROWS[:, None], COLUMNS), (ROWS[:0],)),
    ],
    3: [(ROWS,), (np.s_[:], COLUMNS), (ROWS, COLUMNS), (ROWS, np.s_[:], COLUMNS), (ROWS, COLUMNS, COLUMNS)],
}
CASES = [(n, form, key) for n in FORMS for form, key in itertools.product(FORMS[n], range(len(KEYS[n])))]


@pytest.mark.parametrize("choose", ["returns=numbers", "returns=coordinates"])
@pytest.mark.parametrize(("ndim", "form", "key"), rotation.share(CASES, 12))
def test_gradients(ndim, form, key, choose):
    dense, A = operands(ndim, form)
    key = KEYS[ndim][key]
    weights = np.random.default_rng(1).random(dense[key].shape)

    def loss(A):
        return (A[key] * A[key] * weights).sum()

    wanted = np.zeros(dense.shape)
    np.add.at(wanted, key, 2 * dense[key] * weights)
    with sj.config.using(choose=choose):
        check(loss, A, np.where(dense != 0, wanted, 0))
        again = sj.grad(lambda A: (sj.grad(loss)(A) * A).sum())(A)
        np.testing.assert_allclose(again.todense(), np.where(dense != 0, 2 * wanted, 0), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["f4", "c8", "c16"])
def test_dtypes(dtype):
    dense, A = operands(2, "csr", dtype)
    made = sj.grad(lambda A: (A[ROWS] * A[ROWS]).real.sum())(A)
    wanted = np.zeros(dense.shape, dtype)
    np.add.at(wanted, ROWS, 2 * dense[ROWS])
    assert made.dtype == np.dtype(dtype)
    np.testing.assert_allclose(made.todense(), np.where(dense != 0, wanted, 0), rtol=1e-6)


@pytest.mark.parametrize("form", ["csr", "coo", "csc"])
def test_batches(form):
    """Of weights, of index arrays, and of values."""
    dense, A = operands(2, form)
    weights = np.random.default_rng(2).random((3, 5, 6))
    indices = np.stack([ROWS, np.roll(ROWS, 1), ROWS * 0])

    def gradient(A, index, w):
        return sj.grad(lambda A: (A[index] * w).sum())(A)

    for axes in ((None, None, 0), (None, 0, None), (None, 0, 0)):
        given = [x if axis == 0 else x[0] for x, axis in zip((indices, weights), axes[1:], strict=True)]
        made = sj.vmap(gradient, axes)(A, *given).todense()
        for k in range(3):
            index, w = (x[k] if axis == 0 else x[0] for x, axis in zip((indices, weights), axes[1:], strict=True))
            wanted = np.zeros(dense.shape)
            np.add.at(wanted, index, w)
            np.testing.assert_allclose(made[k], np.where(dense != 0, wanted, 0), rtol=1e-12)


def test_the_way_of_numbers_is_taken_and_explained(monkeypatch):
    served = []
    plain = returned_entries.by_number
    monkeypatch.setattr(returned_entries, "by_number", lambda *given: served.append(1) or plain(*given))
    rng = np.random.default_rng(7)
    _, A = operands(2, "csr")
    rows, columns = rng.integers(0, 7, 11), rng.integers(0, 6, 11)
    for loss in (lambda A: A[rows].sum(), lambda A: A[:, columns].sum(), lambda A: (A[rows, columns] ** 2).sum()):
        before = len(served)
        assert "returned" in str(sj.explain(sj.jit(sj.grad(loss)))(A))
        assert len(served) == before + 1
