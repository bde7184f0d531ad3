"""Entries of segments that pass a test, side by side: what three kernels run.

    marked     5 0 7 | 0 0 | 8      101001      a bit for each entry, `WORD` of them at a time, and how many are set
    packed     columns              5 7 8       the entries whose bit is set, a vector at a time, and how many came before every word
    ended      pos 0 3 5 6          0 2 2 3     of each place where a segment ends: what came before its word, and the bits below it there

Nothing depends on where segments end, however long they are. Processors that pack the lanes of a vector do so (`host.has_masks`); elsewhere each
entry is written at the next place, which moves on where its bit is set, without a branch. Vectors are written whole: what is too much in one, the
next one overwrites, and where room ends, entries are written one by one.

Of many entries bits are marked first, so that the result is as large as it must be, but where few of the first ones go: then, and of few entries, there
is room for all, and one kernel does everything.
"""

from __future__ import annotations

import functools
import itertools
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsejax.formats.passes import Array, Chosen
from sparsejax.jit.backend import host
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.backend.compiler import Kernel, check
from sparsejax.jit.codegen.abi import ALIGNMENT
from sparsejax.jit.cost.machine import FAR
from sparsejax.jit.runtime.passes.conversion_loops import Pairs, Vector
from sparsejax.jit.runtime.passes.entry_tests import WORD, Test, Words
from sparsejax.jit.runtime.passes.pass_kernels import (
    INT64,
    address,
    as_kernel,
    empty,
    pairs_of,
    run,
    run_parts,
    vectors,
)
from sparsejax.jit.runtime.system import result_memory, threads
from sparsejax.jit.runtime.system.result_memory import word_at

FEW = 4096
"""Entries of which as many as stay may lie in room for twice as many."""
LOOK, MOST = 16, 8
"""The part of the entries that is looked at, and the part of these that may go where there is room for all."""
TOGETHER = 1 << 16
"""Entries and segments up to which no bits are marked first, and results share a block: what is kept of one keeps all of it."""
BITS = 6
"""Bits of a place within a word."""
Parts = Sequence[tuple[int, int]]


class Tested(NamedTuple):
    """A test of vectors: of flags, or of the last column; `beside` it stands a number, or nothing."""

    test: Test
    flags: Array | None = None
    beside: Array | None = None

    @property
    def key(self) -> tuple[Test, bool, bool]:
        """The test, whether it is of flags, and whether a number stands beside."""
        return self.test, self.flags is not None, self.beside is not None

    @property
    def slots(self) -> list[Array]:
        """What it needs beside the columns."""
        return [vector for vector in (self.flags, self.beside) if vector is not None]


Key = tuple[Test, bool, bool]


def packed(pos: Array, tested: Tested, columns: Sequence[Array]) -> Chosen | None:
    """`pos`, which begins at 0, and columns of the entries that pass a test; None where all do."""
    count = len(columns[0])
    columns = [*map(np.ascontiguousarray, columns)]
    if count <= FEW or len(pos) + count <= TOGETHER:
        return _at_once(pos, tested, columns)
    if count >= FAR and threads.count() > 1:
        return _in_parts(pos, tested, columns)
    words, look = empty(count // WORD + 1, INT64), max(FEW, count // LOOK) // WORD * WORD
    total, marked, given = np.zeros(1, INT64), _marked(*_marks(tested, columns)), _asked(tested, columns)
    run(marked, 0, look, words, total, *given)
    found = int(total[0])
    if look * (MOST - 1) // MOST <= found < look:
        return _at_once(pos, tested, columns)
    run(marked, look, count, words, total, *given)
    found += int(total[0])
    if found == count:
        return None
    made, moved, sums = (
        empty(len(pos), INT64),
        [empty(found, column.dtype) for column in columns],
        empty(len(words), INT64),
    )
    kernel = _packed(None, tuple([column.itemsize for column in columns]), host.has_masks(), True)
    run(
        kernel,
        0,
        count,
        0,
        found,
        words,
        sums,
        len(pos) - 1,
        pos,
        made,
        *itertools.chain(*zip(columns, moved, strict=True)),
    )
    return made, moved


def _marks(tested: Tested, columns: Sequence[Array]) -> tuple[Test, int, bool]:
    """What kernels that mark are made for: the test, the size of what it asks, and whether a number stands beside."""
    return tested.test, (columns[-1] if tested.flags is None else tested.flags).itemsize, tested.beside is not None


def _asked(tested: Tested, columns: Sequence[Array]) -> list[Array]:
    """What the test asks, and what stands beside."""
    asked = columns[-1] if tested.flags is None else tested.flags
    return [asked] if tested.beside is None else [asked, tested.beside]


def _at_once(pos: Array, tested: Tested, columns: Sequence[Array]) -> Chosen | None:
    """Of few entries, or of some few of which go: in one call, with room for all."""
    count, rows, key, kinds = len(columns[0]), len(pos) - 1, tested.key, tuple(map(_kind, columns))
    if rows + count <= TOGETHER:
        return together(key, kinds)(pos, columns, tested.slots)
    words = count // WORD + 1
    both, made, moved = (
        empty(2 * words, INT64),
        empty(rows + 1, INT64),
        [empty(count, column.dtype) for column in columns],
    )
    marks = address(both)
    slots: list[int | Array] = [0, count, 0, count, marks, marks + 8 * words, rows, pos, made]
    for column, target in zip(columns, moved, strict=True):
        slots += column, target
    run(_packed(key, _sizes(kinds), host.has_masks(), True), *slots, *tested.slots)
    found = int(made[-1])
    if found == count:
        return None
    return made, [column[:found].copy() if 2 * found < count else column[:found] for column in moved]


_kind = operator.attrgetter("dtype")


@functools.cache
def together(
    key: Key, kinds: tuple[np.dtype[Any], ...]
) -> Callable[[Array, Sequence[Array], Sequence[Array]], Chosen | None]:
    """`packed` of `TOGETHER` contiguous vectors of some dtypes at most, and what the test needs, as a function: all that is written is in one block, which an
    earlier result had where nobody refers to it any more, entries behind ends of segments; or in memory of its own, where much is left of the block."""
    sizes, take = _sizes(kinds), result_memory.blocks()
    spare, each = ALIGNMENT * (len(kinds) + 2), sum(sizes)
    targets = tuple(zip(kinds, sizes, strict=True))
    pack = struct.Struct(f"{9 + 2 * len(kinds) + sum(key[1:])}q").pack
    kernels: dict[bool, Kernel] = {}

    def at_once(pos: Array, columns: Sequence[Array], others: Sequence[Array]) -> Chosen | None:
        count, rows, masks = len(columns[0]), len(pos) - 1, host.has_masks()
        kernel = kernels.get(masks)
        if kernel is None:
            kernel = kernels[masks] = _packed(key, sizes, masks, True)
        words, end = count // WORD + 1, 8 * rows + 8
        whole, begin, place = take(spare + end + each * count + 16 * words)
        at = end + ALIGNMENT - 1 & -ALIGNMENT
        moves: list[int] = []
        places: list[int] = []
        for column, size in zip(columns, sizes, strict=True):
            moves += address(column), place + at
            places.append(begin + at)
            at = at + count * size + ALIGNMENT - 1 & -ALIGNMENT
        if others:
            moves += map(address, others)
        marks = place + at
        status = kernel.run_packed(
            pack(0, count, 0, count, marks, marks + 8 * words, rows, address(pos), place, *moves)
        )
        if status:
            check(status)
        found = word_at(place + 8 * rows)
        if found == count:
            return None
        moved = [whole[at : at + found * size].view(kind) for at, (kind, size) in zip(places, targets, strict=True)]
        ends = whole[begin : begin + end].view(INT64)
        if found < (count - count // MOST if count > FEW else count // 2):
            ends, *moved = (array.copy() for array in (ends, *moved))
            for array in (ends, *moved):
                result_memory.freeze(array, False)
        return ends, moved

    return at_once


def _sizes(kinds: Sequence[np.dtype[Any]]) -> tuple[int, ...]:
    return tuple([dtype.itemsize for dtype in kinds])


def _in_parts(pos: Array, tested: Tested, columns: Sequence[Array]) -> Chosen | None:
    """By threads, each of which has a part of the words, and of the segments."""
    count, parts = len(columns[0]), threads.count()
    words, sums, totals = empty(count // WORD + 1, INT64), empty(count // WORD + 1, INT64), np.zeros(parts, INT64)
    inner = [count * k // parts // WORD * WORD for k in range(1, parts)]
    shares = list(itertools.pairwise([0, *inner, count]))
    behind = [address(a) for a in _asked(tested, columns)]
    marks = [(*share, address(words), address(totals) + 8 * k, *behind) for k, share in enumerate(shares)]
    run_parts(_marked(*_marks(tested, columns)), marks)
    places = list(itertools.pairwise(itertools.accumulate(totals.tolist(), initial=0)))
    found = places[-1][1]
    if found == count:
        return None
    made, moved = empty(len(pos), INT64), [empty(found, column.dtype) for column in columns]
    pairs = [address(a) for pair in zip(columns, moved, strict=True) for a in pair]
    kernel = _packed(None, tuple([column.itemsize for column in columns]), host.has_masks(), False)
    both = address(words), address(sums)
    run_parts(kernel, [(*share, *place, *both, *pairs) for share, place in zip(shares, places, strict=True)])
    rows = len(pos) - 1
    bounds = itertools.pairwise(rows * k // parts for k in range(parts + 1))
    run_parts(_ended(), [(*bound, address(pos), address(made), *both) for bound in bounds])
    return made, moved


@as_kernel
def _marked(b: Builder, test: Test, size: int, beside: bool) -> None:
    first, end = b.slot(0, "i64", "first"), b.slot(1, "i64", "end")
    words, total, asked, *number = vectors(
        b, 2, (8, 8, *[size] * (1 + beside)), ("words", "total", "asked", "beside")[: 3 + beside]
    )
    tested = test.within(b, asked, number[0] if number else None)
    found = b.var("found", b.i64(0))

    def put(at: Val, bits: Val) -> None:
        words.put(b, b.binary("lshr", at, b.i64(BITS)), bits)
        b.increment(found, _count(b, bits))

    stop = _words(b, first, end, tested, put)
    with b.if_(b.lt(stop, end)):  # else the word is another thread's
        put(stop, _rest(b, stop, end, tested))
    total.put(b, b.i64(0), b.get(found))


def _words(b: Builder, first: Val, end: Val, tested: Words, put: Callable[[Val, Val], None]) -> Val:
    """Every whole word between two places; where the last one ends."""
    stop = b.named("stop", b.and_(end, b.i64(-WORD)))
    with b.for_(first, stop, "at", step=WORD) as at:
        put(at, b.named("bits", tested.word(at)))
    return stop


def _rest(b: Builder, stop: Val, end: Val, tested: Words) -> Val:
    """The bits of a word that is not whole."""
    bits = b.var("rest", b.i64(0))
    b.set(bits, b.i64(0))
    with b.for_(stop, end, "p") as p:
        b.set(bits, b.binary("or", b.get(bits), b.binary("shl", tested.bit(p), b.sub(p, stop))))
    return b.named("bits", b.get(bits))


@as_kernel
def _packed(b: Builder, key: Key | None, sizes: tuple[int, ...], packs: bool, alone: bool) -> None:
    """Without a test, bits are there already; segments end here, too, if this part is `alone`."""
    first, end, place, stop = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "place", "stop")))
    words, sums = vectors(b, 4, (8, 8), ("words", "sums"))
    moves = pairs_of(b, 6 + 3 * alone, sizes)
    tested: Words = _Known(b, words)
    if key is not None:
        (test, flagged, compared), behind = key, 9 + 2 * len(sizes)
        asked = Vector.in_slot(b, behind, 1, "flags") if flagged else moves[-1][0]
        number = Vector.in_slot(b, behind + flagged, asked.size, "beside") if compared else None
        tested = test.within(b, asked, number)
    at = b.var("at", place)

    def put(here: Val, bits: Val, whole: bool) -> None:
        word = b.named("word", b.binary("lshr", here, b.i64(BITS)))
        if key is not None:
            words.put(b, word, bits)
        to = b.named("to", b.get(at))
        sums.put(b, word, to)
        if whole:
            fits = b.lt(b.add(to, WORD - 1), stop)
            with b.if_(b.ne(bits, 0)):
                b.if_else(
                    fits, lambda: _whole(b, here, to, bits, moves, packs), lambda: _singly(b, here, to, bits, moves)
                )
        else:
            _singly(b, here, to, bits, moves)
        b.set(at, b.add(to, _count(b, bits)))

    last = _words(b, first, end, tested, lambda here, bits: put(here, bits, True))
    put(last, _rest(b, last, end, tested), False)
    if alone:
        rows, (pos, made) = b.slot(6, "i64", "rows"), vectors(b, 7, (8, 8), ("pos", "made"))
        _ends(b, b.i64(0), rows, pos, made, words, sums)


class _Known:
    """Bits that were marked before."""

    def __init__(self, b: Builder, words: Vector) -> None:
        self._b, self._words = b, words

    def word(self, at: Val) -> Val:
        return self._words.get(self._b, self._b.binary("lshr", at, self._b.i64(BITS)))

    def bit(self, at: Val) -> Val:
        b = self._b
        return b.and_(b.binary("lshr", self.word(at), b.and_(at, b.i64(WORD - 1))), b.i64(1))


def _whole(b: Builder, here: Val, to: Val, bits: Val, moves: Pairs, packs: bool) -> None:
    """The entries of a word whose bits are set; there is room for as many as a word has."""

    def some() -> None:
        if packs:
            _lanes(b, here, to, bits, moves)
        else:
            _moved(b, here, to, bits, moves)

    def all_of_them() -> None:
        with b.for_(b.i64(0), b.i64(WORD), "k") as k:
            for source, target in moves:
                target.put(b, b.add(to, k), source.get(b, b.add(here, k)))

    b.if_else(b.eq(bits, b.i64(-1)), all_of_them, some)


def _lanes(b: Builder, here: Val, to: Val, bits: Val, moves: Pairs) -> None:
    """In vectors of 64 bytes, or of 16 elements that are smaller: lanes are packed, and the next vector begins behind the last one of them."""
    before: dict[int, Val] = {}
    for source, target in moves:
        words = 2 if source.size == 16 else 1
        elements = min(16, 64 // source.size)
        lanes, scalar = elements * words, f"i{min(64, 8 * source.size)}"
        for k in range(0, WORD, elements):
            if k not in before:
                below = b.and_(bits, b.i64((1 << k) - 1))
                before[k] = b.named("next", b.add(to, _count(b, below))) if k else to
            mask = b.convert("trunc", b.binary("lshr", bits, b.i64(k)), f"i{elements}")
            flags = b.convert("bitcast", mask, f"<{elements} x i1>")
            if words == 2:
                flags = b.shuffle(flags, flags, [lane // 2 for lane in range(lanes)])
            value = b.load(source.pointer, b.mul(b.add(here, k), words), f"<{lanes} x {scalar}>")
            name = f"llvm.experimental.vector.compress.v{lanes}{scalar}"
            made = b.call(name, value.type, [value, flags, Val("zeroinitializer", value.type)])
            b.store(target.pointer, b.mul(before[k], words), made)


def _moved(b: Builder, here: Val, to: Val, bits: Val, moves: Pairs) -> None:
    at = b.var("next", to)
    b.set(at, to)
    with b.for_(b.i64(0), b.i64(WORD), "k") as k:
        place = b.named("place", b.get(at))
        for source, target in moves:
            target.put(b, place, source.get(b, b.add(here, k)))
        b.increment(at, b.and_(b.binary("lshr", bits, k), b.i64(1)))


def _singly(b: Builder, here: Val, to: Val, bits: Val, moves: Pairs) -> None:
    """Where there is no room for more than these."""
    at = b.var("next", to)
    b.set(at, to)
    with b.bits_of(bits) as own:
        for source, target in moves:
            target.put(b, b.get(at), source.get(b, b.add(here, own)))
        b.increment(at)


@as_kernel
def _ended(b: Builder) -> None:
    first, end = b.slot(0, "i64", "first"), b.slot(1, "i64", "end")
    _ends(b, first, end, *vectors(b, 2, (8, 8, 8, 8), ("pos", "made", "words", "sums")))


def _ends(b: Builder, first: Val, end: Val, pos: Vector, made: Vector, words: Vector, sums: Vector) -> None:
    """Where segments end, each behind its number; the first of all begins at 0."""
    with b.if_(b.eq(first, 0)):
        made.put(b, b.i64(0), b.i64(0))
    with b.for_(first, end, "r") as r:
        ends = b.named("ends", pos.get(b, b.add(r, 1)))
        word = b.named("word", b.binary("lshr", ends, b.i64(BITS)))
        below = b.sub(b.binary("shl", b.i64(1), b.and_(ends, b.i64(WORD - 1))), 1)
        made.put(b, b.add(r, 1), b.add(sums.get(b, word), _count(b, b.and_(words.get(b, word), below))))


def _count(b: Builder, bits: Val) -> Val:
    return b.call("llvm.ctpop.i64", "i64", [bits])
