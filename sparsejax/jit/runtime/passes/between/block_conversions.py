"""Rows of entries into blocks, and blocks into rows, each in two kernel calls: one that counts, one that writes.

    csr to bsr:bxc    for R in block rows:                        head[k]: the block that the next entry of row R*b + k lies in
                        while a row has entries left:             blocks come in order, since rows do
                          m = min(head); crd[at] = m; block at = fill
                          for k in 0 .. b:  while head[k] == m:   write the entry to its place in the block; head[k] = the next one's
                          at += 1
                      counted, where there are more entries than blocks in a row of blocks, by marks, which no branch asks for:
                        for entries of row R:  made += mark[crd] != R;  mark[crd] = R
    bsr:bxc to csr    for r in rows:                              all places of a block that lie inside the shape are entries
                        for p in blocks of row r // b:            crd = crd[p]*c ..; vals = row r % b of block p
                      a vector of each, but of the last block of a row, which may stick out

Covered are blocks below a dense and a compressed level, of any two orders, with up to `MOST` rows and columns; other formats become rows first, or
rows become others. Nothing is made beside the result but marks, which are smaller.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import config
from sparsejax.cached import cached_property
from sparsejax.formats import Format, convert, passes
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.dense import Dense
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.cost.machine import FAR
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime.passes import conversions, pass_kernels
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, address
from sparsejax.jit.runtime.system import result_memory, threads

MOST = 16
"""Rows and columns of a block at most: each row has registers of its own."""
LOADED, COMPILED = 2, 16
"""As `conversions.LOADED` and `COMPILED`: passes of NumPy over blocks cost 80 to 100 microseconds more than the kernel, four times as much as those of
other conversions, to load the kernel a millisecond, to compile it 15."""
NONE = 2**62
"""In place of a block, where a row has no entries left."""
Array = NDArray[Any]


@dataclass(frozen=True)
class Blocks:
    """Blocks of `rows` by `columns` along the outer and the compressed dimension; values in a block lie `row_step` and `column_step` apart."""

    rows: int
    columns: int
    row_step: int
    column_step: int

    @property
    def size(self) -> int:
        return self.rows * self.columns

    @staticmethod
    def of(form: Format) -> Blocks | None:
        """The blocks of a format below dense rows of compressed blocks; None for other formats."""
        if form.ndim != 2 or not form.blocked or len(form.levels) < 3:
            return None
        (rows, columns), inner = form.order[:2], form.order[2:]
        if (
            rows == columns
            or not _rows_of_compressed(form)
            or any(type(level) is not Dense for level in form.levels[2:])
        ):
            return None
        if len(set(inner)) < len(inner) or max(form.blocks) > MOST:
            return None
        steps, step = {rows: 0, columns: 0}, 1
        for d in reversed(inner):
            steps[d] = step
            step *= form.blocks[d]
        return Blocks(form.blocks[rows], form.blocks[columns], steps[rows], steps[columns])


def _rows_of_compressed(form: Format) -> bool:
    first, second = form.levels[:2]
    return type(first) is Dense and type(second) is Compressed and second.unique


@functools.lru_cache(maxsize=256)
def _by_rows(form: Format) -> Format:
    """The format of rows that blocks of `form` are made of, and become."""
    return Format((Dense(), Compressed()), form.order[:2])


class Plan:
    """How arrays of one dtype and width of coordinates become blocks, or rows."""

    def __init__(self, blocks: Blocks, target: Format, size: int, sizes: tuple[int, int], into: bool) -> None:
        self.blocks, self.target, self._into = blocks, target, into
        self._size, self._sizes = size, sizes
        self._coordinate, self._below = np.dtype(f"i{sizes[1]}"), ((),) * (len(target.levels) - 2)
        self._asked = 0
        self._ready = False

    def pays(self, entries: int) -> bool:
        """Whether the kernels are there, or worth being compiled."""
        self._asked += 1
        if not self._ready:
            self._ready = entries >= passes.MANY or self._asked >= COMPILED
            if not self._ready and self._asked == LOADED:
                self._ready = pass_kernels.loaded(self._kernels) is not None
        return self._ready

    @cached_property
    def _both(self) -> list[compiler.Kernel]:
        return self._kernels()

    def _kernels(self) -> list[compiler.Kernel]:
        """What counts, and what writes."""
        return [_marking(self.blocks, self._sizes) if self._into else self._counting, self._kernel(counts=False)]

    @cached_property
    def _counting(self) -> compiler.Kernel:
        return self._kernel(counts=True)

    def _kernel(self, counts: bool) -> compiler.Kernel:
        return _kernel(self.blocks, self._size, self._sizes, self._into, counts)

    def run(self, storage: Storage) -> Storage:
        first, second = self.target.order[:2]
        rows, columns = storage.shape[first], storage.shape[second]
        (pos, crd), vals = storage.buffers[1], storage.vals
        fill = np.array((storage.fill_value,), vals.dtype)
        outer = -(-rows // self.blocks.rows) if self._into else rows
        made = np.empty(outer + 1, INT64)
        given = rows, columns, address(pos), address(crd)
        if len(vals) < FAR:
            shares = [(0, outer)]
        else:
            parts = threads.count()
            shares = [(outer * k // parts, outer * (k + 1) // parts) for k in range(parts)]
        made[0] = 0
        counts, writes = self._both
        counted: list[tuple[int, ...]] = [(*share, *given, address(made)) for share in shares]
        if self._into:
            across = -(-columns // self.blocks.columns)
            if across * len(shares) <= len(vals) and outer < 2**31 - 1:
                marks = np.zeros((len(shares), across), np.int32)
                counted = [(*slots, address(marks) + k * across * marks.itemsize) for k, slots in enumerate(counted)]
            else:
                counts = self._counting
        pass_kernels.run_parts(counts, counted)
        np.add.accumulate(made, out=made)
        found = int(made[-1])
        out = pass_kernels.empty(found, self._coordinate)
        stored = pass_kernels.empty(found * self.blocks.size if self._into else found, vals.dtype)
        behind = address(made), address(vals), address(out), address(stored), address(fill)
        pass_kernels.run_parts(writes, [(*share, *given, *behind) for share in shares])
        result_memory.freeze(made, False)
        levels = ((), (made, out), *self._below)
        return Storage.of_frozen(self.target, storage.shape, storage.fill_value, levels, stored)


@functools.cache
def _kernel(blocks: Blocks, size: int, sizes: tuple[int, int], into: bool, counts: bool) -> compiler.Kernel:
    b = LLVMBuilder()
    (_Into if into else _Back)(b, blocks, size, sizes, counts).emit()
    return pass_kernels.compiled(b)


@functools.cache
def _marking(blocks: Blocks, sizes: tuple[int, int]) -> compiler.Kernel:
    """Counts as `_Into` does, by marks (slot 7): each block of a row of blocks has the row of blocks, counted from 1, that came by last."""
    b = LLVMBuilder()
    e = _Emitter(b, blocks, 0, sizes, True)
    marks = Vector.in_slot(b, 7, 4, "marks")
    with b.for_(e.first, e.end, "row") as row:
        mine = marks.element(b, b.add(row, 1))
        start, stop = (b.named("bound", e.pos.get(b, b.min(b.mul(b.add(row, n), blocks.rows), e.rows))) for n in (0, 1))
        found = b.var("found", b.i64(0))
        with b.for_(start, stop, "p") as p:
            block = b.named("block", b.binary("udiv", e.crd.number(b, p), b.i64(blocks.columns)))
            b.increment(found, b.convert("zext", b.ne(marks.get(b, block), mine), "i64"))
            marks.put(b, block, mine)
        e.made.put(b, b.add(row, 1), b.get(found))
    return pass_kernels.compiled(b)


class _Emitter:
    """Slots: the first row and the last, of blocks where blocks are made; extents; pos and crd; where rows of the result begin, or their lengths
    if it only `counts`; values; coordinates and values of the result; the fill."""

    def __init__(self, b: Builder, blocks: Blocks, size: int, sizes: tuple[int, int], counts: bool) -> None:
        self.b, self.blocks, self.counts = b, blocks, counts
        self.first, self.end, self.rows, self.columns = (
            b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "rows", "columns"))
        )
        self.pos, self.crd = pass_kernels.vectors(b, 4, (8, sizes[0]), ("pos", "crd"))
        self.made = Vector.in_slot(b, 6, 8, "made")
        if not counts:
            self.vals, self.out, self.stored, self.fill = pass_kernels.vectors(
                b, 7, (size, sizes[1], size, size), ("vals", "out", "stored", "fill")
            )


class _Into(_Emitter):
    def emit(self) -> None:
        b, blocks = self.b, self.blocks
        fill = None if self.counts else self.fill.get(b, b.i64(0))
        with b.for_(self.first, self.end, "row") as row:
            first = b.named("first", b.mul(row, blocks.rows))
            cursors, stops, heads = list[Var](), list[Val](), list[Var]()
            for k in range(blocks.rows):
                start, stop = (b.min(b.add(first, k + n), self.rows) for n in (0, 1))
                cursors.append(b.var("cursor", self.pos.get(b, start)))
                stops.append(b.named("stop", self.pos.get(b, stop)))
                heads.append(b.var("head", b.i64(NONE)))
                self._next(cursors[k], stops[k], heads[k])
            at = b.var("at", b.i64(0) if self.counts else self.made.get(b, row))
            least = b.var("least", self._least(heads))
            with b.while_(lambda: b.lt(b.get(least), b.i64(NONE))):
                block = b.named("block", b.get(least))
                base = b.mul(b.get(at), blocks.size)
                if fill is not None:
                    self.out.put(b, b.get(at), self.out.element(b, block))
                    for k in range(blocks.size):
                        self.stored.put(b, b.add(base, k), fill)
                for k in range(blocks.rows):
                    self._row(k, block, base, (cursors[k], stops[k], heads[k]))
                b.increment(at)
                b.set(least, self._least(heads))
            if self.counts:
                self.made.put(b, b.add(row, 1), b.get(at))

    def _row(self, k: int, block: Val, base: Val, state: tuple[Var, Val, Var]) -> None:
        """The entries of row `k` that lie in a block."""
        b, blocks = self.b, self.blocks
        cursor, stop, head = state
        with b.while_(lambda: b.eq(b.get(head), block)):
            if not self.counts:
                here = b.get(cursor)
                within = b.sub(self.crd.number(b, here), b.mul(block, blocks.columns))
                place = b.add(b.mul(within, blocks.column_step), k * blocks.row_step)
                self.stored.put(b, b.add(base, place), self.vals.get(b, here))
            b.increment(cursor)
            self._next(cursor, stop, head)

    def _next(self, cursor: Var, stop: Val, head: Var) -> None:
        """The block of the next entry of a row."""
        b = self.b
        b.set(head, b.i64(NONE))
        with b.if_(b.lt(b.get(cursor), stop)):
            b.set(head, b.binary("udiv", self.crd.number(b, b.get(cursor)), b.i64(self.blocks.columns)))

    def _least(self, heads: list[Var]) -> Val:
        return functools.reduce(self.b.min, [self.b.get(h) for h in heads])


class _Back(_Emitter):
    def emit(self) -> None:
        b = self.b
        with b.for_(self.first, self.end, "row") as row:
            outer = b.named("outer", b.binary("udiv", row, b.i64(self.blocks.rows)))
            start, stop = (b.named("bound", self.pos.get(b, b.add(outer, n))) for n in (0, 1))
            if self.counts:
                self._length(row, start, stop)
            else:
                self._entries(row, outer, start, stop)

    def _entries(self, row: Val, outer: Val, start: Val, stop: Val) -> None:
        """The blocks that are whole, then the last one, if it sticks out."""
        b, blocks, count = self.b, self.blocks, self.blocks.columns
        inner = b.mul(b.sub(row, b.mul(outer, blocks.rows)), blocks.row_step)
        at, whole = b.var("at", self.made.get(b, row)), b.var("whole", stop)
        with b.if_(b.lt(start, stop)):
            ends = b.mul(b.add(self.crd.number(b, b.sub(stop, 1)), 1), count)
            b.set(whole, b.sub(stop, b.convert("zext", b.lt(self.columns, ends), "i64")))
        steps = self._steps()
        with b.for_(start, b.get(whole), "p") as p:
            base, first = self._block(p, inner)
            here = b.get(at)
            if steps is None:
                self.out.put(b, here, self.out.element(b, first))
            else:
                b.store(self.out.pointer, here, b.binary("add", b.splat(self.out.element(b, first), count), steps))
            if steps is not None and blocks.column_step == 1 and self.vals.size <= 8:
                b.store(self.stored.pointer, here, b.load(self.vals.pointer, base, f"<{count} x {self.vals.type}>"))
            else:
                for number in range(count):
                    place = b.add(base, number * blocks.column_step)
                    self.stored.put(b, b.add(here, number), self.vals.get(b, place))
            b.increment(at, count)
        with b.for_(b.get(whole), stop, "p") as p:
            base, first = self._block(p, inner)
            with b.for_(b.i64(0), b.sub(self.columns, first), "c") as c:
                here = b.get(at)
                self.out.put(b, here, self.out.element(b, b.add(first, c)))
                self.stored.put(b, here, self.vals.get(b, b.add(base, b.mul(c, blocks.column_step))))
                b.increment(at)

    def _steps(self) -> Val | None:
        """The columns of a block, in lanes; None of a single one."""
        b, count = self.b, self.blocks.columns
        if count == 1:
            return None
        made = b.splat(self.out.element(b, b.i64(0)), count)
        for number in range(1, count):
            made = b.insert(made, number, self.out.element(b, b.i64(number)))
        return made

    def _block(self, p: Val, inner: Val) -> tuple[Val, Val]:
        """Where the values of a block begin in a row, and its first column."""
        b, blocks = self.b, self.blocks
        base = b.named("base", b.add(b.mul(p, blocks.size), inner))
        return base, b.named("first", b.mul(self.crd.number(b, p), blocks.columns))

    def _length(self, row: Val, start: Val, stop: Val) -> None:
        """Blocks times their columns, but those of the last one that stick out."""
        b, blocks = self.b, self.blocks
        length = b.var("length", b.mul(b.sub(stop, start), blocks.columns))
        with b.if_(b.lt(start, stop)):
            ends = b.mul(b.add(self.crd.number(b, b.sub(stop, 1)), 1), blocks.columns)
            b.set(length, b.sub(b.get(length), b.max(b.sub(ends, self.columns), b.i64(0))))
        self.made.put(b, b.add(row, 1), b.get(length))


@functools.lru_cache(maxsize=256)
def _plan(source: Format, target: Format, size: int, sizes: tuple[int, int]) -> Plan | None:
    into = target.blocked
    blocks = Blocks.of(target if into else source)
    if blocks is None or (source.blocked and target.blocked) or size not in (1, 2, 4, 8, 16):
        return None
    return Plan(blocks, target if into else _by_rows(source), size, sizes, into)


def converted(storage: Storage, format: Format) -> Storage | None:
    """`storage` in another format, into blocks or out of them too; None where no plan covers that, or passes one by one cost less."""
    source = storage.format
    if source.blocked == format.blocked or storage.ndim != 2:
        return conversions.converted(storage, format)
    blocked = format if format.blocked else source
    columns = storage.shape[blocked.order[1]]
    wide, narrow = (passes.crd_dtype(n).itemsize for n in (columns, -(-columns // blocked.blocks[blocked.order[1]])))
    plan = _plan(source, format, storage.dtype.itemsize, (wide, narrow) if format.blocked else (narrow, wide))
    if plan is None:
        return None
    if config.forcing and choices.free():
        with choices.drawing("conversion", source, format, storage.shape, storage.dtype):
            if choices.pick("conversion", ("passes", "kernel"), "kernel") == "passes":
                return None
    elif not plan.pays(len(storage.vals)):
        return None
    rows = _by_rows(blocked)
    if format.blocked:
        return plan.run(storage if source == rows else convert.convert(storage, rows))
    made = plan.run(storage)
    return made if format == rows else convert.convert(made, format)
