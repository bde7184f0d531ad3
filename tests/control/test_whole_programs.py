"""Programs with loops as one table, with what is before and behind the loops, against the same programs step by step."""

import random
from pathlib import Path

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config, lax
from sparsejax.jit.runtime.whole import program
from tests.control import running
from tests.control.test_whole_branches import resident
from tests.control.test_whole_loops import matrix
from tests.together import in_threads

N = 23
MADE = 3
"""A seed whose program is a table."""


@pytest.fixture
def programs(monkeypatch):
    """The tables that are made of programs: None where there was none."""
    made, make = [], program._program

    def listened(*args):
        made.append(make(*args))
        return made[-1]

    monkeypatch.setattr(program, "_program", listened)
    return made


def random_program(seed):
    """A jitted function of a csr matrix, a sparse vector, a dense one and a number: loops, with steps around them."""
    rng = random.Random(seed)
    kinds = [rng.choice(("reach", "sums", "kept", "none", "both")) for _ in range(rng.choice((1, 1, 2)))]
    before, after, dtype = rng.randrange(5), rng.randrange(6), rng.choice(("float64", "float32", "int32"))
    rounds = rng.choice((0, 1, 3, 20, 150))

    @sj.jit
    def run(A, f, x, k):
        start = {
            0: lambda: (x > 1.0).asformat("coo"),
            1: lambda: f,
            2: lambda: f * 2,
            3: lambda: (snp.arange(N, dtype=dtype) - snp.asarray(3, dtype)).asformat("coo"),
            4: lambda: (x * k).asformat("csf" if seed % 2 else "coo"),
        }[before]()
        d, kept, first = x + 1, x * 3, start
        for kind in kinds:
            form = start.format

            def step(s, kind=kind, form=form):
                start, d, n = s
                if kind == "none":
                    return start, d, n + 1
                if kind == "kept":
                    return start, snp.minimum(d * 0.5, kept), n + 1
                if kind == "sums":
                    return start, A @ d * 0.1 + kept, n + 1
                reached = sj.einsum("i,ij->j", start, A, semiring="plus_times", out_format="coo") * 0.01
                reached = reached.astype(start.dtype)
                if kind == "reach":
                    return reached.asformat(form), d + reached, n + 1
                return (start * 0.5).astype(start.dtype).asformat(form), d + reached, n + 1

            start, d, _ = lax.while_loop(lambda s: s[2] < rounds, step, (start, d, 0))
        return {
            0: lambda: d,
            1: lambda: (start, d),
            2: lambda: snp.sum(d),
            3: lambda: (start * 2, first, d - kept),
            4: lambda: (d, d, x, start),
            5: lambda: (A @ d, first + start, snp.any(d > 3)),
        }[after]()

    return run


def leaves(x):
    return [np.asarray(v.todense() if hasattr(v, "todense") else v) for v in (x if isinstance(x, tuple) else (x,))]


def check(seed, calls=6):
    rng = np.random.default_rng(seed)
    run, plain = random_program(seed), random_program(seed)
    held = []
    for k in range(calls):
        A = matrix(rng, (0.05, 0.3)[seed % 2])
        f = np.where(rng.random(N) < 0.2, rng.integers(1, 5, N), 0).astype(float)
        given = sj.array(A, format="csr"), sj.array(f, format="coo"), rng.random(N) * 2, float(k % 3)
        with config.using(choose="rounds=apart"):
            wanted = plain(*given)
        found = run(*given)
        held.append((found, wanted))
    for found, wanted in held:  # results are not overwritten by later calls
        for a, b in zip(leaves(found), leaves(wanted), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert a.tobytes() == b.tobytes(), seed
        for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True):
            assert a.format == b.format
            assert a.nse == b.nse if hasattr(a, "nse") else True


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_random_programs(start):
    for seed in range(start, start + 10):
        check(seed)


def test_random_programs_are_tables(programs):
    for seed in range(30):
        check(seed)
    assert sum(p is not None for p in programs) >= 10


@pytest.mark.parametrize("n", [40, 200_000])
def test_memory_of_results_is_their_own(n):
    """Large results take over memory of the loop, and stay as they are in later calls."""

    @sj.jit
    def ours(x, y, last):
        a, b, _ = lax.while_loop(lambda s: s[2] < last, lambda s: (s[1], s[0] + s[1], s[2] + 1), (x * 2, y, 0))
        return a, b, a + b

    x, y = np.ones(n), np.arange(float(n))
    kept, held = [], []
    for last in (30, 3, 4, 0, 1, 11, 12):
        kept.append(ours(x, y, last))
        a, b = x * 2, y
        for _ in range(last):
            a, b = b, a + b
        held.append((a, b, a + b))
    for found, want in zip(kept, held, strict=True):
        for a, b in zip(found, want, strict=True):
            np.testing.assert_array_equal(a.todense(), b)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_memory_is_given_back(programs):
    """What the steps took is given back after a call, and after one that failed before, in and behind the loop."""

    @sj.jit
    def ours(z, x, before, inside, behind, last):
        first = (z * snp.sum(x[before]) * 0.25).asformat("coo")
        second = (z + 1.0).asformat("coo")
        z, x, _ = lax.while_loop(lambda s: s[2] < last, lambda s: (s[0] * 2.0, s[1][inside], s[2] + 1), (first, x, 0))
        return z, x[behind], second

    n = 100_000
    z = np.arange(n) % 2 * 1.0
    x, way, wrong = np.ones(4), np.arange(4), np.arange(4) + 1

    def run():
        found, _, second = ours(z, x, way, way, way, 5)
        assert found.todense()[:2].tolist() == [0.0, 32.0]
        assert second.nnz == n

    def fail():
        for k in range(3):
            with pytest.raises(IndexError, match="out of bounds"):
                ours(z, x, *(wrong if k == place else way for place in range(3)), 5)

    for _ in range(5):
        run()
    fail()
    assert programs[0] is not None
    before = resident()
    for _ in range(40):
        run()
        fail()
    assert resident() - before < 8 << 20  # a copy of z in each would be 96 MB


def test_two_threads(programs):
    run = random_program(MADE)
    rng = np.random.default_rng(MADE)
    A, f = sj.array(matrix(rng, 0.3), format="csr"), sj.array(np.arange(N) % 3 * 1.0, format="coo")
    xs = [rng.random(N) for _ in range(8)]
    wanted = [leaves(run(A, f, x, 2.0)) for x in xs]

    def again(k):
        for _ in range(20):
            found = run(A, f, xs[k], 2.0)
        return leaves(found)

    for found, want in zip(in_threads(8, again), wanted, strict=True):
        for a, b in zip(found, want, strict=True):
            assert a.tobytes() == b.tobytes()
    assert programs[0] is not None


@running.timers
def test_interrupted(programs):
    @sj.jit
    def long(x, last):
        return lax.while_loop(lambda s: s[1] != last, lambda s: (s[0] * 1.0, s[1] + 1), (x + 1, 1))[0] * 2

    for _ in range(5):
        long(np.arange(4.0), 9)
    assert programs[0] is not None
    running.is_interrupted(lambda x: long(x, 0))


def test_other_facts_make_another_table(programs):
    """Arrays of other sizes run as they should, each with its own table, and settings count."""
    run = random_program(MADE)
    rng = np.random.default_rng(MADE)
    matrices = [sj.array(matrix(rng, density), format="csr") for density in (0.03, 0.9)]
    for k in range(8):
        A, f, x = matrices[k % 2], sj.array(np.arange(N) % 3 * 1.0, format="coo"), rng.random(N)
        with config.using(choose="rounds=apart"):
            wanted = leaves(random_program(MADE)(A, f, x, 2.0))
        for found, want in zip(leaves(run(A, f, x, 2.0)), wanted, strict=True):
            assert found.tobytes() == want.tobytes()
    assert len([p for p in programs if p is not None]) == 2


def test_facts_that_do_not_come_back_are_forgotten(monkeypatch):
    A, seen, made = sj.array(np.eye(3), format="csr")._storage, iter(range(10**6)), []
    asked = program.Programs()
    monkeypatch.setattr(program.statistics, "positions", lambda s: next(seen))
    for _ in range(5 * program.ASKED):
        assert asked.run(None, [A]) is None
    assert program.ASKED // 2 < len(asked._asked) <= program.ASKED

    class Plan:
        results = (0,)

        def registers_of(self, storages):
            return storages

    monkeypatch.setattr(program.statistics, "positions", lambda s: -1.0)
    monkeypatch.setattr(program, "_program", lambda plan, registers: made.append(registers))
    calls = [asked.run(Plan(), [A]) for _ in range(program.CALLS)]
    assert calls == [None] * (program.CALLS - 1) + [[A]] and made == [[A]]


def test_numbers_that_change_and_constants(tables):
    """Numbers of the program are put in their places once; one that every call passes is always the call's."""

    @sj.jit
    def ours(x, start, last, step):
        return lax.while_loop(lambda s: s[1] < last, lambda s: (s[0] * 2.0 + 1.0 - step, s[1] + 1), (x + start, 0))[0]

    for k in range(9):
        x = np.arange(5.0) + k
        want = x + k
        for _ in range(3 + k % 2):
            want = want * 2 + 1 - (k // 3)
        np.testing.assert_array_equal(ours(x, float(k), 3 + k % 2, float(k // 3)).todense(), want)
    shared = sj.array(np.float64(2.0))  # the same array in two places, then in one
    for again in (shared, shared, shared, shared, sj.array(np.float64(5.0)), shared):
        x, want = np.arange(4.0), np.arange(4.0) + 2
        for _ in range(3):
            want = want * 2 + 1 - float(again.todense())
        np.testing.assert_array_equal(ours(x, shared, 3, again).todense(), want)
