"""Clusters of processes on this machine."""

import dask


def started(workers, **how):
    """A cluster whose processes, also those that take the place of others, are copies of one that has imported Dask: a second of processor time less
    for each."""
    from distributed import LocalCluster

    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0", **how)
