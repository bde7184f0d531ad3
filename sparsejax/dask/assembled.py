"""Operands that were put together of blocks, for the next tasks that read the same ones, while the blocks are there."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from sparsejax import forks

KEPT = 2
"""How many are kept."""
_known: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_lock = threading.Lock()
forks.anew(__name__, _lock=threading.Lock)


def found(parts: list[Any], grid: tuple[int, ...], put_together: Callable[[], Any]) -> Any:
    """The array of these blocks, which are known by what they are in memory: put together where it is not known."""
    with _lock:
        whole = _known.get((grid, *map(id, parts)))
        return _kept(parts, grid, put_together()) if whole is None else whole


def keep(parts: list[Any], grid: tuple[int, ...], whole: Any) -> None:
    """The array of these blocks is there already."""
    with _lock:
        _kept(parts, grid, whole)


def _kept(parts: list[Any], grid: tuple[int, ...], whole: Any) -> Any:
    key = (grid, *map(id, parts))
    _known[key] = whole
    for block in {id(p): p for p in parts}.values():
        weakref.finalize(block, _known.pop, key, None).atexit = False
    while len(_known) > KEPT:
        _known.popitem(last=False)
    return whole
