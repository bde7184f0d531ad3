"""Partial results: put together in one place or a part in every place, with other equations in one task; layouts that every stage makes for itself."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

dask = pytest.importorskip("dask", reason="dask is not installed: pip install 'sparsejax[dask]'")
pytest.importorskip("dask.array")

import sparsejax.dask as sd  # noqa: E402
from sparsejax.core.avals import Aval  # noqa: E402
from sparsejax.dask import cuts, emit, plan  # noqa: E402

rng = np.random.default_rng(3)
N = 70
S = sp.random_array((N, N), density=0.08, format="csr", rng=rng)
D = S.toarray()
A = sj.array(S)
X = rng.normal(size=(N, 6))
x = rng.normal(size=N)
GRIDS = {
    "columns": {"cols": 5},
    "both": {"rows": 2, "cols": 3},
    "uneven": {"rows": (0, 1, 60, N), "cols": (0, 3, 4, N)},
    "many": {"cols": 20},
    "one": {"rows": 1, "cols": (0, 69, N)},
}
PROGRAMS = {
    "vector": (lambda A: A @ x, lambda: D @ x),
    "features": (lambda A: snp.maximum(A @ X, 0) + 1, lambda: np.maximum(D @ X, 0) + 1),
    "sparse": (lambda A: (A @ A) * 2, lambda: D @ D * 2),
    "transposed": (lambda A: A.T @ (A @ x), lambda: D.T @ (D @ x)),
    "sums": (lambda A: A.sum(axis=1) + A.sum(axis=0), lambda: D.sum(1) + D.sum(0)),
    "maxima": (lambda A: A.max(axis=1), lambda: D.max(1)),
    "rounds": (lambda A: sj.lax.fori_loop(0, 3, lambda k, y: A @ y + 1, x), lambda: rounds(x)),
    "gradient": (sj.grad(lambda A: ((A @ X) ** 2).sum()), lambda: (D != 0) * (2 * (D @ X) @ X.T)),
}


def rounds(y):
    for _ in range(3):
        y = D @ y + 1
    return y


def taken(monkeypatch, wanted):
    """Of ways to cut an equation, the first that is `wanted`, where there is one."""
    monkeypatch.setattr(emit, "_plans", {})
    seen = []

    def pick(choices):
        found = [c for c in choices if wanted(c)]
        seen.extend(found[:1])
        return (found or choices)[0]

    monkeypatch.setattr(plan.Plan, "pick", staticmethod(pick))
    return seen


@pytest.mark.rotating(3)
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_scattered_is_reduced(name, grid, monkeypatch, in_rounds):
    """The same as NumPy's, and the same bits as in one place: every entry is added in the same order."""
    function, expected = PROGRAMS[name]
    made = sd.shard(A, **GRIDS[grid])
    results = []
    for scatter in (True, False):
        seen = taken(monkeypatch, lambda c, scatter=scatter: c.partial and (c.scatter is not None) == scatter)
        results.append(sd.jit(function)(made).compute(scheduler="sync"))
        assert seen
        np.testing.assert_allclose(results[-1].todense(), expected(), rtol=1e-9, atol=1e-12)
        assert results[-1].format == sj.jit(function)(A).format
    if name in ("vector", "sparse", "sums", "maxima"):
        assert results[0].todense().tobytes() == results[1].todense().tobytes()


def test_result_in_shards(monkeypatch):
    taken(monkeypatch, lambda c: c.scatter is not None)
    made = sd.jit(lambda A: A @ X)(sd.shard(A, cols=5))
    assert made.grid == (5, 1)
    assert "-scatter" in " ".join(str(k) for k in made.__dask_graph__())


def outlined(shape, form, entries, own):
    """An array in shards without data."""
    aval = Aval(shape, np.dtype("f8"), sj.formats.Format.parse(form, len(shape)))
    counts = np.full([len(c) - 1 for c in own], max(1, int(entries / np.prod([len(c) - 1 for c in own]))))
    empty = sd.Sharded(aval, own, "outlined", {}, counts)
    return sd.Sharded(aval, own, "outlined", dict.fromkeys(empty.__dask_keys__()), counts)


def test_the_cheaper_is_taken():
    """A large result in every place, a small one in one place; the text says so, with bytes and what the other would have cost."""
    n = 40_000_000
    big = outlined((n, n), "csr", 1.5e9, (cuts.even(n, 4), cuts.even(n, 4)))
    ranks = sd.jit(lambda A: sj.lax.fori_loop(0, 3, lambda k, y: A @ y, np.ones(n)))
    assert "contract [i/4 j/4 to i/16]" in ranks.explain(big)
    assert "the result reduce-scatter 960 MB" in ranks.explain(big)
    small = sd.jit(lambda A: A @ x).explain(sd.shard(A, cols=5))
    assert "reduce-scatter" not in small


def reads(lazy, name):
    """How many tasks read every block of an array."""
    graph = lazy.__dask_graph__()
    return [sum(k in node.dependencies for node in graph.values()) for k in graph if k[0] == name]


def step(A, W):
    return sj.value_and_grad(lambda W: (snp.maximum(A @ (X @ W), 0) ** 2).sum())(W)


@pytest.fixture
def cut_all(monkeypatch):
    """Small arrays are cut as large ones are."""
    taken(monkeypatch, lambda c: bool(c.split) and c.scatter is None)


def test_a_block_is_read_once(cut_all):
    """The loss and the derivative of a layer are made by one task for each block: nothing waits for the whole loss."""
    W = rng.normal(size=(6, 3))
    loss, slope = sd.jit(step)(sd.shard(A, rows=4), W)
    assert reads(slope, sd.shard(A, rows=4).name) == [1] * 4
    found = [r.todense() for r in dask.compute(loss, slope, scheduler="sync")]
    Z = D @ (X @ W)
    np.testing.assert_allclose(found[0], (np.maximum(Z, 0) ** 2).sum())
    np.testing.assert_allclose(found[1], X.T @ (D.T @ (2 * np.maximum(Z, 0))))


def test_layouts_are_made_where_they_are_read(cut_all, in_rounds):
    made = sd.jit(lambda A, x: sj.lax.fori_loop(0, 2, lambda k, x: A.T @ (A @ x), x))(sd.shard(A, rows=4), x)
    assert reads(made, sd.shard(A, rows=4).name) == [2] * 4
    assert not any(str(k[0]).startswith("transpose-0") for k in made.__dask_graph__())
    np.testing.assert_allclose(made.compute(scheduler="sync").todense(), D.T @ (D @ (D.T @ (D @ x))))


def test_layouts_that_are_results(cut_all):
    B, y = sd.jit(lambda A, x: (A.T, A.T @ x + snp.broadcast_to(x.sum(), (N,))))(sd.shard(A, rows=4), x)
    np.testing.assert_allclose(B.compute(scheduler="sync").todense(), D.T)
    np.testing.assert_allclose(y.compute(scheduler="sync").todense(), D.T @ x + x.sum())
