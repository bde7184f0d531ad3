"""`setdiag` against NumPy, over formats, offsets, fills and values of every kind."""

import numpy as np
import pytest
import scipy.sparse

import sparsejax as sj
import sparsejax.numpy as snp


def wanted(dense, values, k):
    made = dense.copy()
    count = max(0, min(dense.shape[0] - max(0, -k), dense.shape[1] - max(0, k)))
    given = np.asarray(values)
    rows = np.arange(count)
    made[rows + max(0, -k), rows + max(0, k)] = given[:count] if given.ndim and len(given) > 1 else given
    return made


@pytest.mark.rotating(2)
@pytest.mark.parametrize("format", ["csr", "csc", "coo", "dense", "bsr:2x2", "(d,q)", "(c,c)"])
@pytest.mark.parametrize("shape", [(5, 5), (4, 7), (6, 3), (1, 1), (0, 3)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.complex128, np.bool_])
def test_setdiag_is_that_of_numpy(format, shape, dtype):
    rng = np.random.default_rng(sum(shape))
    dense = (rng.integers(1, 9, shape) * (rng.random(shape) < 0.4)).astype(dtype)
    A = sj.array(dense, format=format)
    for k in (-4, -1, 0, 2, 9):
        count = max(0, min(shape[0] - max(0, -k), shape[1] - max(0, k)))
        vector = rng.integers(0, 9, count)
        for values in (3, vector.astype(dtype), vector, rng.integers(0, 9, count + 2).astype(dtype), sj.array(vector)):
            given = values.todense() if isinstance(values, sj.Array) else values
            if k >= max(1, shape[1]) or -k >= max(1, shape[0]):
                with pytest.raises(ValueError, match=f"k={k} is no diagonal"):
                    snp.setdiag(A, values, k)
                continue
            made = snp.setdiag(A, values, k)
            assert made.dtype == dtype and made.shape == shape and made.format == A.format
            np.testing.assert_array_equal(made.todense(), wanted(dense, given, k))
            again = snp.setdiag(made, given, k)  # now all places are stored
            np.testing.assert_array_equal(again.todense(), wanted(dense, given, k))
            if count and not made.format.is_dense:
                assert again.nnz == made.nnz


def test_entries_are_stored_though_they_are_zero_and_the_fill_stays():
    A = sj.array(np.array([[7.0, 1.0], [7.0, 7.0]]), format="csr", fill_value=7.0)
    made = snp.setdiag(A, 0)
    assert made.fill_value == 7.0 and made.nnz == 3
    np.testing.assert_array_equal(made.todense(), [[0.0, 1.0], [7.0, 0.0]])
    assert snp.setdiag(sj.array(np.zeros((3, 3)), format="csr"), 0).nnz == 3


def test_setdiag_under_jit_is_the_same():
    dense = np.arange(12.0).reshape(3, 4) * (np.arange(12).reshape(3, 4) % 2)
    A = sj.array(dense, format="csr")
    made = sj.jit(lambda A, v: A.setdiag(v, 1))(A, np.array([5.0, 6.0, 7.0]))
    np.testing.assert_array_equal(made.todense(), A.setdiag(np.array([5.0, 6.0, 7.0]), 1).todense())


def test_numbers_that_do_not_fit_and_vectors_that_are_too_short():
    A = sj.array(np.eye(4, dtype=np.int8), format="csr")
    with pytest.raises(OverflowError, match="300"):
        A.setdiag(300)
    with pytest.raises(ValueError, match="broadcast"):
        A.setdiag(np.array([1, 2]))


@pytest.mark.parametrize("k", [77, 4, -3])
def test_diagonals_outside_are_refused_as_by_scipy(k):
    A = sj.array(np.ones((3, 4)), format="csr")
    with pytest.raises(
        ValueError, match=r"k=.* is no diagonal of a matrix of shape \(3, 4\): it has those from -2 to 3"
    ):
        A.setdiag(1.0, k=k)
    with pytest.raises(ValueError, match="exceeds"):
        scipy.sparse.csr_array(np.ones((3, 4))).setdiag(1.0, k=k)
    grown = sj.jit(lambda A: A.setdiag(1.0, k=k))
    for n in (90, 80):
        assert grown(sj.array(np.ones((n, n)), format="csr")).shape == (n, n)
    with pytest.raises(ValueError, match="no diagonal"):
        grown(A)
