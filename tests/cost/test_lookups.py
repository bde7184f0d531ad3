"""Index arrays as coordinates (`cost/lookups`): what is told of the rows that they name, in the order of their visits, and what prices make of it."""

import dataclasses
import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit import pipeline
from sparsejax.jit.cost import lookups, spreads
from sparsejax.jit.graph import fuse
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.schedule import search, tile_waits, tiled_loops
from sparsejax.lax.indirect.index_arrays import positions
from tests.golden import kernels

ROWS, COLUMNS = 6_000, 128
GROUPS = "C[R[p],n] += V[p,q] * B[K[p,q],n]"
BLOCKS = "C[R[p],i,n] += V[p,i,j] * B[K[p],j,n]"
FLAT = "C[R[p],n] += V[p] * B[K[p],n]"


@pytest.fixture(autouse=True)
def processor():
    with sj.config.using(machine="granite_rapids", num_threads=1):
        yield


def band(rng, each=15, width=64):
    """Rows and columns of a matrix whose rows have entries near the diagonal, by rows."""
    rows = np.repeat(np.arange(ROWS), each)
    return rows, np.clip(rows + rng.integers(-width, width, len(rows)), 0, ROWS - 1)


def told(sequence, extent):
    """The share of what is new, and the share of the extent that is spanned, in windows of what is visited one after the other."""
    windows = [np.sort(sequence[k : k + spreads.WINDOW]) for k in spreads.starts(len(sequence))]
    new = np.mean([len(np.unique(w)) for w in windows]) / spreads.WINDOW
    return new, np.mean([w[-1] - w[0] + 1 for w in windows]) / extent


@pytest.mark.parametrize("form", ["targets", "csr", "pairs", "own"])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("axes", [(), (4,), (3, 2)])
def test_windows_are_of_what_is_visited(form, shuffled, axes):
    """Whatever the order of the entries: those of a shuffled array lie near each other where something names them so."""
    rng = np.random.default_rng(len(axes))
    rows, columns = band(rng, each=12)
    if shuffled:
        order = rng.permutation(len(rows))
        rows, columns = rows[order], columns[order]
    K = (columns[(...,) + (None,) * len(axes)] + rng.integers(0, 3, axes)) % ROWS
    index = sj.array(K).storage
    inner = K.size // len(K)
    if form == "own":
        visited = K.reshape(-1)
        found = lookups.spread(lookups.Lookup(0, ROWS, -1, (-1,) * K.ndim), [index])
    else:
        if form == "targets":
            leader = positions(sj.array(rows), ROWS).storage
        else:
            shape = (ROWS, len(rows)) if form == "csr" else (2, ROWS, len(rows))
            coords = (*(np.zeros_like(rows) for _ in shape[2:]), rows, np.arange(len(rows)))
            leader = sj.array((np.ones(len(rows)), coords), shape=shape, format="csr" if form == "csr" else "(d,q,q)")
            leader = leader.storage
        level = len(leader.format.levels) - 1
        visited = K[leader.buffers[level][-1]].reshape(-1)
        found = lookups.spread(lookups.Lookup(1, ROWS, 0, (level,) + (-1,) * len(axes)), [leader, index])
    new, among = told(visited, ROWS)
    assert new / 1.5 < found.new < 1.5 * new, (found, new, inner)
    assert among / 2.5 < found.among < 2.5 * among or (found.among == 1 and among > 0.1), (found, among)


def test_few_entries_and_long_segments_tell_nothing():
    few = sj.array(np.zeros(spreads.LEAST - 1, int)).storage
    assert lookups.spread(lookups.Lookup(0, ROWS, -1, (-1,)), [few]) == spreads.EVEN
    many = np.arange(1 << 16) // 64
    leader = sj.array((np.ones(len(many)), (many % 2 * 0, np.arange(len(many)))), shape=(1, len(many)), format="csr")
    found = lookups.spread(lookups.Lookup(1, ROWS, 0, (1,)), [leader.storage, sj.array(many).storage])
    assert found == spreads.EVEN


def groups(matrix):
    """A statement over the arrays of a matrix in groups, and their product as `A @ B`."""
    G, B = sj.array(matrix).asformat("groupcoo"), sj.array(np.ones((ROWS, COLUMNS), np.float32))
    R, K, V = (sj.array(x) for x in sj.formats.to_groupcoo(G))
    start = snp.zeros((ROWS, COLUMNS), np.float32)
    return (lambda **a: sj.insum(GROUPS, C=start, **a), {"R": R, "K": K, "V": V, "B": B}), (lambda A, B: A @ B, (G, B))


def expected(explained):
    """The seconds that kernels are expected to take."""
    return sum(step.times.expected for step in explained.steps if hasattr(step, "times"))


def matrix(rows, columns):
    return sp.csr_array((np.ones(len(rows), np.float32), (rows, columns)), (ROWS, ROWS))


@pytest.mark.parametrize("where", ["band", "often", "anywhere"])
def test_a_statement_costs_what_a_product_does(where):
    rng = np.random.default_rng(3)
    rows, columns = band(rng)
    if where == "often":
        columns = (ROWS * rng.random(len(rows)) ** 4).astype(int)
    if where == "anywhere":
        columns = rng.integers(0, ROWS, len(rows))
    (statement, named), (product, given) = groups(matrix(rows, columns))
    ours, theirs = expected(sj.explain(statement)(**named)), expected(sj.explain(product)(*given))
    assert 0.8 * theirs < ours < 1.25 * theirs


def test_rows_that_lie_near_cost_less():
    rng = np.random.default_rng(4)
    near = np.sort(rng.integers(0, ROWS, 1 << 16))
    B, gather = sj.array(np.ones((ROWS, 512), np.float32)), lambda K, B: snp.take(B, K, axis=0)
    least, most = (expected(sj.explain(gather)(sj.array(K), B)) for K in (near, rng.permutation(near)))
    assert least < 0.9 * most


def test_rows_of_blocks_are_more_than_comes_again_in_time():
    """Windows see names of few blocks again and again, of which the second cache does not hold so many: tiles wait as if nothing was known of them."""
    entries, count, block, columns = 1 << 16, 512, 8, 512
    index = sj.ShapeDtypeStruct((entries,), np.int32)
    V, B = (sj.ShapeDtypeStruct(n, np.float32) for n in ((entries, block, block), (count, block, columns)))
    f = sj.jit(
        lambda R, K, V, B: sj.insum(BLOCKS, C=snp.zeros((count, block, columns), np.float32), R=R, K=K, V=V, B=B)
    )
    steps = fuse.fuse(pipeline.cleaned(f.trace(index, index, V, B).jaxpr.jaxpr))
    (planner,) = [KernelRunner.of(s).planner for s in steps if hasattr(s, "nest")]
    known = planner.known(_even(KernelRunner.of(planner.step)))
    near = dataclasses.replace(known, lookups=dict.fromkeys(known.lookups, spreads.Spread(0.5, 1.0)))
    assert near.lookups
    seen = 0
    plain, told = (search.model(planner.plain, facts) for facts in (dataclasses.replace(known, lookups={}), near))
    for order in itertools.permutations(planner.plain.variables):
        tiles = [tiled_loops.tiles(model, order) for model in (plain, told)]
        if tiles[0] is not None:
            (own, other) = (tile_waits.Waits(m, t) for m, t in zip((plain, told), tiles, strict=True))
            arrays = zip(plain.waiting.layouts, told.waiting.layouts, strict=True)
            assert all(own.lines(a) == other.lines(b) for a, b in arrays)
            for a in (a for a in plain.waiting.layouts if a.computed and len(own.loops(a).depths) > len(a.indices)):
                assert own.lines(a)[-2].among >= 4 * count * block * columns  # all of it, also where strips are loops
                seen += 1
    assert seen


@pytest.fixture
def schedules(monkeypatch):
    """How often something is scheduled."""
    seen, schedule_of = [], pipeline.schedule_of
    monkeypatch.setattr(pipeline, "schedule_of", lambda *a: seen.append(a) or schedule_of(*a))
    return seen


def test_arrays_of_one_kind_share_a_plan(schedules):
    """What index arrays name decides the plan, of traced ones too; another array that is like one of before plans nothing."""
    rng = np.random.default_rng(5)
    f = sj.jit(lambda R, K, V, B: sj.insum(FLAT, C=snp.zeros((ROWS, COLUMNS), np.float32), R=R, K=K, V=V, B=B))
    B = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    counts = []
    for k in range(8):
        rows, columns = band(rng)
        columns = columns if k % 2 else rng.integers(0, ROWS, len(rows))
        V = rng.standard_normal(len(rows)).astype(np.float32)
        made = f(sj.array(rows), sj.array(columns), sj.array(V), sj.array(B))
        want = sp.csr_array((V, (rows, columns)), (ROWS, ROWS)) @ B
        np.testing.assert_allclose(made.todense(), want, rtol=1e-4, atol=1e-3)
        counts.append(len(schedules))
    assert 0 < counts[0] < counts[1] == counts[-1], counts


def test_one_leader_after_another(schedules):
    """The same index array is visited in the order of other targets: what was told in the first order says nothing of the second."""
    rng = np.random.default_rng(6)
    rows, columns = band(rng)
    K, step = sj.array(columns).storage, positions(sj.array(rows), ROWS).storage
    anywhere = positions(sj.array(rng.permutation(rows)), ROWS).storage
    how = lookups.Lookup(1, ROWS, 0, (1,))
    near, far, again = (lookups.spread(how, [leader, K]) for leader in (step, anywhere, step))
    assert near == again != far == spreads.EVEN


def test_index_arrays_of_kernels():
    """Of many entries, with whatever may lead them; not those that other arrays index."""
    many, few = sj.ShapeDtypeStruct((1 << 16,), np.int64), sj.ShapeDtypeStruct((100,), np.int64)
    V, B = (sj.ShapeDtypeStruct(shape, np.float32) for shape in ((1 << 16,), (ROWS, 8)))
    found = {}
    for name, f, types in (
        ("gather", lambda K, B: snp.take(B, K, axis=0), (many, B)),
        ("few", lambda K, B: snp.take(B, K, axis=0), (few, B)),
        (
            "scatter",
            lambda R, K, V, B: sj.insum(FLAT, C=snp.zeros((ROWS, 8), np.float32), R=R, K=K, V=V, B=B),
            (many, many, V, B),
        ),
    ):
        steps = fuse.fuse(pipeline.cleaned(sj.jit(f).trace(*types).jaxpr.jaxpr))
        runners = [KernelRunner.of(s) for s in steps if hasattr(s, "nest")]
        found[name] = [[(k[1], bool(k[2])) for k in r.runnable.lookups] for r in runners]
        assert all(search.choose(r.planner.plain, r.planner.known(_even(r))) for r in runners)
    assert found == {"gather": [[(ROWS, False)]], "few": [[]], "scatter": [[(ROWS, False), (ROWS, True)]]}


def _even(runner):
    return kernels.observed(runner, 4.0)
