"""Chunks that fail, and calls that are interrupted: an exception, no leak, and the next call works."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.jit.runtime.system import allocator
from tests.limits import needs_limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits memory and reads /proc")


@pytest.fixture(autouse=True)
def two_threads():
    config.update("num_threads", 2)
    yield
    config.update("num_threads", 0)


NO_MEMORY = """
import resource
import numpy as np, sparsejax as sj

def used():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()

sj.config.update("parallel_work", 1 << 10)  # small ones start the threads
f = sj.jit(lambda a, b: a @ b)
def product(n):
    return f(sj.array(np.ones((n, 1)), format="csr"), sj.array(np.ones((1, n)), format="csr"))

assert product(700).nnz == 490000
before = used()
resource.setrlimit(resource.RLIMIT_AS, (before + (200 << 20), before + (200 << 20)))
for _ in range(3):
    try:
        product(8000)  # 770 MB
    except MemoryError:
        pass
    else:
        raise SystemExit("no MemoryError")
assert product(700).nnz == 490000
assert used() - before < 100 << 20, used() - before
"""


@needs_limits
def test_no_memory_for_the_chunks():
    made = subprocess.run(
        [sys.executable, "-c", NO_MEMORY],
        env={
            **os.environ,
            "SPARSEJAX_NUM_THREADS": "3",
            "MALLOC_ARENA_MAX": "1",
        },  # one more reserves 64 MB of addresses
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr


def test_an_interrupted_product_raises_and_leaves_nothing():
    n = 6000
    rng = np.random.default_rng(0)
    a = sj.array(rng.random((n, n)) * (rng.random((n, n)) < 0.05), format="csr")
    f = sj.jit(lambda a: a @ a)
    small = sj.array(np.eye(200), format="csr")
    f(small)

    def resident():
        allocator.drop()  # blocks that wait to be used again
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def interrupted():
        timer = threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        deadline = time.monotonic() + 60
        with pytest.raises(KeyboardInterrupt):
            while time.monotonic() < deadline:
                f(a)

    interrupted()
    before = resident()
    for _ in range(2):
        interrupted()
    assert resident() - before < 300 << 20  # a whole result takes 430 MB
    assert f(small).nnz == 200


N = 20_000
"""Rows of a matrix whose products are cut into chunks."""


@pytest.mark.parametrize("last", [1, 2, 7])
def test_an_interrupt_before_the_first_statement_of_a_function_that_loops_call(last):
    """Nobody can catch it there: the loop ends, and it is raised where the loop has been left."""
    rng = np.random.default_rng(0)
    places = rng.integers(0, N, (2, 20 * N))
    a = sj.array((rng.random(20 * N), places), shape=(N, N), format="csr")
    f = sj.jit(lambda a, x: sj.lax.fori_loop(0, 20, lambda i, y: sj.numpy.tanh(a @ y), x))
    expected, seen = f(a, np.ones(N)).todense(), 0

    def interrupt(frame, event, _):
        nonlocal seen
        if event == "call" and frame.f_code.co_qualname == "Called.__init__.<locals>.run":
            seen += 1
            if seen == last:
                raise KeyboardInterrupt

    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # ctypes tells it
    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            f(a, np.ones(N))
    finally:
        sys.setprofile(None)
        sys.unraisablehook = hook
    assert seen == last
    np.testing.assert_array_equal(f(a, np.ones(N)).todense(), expected)
