"""The largest numbers of segments: a heap of as many as are to be found, from which the least goes when a larger one comes.

before:  size 3 1 2 2 2, segments begin at 0 and 3, one of each is to be found
after:   1 0 0 1 0

Numbers are compared as integers in their order, floats by their bits. The least of equal ones is the last, so that the first stay. A segment of n
numbers in no particular order changes its heap about k log(n / k) times, each time in log k steps (A. Rényi, "Théorie des éléments saillants", 1962);
all others are compared with the least in vectors, and passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, address, as_kernel, empty, run_parts, vectors

LEAST = -(2**63)
"""Below all numbers."""
TOGETHER = 64, 8
"""Numbers that are compared with the least at once, as long as there are so many."""
LANES = 16
"""Lanes of a vector that is compared."""


def covers(dtype: np.dtype[np.generic]) -> bool:
    """Whether numbers of a dtype have their order as integers of 64 bits, and one below them."""
    return dtype.itemsize in ((4, 8) if dtype.kind == "f" else (1, 2, 4)) and dtype.kind in "iuf"


def largest(size: Array, pos: Array, keep: int, absolute: bool, parts: Sequence[tuple[int, int]]) -> Array:
    """Which are among the `keep` largest, one or more, of their segment, by their `absolute` values or as they are; `parts` are of segments, for a
    thread each."""
    made = np.zeros(len(size), np.bool_)
    heaps = [(empty(keep, INT64), empty(keep, INT64)) for _ in parts]
    given = keep, address(size), address(pos), address(made)
    kernel = _largest(size.dtype.kind, size.itemsize, absolute)
    run_parts(kernel, [(*part, *given, *map(address, heap)) for part, heap in zip(parts, heaps, strict=True)])
    return made


@as_kernel
def _largest(b: Builder, kind: str, size: int, absolute: bool) -> None:
    first, end, keep = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "keep")))
    names = "size", "pos", "made", "keys", "places"
    numbers, pos, made, keys, places = vectors(b, 3, (size, 8, 1, 8, 8), names)
    heap, read = _Heap(b, keys, places, keep), Keys(b, numbers, kind, absolute)
    with b.for_(first, end, "s") as segment:
        low, high = b.named("low", pos.get(b, segment)), b.named("high", pos.get(b, b.add(segment, 1)))

        def all_of_them() -> None:
            with b.for_(low, high, "p") as p:
                made.put(b, p, b.const("i8", 1))

        def put(place: Val) -> None:
            key = read.number(place)
            with b.if_(b.lt(keys.get(b, b.i64(0)), key)):
                heap.exchange(key, place)

        def some() -> None:
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
            with b.for_(b.i64(0), keep, "q") as q:
                made.put(b, places.get(b, q), b.const("i8", 1))

        b.if_else(b.lt(keep, b.sub(high, low)), some, all_of_them)


def _larger(b: Builder, read: Keys, first: Val, count: int, keys: Vector, put: Callable[[Val], None]) -> None:
    """Put those of some numbers that are larger than the least."""
    with b.bits_of(read.above(first, count, keys.get(b, b.i64(0)))) as bit:
        put(b.named("place", b.add(first, bit)))


@dataclass(frozen=True)
class Keys:
    """Numbers as integers above `LEAST`: one as 64 bits, many as wide as they are. Zeros are equal, NaN is above all others."""

    b: Builder
    numbers: Vector
    kind: str
    absolute: bool

    @property
    def _signed(self) -> bool:
        """Whether keys are compared with a sign: absolute values of integers have none."""
        return self.kind == "f" or (self.kind == "i" and not self.absolute)

    def number(self, at: Val) -> Val:
        return self.b.named("key", self.b.convert("sext" if self._signed else "zext", self._keys(at, 1), "i64"))

    def above(self, at: Val, count: int, least: Val) -> Val:
        """A bit for each of so many numbers: whether it is larger than the key of another number."""
        b, beside = self.b, self.numbers.element(self.b, least)
        how = "sgt" if self._signed else "ugt"
        return self._bits(
            count, lambda begin, lanes: b.compare(how, self._keys(b.add(at, begin), lanes), b.splat(beside, lanes))
        )

    def digits(self, at: Val, lanes: int = 1) -> Val:
        """Numbers as unsigned ones, as wide as they are."""
        b, keys, scalar = self.b, self._keys(at, lanes), f"i{8 * self.numbers.size}"
        if not self._signed:
            return keys
        lowest = b.const(scalar, -(2 ** (8 * self.numbers.size - 1)))
        return b.binary("xor", keys, b.splat(lowest, lanes) if lanes > 1 else lowest)

    def compared(self, how: str, at: Val, count: int, shift: int, digits: Val) -> Val:
        """A bit for each of so many numbers: how its leading digits, those behind a shift, compare with others."""
        b, beside = self.b, self.numbers.element(self.b, digits)

        def part(begin: int, lanes: int) -> Val:
            own = self.digits(b.add(at, begin), lanes)
            own = b.binary("lshr", own, b.splat(b.const(beside.type, shift), lanes)) if shift else own
            return b.compare(how, own, b.splat(beside, lanes))

        return self._bits(count, part)

    def single(self, how: str, at: Val, shift: int, digits: Val) -> Val:
        """Whether the leading digits of one number compare so."""
        b, own = self.b, self.digits(at)
        own = b.binary("lshr", own, b.const(own.type, shift)) if shift else own
        return b.compare(how, own, self.numbers.element(b, digits))

    def _bits(self, count: int, part: Callable[[int, int], Val]) -> Val:
        b, lanes = self.b, min(LANES, count)
        bits = b.i64(0)
        for begin in range(0, count, lanes):
            found = b.convert("zext", b.convert("bitcast", part(begin, lanes), f"i{lanes}"), "i64")
            bits = b.binary("or", bits, b.binary("shl", found, b.i64(begin)) if begin else found)
        return bits

    def _keys(self, at: Val, lanes: int) -> Val:
        b, size = self.b, self.numbers.size
        scalar = f"i{8 * size}"

        def of(kind: str) -> str:
            return f"<{lanes} x {kind}>" if lanes > 1 else kind

        def all_of(value: Val) -> Val:
            return b.splat(value, lanes) if lanes > 1 else value

        def number(value: int) -> Val:
            return all_of(b.const(scalar, value))

        if self.kind != "f":
            value = b.load(self.numbers.pointer, at, of(scalar))
            return self._without_sign(value, lanes) if self.absolute and self.kind == "i" else value
        missing = number((0x7FF << 52 if size == 8 else 0xFF << 23) + 1)
        if self.absolute:
            value = b.load(self.numbers.pointer, at, of(scalar))
            return b.min(b.and_(value, number(2 ** (8 * size - 1) - 1)), missing)
        kind = "double" if size == 8 else "float"
        value = b.load(self.numbers.pointer, at, of(kind))
        bits = b.convert("bitcast", b.binary("fadd", value, all_of(b.const(kind, 0.0))), of(scalar))  # zeros are equal
        flipped = b.binary("lshr", b.binary("ashr", bits, number(8 * size - 1)), number(1))
        return b.select(b.compare("uno", value, value), missing, b.binary("xor", bits, flipped))

    def _without_sign(self, value: Val, lanes: int) -> Val:
        """The absolute value, as an unsigned number."""
        name = f"{f'v{lanes}' if lanes > 1 else ''}i{8 * self.numbers.size}"
        return self.b.call(f"llvm.abs.{name}", value.type, [value, self.b.const("i1", 0)])


class _Heap:
    """The largest keys so far and where they are, the least first: of equal ones the last."""

    def __init__(self, b: Builder, keys: Vector, places: Vector, count: Val) -> None:
        self._b, self._keys, self._places, self._count = b, keys, places, count
        self._at, self._next = b.var("at", b.i64(0)), b.var("next", b.i64(0))

    def exchange(self, key: Val, place: Val) -> None:
        """Put a key in the place of the least, which comes after all that are there."""
        b, at, next = self._b, self._at, self._next
        b.set(at, b.i64(0))
        b.set(next, self._child(b.i64(0), key))
        with b.while_(lambda: b.ne(b.get(next), b.get(at))):
            self._put(b.get(at), self._keys.get(b, b.get(next)), self._places.get(b, b.get(next)))
            b.set(at, b.get(next))
            b.set(next, self._child(b.get(at), key))
        self._put(b.get(at), key, place)

    def _put(self, at: Val, key: Val, place: Val) -> None:
        self._keys.put(self._b, at, key)
        self._places.put(self._b, at, place)

    def _child(self, at: Val, key: Val) -> Val:
        """The lesser child of a place, where it is below a key that comes after it; else the place itself."""
        b = self._b
        first, last = b.add(b.mul(at, 2), 1), b.sub(self._count, 1)
        left, right = (b.min(b.add(first, k), last) for k in (0, 1))
        keys = [self._keys.get(b, k) for k in (left, right)]
        places = [self._places.get(b, k) for k in (left, right)]
        later = b.and_(b.eq(keys[0], keys[1]), b.lt(places[0], places[1]))
        is_right = b.binary("or", b.lt(keys[1], keys[0]), later)
        child, least = b.select(is_right, right, left), b.select(is_right, keys[1], keys[0])
        return b.select(b.and_(b.lt(first, self._count), b.lt(least, key)), child, at)
