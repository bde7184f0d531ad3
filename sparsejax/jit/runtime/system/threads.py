"""Threads for kernels: how many there are, and who runs the rows of a table.

    native     `pool`: the caller and native workers, Linux
    executor   the caller and a ThreadPoolExecutor, elsewhere
    serial     the caller alone: one thread, or another call is using the pool

Rows are calls of one machine function and must not depend on each other. Which thread runs a row, and in which order, is chance; what
they compute is not. Threads are started when the first table is worth it. A child process after a fork starts its own.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from sparsejax import config, forks
from sparsejax.jit.backend import host
from sparsejax.jit.runtime.system import pool, result_memory

CANCELLED = pool.CANCELLED
_Function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


def count() -> int:
    """The number of threads that a kernel may use, the caller included: flag `num_threads`, else `OMP_NUM_THREADS`, else the
    processors that this process may run on.
    """
    return config.num_threads() or _default


def _default_count() -> int:
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if text.isdecimal() and int(text):
        return int(text)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(function: int, table: NDArray[np.int64]) -> int:
    """Call the machine function at address `function` on every row of `table`; OK, or the status of a row that failed.

    Rows after a failure or an interrupt are skipped. When this returns or raises, no row is running.
    """
    threads = min(count(), len(table))
    if threads > 1:
        crew = _crew(count())
        status = crew.run(function, table)
        if status is not None:
            return status
    return _serial(function, table)


def _serial(function: int, table: NDArray[np.int64]) -> int:
    call, first, stride = _Function(function), result_memory.address_of(table), table.strides[0]
    for row in range(len(table)):
        status: int = call(first + row * stride)
        if status:
            return status
    return 0


class Executor:
    """The portable crew: threads of an executor that call machine code with the interpreter lock released."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._turn = threading.Lock()
        self._threads = ThreadPoolExecutor(workers, "sparsejax")

    def run(self, function: int, table: NDArray[np.int64]) -> int | None:
        """As `pool.Pool.run`."""
        if not self._turn.acquire(blocking=False):
            return None
        try:
            call, first, stride, tickets, failed = (
                _Function(function),
                result_memory.address_of(table),
                table.strides[0],
                itertools.count(),
                [0],
            )

            def work() -> None:
                while not failed[0] and (row := next(tickets)) < len(table):
                    status: int = call(first + row * stride)
                    if status:
                        failed[0] = status

            helpers = [self._threads.submit(work) for _ in range(min(self.workers, len(table) - 1))]
            try:
                work()
            except BaseException:
                failed[0] = CANCELLED
                raise
            finally:
                for helper in helpers:
                    if not helper.cancel():
                        helper.result()
            return failed[0]
        finally:
            self._turn.release()


_default = _default_count()
_lock = threading.Lock()
_crews: dict[tuple[int, bool], Executor | pool.Pool] = {}
forks.anew(__name__, _lock=threading.Lock, _crews=dict)  # a child has none of the threads


def _crew(threads: int) -> Executor | pool.Pool:
    """The workers of this process for `threads` threads, started at the first use."""
    key = threads, host.has("futex")
    crew = _crews.get(key)
    if crew is None:
        with _lock:
            crew = _crews.get(key)
            if crew is None:
                crew = _crews[key] = (pool.Pool if key[1] else Executor)(threads - 1)
    return crew
