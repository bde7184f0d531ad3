"""Kernels that run in chunks: a table with one row of slots per chunk, run by threads; what chunks appended is placed together.

    dense output      every chunk writes its own part
    partial result    every chunk computes its own, but for the first one, which starts in the output; more rows of the same kernel combine them,
                      in the order of chunks, whatever the number of threads
    growing output    every chunk fills segments of its own, counted from zero, and its part of the outermost `pos`:

    chunk 0   n = 3   crd 4 7 9   vals a b c        crd   4 7 9 1 2
    chunk 1   n = 2   crd 1 2     vals d e          vals  a b c d e        `pos` of chunk 1 grows by 3

The pieces are placed by threads too: first touches of fresh memory cost more than the copy. With one thread, a kernel runs as one
chunk, straight into its output, unless it takes long: between two chunks it can be interrupted.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.cached import copied
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen import abi, kernel_memory
from sparsejax.jit.ir import choices, cin, operators
from sparsejax.jit.ir.program import Program, heads
from sparsejax.jit.rewrite.parallelize import SCALARS, SMALL
from sparsejax.jit.runtime.system import allocator, result_memory, threads

LONG = 1 << 28
"""Iterations, a quarter of a second to three (insertions take longest), from which on a kernel runs in chunks also with one thread, so that it
can be interrupted: what chunks append is moved once more."""
_pack_chunk, _pack_turn = struct.Struct("3q").pack, struct.Struct("4q").pack
_unpack = struct.Struct("q").unpack_from
_ALONE = struct.pack("2q", 0, 1)
_COPY, _SHIFT = 0, 1
_SCALAR = 4
"""Doubles that a partial scalar takes at most: a complex sum with what rounding loses."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """How a marked kernel is called: the slots that it takes besides those of chunks, how many chunks there are, whether one thread runs
    them one by one too, so that it can be interrupted, what each computes apart ("", "scalar" or "output"), and by which operator partial outputs are combined.
    Of a plan for many shapes, `along` is the slot of the extent that is cut (else -1), `each` the nanoseconds of one coordinate, `least` those from which
    on there is more than one chunk.
    """

    slots: int
    chunks: int
    long: bool
    partial: str
    op: str
    along: int = -1
    each: float = 0.0
    least: float = 0.0

    def rows(self, slots: bytes) -> int:
        """How many chunks a call has with these slots: by its extents, never by the number of threads."""
        if self.along < 0:
            return self.chunks
        work = self.each * int(_unpack(slots, 8 * self.along)[0])
        small = SMALL * (SCALARS if self.partial == "scalar" else 1)
        return 1 if work < self.least else max(2, min(self.chunks, int(work / small)))

    @staticmethod
    def of(program: Program, constants: bool = False) -> Cut:
        """The cut of a marked program."""
        chunking = program.chunking
        assert program.stmt is not None
        op = next((w.op or "" for w in cin.writes(program.stmt) if w.lhs.tensor.name == program.output.name), "")
        layout = abi.layout(program.inputs, program.output)
        slots = len(layout) + constants
        along = -1
        if chunking.along is not None:
            name, dimension = chunking.along
            given = next(t for t in (*program.inputs, program.output) if t.name == name)
            within = given.format.blocked or given.paired
            along = -1 if within else layout.index(abi.extent(given, dimension)) + constants
        alone = choices.pick("alone", ("straight", "chunked"), "chunked" if chunking.work >= LONG else "straight")
        sized = along, chunking.each, chunking.least
        return Cut(slots, chunking.count, alone == "chunked", chunking.partial, op, *sized)


class Chunked:
    """A marked kernel, called like one that is not: `compiler.Kernel`."""

    def __init__(self, kernel: compiler.Kernel, output: cin.Tensor, cut: Cut) -> None:
        self._kernel = kernel
        self._slots = cut.slots
        self._cut = cut
        self._long = cut.long
        self._partial = cut.partial
        self._small = cut.along >= 0 and not cut.long and cut.partial != "output"
        """Whether a call may come to one chunk, which takes no table."""
        if cut.partial == "output":
            self._dtype, self._size = output.dtype, math.prod(output.format.level_extents(output.shape))
            self._start = operators.get(cut.op).identity(output.dtype)
        self._made: Ints | None = None
        """How many coordinates to make room for, by chunk and level that starts a segment, as earlier calls made them."""
        form = output.format
        if not form.full:
            self._layout = _Layout(output)

    @property
    def kernel(self) -> compiler.Kernel:
        """What runs a chunk."""
        return self._kernel

    @property
    def alone(self) -> bool:
        """Whether one chunk is all."""
        return not self._long and not self._partial and threads.count() == 1

    def _table(self, slots: bytes) -> Ints:
        """One row per chunk: the slots, the chunk's number, how many there are."""
        rows = 1 if self.alone else self._cut.rows(slots)
        table = np.empty((rows, len(slots) // 8 + 2), np.int64)
        table[:, :-2] = np.frombuffer(slots, np.int64)
        table[:, -2] = _numbers(rows)
        table[:, -1] = rows
        return table

    def run_packed(self, *given: bytes) -> int:
        """As `compiler.Kernel.run_packed`: all chunks of a dense output."""
        if self.alone:
            return self._kernel.run_packed(*given, _ALONE)
        slots = b"".join(given)
        if self._partial == "scalar" and threads.count() == 1:
            return self._run_in_turn(slots)
        if self._small and self._cut.rows(slots) == 1:
            return self._run_in_turn(slots) if self._partial else self._kernel.run_packed(slots, _ALONE)
        table = self._table(slots)
        if not self._partial:
            return threads.run(self._kernel.address, table)
        if self._partial == "output":
            return self._run_apart(table)
        chunks = len(table)
        parts = np.empty(_SCALAR * chunks)
        table = np.column_stack([table, np.full(chunks, result_memory.address_of(parts))])
        status = threads.run(self._kernel.address, table)
        if status == 0:
            table[:, -3] += chunks
            status = threads.run(self._kernel.address, table[:1])
        return status

    def _run_in_turn(self, slots: bytes) -> int:
        """All chunks of a reduction into a scalar on one thread, without a table: machine code calls them where nobody waits to interrupt. Between two
        chunks, which leave nothing else in the caches, what Python does takes several times as long as elsewhere."""
        chunks, run = self._cut.rows(slots), self._kernel.run_packed
        words = len(slots) // 8
        parts = np.empty(_SCALAR * chunks + words + 3)
        address = result_memory.address_of(parts)
        if not self._long:
            return _in_turn().run_packed(_pack_turn(self._kernel.address, address, chunks, words), slots)
        for chunk in range(chunks + 1):
            status = run(slots, _pack_chunk(chunk, chunks, address))
            if status:
                return status
        return 0

    def _run_apart(self, table: Ints) -> int:
        """All chunks of a reduction into a dense output, which holds what it starts from: the first chunk adds to it, and what the others make is
        added behind, in order. On one thread they take turns in the memory of one part, which stays in the caches.
        """
        size, others = self._size * self._dtype.itemsize, len(table) - 1
        if not others:
            table = np.column_stack([table, table[:, -3]])
            return threads.run(self._kernel.address, table)
        together = min(threads.count(), len(table)) > 1
        parts, first = result_memory.fresh((others if together else 1) * self._size, self._dtype, self._start)
        # where parts begin, as a chunk sees it: chunk k has part k, the second chunk the first one here, and the first chunk the output
        starts = first - size * (np.ones(len(table), np.int64) if together else _numbers(len(table)))
        table = np.column_stack([table, starts])
        table[0, -1] = table[0, -4]
        if together:
            status = threads.run(self._kernel.address, table)
            added = table[1:].copy()
            added[:, -3], added[:, -2], added[:, -1] = _numbers(others) + others, others, first
            return status or threads.run(self._kernel.address, added)
        status = threads.run(self._kernel.address, table[:1])
        for row in range(1, len(table)):
            if status:
                break
            if row > 1:
                result_memory.fill(parts, first, self._start)
            added = table[row : row + 1].copy()
            added[:, -3:] = 1, 1, first
            status = threads.run(self._kernel.address, table[row : row + 1]) or threads.run(self._kernel.address, added)
        return status

    def run_at(self, slots: int) -> int:
        """As `compiler.Kernel.run_at`."""
        return self.run_packed(ctypes.string_at(slots, 8 * self._slots))

    def __call__(self, *parts: bytes, shape: tuple[int, ...] | None = None) -> tuple[int, tuple[int, ...]]:
        """As `compiler.Kernel.__call__`: all chunks of a growing output, placed together. It has another `shape` where one is given."""
        table = self._table(b"".join(parts))
        layout, rows = self._layout if shape is None else self._layout.at(shape), len(table)
        own = table[:, -2 - layout.size : -2]  # the slots of the output
        if rows > 1:
            own[:, layout.counts] = self._rooms(own[:, layout.counts])
        for column, address in layout.edges().items():
            own[:, column] = address
        try:
            status = threads.run(self._kernel.address, table)
            if status == 0:
                if rows == 1:
                    return 0, tuple(own[0].tolist())
                self._learn(own[:, layout.counts])  # a copy, as all that is taken by numbers
                return 0, tuple(_place(layout, own, table[:, -2:]))
        except BaseException:
            layout.release(own)
            raise
        layout.release(own)
        return status, (0,) * layout.size

    def _rooms(self, expected: Ints) -> Ints:
        """How many coordinates each chunk makes room for: half more than a share of what is expected of all, or what it made before, and an eighth
        more. Pages that a chunk does not touch cost nothing.
        """
        share, made = -(-expected * 3 // (2 * len(expected))), self._made
        return share if made is None or made.shape != share.shape else np.maximum(share, made + (made >> 3))

    def _learn(self, counts: Ints) -> None:
        """Chunks are as unlike in the next call: one that outgrows its room touches fresh pages, in every call again. What operands of other
        structures made is forgotten by an eighth a call.
        """
        before = self._made
        if before is not None and before.shape == counts.shape:
            counts = np.maximum(counts, before - (before >> 3))
        self._made = counts


@functools.lru_cache(maxsize=64)
def _numbers(rows: int) -> Ints:
    return np.arange(rows)


class _Head:
    """A level that starts a segment: where its slots are, the dense positions between it and the level above, what its run notes of every
    position, with sizes (`crd`)."""

    def __init__(self, places: dict[abi.Slot, int], output: cin.Tensor, level: int) -> None:
        form, extents = output.format, output.format.level_extents(output.shape)
        self.level = level
        per = form.levels[level].per
        by_parent = {name: places[abi.Slot(output.name, name, level)] for name in abi.by_parent(output, level)}
        self.pos = by_parent.pop("pos", None)
        crd = {name for name, kind in form.levels[level].buffer_types().items() if kind == "crd"}
        self._bytes = [
            (k, _crd(extents[level]) if n in crd else 8 if per[n] == "parent" else 0) for n, k in by_parent.items()
        ]
        """Other buffers with elements for the positions above, and the bytes of each; 0 where these are words of the extent."""
        self.group = form.levels[level].group
        self.count = places[abi.Slot(output.name, "count", level)]
        above = level
        while above and form.levels[above - 1].full:
            above -= 1
        self._above = above
        self._sized(extents)
        run = [level]
        while run[-1] + 1 < len(form.levels) and form.continues(run[-1] + 1):
            run.append(run[-1] + 1)
        self.crd = [
            (places[abi.Slot(output.name, name, lv)], _crd(extents[lv]))
            for lv in run
            for name in abi.by_position(output, lv)
        ]

    def _sized(self, extents: tuple[int, ...]) -> None:
        self.between = math.prod(extents[self._above : self.level])
        words = 8 * -(-extents[self.level] // 64)
        self.parents = [(k, size or words) for k, size in self._bytes]
        """Other buffers with elements for the positions above, and the bytes of each."""

    def at(self, extents: tuple[int, ...]) -> _Head:
        """That of an output with other extents."""
        made = copied(self)
        made._sized(extents)
        return made


def _crd(extent: int) -> int:
    """The bytes of a coordinate."""
    return 4 if extent <= 2**31 - 1 else 8


class _Layout:
    """The slots of a growing output."""

    def __init__(self, output: cin.Tensor) -> None:
        places = {slot: k for k, slot in enumerate(abi.slots_of(output, output=True))}
        self.size = len(places)
        self.heads = [_Head(places, output, level) for level in heads(output)]
        self.counts = [head.count for head in self.heads]
        self.vals = places[abi.Slot(output.name, "vals", 0)]
        self._output, self._last = output, output.format.sparse[-1]
        self._sized(output.format.level_extents(output.shape))
        self.shared = self.heads[0].level > 0

    def _sized(self, extents: tuple[int, ...]) -> None:
        self.block = self._output.dtype.itemsize * math.prod(extents[self._last + 1 :])

    def at(self, shape: tuple[int, ...]) -> _Layout:
        """That of an output of another shape."""
        made = copied(self)
        extents = self._output.format.level_extents(shape)
        made.heads = [head.at(extents) for head in self.heads]
        made._sized(extents)
        return made

    def edges(self) -> dict[int, int]:
        """Fresh memory, by slot, for what the first sparse level notes of the positions above it, where these are dense (else nothing)."""
        head, made = self.heads[0], {}
        for column, size in self._by_parent(head) if self.shared else ():
            made[column] = allocator.take(size * (head.between + 1), zero=True)
        return made

    def given(self, own: Ints) -> list[int]:
        """The addresses of what `edges` made."""
        return [int(own[0, column]) for column, _ in self._by_parent(self.heads[0])] if self.shared else []

    def _by_parent(self, head: _Head) -> list[tuple[int, int]]:
        return [*head.parents, *([] if head.pos is None else [(head.pos, 8)])]

    def release(self, own: Ints) -> None:
        """Free what the chunks have allocated."""
        columns = [self.vals, *(p for head in self.heads for p, _ in head.crd)]
        columns += [column for head in self.heads[self.shared :] for column, _ in self._by_parent(head)]
        allocator.release(own[:, columns].ravel().tolist())
        allocator.release(self.given(own))


def _place(layout: _Layout, own: Ints, spans: Ints) -> list[int]:
    """The slots of the whole output, from those of the chunks, whose memory is freed; `spans`: the parents of each chunk."""
    made, rows, fresh = own[0].tolist(), [], []
    above: Ints | None = None
    counts = own[:, layout.heads[0].count]

    def new(size: int) -> int:
        fresh.append(allocator.take(size))
        return fresh[-1]

    def piece(target: Any, source: Ints, length: Any, by: Any, kind: int, owned: Any) -> None:
        row = np.empty((len(own), 6), np.int64)
        for column, value in enumerate((target, source, length, by, kind, owned)):
            row[:, column] = value
        rows.append(row)

    try:
        for head in layout.heads:
            counts = own[:, head.count]
            before, total = _before(counts), int(counts.sum())
            parents = (np.zeros_like(counts) if above is None else above) * head.between
            for column, size in () if above is None and layout.shared else head.parents:
                made[column] = target = new(size * int(parents.sum()))
                piece(target + size * _before(parents), own[:, column], size * parents, 0, _COPY, own[:, column])
            if head.pos is not None and above is None and layout.shared:
                at = own[:, head.pos] + 8 * (spans[:, 0] + 1)
                piece(at, at, spans[:, 1] - spans[:, 0], before // head.group, _SHIFT, 0)
            elif head.pos is not None:
                made[head.pos] = target = new(8 * (int(parents.sum()) + 2))
                ctypes.c_int64.from_address(target).value = 0
                if above is None:
                    ctypes.c_int64.from_address(target + 8).value = total
                piece(
                    target + 8 * (_before(parents) + 1),
                    own[:, head.pos] + 8,
                    parents,
                    before // head.group,
                    _SHIFT,
                    own[:, head.pos],
                )
            for column, size in head.crd:
                made[column] = target = new(size * total)
                piece(target + size * before, own[:, column], size * counts, 0, _COPY, own[:, column])
            made[head.count] = total
            above = counts
        made[layout.vals] = target = new(layout.block * int(counts.sum()))
        values = own[:, layout.vals]
        piece(target + layout.block * _before(counts), values, layout.block * counts, 0, _COPY, values)
        # chunk by chunk, so that what one thread wrote last is read first
        table = np.ascontiguousarray(np.stack(rows, 1).reshape(-1, 6))
    except BaseException:
        allocator.release(fresh)
        raise
    return _run(layout, own, table, fresh, made)


def _run(layout: _Layout, own: Ints, table: Ints, fresh: list[int], made: list[int]) -> list[int]:
    """Move the pieces; the chunks own nothing afterwards."""
    shared = layout.given(own)
    own[:] = 0
    try:
        threads.run(_placing().address, table)
    except BaseException:
        allocator.release([*fresh, *shared, *table[:, 5].tolist()])
        raise
    return made


def _before(counts: Ints) -> Ints:
    """The sums of what stands before each."""
    sums: Ints = np.cumsum(counts) - counts
    return sums


@functools.cache
def _placing() -> compiler.Kernel:
    """The kernel that moves one piece: slots target, source, length, shift, kind, memory to be freed (which it sets to zero).

    A copy moves bytes; a shift moves integers and adds to each.
    """
    b = LLVMBuilder()
    target, source = b.slot(0, "ptr", "target"), b.slot(1, "ptr", "source")
    length, by, kind = (b.slot(k, "i64", name) for k, name in ((2, "length"), (3, "by"), (4, "kind")))

    def shift() -> None:
        with b.for_(b.i64(0), length, "q") as q:
            b.store(target, q, b.add(b.load(source, q, "i64"), by))

    def copy() -> None:
        b.call("memcpy", "ptr", [target, source, length])

    b.if_else(b.eq(kind, _SHIFT), shift, copy)
    kernel_memory.free(b, b.slot(5, "ptr", "owned"))
    b.set_slot(5, b.i64(0))
    return compiler.compile_text(b.finish(lambda: None))


@functools.cache
def _in_turn() -> compiler.Kernel:
    """`kernel(function, parts, chunks, words, slots...)`: the function on these slots and each chunk's, then that which combines their parts. Behind the
    parts is room for a row."""
    b = LLVMBuilder()
    function, parts = b.slot(0, "ptr", "function"), b.slot(1, "ptr", "parts")
    chunks, words = b.slot(2, "i64", "chunks"), b.slot(3, "i64", "words")
    row = b.place(parts, b.mul(chunks, _SCALAR))
    b.call("memcpy", "ptr", [row, b.slot_place(4), b.mul(words, 8)])
    b.store(row, b.add(words, 1), chunks)
    b.store(row, b.add(words, 2), b.convert("ptrtoint", parts, "i64"))
    with b.for_(b.i64(0), b.add(chunks, 1), "chunk") as chunk:
        b.store(row, words, chunk)
        status = b.call_at(function, "i64", [row])
        with b.if_(b.ne(status, 0)):
            b.fail(status)
    return compiler.compile_text(b.finish(lambda: None))
