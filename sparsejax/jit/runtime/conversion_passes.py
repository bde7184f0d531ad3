"""The passes of conversions as machine code: see `formats.passes`.

Their loops are in `conversion_loops`. Kernels depend on the widths of what they move alone, so that a handful serves all formats, and comes
from the object cache in every process but the first. Of many entries, each thread takes a part.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.formats.passes import MANY, Array, Passes, crd_dtype, use
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.cost.machine import FAR
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime import conversion_loops, result_memory, segment_loops, threads
from sparsejax.jit.runtime.conversion_loops import LANES, Vector

RECYCLED = 1 << 20
"""Bytes from which memory is taken from the arena."""
SPREAD, DIGIT = 4, 11
"""Extents up to SPREAD times the entries take one pass; others are split into digits of DIGIT bits, so that no cost depends on them."""
SHORT = 64
"""Entries of a segment up to which each is put in its place by moving others."""
_INT64 = np.dtype(np.int64)
_address = result_memory.address_of


class CompiledPasses(Passes):
    """The passes in machine code. What they return is read-only."""

    def owners(self, pos: Array) -> Array:
        parents, entries = len(pos) - 1, int(pos[-1])
        out = empty(entries + LANES, crd_dtype(parents))
        _run(_owners(out.itemsize), parents, pos, out)
        return out[:entries]

    def offsets(self, parent: Array, parents: int) -> Array:
        pos, entries, parent = empty(parents + 1, _INT64), len(parent), np.ascontiguousarray(parent)
        parts = threads.count() if entries >= FAR else 1
        ends = [entries * k // parts for k in range(parts + 1)]
        behind = entries, parents, _address(parent), _address(pos)
        _run_parts(
            _offsets(parent.itemsize, crowded(entries, parents)),
            [(*pair, *behind) for pair in itertools.pairwise(ends)],
        )
        return pos

    def take(self, column: Array, index: Array) -> Array:
        out = empty(len(index), column.dtype)
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
        made, number = [empty(entries, c.dtype) for c in columns], empty(entries, crd_dtype(entries))
        pairs = [a for pair in zip(columns, made, strict=True) for a in pair]
        _run(_distinct(number.itemsize, tuple(c.itemsize for c in columns)), entries, number, *pairs)
        left = int(number[-1]) + 1 if entries else 0
        return [c[:left].copy() if 2 * left < entries else c[:left] for c in made], number

    def grid(self, count: int, extent: int) -> tuple[Array, Array]:
        owners, numbers = empty(count * extent, crd_dtype(count)), empty(count * extent, crd_dtype(extent))
        _run(_grid(owners.itemsize, numbers.itemsize), count, extent, owners, numbers)
        return owners, numbers

    def joined(self, block: Array, place: Array, size: int, extent: int) -> Array:
        made = empty(len(block), crd_dtype(extent))
        block, place = np.ascontiguousarray(block), np.ascontiguousarray(place)
        _run(_joined(block.itemsize, place.itemsize, made.itemsize), len(block), size, block, place, made)
        return made

    def spread(self, vals: Array, position: Array, count: int, fill: Any) -> Array:
        cleared = count * vals.itemsize >= result_memory.SMALLEST and not any(np.asarray(fill, vals.dtype).tobytes())
        made = result_memory.full(count, vals.dtype, 0)[0] if cleared else np.full(count, fill, vals.dtype)
        vals, position = np.ascontiguousarray(vals), np.ascontiguousarray(position)
        _run(_spread(vals.itemsize, position.itemsize), len(vals), vals, position, made)
        return made

    # ---------------------------------------------------------------------------------------------------- segments

    def picked(self, pos: Array, index: Array) -> tuple[Array, Array]:
        index = np.ascontiguousarray(index, _INT64)
        start, made = empty(len(index), _INT64), empty(len(index) + 1, _INT64)
        _lengths(_picked, (), made, _shares(0, len(index), len(index)), pos, index, start)
        return start, made

    def copied(self, start: Array, pos: Array, columns: Sequence[Array]) -> list[Array]:
        entries = int(pos[-1])
        moved, pairs, sizes = _targets(columns, entries)
        behind = _address(start), _address(pos), *pairs
        _run_parts(_copied(sizes, entries >= FAR), [(*pair, *behind) for pair in _rows(pos)])
        return moved

    def within(
        self, pos: Array, crd: Array, chosen: range, columns: Sequence[Array]
    ) -> tuple[Array, Array, list[Array]]:
        made, parts = empty(len(pos), _INT64), _rows(pos)
        crd, steps, bounds = (
            np.ascontiguousarray(crd),
            chosen.step > 1,
            (chosen.start, len(chosen) * chosen.step, chosen.step),
        )
        _lengths(_counted_within, (crd.itemsize, steps), made, parts, pos, crd, *bounds)
        source = _address(crd)
        found = int(made[-1])
        out = empty(found, crd_dtype(len(chosen)))
        moved, pairs, sizes = _targets(columns, found)
        rows = [
            (int(pos[first]), int(made[first]), int(made[end]), *bounds, source, _address(out), *pairs)
            for first, end in parts
        ]
        _run_parts(_compacted(crd.itemsize, out.itemsize, sizes, steps), rows)
        return made, out, moved

    def named(
        self, pos: Array, crd: Array, places: tuple[Array, Array], columns: Sequence[Array]
    ) -> tuple[Array, Array, list[Array]] | None:
        ends, order = (np.ascontiguousarray(a) for a in places)
        crd, made, parts = np.ascontiguousarray(crd), empty(len(pos), _INT64), _rows(pos)
        if _lengths(_counted_named, (crd.itemsize,), made, parts, pos, crd, ends) > SHORT:
            return None
        found = int(made[-1])
        out = empty(found, crd_dtype(len(order)))
        moved, pairs, sizes = _targets(columns, found)
        behind = *(_address(a) for a in (pos, made, crd, ends, order, out)), *pairs
        _run_parts(_named(crd.itemsize, order.itemsize, out.itemsize, sizes), [(*pair, *behind) for pair in parts])
        return made, out, moved

    def located(self, pos: Array, crd: Array, parent: Array, wanted: Array) -> Array:
        out = empty(len(wanted), _INT64)
        crd, parent, wanted = (np.ascontiguousarray(a) for a in (crd, parent, wanted))
        behind = [_address(a) for a in (pos, crd, parent, wanted, out)]
        kernel = _located(crd.itemsize, parent.itemsize, wanted.itemsize)
        _run_parts(kernel, [(*pair, *behind) for pair in _shares(0, len(wanted), len(wanted))])
        return out


def _shares(first: int, end: int, entries: int) -> list[tuple[int, int]]:
    """The numbers from `first` to `end` in parts, one for every thread where there are many entries."""
    parts = threads.count() if entries >= FAR else 1
    return list(itertools.pairwise(first + (end - first) * k // parts for k in range(parts + 1)))


def _rows(pos: Array) -> list[tuple[int, int]]:
    """Segments in parts of about as many entries each."""
    first, end = int(pos[0]), int(pos[-1])
    parts = threads.count() if end - first >= FAR else 1
    if parts == 1:
        return [(0, len(pos) - 1)]
    inner = np.searchsorted(pos, [first + (end - first) * k // parts for k in range(1, parts)]).tolist()
    return list(itertools.pairwise([0, *inner, len(pos) - 1]))


def _targets(columns: Sequence[Array], count: int) -> tuple[list[Array], list[int], tuple[int, ...]]:
    """Columns for so many entries, the addresses of sources and targets in turns, and the sizes of elements."""
    sources = [np.ascontiguousarray(column) for column in columns]
    moved = [empty(count, column.dtype) for column in sources]
    pairs = [_address(a) for pair in zip(sources, moved, strict=True) for a in pair]
    return moved, pairs, tuple(column.itemsize for column in sources)


def _lengths(
    kernel: Any, sizes: tuple[Any, ...], made: Array, parts: Sequence[tuple[int, int]], *slots: int | Array
) -> int:
    """`made` becomes the `pos` of segments whose lengths a pass finds, from these slots; the longest of them."""
    longest, numbers = np.zeros(1, np.int64), [s if isinstance(s, int) else _address(s) for s in slots]
    behind = _address(made), _address(longest), *numbers
    alone = len(parts) == 1
    _run_parts(kernel(*sizes, alone), [(*pair, *behind) for pair in parts])
    if not alone:
        _run(_summed_lengths(), len(made) - 1, made, longest)
    return int(longest[0])


def crowded(entries: int, parents: int) -> bool:
    """Whether few rows are expected to be empty."""
    return entries >= 2 * parents


def _scattered(key: Array, columns: Sequence[Array], buckets: int, shift: int = 0) -> tuple[Array, list[Array]]:
    """(pos, columns): entries ordered by the bucket `(key >> shift) % buckets`, and where each bucket begins; `buckets` is a
    power of two, or more than any key."""
    key, columns = np.ascontiguousarray(key), [np.ascontiguousarray(column) for column in columns]
    entries, parts = len(key), threads.count() if len(key) >= FAR else 1
    if parts * buckets > SPREAD * entries:
        parts = 1
    pos, moved = empty(buckets + 1, _INT64), [empty(len(c), c.dtype) for c in columns]
    mask = -1 if buckets & (buckets - 1) else buckets - 1
    pairs = [_address(a) for pair in zip(columns, moved, strict=True) for a in pair]
    places, sizes = empty(parts * buckets, _INT64), tuple(c.itemsize for c in columns)
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


def empty(count: int, dtype: np.dtype[Any]) -> Array:
    """A vector to be written by a kernel."""
    return result_memory.empty(count, dtype, RECYCLED)


def _run(kernel: compiler.Kernel, *slots: int | Array) -> None:
    """Run a pass; arrays are passed by their addresses."""
    numbers = [s if isinstance(s, int) else _address(s) for s in slots]
    compiler.check(kernel.run_packed(struct.pack(f"{len(numbers)}q", *numbers)))


def _run_parts(kernel: compiler.Kernel, rows: Sequence[tuple[int, ...]]) -> None:
    """Run a pass once for every row of slots, by threads."""
    if len(rows) == 1:
        _run(kernel, *rows[0])
    else:
        compiler.check(threads.run(kernel.address, np.array(rows, np.int64)))


def _compiled(b: LLVMBuilder) -> compiler.Kernel:
    return compiler.compile_text(b.finish(lambda: None))


def _vectors(b: Builder, first: int, sizes: Sequence[int], names: Sequence[str]) -> list[Vector]:
    """Vectors in slots that follow each other."""
    return [Vector.in_slot(b, first + k, size, name) for k, (size, name) in enumerate(zip(sizes, names, strict=True))]


def _pairs(b: Builder, first: int, sizes: Sequence[int]) -> list[tuple[Vector, Vector]]:
    """Columns and where their entries go."""
    return [
        (Vector.in_slot(b, first + 2 * k, size, "source"), Vector.in_slot(b, first + 1 + 2 * k, size, "target"))
        for k, size in enumerate(sizes)
    ]


@functools.cache
def _owners(size: int) -> compiler.Kernel:
    b = LLVMBuilder()
    pos, out = _vectors(b, 1, (8, size), ("pos", "out"))
    conversion_loops.owners(b, b.slot(0, "i64", "parents"), pos, out)
    return _compiled(b)


@functools.cache
def _offsets(size: int, full: bool) -> compiler.Kernel:
    b = LLVMBuilder()
    first, end, entries, parents = (
        b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "entries", "parents"))
    )
    parent, pos = _vectors(b, 4, (size, 8), ("parent", "pos"))
    conversion_loops.offsets(b, first, end, entries, parents, parent, pos, full)
    return _compiled(b)


@functools.cache
def _take(size: int, index_size: int) -> compiler.Kernel:
    b = LLVMBuilder()
    conversion_loops.take(
        b, b.slot(0, "i64", "entries"), *_vectors(b, 1, (size, index_size, size), ("column", "index", "out"))
    )
    return _compiled(b)


def _part(b: Builder, key_size: int) -> conversion_loops.Part:
    """A part of the entries to be ordered: slots first, end, buckets, shift, mask, key, and a place for each bucket."""
    first, end, buckets, shift, mask = (
        b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "buckets", "shift", "mask"))
    )
    return conversion_loops.Part(first, end, buckets, shift, mask, *_vectors(b, 5, (key_size, 8), ("key", "places")))


@functools.cache
def _counted(key_size: int) -> compiler.Kernel:
    """The entries of every bucket, of one part."""
    b = LLVMBuilder()
    conversion_loops.counted(b, _part(b, key_size))
    return _compiled(b)


@functools.cache
def _summed() -> compiler.Kernel:
    """Numbers of entries become places, bucket by bucket, part by part; and where each bucket begins."""
    b = LLVMBuilder()
    parts, buckets = b.slot(0, "i64", "parts"), b.slot(1, "i64", "buckets")
    conversion_loops.summed(b, parts, buckets, *_vectors(b, 2, (8, 8), ("places", "pos")))
    return _compiled(b)


@functools.cache
def _moved(key_size: int, sizes: tuple[int, ...], ahead: bool) -> compiler.Kernel:
    """Entries to the places of their buckets, of one part."""
    b = LLVMBuilder()
    conversion_loops.moved(b, _part(b, key_size), _pairs(b, 7, sizes), ahead)
    return _compiled(b)


@functools.cache
def _distinct(number_size: int, sizes: tuple[int, ...]) -> compiler.Kernel:
    b = LLVMBuilder()
    entries, number = b.slot(0, "i64", "entries"), Vector.in_slot(b, 1, number_size, "number")
    conversion_loops.distinct(b, entries, number, _pairs(b, 2, sizes))
    return _compiled(b)


@functools.cache
def _grid(size: int, number_size: int) -> compiler.Kernel:
    b = LLVMBuilder()
    count, extent = b.slot(0, "i64", "count"), b.slot(1, "i64", "extent")
    conversion_loops.grid(b, count, extent, *_vectors(b, 2, (size, number_size), ("owners", "numbers")))
    return _compiled(b)


@functools.cache
def _joined(block_size: int, place_size: int, size: int) -> compiler.Kernel:
    b = LLVMBuilder()
    entries, step = b.slot(0, "i64", "entries"), b.slot(1, "i64", "size")
    conversion_loops.joined(
        b, entries, step, *_vectors(b, 2, (block_size, place_size, size), ("block", "place", "out"))
    )
    return _compiled(b)


@functools.cache
def _spread(size: int, position_size: int) -> compiler.Kernel:
    b = LLVMBuilder()
    entries = b.slot(0, "i64", "entries")
    conversion_loops.spread(b, entries, *_vectors(b, 1, (size, position_size, size), ("vals", "position", "out")))
    return _compiled(b)


@functools.cache
def _summed_lengths() -> compiler.Kernel:
    b = LLVMBuilder()
    segment_loops.summed(b, b.slot(0, "i64", "rows"), *_vectors(b, 1, (8, 8), ("made", "longest")))
    return _compiled(b)


def _share(b: Builder) -> tuple[Val, Val]:
    """The first two slots of a pass over a part."""
    return b.slot(0, "i64", "first"), b.slot(1, "i64", "end")


def _counting(b: Builder, alone: bool) -> segment_loops.Lengths:
    """The first four slots of a pass that finds lengths: of all segments, or of a part."""
    (first, end), (made, longest) = _share(b), _vectors(b, 2, (8, 8), ("made", "longest"))
    return segment_loops.Lengths(first, end, made, longest, alone)


@functools.cache
def _picked(alone: bool) -> compiler.Kernel:
    b = LLVMBuilder()
    segment_loops.picked(b, _counting(b, alone), *_vectors(b, 4, (8, 8, 8), ("pos", "index", "start")))
    return _compiled(b)


@functools.cache
def _copied(sizes: tuple[int, ...], ahead: bool) -> compiler.Kernel:
    b = LLVMBuilder()
    (first, end), (start, pos) = _share(b), _vectors(b, 2, (8, 8), ("start", "pos"))
    segment_loops.copied(b, first, end, start, pos, _pairs(b, 4, sizes), ahead)
    return _compiled(b)


def _bounds(b: Builder, first: int, steps: bool) -> tuple[Val, Val, Val | None]:
    """Where a range begins, how far it reaches, and its step if it has one."""
    step = b.slot(first + 2, "i64", "step") if steps else None
    return b.slot(first, "i64", "start"), b.slot(first + 1, "i64", "span"), step


@functools.cache
def _counted_within(size: int, steps: bool, alone: bool) -> compiler.Kernel:
    b = LLVMBuilder()
    counting, (pos, crd) = _counting(b, alone), _vectors(b, 4, (8, size), ("pos", "crd"))
    bounds = _bounds(b, 6, steps)
    segment_loops.counted(b, counting, pos, lambda p: segment_loops.inside(b, crd.number(b, p), *bounds))
    return _compiled(b)


@functools.cache
def _compacted(size: int, out_size: int, sizes: tuple[int, ...], steps: bool) -> compiler.Kernel:
    b = LLVMBuilder()
    begin, place, stop = (b.slot(k, "i64", name) for k, name in enumerate(("begin", "place", "stop")))
    crd, out = _vectors(b, 6, (size, out_size), ("crd", "out"))
    segment_loops.compacted(b, begin, place, stop, *_bounds(b, 3, steps), crd, out, _pairs(b, 8, sizes))
    return _compiled(b)


@functools.cache
def _counted_named(size: int, alone: bool) -> compiler.Kernel:
    b = LLVMBuilder()
    counting, (pos, crd, ends) = _counting(b, alone), _vectors(b, 4, (8, size, 8), ("pos", "crd", "ends"))

    def times(p: Val) -> Val:
        c = b.named("c", crd.number(b, p))
        return b.sub(ends.get(b, b.add(c, 1)), ends.get(b, c))

    segment_loops.counted(b, counting, pos, times)
    return _compiled(b)


@functools.cache
def _named(size: int, order_size: int, out_size: int, sizes: tuple[int, ...]) -> compiler.Kernel:
    b = LLVMBuilder()
    names = "pos", "made", "crd", "ends", "order", "out"
    (first, end), vectors = _share(b), _vectors(b, 2, (8, 8, size, 8, order_size, out_size), names)
    segment_loops.named(b, first, end, segment_loops.Named(*vectors), _pairs(b, 8, sizes))
    return _compiled(b)


@functools.cache
def _located(size: int, parent_size: int, wanted_size: int) -> compiler.Kernel:
    b = LLVMBuilder()
    names = "pos", "crd", "parent", "wanted", "out"
    segment_loops.located(b, *_share(b), *_vectors(b, 2, (8, size, parent_size, wanted_size, 8), names))
    return _compiled(b)


def _compiled_pays(entries: int) -> bool:
    """Whether passes over so many entries are machine code."""
    cheapest = "numpy" if entries < MANY else "compiled"
    with choices.drawing("passes", entries):
        return choices.pick("passes", ("numpy", "compiled"), cheapest) == "compiled"


use(CompiledPasses(), _compiled_pays)
