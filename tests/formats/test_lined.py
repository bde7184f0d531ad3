"""Matrices with entries on a few diagonals, long enough to be written by machine code, beside SciPy's."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax.numpy as snp
from sparsejax.formats import passes

N = passes.MANY + 13


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("offset", [0, 1, -3, N - 2, 2 - N])
@pytest.mark.parametrize("shape", [(N, N), (N, N + 5), (N + 5, N)])
def test_ones_on_a_diagonal(shape, offset, dtype):
    made = snp.eye(*shape, offset, dtype, format="csr").to_scipy()
    assert made.dtype == dtype
    assert (made != sp.eye_array(*shape, k=offset, dtype=dtype, format="csr")).nnz == 0
    assert made.has_canonical_format


@pytest.mark.parametrize("offsets", [(0,), (2,), (-5,), (-1, 0, 1), (-7, 3)])
@pytest.mark.parametrize("steady", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_values_on_diagonals(offsets, steady, dtype):
    rng = np.random.default_rng(len(offsets))
    lines = [rng.standard_normal(1 if steady else N - abs(k)).astype(dtype) for k in offsets]
    made = snp.diags(lines, list(offsets), shape=(N, N), format="csr").to_scipy()
    full = [np.broadcast_to(line, N - abs(k)) for line, k in zip(lines, offsets, strict=True)]
    expected = sp.diags_array(full, offsets=offsets, shape=(N, N), format="csr")
    np.testing.assert_array_equal(made.indices, expected.indices)
    np.testing.assert_array_equal(made.indptr, expected.indptr)
    np.testing.assert_array_equal(made.data, expected.data)
