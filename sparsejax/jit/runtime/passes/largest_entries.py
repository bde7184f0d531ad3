"""The largest numbers of segments: a heap of as many as are to be found, from which the least goes when a larger one comes.

before:  size 3 1 2 2 2, segments begin at 0 and 3, one of each is to be found
after:   1 0 0 1 0

Numbers are compared as integers in their order, floats by their bits. The least of equal ones is the last, so that the first stay. A segment of n
numbers in no particular order changes its heap about k log(n / k) times, each time in log k steps (A. Rényi, "Théorie des éléments saillants", 1962);
all others are compared with the least in vectors, and passed over.

Elements of largest absolute value in the rows of a matrix are listed in the order of columns (`listed`):

before:  3 -7 0 7 1, two of each row     after:  pos 0 2, crd 1 3, vals -7 7

Of long rows a heap has the largest, whose columns are marked by bits. Of short ones, all keys are compared with all others, in vectors: the least of
those below fewer than so many is a bound, which larger ones and the first equal ones pass. No branch depends on their order.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.backend.compiler import Kernel
from sparsejax.jit.codegen.abi import ALIGNMENT
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, address, as_kernel, empty, run_parts, vectors
from sparsejax.jit.runtime.system import result_memory
from sparsejax.jit.runtime.system.result_memory import word_at
from sparsejax.jit.runtime.system.reuse import Block

LEAST = -(2**63)
"""Below all numbers."""
TOGETHER = 64, 8
"""Numbers that are compared with the least at once, as long as there are so many."""
LANES = 16
"""Lanes of a vector that is compared."""
SHORT = 10_000
"""All elements of rows are compared with all others where the cube of their columns is so many times the square of what is kept of them at most: 22
columns for one, 86 for 8, 330 for 60. There a heap takes as long (random rows of 8 and 4 bytes, 16 to 512 columns, 1 to 60 kept: 1.2 to 1.5 times as
long with a quarter less columns, 3 times with half of them)."""
MOST = result_memory.PAGE
"""Bytes of results that share a block, which lives as long as one of them: 2 microseconds of 12 less at 2 KB. From 80 KB on, three blocks take no longer."""
WIDE = f"<{LANES} x i64>"


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

        def some() -> None:
            _heaped(b, (low, high), read, heap)
            with b.for_(b.i64(0), keep, "q") as q:
                made.put(b, places.get(b, q), b.const("i8", 1))

        b.if_else(b.lt(keep, b.sub(high, low)), some, all_of_them)


def _heaped(b: Builder, bounds: tuple[Val, Val], read: Keys, heap: _Heap) -> None:
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

    def wide(self, at: Val) -> Val:
        """`LANES` of them as 64 bits each."""
        made = self._keys(at, LANES)
        return made if self.numbers.size == 8 else self.b.convert("sext" if self._signed else "zext", made, WIDE)

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
        self._b, self.keys, self._places, self.count = b, keys, places, count
        self._at, self._next = b.var("at", b.i64(0)), b.var("next", b.i64(0))

    def exchange(self, key: Val, place: Val) -> None:
        """Put a key in the place of the least, which comes after all that are there."""
        b, at, next = self._b, self._at, self._next
        b.set(at, b.i64(0))
        b.set(next, self._child(b.i64(0), key))
        with b.while_(lambda: b.ne(b.get(next), b.get(at))):
            self._put(b.get(at), self.keys.get(b, b.get(next)), self._places.get(b, b.get(next)))
            b.set(at, b.get(next))
            b.set(next, self._child(b.get(at), key))
        self._put(b.get(at), key, place)

    def _put(self, at: Val, key: Val, place: Val) -> None:
        self.keys.put(self._b, at, key)
        self._places.put(self._b, at, place)

    def _child(self, at: Val, key: Val) -> Val:
        """The lesser child of a place, where it is below a key that comes after it; else the place itself."""
        b = self._b
        first, last = b.add(b.mul(at, 2), 1), b.sub(self.count, 1)
        left, right = (b.min(b.add(first, k), last) for k in (0, 1))
        keys = [self.keys.get(b, k) for k in (left, right)]
        places = [self._places.get(b, k) for k in (left, right)]
        later = b.and_(b.eq(keys[0], keys[1]), b.lt(places[0], places[1]))
        is_right = b.binary("or", b.lt(keys[1], keys[0]), later)
        child, least = b.select(is_right, right, left), b.select(is_right, keys[1], keys[0])
        return b.select(b.and_(b.lt(first, self.count), b.lt(least, key)), child, at)


def listed(matrix: Array, keep: int, parts: Sequence[tuple[int, int]]) -> tuple[Array, Array, Array, bool]:
    """(pos, crd, vals) of the `keep` elements of largest absolute value in the rows of a matrix, fewer than it has columns; and whether one of them is 0.
    `parts` are of rows, for a thread each."""
    kernel, take, wanted, begins, each, behind = _layout(*matrix.shape, keep, matrix.dtype)
    if begins[-1] > MOST:
        made = [result_memory.fresh(n, dtype, None) for n, dtype in wanted]
        aside = np.empty(each * len(parts) >> 3, INT64)
        places, at = [place for _, place in made], address(aside)
        found = [array for array, _ in made]
    else:
        whole, begin, place = take(begins[-1] + each * len(parts))
        places, at = [place + k for k in begins[:3]], place + begins[-1]
        found = [
            whole[begin + k : begin + k + n * dtype.itemsize].view(dtype)
            for k, (n, dtype) in zip(begins, wanted, strict=False)
        ]
    given = keep, matrix.shape[1], address(matrix), *places
    own = range(at, at + each * len(parts), each)
    first, second, third, words = behind
    run_parts(
        kernel,
        [(*part, *given, k, k + first, k + second, k + third, words) for part, k in zip(parts, own, strict=True)],
    )
    pos, crd, vals = found
    return pos, crd, vals, any(map(word_at, own))


Layout = tuple[
    Kernel,
    Callable[[int], Block],
    tuple[tuple[int, np.dtype[Any]], ...],
    list[int],
    int,
    tuple[int, int, int, int],
]


@functools.lru_cache(maxsize=256)
def _layout(rows: int, columns: int, keep: int, dtype: np.dtype[Any]) -> Layout:
    """What lists elements, and memory for that; the vectors that it makes, where they begin in a block, and where it ends; bytes beside them for each
    thread, and where in these keys, places and marks begin, and how many words of marks there are."""
    kind, short = crd_dtype(columns), columns**3 <= SHORT * keep**2
    words = 0 if short else (columns + 63) // 64
    keys = columns + LANES if short else keep
    wanted = (rows + 1, INT64), (rows * keep, kind), (rows * keep, dtype)
    begins = [0, *itertools.accumulate([n * each.itemsize + ALIGNMENT - 1 & -ALIGNMENT for n, each in wanted])]
    room = 1 + keys + (0 if short else keep) + words
    kernel, take = _listing(dtype, kind, short)
    return kernel, take, wanted, begins, ALIGNMENT * -(-room // 8), (8, 8 + 8 * keys, 8 + 8 * (keys + keep), words)


@functools.cache
def _listing(kind: np.dtype[Any], crd: np.dtype[Any], short: bool) -> tuple[Kernel, Callable[[int], Block]]:
    """What lists elements, and memory for these."""
    return _listed(kind.kind, kind.itemsize, crd.itemsize, short), result_memory.blocks()


@as_kernel
def _listed(b: Builder, kind: str, size: int, crd_size: int, short: bool) -> None:
    first, end, keep, columns = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "keep", "columns")))
    names = "matrix", "pos", "crd", "vals", "told", "keys", "places", "marks"
    numbers, pos, crd, vals, told, keys, places, marks = vectors(b, 4, (size, 8, crd_size, size, 8, 8, 8, 8), names)
    words, read = b.slot(12, "i64", "words"), Keys(b, numbers, kind, True)
    at, zeros = b.var("at", b.mul(first, keep)), b.var("zeros", b.i64(0))
    with b.if_(b.eq(first, 0)):
        pos.put(b, b.i64(0), b.i64(0))
    if not short:
        with b.for_(b.i64(0), words, "w") as w:
            marks.put(b, w, b.i64(0))

    def put(begin: Val, bits: Val, low: Val) -> None:
        """The elements whose bits are set, the first one of column `begin`."""
        with b.bits_of(bits) as own:
            column = b.named("column", b.add(begin, own))
            crd.put(b, b.get(at), crd.element(b, column))
            vals.put(b, b.get(at), numbers.get(b, b.add(low, column)))
            b.increment(at)

    with b.for_(first, end, "r") as row:
        low = b.named("low", b.mul(row, columns))
        if short:
            least = _bound(b, read, low, columns, keys, keep)
            _past(b, least, columns, keys, keep, lambda begin, bits: put(begin, bits, low))
        else:
            _heaped(b, (low, b.add(low, columns)), read, _Heap(b, keys, places, keep))
            least = keys.get(b, b.i64(0))
            with b.for_(b.i64(0), keep, "q") as q:
                place = b.named("place", b.sub(places.get(b, q), low))
                word, bit = b.binary("lshr", place, b.i64(6)), b.binary("shl", b.i64(1), b.and_(place, b.i64(63)))
                marks.put(b, word, b.binary("or", marks.get(b, word), bit))
            with b.for_(b.i64(0), words, "w") as w:
                bits = b.named("bits", marks.get(b, w))
                marks.put(b, w, b.i64(0))
                put(b.mul(w, 64), bits, low)
        b.set(zeros, b.binary("or", b.get(zeros), b.convert("zext", b.eq(least, 0), "i64")))
        pos.put(b, b.add(row, 1), b.get(at))
    told.put(b, b.i64(0), b.get(zeros))


def _bound(b: Builder, read: Keys, low: Val, columns: Val, keys: Vector, keep: Val) -> Val:
    """The least of as many keys of a row as are to be found, which all are in `keys` then, with others below all behind them."""
    whole = b.named("whole", b.and_(columns, b.i64(-LANES)))
    with b.for_(b.i64(0), whole, "p", step=LANES) as p:
        b.store(keys.pointer, p, read.wide(b.add(low, p)))
    b.store(keys.pointer, whole, b.splat(b.i64(LEAST), LANES))
    with b.for_(whole, columns, "p") as p:
        keys.put(b, p, read.number(b.add(low, p)))
    most = b.splat(b.i64(2**63 - 1), LANES)
    found, larger = b.var("found", most), b.var("larger", b.splat(b.i64(0), LANES))
    b.set(found, most)
    with b.for_(b.i64(0), columns, "p", step=LANES) as p:
        own = b.named("own", b.load(keys.pointer, p, WIDE))
        b.set(larger, b.splat(b.i64(0), LANES))
        with b.for_(b.i64(0), columns, "q") as q:
            above = b.compare("sgt", b.splat(keys.get(b, q), LANES), own)
            one_more = b.binary("add", b.get(larger), b.splat(b.i64(1), LANES))
            b.set(larger, b.select(above, one_more, b.get(larger)))
        among = b.compare("slt", b.get(larger), b.splat(keep, LANES))
        b.set(found, b.min(b.get(found), b.select(among, own, most)))
    return b.named("least", b.call(f"llvm.vector.reduce.smin.v{LANES}i64", "i64", [b.get(found)]))


def _past(b: Builder, least: Val, columns: Val, keys: Vector, keep: Val, put: Callable[[Val, Val], None]) -> None:
    """Those of a row that are larger than the least of as many as are kept, and the first ones that equal it."""
    bound = b.splat(least, LANES)

    def bits(how: str, at: Val) -> Val:
        flags = b.compare(how, b.load(keys.pointer, at, WIDE), bound)
        return b.convert("zext", b.convert("bitcast", flags, f"i{LANES}"), "i64")

    left, chosen = b.var("left", keep), b.var("chosen", b.i64(0))
    b.set(left, keep)
    with b.for_(b.i64(0), columns, "p", step=LANES) as p:
        b.set(left, b.sub(b.get(left), b.call("llvm.ctpop.i64", "i64", [bits("sgt", p)])))
    with b.for_(b.i64(0), columns, "p", step=LANES) as p:
        b.set(chosen, bits("sgt", p))
        with b.bits_of(bits("eq", p)) as own, b.if_(b.lt(b.i64(0), b.get(left))):
            b.set(chosen, b.binary("or", b.get(chosen), b.binary("shl", b.i64(1), own)))
            b.increment(left, -1)
        put(p, b.named("some", b.get(chosen)))
