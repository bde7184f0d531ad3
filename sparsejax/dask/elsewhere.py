"""Blocks that lie on the workers of a cluster, asked for by a scheduler of this process.

    dask.compute(x, scheduler="sync")      Dask: "Missing dependency ('contract-0-de1c...', 0, 0)"
                                           ours: which scheduler and which arrays do not go together, and what to call

Dask tells nobody which scheduler it was asked for, but schedulers of this process call back before they begin (`dask.callbacks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparsejax.optional import optional

_registered = False


def refused(how: str) -> ValueError:
    """The error for a scheduler that cannot read the blocks of an array."""
    return ValueError(
        f"{how} runs tasks in this process, but blocks of this array lie on the workers of a cluster; leave out scheduler, or call compute() first"
    )


def noticed() -> None:
    """From now on, schedulers of this process say so where they miss what lies on the cluster of Dask's client."""
    global _registered
    if not _registered:
        _registered = True
        optional("dask.callbacks", "dask").Callback(start=_started).register()


def _started(graph: Mapping[Any, Any]) -> None:
    missing = {key for node in graph.values() for key in getattr(node, "dependencies", ()) if key not in graph}
    if missing and not missing.isdisjoint(_held()):
        raise refused("a scheduler such as 'sync', 'threads' or 'processes'")


def _held() -> Mapping[Any, Any]:
    """What the client of this process holds on its cluster, by key."""
    try:
        held: Mapping[Any, Any] = optional("distributed", "dask").get_client().futures
    except (ImportError, ValueError):
        return {}
    return held
