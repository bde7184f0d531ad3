"""Tasks run beside the block that stays, however much is moved to them; blocks of equal cuts lie beside each other."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj

dask = pytest.importorskip("dask", reason="dask is not installed: pip install 'sparsejax[dask]'")
distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install 'sparsejax[dask]'")

import sparsejax.dask as sd  # noqa: E402
from sparsejax.dask import emit, places  # noqa: E402

rng = np.random.default_rng(3)


def skewed(rows=4000, wide=200):
    """Half of the entries in a few rows."""
    few = sp.random_array((wide, rows), density=0.2, format="csr", rng=rng)
    many = sp.random_array((rows - wide, rows), density=0.2 * wide / (rows - wide), format="csr", rng=rng)
    return sp.csr_array(sp.vstack([few, many]))


@pytest.mark.parametrize("columns", [8, 64])
def test_tasks_are_beside_their_block(client, columns):
    """All but a few rows of X are in one part: Dask alone would run both tasks of the product there."""
    S, X, W = skewed(), rng.normal(size=(4000, columns)), rng.normal(size=(columns, columns))
    A = sd.shard(S, rows=2)
    assert A.cuts[0][1] < 1000
    H = sd.shard(X, rows=A.cuts[0])
    assert list(A.homes.values()) == list(H.homes.values()) == list(places.seats(client))
    kept = sd.jit(lambda A, H, W: A @ (H @ W))(A, H, W).persist()
    distributed.wait(client.futures_of(kept))
    holders = client.who_has(client.futures_of(kept))
    assert [holders[key][0] for key in kept.__dask_keys__()] == list(places.seats(client))
    again = sd.jit(lambda A, Y: A @ Y)(A, kept)
    assert all(
        again.homes[key] == kept.homes[before]
        for key, before in zip(again.__dask_keys__(), kept.__dask_keys__(), strict=True)
    )
    np.testing.assert_allclose(again.compute().todense(), S @ (S @ (X @ W)), rtol=1e-9)


def test_a_lost_home(client):
    """Another worker runs what was asked of one that is gone."""
    S = sp.random_array((50, 50), density=0.2, format="csr", rng=rng)
    A = sd.shard(S, rows=2)
    A.homes = dict.fromkeys(A.homes, "tcp://127.0.0.1:1")
    np.testing.assert_allclose(sd.jit(lambda A: A * 2)(A).compute().todense(), S.toarray() * 2)


def test_other_schedulers_are_refused(client):
    """Blocks that lie on workers are not computed by a scheduler of this process."""
    A = sd.shard(np.ones((800, 500)), rows=2)  # above a megabyte, so that they are sent
    doubled = sd.jit(lambda A: A * 2)(A)
    for run in (A.compute, doubled.compute, doubled.persist):
        with pytest.raises(
            ValueError, match="scheduler='sync' runs tasks in this process, but blocks of this array lie on"
        ):
            run(scheduler="sync")
    with dask.config.set(scheduler="threads"), pytest.raises(ValueError, match="scheduler='threads' runs tasks"):
        doubled.compute()
    np.testing.assert_array_equal(doubled.compute(scheduler=client).todense(), np.full((800, 500), 2.0))
    np.testing.assert_array_equal(doubled.compute(scheduler="distributed").todense(), np.full((800, 500), 2.0))


def test_dasks_own_compute_says_where_blocks_lie(client):
    """Also where Dask is called with a scheduler of this process, which it does not tell to arrays."""
    A = sd.shard(np.ones((800, 500)), rows=2)
    doubled = sd.jit(lambda A: A * 2)(A)
    small = sd.jit(lambda A: A * 2)(sd.shard(np.ones((4, 4)), rows=2))  # travels with the graph
    kept = small.persist()
    for scheduler in ("sync", "threads"):
        for lazy in (A, doubled, kept, sd.jit(lambda A: A + 1)(kept), doubled.to_dask_array()):
            with pytest.raises(
                ValueError, match=r"such as 'sync'.* runs tasks in this process, but blocks of this array lie on the"
            ):
                dask.compute(lazy, scheduler=scheduler)
        found, _ = dask.compute(small, small, scheduler=scheduler)
        np.testing.assert_array_equal(found.todense(), np.full((4, 4), 2.0))
    np.testing.assert_array_equal(dask.compute(doubled)[0].todense(), np.full((800, 500), 2.0))


def test_names_of_layers():
    """Equal graphs have equal names."""
    homes = {("x", 0): "a"}
    one, two, other = (places.annotated(g, homes) for g in ({("x", 0): 1}, {("x", 0): 1}, {("x", 0): 1, ("y", 0): 2}))
    assert list(one.layers) == list(two.layers) != list(other.layers)


def test_seats():
    assert [places.home(k, 3, ("a", "b")) for k in range(3)] == ["a", "a", "b"]
    assert places.home(0, 1, ("a", "b")) is None
    assert places.home(0, 2, ()) is None
    assert places.seats(None) == ()


def test_rows_cost_beside_their_entries():
    S = skewed()
    by_entries, by_rows = (sd.shard(S, rows=2, row_cost=c).cuts[0][1] for c in (0, 1e9))
    between = sd.shard(S, rows=2, row_cost=20).cuts[0][1]
    assert by_entries < between < by_rows == 2000
    work = np.diff(S.indptr) + 20
    assert abs(work[:between].sum() - work[between:].sum()) <= work.max()
    for wrong in (-1, np.inf, np.nan, "5", [1]):
        with pytest.raises(ValueError, match=r"row_cost=.*must be a number of entries"):
            sd.shard(S, rows=2, row_cost=wrong)
    np.testing.assert_array_equal(sd.shard(sj.array(S), rows=3, row_cost=2.5).compute().todense(), S.toarray())


def test_rows_cost_each_its_own():
    """Parts of a product of as many multiplications, on a drawn graph on which parts of as many entries are not."""
    S = skewed()
    each = np.asarray(sp.csr_array(S.astype(bool), dtype=np.int64) @ np.diff(S.indptr)[: S.shape[1]])
    cut = sd.shard(S, rows=2, row_cost=each).cuts[0][1]
    work = np.diff(S.indptr) + each
    assert abs(work[:cut].sum() - work[cut:].sum()) <= work.max()
    assert cut != sd.shard(S, rows=2).cuts[0][1]
    for wrong in (each[1:], -each - 1, each.astype(complex), each > 0, np.zeros((len(each), 1))):
        with pytest.raises(ValueError, match=rf"row_cost=.*one for each of the {S.shape[0]} rows"):
            sd.shard(S, rows=2, row_cost=wrong)


def test_small_operands_travel_in_tasks(monkeypatch):
    """A dense operand of few bytes is no task of its own; one whose copies would be many, one that is cut, and one that is a result are."""
    S = skewed()
    n, rng = S.shape[0], np.random.default_rng(0)
    W, x = rng.normal(size=(S.shape[1], 3)), rng.normal(size=n)
    A = sd.shard(S, rows=4)
    for most, nodes in ((emit.SMALL, 0), (4 * W.nbytes, 0), (4 * W.nbytes - 1, 1), (W.nbytes - 1, 1)):
        monkeypatch.setattr(emit, "SMALL", most)
        made = sd.jit(lambda A, W: A @ W)(A, W)
        assert sum(str(key[0]).startswith("const-") for key in made._graph) == nodes
        np.testing.assert_allclose(made.compute(scheduler="sync").todense(), S @ W, rtol=1e-9, atol=1e-9)
    monkeypatch.undo()
    scaled, same, both = dask.compute(*sd.jit(lambda A, x, W: (A * x[:, None], x, A @ W))(A, x, W), scheduler="sync")
    np.testing.assert_allclose(scaled.todense(), S.toarray() * x[:, None])
    np.testing.assert_array_equal(same.todense(), x)
    np.testing.assert_allclose(both.todense(), S @ W, rtol=1e-9, atol=1e-9)


def test_a_client_that_is_closed(client, monkeypatch):
    """Says so, where Dask would miss a key."""
    from sparsejax.dask import sharded

    kept = sd.jit(lambda x: x * 2)(sd.shard(np.ones(9), rows=3)).persist()
    monkeypatch.setattr(sharded, "current_client", lambda: None)
    for use in (kept.compute, kept.persist):
        with pytest.raises(ValueError, match="its client is closed"):
            use()
    monkeypatch.undo()
    assert kept.compute().sum().item() == 18
