"""Clusters that are out of memory for good: what waits fails, and only then."""

import itertools
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed", reason="distributed is not installed: pip install 'sparsejax[dask]'")

from sparsejax.dask import watch


class Worker:
    """What a `Watch` looks at, of a worker."""

    memory, memory_limit, local_directory = SimpleNamespace(process=3e8, spilled=0), 4e8, "/folder"
    executing = processing = long_running = ()

    def __init__(self, address):
        self.address = address


class Scheduler:
    """What a `Watch` looks at."""

    def __init__(self, running=(), executing=(), processing=(), idle=()):
        self.workers = {a: Worker(a) for a in ("w", *idle)}
        self.workers["w"].executing, self.workers["w"].processing = executing, processing
        self.running, self.transition_counter = {self.workers[a] for a in (*running, *idle)}, 0
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
    assert not looked(Scheduler(), 20)
    failed = looked(Scheduler(), 40)
    assert set(failed) == {"queued", "no-worker", "processing"}
    loads = pytest.importorskip("distributed.protocol.pickle").loads
    told = str(loads(failed["queued"]))
    assert "all workers are paused" in told and "temporary-directory" in told
    assert "w: 300 of 400 MB used, 0 MB spilled to /folder" in told


def test_idle_workers_do_not_hide_one_that_is_stuck(clock):
    failed = looked(Scheduler(processing=("task",), idle=("v",)), 40)
    assert set(failed) == {"processing"}


def test_clusters_that_do_something(clock):
    assert not looked(Scheduler(running=("w",), processing=("task",)), 100)
    assert not looked(Scheduler(running=("w",)), 100)
    assert not looked(Scheduler(executing=("task",)), 100)
    moving = Scheduler()
    assert not looked(moving, 100, lambda k: setattr(moving, "transition_counter", k // 10))
    nobody = Scheduler()
    nobody.workers = {}
    assert not looked(nobody, 100)
