"""Workspaces of kernels in loops, kept from round to round, against NumPy: every round finds them empty, whatever the last one left."""

import resource
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config, lax
from sparsejax.jit.runtime.whole.driver import HERE, SPARE

SEMIRINGS = {
    "plus_times": (np.add, np.multiply, 0.0),
    "min_plus": (np.minimum, np.add, np.inf),
    "max_plus": (np.maximum, np.add, -np.inf),
}


def product(x, A, semiring):
    plus, times, zero = SEMIRINGS[semiring]
    made = np.full(A.shape[1], zero)
    rows = np.nonzero(x != zero)[0]
    coo = A[rows].tocoo()
    plus.at(made, coo.col, times(x[rows][coo.row], coo.data))
    return made


@pytest.mark.parametrize("policy", ["bitmap", "marks", "hash", "coordinate"])
@pytest.mark.parametrize("semiring", SEMIRINGS)
@pytest.mark.parametrize("n, degree", [(70, 3), (20_000, 2)])
def test_rounds_of_many_widths(n, degree, semiring, policy, tables):
    """A frontier that moves, from a few entries to all and back: masks keep what each round may reach."""
    rng = np.random.default_rng(n)
    A = sp.csr_array(sp.random_array((n, n), density=degree / n, rng=rng, format="csr"))
    A.data = rng.integers(1, 4, A.nnz).astype(float)
    zero = SEMIRINGS[semiring][2]
    bounds = np.array([2, n, n, 40, n // 3, 5, n, n, n // 2, 90, n, 1, n, n], float)
    first = np.full(n, zero)
    first[rng.integers(0, n, 3)] = 1.0

    @sj.jit
    def ours(A, x, total, bounds):
        def step(state):
            x, total, k = state
            reached = sj.einsum("i,ij->j", x, A, semiring=semiring, out_format="coo")
            kept = sj.prune(snp.where(snp.arange(n) < bounds[k], reached, zero))
            kept = sj.prune(snp.where(kept < 1e6, kept, zero) if zero < 1e6 else kept)
            return kept, snp.where(kept != zero, kept, total), k + 1

        return lax.while_loop(lambda s: s[2] < len(bounds), step, (x, total, 0))[:2]

    x, total = first, np.zeros(n)
    for bound in bounds:
        x = product(x, A, semiring)
        x = np.where((np.arange(n) < bound) & ((x < 1e6) | (zero > 1e6)), x, zero)
        total = np.where(x != zero, x, total)
    given, start = sj.array(A), sj.array(first, format="coo", fill_value=zero)
    with config.using(workspace=policy):
        for _ in range(3):
            found = ours(given, start, np.zeros(n), bounds)
            np.testing.assert_array_equal(found[0].todense(), x)
            np.testing.assert_array_equal(found[1].todense(), total)
    kept = [op for t in tables if t is not None for op in t._ops.ops.tolist() if op[0] == HERE]
    assert kept


def test_two_workspaces_in_one_round():
    """Each kernel has its own."""
    rng = np.random.default_rng(0)
    A = sp.csr_array(sp.random_array((300, 300), density=0.01, rng=rng, format="csr"))
    B = sp.csr_array(sp.random_array((300, 300), density=0.01, rng=rng, format="csr"))

    @sj.jit
    def ours(A, B, x, y):
        def step(s):
            x, y, k = s
            ahead = sj.einsum("i,ij->j", y, A, out_format="coo")
            return ahead, sj.einsum("i,ij->j", x, B, out_format="coo"), k + 1

        return lax.while_loop(lambda s: s[2] < 25, step, (x, y, 0))[:2]

    x, y = np.zeros(300), np.zeros(300)
    x[:9], y[5:20] = 1.0, 2.0
    found = [ours(sj.array(A), sj.array(B), sj.array(x, format="coo"), sj.array(y, format="coo")) for _ in range(3)]
    for _ in range(25):
        x, y = y @ A, x @ B
    for a, b in found:
        np.testing.assert_allclose(a.todense(), x, rtol=1e-12)
        np.testing.assert_allclose(b.todense(), y, rtol=1e-12)


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB there")
def test_memory_is_given_back():
    """After every call: 200 calls of workspaces of 4 MB."""
    n = 300_000
    A = sj.array(sp.csr_array((np.ones(9), (np.arange(9), np.arange(1, 10))), shape=(n, n)))

    @sj.jit
    def ours(A, x):
        def step(s):
            return sj.einsum("i,ij->j", s[0], A, semiring="min_plus", out_format="coo"), s[1] + 1

        return lax.while_loop(lambda s: s[1] < 20, step, (x, 0))[0]

    first = sj.array(np.where(np.arange(n) == 0, 0.0, np.inf), format="coo", fill_value=np.inf)
    with config.using(workspace="bitmap", free_memory=0):
        for k in range(203):
            if k == 3:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            assert ours(A, first).nnz == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def sources(rng, n, form, zero):
    first = np.full(n, zero)
    first[rng.integers(0, n, 3)] = 1.0
    return first, sj.array(first, format=form, fill_value=zero)


@pytest.mark.parametrize("way", ["straight", "crossed", "both", "branch", "kept"])
@pytest.mark.parametrize("n, degree", [(40, 1.3), (3_000, 1.4), (3_000, 4)])
def test_frontiers_take_over_memory(n, degree, way, tables):
    """Results are written where the carry of the round before was: frontiers that grow and shrink, change places, are needed twice, come from branches,
    and results of earlier calls keep their values."""
    rng = np.random.default_rng(int(n * degree))
    A = sp.csr_array(sp.random_array((n, n), density=degree / n, rng=rng, format="csr"))
    A.data = rng.integers(1, 4, A.nnz).astype(float)

    def step(x, y, k, multiply, cond):
        if way == "crossed":
            return multiply(y), multiply(x)
        if way == "both":
            made = multiply(x)
            return made, made
        if way == "branch":
            return cond(k % 3 == 1, x), multiply(y)
        return multiply(x), (x if way == "kept" else multiply(y))

    @sj.jit
    def ours(A, x, y):
        def multiply(x):
            return sj.einsum("i,ij->j", x, A, semiring="min_plus", out_format="coo")

        def body(s):
            x, y, k = s
            return *step(x, y, k, multiply, lambda c, x: lax.cond(c, lambda x: x, multiply, x)), k + 1

        return lax.while_loop(lambda s: s[2] < 17, body, (x, y, 0))[:2]

    def multiply(x):
        return product(x, A, "min_plus")

    given, kept = sj.array(A), []
    for _ in range(5):
        (x, xs), (y, ys) = sources(rng, n, "coo", np.inf), sources(rng, n, "coo", np.inf)
        found = ours(given, xs, ys)
        for k in range(17):
            x, y = step(x, y, k, multiply, lambda c, x: x if c else multiply(x))
        kept.append((found, (x, y)))
        np.testing.assert_array_equal(xs.todense(), sj.array(xs.todense()).todense())
    for found, expected in kept:
        for one, other in zip(found, expected, strict=True):
            assert one.nnz == np.isfinite(other).sum()
            np.testing.assert_array_equal(one.todense(), other)
    taken = [op for t in tables if t is not None for op in t._ops.ops.tolist() if op[0] == SPARE]
    assert taken or way not in ("straight", "crossed") or not tables


def test_memory_of_frontiers_is_given_back():
    """A frontier of 100,000 entries that shrinks to none, in 300 calls."""
    n = 100_000
    A = sj.array(sp.csr_array((np.ones(n // 2), (np.arange(n // 2), np.arange(n // 2) + 1)), shape=(n, n)))

    @sj.jit
    def ours(A, x):
        def step(s):
            return sj.einsum("i,ij->j", s[0], A, semiring="min_plus", out_format="coo"), s[1] + 1

        return lax.while_loop(lambda s: s[1] < 12, step, (x, 0))[0]

    first = sj.array(np.ones(n), format="coo", fill_value=np.inf)
    with config.using(free_memory=0):
        for k in range(303):
            if k == 3:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            ours(A, first)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
