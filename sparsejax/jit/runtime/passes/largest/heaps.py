"""The largest numbers of segments: a heap of as many as are to be found, from which the least goes when a larger one comes.

before:  size 3 1 2 2 2, segments begin at 0 and 3, one of each is to be found
after:   1 0 0 1 0

The least of equal ones is the last, so that the first stay. A segment of n numbers in no particular order changes its heap about k log(n / k) times,
each time in log k steps (A. Rényi, "Théorie des éléments saillants", 1962); all others are compared with the least in vectors, and passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.largest.flags import flagged
from sparsejax.jit.runtime.passes.largest.keys import LEAST, Keys
from sparsejax.jit.runtime.passes.pass_kernels import INT64, as_kernel, vectors

TOGETHER = 64, 8
"""Numbers that are compared with the least at once, as long as there are so many."""


def largest(size: Array, pos: Array, keep: int, absolute: bool, parts: Sequence[tuple[int, int]]) -> Array:
    """Which are among the `keep` largest, one or more, of their segment, by their `absolute` values or as they are; `parts` are of segments, for a
    thread each."""
    kernel = _largest(size.dtype.kind, size.itemsize, absolute)
    return flagged(kernel, size, pos, keep, parts, (keep, INT64), (keep, INT64))


@as_kernel
def _largest(b: Builder, kind: str, size: int, absolute: bool) -> None:
    first, end, keep = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "keep")))
    names = "size", "pos", "made", "keys", "places"
    numbers, pos, made, keys, places = vectors(b, 3, (size, 8, 1, 8, 8), names)
    heap, read = Heap(b, keys, places, keep), Keys(b, numbers, kind, absolute)
    with b.for_(first, end, "s") as segment:
        low, high = b.named("low", pos.get(b, segment)), b.named("high", pos.get(b, b.add(segment, 1)))

        def all_of_them() -> None:
            with b.for_(low, high, "p") as p:
                made.put(b, p, b.const("i8", 1))

        def some() -> None:
            heaped(b, (low, high), read, heap)
            with b.for_(b.i64(0), keep, "q") as q:
                made.put(b, places.get(b, q), b.const("i8", 1))

        b.if_else(b.lt(keep, b.sub(high, low)), some, all_of_them)


def heaped(b: Builder, bounds: tuple[Val, Val], read: Keys, heap: Heap) -> None:
    """The largest of more numbers than a heap has room for."""
    (low, high), keys, keep = bounds, heap.keys, heap.count

    def put(place: Val) -> None:
        key = read.number(place)
        with b.if_(b.lt(keys.get(b, b.i64(0)), key)):
            heap.exchange(key, place)

    with b.for_(b.i64(0), keep, "q") as q:
        keys.put(b, q, b.i64(LEAST))
    done = b.named("done", b.add(low, keep))
    with b.for_(low, done, "p") as p:
        put(p)
    for count in TOGETHER:
        stop = b.named("stop", b.add(done, b.and_(b.sub(high, done), b.i64(-count))))
        with b.for_(done, stop, "p", step=count) as p:
            _larger(b, read, p, count, keys, put)
        done = stop
    with b.for_(done, high, "p") as p:
        put(p)


def _larger(b: Builder, read: Keys, first: Val, count: int, keys: Vector, put: Callable[[Val], None]) -> None:
    """Put those of some numbers that are larger than the least."""
    with b.bits_of(read.above(first, count, keys.get(b, b.i64(0)))) as bit:
        put(b.named("place", b.add(first, bit)))


class Heap:
    """The largest keys so far and where they are, the least first: of equal ones the last."""

    def __init__(self, b: Builder, keys: Vector, places: Vector, count: Val) -> None:
        self._b, self.keys, self.places, self.count = b, keys, places, count
        self._at, self._next = b.var("at", b.i64(0)), b.var("next", b.i64(0))

    def exchange(self, key: Val, place: Val) -> None:
        """Put a key in the place of the least, which comes after all that are there."""
        b, at, next = self._b, self._at, self._next
        b.set(at, b.i64(0))
        b.set(next, self._child(b.i64(0), key))
        with b.while_(lambda: b.ne(b.get(next), b.get(at))):
            self._put(b.get(at), self.keys.get(b, b.get(next)), self.places.get(b, b.get(next)))
            b.set(at, b.get(next))
            b.set(next, self._child(b.get(at), key))
        self._put(b.get(at), key, place)

    def _put(self, at: Val, key: Val, place: Val) -> None:
        self.keys.put(self._b, at, key)
        self.places.put(self._b, at, place)

    def _child(self, at: Val, key: Val) -> Val:
        """The lesser child of a place, where it is below a key that comes after it; else the place itself."""
        b = self._b
        first, last = b.add(b.mul(at, 2), 1), b.sub(self.count, 1)
        left, right = (b.min(b.add(first, k), last) for k in (0, 1))
        keys = [self.keys.get(b, k) for k in (left, right)]
        places = [self.places.get(b, k) for k in (left, right)]
        later = b.and_(b.eq(keys[0], keys[1]), b.lt(places[0], places[1]))
        is_right = b.binary("or", b.lt(keys[1], keys[0]), later)
        child, least = b.select(is_right, right, left), b.select(is_right, keys[1], keys[0])
        return b.select(b.and_(b.lt(first, self.count), b.lt(least, key)), child, at)
