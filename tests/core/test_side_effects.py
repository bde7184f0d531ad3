"""Nothing that is called with the user's arrays changes them, or makes them read-only; `asarray` alone does."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

SCIPY = ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"]
DENSE = {"C": np.arange(6.0).reshape(2, 3), "F": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "1": np.arange(4.0)}
FORMATS = [None, "dense", "csf", "coo", "bitmap", "ell", "groupcoo:2", "(d,d)@(1,0)", "(b,d)"]


def is_apart(made, given):
    buffers = [made.storage.vals, *(b for level in made.storage.buffers for b in level)]
    return not any(np.shares_memory(b, given) for b in buffers)


@pytest.mark.parametrize("order", DENSE)
@pytest.mark.parametrize("form", FORMATS)
def test_a_dense_source_stays_its_owners(order, form):
    source = DENSE[order].copy(order="K")
    if source.ndim == 1 and form not in (None, "dense", "csf", "coo"):
        form = {"bitmap": "(b)", "ell": "(h)", "groupcoo:2": "(g2)"}.get(form, "(d)")
    made = sj.array(source, format=form)
    assert source.flags.writeable and is_apart(made, source)
    source *= 2
    np.testing.assert_array_equal(made.todense(), DENSE[order])


@pytest.mark.parametrize("name", SCIPY)
@pytest.mark.parametrize("form", [None, "csr", "csc", "coo", "dense"])
def test_a_scipy_source_stays_its_owners(name, form):
    dense = np.array([[0.0, 2, 0, 1], [3, 0, 0, 0]])
    source = sp.coo_array(dense).asformat(name)
    made = sj.array(source, format=form)
    source *= 2
    np.testing.assert_array_equal(made.todense(), dense)
    np.testing.assert_array_equal(source.toarray(), 2 * dense)
    if name in ("csr", "csc", "bsr"):
        source.eliminate_zeros()
        source.sum_duplicates()


def test_other_sources_stay_their_owners():
    data, rows, columns = np.ones(2), np.array([0, 1]), np.array([2, 0])
    A = sj.array((data, (rows, columns)), shape=(2, 3))
    data *= 3
    rows[:] = columns[:] = 0
    np.testing.assert_array_equal(A.todense(), [[0, 0, 1], [1, 0, 0]])
    S = A.storage
    B = sj.array(S)
    assert not np.shares_memory(B.storage.vals, A.storage.vals)


def test_arrays_of_our_arrays():
    a, i, j = sj.array([1.0, 2.0]), sj.array([0, 1]), sj.array([2, 0])
    for coords in ((i, j), [i, j], (np.array([0, 1]), j), sj.array([[0, 1], [2, 0]])):
        np.testing.assert_array_equal(sj.array((a, coords), shape=(2, 3)).todense(), [[0, 0, 1], [2, 0, 0]])
    np.testing.assert_array_equal(sj.array([a, [3.0, 4.0]]).todense(), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(sj.array((a, a)).todense(), [[1, 2], [1, 2]])
    made = sj.jit(lambda x, y: sj.array([[x, 1.0], [y, x * y]]))(2.0, 3.0)
    np.testing.assert_array_equal(made.todense(), [[2, 1], [3, 6]])


def test_results_for_scipy_may_be_changed():
    A = sj.array(np.array([[0.0, 2], [3, 0]]), format="csr")
    with pytest.raises(ValueError, match="read-only"):
        A.to_scipy().data[0] = 9
    S = A.to_scipy(copy=True)
    S.data[0] = 0
    S.eliminate_zeros()
    assert S.nnz == 1 and A.nnz == 2


def test_asarray_shares_and_freezes():
    x = np.arange(3.0)
    assert np.shares_memory(snp.asarray(x).todense(), x) and not x.flags.writeable
    y = np.arange(3.0)
    assert not np.shares_memory(snp.asarray(y, copy=True).todense(), y) and y.flags.writeable
    with pytest.raises(ValueError, match="device"):
        sj.array(y, device="gpu")
