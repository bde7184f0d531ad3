"""vmap of loops and branches: the batch equals the stacked loop over its elements."""

import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax
from tests.control.programs import Body, N, matrix
from tests.fuzz import engine

pytestmark = pytest.mark.rotating(16)

B = 3
RNG = np.random.default_rng(0)
DENSE = RNG.random((N, N)) * (RNG.random((N, N)) < 0.5)
STACK = RNG.random((B, N, N)) * (RNG.random((B, N, N)) < 0.5)
X = RNG.random((B, N))
FORMATS = ["dense", "csf", "(d,c,c)@(0,1,2)", "(d,c,d)@(1,2,0)", "(d,d,c)@(0,2,1)", "coo"]


def elements(x):
    return [sj.array(e, copy=True) for e in (x.todense() if hasattr(x, "todense") else x)]


def same(f, *args):
    """vmap of `f` against `f` of every element, dense."""
    with engine.quick():
        made = sj.jit(sj.vmap(f))(*args)
        want = [f(*(e[k] for e in map(elements, args))) for k in range(B)]
    if not isinstance(made, tuple):
        made, want = (made,), [(w,) for w in want]
    for mine, theirs in zip(made, zip(*want, strict=True), strict=True):
        np.testing.assert_allclose(mine.todense(), [t.todense() for t in theirs], rtol=1e-12)
    return made


@pytest.mark.parametrize("form", FORMATS)
def test_loops_over_batches_of_matrices(form):
    a = sj.array(STACK, format=form)
    same(lambda a, x: lax.fori_loop(0, 3, lambda i, x: snp.tanh(a @ x), x), a, X)
    same(lambda a: lax.fori_loop(0, 2, lambda i, p: p @ a, a), a)
    same(lambda a: lax.scan(lambda c, row: (c + row.sum(), row * c), 1.0, a), a)


@pytest.mark.parametrize("form", ["dense", "csr", "coo"])
def test_shared_matrices(form):
    a = sj.array(DENSE, format=form)
    same(lambda x: lax.scan(lambda x, row: (snp.sin(a @ x) + row, x.sum()), x, a), X)
    same(lambda s: lax.fori_loop(0, 2, lambda i, p: p * s + a, a), X[:, 0])
    same(lambda s: lax.fori_loop(0, 2, lambda i, p: p @ a * s, a), X[:, 0])


@pytest.mark.parametrize("form", ["dense", "csf"])
def test_elements_stop_at_different_times(form):
    a = sj.array(STACK, format=form)
    same(lambda n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 2), (0, 1.0)), np.array([0, 5, 2]))
    (_, made) = same(
        lambda a, n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] @ a), (0, a)), a, np.array([1, 0, 3])
    )
    assert made.format.is_dense == (form == "dense")


def test_elements_that_stopped_keep_their_entries():
    """Frontiers whose entries are counted: an entry too many would not end."""
    a = sj.array((DENSE > 0.5).astype(float), format="csr")

    def search(start):
        def step(state):
            front, seen = state
            new = sj.einsum("i,ij->j", front, a, semiring="or_and", mask=seen, complement=True)
            return new, seen | new.asformat("dense")

        front = start.asformat("coo")
        return lax.while_loop(lambda s: lax.structural.entries(s[0]) > 0, step, (front, start))[1]

    same(search, np.eye(N, dtype=bool)[:B])


@pytest.mark.parametrize("form", ["dense", "csf", "(d,c,d)@(1,2,0)"])
def test_branches(form):
    a = sj.array(STACK, format=form)
    branches = [lambda a: a * 2, lambda a: a @ a, lambda a: a]
    same(lambda k, a: lax.switch(k, branches, a), np.array([-1, 1, 5]), a)
    same(lambda a, x: lax.cond(x[0] > X[0, 0], lambda a: a @ a, lambda a: a, a), a, X)
    same(lambda a: lax.cond(X[0, 0] > 2, lambda a: a @ a, lambda a: a, a), a)
    same(lambda p: lax.cond(p, lambda: 1.0, lambda: 2.0), np.array([True, False, True]))


def test_compositions():
    a = sj.array(DENSE, format="csr")

    def f(x):
        return lax.scan(lambda x, _: (sj.checkpoint(lambda x: snp.sin(a @ x))(x), x.sum()), x, None, length=3)[0].sum()

    same(sj.grad(f), X)
    batched = lambda x: sj.vmap(f)(x).sum()  # noqa: E731
    np.testing.assert_allclose(sj.jit(sj.grad(batched))(X), [sj.grad(f)(x) for x in X], rtol=1e-12)
    g = lambda x: lax.cond(x[0] > 0.5, lambda x: snp.sin(a @ x), lambda x: x * x, x).sum()  # noqa: E731
    np.testing.assert_allclose(sj.grad(lambda x: sj.vmap(g)(x).sum())(X), [sj.grad(g)(x) for x in X], rtol=1e-12)
    twice = np.stack([X, X + 1])
    np.testing.assert_allclose(sj.vmap(sj.vmap(f))(twice), [[f(x) for x in xs] for xs in twice], rtol=1e-12)


def fault(seed):
    """A random loop over a batch of carries."""
    rng = random.Random(seed)
    inputs = [matrix(rng, (B, N, N)) for _ in range(rng.randint(1, 2))]
    shared = matrix(rng, (N, N))
    body, kind = Body(rng, len(inputs) + 1), rng.choice(("fori", "while", "scan", "cond"))
    counts = np.array([2, 0, 3])

    def run(xp, n, carry, *rest):
        step = lambda c: body(xp, c, *rest)[0]  # noqa: E731
        if kind == "while":
            if xp is np:
                for _ in range(n):
                    carry = step(carry)
                return carry
            return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, step(s[1])), (0, carry))[1]
        if kind == "cond":
            if xp is np:
                return step(carry) if carry.sum() > 3 else carry * 2
            return lax.cond(snp.sum(carry) > 3, step, lambda c: c * 2, carry)
        if xp is np:
            for _ in range(2):
                carry = step(carry)
            return carry
        if kind == "scan":
            return lax.scan(lambda c, _: (step(c), None), carry, None, length=2)[0]
        return lax.fori_loop(0, 2, lambda i, c: step(c), carry)

    batched = sj.vmap(lambda n, *xs: run(snp, n, *xs, shared[0]))
    with np.errstate(all="ignore"):
        want = [run(np, n, *(d[k] for _, d in inputs), shared[1]) for k, n in enumerate(counts)]
    made = sj.jit(batched)(counts, *(a for a, _ in inputs)).todense()
    if not np.allclose(made, want, rtol=1e-4, atol=1e-5, equal_nan=True):
        formats = [str(a.format) for a, _ in [*inputs, shared]]
        return f"seed {seed}: {kind} of {body.steps}, carry {body.next}; {formats}\nexpected\n{want}\ngot\n{made}"
    return None


@pytest.mark.rotating(3)
@pytest.mark.parametrize("start", range(0, 30, 10))
def test_random_batches(start):
    with engine.quick():
        faults = [f for f in map(fault, range(start, start + 10)) if f]
    assert not faults, "\n\n".join(faults)


def test_the_check_can_fail(monkeypatch):
    monkeypatch.setattr(lax, "cond", lambda p, yes, no, *xs: yes(*xs))
    with engine.quick():
        assert any(map(fault, range(20)))
