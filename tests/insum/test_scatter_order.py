"""Sums into named rows in either order (`scatters`): results, what is chosen for which data, and how often rows come again (`cost/reuse`)."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.cost import machine, reuse

FLAT = "C[R[p],n] += V[p] * B[K[p],n]"
GROUPS = "C[R[p],n] += V[p,q] * B[K[p,q],n]"
CUBES = "C[R[p],m,n] += V[p,m] * B[K[p],n]"
EPS = np.finfo(np.float32).eps


def _slow(order, rows):
    """The share of touches from the first `rows` on whose row is not among so many before, one by one."""
    lost = [order[k] not in order[k - rows : k] for k in range(rows, len(order))]
    return sum(lost) / max(1, len(lost))


@pytest.mark.parametrize("rows", [1, 3, 10, 25])
def test_share_of_rows_that_are_lost(rows):
    """Of one stretch, the second half is asked, touch by touch."""
    rng = np.random.default_rng(rows)
    for _ in range(20):
        order = rng.integers(0, 3 * rows, 2 * rows)
        assert reuse.missed(order, rows) == pytest.approx(_slow(order.tolist(), rows))


def test_an_order_that_repeats_rows_waits_less():
    """Few rows that are full: entries by rows touch all columns again, entries by columns the same few rows."""
    here = machine.current()
    by, touched = np.repeat(np.arange(8), 200_000), np.tile(np.arange(200_000), 8)
    assert reuse.waits(by, touched, 512.0, here) < 0.01 * reuse.waits(touched, by, 512.0, here)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("text", [FLAT, GROUPS, CUBES], ids=["flat", "groups", "cubes"])
def test_both_orders_give_the_sum(text, threads):
    """Random index arrays, negative and repeated ones among them, rows that nothing names, a start that is no zero; against sums in double precision."""
    rng = np.random.default_rng(3)
    for _ in range(15):
        count, slots, rows, places = rng.integers(1, 40), rng.integers(1, 4), rng.integers(1, 12), rng.integers(1, 12)
        columns = int(rng.choice([1, 8, 33, 130]))
        beside = {FLAT: (), GROUPS: (slots,), CUBES: (8,)}[text]
        given = {
            "R": rng.integers(-rows, rows, count),
            "K": rng.integers(-places, places, (count, *(beside if text == GROUPS else ()))),
            "V": rng.standard_normal((count, *beside)).astype("f4"),
            "B": rng.standard_normal((places, columns)).astype("f4"),
        }
        start = rng.standard_normal((rows, *(beside if text == CUBES else ()), columns)).astype("f4")
        sums, bounds = start.astype(float), abs(start).astype(float)
        for made, change in ((sums, np.asarray), (bounds, np.abs)):
            V, read = change(given["V"].astype(float)), change(given["B"].astype(float)[given["K"]])
            terms = {FLAT: "p,pn->pn", GROUPS: "pq,pqn->pn", CUBES: "pm,pn->pmn"}[text]
            np.add.at(made, given["R"], np.einsum(terms, V, read))
        for choose in ("scatters=target", "scatters=read"):
            with sj.config.using(choose=choose, num_threads=threads):
                run = sj.jit(lambda C, given: sj.insum(text, C=C, **given))
                found = np.asarray(run(start, given))
            assert (abs(found - sums) <= (count * slots + 2) * EPS * bounds).all(), choose


def test_full_rows_are_added_to_in_the_order_of_what_is_read():
    """A few full rows and a diagonal beside random entries: one is read row by row of the operand, the other by rows of the result."""
    rng = np.random.default_rng(1)
    n, columns, few = 40_000, 64, 12
    full = np.concatenate([np.repeat(np.arange(few), n), np.arange(n)]), np.tile(np.arange(n), few + 1)
    spread = np.sort(rng.integers(0, n, len(full[0]))), rng.integers(0, n, len(full[0]))
    V, B = np.ones(len(full[0]), np.float32), rng.standard_normal((n, columns)).astype("f4")

    def summed(R, K, V, B):
        return sj.insum(FLAT, C=snp.zeros((n, columns), np.float32), R=R, K=K, V=V, B=B)

    texts = []
    for R, K in (full, spread):
        texts.append(str(sj.explain(sj.jit(summed))(R, K, V, B)))
    assert "in the order of what is read" in texts[0]
    assert "in the order of what is read" not in texts[1]
