"""Nothing outside of an operand is read: every buffer lies between two pages that nobody may touch, at the end of what lies between (even seeds) or
at its beginning (odd ones). A kernel that reads one element too many ends the process.

    python -m tests.fuzz.guarded 0:300       random definitions of these seeds, a quarter of them in blocks, each named before it runs
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats.storage import Storage
from tests.fuzz import definitions, engine, forced

PAGE = mmap.PAGESIZE
NONE = 0  # PROT_NONE


def between(array: NDArray, at_end: bool) -> NDArray:
    """A copy between two such pages; on systems without `mprotect`, a plain one."""
    if os.name != "posix":
        return array.copy()
    room = -(-max(array.nbytes, 1) // PAGE) * PAGE
    pages = mmap.mmap(-1, room + 2 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    start = PAGE + (room - array.nbytes if at_end else 0)
    made = np.frombuffer(pages, array.dtype, array.size, start).reshape(array.shape)
    made[...] = array
    for edge in (address, address + PAGE + room):
        if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(edge), ctypes.c_size_t(PAGE), NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    made.setflags(write=False)
    return made


@contextmanager
def guarded(at_end: bool) -> Iterator[None]:
    """Inside the block, buffers of arrays that are made are such copies."""
    frozen = Storage.__post_init__

    def copied(self: Storage) -> None:
        self.buffers = tuple(tuple(between(b, at_end) for b in level) for level in self.buffers)
        self.vals = between(self.vals, at_end) if self.vals.flags.c_contiguous else self.vals
        frozen(self)

    with mock.patch.object(Storage, "__post_init__", copied):
        yield


def check(seed: int, blocked: bool = False) -> str | None:
    """`definitions.check` where nothing outside of an operand may be read."""
    with guarded(seed % 2 == 0):
        return forced.every(definitions.check)(seed, blocked=blocked)


def run(seeds: range, checked: Callable[[int], str | None] = check) -> None:
    """Name each seed, then check it."""
    faulthandler.enable()
    with engine.quick():
        for seed in seeds:
            print(seed, flush=True)
            fault = checked(seed)
            if fault:
                raise SystemExit(fault)


if __name__ == "__main__":
    first, last = map(int, sys.argv[1].split(":"))
    run(range(first, last), lambda seed: check(seed, blocked=seed % 8 > 5))
