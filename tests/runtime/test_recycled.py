"""Memory of results that is used again: as soon as nobody refers to it, and never before."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.jit.backend import host
from sparsejax.jit.runtime.system import result_memory, reuse
from tests.together import in_threads

SIZES = [12, result_memory.TINY // 8, result_memory.TINY // 8 + 1, result_memory.RETURNED // 8]


def address(y):
    return y._storage.vals.__array_interface__["data"][0]


@pytest.mark.skipif(not host.has("recycling"), reason="memory of results is not used again here")
@pytest.mark.parametrize("n", SIZES)
def test_two_results_take_turns(n):
    f, x = sj.jit(lambda x: x + 1), sj.array(np.zeros(n))
    places = set()
    y = f(x)
    for _ in range(20):
        y = f(x)
        places.add(address(y))
    assert len(places) <= 2


def held(y):
    """What may refer to the memory of a result."""
    return {
        "array": lambda: y,
        "numpy": lambda: np.asarray(y),
        "todense": y.todense,
        "view": lambda: np.asarray(y)[3:7],
        "buffer": lambda: memoryview(np.asarray(y)),
        "reshaped": lambda: y.reshape(-1, 1),
        "slice": lambda: sj.jit(lambda y: y[2:9])(y),
        "dlpack": lambda: np.from_dlpack(np.asarray(y)),
    }


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("how", held(sj.array(np.zeros(2))))
def test_what_is_held_stays(n, how):
    f = sj.jit(lambda x: x + 1)
    kept = []
    for k in range(6):
        kept.append(held(f(sj.array(np.full(n, float(k)))))[how]())
    for k, y in enumerate(kept):
        assert (np.asarray(y.todense() if isinstance(y, sj.Array) else y) == k + 1).all()


@pytest.mark.parametrize("n", SIZES)
def test_memory_is_cleared_where_results_are_added_to(n):
    """A sum by columns adds to zeros."""
    rows, cols = np.array([0, 2, 2]), np.array([n - 1, 0, n - 1])
    A = sj.array((np.array([1.0, 2.0, 3.0]), (rows, cols)), shape=(3, n), format="csr")
    f = sj.jit(lambda A: A.T @ np.ones(3))
    wanted = np.zeros(n)
    wanted[0], wanted[-1] = 2.0, 4.0
    for _ in range(6):
        np.testing.assert_array_equal(f(A).todense(), wanted)


@pytest.mark.parametrize("n", SIZES)
def test_donated_memory_is_given_up(n):
    """Who takes over memory has it alone: what made it does not use it again."""
    f, step = sj.jit(lambda x: x * 2), sj.jit(lambda x: x + 1, donate_argnums=0)
    x, kept = sj.array(np.arange(float(n))), []
    for _ in range(6):
        kept.append(step(f(x)))
    for y in kept:
        np.testing.assert_array_equal(y.todense(), 2 * np.arange(n) + 1)


@pytest.mark.parametrize("value", [None, 0, 0.0, 2.5])
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i1"])
def test_results_of_sizes_that_may_not_come_back_lie_apart(dtype, value):
    wanted = np.dtype(dtype)
    take = result_memory.taker(wanted, value)
    made = [take(count) for count in (0, 1, 3, 64, 65, 500, 1, 5000, 70, 7, 5010, 4990)]
    for vals, address in made:
        assert not vals.flags.writeable and vals.dtype == wanted
        if len(vals):
            assert address == vals.ctypes.data and address % 64 == 0
        if value is not None:
            assert (vals == wanted.type(value)).all()
    assert not any(np.may_share_memory(a, b) for a, b in itertools.combinations([vals for vals, _ in made], 2))


@pytest.mark.skipif(not host.has("recycling"), reason="memory of results is not used again here")
@pytest.mark.parametrize("value", [None, 0.0, 2.5])
def test_memory_serves_results_of_other_sizes_when_it_is_free(value):
    """What one refers to, or a view of it, is never given out again; what is free is."""
    rng, alive, places = np.random.default_rng(0), [], set()
    take = result_memory.taker(np.dtype("f8"), value)
    for number in range(400):
        count = int(rng.integers(700, 900))
        vals, address = take(count)
        places.add(address)
        assert address % 64 == 0 and len(vals) == count
        if value is not None:
            assert (vals == value).all()
        raw = vals.base
        assert raw.flags.writeable and not vals.flags.writeable
        raw.fill(number)
        alive.append((vals[rng.integers(5) :] if number % 2 else vals, number))
        del vals, raw
        alive = [a for a in alive if rng.random() < 0.7]
        for kept, written in alive:
            assert (kept == written).all()
    assert len(places) < 100


def test_several_threads_have_memory_of_their_own():
    wrong = []

    def work(number):
        for k in range(300):
            shape = (40 + k % 9, 30)
            vals, made = result_memory.written(shape, np.dtype("f8"))
            made.fill(number)
            vals, other = vals[:], result_memory.written(shape, np.dtype("f8"))[1]
            other.fill(-1)
            if not (vals == number).all():
                wrong.append(k)

    in_threads(4, work)
    assert not wrong


def test_memory_that_is_kept_is_bounded(monkeypatch):
    """Who has kept memory for the longest time gives it up; what was given up is made anew, and memory that is released does not count."""
    monkeypatch.setattr(reuse, "ALTOGETHER", 3 << 14)
    everything = reuse._Everything()
    monkeypatch.setattr(reuse, "_all", everything)
    kept = [reuse.Recycled() for _ in range(4)]

    def keep(k):
        vals = np.zeros(1 << 11)[:]
        kept[k].keep((vals, bytes([k])))
        return vals

    for k in range(3):
        keep(k)
    assert [r.again() is not None for r in kept] == [True, True, True, False]
    keep(3)
    assert [r.again() is not None for r in kept] == [False, True, True, True]
    vals = keep(0)
    assert [r.again() is not None for r in kept] == [False, False, True, True]  # the fourth is looked at: `vals`
    for _ in range(9):
        kept[0].release(vals)
        kept[0].keep((vals, b""))
    del vals
    assert [r.again() is not None for r in kept] == [True, False, True, True]
    assert everything._bytes == sum(v.nbytes for r in kept for v, _ in r.kept) == sum(everything._keepers.values())


@pytest.mark.parametrize("n", SIZES)
def test_results_are_right_where_memory_is_given_up_all_the_time(n, monkeypatch):
    monkeypatch.setattr(reuse, "ALTOGETHER", 8 * n + 1)
    functions = [sj.jit(lambda x, k=k: x * 2 + k) for k in range(4)]
    made = []
    for turn in range(5):
        x = np.random.default_rng(turn).random(n)
        made += [(f(sj.array(x)), x * 2 + k) for k, f in enumerate(functions)]
        made = made[-6:]
        for y, wanted in made:
            np.testing.assert_array_equal(y.todense(), wanted)
