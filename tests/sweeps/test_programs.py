"""Whole programs: training in one compiled loop with sparse parameters, and sparse Jacobians of functions with control flow."""

from __future__ import annotations

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax, nn
from sparsejax.scipy.sparse import linalg
from tests.autodiff.checks import array, dense
from tests.fuzz import engine
from tests.sweeps.compositions import _scaled

N = 6


def parameters():
    rng = np.random.default_rng(2)
    return {"W": array(rng, (N, N), "csr"), "layers": [array(rng, (N,)), array(rng, (N, 3), "coo")]}


def objective(p, x):
    hidden = snp.tanh(p["W"] @ x + p["layers"][0])
    return snp.sum((hidden @ p["layers"][1]) ** 2) + 0.01 * snp.sum(p["W"] ** 2)


@pytest.mark.parametrize("optimizer", [nn.adam(0.05), nn.sgd(0.05, momentum=0.9)])
def test_training_in_one_loop(optimizer):
    """A scan over steps equals a Python loop; the parameters keep their patterns, and the loss falls."""
    p, data = parameters(), np.random.default_rng(3).uniform(-1, 1, (5, N))

    def step(state, x):
        p, memory = state
        value, g = sj.value_and_grad(sj.checkpoint(objective))(p, x)
        updates, memory = optimizer.update(g, memory, p)
        return (nn.apply_updates(p, updates), memory), value

    with engine.quick():
        (trained, _), losses = sj.jit(lambda p: lax.scan(step, (p, optimizer.init(p)), data))(p)
        state, wanted = (p, optimizer.init(p)), []
        for x in data:
            state, value = step(state, x)
            wanted.append(float(value))
        after = [float(objective(trained, x)) for x in data]
    np.testing.assert_allclose(dense(losses), wanted, rtol=1e-10)
    for a, b, c in zip(*map(sj.tree_util.tree_leaves, (trained, state[0], p))):
        np.testing.assert_allclose(dense(a), dense(b), rtol=1e-10)
        assert a.format == c.format and a.nnz == c.nnz
    assert sum(after) < sum(float(objective(p, x)) for x in data)


def test_gradients_through_training():
    """By the initial parameters, through the gradients of every step, against differences."""
    p, data = parameters(), np.random.default_rng(3).uniform(-1, 1, (3, N))

    def outer(p):
        def step(p, x):
            g = sj.grad(objective)(p, x)
            return sj.tree_util.tree_map(lambda a, b: a - 0.05 * b, p, g), None

        return objective(lax.scan(step, p, data)[0], data[0])

    with engine.quick():
        g = sj.jit(sj.grad(outer))(p)
        forward = float(sj.jvp(outer, (p,), (p,))[1])
        up, down = (float(outer(sj.tree_util.tree_map(lambda a, s=s: a * (1 + s), p))) for s in (1e-6, -1e-6))
    made = sum(float(snp.sum(a * b)) for a, b in zip(*map(sj.tree_util.tree_leaves, (g, p))))
    np.testing.assert_allclose([made, forward], (up - down) / 2e-6, rtol=1e-6)


def test_rules_of_functions_inside_batches_inside_loops():
    A, xs = array(np.random.default_rng(2), (N, N), "csr"), np.random.default_rng(3).uniform(-1, 1, (2, 3))

    def run(A, custom):
        body = lambda C, ws: (C * 0.9, sj.vmap(lambda w: custom(C, w).sum())(ws))  # noqa: E731
        return snp.sum(lax.scan(body, A, xs)[1] ** 2)

    with engine.quick():
        got = sj.jit(sj.grad(lambda A: run(A, _scaled)))(A)
        want = sj.grad(lambda A: run(A, lambda C, w: snp.sin(C) * w))(A)
    np.testing.assert_allclose(dense(got), dense(want), rtol=1e-10)


RING = sj.array(np.eye(N) * 3 + np.roll(np.eye(N), 1, 1), format="csr")
IDS = np.array([0, 0, 1, 1, 2, 2])
UNKNOWNS = {
    "cond": lambda u: lax.cond(snp.sum(u) > 0, lambda u: u * u[::-1], lambda u: snp.sin(u), u),
    "switch": lambda u: lax.switch(2, [lambda u: u, lambda u: u * 2, lambda u: (RING @ u) * u], u),
    "scan": lambda u: lax.scan(lambda c, w: (c * 0.5 + w * w, c * w), 1.0, u)[1],
    "scan of vectors": lambda u: lax.scan(lambda c, w: (c * w[:3] + w[3:], c), u[:3], RING.todense() @ u * np.eye(N))[
        1
    ],
    "fori": lambda u: lax.fori_loop(0, 3, lambda i, v: snp.sin(RING @ v), u),
    "while": lambda u: lax.while_loop(lambda v: snp.abs(v).sum() < 20, lambda v: v * 1.5 + v**3, u),
    "map": lambda u: lax.map(lambda w: snp.exp(w) * w, u),
    "gather": lambda u: u[np.array([2, 0, 2])] * u[1:4],
    "at": lambda u: snp.zeros(N).at[IDS].add(u * u),
    "at max": lambda u: (u * 1.0).at[np.array([1, 2])].max(u[3:5]),
    "sort": lambda u: snp.sort(u) * u,
    "segment_sum": lambda u: nn.segment_sum(u * u, IDS, 3)[IDS] * u,
    "segment_max": lambda u: nn.segment_max(u, IDS, 3),
    "segment_softmax": lambda u: nn.segment_softmax(u, IDS, 3),
    "cumsum": lambda u: snp.cumsum(u) * u,
    "stack": lambda u: snp.stack([u[1:], u[:-1]]) ** 2,
    "outer": lambda u: snp.outer(u, u),
    "min_plus": lambda u: sj.einsum("ij,j->i", RING, u, semiring="min_plus"),
    "spsolve": lambda u: linalg.spsolve(RING, u * u),
    "cg": lambda u: linalg.cg(RING @ RING.T, snp.sin(u), tol=1e-14)[0],
    "checkpoint": lambda u: sj.checkpoint(lambda u: snp.sin(RING @ u))(u),
    "batch": lambda u: sj.vmap(lambda w: snp.sin(w) * u[0])(u),
    "top_k": lambda u: lax.top_k(u, 2)[0],
}


USUAL = ("cond", "scan", "while", "gather", "segment_max", "spsolve", "batch", "sort")
"""What runs by default: others are slow tests."""


@pytest.mark.rotating(4)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in USUAL else pytest.mark.slow) for name in UNKNOWNS]
)
def test_sparse_jacobians(name):
    """Equal to dense ones, in first and second derivatives, and never denser than what may depend."""
    f = UNKNOWNS[name]
    u = np.random.default_rng(4).uniform(0.3, 1.5, N) * np.array([1, -1, 1, 1, -1, 1])
    total = lambda u: snp.sum(snp.sin(f(u)))  # noqa: E731
    with engine.quick():
        J = sj.sparse_jacobian(f)(u)
        np.testing.assert_allclose(dense(J), dense(sj.jacfwd(f)(u)), rtol=1e-9, atol=1e-10)
        if name != "while":
            H = sj.sparse_hessian(total)(u)
            np.testing.assert_allclose(dense(H), dense(sj.hessian(total)(u)), rtol=1e-8, atol=1e-9)
    assert not J.format.is_dense
