"""Contractions of any arity in any formats, masks: first and second derivatives; what the compiled programs do not do."""

import re

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests.autodiff.checks import array, check

pytestmark = pytest.mark.rotating(28)

SHAPES = {"i": 3, "j": 4, "k": 5, "l": 2}


def operands(rng, subscripts, forms):
    terms = subscripts.split("->")[0].split(",")
    return [array(rng, [SHAPES[c] for c in t], f) for t, f in zip(terms, forms, strict=True)]


CASES = [
    ("ij,j->i", ("csr", "dense")),
    ("ij,jk->ik", ("csr", "dense")),
    ("ij,jk->ik", ("dense", "dense")),
    ("ij,jk->ik", ("csr", "csr")),
    ("ij,jk->ik", ("csc", "coo")),
    ("ij,jk->ki", ("dense", "csc")),
    ("ij,ik,jk->ij", ("csr", "dense", "dense")),
    ("ijk,jl,kl->il", ("csf", "dense", "dense")),
    ("ijk,kl->ijl", ("coo", "dense")),
    ("ijk->ik", ("csf",)),
    ("ij->", ("csr",)),
    ("ij,ij->i", ("csr", "csr")),
    ("ij,jk,kl->il", ("csr", "csr", "dense")),
    ("i,j->ij", ("coo", "coo")),
    ("i,ij,j->", ("dense", "csr", "dense")),
    ("ij,kj,lj,j->ikl", ("csr", "dense", "coo", "dense")),
]


@pytest.mark.parametrize(("subscripts", "forms"), CASES, ids=lambda x: x if isinstance(x, str) else "-".join(x))
def test_einsum(subscripts, forms):
    rng = np.random.default_rng(0)
    check(rng, lambda *xs: sj.einsum(subscripts, *xs), *operands(rng, subscripts, forms), second=True)


@pytest.mark.parametrize("form", ["dense", "csr", "coo"])
def test_diagonals(form):
    rng = np.random.default_rng(1)
    x, y = array(rng, (4, 4), form), array(rng, (4,))
    check(rng, lambda x, y: sj.einsum("ii,i->i", x, y), x, y)
    check(rng, lambda x: sj.einsum("ii->", x), x)


@pytest.mark.parametrize("form", ["dense", "coo"])
def test_broadcast_axes(form):
    rng = np.random.default_rng(2)
    x, y = array(rng, (1, 4), form), array(rng, (3, 4))
    check(rng, lambda x, y: sj.einsum("ij,ij->j", x, y), x, y)
    check(rng, lambda x, y: sj.einsum("ij,ij->i", x, y), x, y)


def test_batched_matmul():
    rng = np.random.default_rng(3)
    check(rng, snp.matmul, array(rng, (2, 3, 4), "csf"), array(rng, (4, 5)))
    check(rng, snp.matmul, array(rng, (2, 3, 4)), array(rng, (2, 4, 5)))


@pytest.mark.parametrize("complement", [False, True])
@pytest.mark.parametrize("mask", ["csr", "dense"])
def test_masks(mask, complement):
    rng = np.random.default_rng(4)
    M = array(rng, (3, 5), mask) if mask == "csr" else sj.array(rng.random((3, 5)) < 0.5)
    for forms in (("dense", "dense"), ("csr", "dense"), ("csr", "csc")):
        A, B = array(rng, (3, 4), forms[0]), array(rng, (4, 5), forms[1])
        check(rng, lambda A, B: snp.matmul(A, B, mask=M, complement=complement), A, B)


def test_output_formats():
    rng = np.random.default_rng(5)
    A, B = array(rng, (3, 4), "csr"), array(rng, (4, 5), "csr")
    for form in ("dense", "csc", "coo"):
        check(rng, lambda A, B, form=form: sj.einsum("ij,jk->ik", A, B, out_format=form), A, B)


def test_chains():
    rng = np.random.default_rng(6)
    A, H = array(rng, (6, 6), "csr"), array(rng, (6, 3))
    check(rng, lambda A, H: A @ (A.T @ snp.sin(A @ H)), A, H)
    check(rng, lambda A: (A @ A) * A + A, A, second=True)


def pairwise(A, U):
    return snp.sin(A @ A.T).sum() * 2 + (A * (U @ U.T)).sum()


@pytest.mark.parametrize("form", ["csr", "coo", "dcsc"])
@pytest.mark.parametrize("f", [lambda A, U: snp.tanh(A @ U).sum(), pairwise], ids=["spmm", "spgemm-sddmm"])
def test_no_dense_intermediate(f, form):
    """Nothing of the size of the dense matrix is made for the gradient of a sparse operand, at first and second order."""
    rng, n = np.random.default_rng(7), 50
    A, U = array(rng, (n, n), form, density=0.02), array(rng, (n, 2))

    def second(A, U):
        return (sj.grad(f)(A, U) * 0.5).sum()

    for function in (f, second):
        jaxpr = sj.jit(sj.grad(function)).trace(A, U).lower().as_text("jaxpr")
        products = set(re.findall(r"f64\[50:\w+,50:\w+\]", jaxpr))
        assert products and not {x for x in products if set(re.findall(r":(\w)", x)) == {"d"}} - allowed(function, f)


def allowed(function, f):
    """The product of two dense matrices that the user wrote; the compiler computes it at the pattern alone."""
    return {"f64[50:d,50:d]"} if f is pairwise else set()


@pytest.mark.parametrize("complement", [False, True])
def test_cotangents_of_masked_dense_results_that_come_sparse(complement):
    """They may have more entries than the mask."""
    rng = np.random.default_rng(3)
    x, m = array(rng, (4, 3)), rng.random((4, 3)) < 0.5
    check(rng, lambda x: sj.einsum("ij->ij", x, mask=m, complement=complement).asformat("(c,d)").sum(axis=1), x)


@pytest.mark.parametrize("form", ["csr", "(c,d)", "(e,d)", "(e,d)@(1,0)", "csc", "(l,e)@(1,0)"])
def test_sums_of_masked_contractions_over_dense_rows(form):
    """Both terms are accumulated inside the loops that know the positions of the pattern: rows here, which are dense."""
    rng = np.random.default_rng(0)
    dense, D = rng.random((4, 5)) * (rng.random((4, 5)) < 0.6), rng.random((3, 5, 4))

    def f(A):
        x = sj.einsum("cab,cab,ba->ca", D, D, A)
        return sj.einsum("ca,ca,ba->", x, x, A)

    A = sj.array(dense, format=form)
    grad = sj.grad(f)
    want = sj.grad(f)(sj.array(dense)).todense() * (dense != 0)
    again = sj.vjp(grad, sj.array(dense))[1](sj.array(dense))[0].todense() * (dense != 0)
    for g, w in ((grad, want), (lambda A: sj.vjp(grad, A)[1](A)[0], again)):
        np.testing.assert_allclose(sj.jit(g)(A).todense() * (dense != 0), w, rtol=1e-12)


@pytest.mark.parametrize("form", ["bsr:2x2", "(c,d)", "dia"])
def test_cotangents_of_masked_results_in_formats_that_store_more(form):
    """They have entries outside the mask, which operands stored in blocks or in whole rows have too."""
    rng = np.random.default_rng(3)
    x, m = array(rng, (4, 4), form), array(rng, (4, 4), "coo")
    check(rng, snp.tril, x, second=True)
    check(rng, lambda x: sj.einsum("ij->ij", x, mask=m, out_format=form), x)
