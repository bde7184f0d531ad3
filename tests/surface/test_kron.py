"""Kronecker products of sparse matrices, at once and traced, against NumPy's."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

FORMATS = ("csr", "csc", "coo", "lil", "ell", "dia", "bitmap", "groupcoo:2", "dense")
DTYPES = (bool, np.int8, np.uint32, np.int64, np.float32, float, complex)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("seed", range(20))
def test_matrices(seed):
    rng = np.random.default_rng(seed)
    for _ in range(6):
        parts = []
        for shape in rng.integers(0, 7, (2, 2)):
            values = (rng.integers(0, 3, shape) * (rng.random(shape) < 0.6)).astype(rng.choice(DTYPES))
            parts.append((values, sj.array(values, format=str(rng.choice(FORMATS)))))
        (A, a), (B, b) = parts
        made, traced = snp.kron(a, b), sj.jit(snp.kron)(a, b)
        assert (made.dtype, made.format, made.shape, made.nnz) == (
            traced.dtype,
            traced.format,
            traced.shape,
            traced.nnz,
        )
        np.testing.assert_array_equal(made.todense(), np.kron(A, B))
        np.testing.assert_array_equal(made.todense(), traced.todense())


def test_fills_and_ranks_that_are_not_those_of_matrices():
    one = sj.array(np.full((2, 2), 3.0), format="csr", fill_value=3.0)
    np.testing.assert_array_equal(snp.kron(one, np.eye(2)).todense(), np.kron(np.full((2, 2), 3.0), np.eye(2)))
    np.testing.assert_array_equal(
        snp.kron(sj.array(np.arange(3.0), format="coo"), np.eye(2)).todense(), np.kron(np.arange(3.0), np.eye(2))
    )


def test_many_entries():
    values = np.random.default_rng(0).random((300, 200)) * (np.random.default_rng(1).random((300, 200)) < 0.1)
    E = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    made = snp.kron(sj.array(values, format="csr"), sj.array(E, format="csr"))
    np.testing.assert_array_equal(made.todense(), np.kron(values, E))
