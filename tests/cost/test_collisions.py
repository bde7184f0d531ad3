"""How many points meet in an entry of a sparse product: sampled, once per operands, and what it decides."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import sparsejax as sj
from benchmarks import workspace_points
from sparsejax.core.array import Array
from sparsejax.formats import Format, convert
from sparsejax.jit.cost import collisions, conversion_price, skew, statistics, workspace_choice, workspace_price
from sparsejax.jit.ir import cin
from sparsejax.jit.runtime import plans
from sparsejax.jit.schedule import counted, search

pytestmark = pytest.mark.rotating(16)

FORMATS = ("csr", "csc", "coo", "dcsr", "dcsc")


def stored(coords, shape, form):
    values = np.ones(np.asarray(coords).shape[1])
    return convert.from_coords(np.asarray(coords), values, shape, Format.parse(form, len(shape)), 0.0, np.maximum)


def mesh(n, width=4):
    """A band: rows that are neighbours meet in the same columns."""
    i = np.repeat(np.arange(n), 2 * width + 1)
    j = i + np.tile(np.arange(-width, width + 1), n)
    return np.stack([i, j])[:, (j >= 0) & (j < n)]


def clustered(n, rng):
    """Blocks of a few rows and columns."""
    return np.unique(rng.integers(0, n // 8, (1, 4 * n)) * 8 + rng.integers(0, 8, (2, 4 * n)), axis=1)


def skewed(n, rng):
    return np.unique((n * rng.random((2, 6 * n)) ** 2).astype(np.int64), axis=1)


def point(subscripts, order, form, operands):
    return workspace_points.kernel("", subscripts, order, Format.parse(form, len(subscripts.split("->")[1])), operands)


@pytest.fixture
def large_samples(monkeypatch):
    monkeypatch.setattr(collisions, "FEWEST", 1 << 14)


def rates(given):
    """Points per entry: true ones, counted densely, and sampled ones."""
    subscripts = given.name
    dense = [np.zeros(s.shape) for s in given.inputs]
    for pattern, s in zip(dense, given.inputs, strict=True):
        pattern[tuple(convert.to_coords(s)[0])] = 1.0  # what is stored, fills too
    made = np.einsum(subscripts, *dense)
    how = collisions.plan(given.nest)
    storages = dict(zip((t.name for t in given.nest.inputs), given.inputs, strict=True))
    first = [storages[a.tensor.name] for a in how.accesses]
    return made.sum() / np.count_nonzero(made), collisions.sampled(how, first, made.sum() / how.spread) * how.repeated


@pytest.mark.parametrize("forms", list(itertools.product(FORMATS, repeat=2)))
def test_sampled_rates_of_products(forms, large_samples):
    rng = np.random.default_rng(0)
    n = 600
    for coords in (mesh(n), clustered(n, rng), skewed(n, rng)):
        operands = [stored(coords, (n, n), form) for form in forms]
        for subscripts in ("ik,kj->ij", "ik,jk->ij", "ki,kj->ij"):
            true, found = rates(replace(point(subscripts, "ikj", "csr", operands), name=subscripts))
            assert found == pytest.approx(true, rel=0.35), (subscripts, true)


@pytest.mark.parametrize("form", ["csf", "coo", "(d,c,c)", "(c,c,c)@(2,1,0)", "(c,q,q)", "(c,c,d)"])
def test_sampled_rates_of_tensors(form, large_samples):
    rng = np.random.default_rng(1)
    shape = (40, 30, 20)
    X = stored(np.unique(rng.integers(0, shape, (6000, 3)), axis=0).T, shape, form)
    B = stored(np.unique(rng.integers(0, (20, 8), (60, 2)), axis=0).T, (20, 8), "csr")
    dense = convert.from_dense(np.ones((20, 8)), Format.parse("dense", 2), 0.0)
    for subscripts, operands in (
        ("ijk->ij", [X]),
        ("ijk->jk", [X]),
        ("ijk->k", [X]),
        ("ijk,kr->ijr", [X, B]),
        ("ijk,kr->ir", [X, B]),
        ("ijk,kr->ij", [X, dense]),
        ("ijk,kr->ijr", [X, dense]),
    ):
        given = point(subscripts, sorted(set(subscripts) - set(",->")), "coo", operands)
        if collisions.plan(given.nest) is None:  # nothing but a dense level to draw from
            assert (form, subscripts) == ("(c,c,d)", "ijk->k")
            continue
        true, found = rates(replace(given, name=subscripts))
        assert found == pytest.approx(true, rel=0.35), (subscripts, true)


def test_huge_extents():
    rng = np.random.default_rng(2)
    n = 1 << 40
    used = np.sort(rng.integers(0, n, 500))
    A = stored(used[rng.integers(0, 500, (2, 4000))], (n, n), "dcsr")
    pattern = np.zeros((500, 500))
    coords, _ = convert.to_coords(A)
    pattern[tuple(np.searchsorted(used, coords))] = 1.0
    given = point("ik,kj->ij", "ikj", "dcsr", [A, A])
    how = collisions.plan(given.nest)
    known = statistics.of(given.nest, given.inputs, exact=True)
    product = pattern @ pattern
    assert known.points == pytest.approx(product.sum(), rel=0.05)
    found = collisions.sampled(how, [A, A], known.points)
    assert found == pytest.approx(product.sum() / np.count_nonzero(product), rel=0.2)


def test_large_rows_are_thinned(monkeypatch):
    """Points are left out where there are too many, and what is left tells the same."""
    monkeypatch.setattr(collisions, "MOST", 600)
    monkeypatch.setattr(collisions, "FEWEST", 600)
    n = 600
    operands = [stored(mesh(n, 40), (n, n), "csr")] * 2
    true, found = rates(replace(point("ik,kj->ij", "ikj", "csr", operands), name="ik,kj->ij"))
    assert found == pytest.approx(true, rel=0.35)


def test_what_is_not_sampled():
    A = stored(mesh(50), (50, 50), "csr")
    bitmap = convert.convert(A, Format.parse("(d,b)", 2))
    assert collisions.plan(point("ik,kj->ij", "ikj", "csr", [A, A]).nest) is not None
    assert collisions.plan(point("ik,kj->ij", "ikj", "dense", [A, A]).nest) is None
    assert collisions.plan(point("ik,kj->ij", "ikj", "csr", [A, bitmap]).nest) is None
    assert collisions.plan(point("ij,ij->ij", "ij", "csr", [A, A]).nest) is None  # nothing is reduced


def test_warm_calls_observe_nothing(monkeypatch):
    """Sampled once per operands, and only where the product is large."""
    monkeypatch.setattr(collisions, "CALL", 0.0)
    monkeypatch.setattr(collisions, "SAMPLED", 0.0)
    calls = []
    sampled = collisions.sampled
    monkeypatch.setattr(collisions, "sampled", lambda *args: calls.append(args) or sampled(*args))
    n = 300
    A, B = (Array(stored(mesh(n, width), (n, n), "csr")) for width in (3, 3))
    product = sj.jit(lambda A, B: A @ B)
    for X, Y in ((A, B), (A, B), (B, A), (A, B), (B, A)):
        np.testing.assert_allclose(product(X, Y).todense(), X.todense() @ Y.todense())
    assert len(calls) == 2
    monkeypatch.setattr(collisions, "CALL", 1e9)
    C = Array(stored(mesh(n), (n, n), "csr"))
    product(C, C)
    assert len(calls) == 2


def test_arrays_of_a_kind_share_plans(monkeypatch, large_samples):
    monkeypatch.setattr(collisions, "CALL", 0.0)
    monkeypatch.setattr(collisions, "SAMPLED", 0.0)
    rng = np.random.default_rng(0)
    n = 400
    arrays = [Array(stored(clustered(n, rng), (n, n), "csr")) for _ in range(4)]
    apart = Array(stored(np.unique(rng.integers(0, n, (2, arrays[0].nnz)), axis=1), (n, n), "csr"))
    closed = sj.jit(lambda A, B: A @ B).trace(apart, apart).jaxpr
    (runner,) = plans.plan_of(closed).steps
    for A in arrays:
        plans.execute(closed, [A, A])
    assert len(runner.plans) == 1, [key[-1] for key in runner.plans]
    plans.execute(closed, [apart, apart])
    assert len(runner.plans) == 2
    (first, second) = (runner.planner.known(key[-1]) for key in runner.plans)
    assert first.collisions >= 2.0 * second.collisions
    assert all(x == 2.0 ** round(np.log2(x)) for x in (first.points, first.collisions))


def test_expected_entries_follow_what_was_observed():
    given = point("ik,kj->ij", "ikj", "csr", [stored(mesh(3000), (3000, 3000), "csr")] * 2)
    known = statistics.of(given.nest, given.inputs, exact=True)
    how = collisions.plan(given.nest)
    seen = replace(known, collisions=collisions.sampled(how, given.inputs, known.points))
    true = np.count_nonzero(convert.to_dense(given.inputs[0]) @ convert.to_dense(given.inputs[1]))
    assert search.level_counts(given.nest, seen)[-1] == pytest.approx(true, rel=0.05)
    assert search.level_counts(given.nest, replace(known, collisions=None))[-1] > 2 * true


def test_policies_follow_what_was_observed():
    """Insertions that meet often are worth a table; others are sorted."""
    given = workspace_points.insertions(200_000, 5_000, 1 << 20)
    order = tuple(cin.IndexVar(x) for x in "pij")
    known = statistics.of(given.nest, given.inputs)
    chosen = [counted.workspace(given.nest, replace(known, collisions=c), order) for c in (None, 32.0)]
    assert [c.policy for c in chosen] == ["coordinate", "hash"]


def test_idle_uses_cost_little():
    """eye @ eye takes about 25 microseconds, hypersparse rows that hold nothing a few nanoseconds each."""
    busy = workspace_price.costs(workspace_price.terms((1000,), 8, 1000.0, 1000.0, 1000.0))["bitmap"]
    few, many = (
        workspace_price.costs(workspace_price.terms((4096,), 8, 10.0, 10.0, uses))["bitmap"] for uses in (10.0, 1000.0)
    )
    assert busy < 50_000 and many - few < 20 * 990
    assert workspace_choice.choose((1000,), 8, 1000.0, 1000.0, 1000.0).policy == "bitmap"


def test_conversions_cost_calls_and_passes():
    """Small arrays cost what calls do; what is in order already is not sorted."""
    csr, csc, csf = (Format.parse(name, ndim) for name, ndim in (("csr", 2), ("csc", 2), ("csf", 3)))
    few, more = (conversion_price.cost(csr, csc, (100, 100), n) for n in (10.0, 100.0))
    assert few > 40_000 and more < 1.1 * few
    shape = (50, 50, 50)
    once, twice = (
        conversion_price.terms(csf, Format.parse(f"(c,c,c)@{o}", 3), shape, 1e5) for o in ("(2,0,1)", "(2,1,0)")
    )
    assert (once["call_sort"], twice["call_sort"]) == (1.0, 2.0)


def test_few_of_many_that_meet():
    """Where even degrees let nothing be expected, what is found counts, unless chance explains it."""
    n = 1 << 40
    rng = np.random.default_rng(0)
    used = rng.integers(0, n, 300)
    A = stored(used[rng.integers(0, 300, (2, 3000))], (n, n), "dcsr")
    alone = stored(rng.integers(0, n, (2, 3000)), (n, n), "dcsr")
    expected = A.nnz * A.nnz / n * skew.coupling(A, 1, A, 0)
    assert expected == pytest.approx(A.nnz * A.nnz / 300, rel=0.2)
    assert skew.coupling(alone, 1, alone, 0) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize(
    "n,places,hot", [(4000, 100, 0), (30_000, 937, 0), (30_000, 30_000, 0), (60_000, 20_000, 30_000)]
)
@pytest.mark.parametrize("extent", [1000, 2**31, 2**40])
def test_entries_of_one_operand_are_drawn(n, places, hot, extent):
    """Where what is reduced is stored outermost: from coordinates that are drawn once and twice; half of what it is where half of all
    entries are one coordinate's."""
    rng = np.random.default_rng(n)
    coords = rng.integers(0, extent, (2, places))[:, rng.integers(0, places, n)]
    coords[:, rng.permutation(n)[:hot]] = 7
    T = stored(np.concatenate([np.arange(n)[None], coords]), (n, extent, extent), "(c,q,q)")
    given = point("pij->ij", "pij", "coo", [T])
    how = collisions.plan(given.nest)
    assert how.alone
    true = n / np.unique(coords, axis=1).shape[1]
    assert collisions.sampled(how, [T], n) == pytest.approx(true, rel=0.5 if hot else 0.35)
