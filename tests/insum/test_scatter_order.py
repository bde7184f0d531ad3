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
    """The shares of touches from the first `rows` on whose row is not among so many before, one by one: without and with a neighbour among the last."""
    lost = [k for k in range(rows, len(order)) if order[k] not in order[k - rows : k]]
    near = [k for k in lost if {order[k] - 1, order[k] + 1} & set(order[max(0, k - reuse.LATELY) : k])]
    return (len(lost) - len(near)) / (len(order) - rows), len(near) / (len(order) - rows)


@pytest.mark.parametrize("rows", [1, 3, 10, 25, 100])
def test_share_of_rows_that_are_lost(rows):
    """Of one stretch, the second half is asked, touch by touch."""
    rng = np.random.default_rng(rows)
    for _ in range(20):
        order = rng.integers(0, rng.choice([3, 30]) * rows, 2 * rows)
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
        for choose in ("scatters=target", "scatters=read", "scatters=sorted"):
            with sj.config.using(choose=choose, num_threads=threads):
                run = sj.jit(lambda C, given: sj.insum(text, C=C, **given))
                founds = np.asarray(run(start, given)), np.asarray(sj.insum(text, C=start, **given))
            for found in founds:
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


def test_groups_of_one_are_walked_as_vectors():
    """Where an entry has one slot, the order of what is read is walked without a search for it, and what the entries have is copied in this order, too."""
    rng = np.random.default_rng(5)
    R, V, B = (
        rng.integers(0, 6, 50),
        rng.standard_normal((50, 1)).astype("f4"),
        rng.standard_normal((9, 40)).astype("f4"),
    )
    K = rng.integers(0, 9, (50, 1))
    run = sj.jit(lambda R, K, V, B: sj.insum(GROUPS, C=snp.zeros((6, 40), np.float32), R=R, K=K, V=V, B=B))
    for order in ("read", "sorted"):
        with sj.config.using(choose=f"scatters={order}"):
            text = str(run.lower(R, K, V, B).as_text("loops"))
        assert "while" not in text and "found" not in text, order
        assert ("in_order" in text) == (order == "sorted")


def test_copies_in_order_follow_the_arrays_that_are_given():
    """Copies are remembered with arrays, and made anew where one of them is another; those of what a call makes are not made."""
    rng = np.random.default_rng(2)
    R, B = rng.integers(0, 6, 50), rng.standard_normal((9, 40)).astype("f4")
    V, K = rng.standard_normal((2, 50)).astype("f4"), rng.integers(-9, 9, (2, 50))
    arrays = [sj.array(v) for v in V], [sj.array(k) for k in K]
    run = sj.jit(lambda R, K, V, B: sj.insum(FLAT, C=snp.zeros((6, 40), np.float32), R=R, K=K, V=V, B=B))
    made_anew = sj.jit(lambda R, K, V, B: sj.insum(FLAT, C=snp.zeros((6, 40), np.float32), R=R, K=K, V=V * V, B=B))
    with sj.config.using(choose="scatters=sorted"):
        for v, k in [(0, 0), (1, 0), (0, 1), (0, 0), (1, 1), (0, 1)]:
            for f, weights in ((run, V[v]), (made_anew, V[v] * V[v])):
                expected, bound = np.zeros((2, 6, 40))
                terms = weights.astype(float)[:, None] * B[K[k]]
                np.add.at(expected, R, terms)
                np.add.at(bound, R, abs(terms))
                found = np.asarray(f(R, arrays[1][k], arrays[0][v], B))
                assert (abs(found - expected) <= 60 * EPS * bound).all(), (v, k)
        texts = [str(sj.explain(f)(R, arrays[1][0], arrays[0][0], B)) for f in (run, made_anew)]
    assert "in_order" in texts[0]
