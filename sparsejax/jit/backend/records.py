"""Records under text keys - machine code by LLVM text, plans, decisions - wherever they are kept: on disk (`object_cache`), and in `sources`.

    load     disk | the first source that has it, which is then kept on disk too
    store    disk, and every source
    claimed  a kernel that is to be compiled: one source may know that another process compiles it just now, and waits for that

A source is a place that other processes or other computers fill: the scheduler of a cluster (`dask.exchange`), an exported program (`export.kernels`).
Its names say all that a record depends on wherever it was made: processor and its features, code generator by version, the text of this package's sources,
while those on disk go by the files of this computer. Records are checked and decoded by whoever asks, and never unpickled.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import scipy

from sparsejax import forks
from sparsejax.jit.backend import engine, host, object_cache
from sparsejax.jit.backend.object_cache import ObjectCache


class Source(Protocol):
    """Records by name, from elsewhere."""

    def load(self, name: str) -> bytes | None:
        """The record of a name, or None."""

    def store(self, name: str, record: bytes) -> None:
        """Keep a record."""

    def claim(self, name: str) -> bytes | None:
        """As `load`, after waiting for whoever makes the record now; None where this process is to make it, and says `release` afterwards."""

    def release(self, name: str) -> None:
        """What was claimed is stored, or will not be."""


_sources: tuple[Source, ...] = ()
_lock = threading.Lock()
forks.anew(__name__, _lock=threading.Lock)


def add(source: Source) -> None:
    """Look there too, from now on."""
    global _sources
    with _lock:
        _sources = (*_sources, source)


def remove(source: Source) -> None:
    """Look there no longer."""
    global _sources
    with _lock:
        _sources = tuple(s for s in _sources if s is not source)


def exchanged() -> bool:
    """Whether other processes are told what this one compiles, and wait for it."""
    return bool(_sources)


class Layers:
    """The cache on disk, where there is one, and the sources behind it."""

    def __init__(self, disk: ObjectCache | None, sources: tuple[Source, ...]) -> None:
        self._disk, self._sources = disk, sources

    def load(self, text: str) -> bytes | None:
        """The record of a text, from the first place that has it."""
        found = None if self._disk is None else self._disk.load(text)
        if found is None and self._sources:
            name = name_of(text)
            found = next((r for s in self._sources if (r := s.load(name)) is not None), None)
            if found is not None:
                self.keep(text, found)
        return found

    def keep(self, text: str, record: bytes) -> None:
        """Keep what a source has given on disk too."""
        if self._disk is not None:
            self._disk.store(text, record)

    def store(self, text: str, record: bytes) -> None:
        """Keep the record of a text in all places."""
        self.keep(text, record)
        if self._sources:
            name = name_of(text)
            for source in self._sources:
                source.store(name, record)


def active() -> Layers | None:
    """Where records are kept now, or None."""
    disk = object_cache.active()
    return None if disk is None and not _sources else Layers(disk, _sources)


@contextmanager
def claimed(text: str) -> Iterator[bytes | None]:
    """What another process has made of a text meanwhile; None for the one that is to make it now. Others wait until the block ends."""
    sources = _sources
    name = name_of(text) if sources else ""
    held: list[Source] = []
    try:
        found = None
        for source in sources:
            found = source.claim(name)
            if found is not None:
                break
            held.append(source)
        yield found
    finally:
        for source in held:
            source.release(name)


_noted: dict[str, bytes] | None = None


def recording() -> bool:
    """Whether what is read from memory is to be noted too."""
    return _noted is not None


def note(text: str, record: bytes) -> None:
    """Take down the record of a text."""
    if _noted is not None:
        _noted.setdefault(name_of(text), record)


@contextmanager
def recorded() -> Iterator[dict[str, bytes]]:
    """All records, by name, that the block reads or makes; one block at a time."""
    global _noted
    with _lock:
        if _noted is not None:
            raise RuntimeError("records are being taken down already")
        _noted = {}
    made = _noted
    try:
        yield made
    finally:
        _noted = None


# -------------------------------------------------------------------------------------------------------------- names


@functools.cache
def identity() -> str:
    """What machine code depends on besides its text, in words that are the same on every computer of this kind: system, processor with its features,
    llvmlite by version, pass pipeline."""
    llvmlite = f"llvmlite {importlib.metadata.version('llvmlite')}"
    return " | ".join((platform.system(), platform.machine(), host.processor(), llvmlite, engine.PIPELINE))


@functools.cache
def package() -> str:
    """The sources of this package by content, and the libraries that plans depend on. Reads them all, once."""
    root = Path(__file__).parents[2]
    made = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        made.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return f"{made.hexdigest()} numpy {np.__version__} scipy {scipy.__version__}"


def name_of(text: str) -> str:
    """The name of a text's record, the same on every computer of this kind."""
    own = object_cache.SOURCES
    if text.startswith(own):
        text = package() + text.removeprefix(own)
    return hashlib.sha256(f"{object_cache.FORMAT} | {identity()}\n{text}".encode()).hexdigest()
