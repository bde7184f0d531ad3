"""Products of which entries are dropped as they are made (`thinned_products`), and values that a kernel reads twice, against NumPy and as they are written."""

import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from tests.fuzz import engine, forced

CASES, BATCH = 240, 20
SEMIRINGS = ("plus_times", "min_plus", "plus_pair")


def random_program(rng: random.Random):
    """A product, what elementwise operations make of it and of an array beside it, thinned; for sparsejax, and the same for NumPy without formats."""
    semiring, form = rng.choice(SEMIRINGS), rng.choice(("csr", "csc", "coo", "dcsr", "list"))
    shape, tol = rng.randrange(5), rng.choice((None, None, 0, 1.5, 3))
    vector, used = form == "list", rng.random() < 0.2
    text = "i,ij->j" if vector else "ij,jk->ik"
    form = "coo" if vector else form
    fill = np.inf if semiring == "min_plus" else 0.0

    def elementwise(xp, c, d):
        if shape == 0:
            return c
        if shape == 1:
            return xp.where(c < d, c, fill)
        if shape == 2:
            return xp.where((c < d) & (c > -d), c, fill)
        if shape == 3:
            return xp.where(c > d, c * 0.5, fill) if fill == 0 else xp.where(c > d, c + 1.0, fill)
        return xp.maximum(c, -c) * 2 if fill == 0 else xp.minimum(c, c + 2.0)

    def ours(A, B, d):
        c = sj.einsum(text, A, B, semiring=semiring, out_format=form)
        made = elementwise(snp, c, d)
        thin = sj.prune(made, tol=tol)
        return (thin, c) if used else (thin, snp.sum(snp.where(d > 0, 1.0, 0.0)))

    def plain(a, b, d):
        there = (a != 0)[..., None] & (b != 0) if vector else (a != 0)[:, :, None] & (b != 0)[None]
        x, y = (a[..., None], b) if vector else (a[:, :, None], b[None])
        term = {"plus_times": x * y, "min_plus": x + y, "plus_pair": np.ones_like(x * y)}[semiring]
        axis = 0 if vector else 1
        if semiring == "min_plus":
            c = np.where(there, term, np.inf).min(axis)
        else:
            c = np.where(there, term, 0).sum(axis)
        with np.errstate(invalid="ignore"):
            made = np.asarray(elementwise(np, c, d), float)
            far = ~(np.abs(made - fill) <= (tol or 0)) & (made != fill)
        return np.where(far, made, fill), far

    return ours, plain, vector


def check(seed: int) -> str | None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    ours, plain, vector = random_program(rng)
    n, m, k = (int(x) for x in numbers.integers(1, 14, 3))

    def some(*shape):
        return np.where(numbers.random(shape) < 0.4, numbers.integers(1, 6, shape), 0).astype(float)

    a, b = (some(m) if vector else some(n, m)), some(m, k)
    d = numbers.integers(0, 12, k if vector else (n, k)).astype(float)
    left = sj.array(a, format="coo" if vector else rng.choice(("csr", "csc", "coo")))
    right = sj.array(b, format=rng.choice(("csr", "csc")))
    expected, far = plain(a, b, d)
    got = sj.jit(ours)(left, right, d)[0]
    with config.using(skip=config.skip() | {"thinned_products"}):
        apart = sj.jit(lambda *args: ours(*args))(left, right, d)[0]
    for made in (got, apart):
        if not np.array_equal(made.todense(), expected):
            return f"seed {seed} {forced.settings()}: {made.todense()} is not {expected}"
        if made.nnz != far.sum() or made.format != apart.format:
            return f"seed {seed} {forced.settings()}: {made.nnz} entries in {made.format}, not {far.sum()}"
    return None


@pytest.mark.rotating(12)
@pytest.mark.parametrize("start", range(0, CASES, BATCH))
def test_random_products(start):
    with engine.quick():
        faults = [f for f in (forced.half(check)(seed) for seed in range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


def kernels(f, *args):
    return sj.jit(f).lower(*args).as_text("cin").count("out[")


def operands():
    rng = np.random.default_rng(0)
    A = sj.array(np.where(rng.random((20, 20)) < 0.2, rng.random((20, 20)), 0), format="csr")
    x = sj.array(np.where(rng.random(20) < 0.5, rng.random(20), 0), format="coo")
    return A, x, rng.random(20)


def test_what_is_dropped_is_not_stored():
    def shorter(A, x, d):
        reached = sj.einsum("i,ij->j", x, A, semiring="plus_times", out_format="coo")
        return sj.prune(snp.where(reached < d, reached, 0))

    text = sj.jit(shorter).lower(*operands()).as_text("cin")
    assert "library call" not in text and text.count("out[") == 1
    with config.using(skip={"thinned_products"}):
        assert "library call: thin" in sj.jit(lambda *args: shorter(*args)).lower(*operands()).as_text("cin")


def test_what_others_read_is_stored():
    """The product, or what is made of it, where the program needs it as a whole."""

    def both(A, x, d):
        reached = sj.einsum("i,ij->j", x, A, out_format="coo")
        made = snp.where(reached < d, reached, 0)
        return sj.prune(made), made

    A, x, d = operands()
    thin, made = sj.jit(both)(A, x, d)
    assert thin.nnz < made.nnz
    np.testing.assert_allclose(thin.todense(), made.todense())


def test_no_numbers_and_infinities():
    def f(x, A, d, fill):
        reached = sj.einsum("i,ij->j", x, A, semiring="min_plus", out_format="coo")
        return sj.prune(snp.where(reached < d, reached, fill))

    A, x, d = operands()
    for value in (np.nan, np.inf, -np.inf):
        given = x.todense()
        given[::3] = value
        xs = sj.array(given, format="coo", fill_value=np.inf)
        got = sj.jit(f, static_argnums=3)(xs, A, d * 9, np.inf)
        with config.using(skip={"thinned_products"}):
            want = sj.jit(lambda *args: f(*args, np.inf))(xs, A, d * 9)
        np.testing.assert_array_equal(got.todense(), want.todense())
        assert got.nnz == want.nnz


def test_gradients_pass_through():
    def f(x, A):
        return snp.sum(sj.prune(sj.einsum("i,ij->j", x, A, out_format="coo"), tol=0.3) ** 2)

    A, x, _ = operands()
    got = sj.jit(sj.grad(f))(x, A)
    a, v = A.todense(), x.todense()
    y = v @ a
    np.testing.assert_allclose(got.todense()[v != 0], (a @ (2 * y * (np.abs(y) > 0.3)))[v != 0], rtol=1e-10)
