"""What NumPy, SciPy or JAX refuse is refused, by name, and nothing is lost in silence."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

A = sj.array(np.eye(3), format="csr")
X = sj.array(np.arange(3.0))
KEY = sj.random.key(0)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: X.at[0].set(1j), TypeError, "complex128 do not fit an array of float64"),
        (lambda: A.at[0, 0].add(1j), TypeError, "complex128 do not fit an array of float64"),
        (lambda: A.at[np.array([0]), 1].subtract(np.array([1j])), TypeError, "do not fit"),
        (lambda: snp.histogram(np.array([1.0, np.inf])), ValueError, "finite range"),
        (lambda: snp.histogram(np.array([1.0, np.nan])), ValueError, "finite range"),
        (lambda: snp.vsplit(X, 3), ValueError, "two dimensions"),
        (lambda: snp.vander(A), ValueError, "vector"),
        (lambda: snp.transpose(A, 5), np.exceptions.AxisError, "5 is out of bounds"),
        (lambda: snp.permute_dims(A, 0), ValueError, "not a permutation"),
        (lambda: sj.random.permutation(KEY, -3), ValueError, "x=-3"),
        (lambda: sj.random.split(KEY, -3), ValueError, "num=-3"),
        (lambda: sj.jit(lambda A: A.toarray())(A), AttributeError, "Attempted to read .toarray of a traced value"),
        (lambda: sj.jit(lambda A: A.data)(A), AttributeError, "Attempted to read .data of a traced value"),
        (lambda: sj.jit(lambda A: A.no_such_thing)(A), AttributeError, "no attribute 'no_such_thing'"),
        (lambda: sj.jit(lambda A: A * 2, dynamic={"A": ("n", "n")})(np.ones((6, 5))), ValueError, "both 'n'"),
        (lambda: sj.jit(lambda A, x: A @ x, dynamic={"A": ("m", "n"), "x": ("m",)})(np.ones((6, 5)), X), ValueError, "6 and 3"),
    ],
)  # fmt: skip
def test_faults_are_named(make, error, said):
    with pytest.raises(error, match=said):
        make()


def test_what_is_not_refused():
    assert snp.bincount([]).shape == (0,)
    assert snp.transpose(X, 0).shape == (3,)
    assert not sj.jit(lambda A: hasattr(A, "toarray") + 0 * A.sum())(A)
    assert X.astype(complex).at[0].set(1j)[0] == 1j
    f = sj.jit(lambda A: A.sum(axis=0), dynamic={"A": ("n", "n")})
    np.testing.assert_array_equal(f(np.eye(4)).todense(), np.ones(4))
