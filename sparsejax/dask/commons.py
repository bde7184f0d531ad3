"""Dense blocks that all members of a gang read together, in memory that all of them have: nobody puts them together, and each is written once.

    member 0                    the memory                    member 1
    writes its rows of y  --->  | rows of 0 | rows of 1 |  <--- writes its rows of y
    reads all of y        <---  |           |           |  ---> reads all of y

The gang's plan gives each such array a place. A place is used again where every member is known to be past its last reading of what was there: it has sent
something since, which the writer has waited for. A member that finds that somebody still holds what it has read (a result may be a view of it) tells the
others, and nothing is written there any more; blocks are sent from then on.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.dask import lending
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage

PAGE = 4096
PLACES = 8
"""How many arrays are in the memory at once."""
_POPULATE = 22  # MADV_POPULATE_READ of Linux 5.14


@dataclass(frozen=True)
class Whole:
    """A dense array in blocks of rows, which tasks read together."""

    keys: tuple[Any, ...]
    grid: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    cut: tuple[int, ...]

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    @property
    def bytes(self) -> int:
        """Of all rows."""
        return self.cut[-1] * self.row


@dataclass(frozen=True)
class Common:
    """A whole array and where it is."""

    whole: Whole
    at: int


def planned(wholes: Iterable[Whole], steps: Sequence[Sequence[Any]], wanted: Iterable[Any]) -> tuple[Common, ...]:
    """Places of arrays that every member makes a part of and reads, for the steps of all members (`members.Step`)."""
    index = {step.key: (part, n) for part, own in enumerate(steps) for n, step in enumerate(own)}
    read: list[dict[Any, int]] = []
    heard: list[list[list[int]]] = []
    for part, own in enumerate(steps):
        last: dict[Any, int] = {}
        now, known = [-1] * len(steps), []
        for n, step in enumerate(own):
            for key in step.node.dependencies:
                last[key] = n
                if key in index and index[key][0] != part:
                    now[index[key][0]] = max(now[index[key][0]], index[key][1])
            known.append(now.copy())
        read.append(last)
        heard.append(known)
    kept = set(wanted)
    places: list[_Place] = []
    end, made = 0, []
    for whole in wholes:
        if whole.bytes < lending.LARGE or not all(k in index and k not in kept for k in whole.keys):
            continue
        first: dict[int, int] = {}
        for key in whole.keys:
            part, n = index[key]
            first[part] = min(n, first.get(part, n))
        if len(first) < len(steps) or not all(k in own for own in read for k in whole.keys):
            continue
        last_read = [max(own[k] for k in whole.keys) for own in read]

        found = next((p for p in places if p.bytes >= whole.bytes and _past(p.last, first, heard)), None)
        if found is None:
            if len(places) == PLACES:
                continue
            found = _Place(end, whole.bytes, last_read)
            places.append(found)
            end += -(-whole.bytes // PAGE) * PAGE
        found.last = last_read
        made.append(Common(whole, found.at))
    return tuple(made)


@dataclass
class _Place:
    """Where arrays are, and the step after which each member is done with the last of them."""

    at: int
    bytes: int
    last: list[int]


def _past(last: Sequence[int], first: Mapping[int, int], heard: Sequence[Sequence[Sequence[int]]]) -> bool:
    """Whether all members are past these steps, as far as each of them knows in the step in which it first writes."""
    return all(
        (n if part == other else heard[part][n][other]) >= step
        for part, n in first.items()
        for other, step in enumerate(last)
    )


def room(commons: Iterable[Common]) -> int:
    """Bytes of the memory."""
    return max((c.at + -(-c.whole.bytes // PAGE) * PAGE for c in commons), default=0)


class Commons:
    """The memory, as a member has it."""

    def __init__(self, commons: Sequence[Common]) -> None:
        self._commons = commons
        self._of: dict[Any, tuple[Common, int]] = {}
        for common in commons:
            self._of.update({key: (common, n) for n, key in enumerate(common.whole.keys)})
        self._file: int | None = None
        self._map: Any = None
        self.clean = True
        """Whether nothing is held that others may write to."""
        self.ready = False
        """Whether all members have it."""
        self._there: dict[Common, set[Any]] = {}
        """Blocks that are in place."""
        self._read: dict[Common, list[weakref.ref[Any]]] = {}
        self._seen: set[int] = set()

    def created(self) -> int:
        """The descriptor of new memory, which is this member's and stays open."""
        file = os.memfd_create("sparsejax")
        os.ftruncate(file, room(self._commons))
        self.have(file)
        return file

    def have(self, file: int) -> None:
        """Take memory that another has created, and its descriptor."""
        self.close()
        self._file = file
        self._map = mmap.mmap(file, room(self._commons), mmap.MAP_SHARED, mmap.PROT_READ)

    def close(self) -> None:
        """Use it no more; it is there as long as somebody reads it."""
        self.ready = False
        if self._file is not None:
            os.close(self._file)
            self._file = self._map = None

    def write(self, key: Any, block: Any) -> bool:
        """Put a block of one's own in its place; False where it has none."""
        found = self._of.get(key)
        if found is None or not self.ready or not self.clean or self._file is None:
            return False
        common, n = found
        whole = common.whole
        low, high = whole.cut[n : n + 2]
        if not isinstance(block, Array) or not _plain(block) or block.dtype.str != whole.dtype:
            return False
        if block.shape != (high - low, *whole.shape[1:]):
            return False
        try:
            if block.size:
                lending.write(self._file, block._storage.vals.data.cast("B"), common.at + low * whole.row)
        except OSError:  # no memory
            return False
        self._there.setdefault(common, set()).add(key)
        return True

    def block(self, key: Any) -> Array:
        """What another has put in its place."""
        common, n = self._of[key]
        self._there.setdefault(common, set()).add(key)
        low, high = common.whole.cut[n : n + 2]
        return self._array(common, low, high)

    def whole(self, needs: Iterable[Any]) -> Iterable[tuple[Whole, Array]]:
        """Arrays of which all blocks are in place, and among those that a task needs."""
        if not self._there:
            return
        wanted = set(needs)
        for common, there in self._there.items():
            if len(there) == len(common.whole.keys) and there <= wanted:
                yield common.whole, self._array(common, 0, common.whole.cut[-1])

    def done(self, values: Mapping[Any, Any]) -> bool:
        """Let go of what is not among the values any more; whether that is found to be held for the first time."""
        was = self.clean
        for common in [c for c in self._there if not any(k in values for k in c.whole.keys)]:
            if any(ref() is not None for ref in self._read.pop(common, ())):
                self.clean = False
            del self._there[common]
        return was and not self.clean

    def _array(self, common: Common, low: int, high: int) -> Array:
        whole = common.whole
        if common.at not in self._seen and high - low == whole.cut[-1]:
            self._seen.add(common.at)
            with contextlib.suppress(OSError):  # of older systems: pages are found when they are read
                self._map.madvise(_POPULATE, common.at, whole.bytes)
        count = (high - low) * math.prod(whole.shape[1:])
        vals = np.frombuffer(self._map, whole.dtype, count, common.at + low * whole.row)
        self._read.setdefault(common, []).append(weakref.ref(vals))
        return _dense(vals, (high - low, *whole.shape[1:]))


def _plain(block: Array) -> bool:
    """Whether entries are stored row by row, all of them, one after the other."""
    form = block.format
    return form.is_dense and form.order == tuple(range(block.ndim)) and bool(block._storage.vals.flags.c_contiguous)


def _dense(vals: Any, shape: tuple[int, ...]) -> Array:
    form = Format.parse("dense", len(shape))
    return Array(Storage(form, shape, np.zeros((), vals.dtype)[()], ((),) * len(shape), vals))
