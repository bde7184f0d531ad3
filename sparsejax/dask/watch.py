"""A cluster that is out of memory for good: an error in place of a wait without end.

Dask pauses a worker above four fifths of its memory until some is freed, by results that are no longer needed, or by spilling. Where the disk is full, or what
lies in memory is not Dask's to spill, nothing is freed: once all workers that have tasks are paused, run nothing and have done nothing for `PATIENCE`
seconds, what waits for them fails with a MemoryError that says so. The scheduler's plugin (`exchange.Board`) looks once a second.
"""

from __future__ import annotations

import time
from typing import Any

from sparsejax.optional import optional

PATIENCE = 30.0
"""Seconds without any progress."""


class Watch:
    """Looks at a scheduler, once a second."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._seen: Any = None
        self._since = time.monotonic()

    def look(self) -> None:
        """Fail what waits, where nothing has moved for `PATIENCE` seconds."""
        scheduler, now = self._scheduler, time.monotonic()
        seen = scheduler.transition_counter, tuple(scheduler.workers)
        able = [ws for ws in scheduler.workers.values() if ws in scheduler.running]
        paused = [ws for ws in scheduler.workers.values() if ws not in scheduler.running]
        busy = any(ws.processing for ws in able) or any(ws.executing or ws.long_running for ws in paused)
        if seen != self._seen or busy or not paused:
            self._seen, self._since = seen, now
        elif now - self._since > PATIENCE:
            # beside workers that could run them, tasks without one wait for something else
            states = ("processing",) if able else ("queued", "no-worker", "processing")
            self._fail(paused, [ts for ts in scheduler.tasks.values() if ts.state in states])
            self._seen, self._since = None, now

    def _fail(self, paused: list[Any], stuck: list[Any]) -> None:
        if not stuck:
            return
        which = "all workers" if len(paused) == len(self._scheduler.workers) else "the workers that have the next tasks"
        told = "; ".join(map(_about, paused[:4])) + "; ..." * (len(paused) > 4)
        error = MemoryError(
            f"{which} are paused, as their memory is full, and nothing was freed for {PATIENCE:.0f} seconds ({told}). If the workers' logs say "
            '"Spill to disk failed", make room on the disk of that folder or set another (local_directory of the cluster, or Dask\'s '
            "temporary-directory); else use more workers, more memory or smaller shards"
        )
        stimulus, recommendations = f"sparsejax-out-of-memory-{time.time()}", {}
        text = repr(error)
        for ts in stuck:
            made = self._scheduler.transition(
                ts.key, "erred", stimulus_id=stimulus, exception=_dumped(error), exception_text=text, cause=ts.key
            )
            recommendations.update(made)
        self._scheduler.transitions(recommendations, stimulus_id=stimulus)


def _about(worker: Any) -> str:
    limit = f" of {worker.memory_limit / 1e6:.0f}" if worker.memory_limit else ""
    memory = f"{worker.memory.process / 1e6:.0f}{limit} MB used, {worker.memory.spilled / 1e6:.0f} MB spilled"
    return f"{worker.address}: {memory} to {worker.local_directory}"


def _dumped(error: Exception) -> Any:
    return optional("distributed.protocol.pickle", "dask").dumps(error)
