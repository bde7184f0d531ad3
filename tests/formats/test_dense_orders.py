"""Dense arrays whose dimensions change their order: `convert` against the array itself, and transposes at once against those under `jit`."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import Format, convert
from sparsejax.formats.levels.dense import Dense


@pytest.mark.rotating(3)
@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_orders_of_dense_arrays(ndim, dtype):
    rng, orders = np.random.default_rng(ndim), list(itertools.permutations(range(ndim)))
    for source, target in itertools.product(orders, repeat=2):
        for low, high in ((0, 4), (1, 9), (17, 90 if ndim < 3 else 20)):
            x = (rng.standard_normal(rng.integers(low, high, ndim)) * 9).astype(dtype)
            given = convert.from_dense(x, Format((Dense(),) * ndim, source), 0)
            made = convert.convert(given, Format((Dense(),) * ndim, target))
            assert made.format.order == target
            assert not made.vals.flags.writeable
            np.testing.assert_array_equal(convert.to_dense(made), x)


@pytest.mark.parametrize("form", ["dense", "csr", "csc", "coo", "bsr:2x2", "dcsr"])
def test_transposes_at_once_are_those_of_a_program(form):
    rng = np.random.default_rng(5)
    for n, m in rng.integers(1, 20, (8, 2)).tolist():
        dense = np.where(rng.random((n, m)) < 0.4, rng.standard_normal((n, m)), 0)
        x = sj.array(dense, format=form)
        for made in (x.T, snp.transpose(x), sj.jit(snp.transpose)(x), x.T.T.T):
            assert made.format == x.T.format and made.aval == x.T.aval
            np.testing.assert_array_equal(made.todense(), dense.T)
        bound = 2 * n * np.finfo(float).eps * abs(dense).sum(0).max()
        np.testing.assert_allclose((x.T @ np.ones(n)).todense(), dense.T @ np.ones(n), rtol=0, atol=bound)


def test_a_transpose_does_not_follow_the_callers_memory():
    x = np.arange(6.0).reshape(2, 3)
    made, copied = snp.transpose(x), snp.add(snp.transpose(x), 0.0)
    x[:] = -1
    for found in (made, copied):
        np.testing.assert_array_equal(found.todense(), np.arange(6.0).reshape(2, 3).T)
