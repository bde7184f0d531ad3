"""What tests of kernels share."""

import pytest

from sparsejax import config
from sparsejax.jit import pipeline
from sparsejax.jit.backend import host
from sparsejax.jit.runtime import plan_cache


@pytest.fixture
def processor(monkeypatch):
    """`processor(masks, gathers)`: from then on kernels are planned as for one that leaves out lanes of a vector, or gathers, fast or slowly,
    whatever this one does: what it cannot do, LLVM makes of what it can."""

    def planned_for(masks, gathers=False):
        monkeypatch.setattr(host, "has_masks", lambda: masks)
        monkeypatch.setattr(host, "has_gathers", lambda: gathers)
        plan_cache.forget()

    yield planned_for
    plan_cache.forget()


@pytest.fixture
def gathers(processor):
    """`gathers(fast)`: a processor with masks that gathers fast, or slowly."""
    return lambda fast: processor(True, fast)


@pytest.fixture
def by_threads():
    """`by_threads(make)`: what `make` returns when kernels of any size run on one, two and three threads."""

    def made_by(make):
        made = []
        config.update("parallel_work", 0)
        for threads in (1, 2, 3):
            config.update("num_threads", threads)
            made.append(make())
        return made

    before = config.num_threads(), config.parallel_work()
    yield made_by
    config.update("num_threads", before[0])
    config.update("parallel_work", before[1])


@pytest.fixture
def planned(monkeypatch):
    """The program of every kernel that is planned from now on."""
    told, made = [], pipeline.program_of

    def watched(*args):
        told.append(made(*args))
        return told[-1]

    monkeypatch.setattr(pipeline, "program_of", watched)
    return told
