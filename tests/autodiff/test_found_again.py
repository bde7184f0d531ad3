"""Derivatives outside `jit` are found again by what a trace says: the same values as where nothing is remembered, whatever changes between
calls, and no plan for what came before."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.numbered import Numbered
from sparsejax.jit.runtime import plans
from sparsejax.transforms import alike


@pytest.fixture
def planned(monkeypatch):
    """How many programs were planned."""
    made = []
    real = plans.planned

    def counted(*args, **kwargs):
        made.append(1)
        return real(*args, **kwargs)

    monkeypatch.setattr(plans, "planned", counted)
    return made


def arrays(seed, form="csr"):
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((7, 5))
    dense[rng.random(dense.shape) < 0.5] = 0.0
    return sj.array(dense, format=form), sj.array(rng.standard_normal((5, 3)))


def all_derivatives(function, x, t):
    y, back = sj.vjp(function, x)
    z, forward = sj.linearize(function, x)
    return [
        sj.grad(function)(x),
        *sj.value_and_grad(function)(x),
        y,
        back(1.0)[0],
        *sj.jvp(function, (x,), (t,)),
        z,
        forward(t),
    ]


def told(results):
    return [(str(r.format), r.dtype, r.todense().tobytes()) for r in map(sj.asarray, results)]


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_calls_that_come_back_plan_nothing(form, planned):
    A, W = arrays(0, form)

    def loss(A):
        return (snp.tanh(A @ W) ** 2).sum()

    before = told(all_derivatives(loss, A, A))
    del planned[:]
    assert told(all_derivatives(loss, A, A)) == before
    # another function object that does the same, and other values of what it closes over
    B, V = arrays(1, form)
    found = told(all_derivatives(lambda A: (snp.tanh(A @ V) ** 2).sum(), B, B))
    assert not planned
    alike.clear_caches()
    assert told(all_derivatives(lambda A: (snp.tanh(A @ V) ** 2).sum(), B, B)) == found
    assert planned


def test_what_a_function_closes_over_is_seen():
    A, W = arrays(0)
    state = {"scale": 2.0, "sign": 1, "other": W}

    def loss(A):
        y = A @ state["other"]
        y = y if state["sign"] > 0 else -snp.sin(y)
        return (y * state["scale"]).sum()

    for change in ({}, {"scale": 3.0}, {"sign": -1}, {"other": sj.array(2.0 * W.todense())}, {"other": W[:, :2]}):
        state.update(change)
        found = told(all_derivatives(loss, A, A))
        alike.clear_caches()
        assert told(all_derivatives(loss, A, A)) == found


def test_the_function_runs_in_every_call():
    A, _ = arrays(0)
    calls = []

    def loss(A):
        calls.append(1)
        return (A * A).sum()

    for n in range(1, 4):
        sj.grad(loss)(A)
        assert len(calls) == n


def spelled(function, *args):
    return alike.spelled(sj.make_jaxpr(function)(*args).jaxpr, Numbered([n for x in args for n in np.shape(x)]))


def test_spelling_tells_numbers_apart():
    x = np.array([1.0, 2.0])
    other = {spelled(lambda x, n=n: snp.where(x > 1, x, n), x) for n in (0.0, -0.0, 1.0, np.nan, np.nan)}
    assert len(other) == 4
    assert spelled(lambda x: snp.sum(x, axis=0), x) == spelled(lambda y: snp.sum(y, axis=0), x)
    assert spelled(lambda x: snp.sum(x), x) == spelled(lambda x: snp.sum(x), x[:1])  # extents are beside it
    assert spelled(lambda x: snp.sum(x), x) != spelled(lambda x: snp.sum(x), x.astype("f4"))
    A, B = arrays(0)[0], arrays(0, "csc")[0]
    assert spelled(lambda A: A * 2, A) != spelled(lambda A: A * 2, B)
    assert spelled(lambda x, y: x - y, x, x) != spelled(lambda x, y: y - x, x, x)


def test_programs_that_run_others_are_not_spelled():
    x = np.array([1.0, 2.0])
    assert spelled(lambda x: sj.lax.fori_loop(0, 3, lambda i, y: y * 2, x), x) is None
    f = lambda x: sj.lax.fori_loop(0, 3, lambda i, y: y * x[0], x).sum()  # noqa: E731
    assert told([sj.grad(f)(x)]) == told([sj.grad(f)(x)])


def test_inside_traced_functions_derivatives_are_recorded():
    A, _ = arrays(0)
    f = lambda A: (A * A).sum()  # noqa: E731
    assert told([sj.jit(sj.grad(f))(A)]) == told([sj.grad(f)(A)])
    twice = sj.grad(lambda A: (sj.grad(f)(A) * A).sum())
    np.testing.assert_allclose(twice(A).todense(), 4 * A.todense())


def test_threads_differentiate_in_new_shapes():
    rng = np.random.default_rng(3)
    loss = lambda x, t: (snp.sin(x) * t).sum()  # noqa: E731

    def run(seed):
        own = np.random.default_rng(seed)
        for n in own.integers(1, 40, 25):
            x, t = rng.random(n), float(own.random())
            np.testing.assert_allclose(sj.grad(lambda x, t=t: loss(x, t))(x).todense(), np.cos(x) * t, rtol=1e-12)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, range(3)))
