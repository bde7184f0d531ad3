"""Counts in single passes over entries, by machine code: words of tiles of a matrix, and entries of partial results of products of two.

    degrees   how often every coordinate occurs
    bins      of counts:  made[bits(count)] += 1
    words     tile = row // height, column // width;  words[tile] += 4 where an entry is the first of its row in that tile, else 2
    pairs     of rows of a product:  for entries (r, k) of the left operand, for entries (k, y) of the right one:
                  where y met r first: first += weight[r];  else classes[bits(k ^ the k before)] += weight[r]

    overlaps  of some of many sorted keys:  for the keys that are less than `shifts` larger:  made[difference] += 1

Of coordinates k in tiles of 2^l, y makes one more partial result in row r whenever k >> l differs from that of the k before, which is when the two
differ in more than the last l bits: one pass counts partial results for tiles of all powers of two. Both take coordinates divided by extents.

A quotient is `floor((x + 1/2) * (1 / extent))` in double precision: (x + 1/2) / extent is at least 1 / (2 extent) away from any integer, and
for x below 2^31 its error is less than 2^-20 of that.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats.passes import MANY
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.runtime.system import result_memory

Array = NDArray[Any]
FEW = 1 << 29
"""Entries from which words take 64 bits: each adds up to four."""
CLASSES = 33
"""Two coordinates of 31 bits differ in their last 0 to 31 bits; class 32 counts those that are first."""
FIRST = CLASSES - 1


def applies(*columns: Array) -> bool:
    """Whether machine code counts entries of these coordinates: many, of 32 bits."""
    return all(c.dtype == np.int32 and len(c) >= MANY for c in columns)


def words(rows: tuple[Array, Array], extent: int, tiles: Sequence[int], grid: Sequence[int]) -> Array:
    """2 n + 2 r for every tile of a grid, with n entries in r rows; entries are sorted by row, then column, each once. `rows` holds the row of
    every entry, as 32 bits, or where each of the `extent` rows starts, as 64; and the columns.

    >>> rows, columns = (np.array(x, np.int32) for x in ([0, 0, 1, 3], [0, 1, 5, 2]))
    >>> words((rows, columns), 4, (2, 3), (2, 2)).tolist(), words((np.array([0, 2, 3, 3, 4]), columns), 4, (2, 3), (2, 2)).tolist()
    ([6, 4, 4, 0], [6, 4, 4, 0])
    """
    made = np.zeros(grid[0] * grid[1], np.int32 if len(rows[1]) < FEW else np.int64)
    power = tiles[1].bit_length() - 1 if tiles[1] & (tiles[1] - 1) == 0 else -1
    _run_words(rows, extent, tiles, grid, made, power)
    return made


def listed_words(
    rows: tuple[Array, Array], extent: int, tiles: Sequence[int], grid: Sequence[int]
) -> tuple[Array, Array]:
    """The numbers of the tiles that hold entries, and their `words`: for grids of which most tiles hold none.

    >>> listed_words(tuple(np.array(x, np.int32) for x in ([0, 0, 1, 3], [0, 1, 5, 2])), 4, (2, 3), (2, 2))
    (array([0, 1, 2]), array([6, 4, 4]))
    """
    places, entries = grid[0] * grid[1], len(rows[1])
    made = np.zeros(places, np.int32 if entries < FEW else np.int64)
    marks = np.zeros(-(-places // 64), np.int64)
    found, counted = (np.empty(min(entries, places) + 1, np.int64) for _ in range(2))
    _run_words(rows, extent, tiles, grid, made, -1, marks, len(marks), found, counted)
    return found[1 : found[0] + 1], counted[1 : found[0] + 1]


def _run_words(
    rows: tuple[Array, Array],
    extent: int,
    tiles: Sequence[int],
    grid: Sequence[int],
    made: Array,
    power: int,
    *listed: Any,
) -> None:
    """Adds words to `made`; tiles of 2^power columns, or any (-1)."""
    starts = rows[0].dtype == np.int64
    kernel = _words(power >= 0, made.itemsize, bool(listed), starts)
    share: float = power if power >= 0 else 1 / tiles[1]
    slots = f"3q{'q' if power >= 0 else 'd'}{3 + len(listed)}q"
    _run(kernel, slots, extent if starts else len(rows[1]), grid[1], tiles[0], share, *rows, made, *listed)


def degrees(column: Array, extent: int) -> Array:
    """How often every coordinate below `extent` occurs.

    >>> degrees(np.array([2, 0, 2], np.int32), 4)
    array([1, 0, 2, 0])
    """
    made = np.zeros(extent, np.int64)
    _run(_degrees(), "3q", len(column), column, made)
    return made


def bins(counts: Array) -> Array:
    """How many of these are 0, 1, 2 to 3, 4 to 7, ... up to the largest.

    >>> bins(np.array([0, 3, 4, 7, 0]))
    array([2, 0, 1, 2])
    """
    made = np.zeros(65, np.int64)
    _run(_bins(), "3q", len(counts), counts.astype(np.int64, copy=False), made)
    held = np.flatnonzero(made)
    return made[: int(held[-1]) + 1 if len(held) else 1]


def multiplications(starts: Array, indices: Array, lengths: Array) -> Array:
    """Per row of the left operand: the sum of `lengths`, of rows of the right one, over its entries.

    >>> multiplications(np.array([0, 2, 2, 3]), np.array([0, 1, 1], np.int32), np.array([5, 1]))
    array([6, 0, 1])
    """
    made = np.zeros(len(starts) - 1, np.int64)
    _run(_multiplications(), "5q", len(made), starts, indices, lengths, made)
    return made


def pairs(
    rows: Array,
    weights: Array,
    left: tuple[Array, Array],
    right: tuple[Array, Array],
    tiles: tuple[int, int],
    extent: int,
) -> Array:
    """Weights of the pairs of entries of some rows of a product, by class (see above): `left` and `right` are starts and indices of rows, `tiles` by what k
    and y are divided, y being below `extent`.

    >>> left = np.array([0, 2]), np.array([0, 1], np.int32)
    >>> right = np.array([0, 2, 3]), np.array([4, 7, 7], np.int32)
    >>> pairs(np.array([0]), np.array([10.0]), left, right, (1, 1), 8)[[0, 1, FIRST]]
    array([ 0., 10., 20.])
    """
    made = np.zeros(CLASSES)
    seen = np.full(-(-extent // tiles[1]), -1, np.int64)
    shares = 1 / tiles[0], 1 / tiles[1]
    _run(_pairs(tiles[1] > 1), "q2d8q", len(rows), *shares, rows, weights, *left, *right, seen, made)
    return made


def overlaps(keys: Array, chosen: Array, shifts: int) -> Array:
    """Per shift: how many of the chosen keys, by their numbers, have one that is so much larger; keys are sorted, each once.

    >>> overlaps(np.array([0, 1, 3, 9]), np.array([0, 1, 2]), 4)
    array([3, 1, 1, 1])
    """
    made = np.zeros(shifts, np.int64)
    _run(_overlaps(), "6q", len(chosen), len(keys), shifts, chosen, keys.astype(np.int64, copy=False), made)
    return made


def _run(kernel: compiler.Kernel, slots: str, *given: Any) -> None:
    held = [np.ascontiguousarray(g) if isinstance(g, np.ndarray) else g for g in given]
    numbers = [result_memory.address_of(g) if isinstance(g, np.ndarray) else g for g in held]
    compiler.check(kernel.run_packed(struct.pack(slots, *numbers)))


@functools.cache
def _words(shifted: bool, size: int, listed: bool, starts: bool) -> compiler.Kernel:
    """Extents of columns that are powers of two are `shifted` by their logarithm, others multiplied with their reciprocal. Tiles that hold entries
    are `listed` in their order, behind their number, and their words: one bit marks each of them, 64 in a word. Rows are where they start
    (`starts`), or one number per entry."""
    b = LLVMBuilder()
    count, width, height = (b.slot(k, "i64", name) for k, name in enumerate(("count", "width", "height")))
    share = b.slot(3, "i64" if shifted else "double", "share")
    rows, columns, made = (b.slot(4 + k, "ptr", name) for k, name in enumerate(("rows", "columns", "made")))
    counter = f"i{8 * size}"
    marks = b.slot(7, "ptr", "marks") if listed else made
    row_before, tile_before = b.var("row_before", b.i64(-1)), b.var("tile_before", b.i64(-1))
    first, end = (
        b.var("first", b.i64(0)),
        b.var("end", b.i64(0)),
    )  # of a row of tiles: its first tile, the row behind it

    def enter(row: Val) -> None:
        with b.if_(b.lt(b.sub(b.get(end), 1), row)):
            number = b.named("number", b.binary("sdiv", row, height))
            b.set(first, b.mul(number, width))
            b.set(end, b.mul(b.add(number, 1), height))

    def add(p: Val, starts_row: Val | None) -> None:
        column = _coordinate(b, columns, p)
        across = b.binary("lshr", column, share) if shifted else _quotient(b, column, share)
        tile = b.named("tile", b.add(b.get(first), across))
        fresh = b.ne(tile, b.get(tile_before))
        if starts_row is not None:
            fresh = b.binary("or", starts_row, fresh)
        b.set(tile_before, tile)
        more = b.select(fresh, b.const(counter, 4), b.const(counter, 2))
        before = b.named("before", b.load(made, tile, counter))
        b.store(made, tile, b.add(before, more))
        if listed:
            word, bit = b.binary("lshr", tile, b.i64(6)), b.binary("and", tile, b.i64(63))
            marked = b.binary("or", b.load(marks, word, "i64"), b.binary("shl", b.i64(1), bit))
            b.store(marks, word, marked)

    if starts:
        with b.for_(b.i64(0), count, "row") as row:
            enter(row)
            b.set(tile_before, b.i64(-1))
            with b.for_(b.load(rows, row, "i64"), b.load(rows, b.add(row, 1), "i64"), "p") as p:
                add(p, None)
    else:
        with b.for_(b.i64(0), count, "p") as p:
            row = _coordinate(b, rows, p)
            enter(row)
            starts_row = b.ne(row, b.get(row_before))
            b.set(row_before, row)
            add(p, starts_row)
    if listed:
        _list_marked(b, marks, made, counter)
    return _compiled(b)


def _list_marked(b: Builder, marks: Val, made: Val, counter: str) -> None:
    """The numbers of the bits that are set, behind how many these are, and what `made` holds at them."""
    count, left = b.var("count", b.i64(0)), b.var("left", b.i64(0))
    found, words = b.slot(9, "ptr", "found"), b.slot(10, "ptr", "words")
    with b.for_(b.i64(0), b.slot(8, "i64", "length"), "w") as w:
        b.set(left, b.load(marks, w, "i64"))
        with b.while_(lambda: b.ne(b.get(left), 0)):
            bit = b.call("llvm.cttz.i64", "i64", [b.get(left), b.const("i1", 1)])
            b.set(left, b.binary("and", b.get(left), b.sub(b.get(left), 1)))
            tile = b.named("tile", b.add(b.binary("shl", w, b.i64(6)), bit))
            b.increment(count)
            b.store(found, b.get(count), tile)
            held = b.load(made, tile, counter)
            b.store(words, b.get(count), held if counter == "i64" else b.convert("sext", held, "i64"))
    b.store(found, b.i64(0), b.get(count))


@functools.cache
def _degrees() -> compiler.Kernel:
    b = LLVMBuilder()
    entries, column, made = b.slot(0, "i64", "entries"), b.slot(1, "ptr", "column"), b.slot(2, "ptr", "made")
    with b.for_(b.i64(0), entries, "p") as p:
        at = b.named("at", _coordinate(b, column, p))
        b.store(made, at, b.add(b.load(made, at, "i64"), 1))
    return _compiled(b)


@functools.cache
def _bins() -> compiler.Kernel:
    b = LLVMBuilder()
    entries, counts, made = b.slot(0, "i64", "entries"), b.slot(1, "ptr", "counts"), b.slot(2, "ptr", "made")
    with b.for_(b.i64(0), entries, "p") as p:
        count = b.load(counts, p, "i64")
        bits = b.sub(b.i64(64), b.call("llvm.ctlz.i64", "i64", [count, b.const("i1", 0)]))
        b.store(made, bits, b.add(b.load(made, bits, "i64"), 1))
    return _compiled(b)


@functools.cache
def _multiplications() -> compiler.Kernel:
    b = LLVMBuilder()
    rows = b.slot(0, "i64", "rows")
    starts, indices, lengths, made = (
        b.slot(1 + k, "ptr", name) for k, name in enumerate(("starts", "indices", "lengths", "made"))
    )
    with b.for_(b.i64(0), rows, "r") as r:
        total = b.var("total", b.i64(0))
        with b.for_(b.load(starts, r, "i64"), b.load(starts, b.add(r, 1), "i64"), "p") as p:
            b.increment(total, b.load(lengths, _coordinate(b, indices, p), "i64"))
        b.store(made, r, b.get(total))
    return _compiled(b)


@functools.cache
def _pairs(cut: bool) -> compiler.Kernel:
    b = LLVMBuilder()
    count = b.slot(0, "i64", "count")
    k_share, y_share = b.slot(1, "double", "k_share"), b.slot(2, "double", "y_share")
    names = "rows", "weights", "left_starts", "left", "right_starts", "right", "seen", "made"
    rows, weights, left_starts, left, right_starts, right, seen, made = (
        b.slot(3 + k, "ptr", name) for k, name in enumerate(names)
    )
    with b.for_(b.i64(0), count, "c") as c:
        row, weight = b.load(rows, c, "i64"), b.load(weights, c, "double")
        mark = b.named("mark", b.binary("shl", c, b.i64(32)))  # of what this row has seen: its number, and k
        with b.for_(b.load(left_starts, row, "i64"), b.load(left_starts, b.add(row, 1), "i64"), "p") as p:
            k = b.named("k", _coordinate(b, left, p))
            tile = b.named("tile", _quotient(b, k, k_share))
            here = b.named("here", b.binary("or", mark, tile))
            with b.for_(b.load(right_starts, k, "i64"), b.load(right_starts, b.add(k, 1), "i64"), "q") as q:
                y = _coordinate(b, right, q)
                y = b.named("y", _quotient(b, y, y_share) if cut else y)
                differs = b.binary("xor", b.load(seen, y, "i64"), here)
                bits = b.sub(b.i64(64), b.call("llvm.ctlz.i64", "i64", [differs, b.const("i1", 0)]))
                place = b.named("place", b.min(bits, b.i64(FIRST)))
                b.store(made, place, b.binary("fadd", b.load(made, place, "double"), weight))
                b.store(seen, y, here)
    return _compiled(b)


@functools.cache
def _overlaps() -> compiler.Kernel:
    b = LLVMBuilder()
    count, behind, shifts = (b.slot(k, "i64", name) for k, name in enumerate(("count", "behind", "shifts")))
    chosen, keys, made = (b.slot(3 + k, "ptr", name) for k, name in enumerate(("chosen", "keys", "made")))
    with b.for_(b.i64(0), count, "c") as c:
        place = b.named("place", b.load(chosen, c, "i64"))
        key = b.named("key", b.load(keys, place, "i64"))
        at, shift = b.var("at", place), b.var("shift", b.i64(0))
        with b.while_(lambda: b.lt(b.get(shift), shifts)):
            b.store(made, b.get(shift), b.add(b.load(made, b.get(shift), "i64"), 1))
            b.increment(at)
            b.set(shift, shifts)
            with b.if_(b.lt(b.get(at), behind)):
                b.set(shift, b.sub(b.load(keys, b.get(at), "i64"), key))
    return _compiled(b)


def _compiled(b: LLVMBuilder) -> compiler.Kernel:
    return compiler.compile_text(b.finish(lambda: None))


def _coordinate(b: Builder, crd: Val, p: Val) -> Val:
    return b.convert("sext", b.load(crd, p, "i32"), "i64")


def _quotient(b: Builder, x: Val, share: Val) -> Val:
    middle = b.binary("fadd", b.convert("sitofp", x, "double"), b.const("double", 0.5))
    return b.convert("fptosi", b.binary("fmul", middle, share), "i64")
