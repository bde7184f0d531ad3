"""Level types in kernels, where their definitions are easily got wrong."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.core.array import Array
from sparsejax.formats import Bitmap, Dense, Diagonal, Format, Hash, Storage, validate


def test_offsets_of_diagonals_that_wrap_around_are_outside():
    """r + off[d] beyond 64 bits is no coordinate, and must not mislead the search for the first diagonal inside."""
    off = np.array([-(2**63), -1, 0, 2**63 - 1])
    vals = np.arange(16.0) * np.tile([0, 1, 1, 0], 4)
    vals[1] = 0  # below row 0 there is no coordinate -1
    storage = Storage(Format((Dense(), Diagonal())), (4, 4), 0.0, ((), (np.array([4]), off)), vals)
    validate.validate(storage)
    dense = np.diag(vals[2::4]) + np.diag(vals[5::4], -1)
    np.testing.assert_array_equal(Array(storage).todense(), dense)
    doubled = sj.einsum("ij,->ij", Array(storage), sj.array(2.0), out_format="csr")
    validate.validate(doubled.storage)
    np.testing.assert_array_equal(doubled.todense(), 2 * dense)


def test_an_unordered_level_beside_a_diagonal():
    """A[i,i] is walked by its outermost level, which is dense: it restricts nothing, and the hash level of B must be converted."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 5, (4, 4)) * 1.0, np.array([0.0, 2.0, 0.0, 3.0])
    a[2, 2] = 0.0
    made = sj.einsum(
        "ii,i,->",
        sj.array(a, format=Format((Dense(), Bitmap())), copy=True),
        sj.array(b, format=Format((Hash(),)), copy=True),
        sj.array(2.0),
    )
    assert float(made) == 2 * np.diag(a) @ b


@pytest.mark.parametrize("form", ["hash", "(c,h)", "(h,h)"])
def test_rows_that_a_kernel_keeps_are_in_order(form):
    """What is kept of an unordered row is met with ordered ones: it cannot be appended in the order of its table."""
    rng = np.random.default_rng(7)
    t, a = (np.where(rng.random((6, 12)) < 0.6, rng.uniform(0.5, 1.5, (6, 12)), 0) for _ in range(2))
    m = np.where(rng.random((6, 6, 12)) < 0.5, rng.uniform(0.5, 1.5, (6, 6, 12)), 0)
    T, A = sj.array(t, format=form), sj.array(a, format=form)
    made = sj.jit(lambda m, A, T: sj.einsum("ijk,ik->ij", m, sj.einsum("ij->ij", T, mask=A)))(
        sj.array(m, format="coo"), A, T
    )
    np.testing.assert_allclose(made.todense(), np.einsum("ijk,ik->ij", m, t * (a != 0)), rtol=1e-13)


def test_expressions_that_a_reduction_reads_are_kept_inside_it():
    """The product is kept in a row inside the loops of the sum, of which the entries of the result are appended once."""
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((4, 4)) < 0.5, rng.random((4, 4)), 2.0)
    A, S = sj.array(dense, format="csr", fill_value=2.0), sj.array(np.eye(2), format="csr")
    made = sj.jit(sj.grad(lambda A: sj.numpy.kron(A, S).sum()))(A)
    assert made.format == A.format
    np.testing.assert_array_equal(made.todense(), 2.0 * (dense != 2.0))
