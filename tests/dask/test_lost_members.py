"""A worker ends in the middle of a gang, wherever its member is: all parts are made again with the same bits, or an error says what was lost."""

import time

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install 'sparsejax[dask]'")

import sparsejax.dask as sd  # noqa: E402
from sparsejax.dask import sharded  # noqa: E402
from tests.dask import clusters  # noqa: E402

rng = np.random.default_rng(0)
N = 3000
S = sp.random_array((N, N), density=0.004, format="csr", rng=rng)
B = sj.array(sp.random_array((N, N), density=0.001, format="csr", rng=rng))
A, X, W = sj.array(S), rng.random((N, 16)), rng.random((16, 16))
x = np.full(N, 1 / N)


def ranks(A, x):
    return sj.lax.fori_loop(0, 5, lambda k, y: 0.85 * (A @ y) + 0.15 / N, x)


def layers(A, X, W):
    return A @ (snp.maximum(A @ (X @ W), 0) @ W)


def spgemm(A):
    """The second product reads rows of the first that the other member has made."""
    return A @ (A @ A)


GIVEN = {"ranks": (x,), "layers": (X, W), "spgemm": ()}
POINTS = [
    ("meet", 1),
    ("_share", 1),
    ("_made", 1),
    ("_made", 2),
    ("_send", 1),
    ("_wait", 1),
    ("_all_arrived", 1),
    ("close", 1),
]
"""A method of a member, and in which of its calls the worker ends."""


def ganged():
    return sj.config.using(choose="sharded_loops=rounds,sharded_tasks=gang")


def apart():
    return sj.config.using(choose="sharded_loops=rounds,sharded_tasks=apart")


def given(program, rows):
    graph = sd.shard(B if program is spgemm else A, rows=rows)
    return graph, *(sd.shard(a, rows=graph.cuts[0]) if a is X else a for a in GIVEN[program.__name__])


@pytest.mark.rotating(2)
@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("program", [spgemm, ranks, layers])
def test_a_member_is_lost(program, point, client):
    operands = given(program, 2)
    with apart():
        wanted = sd.jit(program)(*operands).compute()
    with ganged():
        lazy = sd.jit(program)(*operands)
        gang = lazy.gang()
        assert gang is not None and gang.count == 2
        lost = min(gang.homes.values())
        client.run(clusters.dying, *point, workers=[lost])
        found = client.compute(lazy).result(timeout=120)
    clusters.whole(client, lost)
    assert found.todense().tobytes() == wanted.todense().tobytes()


@pytest.mark.parametrize("how", [ganged, apart])
def test_a_late_loss(how, client, monkeypatch):
    """Of a worker that has made all its blocks, while the client has fetched the first eight of them and let go of these."""
    operands = given(ranks, 2 * sharded.BATCH)
    with apart():
        wanted = sd.jit(ranks)(*operands).compute()
    gather, lost = client.gather, []

    def gathered(futures, *arguments, **options):
        made = gather(list(futures), *arguments, **options)
        if not lost:
            last, until = lazy.__dask_keys__()[-1], time.monotonic() + 100
            while not lost:  # it may be made later than those that are here
                assert time.monotonic() < until
                lost.extend(w for w, held in client.has_what().items() if last in held)
            clusters.killed(client, lost[0])
        return made

    monkeypatch.setattr(client, "gather", gathered)
    with how():
        lazy = sd.jit(ranks)(*operands)
        assert (lazy.gang() is None) == (how is apart)
        with client.as_current():
            found = lazy.compute()
    assert lost and found.todense().tobytes() == wanted.todense().tobytes()


def test_large_blocks_are_lost(client):
    """Those that were sent to a worker once: an error that says so, and no wait without end."""
    wide = rng.random((N, 100))
    with ganged():
        own = sd.shard(wide, rows=2)
        lazy = sd.jit(lambda X: snp.tanh(X) @ (X.T @ X))(own)
        gang = lazy.gang()
        assert gang is not None
        lost = min(gang.homes.values())
        client.run(clusters.dying, "_made", 1, workers=[lost])
        with pytest.raises(distributed.client.FutureCancelledError, match=r"lost dependencies|cancelled"):
            client.compute(lazy).result(timeout=120)
    clusters.whole(client, lost)
