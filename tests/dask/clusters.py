"""Clusters of processes on this machine."""

import os
import signal
import time

import sparsejax as sj
from tests import objects


def started(workers, **how):
    """A cluster whose processes, also those that take the place of others, are copies of one that has imported Dask: a second of processor time
    less for each. Dask looks for a lost worker once, 15 seconds later, and gives it up for good where its heir is being replaced too: not here."""
    import dask
    from distributed import LocalCluster

    dask.config.set(
        {"distributed.worker.multiprocessing-method": "forkserver", "distributed.deploy.lost-worker-timeout": "1h"}
    )
    return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0", **how)


def as_here(client):
    """Let the workers of a cluster that serves several files, also those that take the place of others, compile as the test that runs does, and forget
    kernels that were compiled otherwise: theirs, those that the scheduler keeps, and those of this process. What LLVM does not optimise has other bits.
    For a fixture of every test, as that of a module does not know the test."""
    from distributed.diagnostics.plugin import WorkerPlugin

    class Compiling(WorkerPlugin):
        name = "sparsejax-tests-compile"

        def __init__(self, plain):
            self.plain = plain

        def setup(self, worker):
            _as(self.plain)

    here()
    client.run_on_scheduler(_forgotten, objects.plain())
    client.register_plugin(Compiling(objects.plain()))
    client.run(_as, objects.plain())


def here():
    """Forget what this process has compiled otherwise than the test that runs does."""
    if _seen != objects.turns:
        _forget()
        _seen[:] = objects.turns


_seen = [0]
"""`objects.turns` when kernels of this process were last forgotten."""


def _as(plain):
    changed = objects.plain() != plain
    objects.install_elsewhere(plain)
    if changed:
        _forget()


def _forget():
    from sparsejax.dask import tasks

    sj.clear_caches()
    tasks._program.cache_clear()


def _forgotten(plain, dask_scheduler):
    board = dask_scheduler.plugins.get("sparsejax-board")
    if board is not None and getattr(board, "plain", None) != plain:
        board.records.clear()
        board.bytes, board.plain = 0, plain


def dying(method, number):
    """Let a worker, on which this runs, end at once where a member of a gang calls a method for so many times. The one that takes its place does not."""
    from sparsejax.dask import members

    plain, calls = getattr(members.Member, method), [0]

    def counted(self, *arguments):
        calls[0] += 1
        if calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(self, *arguments)

    setattr(members.Member, method, counted)


def killed(client, address):
    """Kill the process of a worker; once the cluster knows, and another has taken its place."""
    (pid,) = client.run(os.getpid, workers=[address]).values()
    os.kill(pid, signal.SIGKILL)
    whole(client, address)


def whole(client, lost):
    """Wait until a worker that has ended is gone, and another has taken its place."""
    until = time.monotonic() + 120
    while lost in (there := client.scheduler_info(n_workers=-1)["workers"]) or len(there) < 2:
        assert time.monotonic() < until, f"{lost} is there, or nobody has taken its place: {list(there)}"
        time.sleep(0.01)
