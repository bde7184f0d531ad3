"""Clusters that are out of memory for good: what waits fails, and only then."""

import itertools
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed", reason="distributed is not installed: pip install 'sparsejax[dask]'")

from sparsejax.dask import watch


class Scheduler:
    """What a `Watch` looks at."""

    def __init__(self, running, executing=()):
        memory = SimpleNamespace(process=3e8, spilled=0)
        worker = SimpleNamespace(executing=set(executing), memory=memory, memory_limit=4e8)
        self.workers, self.running, self.transition_counter = {"tcp://w": worker}, set(running), 0
        states = ("queued", "no-worker", "processing", "waiting", "memory")
        self.tasks = {s: SimpleNamespace(key=s, state=s) for s in states}
        self.failed = {}

    def transition(self, key, finish, *, exception, **how):
        self.failed[key] = exception
        return {}

    def transitions(self, recommendations, stimulus_id):
        pass


@pytest.fixture
def clock(monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(watch.time, "monotonic", lambda: float(next(ticks)))


def looked(scheduler, times, between=lambda k: None):
    observer = watch.Watch(scheduler)
    for k in range(times):
        between(k)
        observer.look()
    return scheduler.failed


def test_what_waits_fails(clock):
    assert not looked(Scheduler(running=()), 20)
    failed = looked(Scheduler(running=()), 40)
    assert set(failed) == {"queued", "no-worker", "processing"}
    loads = pytest.importorskip("distributed.protocol.pickle").loads
    assert "300 of 400 MB, 0 MB spilled" in str(loads(failed["queued"])) and "disk" in str(loads(failed["queued"]))


def test_clusters_that_do_something(clock):
    assert not looked(Scheduler(running=("tcp://w",)), 100)
    assert not looked(Scheduler(running=(), executing=("task",)), 100)
    moving = Scheduler(running=())
    assert not looked(moving, 100, lambda k: setattr(moving, "transition_counter", k // 10))
    nobody = Scheduler(running=())
    nobody.workers = {}
    assert not looked(nobody, 100)
