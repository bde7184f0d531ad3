"""Derivatives of contractions over semirings: subgradients of min and max, first winner among equals."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests.autodiff.checks import array, check, dense

pytestmark = pytest.mark.rotating(24)

SATURATING = sj.Semiring("max", lambda x, y: x * y / (x + y + 5.0), -np.inf)
RINGS = ("min_plus", "max_times", "plus_min", "max_min", "min_first", "plus_second", "min_minus", "max_div", SATURATING)


def finite(x):
    return snp.where(snp.isfinite(x), x, 0)


@pytest.mark.rotating(20)
@pytest.mark.parametrize("ring", RINGS, ids=str)
@pytest.mark.parametrize("forms", [("csr", "dense"), ("csr", "csr"), ("dense", "coo")], ids="-".join)
def test_products(ring, forms):
    rng = np.random.default_rng(0)
    A, B = array(rng, (4, 5), forms[0]), array(rng, (5, 3), forms[1])
    check(rng, lambda A, B: finite(sj.einsum("ij,jk->ik", A, B, semiring=ring)), A, B, second=forms[0] == "csr")


def test_several_sums_and_factors():
    rng = np.random.default_rng(1)
    T, u, v = array(rng, (3, 4, 5), "csf"), array(rng, (4,)), array(rng, (5,), "coo")
    check(rng, lambda T, u, v: finite(sj.einsum("ijk,j,k->i", T, u, v, semiring="min_plus")), T, u, v, second=True)
    check(rng, lambda T: finite(sj.einsum("ijk->j", T, semiring="max_times")), T)
    check(rng, lambda T, u: finite(sj.einsum("ijk,j->ijk", T, u, semiring="max_times")), T, u)


@pytest.mark.parametrize("complement", [False, True])
def test_masks(complement):
    rng = np.random.default_rng(2)
    A, B, M = array(rng, (4, 5), "csr"), array(rng, (5, 3)), array(rng, (4, 3), "csr")
    check(
        rng,
        lambda A, B: finite(snp.matmul(A, B, semiring="min_plus", mask=M, complement=complement)),
        A,
        B,
        second=True,
    )


def test_shortest_paths():
    """The derivative of the distance by the weights is the shortest path."""
    W = sj.array(np.array([[0, 1.0, 5.0], [0, 0, 1.0], [0, 0, 0]]), format="csr")

    def distance(W):
        d = sj.array(np.array([0, np.inf, np.inf]))
        for _ in range(2):
            d = snp.minimum(d, sj.einsum("i,ij->j", d, W, semiring="min_plus"))
        return sj.einsum("i,i->", finite(d), np.array([0, 0, 1.0]))

    np.testing.assert_array_equal(dense(sj.grad(distance)(W)), [[0, 1, 0], [0, 0, 1], [0, 0, 0]])


def test_the_first_of_equal_terms_wins():
    A, x = sj.array(np.ones((1, 3)), format="csr"), np.array([2.0, 1.0, 1.0])
    g = sj.grad(lambda A, x: sj.einsum("ij,j->", A, x, semiring="min_plus"), (0, 1))(A, x)
    np.testing.assert_array_equal(dense(g[0]), [[0, 1, 0]])
    np.testing.assert_array_equal(g[1], [0, 1, 0])


def test_what_has_no_derivative_is_named():
    x = np.ones((2, 2))
    with pytest.raises(NotImplementedError, match="its addition is not"):
        ring = sj.Semiring(lambda a, b: snp.hypot(a, b), "times", 0)
        sj.grad(lambda x: sj.einsum("ij,jk->", x, x, semiring=ring))(x)


def test_additions_written_out_are_those_that_have_names():
    semiring = sj.Semiring(lambda x, y: y + x, lambda x, y: snp.sin(x) * y, zero=0)
    a = sj.array(np.eye(3), format="csr")
    found = sj.grad(lambda a: sj.einsum("ij,j->i", a, np.ones(3), semiring=semiring).sum())(a)
    np.testing.assert_allclose(found.todense(), np.eye(3) * np.cos(1.0))
