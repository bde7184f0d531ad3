"""What a product costs does not depend on how its factors are in brackets, where one is read at the position of another."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

PRODUCTS = [
    lambda A, B, d: sj.einsum("ij,ij,i->j", A, B, d),
    lambda A, B, d: sj.einsum("ij,ij->j", A, d[:, None] * B),
    lambda A, B, d: sj.einsum("ij,ij->j", A, snp.abs(d)[:, None] * B),
    lambda A, B, d: sj.einsum("ij,ij->j", A * d[:, None], B),
    lambda A, B, d: (A * (1 / d)[:, None] * (B * (d * d)[:, None])).sum(axis=0),
]


def cost(text):
    """Of all kernels: factors may be stored for the others."""
    chosen = [row for row in text.splitlines() if row.strip().startswith("* ")]
    assert chosen
    return sum(float(row.split(":")[1].split("=")[0]) for row in chosen)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr"])
def test_brackets(form):
    rng = np.random.default_rng(0)
    x, d = sp.random_array((3000, 2500), density=0.004, format="csr", rng=rng), snp.asarray(1 + rng.random(3000))
    A = sj.array(x, format=form)
    B = A * 2.0
    costs = []
    for product in PRODUCTS:
        costs.append(cost(str(sj.explain(sj.jit(product))(A, B, d))))
        np.testing.assert_allclose(product(A, B, d), 2 * (x * x).T @ d.todense())
    assert max(costs) < 2 * min(costs)


def test_gradient_of_a_normalised_product():
    """Sums along columns of numbers at positions are scattered: the csr array that others share stays as it is."""
    x = sp.random_array((20_000, 20_000), density=5e-4, format="csr", rng=np.random.default_rng(0))
    v = np.ones(20_000)

    def normalised(A):
        d = 1 / snp.sqrt(A.sum(axis=1) + 1)
        return ((d[:, None] * A * d[None, :]) @ v).sum()

    assert "conversion A" not in str(sj.explain(sj.grad(normalised))(sj.array(x)))
