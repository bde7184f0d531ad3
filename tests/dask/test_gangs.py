"""Tasks of one worker as one, which pass results to each other: the same bits as apart, nothing hangs, errors are those of the program."""

import os
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install 'sparsejax[dask]'")

import sparsejax.dask as sd  # noqa: E402
from sparsejax.dask import gangs, lending, members, places  # noqa: E402

rng = np.random.default_rng(0)
N = 3000
S = sp.random_array((N, N), density=0.004, format="csr", rng=rng)
A, X, W = sj.array(S / 10), rng.random((N, 8)), rng.random((8, 8))
x = np.full(N, 1 / N)


def ganged():
    return sj.config.using(choose="sharded_loops=rounds,sharded_tasks=gang")


def apart():
    return sj.config.using(choose="sharded_loops=rounds,sharded_tasks=apart")


def ranks(A, x):
    return sj.lax.fori_loop(0, 5, lambda k, y: 0.85 * (A @ y) + 0.15 / N, x)


def layers(A, X, W):
    return A @ (snp.maximum(A @ (X @ W), 0) @ W)


def loss(A, X, W):
    return (snp.maximum(A @ (X @ W), 0) ** 2).sum(axis=1)


def product(A):
    return A @ A.T


@pytest.mark.parametrize("program", [ranks, layers, loss, product])
@pytest.mark.parametrize("rows", [2, 5])
def test_bits(program, rows, client):
    """Those of tasks apart, also with more shards than workers."""
    graph = sd.shard(A, rows=rows)
    own = {"ranks": (x,), "product": ()}.get(program.__name__, (sd.shard(X, rows=graph.cuts[0]), W))
    with apart():
        wanted = sd.jit(program)(graph, *own).compute().todense()
    with ganged():
        lazy = sd.jit(program)(graph, *own)
        gang = lazy.gang()
        assert gang is not None and gang.count == 2
        assert "gang: 2 tasks" in sd.explain(program)(graph, *own)
        for made in (lazy, lazy.persist()):
            assert made.compute().todense().tobytes() == wanted.tobytes()
    assert lazy.compute(scheduler="threads").todense().tobytes() == wanted.tobytes()


def lend(does):
    """Let a worker lend what it sends to processes of its computer, or not, and count what it lends from now on."""
    lending._computer = lending_of_this.get("computer", lending._computer)
    lending_of_this.setdefault("computer", lending._computer)
    send = lending_of_this.setdefault("send", lending.Post.send)
    lending_of_this["lent"] = []

    def counted(self, place, about, block):
        made = send(self, place, about, block)
        if about[0] == members.RESULT:
            lending_of_this["lent"].append((made, getattr(block, "nbytes", lending.LARGE)))
        return made

    def nowhere():
        raise OSError("not here")

    lending.Post.send = counted
    if not does:
        lending._computer = nowhere


lending_of_this = {}


@pytest.mark.skipif(not lending.Post().place, reason="the system has no files in memory, or no names of sockets")
def test_what_is_lent(client):
    """All that members on one computer send each other, and with the same bits as what is sent to another one."""
    graph, wide = sd.shard(A, rows=2), rng.random((N, 40))
    found = {}
    for does in (True, False):
        client.run(lend, does)
        with ganged():
            own = sd.shard(wide, rows=graph.cuts[0])
            found[does] = sd.jit(layers)(graph, own, rng.random((40, 40)) * 0 + 0.5).compute().todense()
        sent = [one for own in client.run(lambda: of_this_test().lending_of_this["lent"]).values() for one in own]
        assert sent and all(made is does for made, _ in sent) and max(size for _, size in sent) >= lending.LARGE
    client.run(lend, True)
    assert found[True].tobytes() == found[False].tobytes()


def of_this_test():
    from tests.dask import test_gangs

    return test_gangs


def test_the_cheaper_is_taken(client):
    """By how often a worker waits for another."""
    graph = sd.shard(A, rows=2)
    with sj.config.using(choose="sharded_loops=rounds"):
        assert sd.jit(ranks)(graph, x).gang() is None or 5 * (gangs.WAIT - gangs.HOP) > gangs.MEETING
        many = sd.jit(lambda A, x: sj.lax.fori_loop(0, 40, lambda k, y: A @ y, x))(graph, x)
        assert many.gang().waits == 39
        assert sd.jit(lambda A, x: A @ x)(graph, x).gang() is None
        both = sd.jit(lambda A, x: (ranks(A, x), A.T @ x))(graph, x)
        assert all(lazy.gang() is None for lazy in both)


def test_what_does_not_fit_is_apart(client, monkeypatch):
    monkeypatch.setattr(places, "memory", lambda client: 1e5)
    with ganged():
        assert sd.jit(ranks)(sd.shard(A, rows=2), x).gang() is None


def test_errors_of_tasks(client):
    """The user's, with the line of the program, whoever raises it; others do not wait for it."""

    def looped(A, i):
        return sj.lax.fori_loop(0, 3, lambda k, y: A @ y + (A @ y)[i], x)

    with ganged():
        graph, i = sd.shard(A, rows=2), np.arange(N)
        i[-1] = N + 7  # in the second part
        lazy = sd.jit(looped)(graph, sd.shard(i, rows=graph.cuts[0]))
        assert lazy.gang() is not None
        with pytest.raises(IndexError) as found:
            lazy.compute()
    assert any(f"{__file__}:" in note for note in found.value.__notes__)


def executing(dask_worker):
    """The process of a worker, and the tasks that it runs."""
    state = dask_worker.state
    return os.getpid(), {task.key for task in state.executing | state.long_running}


def test_both_ways_at_once(client, caplog):
    """What is held of a gang, right or wrong, is no other task to Dask when the same is computed apart."""
    graph, at = sd.shard(A, rows=2), np.arange(4)
    with ganged():
        good, bad = sd.jit(ranks)(graph, x), sd.jit(lambda A, x, at: snp.take(ranks(A, x), at))(graph, x, at + N)
        held, lost = good.persist(), distributed.futures_of(bad.persist())
        distributed.wait(lost)
    with apart():
        np.testing.assert_array_equal(good.compute().todense(), held.compute().todense())
        with pytest.raises(IndexError, match="out of bounds"):
            bad.compute()
    with ganged():
        np.testing.assert_array_equal(good.compute().todense(), held.compute().todense())
    assert {key[0] for key in held.__dask_keys__()}.isdisjoint(key[0] for key in good.apart_keys())
    assert not [r for r in caplog.records if "run_spec" in r.getMessage()]


@pytest.mark.parametrize("when", ["middle", "afterwards"])
def test_a_worker_is_killed(when, client):
    """In the middle of the rounds, and once its result is there: all parts are made again."""
    client.wait_for_workers(2)
    for rounds in (300, 1200, 5000):
        with ganged():
            lazy = sd.jit(lambda A, x, n=rounds: sj.lax.fori_loop(0, n, lambda k, y: 0.85 * (A @ y) + 0.15 / N, x))(
                sd.shard(A, rows=2), x
            )
            assert lazy.gang() is not None
            kept = lazy.persist()
        futures = client.futures_of(kept)
        keys, killed = {f.key for f in futures}, None
        if when == "afterwards":
            distributed.wait(futures)
            holder = next(w for w, held in client.has_what().items() if keys & set(held))
            killed = client.run(os.getpid)[holder]
            break
        while killed is None and not all(f.done() for f in futures):
            killed = next((pid for pid, tasks in client.run(executing).values() if tasks & keys), None)
        if killed is not None:
            time.sleep(0.05)
            if not all(f.done() for f in futures):
                break
    os.kill(killed, 9)
    expected = x
    for _ in range(200):
        expected = 0.85 * (S / 10 @ expected) + 0.15 / N
    found = finished(lambda: [f.result(timeout=100).todense() for f in futures])
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-9)
    client.wait_for_workers(2)


def slowly(seconds):
    """Let every step of a member take so long from now on; as they are with 0."""
    made = plainly.setdefault("made", members.Member._made)

    def later(self, step, values):
        time.sleep(seconds)
        return made(self, step, values)

    members.Member._made = later if seconds else made


plainly = {}


def test_what_nobody_wants_ends(client):
    """A gang that is cancelled, within minutes less than it would take."""
    client.wait_for_workers(2)
    client.run(slowly, 0.5)
    with ganged():
        kept = sd.jit(lambda A, x: sj.lax.fori_loop(0, 400, lambda k, y: A @ y, x))(sd.shard(A, rows=2), x).persist()
    futures = client.futures_of(kept)
    keys = {f.key for f in futures}

    def running():
        return any(tasks & keys for _, tasks in client.run(executing).values())

    while not running():
        time.sleep(0.05)
    client.cancel(futures)
    until = time.monotonic() + 100
    while running():
        assert time.monotonic() < until, "members that nobody waits for still run"
        time.sleep(0.05)
    client.run(slowly, 0)


def test_one_worker_is_left(client):
    """Both parts on one worker of one thread."""
    client.wait_for_workers(2)
    with ganged():
        lazy = sd.jit(ranks)(sd.shard(A, rows=2), x)
        gang = lazy.gang()
        (only, *_) = sorted(set(gang.homes.values()))
        gang.homes = dict.fromkeys(gang.homes, only)
        found = finished(lazy.compute)
    with apart():
        assert found.todense().tobytes() == sd.jit(ranks)(sd.shard(A, rows=2), x).compute().todense().tobytes()


def finished(run):
    """What a call returns within two minutes."""
    made = []
    thread = threading.Thread(target=lambda: made.append(run()), daemon=True)
    thread.start()
    thread.join(120)
    assert made, "it hangs, or has failed"
    return made[0]
