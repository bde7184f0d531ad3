"""Loops with `cond` and `switch` in their bodies as one table of calls, against plain loops over NumPy arrays."""

import os
import random
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config, lax
from sparsejax.jit.runtime.system import allocator
from tests.together import in_threads

N = 23
WAYS = ("same", "swap", "sum", "set", "half", "gather", "product", "zero", "twice")
SPARSE = ("same", "same", "product", "pruned", "scaled", "bounded")


class Branch:
    """A random function of two dense vectors, integers, a sparse vector (fill inf) and a counter; all numbers are small integers, or inf."""

    def __init__(self, rng: random.Random, form: str) -> None:
        self.ways = [rng.choice(WAYS) for _ in range(2)]
        self.whole, self.spread = rng.choice(("same", "more", "set")), rng.choice(SPARSE)
        self.form, self.inner, self.swapped = form, None, rng.random() < 0.2
        if rng.random() < 0.25:
            self.inner = Branch(rng, form), Branch(rng, form), rng.randrange(2, 4)

    def _dense(self, xp, way, a, b, way_to, A):
        match way:
            case "same":
                return a
            case "swap":
                return b
            case "sum":
                return (a + b) % 7
            case "set":
                return a.at[3].set(5.0) if xp is snp else np.where(np.arange(N) == 3, 5.0, a)
            case "half":
                return xp.where(a > 3, a - 3, a)
            case "gather":
                return b[way_to]
            case "product":
                return (A @ a) % 5
            case "zero":
                return a * 0
            case "twice":
                return (a * 2) % 11

    def __call__(self, xp, A, state):
        if self.inner is not None:
            first, second, modulus = self.inner
            if xp is snp:
                state = lax.cond(
                    state[4] % modulus == 1, lambda s: first(xp, A, s), lambda s: second(xp, A, s), tuple(state)
                )
            else:
                state = (first if state[4] % modulus == 1 else second)(xp, A, state)
        x, y, way, near, k = state
        new = [self._dense(xp, w, a, b, way, A) for w, (a, b) in zip(self.ways, ((x, y), (y, x)), strict=True)]
        match self.whole:
            case "more":
                way = (way + 1) % N
            case "set":
                way = way.at[5].set(k.astype("i4") % N) if xp is snp else np.where(np.arange(N) == 5, k % N, way)
        match self.spread:
            case "product":
                near = self._reached(xp, near, A)
            case "pruned":
                near = xp.where(self._reached(xp, near, A) < 6, self._reached(xp, near, A), np.inf)
                near = sj.prune(near) if xp is snp and self.form == "coo" else near
            case "scaled":
                near = xp.where(near < 5, near + 1, np.inf)
            case "bounded":
                near = xp.minimum(near, 4.0) if self.form == "dense" else near * 1.0
        if self.form == "coo" and xp is np and self.spread == "bounded":
            near = state[3]
        new = new[::-1] if self.swapped else new
        return new[0], new[1], way.astype("i4"), near, k

    def _reached(self, xp, near, A):
        if xp is snp:
            return sj.einsum("i,ij->j", near, A, semiring="min_plus", out_format=self.form)
        return np.min(near[:, None] + np.where(A != 0, A, np.inf), axis=0, initial=np.inf)


class Program:
    """A loop of random branches, chosen by a counter or by how many entries a vector has."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.form = rng.choice(("coo", "coo", "dense"))
        self.branches = [Branch(rng, self.form) for _ in range(rng.choice((1, 2, 2, 3)))]
        self.by, self.before, self.after = rng.choice(("counter", "size")), rng.random() < 0.3, rng.random() < 0.5
        self.rounds, self.kind = rng.choice((0, 1, 9, 30)), rng.choice(("while", "while", "fori"))

    def step(self, xp, A, state):
        x, y, way, near, k = state
        if self.before:
            x, y = y, x + 0
        if self.by == "counter":
            index = k * 7 % 5 - 1
        else:
            index = xp.sum(near < np.inf) // 3
        index = index.astype("i4")
        state = (x, y, way, near, k)
        if xp is snp:
            functions = [lambda s, b=b: b(xp, A, s) for b in self.branches]
            x, y, way, near, k = lax.switch(index, functions, state)
        else:
            x, y, way, near, k = self.branches[min(max(int(index), 0), len(self.branches) - 1)](xp, A, state)
        if self.after:
            x = (x + y) % 9
        return x, y, way, near, k + 1

    def ours(self, A, state):
        if self.kind == "while":
            return lax.while_loop(lambda s: s[4] < self.rounds, lambda s: self.step(snp, A, s), state)
        return lax.fori_loop(0, self.rounds, lambda _, s: self.step(snp, A, s), state)

    def plain(self, A, state):
        with np.errstate(all="ignore"):
            for _ in range(self.rounds):
                state = self.step(np, A, state)
        return state


def check(seed: int, calls: int = 3) -> None:
    program, numbers = Program(seed), np.random.default_rng(seed)
    ours = sj.jit(program.ours)
    for _ in range(calls):
        dense = numbers.random((N, N)) < numbers.choice((0.03, 0.1, 0.3))
        A = np.where(dense, numbers.integers(1, 9, (N, N)), 0).astype(float)
        near = np.where(numbers.random(N) < 0.2, numbers.integers(0, 4, N), np.inf)
        x, y = numbers.integers(0, 7, (2, N)).astype(float)
        state = x, y, numbers.integers(0, N, N).astype("i4"), near, np.int64(0)
        held = [np.copy(s) for s in state]
        given = sj.array(near, format="coo", fill_value=np.inf) if program.form == "coo" else near
        found = ours(sj.array(A, format="csr"), (*state[:3], given, state[4]))
        for mine, want in zip(found, program.plain(A, state), strict=True):
            np.testing.assert_array_equal(np.asarray(mine.todense()), want)
        assert found[3].format == sj.array(near, format=program.form).format
        for mine, want in zip(state, held, strict=True):
            np.testing.assert_array_equal(mine, want)


@pytest.mark.rotating(5)
@pytest.mark.parametrize("seed", range(60))
def test_branches_in_loops(seed):
    check(seed)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("seed", range(16))
def test_branches_in_any_way(seed):
    with config.using(choose=f"random:{seed}"):
        check(seed + 1000, calls=2)


def test_branches_are_part_of_the_table(tables):
    for seed in range(6):
        check(seed)
    assert any(table is not None for table in tables)  # but for sparse values of branches inside of branches


def test_sparse_carries_change_places(tables):
    """Where they are still the first ones at the end, each is the one that has come to its place."""

    @sj.jit
    def ours(a, b, last):
        return lax.while_loop(lambda s: s[2] < last, lambda s: (s[1], s[0], s[2] + 1), (a, b, 0))[:2]

    a, b = np.array([1.0, 0, 0, 2]), np.array([0, 3.0, 0, 4.0])
    for last in (12, 13, 1, 0):
        found = ours(sj.array(a, format="coo"), sj.array(b, format="coo"), last)
        for mine, want in zip(found, (a, b) if last % 2 == 0 else (b, a), strict=True):
            np.testing.assert_array_equal(mine.todense(), want)
    assert None not in tables


@pytest.mark.parametrize("form", ["csr", "coo", "dcsr", "csc", "bsr:2x2", "bitmap"])
def test_matrices_are_given_back(form, tables):
    """A branch makes a matrix, another gives one back that is read afterwards, and one that shares its pattern."""
    rng = np.random.default_rng(0)
    A, B = (np.where(rng.random((8, 6)) < 0.3, rng.integers(1, 5, (8, 6)), 0).astype(float) for _ in range(2))

    def step(state, cond):
        X, Y, total, k = state
        X, Z = cond(k % 3 == 1, lambda X, Y: (Y, X * 2.0), lambda X, Y: (X, Y * 1.0), X, Y)
        return X, Z, total + Y.sum() + X.sum(), k + 1

    @sj.jit
    def ours(X, Y, last):
        return lax.while_loop(lambda s: s[3] < last, lambda s: step(s, lax.cond), (X, Y, 0.0, 0))[:3]

    def plainly(p, f, g, *xs):
        return (f if p else g)(*xs)

    for last in (12, 3, 11):
        state = A, B, 0.0, 0
        for _ in range(last):
            state = step(state, plainly)
        for _ in range(2):
            X, Y, total = ours(sj.array(A, format=form), sj.array(B, format=form), last)
            assert X.format == sj.array(A, format=form).format
            np.testing.assert_array_equal(X.todense(), state[0])
            np.testing.assert_array_equal(Y.todense(), state[1])
            assert float(total) == state[2]
    assert None not in tables


@pytest.mark.parametrize("last", [20, 11])
def test_the_condition_has_branches(last, tables):
    @sj.jit
    def ours(x, last):
        going = lambda s: lax.cond(s[1] % 2 == 0, lambda x, k: k < last, lambda x, k: snp.sum(x) < 500, *s)  # noqa: E731
        return lax.while_loop(going, lambda s: (s[0] + 1.0, s[1] + 1), (x, 0))

    for start in (0.0, 45.0):
        x, k = np.full(5, start), 0
        while k < last if k % 2 == 0 else x.sum() < 500:
            x, k = x + 1, k + 1
        found = ours(np.full(5, start), last)
        np.testing.assert_array_equal(found[0].todense(), x)
        assert int(found[1]) == k
    assert None not in tables


def test_failures_in_branches(tables):
    @sj.jit
    def ours(x, way, first, last):
        def step(s):
            x, k = s
            return lax.cond(k < first, lambda x: x + 1.0, lambda x: x[way], x), k + 1

        return lax.while_loop(lambda s: s[1] < last, step, (x, 0))[0]

    x, way = np.arange(4.0), np.array([1, 2, 3, 0])
    for _ in range(2):
        np.testing.assert_array_equal(ours(x, way, 12, 20).todense(), np.roll(x, -8) + 12)
        with pytest.raises(IndexError, match="out of bounds"):
            ours(x, way + 1, 12, 20)
        np.testing.assert_array_equal(ours(x, way + 1, 20, 20).todense(), x + 20)
    assert tables[0] is not None


@pytest.mark.rotating(1)
@pytest.mark.parametrize("seed", range(3))
def test_derivatives_through_branches(seed, tables):
    """Of a scan whose steps are branches, against the same steps written out."""
    rng = np.random.default_rng(seed)
    A = sj.array(sp.random_array((9, 9), density=0.3, rng=rng, format="csr"))
    x, xs = rng.random(9), rng.random((24, 9))

    def branches(k):
        return k % 3 == seed % 3, lambda c, x: snp.tanh(A @ c) + x, lambda c, x: c * x - 0.5 * c

    def ours(x, xs):
        def step(state, part):
            c, k = state
            p, f, g = branches(k)
            made = lax.cond(p, f, g, c, part)
            return (made, k + 1), snp.sum(made * part)

        (last, _), ys = lax.scan(step, (x, 0), xs)
        return snp.sum(last) + snp.sum(ys)

    def written(x, xs):
        total = 0.0
        for k in range(24):
            p, f, g = branches(k)
            x = (f if p else g)(x, xs[k])
            total = total + snp.sum(x * xs[k])
        return snp.sum(x) + total

    derived = sj.jit(sj.value_and_grad(ours, (0, 1)))
    expected, want = sj.value_and_grad(written, (0, 1))(x, xs)
    for _ in range(3):
        value, found = derived(x, xs)
        np.testing.assert_allclose(float(value), float(expected), rtol=1e-12, atol=1e-12)
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a.todense(), b.todense(), rtol=1e-10, atol=1e-12)
    assert any(t is not None for t in tables)


def test_two_threads():
    program = Program(2)
    ours = sj.jit(program.ours)
    rng = np.random.default_rng(0)
    A = np.where(rng.random((N, N)) < 0.1, 1.0, 0)

    def state(k):
        near = np.where(np.arange(N) == k, 0.0, np.inf)
        return np.full(N, float(k)), np.arange(N) % 5.0, np.arange(N, dtype="i4"), near, np.int64(0)

    def run(k):
        x, y, way, near, number = state(k)
        for _ in range(6):
            given = sj.array(near, format="coo", fill_value=np.inf) if program.form == "coo" else near
            found = ours(sj.array(A, format="csr"), (x, y, way, given, number))
        return [f.todense() for f in found]

    for k, found in enumerate(in_threads(6, run)):
        for mine, want in zip(found, program.plain(A, state(k)), strict=True):
            np.testing.assert_array_equal(mine, want)


@pytest.mark.parametrize("form", ["bitmap", "csr", "coo", "csc", "dense"])
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 1), (1, 2), (1,)])
def test_branches_inside_of_branches_give_operands_back(form, order):
    """The memory of a sparse carry is freed once, and read by nobody afterwards."""
    rng = np.random.default_rng(0)
    given = [rng.integers(0, 5, (5, 5)).astype(float) for _ in range(2)]

    def branches(xp, cond, kept):
        inner = lambda x, y: cond(xp.sum(x) > 20, lambda x, y: x, lambda x, y: kept(y * 2 % 5), x, y)  # noqa: E731
        every = (lambda x, y: (y, x), lambda x, y: (y, inner(x, y)), lambda x, y: (kept(x * 0), y))
        return [every[k] for k in order]

    @sj.jit
    def ours(x, y):
        every = branches(snp, lax.cond, lambda x: x.asformat(form))
        return lax.fori_loop(0, 31, lambda k, s: lax.switch(k % len(order), every, *s), (x, y))

    plain = branches(np, lambda p, f, g, *s: f(*s) if p else g(*s), lambda x: x)
    for _ in range(3):
        x, y = given
        for k in range(31):
            x, y = plain[k % len(order)](x, y)
        for found, want in zip(ours(*(sj.array(g, format=form) for g in given)), (x, y), strict=True):
            np.testing.assert_array_equal(found.todense(), want)


def resident():
    """Bytes of this process in memory, after free blocks were given back."""
    allocator.drop()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


KEPT = {
    "made before": lambda z, w, x, at, k: (z * 2.0, w, x[at]),
    "made in a branch before": lambda z, w, x, at, k: (
        lax.cond(k % 2 == 0, lambda z: z * 2.0, lambda z: z, z),
        w,
        x[at],
    ),
    "made in the branch": lambda z, w, x, at, k: lax.cond(
        k % 2 == 0, lambda z, w, x: (z * 2.0, w, x + 1), lambda z, w, x: (sj.prune(z * 3.0), w, x[at]), z, w, x
    ),
    "given back by a branch": lambda z, w, x, at, k: lax.cond(
        k % 2 == 0, lambda z, w, x: (z, w, x + z.sum() * 0), lambda z, w, x: (z * 3.0, w, x[at]), z, w, x
    ),
    "changes places": lambda z, w, x, at, k: (
        *lax.cond(k % 2 == 0, lambda z, w: (w, z), lambda z, w: (z, z * 2.0), z, w),
        x[at],
    ),
    "shares positions": lambda z, w, x, at, k: (z + 1.0 * (z != 0), z * 2.0, x[at]),
}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("body", list(KEPT))
def test_failures_keep_no_memory(body, tables):
    """A step that fails after sparse values were made, or copied, in the same round: what they took is given back, once."""

    @sj.jit
    def ours(z, x, way, first, last):
        def step(s):
            z, w, x, k = s
            return *KEPT[body](z, w, x, way + k // first, k), k + 1

        return lax.while_loop(lambda s: s[3] < last, step, (z, z * 1.0, x, 0))[:3]

    n, places = 100_000, np.arange(0, 100_000, 2)
    z = sj.array((np.ones(len(places)), (places,)), shape=(n,), format="coo")
    x, way = np.arange(4.0), np.arange(4)
    expected = [r.todense() for r in ours(z, x, way, 100, 21)]

    def fail():
        with pytest.raises(IndexError, match="out of bounds"):
            ours(z, x, way, 21, 40)

    for _ in range(3):
        fail()
    before = resident()
    for _ in range(60):
        fail()
    assert resident() - before < 8 << 20  # a copy of z in each would be 34 MB
    for found, wanted in zip(ours(z, x, way, 100, 21), expected, strict=True):
        np.testing.assert_array_equal(found.todense(), wanted)
    np.testing.assert_array_equal(z.todense()[places], 1.0)
    assert tables[0] is not None
