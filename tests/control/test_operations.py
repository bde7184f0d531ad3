"""Operations of tables as machine code of their own, against those that one function reads: the same programs, failures and interrupts."""

import gc
import weakref

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from examples import graphs
from sparsejax import config, lax
from sparsejax.jit.backend import compiler
from sparsejax.jit.runtime.whole import driver, operations, written_out
from tests.control import running, test_whole_branches
from tests.together import in_threads

GRAPH = graphs.generated(300, 1500)


@pytest.mark.rotating(8)
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("way", ["written", "read"])
def test_branches(way, seed):
    with config.using(choose=f"operations={way}"):
        test_whole_branches.check(seed + 2000)


@pytest.mark.parametrize("rounds", ["table", "program"])
@pytest.mark.parametrize("algorithm", ["bfs", "shortest_paths", "components", "pagerank"])
def test_graphs_have_equal_bits(algorithm, rounds):
    A, found = sj.array(GRAPH), {}
    args = () if algorithm in ("components", "pagerank") else (7,)
    for way in ("written", "read"):
        with config.using(choose=f"operations={way},rounds={rounds}"):
            found[way] = [getattr(graphs, algorithm)(A, *args).todense().tobytes() for _ in range(5)]
    assert len({*found["written"], *found["read"]}) == 1


def test_after_many_rounds(monkeypatch):
    """Nothing is written for loops of few rounds, and what is written is written once."""
    made, kernel = [], written_out.kernel
    monkeypatch.setattr(operations.written_out, "kernel", lambda ops: made.append(len(ops)) or kernel(ops))
    step = sj.jit(
        lambda x, last: lax.while_loop(lambda s: s[1] < last, lambda s: (s[0] * 0.5 + 1, s[1] + 1), (x, 0))[0]
    )
    x, want = np.arange(8.0), np.arange(8.0)
    for _ in range(100):
        want = want * 0.5 + 1
    for _ in range(5):
        np.testing.assert_array_equal(step(x, 100).todense(), want)
    assert not made
    for _ in range(5):
        step(x, operations.ENOUGH)
    np.testing.assert_array_equal(step(x, 100).todense(), want)
    assert len(made) == 1


def test_code_stays_as_long_as_its_table(monkeypatch):
    """Kernels that nobody refers to are unloaded when many others come."""
    monkeypatch.setattr(compiler, "_KEPT", 0)
    made, kernel = [], written_out.kernel
    monkeypatch.setattr(
        operations.written_out, "kernel", lambda ops: made.append(weakref.ref(code := kernel(ops))) or code
    )
    step = sj.jit(lambda x: lax.fori_loop(0, 40, lambda _, v: v * 0.25 + 3.0, x))
    with config.using(choose="operations=written"):
        for _ in range(3):
            found = step(np.arange(8.0))
            sj.jit(lambda x: x * 2.0 + 1.0)(np.arange(5.0))
            gc.collect()
            assert made and all(code() is not None for code in made)
    np.testing.assert_allclose(found.todense(), 4.0)


def test_failures():
    @sj.jit
    def ours(x, way, last):
        def step(s):
            x, k = s
            return lax.cond(k < 40, lambda x: x + 1.0, lambda x: x[way], x), k + 1

        return lax.while_loop(lambda s: s[1] < last, step, (x, 0))[0]

    x, way = np.arange(4.0), np.array([1, 2, 3, 0])
    with config.using(choose="operations=written"):
        for _ in range(3):
            np.testing.assert_array_equal(ours(x, way, 48).todense(), np.roll(x, -8) + 40)
            with pytest.raises(IndexError, match="out of bounds"):
                ours(x, way + 1, 48)


@running.timers
def test_interrupted():
    @sj.jit
    def endless(x):
        return lax.while_loop(lambda s: s[1] >= 0, lambda s: (s[0] * 1.0, s[1] + 0), (x, 1))[0]

    with config.using(choose="operations=written"):
        running.is_interrupted(endless)


def test_threads():
    A = sj.array(sp.csr_array(GRAPH))
    want = [graphs.bfs(A, k).todense() for k in range(4)]
    with config.using(choose="operations=written"):
        found = in_threads(4, lambda k: [graphs.bfs(A, k).todense() for _ in range(20)][-1])
    for mine, other in zip(found, want, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_every_operation_is_known():
    assert sorted(written_out.SHOWN) == list(range(driver.SPARE + 1))
