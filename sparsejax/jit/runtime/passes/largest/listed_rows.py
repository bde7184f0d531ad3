"""Elements of largest absolute value in the rows of a matrix, or in all of it, listed in the order of columns.

before:  3 -7 0 7 1, two of each row     after:  pos 0 2, crd 1 3, vals -7 7

Of long rows a heap has the largest, whose columns are marked by bits. Of others a bound is found by halves (`halving`), which larger ones and the first
equal ones pass.
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
from sparsejax.jit.runtime.passes.largest.halving import Halving, halved, is_short
from sparsejax.jit.runtime.passes.largest.heaps import Heap, heaped
from sparsejax.jit.runtime.passes.largest.keys import LANES, Keys
from sparsejax.jit.runtime.passes.pass_kernels import INT64, address, as_kernel, run_parts, vectors
from sparsejax.jit.runtime.system import result_memory
from sparsejax.jit.runtime.system.result_memory import word_at
from sparsejax.jit.runtime.system.reuse import Block

MOST = result_memory.PAGE
"""Bytes of results that share a block, which lives as long as one of them: 2 microseconds of 18 less at 9 KB, nothing beyond this."""


def listed(matrix: Array, keep: int, whole: bool, parts: Sequence[tuple[int, int]]) -> tuple[Array, Array, Array, bool]:
    """(pos, crd, vals) of the `keep` elements of largest absolute value in the rows of a matrix, fewer than it has columns, or in all of it, as `whole`, if
    it is short; and whether one of them may be 0. `parts` are of rows, or of the one whole, for a thread each."""
    kernel, take, wanted, begins, each, behind, together = _layout(*matrix.shape, keep, matrix.dtype, whole)
    if begins[-1] > MOST:
        made = [result_memory.fresh(n, dtype, None) for n, dtype in wanted]
        aside = np.empty(each * len(parts) >> 3, INT64)
        places, at = [place for _, place in made], address(aside)
        found = [array for array, _ in made]
    else:
        block, begin, place = take(begins[-1] + each * len(parts))
        places, at = [place + k for k in begins[:3]], place + begins[-1]
        found = [
            block[begin + k : begin + k + n * dtype.itemsize].view(dtype)
            for k, (n, dtype) in zip(begins, wanted, strict=False)
        ]
    given = keep, matrix.shape[1], together, address(matrix), *places
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
    int,
]


@functools.lru_cache(maxsize=256)
def _layout(rows: int, columns: int, keep: int, dtype: np.dtype[Any], whole: bool) -> Layout:
    """What lists elements, and memory for that; the vectors that it makes, where they begin in a block, and where it ends; bytes beside them for each
    thread, and where in these keys, places and marks begin, and how many words of marks there are; rows that are looked at together."""
    together = rows if whole else 1
    kind, short = crd_dtype(columns), whole or is_short(columns, keep)
    words = 0 if short else (columns + 63) // 64
    keys = columns * together + LANES if short else keep
    found = keep if whole else rows * keep
    wanted = (rows + 1, INT64), (found, kind), (found, dtype)
    begins = [0, *itertools.accumulate([n * each.itemsize + ALIGNMENT - 1 & -ALIGNMENT for n, each in wanted])]
    room = 1 + keys + (0 if short else keep) + words
    kernel, take = _listing(dtype, kind, short)
    behind = 8, 8 + 8 * keys, 8 + 8 * (keys + keep), words
    return kernel, take, wanted, begins, ALIGNMENT * -(-room // 8), behind, together


@functools.cache
def _listing(kind: np.dtype[Any], crd: np.dtype[Any], short: bool) -> tuple[Kernel, Callable[[int], Block]]:
    """What lists elements, and memory for these."""
    return _listed(kind.kind, kind.itemsize, crd.itemsize, short), result_memory.blocks()


@as_kernel
def _listed(b: Builder, kind: str, size: int, crd_size: int, short: bool) -> None:
    first, end, keep, columns, together = (
        b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "keep", "columns", "together"))
    )
    names = "matrix", "pos", "crd", "vals", "told", "keys", "places", "marks"
    numbers, pos, crd, vals, told, keys, places, marks = vectors(b, 5, (size, 8, crd_size, size, 8, 8, 8, 8), names)
    words, read = b.slot(13, "i64", "words"), Keys(b, numbers, kind, True)
    at, zeros = b.var("at", b.mul(first, keep)), b.var("zeros", b.i64(0))
    with b.if_(b.eq(first, 0)):
        pos.put(b, b.i64(0), b.i64(0))
    if not short:
        with b.for_(b.i64(0), words, "w") as w:
            marks.put(b, w, b.i64(0))

    def put(low: Val, begin: Val, bits: Val) -> None:
        """The elements of a row whose bits are set, the first one of column `begin`."""
        with b.bits_of(bits) as own:
            column = b.named("column", b.add(begin, own))
            crd.put(b, b.get(at), crd.element(b, column))
            vals.put(b, b.get(at), numbers.get(b, b.add(low, column)))
            b.increment(at)

    def bounded(part: Val) -> Val:
        """The largest of rows together."""
        row = b.named("row", b.mul(part, together))
        low = b.named("low", b.mul(row, columns))

        def all_rows(found: Halving) -> None:
            with b.for_(b.i64(0), together, "k") as k:
                begin = b.named("begin", b.mul(k, columns))
                found.found(begin, columns, functools.partial(put, b.add(low, begin)))
                pos.put(b, b.add(b.add(row, k), 1), b.get(at))

        return halved(b, read, keys.pointer, low, b.mul(columns, together), keep, all_rows)

    def marked(row: Val) -> Val:
        """The largest of a row, from a heap."""
        low = b.named("low", b.mul(row, columns))
        heaped(b, (low, b.add(low, columns)), read, Heap(b, keys, places, keep))
        nothing = b.eq(keys.get(b, b.i64(0)), 0)
        with b.for_(b.i64(0), keep, "q") as q:
            place = b.named("place", b.sub(places.get(b, q), low))
            word, bit = b.binary("lshr", place, b.i64(6)), b.binary("shl", b.i64(1), b.and_(place, b.i64(63)))
            marks.put(b, word, b.binary("or", marks.get(b, word), bit))
        with b.for_(b.i64(0), words, "w") as w:
            bits = b.named("bits", marks.get(b, w))
            marks.put(b, w, b.i64(0))
            put(low, b.mul(w, 64), bits)
        pos.put(b, b.add(row, 1), b.get(at))
        return nothing

    with b.for_(first, end, "r") as part:
        nothing = bounded(part) if short else marked(part)
        b.set(zeros, b.binary("or", b.get(zeros), b.convert("zext", nothing, "i64")))
    told.put(b, b.i64(0), b.get(zeros))
