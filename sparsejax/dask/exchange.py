"""Machine code and plans pass between the workers of a cluster, over its scheduler: what one has compiled, the others load.

    worker                                scheduler
    load(name)       ------------------>  the record, or None
    claim(name)      ------------------>  the record; or, for the first that asks, None: it compiles, and the others wait
    store(name, r)   ------------------>  kept, and given to all that wait
    release(name)    ------------------>  the next that waits compiles: the first has failed; so it is when a worker is lost

Names say the processor, the code generator and the sources of this package (`records.name_of`), so that unlike computers never take each other's code. What
passes is between processes that run each other's pickled tasks anyway. A scheduler without this plugin, or one that does not answer, costs compile time only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import weakref
from collections import OrderedDict
from typing import Any

from sparsejax import config, forks
from sparsejax.dask import members, watch
from sparsejax.dask.meetings import Meetings
from sparsejax.jit.backend import records
from sparsejax.optional import optional

try:
    from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin
    from distributed.utils import sync
except ImportError:  # Dask's other schedulers have no workers elsewhere
    SchedulerPlugin = WorkerPlugin = object  # type: ignore[misc, assignment]

log = logging.getLogger("sparsejax")

LIMIT = 256 << 20
"""Bytes that a scheduler keeps; the records that were asked for longest ago go first."""
PATIENCE = 60.0
"""Seconds that a worker waits for another's compile before it compiles itself."""


class Board(SchedulerPlugin):
    """The scheduler's side."""

    name, idempotent = "sparsejax-board", True

    def __init__(self) -> None:
        self.records: OrderedDict[str, bytes] = OrderedDict()
        self.bytes = 0
        self.claims: dict[str, tuple[str, asyncio.Event]] = {}
        """Who makes the record of a name now, and what those who wait for it wait for."""
        self.meetings: Meetings | None = None

    async def start(self, scheduler: Any) -> None:
        """Answer workers from now on, and look after their memory."""
        self.meetings = Meetings(scheduler)
        handlers = {"load": self.load, "claim": self.claim, "store": self.store, "release": self.release}
        scheduler.handlers.update({f"sparsejax_{name}": handler for name, handler in handlers.items()})
        callback = optional("tornado.ioloop", "dask").PeriodicCallback(watch.Watch(scheduler).look, 1000)
        scheduler.periodic_callbacks["sparsejax-watch"] = callback
        callback.start()

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """A worker is lost: what it was to make, another makes."""
        if self.meetings is not None:
            self.meetings.lost(worker)
        for name in [n for n, (holder, _) in self.claims.items() if holder == worker]:
            self.release(name, worker)

    def load(self, name: str) -> bytes | None:
        """The record of a name, or None."""
        found = self.records.get(name)
        if found is not None:
            self.records.move_to_end(name)
        return found

    async def claim(self, name: str, worker: str) -> bytes | None:
        """The record of a name once nobody makes it; None where this worker is to make it."""
        while name not in self.records and name in self.claims and self.claims[name][0] != worker:
            await self.claims[name][1].wait()
        found = self.load(name)
        if found is None:
            self.claims.setdefault(name, (worker, asyncio.Event()))
        return found

    def store(self, name: str, record: bytes) -> None:
        """Keep a record."""
        if name not in self.records:
            self.records[name] = record
            self.bytes += len(record)
            while self.bytes > LIMIT:
                self.bytes -= len(self.records.popitem(last=False)[1])

    def release(self, name: str, worker: str) -> None:
        """A worker has stored a record, or will not."""
        if name in self.claims and self.claims[name][0] == worker:
            self.claims.pop(name)[1].set()


class Reader(WorkerPlugin):
    """A worker's side: a source of records."""

    name, idempotent = "sparsejax-reader", True

    def __init__(self) -> None:
        self._worker: Any = None

    def setup(self, worker: Any) -> None:
        """Ask the scheduler of this worker from now on, and keep no more free memory than goes with the worker's limit."""
        self._worker = worker
        worker.handlers["sparsejax_take"] = members.take
        limit = getattr(getattr(worker, "memory_manager", None), "memory_limit", None)
        if limit:
            config.update("free_memory", min(config.free_memory(), int(limit) >> 24))
        records.add(self)

    def teardown(self, worker: Any) -> None:
        """Ask no longer."""
        records.remove(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"_worker": None}

    def load(self, name: str) -> bytes | None:
        """See `records.Source`."""
        found: bytes | None = self._ask("load", name=name)
        return found

    def claim(self, name: str) -> bytes | None:
        """See `records.Source`."""
        found: bytes | None = self._ask("claim", name=name, worker=self._worker.address)
        return found

    def store(self, name: str, record: bytes) -> None:
        """See `records.Source`."""
        self._ask("store", name=name, record=record)

    def release(self, name: str) -> None:
        """See `records.Source`."""
        self._ask("release", name=name, worker=self._worker.address)

    def _ask(self, what: str, **arguments: Any) -> Any:
        """What the scheduler answers; None, and no more questions, where it cannot."""
        worker = self._worker
        if worker is None or worker.loop.asyncio_loop is _running():
            return None
        try:
            return sync(
                worker.loop, getattr(worker.scheduler, f"sparsejax_{what}"), callback_timeout=PATIENCE, **arguments
            )
        except (
            Exception
        ) as error:  # of the network, a closing worker, a scheduler without the plugin: kernels are compiled here
            if not isinstance(error, TimeoutError):
                log.info("compiled kernels are not exchanged any more: %s: %s", type(error).__name__, error)
                records.remove(self)
            return None


def _running() -> Any:
    """The event loop of this thread, which must not wait for itself."""
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


_installed: weakref.WeakSet[Any] = weakref.WeakSet()
_refused: weakref.WeakSet[Any] = weakref.WeakSet()
_installing = threading.Lock()
forks.anew(__name__, _installing=threading.Lock)


def install(client: Any) -> None:
    """Let the workers of a client's cluster exchange what they compile; once per client. A cluster that refuses plugins goes without."""
    with _installing:
        if client in _installed or getattr(client, "asynchronous", False):
            return
        _installed.add(client)
    try:
        client.register_plugin(Board())
        client.register_plugin(Reader())
    except Exception as error:  # the package may not be installed where the scheduler runs
        _refused.add(client)
        log.warning("each worker compiles for itself: %s: %s", type(error).__name__, error)


def exchanging(client: Any) -> bool:
    """Whether the workers of a client's cluster exchange what they compile, and results."""
    return client in _installed and client not in _refused
