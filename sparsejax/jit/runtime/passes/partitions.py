"""Many entries in no order are put into buckets in two steps: into parts of neighbouring buckets first, then inside of each part, which a near cache holds.

    key 5 0 7 2 1 5    parts of 4 buckets: 0 2 1 | 5 7 5    inside: 0 1 2 | 5 5 7

An entry that goes to a bucket of its own touches lines and pages that were not touched for long. There are few parts: the entries of each wait in
whole lines, `TOGETHER` at a time, and lines go to memory past the caches. Both steps are stable.

Source: Polychroniou and Ross, "A Comprehensive Study of Main-Memory Partitioning and its Application to Large-Scale Comparison- and Radix-Sort" (2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen import kernel_memory
from sparsejax.jit.runtime.passes import conversion_loops
from sparsejax.jit.runtime.passes.conversion_loops import Pairs, Part, Vector
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

TOGETHER, LINE = 16, 64
"""Entries of a part that go to memory at once; bytes of a line of the cache."""
INSIDE, LEAST, MOST = 1 << 20, 1 << 5, 1 << 11
"""Bytes of the entries of a part, twice; parts at least, and at most."""
SCATTERED, SAMPLE, UNEVEN = 0.25, 32, 8
"""Share of the entries that lie in another part than the one before, from which parts pay; runs of entries that are looked at, and entries of each;
share of the entries that the largest part may have: one in so many."""
PAYS = 1 << 38
"""Buckets times entries from which parts pay (300,000 entries to 1,000,000 buckets 0.81 of the time, 4,000,000 to 100,000 0.68, to 4,000,000 0.29, but
1,000,000 to 20,000 1.11; Granite Rapids, one thread)."""
Ranges = Sequence[tuple[int, int]]


def width_of(key: Array, columns: Sequence[Array], buckets: int) -> int | None:
    """How many bits the numbers of buckets have that share a part; None where parts do not pay."""
    if buckets * len(key) < PAYS or key.itemsize < 4:
        return None
    width = _width(key, columns, buckets)
    return width if _jumps(key, width) else None


def in_order(key: Array, columns: Sequence[Array], buckets: int) -> bool:
    """Whether most of many entries lie in the same part as the one before: what goes to its bucket at once stays in the near caches."""
    return not _jumps(key, _width(key, columns, buckets))


def _width(key: Array, columns: Sequence[Array], buckets: int) -> int:
    entry = 4 + 2 * sum([column.itemsize for column in columns])
    parts = min(MOST, max(LEAST, len(key) * entry // INSIDE))
    return max(1, (buckets - 1).bit_length() - (parts - 1).bit_length())


def _jumps(key: Array, width: int) -> bool:
    at = np.linspace(0, len(key) - SAMPLE - 1, SAMPLE).astype(np.int64)[:, None] + np.arange(SAMPLE + 1)
    sample = key[at] >> width
    return bool(np.count_nonzero(sample[:, 1:] != sample[:, :-1]) > SCATTERED * SAMPLE**2)


def scattered(
    key: Array, columns: Sequence[Array], kinds: Sequence[np.dtype[Any]], buckets: int, shift: int, ranges: Ranges
) -> tuple[Array, list[Array]] | None:
    """(pos, columns): entries ordered by their keys, and where each begins, in columns of these dtypes; each range of entries by a thread. None where some
    part is too large."""
    entries, parts = len(key), (buckets - 1 >> shift) + 1
    begins, places = np.empty(parts + 1, INT64), np.empty(len(ranges) * parts, INT64)
    shared = [(*pair, parts, shift, -1, address(key), address(places) + 8 * k * parts) for k, pair in enumerate(ranges)]
    run_parts(counted(key.itemsize), shared)
    run(summed(), len(ranges), parts, places, begins)
    largest = int((begins[1:] - begins[:-1]).max())
    if UNEVEN * largest > entries:
        return None
    pos, moved = empty(buckets + 1, INT64), [empty(entries, kind) for kind in kinds]
    low = empty(entries, _NARROW if shift <= 16 else _LOW)
    given, sizes = tuple([c.itemsize for c in columns]), tuple([kind.itemsize for kind in kinds])
    past = all(address(c) % LINE == 0 for c in (low, *moved))
    waiting = np.empty(len(ranges) * parts * (8 + TOGETHER * (low.itemsize + sum(sizes))), np.uint8)
    step, first = waiting.nbytes // len(ranges), address(waiting)
    pairs = [address(c) for c in (low, *(c for pair in zip(columns, moved, strict=True) for c in pair))]
    kernel = _parted(key.itemsize, low.itemsize, given, sizes, past)
    run_parts(kernel, [(*row, first + k * step, *pairs) for k, row in enumerate(shared)])
    del waiting
    ends = [int(begins.searchsorted(entries * k // len(ranges))) for k in range(len(ranges))] + [parts]
    step = (8 << shift) + largest * sum(sizes) + LINE & -LINE
    room = np.empty(len(ranges) * step, np.uint8)
    behind = parts, buckets, shift, largest, *map(address, (begins, low, pos))
    rows = [(ends[k], ends[k + 1], *behind, address(room) + k * step, *map(address, moved)) for k in range(len(ranges))]
    run_parts(_inside(low.itemsize, sizes), rows)
    del room  # until here, threads write to it
    return pos, moved


_LOW, _NARROW = np.dtype(np.uint32), np.dtype(np.uint16)
"""Of the bits of keys that are left in a part."""


def part_in_slots(b: Builder, key_size: int) -> Part:
    """A part of the entries to be ordered: slots first, end, buckets, shift, mask, key, and a place for each bucket."""
    first, end, buckets, shift, mask = (
        b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "buckets", "shift", "mask"))
    )
    return Part(first, end, buckets, shift, mask, *vectors(b, 5, (key_size, 8), ("key", "places")))


@as_kernel
def counted(b: Builder, key_size: int) -> None:
    """The entries of every bucket, of one part."""
    conversion_loops.counted(b, part_in_slots(b, key_size))


@as_kernel
def summed(b: Builder) -> None:
    """Numbers of entries become places, bucket by bucket, part by part; and where each bucket begins."""
    parts, buckets = b.slot(0, "i64", "parts"), b.slot(1, "i64", "buckets")
    conversion_loops.summed(b, parts, buckets, *vectors(b, 2, (8, 8), ("places", "pos")))


@as_kernel
def _parted(
    b: Builder, key_size: int, low_size: int, given: tuple[int, ...], sizes: tuple[int, ...], past: bool
) -> None:
    """The entries of a range to their parts, with the low bits of their keys."""
    part, waiting = part_in_slots(b, key_size), b.slot(7, "ptr", "waiting")
    low, pairs = Vector.in_slot(b, 8, low_size, "low"), pairs_of(b, 9, given, sizes)
    begins = Vector(waiting, 8)
    with b.for_(b.i64(0), part.buckets, "g") as g:
        begins.put(b, g, part.places.get(b, g))
    held: list[tuple[Vector, Vector]] = []  # what waits, and where it goes
    place = b.mul(part.buckets, 8)
    for target in (low, *(target for _, target in pairs)):
        held.append((Vector(kernel_memory.moved(b, waiting, place), target.size), target))
        place = b.add(place, b.mul(part.buckets, TOGETHER * target.size))
    with b.for_(part.first, part.end, "p") as p:
        here = part.bucket(b, p)
        to = b.named("to", part.places.get(b, here))
        lane = b.named("lane", b.and_(to, b.i64(TOGETHER - 1)))
        at = b.named("at", b.add(b.mul(here, TOGETHER), lane))
        keys, *others = held
        keys[0].put(b, at, keys[0].of(b, part.key, p))
        for (source, _), (kept, _) in zip(pairs, others, strict=True):
            kept.put(b, at, kept.of(b, source, p))
        behind = b.named("behind", b.add(to, 1))
        part.places.put(b, here, behind)
        with b.if_(b.eq(lane, TOGETHER - 1)):
            start, begin = b.named("start", b.sub(behind, TOGETHER)), b.named("begin", begins.get(b, here))
            b.if_else(
                b.lt(start, begin),
                lambda: _some(b, held, here, begin, behind),
                lambda: _all(b, held, here, start, past),
            )
    with b.for_(b.i64(0), part.buckets, "g") as g:
        end = b.named("end", part.places.get(b, g))
        start = b.named("start", b.max(begins.get(b, g), b.and_(end, b.i64(-TOGETHER))))
        _some(b, held, g, start, end)
    if past:
        b.fence()


def _some(b: Builder, held: Pairs, here: Val, start: Val, end: Val) -> None:
    """What waits for the places from `start` to `end`."""
    with b.for_(start, end, "q") as q:
        at = b.add(b.mul(here, TOGETHER), b.and_(q, b.i64(TOGETHER - 1)))
        for kept, target in held:
            target.put(b, q, kept.get(b, at))


def _all(b: Builder, held: Pairs, here: Val, start: Val, past: bool) -> None:
    """Everything that waits for a part, line by line."""
    for kept, target in held:
        width, words = min(target.size, 8), max(1, target.size // 8)
        lanes = min(TOGETHER * words, LINE // width)
        for k in range(0, TOGETHER * words, lanes):
            at = b.add(b.mul(here, TOGETHER * words), k)
            line = b.load(kept.pointer, at, f"<{lanes} x i{8 * width}>")
            (b.store_past if past and lanes * width == LINE else b.store)(
                target.pointer, b.add(b.mul(start, words), k), line
            )


@as_kernel
def _inside(b: Builder, low_size: int, sizes: tuple[int, ...]) -> None:
    """The entries of some parts to their buckets, and where these begin."""
    first, end, parts, buckets, shift, largest = (
        b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "parts", "buckets", "shift", "largest"))
    )
    begins, low, pos = vectors(b, 6, (8, low_size, 8), ("begins", "low", "pos"))
    room, targets = b.slot(9, "ptr", "room"), vectors(b, 10, sizes, ["target"] * len(sizes))
    places, width = Vector(room, 8), b.named("width", b.binary("shl", b.i64(1), shift))
    place = b.mul(width, 8)
    moves: list[tuple[Vector, Vector]] = []
    for target in sorted(targets, key=lambda t: -t.size):  # so that each begins at a multiple of its size
        moves.append((Vector(kernel_memory.moved(b, room, place), target.size), target))
        place = b.add(place, b.mul(largest, target.size))
    with b.for_(first, end, "g") as g:
        start, stop = b.named("start", begins.get(b, g)), b.named("stop", begins.get(b, b.add(g, 1)))
        row = b.named("row", b.mul(g, width))
        count = b.named("count", b.min(width, b.sub(buckets, row)))

        def own(q: Val) -> Val:
            return b.named("own", b.and_(low.number(b, q), b.sub(width, 1)))

        kernel_memory.clear(b, places.pointer, b.i64(0), count, 8)
        with b.for_(start, stop, "q") as q:
            here = own(q)
            places.put(b, here, b.add(places.get(b, here), 1))
        total = b.var("total", start)
        b.set(total, start)
        with b.for_(b.i64(0), count, "r") as r:
            before = b.named("before", b.get(total))
            pos.put(b, b.add(row, r), before)
            b.set(total, b.add(before, places.get(b, r)))
            places.put(b, r, before)
        for kept, target in moves:
            words, kind = (2, "i64") if target.size == 16 else (1, target.type)
            lanes = LINE // min(8, target.size)
            whole = b.named("whole", b.and_(b.mul(b.sub(stop, start), words), b.i64(-lanes)))
            origin = b.named("origin", b.mul(start, words))
            with b.for_(b.i64(0), whole, "q", lanes) as q:
                b.store(kept.pointer, q, b.load(target.pointer, b.add(origin, q), f"<{lanes} x {kind}>"))
            with b.for_(whole, b.mul(b.sub(stop, start), words), "q") as q:
                b.store(kept.pointer, q, b.load(target.pointer, b.add(origin, q), kind))
        with b.for_(start, stop, "q") as q:
            here = own(q)
            to = b.named("to", places.get(b, here))
            places.put(b, here, b.add(to, 1))
            for kept, target in moves:
                target.put(b, to, kept.get(b, b.sub(q, start)))
    with b.if_(b.eq(end, parts)):
        pos.put(b, buckets, begins.get(b, parts))
