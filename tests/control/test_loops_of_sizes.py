"""Loops over arrays of sizes that do not come back: tables that serve many sizes, against NumPy and against tables made for one size."""

import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax
from sparsejax.jit.runtime.whole import sizes

SIZES = (31, 31), (40, 27), (52, 52), (33, 60), (47, 33), (60, 18), (35, 35), (64, 41)
CASES = 24


def random_step(rng: random.Random):
    """What a round makes of a matrix, and of two vectors of its rows, two of its columns, a matrix like it, and numbers; for sparsejax and for NumPy."""
    order = rng.choice((("a", "b"), ("b", "a")))
    turned = rng.random() < 0.4
    stays = rng.random() < 0.3
    with_matrix = rng.random() < 0.5
    kind, ends = rng.randrange(5), rng.random() < 0.5

    def step(xp, A, state):
        a, b, u, v, Z, total, k = state
        rows, columns = A.shape
        if kind == 0:
            new = (A @ u + xp.arange(rows)) / (2 * rows)
        elif kind == 1:
            new = xp.maximum(A @ u, a) / (1 + columns)
        elif kind == 2:
            new = xp.sqrt(a) / rows + xp.ones(rows) / columns if ends else a * 0.5 + xp.full(rows, 2.0)
        elif kind == 3:
            new = (A @ (u * v) + b) / (3 * rows)
        else:
            new = xp.where(a > 0.5, a * 0.5, a + 1 / columns)
        back = (new @ A + v) / (2 * rows)
        pair = {"a": new, "b": a}
        u, v = (v, back) if turned else (back, v if stays else u)
        Z = Z * 0.5 + new[:, None] * back if with_matrix else Z
        return pair[order[0]], pair[order[1]], u, v, Z, total + xp.sum(new) / rows, k + 1

    return step


def programs(seed):
    rng = random.Random(seed)
    step, rounds = random_step(rng), rng.choice((3, 12, 13))

    def ours(A, *state):
        return lax.while_loop(lambda s: (s[-1] < rounds) & (s[-2] < 1e6), lambda s: step(snp, A, s), (*state, 0.0, 0))

    def plain(A, *state):
        state = (*state, 0.0, 0)
        while state[-1] < rounds and state[-2] < 1e6:
            state = step(np, A, state)
        return state

    return sj.jit(ours), plain


def operands(rng, n, m):
    A = (rng.random((n, m)) < 0.2) * rng.random((n, m))
    return A, rng.random(n), rng.random(n), rng.random(m), rng.random(m), rng.random((n, m))


@pytest.fixture
def resized(monkeypatch):
    """The tables that another one became, beside those that are made for that size alone."""
    found, run = [], sizes.Later.loop

    def listened(self, going, asked, given, carry, sample, rounds=None, unread=()):
        known = self.many.sizes.get(sizes.key_of(going.many, (*asked, *given)))
        if known is not None:
            alone = self.plan._table(object(), going.plan, asked, given, carry, len(carry))
            found.append((known[0].resized(self._change), alone))
        return run(self, going, asked, given, carry, sample, rounds, unread)

    monkeypatch.setattr(sizes.Later, "loop", listened)
    return found


def same(one, other):
    """Whether two tables do the same: operations are equal, and words but for addresses."""
    assert one._bytes == other._bytes and one._apart == other._apart
    np.testing.assert_array_equal(one._starts, other._starts)
    np.testing.assert_array_equal(one._ops.ops, other._ops.ops)
    differ = one._template != other._template
    assert (np.minimum(one._template[differ], other._template[differ]) > 1 << 32).all()


@pytest.mark.rotating(4)
@pytest.mark.parametrize("seed", range(CASES))
def test_tables_that_serve_many_sizes(seed, resized):
    ours, plain = programs(seed)
    rng = np.random.default_rng(seed)
    for n, m in (*SIZES, *SIZES[:3]):
        A, *state = operands(rng, n, m)
        found = ours(sj.array(A, format="csr"), *map(sj.array, state))
        for x, y in zip(found, plain(A, *state), strict=True):
            np.testing.assert_allclose(np.asarray(x.todense()), y, rtol=1e-9, atol=1e-12)
    for one, alone in resized:
        if alone is not None:
            same(one, alone)


def test_one_table_is_made(tables):
    """Loops over dense values are one table for sizes of one bucket: what sizes change are words."""
    ours, _ = programs(1)
    rng = np.random.default_rng(0)
    for n in (*range(30, 40), *range(200, 230)):
        A, *state = operands(rng, n, n)
        ours(sj.array(A, format="csr"), *map(sj.array, state))
    assert 1 <= len(tables) <= 6 and None not in tables


def test_sizes_that_are_equal_by_chance(resized):
    """Two carries of the same extent in the first call keep memory of their own: they differ in the next."""

    @sj.jit
    def ours(A, x, y):
        def step(state):
            x, y, k = state
            return (A @ y) / 40, (x @ A) / 40, k + 1

        return lax.while_loop(lambda s: s[2] < 20, step, (x, y, 0))

    rng = np.random.default_rng(2)
    for n, m in ((30, 30), (31, 31), (32, 32), (33, 33), (40, 20), (20, 40), (50, 31), (31, 64)):
        A, x, _, y, *_ = operands(rng, n, m)
        found = ours(sj.array(A, format="csr"), sj.array(x), sj.array(y))
        for _ in range(20):
            x, y = (A @ y) / 40, (x @ A) / 40
        np.testing.assert_allclose(found[0].todense(), x, rtol=1e-9)
        np.testing.assert_allclose(found[1].todense(), y, rtol=1e-9)
    assert resized
