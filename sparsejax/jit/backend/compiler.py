"""From LLVM text to a callable.

    LLVM text -> object (`engine`, or `object_cache` where another process has compiled it) -> executable memory (`loader`)

A kernel stays loaded while a plan refers to it, and the most recent ones beyond that.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import struct
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from sparsejax import config
from sparsejax.cached import Recent, cached_property
from sparsejax.errors import NEGATIVE_POWER
from sparsejax.jit.backend import builder, engine, entry, host, loader, object_cache, records

log = logging.getLogger("sparsejax")


class Kernel:
    """A compiled kernel: call it with packed 8-byte slots. The interpreter lock is released meanwhile."""

    def __init__(self, address: int, keep: Any, key: str = "") -> None:
        """`key` is the digest of its text."""
        self._keep = keep
        self.address, self.key = address, key
        self.run_packed = entry.call(address, keep)
        """Run the kernel on packed slots that it only reads (a dense output), in one part or several; the status code."""

    @cached_property
    def run_at(self) -> Callable[[int], int]:
        """Run the kernel on the slots at an address; the status code."""
        return entry.at(self.address, self._keep)

    @cached_property
    def _after(self) -> entry.After:
        return entry.after(self.address, self._keep)

    def __call__(self, *slots: bytes) -> tuple[int, tuple[int, ...]]:
        """Run the kernel on packed slots, in one part or several; the status code and the slots afterwards."""
        left = self._after(*slots)
        status, *after = struct.unpack(f"{len(left) // 8}q", left)
        return status, tuple(after)


_KEPT = 1024
"""Kernels that stay loaded although no plan refers to them."""

_lock = threading.RLock()
_live: weakref.WeakValueDictionary[str, Kernel] = weakref.WeakValueDictionary()
_recent: OrderedDict[str, Kernel] = OrderedDict()
latest: Recent[str, bytes] = Recent(64)
"""The object files that were placed last, by the digests of their texts."""
_compiled = 0


def compile_text(text: str, plain: bool = False) -> Kernel:
    """The kernel for LLVM text: loaded already, from the object cache on disk, or compiled now, without optimisation where `plain`."""
    return _found(text, lambda: text, plain, "")


def compile_written(name: str, write: Callable[[], str], plain: bool = False) -> Kernel:
    """As `compile_text` of what `write` returns, which sources of this package and `name` decide alone: it is written where nobody kept the kernel."""
    return _found(object_cache.named(f"kernel: {name}"), write, plain, name)


def _found(known_by: str, write: Callable[[], str], plain: bool, called: str) -> Kernel:
    """The kernel that has this key; a log calls it so, or says how long its text is."""
    key = hashlib.sha256(known_by.encode()).hexdigest()
    kernel = _live.get(key)
    with _lock:
        kernel = kernel or _live.get(key)
        if kernel is None:
            kernel = _make(known_by, write, plain, key, called)
        elif records.recording():
            _image(known_by, write, plain)
        _keep_loaded(key, kernel)
    return kernel


def loaded(key: str, image: bytes) -> Kernel:
    """The kernel of the text with this digest, of which somebody kept the object file."""
    with _lock:
        kernel = _live.get(key) or Kernel(*place(image), key)
        latest.put(key, image)
        _keep_loaded(key, kernel)
    return kernel


def _keep_loaded(key: str, kernel: Kernel) -> None:
    _live[key] = _recent[key] = kernel
    _recent.move_to_end(key)
    while len(_recent) > _KEPT:
        _recent.popitem(last=False)


def known_text(text: str) -> Kernel | None:
    """As `compile_text`, unless that would compile."""
    cache = records.active()
    known = hashlib.sha256(text.encode()).hexdigest() in _live or (cache is not None and cache.load(text) is not None)
    return compile_text(text) if known else None


def _make(known_by: str, write: Callable[[], str], plain: bool, key: str, called: str) -> Kernel:
    started, before = time.perf_counter(), _compiled
    image = _image(known_by, write, plain)
    kernel = Kernel(*place(image), key)
    latest.put(key, image)
    known = _compiled == before
    if config.log_compiles():
        verb, took = "loaded" if known else "compiled", 1e3 * (time.perf_counter() - started)
        log.warning("%s %s in %.1f ms", verb, called or f"a kernel of {write().count(chr(10))} lines", took)
    return kernel


def _image(known_by: str, write: Callable[[], str], plain: bool) -> bytes:
    """The object file of LLVM text: from where records are kept, or compiled now and kept there."""
    global _compiled
    cache = records.active()
    image = cache.load(known_by) if cache else None
    if image is None:
        with records.claimed(known_by) as image:
            if image is not None:
                if cache:
                    cache.keep(known_by, image)
            else:
                image = engine.engine().object(write(), plain)
                _compiled += 1
                if cache:
                    cache.store(known_by, image)
    records.note(known_by, image)
    return image


def place(image: bytes) -> tuple[int, Any]:
    """The address of an object's `kernel` in executable memory, and what keeps it there."""
    if host.has("loader"):
        try:
            code = loader.load(image)
        except loader.Unsupported:
            pass
        else:
            return code.address, code
    return engine.engine().link(image)


def forget() -> None:
    """Drop every kernel that no plan refers to, and compile anew what is asked for next."""
    with _lock:
        _live.clear()
        _recent.clear()
        latest.clear()


def compile_seconds(text: str) -> float:
    """The time it takes to compile LLVM text, never from a cache; the machine code is dropped."""
    with _lock:
        made = engine.engine()
        started = time.perf_counter()
        place(made.object(text))
        return time.perf_counter() - started


def assembly(text: str) -> str:
    """The machine code of LLVM text, as assembly."""
    return engine.engine().assembly(text)


def compile_count() -> int:
    """How many kernels LLVM has compiled in this process; those from the object cache do not count."""
    return _compiled


def keep(thing: Any) -> None:
    """Keep an object until the process ends, through the end of the interpreter."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def check(status: int) -> None:
    """Raise for a status code that is not OK."""
    if status == builder.OUT_OF_MEMORY:
        raise MemoryError("sparsejax: the result or a workspace of this operation does not fit in memory")
    if status == builder.NEGATIVE_EXPONENT:
        raise ValueError(NEGATIVE_POWER)
    if status:
        raise RuntimeError(f"sparsejax: a kernel stopped with status {status}")


if hasattr(os, "register_at_fork"):  # a child must not inherit a compile that nobody finishes
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
