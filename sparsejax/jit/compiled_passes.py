"""The passes of conversions as machine code: see `formats.passes`.

Kernels depend on the widths of what they move alone, so that a handful serves all formats, and comes from the object cache in every
process but the first.

    ordered    count the keys of every bucket, add up, move entry by entry: the histogram becomes `pos`. What an entry will touch
               is prefetched: its bucket first, its new place later (2 to 3 times as fast on a million entries). Each thread counts
               and moves a part of the entries; those of an earlier part come first in every bucket
    owners     a vector of equal numbers at the beginning of every segment; the next segment overwrites what is too much
    offsets    pos[parent[p] + 1] = p + 1 for every entry, of which the last one counts; empty segments get what stands before
    distinct   every entry is written at the place of the one before or behind it, without a branch

Source: counting sort as in Gustavson, "Two fast algorithms for sparse matrices" (1978), and "Automatic Generation of Efficient Sparse
Tensor Format Conversion Routines", section 6.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.formats.passes import Array, Passes, crd_dtype, use
from sparsejax.jit import arena, runtime, threads
from sparsejax.jit.builder import Builder, Val
from sparsejax.jit.llvm import LLVMBuilder
from sparsejax.jit.memory import clear

LANES = 16
"""Numbers that are written at once."""
SOON, LATER = 16, 32
"""How many entries ahead new places and buckets are prefetched."""
FAR = 1 << 17
"""Entries from which prefetching pays: fewer stay in the caches."""
RECYCLED = 1 << 20
"""Bytes from which memory is taken from the arena."""
SPREAD, DIGIT = 4, 11
"""Extents up to SPREAD times the entries take one pass; others are split into digits of DIGIT bits, so that no cost depends on them."""
_INT64 = np.dtype(np.int64)


class CompiledPasses(Passes):
    """The passes in machine code. What they return is read-only."""

    def owners(self, pos: Array) -> Array:
        parents, entries = len(pos) - 1, int(pos[-1])
        out = _empty(entries + LANES, crd_dtype(parents))
        _run(_owners(out.itemsize), parents, pos, out)
        return out[:entries]

    def offsets(self, parent: Array, parents: int) -> Array:
        pos = _empty(parents + 1, _INT64)
        _run(_offsets(parent.itemsize), parents, len(parent), np.ascontiguousarray(parent), pos)
        return pos

    def take(self, column: Array, index: Array) -> Array:
        out = _empty(len(index), column.dtype)
        column, index = np.ascontiguousarray(column), np.ascontiguousarray(index)
        _run(_take(column.itemsize, index.itemsize), len(index), column, index, out)
        return out

    def ordered(self, key: Array, columns: Sequence[Array], extent: int) -> tuple[Array, list[Array]]:
        if extent <= SPREAD * len(key):
            pos, moved = _scattered(key, columns, extent)
            return self.owners(pos), moved
        for shift in range(0, (extent - 1).bit_length(), DIGIT):
            _, (key, *columns) = _scattered(key, [key, *columns], 1 << DIGIT, shift)
        return key, list(columns)

    def bucketed(self, key: Array, columns: Sequence[Array], extent: int) -> tuple[Array, list[Array]]:
        if extent <= SPREAD * len(key):
            return _scattered(key, columns, extent)
        return super().bucketed(key, columns, extent)

    def distinct(self, columns: Sequence[Array]) -> tuple[list[Array], Array]:
        columns = [np.ascontiguousarray(column) for column in columns]
        entries = len(columns[0])
        made, number = [_empty(entries, c.dtype) for c in columns], _empty(entries, crd_dtype(entries))
        pairs = [a for pair in zip(columns, made, strict=True) for a in pair]
        _run(_distinct(number.itemsize, tuple(c.itemsize for c in columns)), entries, number, *pairs)
        left = int(number[-1]) + 1 if entries else 0
        return [c[:left].copy() if 2 * left < entries else c[:left] for c in made], number

    def grid(self, count: int, extent: int) -> tuple[Array, Array]:
        owners, numbers = _empty(count * extent, crd_dtype(count)), _empty(count * extent, crd_dtype(extent))
        _run(_grid(owners.itemsize, numbers.itemsize), count, extent, owners, numbers)
        return owners, numbers

    def joined(self, block: Array, place: Array, size: int, extent: int) -> Array:
        made = _empty(len(block), crd_dtype(extent))
        block, place = np.ascontiguousarray(block), np.ascontiguousarray(place)
        _run(_joined(block.itemsize, place.itemsize, made.itemsize), len(block), size, block, place, made)
        return made

    def spread(self, vals: Array, position: Array, count: int, fill: Any) -> Array:
        cleared = count * vals.itemsize >= arena.SMALLEST and not any(np.asarray(fill, vals.dtype).tobytes())
        made = arena.full(count, vals.dtype, 0)[0] if cleared else np.full(count, fill, vals.dtype)
        vals, position = np.ascontiguousarray(vals), np.ascontiguousarray(position)
        _run(_spread(vals.itemsize, position.itemsize), len(vals), vals, position, made)
        return made


def _scattered(key: Array, columns: Sequence[Array], buckets: int, shift: int = 0) -> tuple[Array, list[Array]]:
    """(pos, columns): entries ordered by the bucket `(key >> shift) % buckets`, and where each bucket begins; `buckets` is a
    power of two, or more than any key."""
    key, columns = np.ascontiguousarray(key), [np.ascontiguousarray(column) for column in columns]
    entries, parts = len(key), threads.count() if len(key) >= FAR else 1
    if parts * buckets > SPREAD * entries:
        parts = 1
    pos, moved = _empty(buckets + 1, _INT64), [_empty(len(c), c.dtype) for c in columns]
    mask = -1 if buckets & (buckets - 1) else buckets - 1
    pairs = [_address(a) for pair in zip(columns, moved, strict=True) for a in pair]
    places, sizes = _empty(parts * buckets, _INT64), tuple(c.itemsize for c in columns)
    first, source = _address(places), _address(key)
    rows = [
        (
            entries * k // parts,
            entries * (k + 1) // parts,
            buckets,
            shift,
            mask,
            source,
            first + 8 * k * buckets,
            *pairs,
        )
        for k in range(parts)
    ]
    _run_parts(_counted(key.itemsize), rows)
    _run(_summed(), parts, buckets, first, pos)
    _run_parts(_moved(key.itemsize, sizes, entries >= FAR), rows)
    return pos, moved


def _empty(count: int, dtype: np.dtype[Any]) -> Array:
    """A vector to be written by a kernel."""
    return arena.empty(count, dtype, RECYCLED)


def _address(array: Array) -> int:
    """Where an array begins."""
    address: int = array.__array_interface__["data"][0]
    return address


def _run(kernel: runtime.Kernel, *slots: int | Array) -> None:
    """Run a pass; arrays are passed by their addresses."""
    numbers = [s if isinstance(s, int) else _address(s) for s in slots]
    runtime.check(kernel.run_packed(struct.pack(f"{len(numbers)}q", *numbers)))


def _run_parts(kernel: runtime.Kernel, rows: Sequence[tuple[int, ...]]) -> None:
    """Run a pass once for every row of slots, by threads."""
    if len(rows) == 1:
        _run(kernel, *rows[0])
    else:
        runtime.check(threads.run(kernel.address, np.array(rows, np.int64)))


class _Vector:
    """A vector of elements of a number of bytes, whatever they are."""

    def __init__(self, b: Builder, slot: int, size: int, name: str) -> None:
        self.size, self.pointer = size, b.slot(slot, "ptr", name)
        self.type = "<2 x i64>" if size == 16 else f"i{8 * size}"
        self._words = 2 if size == 16 else 1

    def get(self, b: Builder, at: Val) -> Val:
        return b.load(self.pointer, b.mul(at, self._words), self.type)

    def number(self, b: Builder, at: Val) -> Val:
        """The element as a number that is not negative."""
        value = self.get(b, at)
        return value if self.type == "i64" else b.convert("zext", value, "i64")

    def element(self, b: Builder, number: Val) -> Val:
        """An i64 as an element."""
        return number if self.type == "i64" else b.convert("trunc", number, self.type)

    def put(self, b: Builder, at: Val, value: Val) -> None:
        b.store(self.pointer, b.mul(at, self._words), value)

    def prefetch(self, b: Builder, at: Val) -> None:
        """Fetch what is to be written later."""
        address = b.add(b.convert("ptrtoint", self.pointer, "i64"), b.mul(at, self.size))
        hints = [b.const("i32", n) for n in (1, 3, 1)]
        b.call("llvm.prefetch.p0", "void", [b.convert("inttoptr", address, "ptr"), *hints])


def _compiled(b: LLVMBuilder) -> runtime.Kernel:
    return runtime.compile_text(b.finish(lambda: None))


@functools.cache
def _owners(size: int) -> runtime.Kernel:
    b = LLVMBuilder()
    parents, pos, out = b.slot(0, "i64", "parents"), _Vector(b, 1, 8, "pos"), _Vector(b, 2, size, "out")
    with b.for_(b.i64(0), parents, "r") as r:
        value = b.splat(out.element(b, r), LANES)
        start, end = pos.get(b, r), pos.get(b, b.add(r, 1))
        b.store(out.pointer, start, value)  # of empty segments too: a branch would be hard to predict
        at = b.var("at", b.add(start, LANES))
        with b.while_(lambda: b.lt(b.get(at), end)):
            b.store(out.pointer, b.get(at), value)
            b.increment(at, LANES)
    return _compiled(b)


@functools.cache
def _offsets(size: int) -> runtime.Kernel:
    b = LLVMBuilder()
    parents, entries = b.slot(0, "i64", "parents"), b.slot(1, "i64", "entries")
    parent, pos = _Vector(b, 2, size, "parent"), _Vector(b, 3, 8, "pos")
    clear(b, pos.pointer, b.i64(0), b.add(parents, 1), 8)
    with b.for_(b.i64(0), entries, "p") as p:
        after = b.add(p, 1)
        pos.put(b, b.add(parent.number(b, p), 1), after)
    high = b.var("high", b.i64(0))
    with b.for_(b.i64(0), b.add(parents, 1), "r") as r:
        b.set(high, b.max(b.get(high), pos.get(b, r)))
        pos.put(b, r, b.get(high))
    return _compiled(b)


@functools.cache
def _take(size: int, index_size: int) -> runtime.Kernel:
    b = LLVMBuilder()
    entries = b.slot(0, "i64", "entries")
    column, index, out = (
        _Vector(b, k, n, name) for k, n, name in ((1, size, "column"), (2, index_size, "index"), (3, size, "out"))
    )
    with b.for_(b.i64(0), entries, "p") as p:
        out.put(b, p, column.get(b, index.number(b, p)))
    return _compiled(b)


class _Part:
    """A part of the entries to be ordered: slots first, end, buckets, shift, mask, key, and a place for each bucket."""

    def __init__(self, b: Builder, key_size: int) -> None:
        names = ("first", "end", "buckets", "shift", "mask")
        self.first, self.end, self.buckets, self._shift, self._mask = (b.slot(k, "i64", n) for k, n in enumerate(names))
        self._key, self.places = _Vector(b, 5, key_size, "key"), _Vector(b, 6, 8, "places")

    def bucket(self, b: Builder, p: Val) -> Val:
        return b.named("bucket", b.and_(b.binary("lshr", self._key.number(b, p), self._shift), self._mask))


@functools.cache
def _counted(key_size: int) -> runtime.Kernel:
    """The entries of every bucket, of one part."""
    b = LLVMBuilder()
    part = _Part(b, key_size)
    clear(b, part.places.pointer, b.i64(0), part.buckets, 8)
    with b.for_(part.first, part.end, "p") as p:
        here = part.bucket(b, p)
        part.places.put(b, here, b.add(part.places.get(b, here), 1))
    return _compiled(b)


@functools.cache
def _summed() -> runtime.Kernel:
    """Numbers of entries become places, bucket by bucket, part by part; and where each bucket begins."""
    b = LLVMBuilder()
    parts, buckets = b.slot(0, "i64", "parts"), b.slot(1, "i64", "buckets")
    places, pos = _Vector(b, 2, 8, "places"), _Vector(b, 3, 8, "pos")
    total = b.var("total", b.i64(0))
    with b.for_(b.i64(0), buckets, "r") as r:
        pos.put(b, r, b.get(total))
        at = b.var("at", r)
        with b.for_(b.i64(0), parts, "part"):
            here, before = b.get(at), b.get(total)
            b.increment(total, places.get(b, here))
            places.put(b, here, before)
            b.increment(at, buckets)
    pos.put(b, buckets, b.get(total))
    return _compiled(b)


@functools.cache
def _moved(key_size: int, sizes: tuple[int, ...], ahead: bool) -> runtime.Kernel:
    """Entries to the places of their buckets, of one part."""
    b = LLVMBuilder()
    part = _Part(b, key_size)
    places, last = part.places, b.sub(part.end, 1)
    moves = [
        (_Vector(b, 7 + 2 * k, size, "source"), _Vector(b, 8 + 2 * k, size, "target")) for k, size in enumerate(sizes)
    ]
    with b.for_(part.first, part.end, "p") as p:
        if ahead:
            places.prefetch(b, part.bucket(b, b.min(b.add(p, LATER), last)))
            soon = b.named("soon", places.get(b, part.bucket(b, b.min(b.add(p, SOON), last))))
            for _, target in moves:
                target.prefetch(b, soon)
        here = part.bucket(b, p)
        to = b.named("to", places.get(b, here))
        for source, target in moves:
            target.put(b, to, source.get(b, p))
        places.put(b, here, b.add(to, 1))
    return _compiled(b)


@functools.cache
def _distinct(number_size: int, sizes: tuple[int, ...]) -> runtime.Kernel:
    b = LLVMBuilder()
    entries, number = b.slot(0, "i64", "entries"), _Vector(b, 1, number_size, "number")
    moves = [
        (_Vector(b, 2 + 2 * k, size, "source"), _Vector(b, 3 + 2 * k, size, "target")) for k, size in enumerate(sizes)
    ]
    place = b.var("place", b.i64(0))
    with b.if_(b.lt(b.i64(0), entries)):
        for source, target in moves:
            target.put(b, b.i64(0), source.get(b, b.i64(0)))
        number.put(b, b.i64(0), b.const(number.type, 0))
    with b.for_(b.i64(1), entries, "p") as p:
        fresh = b.const("i1", 0)
        values = [source.get(b, p) for source, _ in moves]
        for (source, _), value in zip(moves, values, strict=True):
            fresh = b.binary("or", fresh, b.ne(value, source.get(b, b.sub(p, 1))))
        b.increment(place, b.convert("zext", fresh, "i64"))
        here = b.get(place)
        for (_, target), value in zip(moves, values, strict=True):
            target.put(b, here, value)
        number.put(b, p, number.element(b, here))
    return _compiled(b)


@functools.cache
def _grid(size: int, number_size: int) -> runtime.Kernel:
    b = LLVMBuilder()
    count, extent = b.slot(0, "i64", "count"), b.slot(1, "i64", "extent")
    owners, numbers = _Vector(b, 2, size, "owners"), _Vector(b, 3, number_size, "numbers")
    with b.for_(b.i64(0), count, "r") as r:
        first = b.named("first", b.mul(r, extent))
        with b.for_(b.i64(0), extent, "c") as c:
            at = b.add(first, c)
            owners.put(b, at, owners.element(b, r))
            numbers.put(b, at, numbers.element(b, c))
    return _compiled(b)


@functools.cache
def _joined(block_size: int, place_size: int, size: int) -> runtime.Kernel:
    b = LLVMBuilder()
    entries, step = b.slot(0, "i64", "entries"), b.slot(1, "i64", "size")
    block, place, out = (
        _Vector(b, k, n, name) for k, n, name in ((2, block_size, "block"), (3, place_size, "place"), (4, size, "out"))
    )
    with b.for_(b.i64(0), entries, "p") as p:
        out.put(b, p, out.element(b, b.add(b.mul(block.number(b, p), step), place.number(b, p))))
    return _compiled(b)


@functools.cache
def _spread(size: int, position_size: int) -> runtime.Kernel:
    b = LLVMBuilder()
    entries = b.slot(0, "i64", "entries")
    vals, position, out = (
        _Vector(b, k, n, name) for k, n, name in ((1, size, "vals"), (2, position_size, "position"), (3, size, "out"))
    )
    with b.for_(b.i64(0), entries, "p") as p:
        out.put(b, position.number(b, p), vals.get(b, p))
    return _compiled(b)


use(CompiledPasses())
