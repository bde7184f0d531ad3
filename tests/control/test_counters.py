"""`fori_loop` of many rounds: the counter goes around instead of being scanned, and nothing grows with the rounds."""

import tracemalloc

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax
from sparsejax.lax import loops

X = np.random.default_rng(0).random(5)


@pytest.fixture
def carried(monkeypatch):
    """As if 2 rounds were many."""
    monkeypatch.setattr(loops, "SCANNED", 2)


def test_memory_does_not_grow_with_the_rounds():
    lax.fori_loop(0, 100_000, lambda i, x: x * 0.5 + i, X)  # compiled, bound
    tracemalloc.start()
    made = lax.fori_loop(0, 400_000, lambda i, x: x * 0.5 + i, X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(made, np.full(5, 2 * (400_000 - 2)), rtol=1e-12)
    assert peak < 400_000


def test_a_billion_rounds_are_traced_at_once():
    closed = sj.make_jaxpr(lambda x: lax.fori_loop(0, 10**9, lambda i, x: x * i, x))(X)
    assert all(c.size == 1 for c in closed.consts)
    assert all(a.aval.size <= 5 for eqn in closed.jaxpr.eqns for a in (*eqn.inputs, *eqn.outputs))


def test_a_counter_that_nobody_reads_does_not_go_around(carried):
    closed = sj.make_jaxpr(lambda x: lax.fori_loop(0, 9, lambda i, x: x * 2, x))(X)
    (eqn,) = closed.jaxpr.eqns
    assert eqn.param_dict["carry"] == 1
    np.testing.assert_allclose(lax.fori_loop(0, 9, lambda i, x: x * 2, X), X * 2**9)


@pytest.mark.parametrize("bounds", [(0, 7), (-3, 4), (5, 30), (4, 4), (4, 1)])
def test_carried_counters_count(carried, bounds):
    for run in (lambda f: f, sj.jit):
        made = run(lambda x: lax.fori_loop(*bounds, lambda i, s: {"x": s["x"] + i, "n": i}, {"x": x, "n": -1}))(X)
        np.testing.assert_allclose(made["x"], X + sum(range(*bounds)))
        assert made["n"].item() == (max(range(*bounds)) if bounds[0] < bounds[1] else -1)
        assert made["n"].dtype == np.int64


def test_derivatives_and_batches_of_carried_counters(monkeypatch):
    def f(x):
        return lax.fori_loop(0, 9, lambda i, x: snp.sin(x) * (i + 1) / 5, x).sum()

    results = []
    for most in (100, 2):
        monkeypatch.setattr(loops, "SCANNED", most)
        results.append(
            [
                f(X),
                sj.grad(f)(X),
                sj.jit(sj.grad(f))(X),
                sj.jvp(f, (X,), (np.ones(5),))[1],
                sj.hessian(f)(X),
                sj.vmap(f)(np.stack([X, 2 * X])),
                sj.vmap(sj.grad(f))(np.stack([X, 2 * X])),
            ]
        )
    for scanned, carried in zip(*results, strict=True):
        np.testing.assert_allclose(carried.todense(), scanned.todense(), rtol=1e-12)


def test_weak_types_of_carried_counters(carried):
    x = X.astype("f4")
    assert lax.fori_loop(0, 5, lambda i, x: x * i + 1.5, x).dtype == np.float32
    assert lax.fori_loop(0, 5, lambda i, t: t + 0.5, 0).item() == 2.5


def test_sparse_carries_with_carried_counters(carried):
    a = sj.array(np.diag(X), format="csr")
    made = lax.fori_loop(0, 4, lambda i, p: p @ a * (i + 1), a)
    np.testing.assert_allclose(made.todense(), np.diag(X**5 * 24))
    assert made.format == a.format


def test_errors_name_the_leaf(carried):
    with pytest.raises(TypeError, match=r"fori_loop.*fill 1.0 instead of 0.0.*refill"):
        lax.fori_loop(0, 4, lambda i, s: snp.exp(s), sj.array(np.eye(3), format="csr"))
    with pytest.raises(TypeError, match="same pytree structure"):
        lax.fori_loop(0, 4, lambda i, s: (s, s), X)


@pytest.mark.parametrize(
    "bounds",
    [
        ("i1", "i1", 120, 127),
        ("u1", "i2", 250, 260),
        ("i4", "u4", 0, 3),
        ("i2", "i8", -3, 2),
        ("u8", "u8", 1, 4),
        ("i4", "u8", 1, 4),
        ("u8", "u8", 1 << 63, (1 << 63) + 3),
    ],
)
def test_bounds_of_few_bits_count_as_far_as_others(bounds):
    """At once, as arguments and as constants: the counter has 64 bits."""
    low, high, first, last = bounds
    ends = np.dtype(low).type(first), np.dtype(high).type(last)
    total = lambda a, b: lax.fori_loop(a, b, lambda i, c: c + i, 0)  # noqa: E731
    for made in (total(*ends), sj.jit(total)(*ends), sj.jit(lambda: total(*ends))()):
        assert int(made) % 2**64 == sum(range(first, last)) % 2**64 and made.dtype.itemsize == 8
