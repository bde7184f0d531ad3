"""How many cache lines loops touch, and what that is expected to cost."""

import dataclasses
import pickle
import re

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.cost import memory, spreads, statistics
from sparsejax.jit.cost.machines import ICE_LAKE
from sparsejax.jit.cost.memory import Beside, Walked, lines
from tests.prices import priced

ROWS, COLS, WIDTH, ENTRIES = 1e4, 1e4, 32.0, 1e5
SPMM = (1.0, ROWS, ENTRIES, ENTRIES * WIDTH)
"""How often the body of the outermost loops of  out[i,j] += A[i,k] * H[k,j]  runs, over i, k and j."""


def test_rows_that_entries_lead_to():
    gathered, once = lines(Walked((1, 2), 8.0, (COLS, WIDTH), False), SPMM, 1e9)
    assert gathered == (
        ENTRIES * WIDTH * 8 / 64,
        COLS * WIDTH * 8,
        ENTRIES,
    )  # one line of each row is anywhere, the others follow it
    assert once == (COLS * WIDTH * 8 / 64, 1e9, 0.0)


def test_what_leads_is_touched_once_and_in_order():
    (found,) = lines(Walked((0, 1), 16.0, (ROWS, ENTRIES / ROWS), True), SPMM, 1e9)
    assert found == (ENTRIES * 16 / 64, 1e9, 0.0)


def test_what_an_inner_loop_leaves_alone_is_touched_again():
    """out[i,j] += A[i,k] * B[k,j]  over i, j, k: a row of A for every j, found in the cache."""
    n = 1e3
    runs = (1.0, n, n * n, n**3)
    again, once = lines(Walked((0, 2), 8.0, (n, n), True), runs, 1e9)
    assert again == (n**3 * 8 / 64, n * 8, 0.0) and once == (n * n * 8 / 64, 1e9, 0.0)
    assert memory.price([again], ICE_LAKE, False) == 0.0 < memory.price([again, once], ICE_LAKE, False)


def test_entries_close_together_touch_less():
    far = lines(Walked((1, 2), 8.0, (COLS, WIDTH), False), SPMM, 1e9)
    near = lines(Walked((1, 2), 8.0, (COLS, WIDTH), False, new=0.25, among=(1 / 64, 1.0)), SPMM, 1e9)
    assert near[0] == (far[0].number / 4, far[0].among / 64, far[0].anywhere / 4)
    assert memory.price(near, ICE_LAKE, False) < memory.price(far, ICE_LAKE, False)


@pytest.mark.parametrize(("size", "each", "added"), [(1e9, 1e3, 1e4 * 1e3), (5e6, 1e3, 5e6), (1e9, 0.0, 0.0)])
def test_statements_take_turns_in_the_caches(size, each, added):
    """Until all of H is touched again, the other statement has touched so many bytes."""
    rows, entries = 1e4, 4e4
    survivors = (1.0, rows, entries, entries * 8)
    walked = Walked((1, 2), 8.0, (entries, 8.0), False)
    alone, together = (lines(walked, survivors, 0.0, b)[0] for b in (memory.ALONE, Beside(1, size, each)))
    assert together.among - alone.among == pytest.approx(added)
    assert lines(walked, survivors, 0.0, Beside(0, size, each))[0] == alone


def test_a_larger_array_costs_more_up_to_memory():
    costs = [memory.price([memory.Lines(1.0, 2.0**k, 1.0)], ICE_LAKE, False) for k in range(10, 40)]
    assert costs == sorted(costs) and costs[0] == 0.0 and costs[-1] == pytest.approx(sum(ICE_LAKE.line), rel=1e-3)


def test_written_lines_have_their_own_prices():
    dear = dataclasses.replace(ICE_LAKE, write=(100.0, 0.0, 0.0))
    found = [memory.Lines(1.0, 1e9, 1.0)]
    assert memory.price(found, dear, True) > 90 > memory.price(found, dear, False)


def test_meshes_are_told_from_random_patterns():
    n = 40_000
    band = sp.diags_array([np.ones(n)] * 3, offsets=[-200, 0, 200], shape=(n, n), format="csr")
    found = statistics.positions(sj.array(band).storage)
    assert found.spread[1].new == pytest.approx(0.5**0.5) and found.spread[1].among < 0.05
    loose = sp.random_array((n, n), density=3 / n, format="csr", rng=np.random.default_rng(0))
    assert statistics.spread_of(statistics.positions(sj.array(loose).storage)) == ()
    few = sp.eye_array(100, format="csr")
    assert statistics.spread_of(statistics.positions(sj.array(few).storage)) == ()


@pytest.mark.parametrize("dtype", ["i4", "i8", "u2"])
@pytest.mark.parametrize("seed", range(6))
def test_spread_counts_distinct_coordinates_of_windows(seed, dtype):
    rng = np.random.default_rng(seed)
    extent = int(rng.choice([7, 200, 300, 60_000]))
    crd = rng.integers(0, extent, 1 << 15) // int(rng.integers(1, 4))
    crd = (np.sort(crd) if seed % 2 else crd).astype(dtype)
    starts = [(len(crd) - spreads.WINDOW) * k // (spreads.WINDOWS - 1) for k in range(spreads.WINDOWS)]
    seen = [np.unique(crd[k : k + spreads.WINDOW]).astype(float) for k in starts]
    most = extent if extent <= spreads.WINDOW // 4 else spreads.WINDOW
    new = 2.0 ** (round(2.0 * np.log2(sum(map(len, seen)) / (spreads.WINDOWS * most))) / 2)
    among = sum(x[-1] - x[0] + 1 for x in seen) / (spreads.WINDOWS * extent)
    found = spreads.told([np.sort(crd[k : k + spreads.WINDOW]) for k in starts], extent)
    assert found.new == pytest.approx(max(spreads.FEWEST, min(1.0, new)))
    assert found.among == (max(spreads.NEAREST, 4.0 ** round(np.log(among) / np.log(4))) if among < 0.25 else 1.0)


def long_rows(n=30_000, rows=3):
    """Some full rows above a diagonal."""
    return sp.vstack([np.ones((rows, n)), sp.eye_array(n)]).tocsr().astype(np.float32)


@pytest.mark.parametrize("form", ["csr", "groupcoo:2"])
def test_long_segments_come_back_in_the_other_order(form):
    """Windows in one row tell nothing of what comes again; by columns, three rows of four entries are the same."""
    found = statistics.positions(sj.array(long_rows()).asformat(form).storage)
    by_columns = statistics.positions(sj.array(long_rows()).asformat("csc").storage)
    assert all(
        x.new > 0.7 and x.among == 1.0 for x in statistics.spread_of(found)[1:]
    )  # groups of two hold what stands for nothing
    assert by_columns.spread[1] == statistics.Spread(0.25, 1.0)
    assert found.crossed.new < 0.4 and found.crossed.among == 1.0
    short = statistics.positions(sj.array(sp.eye_array(40_000, format="csr")).asformat(form).storage)
    assert statistics.crossed_of(short) == statistics.EVEN != statistics.crossed_of(found)
    assert found != statistics.Positions(tuple(found), found.spread) and pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(("cache", "first"), [(1 << 18, "k"), (1 << 27, "i")])
def test_long_rows_of_large_operands_are_read_by_columns(cache, first):
    """An operand of 15 MB is read row by row again and again where the caches hold it, once where they do not; the bits are the same."""
    A, B = sj.array(long_rows()), np.random.default_rng(0).standard_normal((30_000, 128)).astype(np.float32)
    with priced(caches=(cache, cache, 1 << 28)):
        f = sj.jit(lambda A, B: A @ B)
        assert f.lower(A, B).as_text("cin").startswith(f"forall {first}")
        made = f(A, B).todense()
    with priced(caches=(1 << 27, 1 << 27, 1 << 28)), sj.config.using(choose="copies=never"):
        np.testing.assert_array_equal(sj.jit(lambda A, B: A @ B)(A, B).todense(), made)


def test_results_over_the_same_pattern_are_not_counted_again(monkeypatch):
    A = sj.array(sp.eye_array(40_000, format="csr"))
    program = sj.jit(lambda A: (A * 2.0, A.asformat("csc")))
    program(A)
    monkeypatch.setattr(statistics, "_spread", None)  # cannot be called
    result, _ = program(A)
    known = statistics.positions(result.storage)
    assert known is statistics.positions(A.storage) and statistics.spread_of(known)
    assert statistics.positions(A.storage.with_values(np.ones(40_000), 0.0)) is known


def test_positions_differ_where_spreads_do():
    near = statistics.Spread(0.5, 0.25)
    a, b = statistics.Positions((1.0, 2.0), [near, near]), statistics.Positions((1.0, 2.0), [near, statistics.EVEN])
    assert a != b and a == statistics.Positions((1.0, 2.0), [near, near]) and hash(a) != hash(b)
    assert a != (1.0, 2.0) and repr(a) != repr(b)


def test_arrays_that_end_in_shared_loops():
    """An array whose loops are all shared with another statement: there are fewer of these than the other one shares."""
    walked = Walked((1,), 8.0, (1e4,), False)
    (again, _) = lines(walked, (1.0, 1e3, 1e5), 0.0, Beside(4, 1e6, 10.0))
    assert again.among == pytest.approx(8e4 + 1e5)


def test_rows_that_are_looked_up():
    """out[p,j] = H[A[p],j]  touches rows anywhere in H, and of these each line once before."""
    places, line = 1e6, 8 / 64
    runs = (1.0, places, places * WIDTH)
    anywhere, once = lines(Walked((0, 1), 8.0, (ROWS, WIDTH), False, drawn=(0,)), runs, 1e9)
    assert anywhere == (places * WIDTH * line, ROWS * WIDTH * 8, places)
    assert once == (ROWS * WIDTH * line, 1e9, ROWS)
    few = lines(Walked((0, 1), 8.0, (ROWS, WIDTH), False, drawn=(0,)), (1.0, 10.0, 10 * WIDTH), 1e9)
    assert [x.number for x in few] == [10 * WIDTH * line] * 2  # no line twice
    (short, _) = lines(Walked((0, 1), 8.0, (ROWS, 2.0), False, drawn=(0,)), (1.0, 10.0, 20.0), 1e9)
    assert short.number == 10  # a line for every row


def test_places_that_are_looked_up():
    """x[A[p]], a line each; and the same row again and again inside the loop that looks it up."""
    anywhere, _ = lines(Walked((0,), 8.0, (1e6,), False, drawn=(0,), in_runs=False), (1.0, 1e4), 1e9)
    assert anywhere == (1e4, 8e6, 1e4)
    again, rows, _ = lines(Walked((0, 2), 8.0, (ROWS, WIDTH), False, drawn=(0,)), (1.0, 1e3, 1e4, 1e4 * WIDTH), 1e9)
    assert again == (1e4 * WIDTH * 8 / 64, WIDTH * 8, 1e4)
    assert rows == (1e3 * WIDTH * 8 / 64, ROWS * WIDTH * 8, 1e3)


def test_what_is_stored_in_runs_costs_its_runs():
    """Of a lower triangle, half of all coordinates are in runs, one a row: the product with it costs what the rows of the other operand do."""
    n = 4096
    A = sj.asarray(sp.random_array((n, n), density=8 / n, format="csr", rng=np.random.default_rng(0)))
    x = np.ones(n)

    def price(function):
        with sj.config.using(machine="granite_rapids"):
            text = str(sj.explain(function)(A, x))
        return float(re.search(r"\* i,j: (\S+) =", text)[1])

    assert price(lambda A, x: A @ x) < price(lambda A, x: snp.tril(A) @ x) < 10 * price(lambda A, x: A @ x)
    found = statistics.positions(sj.array(np.tri(64), format="rle").storage)
    assert found.runs == 64 and found[-1] == statistics.rounded(64 * 64 / 2)
    assert found == pickle.loads(pickle.dumps(found)) != statistics.Positions(tuple(found), found.spread)


def test_runs_that_are_not_there_cost_nothing():
    R = sj.array(np.zeros((3, 9)), format="rle")
    assert statistics.positions(R.storage).runs == 0
    np.testing.assert_array_equal(
        sj.jit(lambda R, A: (R * A).sum(1))(R, sj.array(np.eye(3, 9), format="csr")), np.zeros(3)
    )
