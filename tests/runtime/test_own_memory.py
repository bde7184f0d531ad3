"""Memory of steps of plans for many shapes: used again for results of other sizes, never while somebody holds one."""

import dataclasses
import math

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.ir.bounded import Bounded
from sparsejax.jit.runtime import sequence, unkept
from sparsejax.jit.runtime.system import result_memory, reuse
from tests.together import in_threads


@pytest.mark.parametrize("value", [None, 0, 0.0, 2.5])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "c16", "bool", "u1"])
def test_results_that_are_held_share_no_memory(dtype, value):
    take, rng = result_memory.taker(np.dtype(dtype), value), np.random.default_rng(0)
    held: list = []
    for k in range(400):
        count = int(rng.choice([0, 1, 7, 300, 511, 513, 5_000, 40_000, 66_000, 70_000]) * rng.uniform(0.7, 1))
        vals, address = take(count)
        assert len(vals) == count and not vals.flags.writeable
        assert not count or address == vals.__array_interface__["data"][0]
        if value is not None:
            assert (vals == np.dtype(dtype).type(value)).all()
        writable = result_memory._writable(vals, address) if count else np.empty(0, dtype)
        writable[:] = k % 2
        if rng.random() < 0.4:
            held.append((vals, k % 2))
        del vals, writable
        if len(held) > 12:
            for kept, number in held:
                assert (kept == number).all()
            held = held[rng.integers(1, 12) :]


def test_a_block_that_was_given_up_is_not_used_again():
    own = reuse.Own(lambda count: (np.empty(count), 0, 0))
    whole = own.take(1000)[0]
    reuse.release(whole)
    del whole
    assert not own.kept


def test_results_hold_twice_their_bytes_at_most():
    take, rng = result_memory.taker(np.dtype("f8"), None), np.random.default_rng(1)
    for _ in range(200):
        count = int(rng.integers(result_memory.TINY // 8 + 1, result_memory.OWN // 8))
        vals, _ = take(count)
        base = vals.base if vals.base is not None else vals
        assert len(base) <= 2 * count + 64


def test_a_free_block_that_is_too_small_gives_its_place_to_a_larger_one():
    made: list[int] = []
    own = reuse.Own(lambda count: (made.append(count), np.empty(count), 0, 0)[1:], math.inf)
    for count in (600, 1_000, 610, 990, 300, 1_240):
        assert len(own.take(count)[0]) >= count
    assert made == [750, 1_250] and len(own.kept) == 1


def test_what_passes_lies_where_the_last_of_its_size_lay():
    """r0 -> r1 -> r2 -> r3 -> r4, of which r2 has another size, and r4 is the result."""
    n, m, f8 = Bounded.named("n", 300), Bounded.named("m", 300), np.dtype("f8")
    layout = sequence.Layout(
        1,
        0,
        ((0,), (1,), (2,), (1, 3)),
        ((1,), (2,), (3,), (4,)),
        (False,) * 4,
        ((), (), (2,), (1, 3)),
        (4,),
        ((),) * 4,
    )
    made: list = [(f8, (n, 16)), (f8, (n, 1, 16)), (f8, (16, n)), (f8, (n, 16))]
    first, second, third, last = unkept.memories(layout, made)
    assert len({id(first), id(second), id(third)}) == 3 and last is None
    made[2] = f8, (m, 16)
    chain = dataclasses.replace(layout, reads=((0,), (1,), (2,), (3,)), dead=((), (1,), (2,), (3,)))
    first, second, third, last = unkept.memories(chain, made)
    assert third not in (first, second) and last is None
    made[2] = made[0]
    first, second, third, last = unkept.memories(chain, made)
    assert third is first is not second and last is None
    made[1] = None  # what may be a view of its operand
    assert unkept.memories(chain, made)[0] is None


@pytest.mark.parametrize("threads", [1, 3])
def test_long_programs_over_sizes_in_turns(threads):
    """Many results of equal sizes pass; views of some are kept, and results of calls that other threads make meanwhile."""

    def program(A, X):
        first = A @ X
        second = snp.tanh(first)
        third = A.T @ second
        part = third[:, :2].reshape(-1)
        fourth = A @ third
        return fourth * second, part, snp.cumsum(fourth, axis=0)[:3], fourth[None]

    def expected(dense, X):
        first = dense @ X
        second = np.tanh(first)
        third = dense.T @ second
        fourth = dense @ third
        return fourth * second, third[:, :2].reshape(-1), np.cumsum(fourth, axis=0)[:3], fourth[None]

    compiled = sj.jit(program)

    def calls(seed):
        rng, kept = np.random.default_rng(seed), []
        for n in map(int, rng.integers(100, 900, 30)):
            dense = (rng.random((n, 60)) < 0.1) * rng.random((n, 60))
            X = rng.random((60, 16)) - 0.5
            kept.append((compiled(sj.array(dense).asformat("csr"), sj.array(X)), expected(dense, X)))
            kept = kept[-int(rng.integers(1, 6)) :]
            for found, wanted in kept:
                for one, other in zip(found, wanted, strict=True):
                    np.testing.assert_allclose(one.todense(), other, rtol=1e-9, atol=1e-12)

    calls(0)
    in_threads(threads, calls)


def test_donated_results_of_new_shapes_are_given_up():
    """What is donated is written by the call that takes it, and by nobody else later."""
    double = sj.jit(lambda x: x * 2 + 1)
    add = sj.jit(lambda x, y: x + y, donate_argnums=0)
    rng = np.random.default_rng(2)
    kept = []
    for n in map(int, rng.integers(3_000, 6_000, 60)):
        x = rng.random(n)
        made = double(sj.array(x))
        total = add(made, sj.array(x))
        kept.append((total, 3 * x + 1))
        if n % 3:
            kept = kept[-4:]
        for found, expected in kept:
            np.testing.assert_allclose(found.todense(), expected)


def test_programs_over_sizes_in_turns_keep_results():
    def program(A, X):
        hidden = snp.maximum(A @ X, 0)
        return hidden, hidden.sum(axis=0), (hidden * 2)[:, :3]

    compiled, rng = sj.jit(program), np.random.default_rng(3)
    kept = []
    for n in map(int, rng.integers(200, 900, 40)):
        dense = (rng.random((n, 50)) < 0.1) * rng.random((n, 50))
        X = rng.random((50, 16)) - 0.5
        kept.append((compiled(sj.array(dense).asformat("csr"), sj.array(X)), np.maximum(dense @ X, 0)))
        kept = kept[-6:]
        for (hidden, total, part), expected in kept:
            np.testing.assert_allclose(hidden.todense(), expected)
            np.testing.assert_allclose(total.todense(), expected.sum(axis=0))
            np.testing.assert_allclose(part.todense(), 2 * expected[:, :3])
