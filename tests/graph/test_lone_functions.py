"""Elementary functions of sums of rows: computed in vectors by a kernel of their own where there are many rows."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config


def operands(rows, form, dtype="f8"):
    rng = np.random.default_rng(rows)
    dense = np.where(rng.random((rows, 40)) < 0.1, rng.standard_normal((rows, 40)), 0).astype(dtype)
    return sj.array(dense, format=form), dense, rng.standard_normal(40).astype(dtype)


def kernels(function, *args):
    with config.using(machine="granite_rapids", num_threads=1):
        return ("\n" + str(sj.explain(function)(*args))).count("\nkernel ")


@pytest.mark.parametrize(
    ("function", "rows", "form", "count"),
    [
        (lambda A, x: snp.tanh(A @ x), 4000, "csr", 2),
        (lambda A, x: snp.tanh(A @ x[:, None]), 4000, "csr", 2),
        (lambda A, x: 1 / (1 + snp.exp(-(A @ x))), 4000, "dcsr", 2),
        (lambda A, x: snp.exp(A.sum(1)), 4000, "csr", 2),
        (lambda A, x: snp.tanh(A @ x), 20, "csr", 1),
        (lambda A, x: snp.tanh(A @ x), 4000, "csc", 1),
        (lambda A, x: snp.sqrt(abs(A @ x)), 4000, "csr", 1),
        (lambda A, x: snp.maximum(A @ x, 0), 4000, "csr", 1),
    ],
)
def test_kernels(function, rows, form, count):
    A, _, x = operands(rows, form)
    assert kernels(function, A, x) == count


def test_rows_of_several_columns_come_in_vectors():
    A, _, x = operands(4000, "csr")
    assert kernels(lambda A, X: snp.tanh(A @ X), A, np.stack([x] * 8, axis=1)) == 1


def test_gradients_of_losses_do_not_move_functions_into_loops():
    """A.T @ tanh(A @ x): in one kernel, each row would wait for a function of one number."""
    A, _, x = operands(4000, "csr")
    assert kernels(lambda A, x: A.T @ snp.tanh(A @ x), A, x) == 3


@pytest.mark.rotating(4)
@pytest.mark.parametrize("choose", ["auto", "random:5", "fusion=together"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "bsr:2x2", "(d,b)", "dense"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_values(dtype, form, choose):
    A, dense, x = operands(1500, form, dtype)
    with config.using(choose=choose):
        made = sj.jit(lambda A, x: (snp.exp(-(A @ x)), A.T @ snp.tanh(A @ x), snp.sin(A.sum(1, keepdims=True))))(A, x)
    want = np.exp(-(dense @ x)), dense.T @ np.tanh(dense @ x), np.sin(dense.sum(1, keepdims=True))
    for got, expected in zip(made, want, strict=True):
        np.testing.assert_allclose(
            got, expected, rtol=2e-3 if dtype == "f4" else 1e-11, atol=1e-4 if dtype == "f4" else 1e-12
        )
