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
    """Let the workers of a cluster that serves several files compile as the test that runs does, and forget kernels that were compiled otherwise: what LLVM
    does not optimise has other bits. For a fixture of every test, as that of a module does not know the test."""
    client.run(_as, objects.plain())


def _as(plain):
    from sparsejax.dask import tasks

    changed = objects.plain() != plain
    objects.install_elsewhere(plain)
    if changed:
        sj.clear_caches()
        tasks._program.cache_clear()


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
