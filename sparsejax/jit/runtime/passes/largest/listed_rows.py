"""Elements of largest absolute value in the rows of a matrix, listed in the order of columns.

before:  3 -7 0 7 1, two of each row     after:  pos 0 2, crd 1 3, vals -7 7

Of long rows a heap has the largest, whose columns are marked by bits. Of short ones, all keys are compared with all others, in vectors: the least of
those below fewer than so many is a bound, which larger ones and the first equal ones pass. No branch depends on their order.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.backend.compiler import Kernel
from sparsejax.jit.codegen.abi import ALIGNMENT
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.largest.heaps import Heap, heaped
from sparsejax.jit.runtime.passes.largest.keys import LANES, LEAST, WIDE, Keys
from sparsejax.jit.runtime.passes.pass_kernels import INT64, address, as_kernel, run_parts, vectors
from sparsejax.jit.runtime.system import result_memory
from sparsejax.jit.runtime.system.result_memory import word_at
from sparsejax.jit.runtime.system.reuse import Block

SHORT = 10_000
"""All elements of rows are compared with all others where the cube of their columns is so many times the square of what is kept of them at most: 22
columns for one, 86 for 8, 330 for 60. There a heap takes as long (random rows of 8 and 4 bytes, 16 to 512 columns, 1 to 60 kept: 1.2 to 1.5 times as
long with a quarter less columns, 3 times with half of them)."""
MOST = result_memory.PAGE
"""Bytes of results that share a block, which lives as long as one of them: 2 microseconds of 18 less at 9 KB, nothing beyond this."""


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
            heaped(b, (low, b.add(low, columns)), read, Heap(b, keys, places, keep))
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
