"""Functions over shards on a cluster of two processes: the same bits as anywhere, kernels compiled once, faults, memory."""

import os
import time

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install 'sparsejax[dask]'")
dask = pytest.importorskip("dask")

import sparsejax.dask as sd  # noqa: E402
from sparsejax.jit.backend import compiler  # noqa: E402
from tests.dask import clusters  # noqa: E402

rng = np.random.default_rng(0)
N = 3000
S = sp.random_array((N, N), density=0.004, format="csr", rng=rng)
A = sj.array(S)
X = rng.normal(size=(N, 16))
W = rng.normal(size=(16, 8))
x = np.full(N, 1 / N)


def pagerank(A, x, rounds=10):
    return sj.lax.fori_loop(0, rounds, lambda k, x: 0.85 * (A @ x) + 0.15 / N, x)


def pagerank_of_scipy(rounds=10):
    y = x
    for _ in range(rounds):
        y = 0.85 * (S @ y) + 0.15 / N
    return y


def step(A, X, W):
    """An epoch of a layer: its loss, and the derivatives."""
    return sj.value_and_grad(lambda W: (snp.maximum(A @ (X @ W), 0) ** 2).sum())(W)


def step_of_scipy():
    Z = S @ (X @ W)
    return (np.maximum(Z, 0) ** 2).sum(), X.T @ (S.T @ (2 * np.maximum(Z, 0)))


def cluster(workers=2, **how):
    return clusters.started(workers, **how)


@pytest.fixture(scope="module")
def here():
    """Results without a cluster."""
    limits = pytest.importorskip("threadpoolctl").threadpool_limits
    sj.clear_caches()  # of kernels that other tests have compiled without optimisation
    with limits(1):  # dense products are BLAS's, whose bits depend on its threads; workers run it on one
        return results("threads"), results("sync")


@pytest.fixture(scope="module")
def client(here, shared_cluster):
    with distributed.Client(shared_cluster) as client:
        clusters.as_here(client)
        yield client


def in_both_ways(function, *arguments):
    """In rounds of tasks, and together."""
    for way in ("rounds", "together"):
        with sj.config.using(choose=f"sharded_loops={way}"):
            yield sd.jit(function)(*arguments)


def results(scheduler=None):
    graph = sd.shard(A, rows=6)
    rows = graph.cuts[0]
    loss, dW = sd.jit(step)(graph, sd.shard(X, rows=rows), W)
    lazy = [
        *in_both_ways(pagerank, graph, x),
        sd.jit(lambda A: A @ A)(graph),
        sd.jit(lambda A: A.T @ x)(graph),
        loss,
        dW,
    ]
    return [r.todense() for r in dask.compute(*lazy, scheduler=scheduler)]


def test_results_and_their_bits(client, here):
    """The same for any number of workers, threads or processes."""
    found = results()
    loss, dW = step_of_scipy()
    for one, two in zip(
        found, [pagerank_of_scipy(), pagerank_of_scipy(), (S @ S).toarray(), S.T @ x, loss, dW], strict=True
    ):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-14)
    for a, b, c in zip(found, *here, strict=True):
        assert a.tobytes() == b.tobytes() == c.tobytes()


def test_loops_that_depend_on_data(client):
    def until(A, x):
        def going(c):
            return c[1] > 1e-9

        def once(c):
            y = 0.85 * (A @ c[0]) + 0.15 / N
            return y, abs(y - c[0]).sum()

        return sj.lax.while_loop(going, once, (x, 1.0))[0]

    found = [r.compute().todense() for r in in_both_ways(until, sd.shard(A / A.sum(axis=0).max(), rows=3), x)]
    y, M = x, S / S.sum(axis=0).max()
    while True:
        z = 0.85 * (M @ y) + 0.15 / N
        y, moved = z, abs(z - y).sum()
        if moved <= 1e-9:
            break
    for way in found:
        np.testing.assert_allclose(way, y, rtol=1e-9)


def compiled(client):
    return sum(client.run(compiler.compile_count).values())


def keep_in(folder, each):
    """Kernels of this process are kept in a folder, of its own where `each`."""
    from sparsejax import config

    config.update("cache_dir", os.path.join(folder, str(os.getpid()) if each else "all"))


def objects(dask_scheduler):
    """How many kernels the workers have exchanged."""
    return sum(r[:4] == b"\x7fELF" for r in dask_scheduler.plugins["sparsejax-board"].records.values())


def forgotten(dask_scheduler):
    dask_scheduler.plugins["sparsejax-board"].records.clear()


def programs():
    graph = sd.shard(A, rows=4)
    return (*in_both_ways(pagerank, graph, x), sd.jit(lambda A: A @ A)(graph))


def test_kernels_are_compiled_once(tmp_path):
    """A kernel that one worker has compiled is loaded by the others, over the scheduler where they share no folder; with a shared folder, other processes
    compile nothing."""
    with cluster() as made, distributed.Client(made) as client:
        client.run(keep_in, str(tmp_path), True)
        before = compiled(client)  # for the arrays of this module, which workers import
        first = dask.compute(*programs())
        assert compiled(client) - before == client.run_on_scheduler(objects) > 0
        client.restart()
        client.run_on_scheduler(forgotten)
        together = tmp_path / "all"
        together.mkdir(mode=0o700)
        for folder in tmp_path.iterdir():
            for file in folder.iterdir():
                file.rename(together / file.name)
        client.run(keep_in, str(tmp_path), False)
        before = compiled(client)
        again = dask.compute(*programs())
        assert compiled(client) == before
    for a, b in zip(first, again, strict=True):
        assert a.todense().tobytes() == b.todense().tobytes()


def test_errors_are_the_users(client):
    def outside(A, i):
        return A[i] * 2

    def another(A, i):
        return A[i] * 2

    def looped(A, i):
        return sj.lax.fori_loop(0, 3, lambda k, i: i + A[i].sum().astype("i8"), i)

    for program in (outside, another, looped):  # the second is traced by what is known of the first
        with pytest.raises(IndexError) as found:
            sd.jit(program)(sd.shard(A, rows=3), np.array([5, N + 7])).compute()
        line = f"{__file__}:{program.__code__.co_firstlineno + 1}"
        assert f"in a task of these lines: {line}" in found.value.__notes__


def executing(dask_worker):
    """The process of a worker, and the tasks that it runs."""
    return os.getpid(), {task.key for task in dask_worker.state.executing}


def in_the_middle(client, program, *arguments):
    """A future of a loop of so many rounds that a worker is in the middle of it, and the process of that worker."""
    for rounds in (20_000 * 4**k for k in range(6)):
        lazy = program(*arguments, rounds)
        future = client.compute(lazy)
        while not future.done():
            for pid, tasks in client.run(executing).values():
                if not tasks.isdisjoint(lazy.__dask_keys__()):
                    return future, pid
            time.sleep(0.01)
    raise AssertionError("no worker was seen in the loop")


@pytest.mark.rotating(4)
@pytest.mark.parametrize("program", ["pagerank", "epoch", "spgemm", "rounds together"])
def test_a_worker_is_killed(program, tmp_path, client, in_rounds):
    """In the middle of a program. What was lost is computed again, from the files, and another worker takes its place."""
    client.wait_for_workers(2)
    if program == "rounds together":
        future, killed = in_the_middle(client, *rounds_together(sd.save_shards(tmp_path / "A", A / 10, rows=8)))
        expected = x
        for _ in range(100):  # a round changes no digit from then on
            expected = 0.85 * (S / 10 @ expected) + 0.15 / N
    else:
        lazy, expected = program_over_files(program, tmp_path)
        future = client.compute(lazy)
        while not client.has_what() or not any(client.has_what().values()):
            time.sleep(0.01)
        holder = next(w for w, keys in client.has_what().items() if keys)
        killed = client.run(os.getpid)[holder]
    os.kill(killed, 9)
    np.testing.assert_allclose(future.result(timeout=300).todense(), expected, rtol=1e-9)
    client.wait_for_workers(2)
    assert killed not in client.run(os.getpid).values()


def rounds_together(graph):
    """A compiled program of one task with all rounds, and all arguments but their number."""

    def ranks(A, x, rounds):
        return sj.lax.fori_loop(0, rounds, lambda k, y: 0.85 * (A @ y) + 0.15 / N, x)

    def program(*arguments):
        with sj.config.using(choose="sharded_loops=together"):
            return sd.jit(ranks)(*arguments)

    with sj.config.using(choose="sharded_loops=together"):
        assert "[together]" in sd.explain(ranks)(graph, x, 2)
    program(graph, x, 2).compute()
    return program, graph, x


def program_over_files(program, folder):
    """Its result, and what SciPy's is."""
    graph = sd.save_shards(folder / "A", A, rows=8)
    if program == "pagerank":
        return sd.jit(lambda A, x: pagerank(A, x, 40))(graph, x), pagerank_of_scipy(40)
    if program == "epoch":
        features = sd.save_shards(folder / "X", X, rows=graph.cuts[0])
        return sd.jit(lambda A, X, W: step(A, X, W)[1])(graph, features, W), step_of_scipy()[1]
    return sd.jit(lambda A: (A @ A).sum(axis=0))(graph), (S @ S).sum(axis=0)


# ------------------------------------------------------------------------------------------------------------- files


def test_files(tmp_path, client):
    for name, x_, grid in (
        ("csr", A, {"rows": 3, "cols": 2}),
        ("dense", X, {"rows": 4}),
        ("csc", A.asformat("csc"), {"cols": 5}),
    ):
        made = sd.save_shards(tmp_path / name, x_, **grid)
        back = sd.open_shards(tmp_path / name)
        assert repr(back) == repr(made)
        np.testing.assert_array_equal(
            back.compute().todense(), np.asarray(x_.todense() if isinstance(x_, sj.Array) else x_)
        )
    product = sd.save_shards(tmp_path / "product", sd.jit(lambda A: A @ A)(sd.open_shards(tmp_path / "csr")))
    np.testing.assert_allclose(product.compute().todense(), (S @ S).toarray())
    assert int(product.counts.sum()) == (S @ S).nnz
    with pytest.raises(FileExistsError):
        sd.save_shards(tmp_path / "product", A)


def test_stores_and_files(tmp_path, client):
    for store in ("npz", "zarr", "h5"):
        made = sd.save_shards(tmp_path / store, A, rows=3, store=store)
        assert repr(sd.open_files([tmp_path / store / f"{k}-0.{store}" for k in range(3)])) == repr(made)
        np.testing.assert_array_equal(sd.jit(lambda A: A @ X)(made).compute().todense(), (A @ X).todense())
    columns = sd.open_files([tmp_path / "npz" / "0-0.npz", tmp_path / "zarr" / "2-0.zarr"], format="csc")
    assert str(columns.format) == "csc" and columns.grid == (2, 1)
    expected = (sj.numpy.concatenate([A[: made.cuts[0][1]], A[made.cuts[0][2] :]])).todense()
    np.testing.assert_array_equal(columns.compute().todense(), expected)
    sj.save_npz(tmp_path / "other.npz", A.astype("f4"))
    with pytest.raises(ValueError, match=r"other.npz has dtype.*must be equal"):
        sd.open_files([tmp_path / "npz" / "0-0.npz", tmp_path / "other.npz"])
    with pytest.raises(FileNotFoundError):
        sd.open_files([tmp_path / "none.npz"])
    with pytest.raises(ValueError, match="store='x'"):
        sd.save_shards(tmp_path / "x", A, store="x")


def small_files():
    """As if the disk were full: no file of this process may have more than a megabyte."""
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


@pytest.mark.slow
def test_the_disk_is_full_while_spilling(monkeypatch):
    """An error that says so, in place of a wait without end."""
    from sparsejax.dask import watch

    monkeypatch.setattr(watch, "PATIENCE", 3.0)  # the scheduler is in this process
    da = pytest.importorskip("dask.array")
    with cluster(1, memory_limit="300MB") as made, distributed.Client(made) as client:
        client.run(small_files)
        chunks = da.random.random((12_000, 5000), chunks=(400, 5000)).map_blocks(
            sj.asarray, meta=sj.array(np.zeros((0, 0)))
        )
        lazy = sd.jit(lambda A: A * 2)(sd.shard(chunks))
        with pytest.raises(MemoryError, match="all workers are paused"):
            client.gather(client.futures_of(lazy.persist()))
