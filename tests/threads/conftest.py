"""Every kernel that can run in chunks does, in these tests."""

import pytest

from sparsejax import config


@pytest.fixture(autouse=True)
def always_parallel():
    before = config.parallel_work()
    config.update("parallel_work", 0)
    yield
    config.update("parallel_work", before)
    config.update("num_threads", 0)
