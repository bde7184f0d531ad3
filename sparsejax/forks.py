"""What a child process makes anew: a lock that another thread of the parent held at the fork is never released in the child."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

_made: dict[int, tuple[weakref.ref[Any], dict[str, Callable[[], Any]]]] = {}
"""By identity: an object, and what makes its attributes."""


def anew(owner: Any, **made: Callable[[], Any]) -> None:
    """In each child process, set these attributes of `owner`, a module by its name or any object, to what the functions return. The object is
    held weakly, and has one call. O(1).

    >>> import threading
    >>> class Counter:
    ...     def __init__(self):
    ...         self._lock, self.value = threading.Lock(), 0
    ...         anew(self, _lock=threading.Lock)
    >>> counter = Counter()
    >>> with counter._lock:  # at a fork, by another thread
    ...     _renew()  # in the child
    ...     counter._lock.locked()
    False
    """
    if isinstance(owner, str):
        owner = sys.modules[owner]
    key = id(owner)

    def gone(_: Any) -> None:
        _made.pop(key, None)

    _made[key] = weakref.ref(owner, gone), made


def _renew() -> None:
    for found, made in list(_made.values()):
        owner = found()
        if owner is not None:
            for name, make in made.items():
                setattr(owner, name, make())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
