"""Decisions that take long to come to, remembered: in memory, and on disk for the next process.

A decision is a short text under a key that says everything it depends on, beside the sources of this package. On disk it is an entry of the
object cache, as plans are (`plan_cache`): framed, checked, private, never unpickled. What cannot be read is decided again.
"""

from __future__ import annotations

from collections.abc import Callable

from sparsejax.cached import Recent
from sparsejax.jit.backend import object_cache, records

_recent: Recent[str, str] = Recent(1024)
forget = _recent.clear
"""Drop what is in memory, as in a new process."""


def remembered(key: str, decide: Callable[[], str]) -> str:
    """What was decided under `key`, or else is now."""
    known = _recent.get(key)
    if known is None:
        known = _recalled(key, decide)
        _recent.put(key, known)
    if records.recording():
        records.note(object_cache.named(key), known.encode())
    return known


def _recalled(key: str, decide: Callable[[], str]) -> str:
    cache, name = records.active(), object_cache.named(key)
    record = None if cache is None else cache.load(name)
    if record is not None:
        return record.decode()
    made = decide()
    if cache is not None:
        cache.store(name, made.encode())
    return made
