"""The largest numbers of long segments, however many: by their leading digits, of `BITS` bits each.

before:  7 2 5 4 1 6, three are to be found; digits of one bit
after:   1 0 1 0 0 1      1__: four, of which three: 11_: two stay, 10_: one of two: 101: stays

A pass counts how often each digit comes, from the highest on until there are enough; the next pass looks at the numbers that begin with the digits so
far, which it finds in vectors. Where a last digit has more numbers than are missing, these are equal, and the first of them stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.codegen.kernel_memory import clear
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.entry_tests import WORD
from sparsejax.jit.runtime.passes.largest.flags import flagged
from sparsejax.jit.runtime.passes.largest.keys import Keys
from sparsejax.jit.runtime.passes.pass_kernels import as_kernel, vectors

BITS, TABLES = 11, 4
"""Bits of a digit; tables in which numbers that follow each other are counted, since what was just counted is slow to read again."""
LONG = 1 << 13
"""Numbers from which a segment is worth clearing tables."""


def covers(dtype: np.dtype[np.generic], count: int) -> bool:
    """Whether kernels count digits of so many numbers of a dtype."""
    return dtype.itemsize in ((4, 8) if dtype.kind == "f" else (1, 2, 4, 8)) and dtype.kind in "iuf" and count < 2**31


def largest(size: Array, pos: Array, keep: int, absolute: bool, parts: Sequence[tuple[int, int]]) -> Array:
    """As `heaps.largest`."""
    return flagged(
        _largest(size.dtype.kind, size.itemsize, absolute), size, pos, keep, parts, (TABLES << BITS, np.int32)
    )


@as_kernel
def _largest(b: Builder, kind: str, size: int, absolute: bool) -> None:
    first, end, keep = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "keep")))
    numbers, pos, made, tables = vectors(b, 3, (size, 8, 1, 4), ("size", "pos", "made", "tables"))
    read = Keys(b, numbers, kind, absolute)
    with b.for_(first, end, "s") as segment:
        low, high = b.named("low", pos.get(b, segment)), b.named("high", pos.get(b, b.add(segment, 1)))

        def all_of_them() -> None:
            with b.for_(low, high, "p") as p:
                made.put(b, p, b.const("i8", 1))

        b.if_else(
            b.lt(keep, b.sub(high, low)), lambda: _Search(b, read, tables, made, low, high).run(keep), all_of_them
        )


class _Search:
    """The digits with which the last number that stays begins, and how many numbers that begin so stay."""

    def __init__(self, b: Builder, read: Keys, tables: Vector, made: Vector, low: Val, high: Val) -> None:
        self._b, self._read, self._tables, self._made, self._low, self._high = b, read, tables, made, low, high
        self._digits, self._missing, self._open = (b.var(name, b.i64(0)) for name in ("digits", "missing", "open"))

    def run(self, keep: Val) -> None:
        b = self._b
        for var, value in ((self._digits, b.i64(0)), (self._missing, keep), (self._open, b.i64(1))):
            b.set(var, value)
        width = 8 * self._read.numbers.size
        shift = width
        while shift:
            before, shift = shift, max(0, shift - BITS)
            with b.if_(b.ne(b.get(self._open), 0)):
                self._counted(before, shift, before == width)
                self._narrowed(before - shift)
                # the digits that are not looked at any more are those of the least number that begins so
                b.set(self._digits, b.binary("shl", b.get(self._digits), b.i64(shift)))
                if shift:
                    with b.if_(b.ne(b.get(self._open), 0)):
                        b.set(self._digits, b.binary("lshr", b.get(self._digits), b.i64(shift)))
        self._marked()

    def _counted(self, before: int, shift: int, all_of_them: bool) -> None:
        """How often each digit comes behind those that are known."""
        b, bits = self._b, before - shift
        clear(b, self._tables.pointer, b.i64(0), b.i64(TABLES << BITS), 4)

        def count(at: Val, table: Val | int) -> None:
            own = self._read.digits(at)
            digit = b.binary("lshr", own, b.const(own.type, shift)) if shift else own
            digit = digit if own.type == "i64" else b.convert("zext", digit, "i64")
            place = b.add(
                b.and_(digit, b.i64((1 << bits) - 1)),
                b.mul(table if isinstance(table, Val) else b.i64(table), 1 << BITS),
            )
            place = b.named("place", place)
            self._tables.put(b, place, b.add(self._tables.get(b, place), 1))

        if all_of_them:
            stop = b.named("stop", b.add(self._low, b.and_(b.sub(self._high, self._low), b.i64(-TABLES))))
            with b.for_(self._low, stop, "p", step=TABLES) as p:
                for k in range(TABLES):
                    count(b.add(p, k), k)
            with b.for_(stop, self._high, "p") as p:
                count(p, 0)
            return
        known = b.named("known", b.get(self._digits))
        self._each("eq", before, known, lambda p: count(p, b.and_(p, b.i64(TABLES - 1))))

    def _each(self, how: str, shift: int, digits: Val, what: Callable[[Val], None]) -> None:
        """Call `what` with the places of numbers whose leading digits compare so, in order."""
        b = self._b
        stop = b.named("stop", b.add(self._low, b.and_(b.sub(self._high, self._low), b.i64(-WORD))))
        with (
            b.for_(self._low, stop, "p", step=WORD) as p,
            b.bits_of(self._read.compared(how, p, WORD, shift, digits)) as bit,
        ):
            what(b.named("place", b.add(p, bit)))
        with b.for_(stop, self._high, "p") as p, b.if_(self._read.single(how, p, shift, digits)):
            what(p)

    def _narrowed(self, bits: int) -> None:
        """From the highest digit on, until there are as many as are missing."""
        b = self._b
        digit, found = b.var("digit", b.i64(0)), b.var("found", b.i64(0))
        b.set(digit, b.i64((1 << bits) - 1))
        b.set(found, self._times(digit))
        with b.while_(lambda: b.lt(b.get(found), b.get(self._missing))):
            b.set(self._missing, b.sub(b.get(self._missing), b.get(found)))
            b.set(digit, b.sub(b.get(digit), 1))
            b.set(found, self._times(digit))
        b.set(self._digits, b.binary("or", b.binary("shl", b.get(self._digits), b.i64(bits)), b.get(digit)))
        b.set(self._open, b.convert("zext", b.lt(b.get(self._missing), b.get(found)), "i64"))

    def _times(self, digit: Var) -> Val:
        b = self._b
        total = b.i64(0)
        for table in range(TABLES):
            total = b.add(self._tables.number(b, b.add(b.get(digit), table << BITS)), total)
        return total

    def _marked(self) -> None:
        """All numbers above the last one stay, and as many that equal it as are missing; where no digit is missing, all from it on."""
        b = self._b
        least = b.named("least", b.get(self._digits))

        def stays(p: Val) -> None:
            self._made.put(b, p, b.const("i8", 1))

        def equal(p: Val) -> None:
            with b.if_(b.lt(b.i64(0), b.get(self._missing))):
                stays(p)
            b.set(self._missing, b.sub(b.get(self._missing), 1))

        def some() -> None:
            self._each("ugt", 0, least, stays)
            self._each("eq", 0, least, equal)

        b.if_else(b.eq(b.get(self._open), 0), lambda: self._each("uge", 0, least, stays), some)
