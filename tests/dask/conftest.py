"""One cluster of two processes for all tests of a process that do not stop workers for good, and loops over shards in rounds of tasks."""

import pytest

import sparsejax as sj
from tests.dask import clusters


@pytest.fixture(scope="session")
def shared_cluster():
    pytest.importorskip("distributed", reason="distributed is not installed: pip install 'sparsejax[dask]'")
    with clusters.started(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shared_client(shared_cluster):
    """A client of that cluster, whose workers are there."""
    from distributed import Client

    with Client(shared_cluster) as client:
        client.wait_for_workers(2)
        yield client


@pytest.fixture
def client(shared_client, monkeypatch):
    """The same: workers are asked for again, as other tests may have stopped some, and compile as this test does."""
    from sparsejax.dask import places

    monkeypatch.setattr(places, "FRESH", 0.0)
    clusters.as_here(shared_client)
    return shared_client


@pytest.fixture
def in_rounds():
    """Small loops too are tasks for every round."""
    with sj.config.using(choose="sharded_loops=rounds"):
        yield
