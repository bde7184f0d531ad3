"""The largest keys of a row, by halves of where the least of them may lie.

keys 3 9 4 7 1, two of them    between 3 and 9: above 6 are two, which are all

A row's keys are written side by side once; each step counts in vectors how many are above the middle of what is left, and ends as soon as these are as many
as are to be found. Of equal ones the first are found. No branch but the last depends on the order of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.largest.flags import flagged
from sparsejax.jit.runtime.passes.largest.keys import LANES, Keys
from sparsejax.jit.runtime.passes.pass_kernels import INT64, as_kernel, vectors

SHORT, LONG = 300, 1 << 12
"""Elements, for each but the first of what is kept, up to which a bound is found, and at most. There a heap takes as long, with half of them twice as long,
with 50 and 10 kept six times (random rows of 8 and 4 bytes, Sapphire Rapids); where many are equal and few are 0, as of small integers in floats, it
takes as long with a third of them."""
LEAST = 16
"""Elements of a segment, in the mean, from which a bound is found sooner than by a heap: with 10 and two of them kept it takes 1.7 of its time, with five 0.8;
with 16 0.5 and 0.3."""


def is_short(count: int, keep: int) -> bool:
    """Whether a bound is found for so many elements."""
    return count <= min(LONG, SHORT * (keep - 1))


def largest(
    size: Array, pos: Array, keep: int, absolute: bool, longest: int, parts: Sequence[tuple[int, int]]
) -> Array:
    """As `heaps.largest`, of segments of which the longest is short."""
    kernel = _largest(size.dtype.kind, size.itemsize, absolute)
    return flagged(kernel, size, pos, keep, parts, (longest + LANES, INT64))


@as_kernel
def _largest(b: Builder, kind: str, size: int, absolute: bool) -> None:
    first, end, keep = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "keep")))
    numbers, pos, made, keys = vectors(b, 3, (size, 8, 1, 8), ("size", "pos", "made", "keys"))
    read = Keys(b, numbers, kind, absolute)
    with b.for_(first, end, "s") as segment:
        low, high = b.named("low", pos.get(b, segment)), b.named("high", pos.get(b, b.add(segment, 1)))
        count = b.named("count", b.sub(high, low))

        def put(begin: Val, bits: Val) -> None:
            with b.bits_of(bits) as own:
                made.put(b, b.add(low, b.add(begin, own)), b.const("i8", 1))

        def all_of_them() -> None:
            with b.for_(low, high, "p") as p:
                made.put(b, p, b.const("i8", 1))

        def some() -> None:
            halved(b, read, keys.pointer, low, count, keep, lambda found: found.found(b.i64(0), count, put))

        b.if_else(b.lt(keep, count), some, all_of_them)


class Halving:
    """Keys of a row of some `columns`, in memory for as many and `LANES` more of `size` bytes: of 4, the upper parts (`Keys.upper`)."""

    def __init__(self, b: Builder, read: Keys, memory: Val, size: int, begin: Val, columns: Val) -> None:
        self._b, self._read, self._keys = b, read, Vector(memory, size)
        self._begin, self._columns = begin, columns
        self._kind, self._least = f"i{8 * size}", -(2 ** (8 * size - 1))
        self._bound, self._above = b.var("bound", b.i64(0)), b.var("above", b.i64(0))
        self._open, self._chosen = b.var("open", b.i64(0)), b.var("chosen", b.i64(0))
        self._lowest, self._nothing = read.lowest(size), 0 if size == 8 else read.nothing
        self._keep = b.i64(0)

    def _many(self, value: Val) -> Val:
        """An i64 in every lane."""
        return self._b.splat(self._keys.element(self._b, value), LANES)

    def _load(self, at: Val) -> Val:
        return self._b.load(self._keys.pointer, at, f"<{LANES} x {self._kind}>")

    def _bits(self, how: str, at: Val, beside: Val) -> Val:
        b = self._b
        return b.convert("zext", b.convert("bitcast", b.compare(how, self._load(at), beside), f"i{LANES}"), "i64")

    def _counted(self, how: str, beside: Val) -> Val:
        """How many keys compare so with one number."""
        b, found = self._b, self._b.var("found", self._b.i64(0))
        with b.for_(b.i64(0), self._columns, "p", step=LANES) as p:
            b.increment(found, b.call("llvm.ctpop.i64", "i64", [self._bits(how, p, beside)]))
        return b.named("count", b.get(found))

    def search(self, keep: Val) -> None:
        """Find the least of the `keep` largest, or a bound that just these are above."""
        self._keep = keep
        self._fill()
        b = self._b
        low, high = self._ends()
        first, last = b.var("first", low), b.var("last", high)
        b.set(self._above, b.i64(0))

        def look(middle: Val) -> None:
            above = self._counted("sgt", self._many(middle))
            more, fewer = b.lt(keep, above), b.lt(above, keep)
            b.set(first, b.select(fewer, b.get(first), b.select(more, b.add(middle, 1), middle)))
            b.set(last, b.select(more, b.get(last), middle))
            b.set(self._above, b.select(more, b.get(self._above), above))

        with b.if_(b.eq(low, self._lowest)):  # where most are zeros
            look(low)
        with b.while_(lambda: b.lt(b.get(first), b.get(last))):
            half = b.binary("lshr", b.sub(b.get(last), b.get(first)), b.i64(1))
            look(b.named("middle", b.add(b.get(first), half)))
        b.set(self._bound, b.get(first))
        b.set(self._open, self._left())

    def _fill(self) -> None:
        """Write the keys, and some behind them that are below all others."""
        b, read, wide = self._b, self._read, self._keys.size == 8
        whole = b.named("whole", b.and_(self._columns, b.i64(-LANES)))
        with b.for_(b.i64(0), whole, "p", step=LANES) as p:
            at = b.add(self._begin, p)
            b.store(self._keys.pointer, p, read.wide(at) if wide else read.upper(at, LANES))
        b.store(self._keys.pointer, whole, self._many(b.i64(self._least)))
        with b.for_(whole, self._columns, "p") as p:
            at = b.add(self._begin, p)
            self._keys.put(b, p, read.number(at) if wide else read.upper(at))

    def _ends(self) -> tuple[Val, Val]:
        """Where the least of the largest ones may lie: not below the least of the largest of each lane, if as many are to be found, nor below what all are; not
        above all."""
        b, most = self._b, self._b.var("most", self._many(self._b.i64(self._least)))
        with b.for_(b.i64(0), self._columns, "p", step=LANES) as p:
            b.set(most, b.max(b.get(most), self._load(p)))

        def all_lanes(how: str) -> Val:
            return b.call(f"llvm.vector.reduce.{how}.v{LANES}{self._kind}", self._kind, [b.get(most)])

        def number(value: Val) -> Val:
            return value if value.type == "i64" else b.convert("sext", value, "i64")

        least = b.select(b.lt(b.i64(LANES), self._keep), b.i64(self._lowest), number(all_lanes("smin")))
        return b.named("low", least), b.named("high", number(all_lanes("smax")))

    def _left(self) -> Val:
        """How many of those that equal the bound are found."""
        return self._b.sub(self._keep, self._b.get(self._above))

    def is_nothing(self) -> Val:
        """Whether one of the keys that were found is that of 0, or may be, as far as they tell."""
        b = self._b
        return b.and_(b.lt(b.i64(0), self._left()), b.eq(b.get(self._bound), self._nothing))

    def tells(self) -> Val:
        """Whether the first of those that equal the bound are the largest, though they are parts of keys: all are found, or are wholly equal."""
        b = self._b
        told, equal = b.var("told", b.const("i1", 1)), self._many(b.get(self._bound))
        with b.if_(b.lt(b.i64(0), self._left())):
            count = self._counted("eq", equal)
            with b.if_(b.lt(self._left(), count)):
                least, most = b.var("least", b.i64(2**63 - 1)), b.var("most", b.i64(-(2**63)))
                with (
                    b.for_(b.i64(0), self._columns, "p", step=LANES) as p,
                    b.bits_of(self._bits("eq", p, equal)) as own,
                ):
                    key = self._read.number(b.add(self._begin, b.add(p, own)))
                    b.set(least, b.min(b.get(least), key))
                    b.set(most, b.max(b.get(most), key))
                b.set(told, b.eq(b.get(least), b.get(most)))
        return b.get(told)

    def found(self, first: Val, count: Val, put: Callable[[Val, Val], None]) -> None:
        """Call `put` with a place and the bits of those that were found from there on, of so many keys from the first; those before were asked for before."""
        b, bound, left, chosen = self._b, self._many(self._b.get(self._bound)), self._open, self._chosen
        with b.for_(b.i64(0), count, "p", step=LANES) as p:
            at, here = b.add(first, p), b.min(b.sub(count, p), b.i64(LANES))
            inside = b.named("inside", b.sub(b.binary("shl", b.i64(1), here), 1))
            b.set(chosen, b.and_(self._bits("sgt", at, bound), inside))
            with b.if_(b.lt(b.i64(0), b.get(left))):
                equal = b.named("equal", b.and_(self._bits("eq", at, bound), inside))
                with b.bits_of(equal) as own, b.if_(b.lt(b.i64(0), b.get(left))):
                    b.set(chosen, b.binary("or", b.get(chosen), b.binary("shl", b.i64(1), own)))
                    b.increment(left, -1)
            put(p, b.named("some", b.get(chosen)))


def halved(
    b: Builder, read: Keys, memory: Val, begin: Val, columns: Val, keep: Val, each: Callable[[Halving], None]
) -> Val:
    """Call `each` with what found the largest of a row; whether one of them may be 0. Upper parts of keys tell, but where several that have one in common
    are not all found."""
    zero = b.var("zero", b.const("i1", 0))

    def by(searched: Halving) -> None:
        b.set(zero, searched.is_nothing())
        each(searched)

    def of_all() -> None:
        whole = Halving(b, read, memory, 8, begin, columns)
        whole.search(keep)
        by(whole)

    upper = Halving(b, read, memory, 4, begin, columns)
    upper.search(keep)
    if read.halved:
        b.if_else(upper.tells(), lambda: by(upper), of_all)
    else:
        by(upper)
    return b.get(zero)
