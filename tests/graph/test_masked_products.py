"""Dense products of which something sparse keeps a few entries are computed at these entries, whatever happens to them in between."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.graph import fuse, partition
from sparsejax.transforms import staging

BETWEEN = {
    "residual": lambda np, A, P, b: A * (A - P),
    "loss": lambda np, A, P, b: np.sum(((A - P) * (A != 0)) ** 2),
    "gaussian": lambda np, A, P, b: np.sum(A * np.exp(-(P**2)), axis=1),
    "bias": lambda np, A, P, b: A * (np.maximum(P, 0) + b) + A,
    "choice": lambda np, A, P, b: A.T * np.tanh(np.where(b > 0.5, P, 0.25)) * A,
    "reader": lambda np, A, P, b: (A * abs(P + 1)) @ b,
}


def calls(function, *args):
    steps = fuse.fuse(staging.clean(sj.make_jaxpr(function)(*args).jaxpr))
    return [s.eqn.primitive.name for s in steps if isinstance(s, partition.CallStep)]


def operands(form):
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((9, 9)) < 0.3, rng.standard_normal((9, 9)), 0.0)
    return sj.array(dense, format=form), dense, rng.standard_normal((9, 5)), rng.standard_normal((5, 9)), rng.random(9)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", BETWEEN)
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr:2x2", "hash"])
def test_products_under_operations_under_masks(name, form):
    A, dense, X, Y, b = operands(form)
    f = BETWEEN[name]

    def masked(A, X, Y, b):
        return f(snp, A, X @ Y, b)

    assert "contract" not in calls(masked, A, X, Y, b)
    made = sj.jit(masked)(A, X, Y, b)
    np.testing.assert_allclose(made.todense(), f(np, dense, X @ Y, b), rtol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        lambda A, P: A @ (P + 1),  # reads all of it
        lambda A, P: (A * (P + 1), P),
        lambda A, P: A * (P + P.T),
        lambda A, P: P + 1,
    ],
)
def test_products_that_are_read_whole_are_library_calls(function):
    A, dense, X, Y, _ = operands("csr")

    def whole(A, X, Y):
        return function(A, X @ Y)

    assert "contract" in calls(whole, A, X, Y)
    for made, expected in zip(
        sj.tree_util.tree_leaves(sj.jit(whole)(A, X, Y)), sj.tree_util.tree_leaves(function(dense, X @ Y)), strict=True
    ):
        np.testing.assert_allclose(made.todense(), expected, rtol=1e-12)


def test_a_product_behind_more_operations_than_a_kernel_holds_is_a_library_call():
    A, dense, X, Y, _ = operands("csr")

    def many(A, P):
        for k in range(100):
            P = P * 0.5 + k
        return A * P

    assert "contract" in calls(lambda A, X, Y: many(A, X @ Y), A, X, Y)
    made = sj.jit(lambda A, X, Y: many(A, X @ Y))(A, X, Y)
    np.testing.assert_allclose(made.todense(), many(dense, X @ Y), rtol=1e-12)
