"""What kernels ask of new arrays: those that read all in the order in which it is stored ask how many entries there are, no more."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.cost import spreads, statistics

ENTRIES = spreads.LEAST + 100


def matrix(seed, form="csr"):
    rng = np.random.default_rng(seed)
    coords = rng.integers(0, 3000, (2, ENTRIES + 2000))
    return sj.array((rng.random(coords.shape[1]), tuple(coords)), shape=(3000, 3000), format=form)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("function", [lambda A, B: A + B, snp.maximum, lambda A, B: abs(A) - 2 * B])
def test_sums_of_new_arrays_ask_for_counts(function, form):
    compiled = sj.jit(function, dynamic=False)
    compiled(matrix(2, form), matrix(3, form))  # planning may look at more
    A, B = matrix(0, form), matrix(1, form)
    made = compiled(A, B)
    assert made.format == A.format
    np.testing.assert_allclose(made.todense(), np.asarray(function(A.todense(), B.todense())))
    for x in (A, B):
        assert "positions" not in x.storage.cache
        assert x.storage.cache["rounded_counts"] == tuple(statistics.positions(x.storage))


def test_products_and_sums_of_two_orders_ask_for_more():
    for function in (lambda A, B: (A @ np.ones(3000)) + (B @ np.ones(3000)), lambda A, B: A + B.T):
        compiled = sj.jit(function, dynamic=False)
        compiled(matrix(2), matrix(3))
        A, B = matrix(0), matrix(1)
        compiled(A, B)
        assert "positions" in A.storage.cache
