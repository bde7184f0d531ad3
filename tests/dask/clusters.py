"""Clusters of processes on this machine."""

import sparsejax as sj
from tests import objects


def started(workers, **how):
    """A cluster whose processes, also those that take the place of others, are copies of one that has imported Dask: a second of processor time less
    for each."""
    import dask
    from distributed import LocalCluster

    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
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
