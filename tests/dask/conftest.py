"""One cluster of two processes for all tests of a process that do not stop workers for good, and loops over shards in rounds of tasks."""

import pytest

import sparsejax as sj
from tests.dask import clusters


@pytest.fixture(scope="session")
def shared_cluster():
    pytest.importorskip("distributed", reason="distributed is not installed: pip install 'sparsejax[dask]'")
    with clusters.started(2) as cluster:
        yield cluster


@pytest.fixture
def in_rounds():
    """Small loops too are tasks for every round."""
    with sj.config.using(choose="sharded_loops=rounds"):
        yield
