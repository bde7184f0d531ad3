"""Short segments are put in order by ranks: as many entries go before one as have a smaller coordinate, or an equal one and stand before it.

    crd 7 2 7 5    smaller 2 0 2 1    equal and before 0 0 1 0    rank 2 0 3 1    the entries of ranks 0, 1 ... are numbers 1 3 0 2

A vector of coordinates is compared at once, without a branch, so that no order of entries is hard to predict: those of vectors before that of an entry
are counted where they are not larger, those of vectors behind it where they are smaller. The segment is kept aside first, in whole vectors: what
follows it in memory is read with it. The last segments of all, and those of two entries, are put in order by moving entries one by one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.backend.types import lanes_of
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import address

BYTES, VECTORS = 64, 8
"""Of a vector of coordinates; vectors that a segment which is ranked may fill."""
FEW = 2
"""Entries that are put in order by moving them."""


def longest(size: int) -> int:
    """How many entries a segment may have that is ranked, where coordinates have `size` bytes."""
    return VECTORS * BYTES // size


def aside(parts: int, size: int, others: tuple[int, ...]) -> tuple[Array, list[list[int]]]:
    """Memory, and in it, for every part, the addresses of `number` and of `kept`, for coordinates of `size` bytes and `others`."""
    places, step = _places(size, others)
    room = np.empty(parts * step, np.uint8)
    first = address(room)
    return room, [[first + k * step + place for place in places] for k in range(parts)]


@functools.cache
def _places(size: int, others: tuple[int, ...]) -> tuple[list[int], int]:
    *places, end = itertools.accumulate([longest(size) * width for width in (8, size, *others)], initial=0)
    return places, end


@dataclass(frozen=True)
class Segments:
    """Columns of segments, coordinates first; `kept` has room for the `longest` segments of each, and `number` for as many numbers; `stop` is where
    all columns end."""

    columns: Sequence[Vector]
    kept: Sequence[Vector]
    number: Vector
    stop: Val

    @property
    def lanes(self) -> int:
        return BYTES // self.columns[0].size

    def tidy(self, b: Builder, begin: Val, end: Val) -> Val:
        """The entries from `begin` to `end` in order, stably; 1 where coordinates are equal that follow each other, else 0."""
        twice = b.var("twice", b.i64(0))
        b.set(twice, b.i64(0))
        count = b.named("count", b.sub(end, begin))

        def same(one: Val, other: Val) -> None:
            b.set(twice, b.binary("or", b.get(twice), b.convert("zext", b.eq(one, other), "i64")))

        def moved() -> None:
            crd = self.columns[0]
            _moved(b, self.columns, begin, end)
            with b.for_(b.add(begin, 1), end, "p") as p:
                same(crd.get(b, p), crd.get(b, b.sub(p, 1)))

        def ranked(size: int) -> None:
            self._ranked(b, begin, count, size)
            self._put(b, begin, count, same)

        with b.if_(b.lt(b.i64(1), count)):
            b.if_else(self._short(b, begin, count), lambda: self._by_size(b, count, ranked), moved)
        return b.get(twice)

    def order(self, b: Builder, begin: Val, end: Val) -> Val:
        """The same of two entries or more, which may stay where they are: 1 where `number` says in which order they are in `kept`, 0 where they are in
        order in place."""
        found = b.var("ranked", b.i64(0))
        b.set(found, b.i64(0))
        count = b.named("count", b.sub(end, begin))

        def ranked(size: int) -> None:
            self._ranked(b, begin, count, size)
            b.set(found, b.i64(1))

        def short() -> None:
            with b.if_(b.eq(self._increase(b, begin, count), 0)):
                self._by_size(b, count, ranked)

        b.if_else(self._short(b, begin, count), short, lambda: _moved(b, self.columns, begin, end))
        return b.get(found)

    def _short(self, b: Builder, begin: Val, count: Val) -> Val:
        """Whether entries are ranked."""
        most = longest(self.columns[0].size)
        within = b.lt(b.add(begin, most), self.stop)
        return b.and_(within, b.compare("ult", b.sub(count, FEW + 1), b.i64(most - FEW)))

    def _by_size(self, b: Builder, count: Val, ranked: Callable[[int], None]) -> None:
        """What is done by as few vectors as hold all entries."""

        def some(size: int) -> None:
            if size == VECTORS:
                ranked(size)
            else:
                b.if_else(b.lt(count, size * self.lanes + 1), lambda: ranked(size), lambda: some(2 * size))

        some(1)

    def _increase(self, b: Builder, begin: Val, count: Val) -> Val:
        """1 where the coordinates of a row of at most a vector do not fall; 0 where some do, or there are more. What follows in memory is read."""
        crd = self.columns[0]
        own, after = (b.load(crd.pointer, at, f"<{self.lanes} x {crd.type}>") for at in (begin, b.add(begin, 1)))
        falls = b.and_(_bits(b, b.compare("sgt", own, after)), _bits_below(b, b.sub(count, 1), self.lanes))
        few = b.lt(count, self.lanes + 1)
        return b.convert("zext", b.and_(few, b.eq(falls, 0)), "i64")

    def _ranked(self, b: Builder, begin: Val, count: Val, vectors: int) -> None:
        """The number of each entry at its rank, and the segment aside."""
        crd, lanes = self.columns[0], self.lanes
        places = [b.i64(v * lanes) for v in range(vectors)]
        parts = [b.load(crd.pointer, b.add(begin, place), f"<{lanes} x {crd.type}>") for place in places]
        inside = [
            _bits_below(b, b.sub(count, place), lanes) if v >= vectors // 2 else None for v, place in enumerate(places)
        ]
        for place in places:
            self._keep(b, begin, place)
        for own, first in enumerate(places):
            with b.for_(first, b.min(count, b.add(first, lanes)), "k") as k:
                c = crd.get(b, b.add(begin, k))
                wanted, rank = b.splat(c, lanes), b.i64(0)
                for v, (part, mask) in enumerate(zip(parts, inside, strict=True)):
                    bits = _bits(b, b.compare("sle" if v < own else "slt", part, wanted))
                    if v >= own and mask is not None:
                        bits = b.and_(bits, mask)
                    if v == own:
                        equal = _bits(b, b.compare("eq", part, wanted))
                        bits = b.binary("or", bits, b.and_(equal, _bits_below(b, b.sub(k, first), lanes)))
                    rank = b.add(rank, b.convert("zext", b.call(f"llvm.ctpop.i{lanes}", f"i{lanes}", [bits]), "i64"))
                self.number.put(b, rank, k)

    def _keep(self, b: Builder, begin: Val, place: Val) -> None:
        for column, kept in zip(self.columns, self.kept, strict=True):
            words, word = (2, "i64") if column.size == 16 else (1, column.type)
            found = b.load(column.pointer, b.mul(b.add(begin, place), words), f"<{self.lanes * words} x {word}>")
            b.store(kept.pointer, b.mul(place, words), found)

    def _put(self, b: Builder, begin: Val, count: Val, same: Callable[[Val, Val], None]) -> None:
        """The entries in order of their ranks."""
        before = b.var("before", b.const(self.columns[0].type, -1))
        b.set(before, b.const(self.columns[0].type, -1))
        with b.for_(b.i64(0), count, "k", some=True) as k:
            own = b.named("own", self.number.number(b, k))
            for column, kept in zip(self.columns, self.kept, strict=True):
                value = kept.get(b, own)
                column.put(b, b.add(begin, k), value)
                if column is self.columns[0]:
                    same(value, b.get(before))
                    b.set(before, value)


def _bits(b: Builder, tests: Val) -> Val:
    return b.convert("bitcast", tests, f"i{lanes_of(tests.type)}")


def _bits_below(b: Builder, count: Val, lanes: int) -> Val:
    """The lowest `count` of so many bits; all or none of them where there are more or less."""
    inside = b.max(b.i64(0), b.min(count, b.i64(lanes)))
    return b.convert("trunc", b.sub(b.binary("shl", b.i64(1), inside), 1), f"i{lanes}")


def _moved(b: Builder, columns: Sequence[Vector], begin: Val, end: Val) -> None:
    """Entries put in their places one by one, by moving those before."""
    crd, *others = columns
    with b.for_(b.add(begin, 1), end, "p") as p:
        new, before = b.named("new", crd.number(b, p)), b.named("before", crd.number(b, b.sub(p, 1)))
        with b.if_(b.lt(new, before)):
            _inserted(b, begin, p, new, crd, others, [other.get(b, p) for other in others])


def _inserted(
    b: Builder, begin: Val, end: Val, new: Val, out: Vector, targets: Sequence[Vector], values: Sequence[Val]
) -> None:
    """An entry among those from `begin` to `end`, whose coordinates increase."""
    place = b.var("place", end)
    b.set(place, end)
    going = b.var("going", b.lt(begin, end))
    b.set(going, b.lt(begin, end))
    with b.while_(lambda: b.get(going)):
        here = b.named("here", b.get(place))
        before = b.named("before", b.sub(here, 1))
        larger = b.named("larger", b.lt(new, out.number(b, before)))
        with b.if_(larger):
            out.put(b, here, out.get(b, before))
            for target in targets:
                target.put(b, here, target.get(b, before))
            b.set(place, before)
        b.set(going, b.and_(larger, b.lt(begin, before)))
    to = b.get(place)
    out.put(b, to, out.element(b, new))
    for target, value in zip(targets, values, strict=True):
        target.put(b, to, value)
