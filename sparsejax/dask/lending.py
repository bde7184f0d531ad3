"""How members of a gang on one computer pass results to each other: by a Unix socket, large ones as memory that both have.

    member 0                                          member 1
    writes y0 into a file that is in memory alone
    sends its descriptor, and closes it     ------->  maps it: y0, which nobody copies again

The system frees the memory once nobody has it, also where a process is killed. Whatever cannot pass here (on other systems or computers, of other users,
where a queue is full) passes over Dask's comms. Messages of other users are not read.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import secrets
import select
import socket
import struct
from collections.abc import Sequence
from typing import Any

LARGE = 1 << 16
"""Bytes from which on a result is lent."""
MESSAGE = 1 << 17
"""Bytes of the largest message."""
ALIGN = 64

_NAMES = 4 << 10
_CREDENTIALS = struct.Struct("3i")


class Post:
    """The socket of a member. `place` tells others where it is, "" where they cannot send to it."""

    def __init__(self) -> None:
        self.place = self._name = ""
        self._socket: socket.socket | None = None
        with contextlib.suppress(OSError, AttributeError):
            computer = _computer()
            os.close(os.memfd_create("sparsejax"))
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MESSAGE)
            name = f"\0sparsejax-{secrets.token_hex(16)}"
            made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            made.bind(name)
            made.setblocking(False)
            self._socket, self._name, self.place = made, name, f"{computer}{name}"

    def send(self, place: str, about: Any, block: Any) -> bool:
        """Send a block and what is told of it to another; False where that cannot be done."""
        if not self.reaches(place):
            return False
        buffers: list[pickle.PickleBuffer] = []
        told = pickle.dumps(block, protocol=5, buffer_callback=buffers.append)
        raw = [b.raw() for b in buffers]
        if sum(b.nbytes for b in raw) < LARGE:
            return self._told(place, (about, told, [b.nbytes for b in raw], "here"), raw)
        try:
            file = written(raw)
        except OSError:  # no memory, no descriptors
            return False
        try:
            return self._told(place, (about, told, [b.nbytes for b in raw], "lent"), [], file)
        finally:
            os.close(file)

    def give(self, place: str, about: Any, file: int) -> bool:
        """Send a descriptor, which is received as one in place of a block; False where that cannot be done."""
        return self.reaches(place) and self._told(place, (about, b"", [], "file"), [], file)

    def reaches(self, place: str) -> bool:
        """Whether another may be sent to from here."""
        computer, _, name = place.partition("\0")
        return self._socket is not None and bool(name) and computer == self.place.partition("\0")[0]

    def _told(self, place: str, head: Any, raw: Sequence[memoryview], file: int | None = None) -> bool:
        packed = pickle.dumps(head)
        if self._socket is None or len(packed) + sum(b.nbytes for b in raw) > MESSAGE:
            return False
        rights = [] if file is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", file))]
        try:
            self._socket.sendmsg([struct.pack("q", len(packed)), packed, *raw], rights, 0, place[place.index("\0") :])
        except OSError:  # nobody there, a full queue, too many descriptors on their way
            return False
        return True

    def receive(self, seconds: float) -> tuple[list[tuple[Any, Any]], bool]:
        """What has come, or comes within so many seconds, with what is told of it; and whether something has, be it that it was woken."""
        assert self._socket is not None
        made: list[tuple[Any, Any]] = []
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)
        if not ready.poll(seconds * 1e3):
            return made, False
        with contextlib.suppress(BlockingIOError):
            while True:
                one = self._received(self._socket)
                if one is not None:
                    made.append(one)
        return made, True

    def wake(self) -> None:
        """Let it receive nothing."""
        own = self._socket
        if own is not None:
            with contextlib.suppress(OSError):  # full, so that it wakes anyway, or closed by now
                own.sendto(b"", self._name)

    def close(self) -> None:
        """Receive no more; what has come is let go of."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @staticmethod
    def _received(own: socket.socket) -> tuple[Any, Any] | None:
        room = socket.CMSG_SPACE(4) + socket.CMSG_SPACE(_CREDENTIALS.size)
        data, ancillary, flags, _ = own.recvmsg(MESSAGE + _NAMES, room, socket.MSG_CMSG_CLOEXEC)
        files: list[int] = []
        trusted = False
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files += struct.unpack(f"{len(value) // 4}i", value[: len(value) // 4 * 4])
            elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                trusted = _CREDENTIALS.unpack(value)[1] == os.getuid()
        try:
            if not data or not trusted or flags & socket.MSG_TRUNC:
                return None
            if flags & socket.MSG_CTRUNC:
                raise OSError("a result has come in memory that cannot be opened: this process has too many open files")
            (length,) = struct.unpack("q", data[:8])
            about, told, sizes, how = pickle.loads(data[8 : 8 + length])
            if how == "file":
                return about, files.pop()
            raw = mapped(files[0]) if how == "lent" else memoryview(data)[8 + length :]
            return about, pickle.loads(told, buffers=divided(raw, sizes, ALIGN if how == "lent" else 1))
        finally:
            for file in files:
                os.close(file)


def _computer() -> str:
    """What members that can send to each other have in common: a running system, its network, a user."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    return f"{boot}-{os.stat('/proc/self/ns/net').st_ino}-{os.getuid()}"


def written(buffers: Sequence[memoryview]) -> int:
    """The descriptor of a new file in memory with these bytes, each from a multiple of `ALIGN` on."""
    file = os.memfd_create("sparsejax")
    try:
        at = 0
        for own in buffers:
            write(file, own, at)
            at += -(-own.nbytes // ALIGN) * ALIGN
        os.ftruncate(file, max(at, 1))
    except BaseException:
        os.close(file)
        raise
    return file


def write(file: int, own: memoryview, at: int) -> None:
    """Bytes from a place of a file on."""
    done = 0
    while done < own.nbytes:
        done += os.pwrite(file, own[done:], at + done)


def mapped(file: int) -> memoryview:
    """The bytes of a file in memory, which are unmapped with the last that reads them."""
    size = os.fstat(file).st_size
    return memoryview(mmap.mmap(file, size, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ))


def divided(raw: memoryview, sizes: Sequence[int], align: int) -> list[memoryview]:
    """Buffers of these sizes, one after the other."""
    made, at = [], 0
    for size in sizes:
        made.append(raw[at : at + size])
        at += -(-size // align) * align
    return made
