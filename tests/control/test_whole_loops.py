"""`while_loop` as one table of calls, also with sparse carries of varying sizes, against plain loops over NumPy arrays."""

import random

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import csgraph

import sparsejax as sj
import sparsejax.numpy as snp
from examples import graphs
from sparsejax import config, lax
from sparsejax.jit.runtime.whole import loop, operations
from tests.control import running
from tests.together import in_threads

N = 23


def matrix(rng, density):
    return np.where(rng.random((N, N)) < density, rng.integers(1, 9, (N, N)), 0).astype(float)


def random_body(rng: random.Random):
    """A function of a sparse vector (fill inf), a dense one, a counter and a matrix, over `xp`, and its result for NumPy."""
    kind, form, rotated, extra = (
        rng.randrange(3),
        rng.choice(("coo", "coo", "dense")),
        rng.random() < 0.3,
        rng.randrange(3),
    )

    def step(A, state):
        changed, distance, k, *rest = state
        reached = sj.einsum("i,ij->j", changed, A, semiring="min_plus", out_format=form)
        if kind == 0:
            shorter = snp.where(reached < distance, reached, np.inf)
            shorter = sj.prune(shorter) if form == "coo" else shorter
        elif kind == 1:
            shorter = snp.where(reached < distance + 3, reached, np.inf)
        else:
            shorter = (
                sj.prune(snp.where(reached < distance, reached * 0.5, np.inf), tol=1.0)
                if form == "coo"
                else reached * 0.5
            )
        rest = rest[::-1] if rotated else [r + i for i, r in enumerate(rest)]
        return (shorter, snp.minimum(distance, shorter), k + 1, *rest)

    def plain(A, state):
        changed, distance, k, *rest = state
        with np.errstate(invalid="ignore"):
            reached = np.min(changed[:, None] + np.where(A != 0, A, np.inf), axis=0, initial=np.inf)
        if kind == 0:
            shorter = np.where(reached < distance, reached, np.inf)
        elif kind == 1:
            shorter = np.where(reached < distance + 3, reached, np.inf)
        else:
            shorter = np.where(reached < distance, reached * 0.5, np.inf) if form == "coo" else reached * 0.5
        rest = rest[::-1] if rotated else [r + i for i, r in enumerate(rest)]
        return (shorter, np.minimum(distance, shorter), k + 1, *rest)

    return step, plain, form, extra


def check(seed, calls=3):
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    step, plain, form, extra = random_body(rng)
    rounds = rng.choice((0, 1, 2, 9, 30))

    @sj.jit
    def ours(A, first, distance, *rest):
        return lax.while_loop(lambda s: s[2] < rounds, lambda s: step(A, s), (first, distance, 0, *rest))

    for _ in range(calls):
        A = matrix(numbers, rng.choice((0.03, 0.1, 0.5)))
        first = np.where(numbers.random(N) < 0.2, numbers.integers(0, 4, N), np.inf)
        state = (first, first.copy(), 0, *(numbers.random(N) for _ in range(extra)))
        given = sj.array(first, format="coo", fill_value=np.inf) if form == "coo" else first
        found = ours(sj.array(A, format="csr"), given, *state[1:2], *state[3:])
        for _ in range(rounds):
            state = plain(A, state)
        for a, b in zip(found, state, strict=True):
            np.testing.assert_array_equal(np.asarray(a.todense()), b)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("seed", range(24))
def test_sparse_carries(seed):
    check(seed)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("seed", range(12))
def test_sparse_carries_in_any_way(seed):
    with config.using(choose=f"random:{seed}"):
        check(seed + 100, calls=2)


@pytest.mark.parametrize("way", ["table", "apart"])
def test_ways(way, tables):
    with config.using(choose=f"rounds={way}"):
        graph = sp.csr_array(matrix(np.random.default_rng(0), 0.08))
        for name, ours, reference in graphs.comparisons(graph)[:4]:
            for _ in range(3):
                assert graphs.difference(ours(), reference()) < 1e-9, name
    assert any(t is not None for t in tables) == (way == "table")


@pytest.mark.rotating(2)
@pytest.mark.parametrize("seed", range(8))
def test_graphs_in_any_way(seed):
    rng = np.random.default_rng(seed)
    graph = sp.csr_array(matrix(rng, rng.choice((0.02, 0.06, 0.3))))
    with config.using(choose=f"random:{seed}"):
        for name, ours, reference in graphs.comparisons(graph)[:4]:
            for _ in range(2):
                assert graphs.difference(ours(), reference()) < 1e-9, name


def path(n):
    return sp.csr_array(sp.diags_array(np.ones(n - 1), offsets=1, shape=(n, n), format="csr"))


def test_long_path(tables):
    graph = path(3000)
    A = sj.array(graph)
    for _ in range(2):
        np.testing.assert_array_equal(graphs.bfs(A, 0).todense(), np.arange(3000))
        np.testing.assert_array_equal(graphs.shortest_paths(A, 7).todense()[7:], np.arange(2993.0))
    assert len(tables) == 3 and None not in tables  # shortest paths are two loops


@pytest.mark.parametrize(
    ("fill", "dtype"), [(0, "f8"), (np.inf, "f4"), (np.nan, "f8"), (3, "i4"), (2, "u8"), (0, "u1"), (False, "?")]
)
@pytest.mark.parametrize("tol", [0, 1, 1.5])
@pytest.mark.parametrize("skip", [{"masks"}, set()], ids=["one", "lanes"])
def test_thinned(fill, dtype, tol, skip, tables):
    if dtype == "?" and tol:
        pytest.skip("bools differ by one")
    with config.using(skip=skip):
        check_thinned(fill, dtype, tol, tables)


def check_thinned(fill, dtype, tol, tables):

    @sj.jit
    def ours(x, k):
        def step(s):
            return sj.prune(s[0], tol=tol), s[1] + 1

        return lax.while_loop(lambda s: s[1] < 12, step, (x, k))[0]

    rng = np.random.default_rng(0)
    for shape in ((9,), (4, 5), (7, 33)):
        vals = rng.integers(0, 7, shape).astype(dtype)
        if dtype[0] == "f":
            vals[rng.random(shape) < 0.3] = rng.choice([np.inf, -np.inf, np.nan, 0.5])
        x = sj.array(vals, format="coo", fill_value=np.asarray(fill, dtype)[()])
        want = sj.prune(x, tol=tol)
        for _ in range(2):
            found = ours(x, 0)
            assert found.nnz == want.nnz
            np.testing.assert_array_equal(found.todense(), want.todense())
    assert None not in tables


@pytest.mark.parametrize("dtype", ["i8", "i4", "u2", "i1"])
def test_gathers_are_checked(dtype, tables):
    @sj.jit
    def ours(x, way, last):
        return lax.while_loop(lambda s: s[2] < last, lambda s: (s[0][s[1]], s[1] + 1 - 1, s[2] + 1), (x, way, 0))[0]

    x, way = np.arange(6.0), np.array([1, 2, 3, 4, 5, 0], dtype)
    np.testing.assert_array_equal(ours(x, way, 20).todense(), np.roll(x, -20))
    if dtype[0] == "i":
        np.testing.assert_array_equal(ours(x, way - way.dtype.type(6), 20).todense(), np.roll(x, -20))
    with pytest.raises(IndexError, match="out of bounds"):
        ours(x, way + way.dtype.type(1), 20)
    np.testing.assert_array_equal(ours(x, way, 20).todense(), np.roll(x, -20))


@pytest.mark.parametrize("dtype", ["i4", "i8"])
@pytest.mark.parametrize("seed", range(4))
def test_a_carry_is_overwritten_after_its_last_reader(seed, dtype, tables):
    """`way` is updated at the places of a sparse vector, before or after it has been read as places, by its own name or as checked."""
    rng = np.random.default_rng(seed)
    form = ("coo", "dense")[seed % 2]
    chosen, x, y = rng.random(N) < 0.3, rng.random(N), rng.random(N)
    way = rng.integers(0, N, N).astype(dtype)

    @sj.jit
    def ours(chosen, x, y, way, last):
        def step(s):
            x, y, way, k = s
            new = snp.where(chosen, k.astype(dtype) % 7, way)
            return (x[way] + 1, y[new] + y[way], new, k + 1) if seed < 2 else (x[way], y[way] + x, new, k + 1)

        return lax.while_loop(lambda s: s[3] < last, step, (x, y, way, 0))

    given = way.copy()
    for last in (20, 3, 12):
        found = ours(sj.array(chosen, format=form), x, y, way, last)
        a, b, w = x, y, way
        for k in range(last):
            new = np.where(chosen, k % 7, w)
            a, b, w = (a[w] + 1, b[new] + b[w], new) if seed < 2 else (a[w], b[w] + a, new)
        for ours_, want in zip(found, (a, b, w), strict=False):
            np.testing.assert_array_equal(np.asarray(ours_.todense()), want)
    np.testing.assert_array_equal(way, given)
    assert None not in tables


@pytest.mark.parametrize("n", [30, 3000])
def test_arrays_over_the_positions_of_an_operand(n, tables):
    """Their values are allocated before the kernel is called: as many as the operand has."""
    rng = np.random.default_rng(0)
    A = sp.random_array((n, n), density=10 / n, rng=rng, format="csr")

    @sj.jit
    def ours(A, x, y, last):
        def step(s):
            B = A.astype("i4")
            return B @ s[0] % 5, B @ s[1] % 3, s[2] + 1

        return lax.while_loop(lambda s: s[2] < last, step, (x, y, 0))[:2]

    A.data[:] = rng.integers(1, 5, A.nnz)
    x, y = rng.integers(0, 5, (2, n)).astype("i4")
    for last in (3, 12, 20):
        found, (a, b) = ours(sj.array(A), x, y, last), (x, y)
        for _ in range(last):
            a, b = A.astype("i4") @ a % 5, A.astype("i4") @ b % 3
        np.testing.assert_array_equal(found[0].todense(), a)
        np.testing.assert_array_equal(found[1].todense(), b)
    assert tables
    assert None not in tables


@pytest.mark.parametrize("n", [40, 200_000])
def test_memory_of_results_is_their_own(n):
    """Large results take over memory of the loop, and stay as they are in later calls."""

    @sj.jit
    def ours(x, y, last):
        return lax.while_loop(lambda s: s[2] < last, lambda s: (s[1], s[0] + s[1], s[2] + 1), (x, y, 0))[:2]

    x, y = np.ones(n), np.arange(float(n))
    kept, held = [], []
    for last in (30, 0, 1, 11, 12):
        kept.append(ours(x, y, last))
        a, b = x, y
        for _ in range(last):
            a, b = b, a + b
        held.append((a, b))
    for found, want in zip(kept, held, strict=True):
        for a, b in zip(found, want, strict=True):
            np.testing.assert_array_equal(a.todense(), b)


def test_results_are_kept():
    """What a loop returned is not overwritten by the next call."""
    A = sj.array(path(50))
    first = graphs.bfs(A, 0)
    kept = first.todense().copy()
    again = [graphs.bfs(A, k) for k in range(20)]
    np.testing.assert_array_equal(first.todense(), kept)
    for k, levels in enumerate(again):
        assert levels.todense()[-1] == 49 - k


def test_two_threads():
    A = sj.array(path(400))
    want = [graphs.bfs(A, k).todense() for k in range(8)]

    def run(k):
        for _ in range(5):
            found = graphs.bfs(A, k).todense()
        return found

    for a, b in zip(want, in_threads(8, run), strict=True):
        np.testing.assert_array_equal(a, b)


@running.timers
def test_interrupted():
    @sj.jit
    def endless(x):
        return lax.while_loop(lambda s: s[1] >= 0, lambda s: (s[0] * 1.0, s[1] + 0), (x, 1))[0]

    running.is_interrupted(endless)


@pytest.mark.parametrize("looked", [1, 3])
@pytest.mark.parametrize("algorithm", ["bfs", "shortest_paths"])
def test_loops_whose_sparse_carries_shrink_and_grow_get_another_plan(algorithm, looked, monkeypatch):
    """Fans of nodes behind paths, so that a frontier is wide, narrow and wide again; results are the same in every call."""
    monkeypatch.setattr(loop, "WIDE", 0)
    monkeypatch.setattr(operations, "LOOKED", looked)
    ended, run = [], loop.Loop.run

    def noted(*args):
        made = run(*args)
        ended.append(made[1])
        return made

    monkeypatch.setattr(loop.Loop, "run", noted)
    edges, last = [], 0
    for width, length in ((70, 12), (3, 15), (90, 9)):
        edges += [(last, last + k) for k in range(1, width + 1)] + [
            (last + k, last + width + 1) for k in range(1, width + 1)
        ]
        last += width + 1
        edges += [(last + k, last + k + 1) for k in range(length)]
        last += length
    i, j = np.array(edges).T
    graph = sp.csr_array(
        (np.random.default_rng(0).integers(1, 9, len(i)) / 8, (i, j)), shape=(last + looked, last + looked)
    )
    A = sj.array(graph)
    expected = graphs.levels_reference(graph, 0) if algorithm == "bfs" else csgraph.dijkstra(graph, indices=0)
    for _ in range(4):
        np.testing.assert_array_equal(getattr(graphs, algorithm)(A, 0).todense(), expected)
    assert False in ended and True in ended


def test_loops_over_other_sizes_are_tables_that_read_extents(tables):
    """What bodies compute with extents is a number of the table; once a loop was long, loops of other sizes are tables from their first round on."""

    def last(A, x):
        def step(state):
            y, _, k = state
            moved = (A @ y + snp.arange(A.shape[0])) / (2 * A.shape[0])
            return moved, snp.abs(moved - y).sum(), k + 1

        return lax.while_loop(lambda state: (state[1] > 1e-9) & (state[2] < 40), step, (x, snp.sum(x) + 1, 0))

    def expected(A, x):
        change, k = 1.0, 0
        while change > 1e-9 and k < 40:
            moved = (A @ x + np.arange(len(x))) / (2 * len(x))
            x, change, k = moved, np.abs(moved - x).sum(), k + 1
        return x, k

    rng, found = np.random.default_rng(1), sj.jit(last)
    for number, n in enumerate((31, 40, 52, 33, 47, 60)):
        A, x = (rng.random((n, n)) < 0.2) * rng.random((n, n)), rng.random(n)
        y, _, k = found(sj.array(A, format="csr"), sj.array(x))
        wanted, rounds = expected(A, x)
        assert int(k) == rounds
        np.testing.assert_allclose(y.todense(), wanted, rtol=1e-9)
        assert len(tables) <= number + 1
    assert tables and None not in tables
