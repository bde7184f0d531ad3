"""Loops and branches over shards in one task, or in one for each part of a free axis: the same as on one machine, and taken where that costs less."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

dask = pytest.importorskip("dask", reason="dask is not installed: pip install 'sparsejax[dask]'")

import sparsejax.dask as sd  # noqa: E402
from sparsejax.dask import cuts, emit, together  # noqa: E402
from sparsejax.dask.axes import Classes  # noqa: E402
from sparsejax.jit.ir import choices  # noqa: E402

rng = np.random.default_rng(0)
N, K = 60, 7
S = sp.random_array((N, N), density=0.1, format="csr", rng=rng)
A = sj.array(S)
x, X, T = rng.random(N), rng.random((N, K)), rng.random((3, N, K))  # no term is negative, so that nothing cancels
ONES = np.ones((3, K))


def ranks(A, y):
    return sj.lax.fori_loop(0, 4, lambda k, z: 0.5 * (A @ z) + 0.15 * y, y)


def until(A, y):
    return sj.lax.while_loop(lambda c: c[1] < 3, lambda c: (A @ c[0] + snp.ones(c[0].shape), c[1] + 1), (y, 0))


def summed(A, y):
    """The predicate reads all, so that nothing is free."""
    return sj.lax.while_loop(lambda c: abs(c).sum() > 1e-3, lambda c: 0.1 * (A @ c), y)


def stacked(A, y):
    return sj.lax.scan(lambda c, r: (0.5 * (A @ c) + r, (c.sum(axis=0), c)), y, T)


def last_first(A, y):
    return sj.lax.scan(lambda c, r: (c * r, c + r), y, ONES, reverse=True)


def branch(A, y):
    return [sj.lax.cond(y.sum() > n, lambda: A @ y, lambda: (A.T @ y) * 2) for n in (0, 1e9)]


def nested(A, y):
    def inner(k, z):
        return sj.lax.cond(k > 1, lambda: A @ z, lambda: z + snp.zeros((N, 1)))

    return sj.lax.fori_loop(0, 2, lambda k, z: sj.lax.fori_loop(0, 3, inner, z) * 0.5, y)


def sparse(A, y):
    """A carry that is sparse, and a mask of its own."""
    return sj.lax.fori_loop(0, 3, lambda k, B: (B * 2 + A).asformat("csr"), A), y * 2


def slope(A, y):
    return sj.grad(lambda y: (ranks(A, y) ** 2).sum())(y)


def twice(A, y):
    """Two loops of one body, of which one is over a part of the columns."""

    def body(k, z):
        return A @ z

    return sj.lax.fori_loop(0, 2, body, y), sj.lax.fori_loop(0, 2, body, y * 2).sum(axis=1)


PROGRAMS = (ranks, until, summed, stacked, last_first, branch, nested, sparse, slope, twice)
WAYS = ("cheapest", "whole", "parts", "rounds")


def only(monkeypatch, way):
    """Of the ways to run a loop together, the first of this kind where there is one."""
    monkeypatch.setattr(emit, "_decided", {})
    kinds = {"whole": lambda t: t.stage.points == 1, "parts": lambda t: t.stage.points > 1}
    if way in kinds:
        monkeypatch.setattr(together, "pick", lambda ways: next(filter(kinds[way], ways), ways[0]))
    return {"cheapest": "auto", "rounds": "sharded_loops=rounds"}.get(way, "sharded_loops=together")


def operand(form):
    return A if form == "csr" else sj.array(S.toarray(), format=form)


@pytest.mark.rotating(12)
@pytest.mark.parametrize("cut", [{}, {"cols": 3}, {"rows": 4, "cols": 2}], ids=str)
@pytest.mark.parametrize("form", ["csr", "csc", "bsr:2x3"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program, way, form, cut, monkeypatch):
    """Types, formats, values; and the same bits on any of Dask's schedulers."""
    B = operand(form)
    wanted = sj.tree_util.tree_leaves(sj.jit(program)(B, X))
    with sj.config.using(choose=only(monkeypatch, way)):
        made = sd.jit(program)(sd.shard(B, rows=4), sd.shard(X, **cut) if cut else X)
    lazy = sj.tree_util.tree_leaves(made)
    found = dask.compute(*lazy, scheduler="sync")
    again = dask.compute(*lazy, scheduler="threads")
    for one, two, three in zip(wanted, found, again, strict=True):
        assert (one.shape, one.dtype, one.format) == (two.shape, two.dtype, two.format)
        np.testing.assert_allclose(two.todense(), one.todense(), rtol=1e-12)
        assert two.todense().tobytes() == three.todense().tobytes()


def test_every_alternative_is_taken(monkeypatch):
    for way in ("rounds", "together"):
        choices.TAKEN.clear()
        monkeypatch.setattr(emit, "_decided", {})
        with sj.config.using(choose=f"sharded_loops={way}"):
            sd.jit(ranks)(sd.shard(A, rows=2), x)
        assert choices.TAKEN["sharded_loops", way]


def parts(program, *arguments):
    return [
        line.split("[")[1].split("]")[0] for line in sd.explain(program)(*arguments).splitlines() if "[together" in line
    ]


def test_columns_are_free_and_rows_are_not():
    """Where all that meets is in one column, every task has some of the columns, through all rounds."""
    graph = sd.shard(A, rows=4)
    assert parts(ranks, graph, x) == ["together"]
    for cols, count in ((None, 4), (3, 3)):
        own = sd.shard(X, cols=cols) if cols else X
        with sj.config.using(choose="sharded_loops=together"):
            jaxpr = sj.jit(ranks).trace(A, X).jaxpr.jaxpr
            classes = Classes(emit.cleaned(jaxpr))
            assert [classes.free(jaxpr.inputs[1], d) for d in (0, 1)] == [False, True]
            assert not any(classes.free(jaxpr.inputs[0], d) for d in (0, 1))
            ways = together_ways(ranks, graph, own)
        assert (1, (0, N)) in ways and any(points == count for points, _ in ways)


def together_ways(program, *arguments):
    """The number of tasks, and the cut, of every way to run the only loop of a program together."""
    found = []

    def pick(ways):
        found.extend((t.stage.points, t.stage.grid[0] if t.stage.grid else (0, N)) for t in ways)
        return ways[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emit, "_decided", {})
        patch.setattr(together, "pick", pick)
        sd.jit(program)(*arguments)
    return found


def outlined(n, entries, blocks):
    """A square matrix in shards of rows, without data."""
    own = (cuts.even(n, blocks), (0, n))
    counts = np.full((blocks, 1), max(1, int(entries / blocks)))
    aval = sj.core.avals.Aval((n, n), np.dtype("f8"), sj.formats.Format.parse("csr", 2))
    empty = sd.Sharded(aval, own, "outlined", {}, counts)
    return sd.Sharded(aval, own, "outlined", dict.fromkeys(empty.__dask_keys__()), counts)


@pytest.mark.parametrize(
    ("n", "entries", "blocks", "taken"),
    [
        (80_000, 1e6, 2, True),  # a round is a millisecond of work, and three of waiting
        (80_000, 1e6, 120, True),
        (1_000_000, 4e7, 2, False),  # 20 ms of work on each of two workers
        (4_000_000, 2e8, 120, False),  # three times the memory of two workers of 400 MB
    ],
)
def test_the_cheaper_is_taken(n, entries, blocks, taken):
    found = parts(lambda A: sj.lax.fori_loop(0, 10, lambda k, y: A @ y, np.ones(n)), outlined(n, entries, blocks))
    assert bool(found) == taken


def test_what_comes_together_fits():
    """However many rounds it takes: no task reads more than four of the largest blocks, or 32 MB."""
    A = outlined(2_000_000, 5e6, 60)  # 1 MB a block, 60 MB in all
    assert not parts(lambda A: sj.lax.fori_loop(0, 50, lambda k, y: A @ y, np.ones(2_000_000)), A)


def test_lines_do_not_make_programs():
    """Equal loops on other lines have one text."""
    first = sd.jit(lambda A, y: sj.lax.fori_loop(0, 4, lambda k, z: A @ z, y))
    second = sd.jit(lambda A, y: sj.lax.fori_loop(0, 4, lambda k, z: A @ z, y))
    graph = sd.shard(A, rows=2)
    texts = {
        node.args[0]
        for f in (first, second)
        for node in f(graph, x)._graph.values()
        if getattr(node, "func", None) is not None
        and node.args
        and isinstance(node.args[0], str)
        and "jaxpr" in node.args[0]
    }
    assert len(texts) == 1
