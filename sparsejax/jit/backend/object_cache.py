"""Machine code on disk, so that a second process compiles nothing.

    file     magic, format version, length, SHA-256 of all that follows | SHA-256 of host and LLVM text | object
    name     SHA-256 of host and LLVM text

A file is used only when it is whole, of this format, and for exactly this text on exactly this host; anything else is replaced by
what is compiled anew. It appears under its name by renaming a finished temporary file, so that processes never see half a file and
need no locks. Nothing in it is ever unpickled. It does hold machine code: folder and files must belong to the user, be closed to writing
by others and be no symbolic links, or the cache is not used. Trouble with the disk is logged once and otherwise makes no difference.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import secrets
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import platformdirs
import scipy

from sparsejax import config
from sparsejax.jit.backend import host

log = logging.getLogger("sparsejax")

FORMAT = 2
LIMIT = 256 << 20
"""Bytes on disk above which the files that were not used for longest are removed."""

_MAGIC = b"sjobject"
_HEADER = struct.Struct("<8sIIQ32s")  # magic, format, 0, length of the object, checksum
_SUFFIX, _TEMPORARY = ".object", ".partial"
_LARGEST = 64 << 20
_BLOCK = 4096
_STORES_PER_SWEEP = 64
_LOOKED_AT = 1024
"""Files that a sweep asks for their sizes and times, about."""
_ABANDONED = 3600.0  # seconds after which a temporary file has lost its writer
_STALE = 3600.0  # seconds after which a use is noted in the file's time


class ObjectCache:
    """Objects by LLVM text in a folder, at most about `limit` bytes of them."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder = folder
        self.limit = limit
        self._complained = False

    def load(self, text: str) -> bytes | None:
        """The object of a text; None when there is none that can be trusted. O(size of text and object)."""
        try:
            with self._opened() as folder:
                return self._read(folder, _digest(text))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._complain(error)
            return None

    def store(self, text: str, image: bytes) -> None:
        """Keep the object of a text, in place of any file of its name."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            digest = _digest(text)
            with self._opened() as folder:
                self._write(folder, _name(digest), _framed(digest, image))
                if secrets.randbelow(_STORES_PER_SWEEP) == 0:  # by chance, as most processes store little
                    self._sweep(folder)
        except (OSError, ValueError) as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            log.warning(
                "the compile cache in %s is damaged or cannot be used, which costs compile time only: %s",
                self.folder,
                error,
            )

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the folder, through which every file is reached, so that nobody can exchange it meanwhile."""
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _check_private(os.fstat(folder), "the folder")
            yield folder
        finally:
            os.close(folder)

    def _read(self, folder: int, digest: bytes) -> bytes:
        name = _name(digest)
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with open(file, "rb") as stream:
            status = os.fstat(file)
            _check_private(status, name)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
                raise ValueError(f"{name} is not a file of the cache")
            image = _unframed(stream.read(status.st_size + 1), digest)
            if time.time() - status.st_mtime > _STALE:
                with contextlib.suppress(OSError):
                    os.utime(file)
        return image

    def _write(self, folder: int, name: str, frame: bytes) -> None:
        partial = f"{secrets.token_hex(16)}{_TEMPORARY}"
        file = os.open(
            partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
        )
        try:
            with open(file, "wb") as stream:
                stream.write(frame)
            os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial, dir_fd=folder)
            raise

    def _sweep(self, folder: int) -> None:
        """Remove what writers left behind and, above the limit, the oldest files down to three quarters of it.

        Of many files, one part is looked at, with its share of the limit: by chance, so that parts are alike. O(names + _LOOKED_AT).
        """
        now, total = time.time(), 0
        found: list[tuple[float, int, str]] = []
        names = [name for name in os.listdir(folder) if name.endswith((_SUFFIX, _TEMPORARY))]
        parts = -(-len(names) // _LOOKED_AT)
        part, limit = secrets.randbelow(parts or 1), self.limit // (parts or 1)
        for name in names:
            if hash(name) % parts != part:
                continue
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    continue
                if name.endswith(_SUFFIX):
                    size = -(-status.st_size // _BLOCK) * _BLOCK
                    found.append((status.st_mtime, size, name))
                    total += size
                elif now - status.st_mtime > _ABANDONED:
                    os.unlink(name, dir_fd=folder)
        if total <= limit:
            return
        for _, size, name in sorted(found):
            if total <= limit * 3 // 4:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            total -= size


def _check_private(status: os.stat_result, what: str) -> None:
    """ValueError unless only this user can have written there."""
    if status.st_uid != os.geteuid():
        raise ValueError(f"{what} belongs to user {status.st_uid}, not to {os.geteuid()}")
    if status.st_mode & 0o022:
        raise ValueError(f"{what} can be written by others (mode {stat.S_IMODE(status.st_mode):o}); use 700")


def _digest(text: str) -> bytes:
    """What a text is known by on this host."""
    return hashlib.sha256(f"{FORMAT} | {host.identity()}\n{text}".encode()).digest()


def _name(digest: bytes) -> str:
    return digest.hex() + _SUFFIX


def _framed(digest: bytes, image: bytes) -> bytes:
    """The content of a file."""
    lengths = (_MAGIC, FORMAT, 0, len(image))
    return _HEADER.pack(*lengths, _checksum(lengths, digest + image)) + digest + image


def _unframed(frame: bytes, digest: bytes) -> bytes:
    """The object in a file; ValueError, saying why, unless the file is whole and for the text of this digest on this host."""
    if len(frame) < _HEADER.size:
        raise ValueError("a file is shorter than its header")
    *lengths, checksum = _HEADER.unpack_from(frame)
    magic, version, _, size = lengths
    content = frame[_HEADER.size :]
    if magic != _MAGIC or version != FORMAT:
        raise ValueError(f"a file is not of format {FORMAT}")
    if len(digest) + size != len(content) or checksum != _checksum(tuple(lengths), content):
        raise ValueError("a file is damaged: length or checksum is wrong")
    if content[: len(digest)] != digest:
        raise ValueError("a file is for another kernel or another host")
    return content[len(digest) :]


def _checksum(lengths: tuple[object, ...], content: bytes) -> bytes:
    return hashlib.sha256(repr(lengths).encode() + content).digest()


@functools.cache
def _cache(place: str) -> ObjectCache | None:
    if place == "off" or os.name != "posix":
        return None
    folder = platformdirs.user_cache_path("sparsejax", appauthor=False) if place == "auto" else Path(place)
    return ObjectCache(folder.absolute()) if place != "auto" or folder.is_absolute() else None


def active() -> ObjectCache | None:
    """The cache that `config` names, or None."""
    return _cache(config.cache_dir())


def named(text: str) -> str:
    """A key for what these sources make of what `text` says."""
    return f"{SOURCES}\n{text}"


def sources(folder: Path) -> str:
    """The state of all Python files below a folder: their sizes, inodes and times of change, hashed. Reading them would take five
    times as long, and no edit, copy or installation leaves the time of change as it was.
    """
    found, folders = [], [os.fspath(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    s = entry.stat()
                    found.append((entry.path, s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns))
                elif entry.name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()


SOURCES = f"{sources(Path(__file__).parents[2])} numpy {np.__version__} scipy {scipy.__version__}"
"""What records depend on besides keys: found when the sources have just been read."""
