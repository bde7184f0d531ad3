"""`scan` and `fori_loop` as one table of calls, against plain loops over NumPy arrays, and bit by bit against loops round by round."""

import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config, lax
from sparsejax.lax import rounds
from tests.control import running
from tests.together import in_threads

N = 11
DTYPES = ("f8", "f4", "i8", "i4", "u1", "c16")
LENGTHS = (0, 1, 2, 3, 8, 9, 17, 40)


@pytest.fixture(autouse=True)
def short_loops(tables, monkeypatch):
    """Also short loops may have a table."""
    monkeypatch.setattr(rounds, "FEW", 1)


class Program:
    """A random body over carries `c` of some dtypes, a constant, slices and maybe a sparse vector that goes around; small integers, so that sums
    are exact."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.dtypes = [rng.choice(DTYPES) for _ in range(rng.randint(1, 5))]
        self.slices = [rng.choice(self.dtypes) for _ in range(rng.randint(0, 3))]
        self.spread, self.reverse = rng.random() < 0.4, rng.random() < 0.5
        self.next = [self._source(rng, dtype) for dtype in self.dtypes]
        self.ys = [self._source(rng, rng.choice(self.dtypes)) for _ in range(rng.randint(0, 3))]
        self.rng = rng

    def _source(self, rng: random.Random, dtype: str) -> tuple:
        """What makes a value of a dtype: a carry or slice as it is, a constant, or something computed of two of them."""
        values = [("c", k) for k, d in enumerate(self.dtypes) if d == dtype]
        values += [("x", k) for k, d in enumerate(self.slices) if d == dtype]
        first, second = rng.choice(values), rng.choice(values)
        way = rng.choice(("same", "same", "sum", "sum", "product", "whole", "constant"))
        return way, first, second, dtype

    def _made(self, xp, source, values, A, k):
        way, first, second, dtype = source
        a, b = values[first], values[second]
        match way:
            case "same":
                return a
            case "sum":
                return (a + b) % 5 if dtype[0] != "c" else xp.conj(a) + 1j - b * 0
            case "product":
                return (A.astype(dtype) @ a) % 7 if dtype[0] != "c" else a * 1j
            case "whole":
                return xp.where(b == xp.sum(a), a, b)
            case "constant":
                return k.astype(dtype)

    def __call__(self, xp, A, k, state, parts):
        """The next carry, and ys; `state`: dense carries, then a sparse one."""
        values = {("c", n): c for n, c in enumerate(state)} | {("x", n): x for n, x in enumerate(parts)}
        made = [self._made(xp, s, values, A, k) for s in (*self.next, *self.ys)]
        carry, ys = made[: len(self.next)], made[len(self.next) :]
        if self.spread:
            reached = sj.einsum("i,ij->j", state[-1], A, out_format="coo") if xp is snp else state[-1] @ A
            reached = xp.minimum(reached, 3.0)
            carry.append(sj.prune(reached) if xp is snp else reached)
            ys.append(xp.sum(state[-1]))
        return carry, ys


def numbers(rng, dtype, *shape):
    return rng.integers(0, 4, shape).astype(dtype)


def check(seed: int, calls: int = 3) -> None:
    program, rng = Program(seed), np.random.default_rng(seed)
    length = program.rng.choice(LENGTHS)

    def run(A, k, state, xs):
        return lax.scan(lambda s, x: program(snp, A, k, s, x), state, xs, length=length, reverse=program.reverse)

    ours = sj.jit(run)

    for _ in range(calls):
        A = np.where(rng.random((N, N)) < 0.2, numbers(rng, "f8", N, N), 0)
        k = numbers(rng, "f8", N)
        state = [numbers(rng, d, N) for d in program.dtypes]
        xs = [numbers(rng, d, length, N) for d in program.slices]
        first = np.where(rng.random(N) < 0.3, 1.0, 0.0)
        given = [*state, sj.array(first, format="coo")] if program.spread else list(state)
        matrix = sj.array(A, format="csr")
        found = sj.tree_util.tree_leaves(ours(matrix, k, given, xs))
        with config.using(choose="rounds=apart"):
            other = sj.tree_util.tree_leaves(sj.jit(run)(matrix, k, given, xs))
        held = [a.copy() for a in (*state, *xs)]
        carry, stacks = [*state, first] if program.spread else list(state), []
        with np.errstate(all="ignore"):
            for n in range(length)[:: -1 if program.reverse else 1]:
                carry, ys = program(np, A, k, carry, [x[n] for x in xs])
                stacks.append(ys)
        stacks = stacks[:: -1 if program.reverse else 1]
        want = [*carry, *(np.stack(c) for c in zip(*stacks, strict=True))]
        for mine, theirs in zip(found, other, strict=True):
            assert mine.aval == theirs.aval
            assert mine.todense().tobytes() == theirs.todense().tobytes()
        for mine, plain in zip(found, want, strict=length > 0):
            np.testing.assert_array_equal(mine.todense(), plain)
        for a, b in zip((*state, *xs), held, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.rotating(6)
@pytest.mark.parametrize("seed", range(60))
def test_random_scans(seed):
    check(seed)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("seed", range(20))
def test_random_scans_in_any_way(seed):
    with config.using(choose=f"random:{seed}"):
        check(seed + 1000, calls=2)


def test_most_random_scans_are_tables(tables):
    for seed in range(20):
        check(seed + 2000, calls=2)
    assert len(tables) > 10
    assert sum(t is not None for t in tables) > 0.8 * len(tables)


def test_carries_that_move_on(tables):
    """Slices, constants and carries are passed from carry to carry, each to several."""
    rng = np.random.default_rng(0)
    state, k = [rng.random(N) for _ in range(5)], rng.random(N)

    def step(s, x):
        a, b, c, d, e = s
        return (x, a, b, k, d), (a, x, e, b + c)

    for length in (2, 2, 9, 16, 100):
        xs = rng.random((length, N))
        carry, ys = sj.jit(lambda s, xs: lax.scan(step, s, xs))(tuple(state), xs)
        now, stacks = tuple(state), []
        for x in xs:
            now, y = step(now, x)
            stacks.append(y)
        for mine, want in zip((*carry, *ys), (*now, *map(np.stack, zip(*stacks, strict=True))), strict=True):
            np.testing.assert_array_equal(mine.todense(), want)
    assert tables
    assert None not in tables


def test_later_calls_begin_with_the_table(tables):
    @sj.jit
    def ours(A, x, xs):
        return lax.scan(lambda x, s: (A @ x % 3 + s, x), x, xs)

    rng = np.random.default_rng(0)
    A = np.where(rng.random((N, N)) < 0.3, 1.0, 0.0)
    for length in (20, 3, 1, 50, 2):  # another length is another program, with the same body
        x, xs = numbers(rng, "f8", N), numbers(rng, "f8", length, N)
        for _ in range(2):
            last, stack = ours(sj.array(A, format="csr"), x, xs)
        now, want = x, []
        for s in xs:
            want.append(now)
            now = A @ now % 3 + s
        np.testing.assert_array_equal(last.todense(), now)
        np.testing.assert_array_equal(stack.todense(), want)
    assert tables
    assert None not in tables


@pytest.mark.parametrize("size", [40, 200_000])
def test_results_are_kept(size):
    """What a loop returned is not overwritten by the next call, also where it is large."""

    @sj.jit
    def ours(x, y):
        return lax.fori_loop(0, 12, lambda i, s: (s[1], s[0] + s[1] + i), (x, y))

    held = []
    for k in range(5):
        x = np.full(size, float(k))
        a, b = x, x + 1
        for i in range(12):
            a, b = b, a + b + i
        held.append((ours(x, x + 1), (a, b)))
    for found, want in held:
        for a, b in zip(found, want, strict=True):
            np.testing.assert_array_equal(a.todense(), b)


def test_indices_out_of_bounds(tables):
    @sj.jit
    def ours(x, ways):
        return lax.scan(lambda x, way: (x[way], snp.sum(x)), x, ways)

    x, ways = np.arange(6.0), np.array([[1, 2, 3, 4, 5, 0]] * 30)
    for _ in range(2):
        np.testing.assert_array_equal(ours(x, ways)[0].todense(), x)
    ways[25, 3] = 6
    for _ in range(2):
        with pytest.raises(IndexError, match="out of bounds"):
            ours(x, ways)
    ways[25, 3] = -2
    np.testing.assert_array_equal(ours(x, ways)[1].todense(), np.full(30, 15.0))
    assert len(tables) == 1
    assert None not in tables


def test_derivatives_and_batches(tables):
    rng = np.random.default_rng(0)
    A, xs = np.where(rng.random((N, N)) < 0.3, rng.random((N, N)), 0), rng.random((24, N))

    def loss(x, A, xs):
        last, sums = lax.scan(lambda x, s: ((y := snp.sin(A @ x + s)), snp.sum(y)), x, xs)
        return snp.sum(last) + snp.sum(sums * sums)

    def plain(x):
        total = 0
        for s in xs:
            x = np.sin(A @ x + s)
            total += x.sum() ** 2
        return x.sum() + total

    x, B = rng.random((3, N)), sj.array(A, format="csr")
    for _ in range(2):
        slopes = sj.jit(sj.vmap(sj.grad(loss), (0, None, None)))(x, B, xs).todense()
        single = sj.jit(sj.grad(loss))(x[0], B, xs).todense()
    for j in range(N):
        step = np.eye(N)[j] * 1e-6
        want = [(plain(row + step) - plain(row - step)) / 2e-6 for row in x]
        np.testing.assert_allclose(slopes[:, j], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(single, slopes[0], rtol=1e-12)
    assert any(t is not None for t in tables)


def test_a_table_in_rounds_of_another_loop():
    rng = np.random.default_rng(0)
    A = np.where(rng.random((N, N)) < 0.3, 1.0, 0.0)

    @sj.jit
    def ours(A, x):
        inner = lambda x, n: lax.fori_loop(0, 10, lambda i, x: (A @ x + n) % 5, x)  # noqa: E731
        return lax.scan(lambda x, n: (inner(x, n), x), x, np.arange(20.0))

    for _ in range(2):
        last, stack = ours(sj.array(A, format="csr"), np.ones(N))
    x, want = np.ones(N), []
    for n in range(20):
        want.append(x)
        for _ in range(10):
            x = (A @ x + n) % 5
    np.testing.assert_array_equal(last.todense(), x)
    np.testing.assert_array_equal(stack.todense(), want)


def test_two_threads():
    @sj.jit
    def ours(x, xs):
        return lax.scan(lambda x, s: (x * 0.5 + s, x), x, xs)

    rng = np.random.default_rng(0)
    given = [(rng.random(N), rng.random((200, N))) for _ in range(6)]
    want = [[a.todense() for a in ours(*g)] for g in given]

    def run(k):
        for _ in range(10):
            found = [a.todense() for a in ours(*given[k])]
        return found

    for a, b in zip(want, in_threads(6, run), strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])


@running.timers
def test_interrupted(tables):
    @sj.jit
    def long(x):
        return lax.fori_loop(0, 2**40, lambda i, x: x * 1.0, x)

    running.is_interrupted(long)
    assert len(tables) == 1
    assert None not in tables
