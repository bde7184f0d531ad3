"""Which worker a block should lie on, and with it the tasks that read it: Dask runs a task where most of its bytes are, and what is moved to it may be more
than the block that stays.

    block 0 of 4 -> the first of two workers       block k of n lies on worker floor(k * workers / n), workers counted once per thread
    block 3 of 4 -> the second                     equal cuts of two arrays lie beside each other

A task of a stage is asked to run where its largest block lies (Dask's annotations `workers` and `allow_other_workers`). Where that worker is lost or busy,
another runs it. Blocks of files lie nowhere: Dask reads them where there is room, and what reads them follows.
"""

from __future__ import annotations

import hashlib
import time
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from sparsejax.optional import optional

Homes = Mapping[Any, str]
"""The worker of every task that has one."""

FRESH = 5.0
"""Seconds after which workers are asked for again."""
_known: weakref.WeakKeyDictionary[Any, tuple[float, tuple[str, ...]]] = weakref.WeakKeyDictionary()


def seats(client: Any) -> tuple[str, ...]:
    """The workers of a client's cluster in the order of their addresses, each as often as it has threads; none where a client cannot be asked."""
    if client is None or client.asynchronous:
        return ()
    asked, found = _known.get(client, (0.0, ()))
    if time.monotonic() - asked > FRESH or not found:
        found = tuple(w for w, threads in sorted(client.nthreads().items()) for _ in range(threads))
        _known[client] = time.monotonic(), found
    return found


def memory(client: Any) -> float:
    """Bytes of the worker of a client's cluster that has the fewest; 0 where they have no limit."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return float(min((w["memory_limit"] for w in workers if w["memory_limit"]), default=0))


def near(workers: Iterable[str]) -> bool:
    """Whether workers have one host in their addresses.

    >>> near(["tcp://127.0.0.1:4000", "tcp://127.0.0.1:4001"]), near(["tcp://10.0.0.1:4000", "tcp://10.0.0.2:4000"])
    (True, False)
    """
    return len({address.rpartition(":")[0] for address in workers}) < 2


def home(number: int, count: int, among: Sequence[str]) -> str | None:
    """The worker of one of so many blocks; None where there is only one, or no worker.

    >>> [home(k, 4, ("a", "b")) for k in range(4)]
    ['a', 'a', 'b', 'b']
    """
    return among[number * len(among) // count] if count > 1 and among else None


def annotated(graph: Mapping[Any, Any], homes: Homes) -> Any:
    """A graph that asks Dask to run tasks at their homes."""
    own: dict[Hashable, list[str]] = {key: [homes[key]] for key in graph if key in homes}
    if not own:
        return graph
    layered = optional("dask.highlevelgraph", "dask")
    asked = {"workers": own.get, "allow_other_workers": dict.fromkeys(own, True).get}
    name = f"sparsejax-{hashlib.sha256(repr(list(graph)).encode()).hexdigest()[:32]}"  # keys say what they compute
    return layered.HighLevelGraph({name: layered.MaterializedLayer(graph, annotations=asked)}, {name: set()})
