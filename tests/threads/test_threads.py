"""Threads that run the rows of a table: every row once, failures, interrupts, many callers, forks; native and portable."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from sparsejax import config
from sparsejax.jit.backend import builder, compiler, host
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.runtime.system import threads
from tests.together import in_threads

pytestmark = pytest.mark.rotating(8)


@pytest.fixture(params=["native", "executor"])
def crew(request, monkeypatch):
    """A table is run by four threads of each kind."""
    if request.param == "native" and not host.has("futex"):
        pytest.skip("no native threads here")
    monkeypatch.setattr(threads, "_crews", {})
    config.update("num_threads", 4)
    before = config.skip()
    config.update("skip", before if request.param == "native" else before | {"futex"})
    yield
    config.update("skip", before)
    config.update("num_threads", 0)


def row_kernel():
    """Slots: turns of a loop, status to return, (written) how often the row was run, (written) what the loop computed."""
    b = LLVMBuilder()
    turns, status, runs = (b.slot(k, "i64", "x") for k in range(3))
    total = b.var("total", b.i64(1))
    with b.for_(b.i64(0), turns) as i:
        b.set(total, b.add(b.mul(b.get(total), 6364136223846793005), i))
    b.set_slot(2, b.add(runs, 1))
    b.set_slot(3, b.get(total))
    with b.if_(b.ne(status, 0)):
        b.fail(builder.OUT_OF_MEMORY)
    return compiler.compile_text(b.finish(lambda: None))


def table(rows, turns):
    made = np.zeros((rows, 4), np.int64)
    made[:, 0] = turns
    return made


@pytest.mark.parametrize("rows", [1, 2, 3, 64, 1000])
def test_every_row_is_run_once(crew, rows):
    kernel = row_kernel()
    for _ in range(20):
        given = table(rows, 100)
        assert threads.run(kernel.address, given) == builder.OK
        assert (given[:, 2] == 1).all()
        assert len(set(given[:, 3])) == 1


def test_a_failure_is_the_status_of_the_table(crew):
    kernel, given = row_kernel(), table(500, 100)
    given[7, 1] = 1
    assert threads.run(kernel.address, given) == builder.OUT_OF_MEMORY
    assert (given[:8, 2] == 1).all()
    given[7, 1] = 0
    assert threads.run(kernel.address, given) == builder.OK


def test_many_callers_at_once(crew):
    kernel, faults = row_kernel(), []

    def call(_):
        for _ in range(100):
            given = table(16, 200)
            if threads.run(kernel.address, given) or not (given[:, 2] == 1).all():
                faults.append(given)

    in_threads(4, call)
    assert not faults


def tasks():
    return {int(name) for name in os.listdir("/proc/self/task")}


def processor(task):
    with open(f"/proc/self/task/{task}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[36])


@pytest.mark.skipif(not host.has("futex") or len(os.sched_getaffinity(0)) < 2, reason="takes two processors")
def test_a_worker_leaves_the_processor_of_its_caller(monkeypatch):
    monkeypatch.setattr(threads, "_crews", {})
    config.update("num_threads", 2)
    kernel, given, every, before = row_kernel(), table(64, 20_000), os.sched_getaffinity(0), tasks()
    home = min(every)
    try:
        os.sched_setaffinity(0, {home})
        assert threads.run(kernel.address, given) == builder.OK
        (worker,) = tasks() - before
        for rights in ({home}, every):  # it sleeps there, and may go anywhere
            os.sched_setaffinity(worker, rights)
            assert threads.run(kernel.address, given) == builder.OK
            time.sleep(0.1)

        def gone():  # by itself, if the system woke it there, else by the system
            return processor(worker) != home and os.sched_getaffinity(worker) in (every - {home}, every)

        for home in sorted(every)[:2]:  # it follows a caller that moves
            os.sched_setaffinity(0, {home})
            for _ in range(20):
                assert threads.run(kernel.address, given) == builder.OK
                deadline = time.monotonic() + 0.5
                while not gone() and time.monotonic() < deadline:
                    time.sleep(0.01)  # no more calls: it must leave when it is woken up
                if gone():
                    break
            assert gone()
    finally:
        os.sched_setaffinity(0, every)
        config.update("num_threads", 0)


@pytest.mark.skipif(not host.has("futex"), reason="no native threads here")
def test_workers_are_woken_after_any_pause(monkeypatch):
    """Also when the bell rang for one that was just getting up: jobs come about as long after each other as workers stay awake."""
    monkeypatch.setattr(threads, "_crews", {})
    config.update("num_threads", 2)
    kernel, given, before = row_kernel(), table(64, 2000), tasks()
    rng = np.random.default_rng(0)
    try:
        assert threads.run(kernel.address, given) == builder.OK
        (worker,) = tasks() - before
        for pause in 1e-6 * rng.integers(150, 350, 6000):
            end = time.perf_counter() + pause
            while time.perf_counter() < end:
                pass
            assert threads.run(kernel.address, given) == builder.OK

        def used():
            with open(f"/proc/self/task/{worker}/stat") as file:
                return int(file.read().rsplit(")", 1)[1].split()[11])

        time.sleep(0.05)
        long, start = table(64, 2_000_000), used()
        for _ in range(20):  # a crowded machine may have no room for it
            assert threads.run(kernel.address, long) == builder.OK
            if used() > start:
                break
        assert used() > start
    finally:
        config.update("num_threads", 0)


def test_an_interrupt_stops_between_rows(crew):
    kernel, given = row_kernel(), table(2000, 10_000_000)  # more than ten seconds in all
    threads.run(kernel.address, table(8, 1))
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        threads.run(kernel.address, given)
    ran = given[:, 2].copy()
    assert 0 < ran.sum() < 2000
    time.sleep(0.05)
    assert (given[:, 2] == ran).all()  # nobody goes on
    assert threads.run(kernel.address, table(8, 1)) == builder.OK


def test_a_child_process_starts_threads_of_its_own(crew):
    kernel = row_kernel()
    assert threads.run(kernel.address, table(64, 1000)) == builder.OK
    child = os.fork()
    if child == 0:
        given = table(64, 1000)
        good = threads.run(kernel.address, given) == builder.OK and (given[:, 2] == 1).all()
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0


SETTINGS = """
import os, sparsejax as sj
from sparsejax.jit.runtime.system import threads
print(threads.count())
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"SPARSEJAX_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, "3"),
        ({"OMP_NUM_THREADS": "5,2"}, "5"),
        ({}, str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())),
    ],
)
def test_the_number_of_threads(given, expected):
    kept = {k: v for k, v in os.environ.items() if k not in ("SPARSEJAX_NUM_THREADS", "OMP_NUM_THREADS")}
    made = subprocess.run([sys.executable, "-c", SETTINGS], env={**kept, **given}, capture_output=True, text=True)
    assert made.stdout.strip() == expected, made.stderr


def test_importing_starts_no_thread():
    script = (
        "import os, threading\nbefore = len(os.listdir('/proc/self/task'))  # an emulator has one of its own\n"
        "import sparsejax\nprint(len(os.listdir('/proc/self/task')) - before, threading.active_count())"
    )
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("no /proc here")
    one = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    made = subprocess.run([sys.executable, "-c", script], env={**os.environ, **one}, capture_output=True, text=True)
    assert made.stdout.split() == ["0", "1"], made.stderr
