"""Sampled patterns predict how many entries a product has, whatever its degrees look like."""

import numpy as np
import pytest

import sparsejax as sj
from benchmarks import cases, matrices
from sparsejax.jit.cost import sampling


def predicted(expression, formats, *arrays):
    case = cases.Case("fill-in", expression, formats, "given")
    nest, inputs = cases.kernel(case, [sj.array(x, format=f) for x, f in zip(arrays, formats, strict=True)])
    return sampling.entries(nest, inputs), sj.einsum(expression, *arrays, optimize=False)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("make", [lambda: matrices.uniform(2000, 2000, 8000), lambda: matrices.rmat(11, 12_000)])
@pytest.mark.parametrize("expression", ["ij,jk->ik", "ij,kj->ik", "ji,jk->ik"])
@pytest.mark.parametrize("formats", [("csr", "csr"), ("coo", "csc")])
def test_products(make, expression, formats):
    A = make()
    found, made = predicted(expression, formats, A, A)
    assert max(found / made.nnz, made.nnz / found) < 1.25


def test_every_row_drawn_is_exact():
    A = matrices.uniform(1, 50, 20)
    B = matrices.uniform(50, 300, 900)
    found, made = predicted("ij,jk->ik", ("csr", "csr"), A, B)
    assert round(found) == made.nnz


def test_masks_and_chains():
    A = matrices.rmat(9, 3000)
    for expression in ("ik,ij,jk->ik", "ij,jk,kl->il"):
        found, made = predicted(expression, ("csr",) * 3, A, A, A)
        assert max(found / made.nnz, made.nnz / found) < 1.5


def test_nothing_in_common():
    A = sj.array(np.array([[1.0, 0.0], [1.0, 0.0]]), format="csr")
    B = sj.array(np.array([[0.0, 0.0], [1.0, 0.0]]), format="csr")
    nest, inputs = cases.kernel(cases.Case("fill-in", "ij,jk->ik", ("csr", "csr"), ""), [A, B])
    assert sampling.entries(nest, inputs) == 0.0


def test_sums_are_left_to_the_model():
    A = matrices.uniform(50, 50, 100)
    nest, inputs = cases.kernel(cases.Case("add", "ij+ji->ij", ("csr", "csr"), ""), [sj.array(A), sj.array(A)])
    assert sampling.entries(nest, inputs) is None
