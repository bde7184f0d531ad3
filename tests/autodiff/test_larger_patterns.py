"""Derivatives through results that store more than the operand they are taken by: sums with other arrays, updates, unions.

The derivatives of the same functions of dense arrays are the oracle, first and second ones, at the stored entries.
"""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests.fuzz import engine

pytestmark = pytest.mark.rotating(24)

D = np.array([[1.0, 0, 2], [0, 0, 3], [4, 0, 0]])
M = np.eye(3) + 0.5 * D
FUNCTIONS = {
    "add": lambda a, e: ((a + e) ** 2).sum(),
    "sin": lambda a, e: snp.sin(a + e).sum(),
    "subtract": lambda a, e: ((e - a) ** 2).sum(),
    "rows": lambda a, e: ((a + e) / (a + e).sum(1, keepdims=True) * (a + e)).sum(),
    "update": lambda a, e: (a.at[1, 1].add(1.0) ** 2).sum(),
    "maximum": lambda a, e: (snp.maximum(a, e * 1.5) ** 2).sum(),
    "where": lambda a, e: (snp.where(a > 2.5, a, e) ** 2).sum(),
    "concatenate": lambda a, e: (snp.concatenate([a, e]) ** 2).sum(),
    "hypot": lambda a, e: (snp.hypot(a, e + 0.1 * a) ** 3).sum(),
    "product": lambda a, e: ((a @ a + e) ** 2).sum(),
    "einsum": lambda a, e: (snp.einsum("ij,jk->ik", a + e, a) ** 2).sum(),
    "branch": lambda a, e: (sj.lax.cond(a.sum() > 0, lambda x: x + e, lambda x: x - e, a) ** 2).sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("form", ["csr", "bitmap"])
def test_derivatives(name, form):
    f = FUNCTIONS[name]
    with engine.quick():
        dense, e = sj.array(D, copy=True), sj.array(M, copy=True)
        a, other = sj.array(D, format=form, copy=True), sj.array(M, format="csr", copy=True)
        if name == "hypot":  # dense zeros have no derivative
            wanted = np.where(
                D != 0, sj.grad(lambda x: (snp.hypot(x, e + 0.1 * x + 1e-300) ** 3).sum())(dense).todense(), 0
            )
        else:
            wanted = sj.grad(f)(dense, e).todense()
        found, by_other = sj.grad(f, (0, 1))(a, other)
        assert found.format == a.format and by_other.format == other.format
        np.testing.assert_allclose(found.todense()[D != 0], wanted[D != 0], rtol=1e-12)
        np.testing.assert_allclose(sj.grad(f)(a, other).todense(), found.todense(), rtol=1e-12)
        if name != "hypot":
            second = sj.grad(lambda x: (sj.grad(f)(x, other) * x * x).sum())(a)
            oracle = sj.grad(lambda x: (sj.grad(f)(x, e) * x * x).sum())(dense)
            np.testing.assert_allclose(second.todense()[D != 0], oracle.todense()[D != 0], rtol=1e-12)


def test_sums_of_masked_products_store_what_their_terms_do():
    rng = np.random.default_rng(0)
    a = sj.array(np.where(rng.random((9, 9)) < 0.15, 1.0, 0.0), format="csr")
    full = sj.array(np.ones((9, 9)), format="csr")

    def summed(terms, first):
        for k in range(terms):
            first = first + snp.einsum("kj,ki->ij", full * (k + 1), a, mask=a)
        return first

    with engine.quick():
        for terms in range(1, 6):
            found = sj.jit(lambda x, terms=terms: summed(terms, x * x))(a)
            assert found.nnz == summed(terms, a * a).nnz <= a.nnz
