"""Every kernel that can run in chunks does, in these tests."""

import signal

import pytest

from sparsejax import config


@pytest.fixture(autouse=True)
def always_parallel():
    before = config.parallel_work()
    config.update("parallel_work", 0)
    yield
    config.update("parallel_work", before)
    config.update("num_threads", 0)


@pytest.fixture(autouse=True)
def interrupts_arrive():
    """Also where the shell that started the tests made them ignore interrupts, as for jobs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
