"""Memory that results had before, used again once nobody refers to it: neither to the array over it, nor to what that is a view of.

    y = f(x)       a result takes new memory, which is kept as well
    y = f(x)       the first one is still there: another one is kept
    y = f(x)       the first one is gone: its memory is used again

A reference count tells, in a tenth of the time that new memory takes (1.3 microseconds, as long as a product of fifty rows; 2.6 for 40 KB, which the
C library gives back to the system and takes anew). Kept are two arrays, as a program that has one result while it computes the next needs; of all
programs together, `ALTOGETHER` bytes: then those that have kept theirs for the longest time give them up. Of small results, the storages are
kept as well (`Stored`): making one and letting it go takes a quarter of a microsecond.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparsejax import forks
from sparsejax.formats.storage import Storage

MOST = 2
ALTOGETHER = 16 << 20
DERIVED = 4
"""Times its bytes that a storage counts for: what is noted of it stays as long as it does."""
OFTEN = 8
"""Times that a shape comes back before storages of its results are kept: the first takes as long to make as ten calls gain."""
LEAST = 2 << 10
"""Bytes that whatever is kept counts for: what is noted of it takes as much."""
NOTED = 2
"""What is known of a storage from the start (`Stored.noted`)."""
_references = sys.getrefcount


Block = tuple[NDArray[Any], int, int]
"""An array, where in it a result begins, and the address there."""
_Entry = TypeVar("_Entry", bound=tuple[Any, ...])


class _Kept(Generic[_Entry]):
    """Entries that begin with an array: up to so `many`."""

    __slots__ = ("kept",)
    many = MOST

    def __init__(self) -> None:
        self.kept: list[_Entry] = []
        """What is kept now: whoever reads it leaves it alone, unless nobody else refers to it."""

    def keep(self, entry: _Entry) -> None:
        """Keep an entry, if there is room: nobody else changes its array as long as that is referred to."""
        if len(self.kept) < self.many:
            self.kept.append(entry)
            _all.keep(self, self._weight(entry[0]))

    def forget(self) -> None:
        """Do not keep anything any more of what there is now."""
        self.kept = []

    def release(self, array: NDArray[Any]) -> None:
        """Do not keep an array any more, if it is one of these."""
        left = [entry for entry in self.kept if entry[0] is not array]
        if len(left) < len(self.kept):
            self.kept = left
            _all.keep(self, -self._weight(array))

    def _weight(self, array: NDArray[Any]) -> int:
        """Bytes that keeping an array takes, with what is noted about it: that is more than small arrays have."""
        return max(LEAST, array.nbytes)


class Recycled(_Kept[tuple[NDArray[Any], bytes]]):
    """Read-only arrays, each a view of one that may be written, with what is known about them."""

    __slots__ = ()

    def again(self) -> tuple[NDArray[Any], bytes] | None:
        """An array that nobody else refers to, and what is known about it."""
        for vals, known in self.kept:
            if _references(vals) <= _ALONE[0] and _references(vals.base) <= _ALONE[1]:
                return vals, known
        return None


class Stored(_Kept[tuple[NDArray[Any], NDArray[Any], Storage, bytes]]):
    """Storages of results over read-only arrays, each a view of one that may be written: the values, what they are a view of, their storage, its slots.
    `written` says in its own words what `again` does."""

    __slots__ = ("_maker",)

    def __init__(self, maker: Any) -> None:
        super().__init__()
        self._maker = maker

    def _weight(self, array: NDArray[Any]) -> int:
        return max(LEAST, DERIVED * array.nbytes)

    def again(self) -> tuple[Storage, bytes, NDArray[Any]] | None:
        """A storage that nobody else refers to, nor to its memory; its slots, and that memory. What its cache has of the result before is forgotten."""
        for vals, base, made, slots in self.kept:
            if _references(made) <= STORED[0]:
                if len(made.cache) > NOTED:
                    made.cache = self.noted(slots)
                if _references(vals) <= STORED[1] and _references(base) <= STORED[2]:
                    return made, slots, base
        return None

    def noted(self, slots: bytes) -> dict[str, Any]:
        """What is known of a storage from the start."""
        return {"slots": slots, "maker": self._maker}


class Repeated(Stored):
    """The same of results of any shape, as long as one shape comes back: `make` gives a storage of its own memory and its slots, None where that is too
    large. `last` is the shape of the latest result that was none of these, which came back so many `times`."""

    __slots__ = ("_make", "last", "times")

    def __init__(self, make: Callable[[tuple[int, ...]], tuple[Storage, bytes] | None]) -> None:
        super().__init__(self)
        self._make = make
        self.last: tuple[int, ...] | None = None
        self.times = 0

    def another(self, shape: tuple[int, ...]) -> tuple[Storage, bytes] | None:
        """One of the `last` shape, of which none is free, in place of one of another shape; None where it came back less than `OFTEN`, enough of it are
        kept, or it is too large."""
        self.times += 1
        if self.times < OFTEN:
            return None
        alike = [entry for entry in self.kept if entry[2].shape == shape]
        found = self._make(shape) if len(alike) < self.many else None
        if found is not None:
            made, slots = found
            made.cache = self.noted(slots)
            for vals, *_ in self.kept[:1] if len(self.kept) >= self.many else ():
                self.release(vals)
            self.keep((made.vals, made.vals.base, made, slots))  # type: ignore[arg-type]
        return found


class Own(_Kept[Block]):
    """Memory for results of one dtype and any size, such as those of one step of a plan: the blocks that it had last, so that a step writes where it wrote
    before, which is in the caches of the processor.

    >>> own = Own(lambda count: (np.empty(count), 0, 0))
    >>> first = own.take(600)[0]
    >>> second = own.take(610)[0]
    >>> first is second, len(first)
    (False, 750)
    >>> first = second = None
    >>> len(own.take(740)[0]), len(own.take(300)[0])
    (750, 375)
    """

    __slots__ = ("__weakref__", "_loose", "_make", "_spare", "many")

    def __init__(self, make: Callable[[int], Block], loose: float = 2, spare: float = 0.25, many: int = MOST) -> None:
        """A block has room for so many times the elements of a result at most, a new one for a part more; so `many` are kept."""
        super().__init__()
        self._make, self._loose, self._spare, self.many = make, loose, spare, many
        _owns.add(self)

    def take(self, count: int) -> Block:
        """What `make` gives for `count` elements, and some more where that is new: an array to which nobody else refers, and what is known about it. One
        that is free and too small gives its place to it, so that sizes that take turns lie in one block. No other thread takes it: it sees that this
        one looks."""
        loose, small = self._loose, None
        for whole, begin, address in self.kept:
            if _references(whole) <= _ALONE[2]:
                if begin + count > len(whole):
                    small = whole
                elif len(whole) <= loose * count + begin:
                    return whole, begin, address
        found = self._make(count + int(count * self._spare))
        if small is None and len(self.kept) >= self.many:
            small = self.kept[0][0]
        if small is not None:
            self.release(small)
        self.keep(found)
        return found


_owns: weakref.WeakSet[Own] = weakref.WeakSet()


def release(whole: NDArray[Any]) -> None:
    """No step keeps a block any more."""
    for own in list(_owns):
        own.release(whole)


def roomy(count: int) -> int:
    """For how many elements there is room in a block for `count`: half as many more at most. Blocks of more sizes lie in memory that nobody has used
    lately: 150 sizes of mini-batches took 1.06 of the time with quarters."""
    step = 1 << max(0, count.bit_length() - 2)
    return -(-count // step) * step


class _Everything:
    """Who keeps arrays and how many bytes, those first that began to do so first."""

    def __init__(self) -> None:
        self._keepers: dict[_Kept[Any], int] = {}
        self._bytes = 0
        self._turn = threading.Lock()
        forks.anew(self, _turn=threading.Lock)

    def keep(self, keeper: _Kept[Any], size: int) -> None:
        """Note that `keeper` keeps `size` bytes more, or less; others give up theirs where that is too much."""
        with self._turn:
            self._keepers[keeper] = self._keepers.get(keeper, 0) + size
            self._bytes += size
            while self._bytes > ALTOGETHER:
                first = next(iter(self._keepers))
                self._bytes -= self._keepers.pop(first)
                first.forget()


_all = _Everything()


def _alone() -> tuple[int, int, int]:
    """What `Recycled.again` counts for an array that nobody else refers to, and `Own.take`: as it is written there, whatever the interpreter
    counts."""
    kept, own = Recycled(), list[Block]()
    kept.kept.append((np.zeros(3)[1:], b""))
    own.append((np.zeros(3), 0, 0))
    for vals, _ in kept.kept:
        for whole, _, _ in own:
            return _references(vals), _references(vals.base), _references(whole)
    raise AssertionError


def _stored_alone() -> tuple[int, int, int]:
    """The same of `Stored.again`."""
    whole = np.zeros(3)
    stored = Stored(None)
    made = Storage.dense((None, (2,), None, ()), whole[1:], {})  # type: ignore[arg-type]
    stored.kept.append((made.vals, whole, made, b""))
    del whole, made
    for vals, base, made, _ in stored.kept:
        return _references(made), _references(vals), _references(base)
    raise AssertionError


def at_most(counted: tuple[int, int, int], known: tuple[int, int, int]) -> tuple[int, int, int]:
    """References that were counted, and never more than are known of CPython: functions that trace or profile, and look at the variables of a frame, refer
    to these, and would have memory used again that somebody sees."""
    one, two, three = map(min, counted, known)
    return one, two, three


_ALONE = at_most(_alone(), (3, 2, 3))
STORED = at_most(_stored_alone(), (3, 4, 4))
"""How many references a storage, its values and their memory have that nobody else refers to, where `Stored.again` looks."""
