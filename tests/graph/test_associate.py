"""Products of three operands, associated as is cheapest (`reassociate`), against NumPy; and which are."""

import itertools
import random
import sys

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.jit.graph import reassociate
from tests.fuzz import engine

RINGS = {
    "plus_times": (np.add, np.multiply, 0.0),
    "min_plus": (np.minimum, np.add, np.inf),
    "max_plus": (np.maximum, np.add, -np.inf),
    "max_min": (np.maximum, np.minimum, -np.inf),
}
FORMATS = ("csr", "csc", "coo", "dcsr", "bsr:2x3", "dense", "dense", "dense")


@pytest.fixture(autouse=True)
def quick():
    with engine.quick():
        yield


@pytest.fixture
def narrow(monkeypatch):
    """Small dense products are kernels too."""
    monkeypatch.setattr(sys.modules["sparsejax.lax.contract"], "MANY", 0)


def graph(rng, n, degree=8):
    """An n x n matrix of small integers, some of its rows empty: sums are exact in any order."""
    made = np.zeros((n, n))
    rows = rng.integers(0, n, n * degree)
    made[rows, rng.integers(0, n, n * degree)] = rng.integers(1, 5, n * degree)
    made[:: max(2, n // 5)] = 0
    return made


def integers(rng, *shape):
    return rng.integers(-4, 5, shape).astype(float)


def plan(f, *args):
    return sj.jit(f).lower(*args).as_text("plan")


def multiplied(a, b, ring):
    add, mul, _ = RINGS[ring]
    return add.reduce(mul(a[:, :, None], b[None, :, :]), axis=1)


def operand(nrng, rng, shape, ring):
    """An array in some format and what it reads as in a ring."""
    zero, form = RINGS[ring][2], rng.choice(FORMATS)
    values = integers(nrng, *shape)
    if form == "dense":
        return snp.asarray(values), values
    stored = nrng.random(shape) < rng.choice((0.1, 0.5))
    made = snp.asarray(np.where(stored & (values != 0), values, 0.0)).asformat(form)
    return made, np.where(stored & (values != 0), values, zero)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("seed", range(6))
def test_random_chains(monkeypatch, ring, seed):
    """Chains of three to five factors, all associated in other ways than they are written: exact, as all numbers are small integers."""
    monkeypatch.setattr(reassociate, "SURE", 1e9)
    rng, nrng = random.Random(f"{ring} {seed}"), np.random.default_rng(seed)
    extents = [rng.choice((1, 2, 5, 9, 17)) for _ in range(rng.randint(4, 6))]
    pairs = [operand(nrng, rng, shape, ring) for shape in itertools.pairwise(extents)]
    semiring = None if ring == "plus_times" else ring

    def chain(*arrays):
        left = list(arrays)
        choice = random.Random(seed)
        while len(left) > 1:
            k = choice.randrange(len(left) - 1)
            left[k : k + 2] = [sj.einsum("ij,jk->ik", left[k], left[k + 1], semiring=semiring)]
        return left[0]

    want = pairs[0][1]
    for _, dense in pairs[1:]:
        want = multiplied(want, dense, ring)
    arrays = [a for a, _ in pairs]
    np.testing.assert_array_equal(sj.jit(chain)(*arrays).todense(), want)
    assert "as written" in plan(chain, *arrays) or all(a.format.is_dense for a in arrays)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("rows", [100, 1003])
@pytest.mark.parametrize("widths", [(8, 8), (16, 24), (40, 7)])
@pytest.mark.parametrize("work", [0, 1 << 16])
def test_a_layer(narrow, rows, widths, work):
    """Values, batches and derivatives, in panels and in chunks; all numbers are small integers."""
    with config.using(parallel_work=work):
        check_layer(rows, widths)


def check_layer(rows, widths):
    rng = np.random.default_rng(rows)
    A, H, W = graph(rng, rows), integers(rng, rows, widths[0]), integers(rng, *widths)

    def layer(A, H, W):
        return snp.maximum(A @ (H @ W), 0)

    S = snp.asarray(A).asformat("csr")
    before = A @ H @ W
    want, passed = np.maximum(before, 0), (before >= 0).astype(float)
    np.testing.assert_array_equal(sj.jit(layer)(S, H, W).todense(), want)
    batch = np.stack([H, H + 1, 2 * H])
    many = sj.vmap(lambda H: layer(S, H, W))(batch)
    np.testing.assert_array_equal(many.todense(), np.stack([np.maximum(A @ h @ W, 0) for h in batch]))
    total, grads = sj.jit(sj.value_and_grad(lambda H, W: snp.sum(layer(S, H, W)), argnums=(0, 1)))(H, W)
    assert float(total) == want.sum()
    np.testing.assert_array_equal(grads[0].todense(), A.T @ passed @ W.T)
    np.testing.assert_array_equal(grads[1].todense(), H.T @ (A.T @ passed))


def large(rows=1 << 16, degree=8, inner=32, outer=32, density=None):
    """A sparse matrix, an array of `rows` rows (sparse with a `density`), and a small one."""
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    places = rng.integers(0, rows, (2, rows * degree))
    A = sj.array(sp.csr_array((np.ones(rows * degree), tuple(places)), shape=(rows, rows)))
    H = np.ones((rows, inner))
    if density is not None:
        H = snp.asarray(np.where(rng.random(H.shape) < density, H, 0)).asformat("csr")
    return A, H, np.ones((inner, outer))


def layer(A, H, W):
    return snp.maximum(A @ (H @ W), 0)


def test_as_many_columns_before_as_after_are_one_kernel():
    """Where the caches hold what rows lead to: reads out of them are not ahead in a loop that also multiplies by W."""
    text = plan(layer, *large(rows=1 << 11))
    assert plan(layer, *large()).count("kernel out") == 2
    assert text.count("kernel out") == 1, text
    assert "(ik,kl),lj->ij: cost" in text
    assert "as written ik,(kl,lj)->ij" in text


@pytest.mark.parametrize("case", [{"inner": 256, "outer": 8}, {"inner": 256, "outer": 16, "density": 0.01}])
def test_many_columns_are_multiplied_first(case):
    text = plan(layer, *large(**case, rows=1 << 13))
    assert "ik,(kl,lj)->ij: cost" not in text  # as written
    assert "library call" in text or text.count("kernel out") == 2, text


def test_neither_what_others_read_nor_pinned_results_are_associated_otherwise():
    A, H, W = large(rows=1 << 12)

    def shared(A, H, W):
        T = H @ W
        return A @ T, T

    def pinned(A, H, W):
        return A @ sj.einsum("ij,jk->ik", H, W, out_format="csr")

    assert "as written" not in plan(shared, A, H, W)
    assert "as written" not in plan(pinned, A, H, W)
    assert "as written" in plan(lambda A, H, W: A @ (H @ W), A, H, W)


def test_rings_that_do_not_distribute_stay_as_written():
    A, H, W = large(rows=1 << 10)

    def chain(A, H, W, ring):
        return sj.einsum("ik,kj->ij", A, sj.einsum("kl,lj->kj", H, W, semiring=ring), semiring=ring)

    assert "as written" in plan(lambda *x: chain(*x, "min_plus"), A, H, W)
    assert "as written" not in plan(lambda *x: chain(*x, "min_first"), A, H, W)
    assert "as written" not in plan(lambda *x: chain(*x, "plus_plus"), A, H, W)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
@pytest.mark.parametrize("place", ["A", "H", "W"])
def test_what_is_not_finite_spreads_as_written(narrow, place, bad):
    """Rows to which nothing contributes stay zero."""
    A, H, W = graph(np.random.default_rng(0), 300), np.ones((300, 8)), np.ones((8, 8))
    {"A": A, "H": H, "W": W}[place][3, 4] = bad
    S = snp.asarray(A).asformat("csr")
    assert "(ik,kl),lj->ij: cost" in plan(layer, S, H, W)
    with np.errstate(all="ignore"):
        want = np.asarray(layer(S, snp.asarray(H), snp.asarray(W)).todense())
    made = sj.jit(layer)
    np.testing.assert_allclose(made(S, H, W).todense(), want)
    assert not want[0].any()
    X, V = np.ones((300, 8)), np.ones((8, 8))  # the plan serves other numbers too
    B = S if place != "A" else 2 * snp.asarray(graph(np.random.default_rng(1), 300)).asformat("csr")
    np.testing.assert_allclose(made(B, X, V).todense(), layer(B, snp.asarray(X), snp.asarray(V)).todense())


def test_operands_that_steps_make_are_looked_at(narrow):
    """Two layers: what the second reads is infinite for one of the inputs."""
    A, H, W = graph(np.random.default_rng(0), 300), np.ones((300, 8)), np.ones((8, 8))
    S = snp.asarray(A).asformat("csr")

    def network(A, H, V, W):
        return layer(A, snp.exp(layer(A, H, V)), W)

    made = sj.jit(network)
    assert made.lower(S, H, W, W).as_text("plan").count("(ik,kl),lj->ij: cost") == 2
    for X in (H * 0, H * 1e6, np.where(np.arange(300)[:, None] == 3, 1e6, 1e-3 * H)):
        with np.errstate(all="ignore"):
            want = layer(S, snp.exp(layer(S, snp.asarray(X), W)), W)
        np.testing.assert_allclose(made(S, X, W, W).todense(), want.todense())


def test_loops_run_as_written(narrow):
    """Their bodies are bound to buffers, where nothing is looked at."""
    A, H, W = graph(np.random.default_rng(0), 100), np.ones((100, 8)), 0.01 * np.ones((8, 8))
    S = snp.asarray(A).asformat("csr")
    made = sj.jit(lambda H: sj.lax.fori_loop(0, 20, lambda _, H: snp.minimum(layer(S, H, W), 1.0), H))(H)
    want = H
    for _ in range(20):
        want = np.minimum(np.maximum(A @ want @ W, 0), 1)
    np.testing.assert_allclose(made.todense(), want)
