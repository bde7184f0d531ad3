"""Facts about stored arrays: the same whatever the order in which entries were given, and enough to see what skew costs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from benchmarks import cases, counting
from sparsejax import config
from sparsejax.formats import Format, convert
from sparsejax.jit.cost import skew, statistics
from sparsejax.jit.ir import cin
from sparsejax.jit.runtime import plans
from sparsejax.jit.schedule import search
from tests.prices import priced

FORMATS = (
    "coo",
    "csf",
    "(d,c,c)",
    "(c,c,c)@(2,1,0)",
    "(d,d,c)",
    "(c,d,c)@(1,0,2)",
    "(c,d,d)",
    "(c,c,d)",
    "(b,h,c)",
    "(d,d,r)",
    "(c,d,r)",
)


def stored(coords, shape, form="csr"):
    found = convert.from_coords(coords, np.ones(coords.shape[1]), shape, Format.parse(form, len(shape)), 0.0)
    return sj.array(found)


def hub(n, rng, row=False, full=1):
    """A matrix of n entries with as many again in each of a few full columns (or rows)."""
    coords = rng.integers(0, n, (2, n))
    coords = np.concatenate([coords, *(np.stack([np.arange(n), np.full(n, k)]) for k in range(full))], axis=1)
    return np.unique(coords[::-1] if row else coords, axis=1)


@pytest.mark.parametrize("form", FORMATS)
def test_degrees(form):
    rng = np.random.default_rng(0)
    x = (rng.random((7, 9, 5)) < 0.2) * 1.0
    storage = sj.array(x, format=form).storage
    columns, _ = storage.expand()
    for dimension, column in enumerate(columns):
        for size in (x.shape[dimension], 4):
            want = np.bincount(column % size, minlength=size)
            np.testing.assert_array_equal(skew.degrees(storage, dimension, size), want)


def test_coupling_is_the_number_of_multiplications():
    rng = np.random.default_rng(0)
    n = 3000
    A, B = stored(hub(n, rng), (n, n)), stored(hub(n, rng, row=True), (n, n))
    products = A.nnz * B.nnz / n * skew.coupling(A.storage, 1, B.storage, 0)
    true = np.bincount(A.storage.buffers[1][1], minlength=n) @ np.diff(B.storage.buffers[1][0])
    assert products == pytest.approx(true, rel=0.01)


@pytest.mark.parametrize("kind", ["even", "hubs", "powers", "stencil"])
def test_some_entries_tell_what_all_do(kind, monkeypatch):
    """Of a large array whose other side is stored by the common dimension, on either side."""
    rng, n = np.random.default_rng(0), 60_000
    if kind == "hubs":
        coords = hub(n, rng, full=3)
    elif kind == "stencil":
        coords = np.stack([np.arange(n).repeat(5), (np.arange(n)[:, None] + [-300, -1, 0, 1, 300]).reshape(-1) % n])
    else:
        draw = rng.random(4 * n) if kind == "even" else rng.random(4 * n) ** 4
        coords = np.stack([rng.integers(0, n, 4 * n), (n * draw).astype(np.int64)])
    coords = np.unique(coords, axis=1)
    by_rows = [stored(c, (n, n)).storage for c in (coords, np.unique(coords[::-1], axis=1))]
    drawn = skew.coupling(by_rows[0], 1, by_rows[1], 0), skew.coupling(by_rows[1], 0, by_rows[0], 1)
    assert "degrees" not in by_rows[0].cache
    monkeypatch.setattr(skew, "DRAWN", n * n)
    fresh = [stored(c, (n, n)).storage for c in (coords, np.unique(coords[::-1], axis=1))]
    exact = skew.coupling(fresh[0], 1, fresh[1], 0)
    assert "degrees" in fresh[0].cache
    assert drawn == pytest.approx((exact, exact), rel=0.05)


def test_folded_coordinates(monkeypatch):
    """Extents beyond those that are told apart."""
    rng = np.random.default_rng(0)
    n = 1 << 14
    A, B = stored(hub(n, rng), (n, n)), stored(hub(n, rng, row=True), (n, n))
    exact = skew.coupling(A.storage, 1, B.storage, 0)
    monkeypatch.setattr(skew, "LARGEST", 1 << 10)
    fresh = [stored(np.array(x.storage.expand()[0]), (n, n)).storage for x in (A, B)]
    assert skew.coupling(fresh[0], 1, fresh[1], 0) == pytest.approx(exact, rel=0.05)


def test_hypersparse_arrays_take_little_memory():
    n = 1 << 40
    coords = np.unique(np.random.default_rng(0).integers(0, n, (2, 5000)), axis=1)
    storage = stored(coords, (n, n), "dcsr").storage
    assert skew.coupling(storage, 1, storage, 0) == pytest.approx(1.0, abs=0.2)
    assert all(len(d) <= 8 * 5000 for d in storage.cache["degrees"].values())


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr"])
def test_order_of_entries_does_not_matter(form):
    rng = np.random.default_rng(0)
    n = 2000
    coords = hub(n, rng)
    relabelled = rng.permutation(n)[coords]
    found = []
    for given in (coords, coords[:, rng.permutation(coords.shape[1])], relabelled):
        A = stored(given, (n, n), form)
        nest, inputs = cases.kernel(cases.Case("facts", "ij,jk->ik", (form, form), ""), [A, A])
        found.append(statistics.of(nest, inputs))
    assert found[0] == found[1] == found[2]
    assert found[0].couplings
    outer, inner = found[0].counts["A"]
    assert outer == n or form != "csr"  # the type tells how many rows there are
    assert all(x == 2.0 ** round(np.log2(x)) for x in (*found[0].couplings.values(), inner))


def test_arrays_in_the_same_buckets_share_a_plan():
    rng = np.random.default_rng(0)
    n = 2000
    arrays = [stored(hub(n, rng, row=k % 2 == 0), (n, n)) for k in range(4)]
    even = stored(np.unique(rng.integers(0, n, (2, 2 * n)), axis=1), (n, n))
    closed = sj.jit(lambda A, B: A @ B).trace(even, even).jaxpr
    (runner,) = plans.plan_of(closed).steps
    for A, B in zip(arrays[1::2], arrays[::2], strict=True):
        made = plans.execute(closed, [A, B])[0]
        np.testing.assert_allclose(made.todense(), A.todense() @ B.todense())
    assert len(runner.plans) == 1
    for _ in range(2):  # what was observed last is not taken for what comes
        for pair in itertools.product((arrays[0], even), repeat=2):
            plans.execute(closed, pair)
        again = {runner.observe([x.storage for x in pair]) for pair in itertools.product((arrays[0], even), repeat=2)}
    assert len(again) > 1
    assert {key[-1] for key in runner.plans} == again | {runner.observe([arrays[1].storage, arrays[0].storage])}


def test_no_couplings_where_one_factor_has_nothing_else():
    A, x = sj.array(np.eye(5), format="csr"), sj.array(np.ones(5), format="coo")
    for function in (lambda A, x: A @ x, lambda A, x: A + A, lambda A, x: A.sum(axis=0)):
        (runner,) = plans.plan_of(sj.jit(function).trace(A, x).jaxpr).steps
        assert not runner.runnable.joins


def test_the_order_that_skew_asks_for():
    """Most of A leads to a few full rows of B: cheaper than to search all of these for the coordinates of the mask is it to
    walk the mask, and the short fibers of A and B that meet there. (Cheaper still is to scatter the rows of the mask.)"""
    rng = np.random.default_rng(0)
    n = 2048
    mask = stored(np.unique(rng.integers(0, n, (2, 8 * n)), axis=1), (n, n))
    A, B = stored(hub(n, rng, full=4), (n, n)), stored(hub(n, rng, row=True, full=4), (n, n))
    nest, inputs = cases.kernel(cases.Case("facts", "ik,ij,jk->ik", ("csr",) * 3, ""), [mask, A, B])
    known = statistics.of(nest, inputs)
    even = replace(known, couplings={})
    works = []
    for data in (known, even):
        with priced(scatter=np.inf):
            schedule = search.choose(nest, data)
        made, count = counting.run(nest, schedule, inputs)
        assert made.nnz <= mask.nnz
        works.append(count.work)
    assert works[0] < n * n / 8
    assert works[1] > 4 * works[0]


@pytest.mark.parametrize(
    "spelled", ["csr", "csc", "(d,c,d)", "(c,d)", "(d,d,c)@(2,0,1)", "(q)", "(c,d,d)@(1,2,0)", "(d,n)"]
)
def test_what_few_entries_tell_is_what_is_counted(spelled):
    rng = np.random.default_rng(1)
    form = Format.parse(spelled, len(spelled.split("@")[0].split(",")) if "(" in spelled else 2)
    for shape in [(7, 5, 3), (1, 1, 1), (40, 3, 17)]:
        dense = rng.random(shape[: form.ndim]) * (rng.random(shape[: form.ndim]) < 0.3)
        storage = convert.from_dense(dense, form, 0.0)
        assert statistics.positions(storage) == statistics._rounded_below(form, statistics.exact_positions(storage))
        assert statistics.spread(storage) == () and statistics.crossed(storage) == statistics.EVEN


@pytest.mark.parametrize("form", ["csf", "(d,c,c)@(0,2,1)", "(c,c,c)@(2,1,0)", "(d,d,c)", "coo"])
def test_copies_are_expected_to_hold_what_they_hold(form):
    """What segments of an operand hold is foreseen in the format into which it is moved."""
    rng = np.random.default_rng(3)
    stored = sj.array((rng.random(4000), tuple(rng.integers(0, n, 4000) for n in (40, 90, 60))), shape=(40, 90, 60))
    before, after = (stored.asformat(f).storage for f in ("csf", form))
    moved = cin.Tensor("A", after.shape, after.dtype, after.format, 0.0)
    known = statistics.Facts({"A": statistics.exact_positions(before), "B": (1.0, 2.0)})
    found = statistics.converted(known, [moved])
    assert found["B"] == (1.0, 2.0) and statistics.converted(known, []) is known
    off = np.log2(found["A"]) - np.log2(statistics.exact_positions(after))
    assert np.all(np.abs(off) < 0.6), (
        found
    )  # rounded to powers of two, of what entries that are spread evenly would have


def test_segments_that_are_visited_again_and_again_are_not_foreseen():
    """Two running sums pay over few entries of few segments in a row; columns of a product come in any order, as entries of rows name them."""
    rng = np.random.default_rng(4)
    A = sj.array((np.ones(8000), (rng.integers(0, 2000, 8000), rng.integers(0, 2000, 8000))), shape=(2000, 2000))
    A = A.asformat("csr")
    with config.using(skip={"gathers"}):
        again = sj.jit(lambda A: snp.sum((A @ A) * A)).lower(A).as_text("cin")
        once = sj.jit(lambda A, x: A @ x).lower(A, np.ones(2000)).as_text("cin")
    assert "B[j,k]: unrolled" in again, again
    assert ": pairs" in once and ": pairs" not in again


@pytest.mark.parametrize("form", ["(d,q,q)", "coo", "(c,q,q)"])
@pytest.mark.parametrize("each", [1, 3])
def test_coordinates_of_a_run_are_counted_where_they_come_again(form, each):
    """Of a run, the outer level has as many coordinates as come `each` times; expected of even draws would be fewer where they come once."""
    rng = np.random.default_rng(3)
    places = rng.choice(5_000 * 27, 48_000, replace=False)
    rows, names = np.divmod(np.repeat(places, each), 27)
    coords = np.array([rows, names, np.arange(len(rows)) % 200_000])
    shape = (5_000, 27, 200_000)
    if form == "coo":
        coords, shape = np.array([np.repeat(places, each), coords[2]]), (5_000 * 27, 200_000)
    found = statistics.exact_positions(stored(coords, shape, form).storage)
    assert found[-1] == len(rows)
    assert 0.95 * len(places) <= found[-2] <= min(found[-1], 1.05 * len(places)), found
