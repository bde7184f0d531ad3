"""Assembly of the output: dense storage is written in place, sparse levels are appended in coordinate order.

For each sparse level `l` of the output, `n_l` counts its coordinates so far. Entering a coordinate makes room for it at
position `n_l`; leaving it commits it: at the last sparse level when a value was written, above when the level below
has grown, so that no empty fiber is ever stored. At the end of a loop over a level, `pos[parent + 1] = n_l`; fibers
that no loop visited are repaired once at the end (`pos` becomes its running maximum).

The last sparse level may be of any type that kernels write: where coordinates are not simply appended (`Level.settled`), the level says where each
goes, and what is noted of it and of its segment (`formats/levels/walk.Fiber`).

Source: "Format Abstraction for Sparse Tensor Algebra Compilers", append_coord / append_edges / append_finalize.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sparsejax.formats import Level
from sparsejax.formats.levels.walk import Fiber
from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.codegen import abi, emit
from sparsejax.jit.codegen.environment import Cursor
from sparsejax.jit.codegen.kernel_memory import clear, fill, moved, null, resize
from sparsejax.jit.codegen.operands import Axis
from sparsejax.jit.ir import cin, lanewise
from sparsejax.jit.ir.program import heads


class Growable:
    """Buffers that grow together, and double when they are full: by name, the elements that each has per position, and their size."""

    def __init__(self, b: Builder, buffers: Mapping[str, tuple[Val, int]]) -> None:
        self._sizes = dict(buffers)
        self._pointers = {name: b.var(name, null(b)) for name in buffers}
        self._room = b.var(f"{next(iter(buffers))}_room", b.i64(0))

    def pointer(self, b: Builder, name: str) -> Val:
        return b.get(self._pointers[name])

    def room(self, b: Builder) -> Val:
        """How many positions there is room for."""
        return b.get(self._room)

    def give(self, b: Builder, name: str, pointer: Val, room: Val) -> None:
        """Start with a buffer for `room` positions that somebody else has allocated."""
        b.set(self._pointers[name], pointer)
        b.set(self._room, room)

    def reserve(
        self, b: Builder, needed: Val, zero: bool = False, fresh: Callable[[Builder, Val, Val], None] | None = None
    ) -> None:
        """Make room for `needed` positions, new ones zeroed where asked; `fresh` is told which are new."""
        needed = b.named("needed", needed)
        room = b.named("room", b.get(self._room))
        with b.if_(b.lt(room, needed)):
            grown = b.named("grown", b.max(b.named("twice", b.mul(room, 2)), needed))
            for name, (each, size) in self._sizes.items():
                # a block of no elements is no block at all
                count = grown if each.ref == "1" else b.max(b.mul(each, grown), b.i64(1))
                resize(b, self._pointers[name], count, size)
                if zero:
                    clear(b, self.pointer(b, name), b.mul(each, room), b.mul(each, grown), size)
            if fresh is not None:
                fresh(b, room, grown)
            b.set(self._room, grown)


@dataclass(frozen=True)
class Span:
    """The coordinates of the outermost variable that a call visits, and the slots that tell which positions these are."""

    first: Var
    end: Var
    slots: tuple[int, int]


class Output:
    """The output tensor under assembly; with a `span`, the part of it between two coordinates of its outermost level.

    Counts are then those of the part. Where all levels above the first sparse one are dense, `pos` of that one is given by the caller,
    for the whole output, and the part fills in what is its own, as if nothing stood before it.
    """

    def __init__(
        self,
        b: Builder,
        tensor: cin.Tensor,
        axes: tuple[Axis, ...],
        slots: dict[abi.Slot, int],
        span: Span | None = None,
    ) -> None:
        self.tensor = tensor
        self.axes = axes
        self._slots = slots
        self.span = span
        form = tensor.format
        self.heads = heads(tensor)
        self.sparse = form.sparse
        self._crd_types = tuple("i32" if tensor.shape[d] <= 2**31 - 1 else "i64" for d in form.order)
        self._saved: list[Val] = []
        self._roomy = False
        self._prepare(b)

    _own: Level | None = None
    """The last sparse level, where it says itself how coordinates are appended."""

    def _prepare(self, b: Builder) -> None:
        """Get the memory that there is, and make room for what is expected."""
        tensor, slots, form = self.tensor, self._slots, self.tensor.format
        if not self.sparse:
            self._fixed = b.slot(slots[abi.Slot(tensor.name, "vals", 0)], "ptr", f"{tensor.name}_vals")
            return
        self.count: dict[int, Var] = {lv: b.var(f"n{lv}", b.i64(0)) for lv in self.heads}
        self._block = self._product(b, range(self.sparse[-1] + 1, len(form.levels)))
        self._runs: dict[int, Growable] = {}
        """By its first level, what a run of levels appends to: coordinates, and below the last one values."""
        for lv in self.heads:
            within = [k for k in self.sparse if self.head_of(k) == lv]
            grown = {n: (b.i64(1), size) for k in within for n, size in self._held(k, "position").items()}
            if lv == self.heads[-1]:
                grown["vals"] = (self._block, tensor.dtype.itemsize)
            self._runs[lv] = Growable(b, grown)
        self._pos = {lv: Growable(b, self._by_parent(b, lv)) for lv in self.heads}
        if self._shared:
            head = self.heads[0]
            for name in abi.by_parent(tensor, head):
                given = b.slot(slots[abi.Slot(tensor.name, name, head)], "ptr", f"{tensor.name}_{name}")
                self._pos[head].give(b, f"{name}{head}", given, b.add(self._product(b, range(head)), 1))
        level = form.levels[self.sparse[-1]]
        self._own = None if level.settled else level
        if self._own is not None:
            self._first = b.var("first", b.i64(0))
        self.wrote = b.var("wrote", b.i64(0))
        taken = self._take_over(b) if self.span is None and abi.is_list(tensor) else None
        for lv in self.heads:
            self._reserve_pos(b, lv)
            if taken is not None:
                with b.if_(taken):
                    for k in range(2):
                        b.store(self._pos[lv].pointer(b, f"pos{lv}"), b.i64(k), b.i64(0))
            self._reserve(b, lv, b.slot(slots[abi.Slot(tensor.name, "count", lv)], "i64", f"expected{lv}"))

    _cells: Val | None = None
    """The words in which a caller keeps memory, where it may."""

    def _take_over(self, b: Builder) -> Val:
        """Begin with memory that the caller has for a list, if it has some; whether it has."""
        self._cells = cells = b.slot(self._slots[abi.Slot(self.tensor.name, "vals", 0)], "ptr", "cells")
        taken = b.var("taken", b.const("i1", 0))
        with b.if_(b.ne(b.convert("ptrtoint", cells, "i64"), 0)):
            places = ((self._pos[0], "pos0"), (self._runs[0], "crd0"), (self._runs[0], "vals"))
            for k, (grown, name) in enumerate(places):
                room = b.load(cells, b.i64(abi.ROOMS + (k == 0)), "i64")
                grown.give(b, name, b.load(cells, b.i64(abi.SPARE + k), "ptr"), room)
                b.store(cells, b.i64(abi.SPARE + k), b.i64(0))
            b.set(taken, b.ne(b.convert("ptrtoint", self._pos[0].pointer(b, "pos0"), "i64"), 0))
        return b.get(taken)

    def _reserve(self, b: Builder, head: int, positions: Val) -> None:
        """Make room for so many positions in the run of `head`. Where the level skips many, all hold the fill from the start."""
        spread = self._own is not None and self._own.spread and head == self.heads[-1]
        self._runs[head].reserve(b, positions, fresh=self._blank if spread else None)

    def _held(self, level: int, per: str) -> dict[str, int]:
        """The buffers of a level with an element per position (or parent, or edge), and the size of these."""
        form = self.tensor.format
        kinds, each = form.levels[level].buffer_types(), form.levels[level].per
        crd = 4 if self._crd_types[level] == "i32" else 8
        names = (name for name in form.buffer_names(level) if each[name] == per)
        return {f"{name}{level}": crd if kinds[name] == "crd" else 8 for name in names}

    def _by_parent(self, b: Builder, head: int) -> dict[str, tuple[Val, int]]:
        """The buffers of a level that grow with the positions above it."""
        one, extent = b.i64(1), self.axes[self.tensor.format.order[head]].extent
        words = self._held(head, "word")
        found = {n: (one, size) for per in ("edge", "parent") for n, size in self._held(head, per).items()}
        return {**found, **{n: (b.binary("lshr", b.add(extent, 63), b.i64(6)), size) for n, size in words.items()}}

    @property
    def _shared(self) -> bool:
        """Whether `pos` of the first sparse level is given for the whole output."""
        return self.span is not None and self.heads[0] > 0

    # geometry
    def _product(self, b: Builder, levels: range) -> Val:
        size = b.i64(1)
        for level in levels:
            size = b.mul(size, self.axes[self.tensor.format.order[level]].span)
        return size

    def head_of(self, level: int) -> int:
        """The level that starts the coordinate run of `level`."""
        return max(h for h in self.heads if h <= level)

    def is_run_end(self, level: int) -> bool:
        form = self.tensor.format
        return level + 1 == len(form.levels) or not form.continues(level + 1)

    def _parents(self, b: Builder, head: int) -> Val:
        """How many parent positions the head level has so far, room for one more included."""
        above = [h for h in self.heads if h < head]
        if not above:
            return self._product(b, range(head))
        first_dense = max(lv for lv in self.sparse if lv < head) + 1
        return b.mul(b.add(b.get(self.count[above[-1]]), 1), self._product(b, range(first_dense, head)))

    def _reserve_pos(self, b: Builder, head: int) -> None:
        self._pos[head].reserve(b, b.add(self._parents(b, head), 1), zero=True)

    # the three events of a level
    def enter(
        self, b: Builder, level: int, coordinates: dict[int, Val], cursors: Mapping[cin.Access, Cursor]
    ) -> Val | None:
        """Make room for a coordinate of `level`; `coordinates` holds those of the levels so far, `cursors` where operands are.

        Returns its position, or None inside a coordinate run, where only the last level has one.
        """
        if not self.is_run_end(level):
            return None
        head = self.head_of(level)
        if self._own is not None and level == self.sparse[-1]:
            return self._enter(b, self._own, coordinates[level], cursors)
        n = b.get(self.count[head])
        if not self._roomy:
            self._runs[head].reserve(b, b.add(n, 1))
        self.write_coordinates(b, level, n, coordinates)
        below = [h for h in self.heads if h > level]
        if below:
            self._reserve_pos(b, below[0])
            self._saved.append(b.get(self.count[below[0]]))
        else:
            self._begin(b, n)
        return n

    def _begin(self, b: Builder, position: Val) -> None:
        """Nothing has been written at a position of the last sparse level so far."""
        if self._block.ref != "1":
            self._blank(b, position)
        b.set(self.wrote, b.i64(0))

    def _blank(self, b: Builder, lo: Val, hi: Val | None = None) -> None:
        """The values at positions lo to hi are the fill, or at `lo` alone."""
        first, last = b.mul(lo, self._block), b.mul(b.add(lo, 1) if hi is None else hi, self._block)
        fill(b, self.vals(b), first, last, emit.constant(b, self.tensor.fill_value, self.tensor.dtype))

    # a level that says itself how coordinates are appended
    def _enter(self, b: Builder, own: Level, coordinate: Val, cursors: Mapping[cin.Access, Cursor]) -> Val:
        parent = next(c.pos for access, c in cursors.items() if access.tensor.name == self.tensor.name)
        fiber = self._fiber(b, parent)
        if not self._roomy:
            self._reserve(b, self.heads[-1], b.add(fiber.count, 1))
        position: Val = own.place(b, fiber, coordinate)
        self._begin(b, position)
        self._entered = parent, position, coordinate
        return position

    def _leave(self, b: Builder, own: Level) -> None:
        parent, position, coordinate = self._entered
        with b.if_(b.ne(b.get(self.wrote), 0)):
            b.set(self.count[self.heads[-1]], own.commit(b, self._fiber(b, parent), position, coordinate))

    def _fiber(self, b: Builder, parent: Val) -> Fiber:
        """The segment below a position, as the level sees it."""
        head, dtype = self.heads[-1], self.tensor.dtype
        types, kinds = {"crd": self._crd_types[head]}, self.tensor.format.levels[head].buffer_types()
        held = self._held(head, "position")

        def pointer(name: str) -> Val:
            return (self._runs if f"{name}{head}" in held else self._pos)[head].pointer(b, f"{name}{head}")

        def load(name: str, at: Val) -> Val:
            value = b.load(pointer(name), at, types.get(kinds[name], "i64"), name)
            return value if value.type == "i64" else b.convert("sext", value, "i64")

        def store(name: str, at: Val, value: Val) -> None:
            b.store(pointer(name), at, self.narrowed(b, head, value) if kinds[name] == "crd" else value)

        def move(source: Val, target: Val) -> None:
            with b.for_(b.i64(0), self._block, "z") as z:
                old, new = (b.add(b.mul(at, self._block), z) for at in (source, target))
                emit.store(b, self.vals(b), new, emit.load(b, self.vals(b), old, dtype, 1, "moved"))

        def same(p: Val, q: Val) -> Val:
            words = max(1, dtype.itemsize // 8)
            bits = f"i{8 * dtype.itemsize // words}"
            found = b.const("i1", 1)
            for k in range(words):
                left, right = (b.load(self.vals(b), b.add(b.mul(at, words), k), bits, "bits") for at in (p, q))
                found = b.and_(found, b.eq(left, right))
            return found

        first, count = b.get(self._first), b.get(self.count[head])
        before = self._part(b)[0] if self._shared and head == self.heads[0] else b.i64(0)
        extent = self.axes[self.tensor.format.order[head]].extent
        room, blank = (functools.partial(f, b, *more) for f, more in ((self._reserve, (head,)), (self._blank, ())))
        return Fiber(parent, before, extent, first, count, load, store, room, blank, move, same)

    @contextmanager
    def room(self, b: Builder, count: Val) -> Iterator[None]:
        """Make room for `count` more coordinates of the last sparse level, so that none is made when they are entered inside."""
        if self._roomy or not (self._own is None or self._own.stretches):
            yield
            return
        self._make_room(b, b.named("needed", b.add(b.get(self.count[self.heads[-1]]), count)))
        self._roomy = True
        yield
        self._roomy = False

    def _make_room(self, b: Builder, needed: Val) -> None:
        """Make room for `needed` coordinates of the last sparse level, and what is below them."""
        self._runs[self.heads[-1]].reserve(b, needed)

    def write_coordinates(self, b: Builder, level: int, position: Val, coordinates: dict[int, Val]) -> None:
        """Write the coordinates of an entry of `level`, the end of a coordinate run, at a position that there is room for."""
        for lv in range(self.head_of(level), level + 1):
            b.store(self._crd(b, lv), position, self.narrowed(b, lv, coordinates[lv]))

    def narrowed(self, b: Builder, level: int, coordinate: Val) -> Val:
        """A coordinate as `level` stores it."""
        return coordinate if self._crd_types[level] == "i64" else b.convert("trunc", coordinate, "i32")

    @property
    def leader(self) -> cin.Access | None:
        """The access without whose entries a fiber of the output has none, and is as it should be."""
        return None

    @property
    def appends(self) -> bool:
        """Whether entries are appended one by one, each a number."""
        return bool(self.sparse) and self._own is None and self._block.ref == "1"

    @property
    def writes_coordinates(self) -> bool:
        """Whether coordinates must be written at all."""
        return True

    def extend(self, b: Builder, count: Val, source: Val) -> Val:
        """Make room for `count` coordinates of the last level, all of which will be written; the position of the first. They are
        those from position `source` on of the operand that is walked."""
        first = b.get(self.count[self.heads[-1]])
        if not self._roomy:
            self._make_room(b, b.named("needed", b.add(first, count)))
        return first

    def commit(self, b: Builder, count: Val) -> None:
        """The coordinates that `extend` made room for are there."""
        b.increment(self.count[self.heads[-1]], count)

    def leave(self, b: Builder, level: int) -> None:
        """Commit the coordinate that was entered, if there is something below it."""
        if not self.is_run_end(level):
            return
        head = self.head_of(level)
        below = [h for h in self.heads if h > level]
        if not below and self._own is not None:
            self._leave(b, self._own)
            return
        if not below:
            b.increment(self.count[head], b.get(self.wrote))
            return
        grew = b.ne(b.get(self.count[below[0]]), self._saved.pop())
        b.increment(self.count[head], b.convert("zext", grew, "i64"))

    def close(self, b: Builder, head: int, parent: Val) -> None:
        """The fiber of `head` below position `parent` is complete."""
        if self._own is not None and head == self.heads[-1]:
            count = self._own.close(b, self._fiber(b, parent))
            b.set(self.count[head], count)
            b.set(self._first, count)
            return
        b.store(self._pos[head].pointer(b, f"pos{head}"), b.add(parent, 1), b.get(self.count[head]))

    # values
    def vals(self, b: Builder) -> Val:
        return self._runs[self.heads[-1]].pointer(b, "vals") if self.sparse else self._fixed

    def _crd(self, b: Builder, level: int) -> Val:
        return self._runs[self.head_of(level)].pointer(b, f"crd{level}")

    def put(self, b: Builder, position: Val, op: str | None, value: emit.Num) -> None:
        """`out[position] op= value`."""
        pointer = self.vals(b)
        if op is not None:
            old = emit.load(b, pointer, position, self.tensor.dtype, 1, self.tensor.name)
            value = emit.apply(b, op, [old, value], self.tensor.dtype)
        emit.store(b, pointer, position, value)
        if self.sparse:
            b.set(self.wrote, b.i64(1))

    def put_where(self, b: Builder, position: Val, value: emit.Num, holds: Val) -> None:
        """`out[position] = value`, which stays where it `holds`: else the next entry is written there."""
        emit.store(b, self.vals(b), position, value)
        b.set(self.wrote, b.convert("zext", holds, "i64"))

    # partial results
    def part(self, b: Builder, parts: Val, number: Val) -> Val:
        """The address of partial output `number`: all are of the size of a dense output and stand one behind the other."""
        size = b.mul(self._size(b), self.tensor.dtype.itemsize)
        return moved(b, parts, b.mul(number, size))

    @contextmanager
    def redirected(self, pointer: Val) -> Iterator[None]:
        """Write to `pointer` instead of the dense output."""
        whole, self._fixed = self._fixed, pointer
        yield
        self._fixed = whole

    def combine(self, b: Builder, op: str, parts: Val, piece: Val, pieces: Val) -> None:
        """`output op= part` for every part, in order, on one of as many pieces of the output as there are parts."""
        size, dtype = self._size(b), self.tensor.dtype
        lo = b.named("lo", b.binary("sdiv", b.mul(size, piece), pieces))
        hi = b.named("hi", b.binary("sdiv", b.mul(size, b.add(piece, 1)), pieces))
        wide = 64 // dtype.itemsize if dtype.kind in "iufc" and lanewise.lanewise(op, dtype.kind) else 1
        end = b.named("end", b.add(lo, b.mul(b.binary("sdiv", b.sub(hi, lo), b.i64(wide)), wide)))
        for lanes, start, stop in ((wide, lo, end), (1, end, hi)):
            with b.for_(start, stop, "q", lanes) as q:
                total = [b.var("total", p) for p in emit.load(b, self._fixed, q, dtype, lanes, "out").parts]
                with b.for_(b.i64(0), pieces, "part") as k:
                    part = emit.load(b, parts, b.add(b.mul(k, size), q), dtype, lanes, "partial")
                    old = emit.Num(dtype, tuple(b.get(t) for t in total))
                    for var, value in zip(total, emit.apply(b, op, [old, part], dtype).parts, strict=True):
                        b.set(var, value)
                emit.store(b, self._fixed, q, emit.Num(dtype, tuple(b.get(t) for t in total)))

    def _size(self, b: Builder) -> Val:
        return self._product(b, range(len(self.tensor.format.levels)))

    # the end
    def epilogue(self, b: Builder) -> None:
        """Write pointers and counts back; also on the way out after a failure, so that the caller can free them."""
        if not self.sparse:
            return
        name = self.tensor.name
        for lv in self.sparse:
            for held in abi.by_position(self.tensor, lv):
                b.set_slot(
                    self._slots[abi.Slot(name, held, lv)], self._runs[self.head_of(lv)].pointer(b, f"{held}{lv}")
                )
        for lv in self.heads:
            for held in abi.by_parent(self.tensor, lv):
                b.set_slot(self._slots[abi.Slot(name, held, lv)], self._pos[lv].pointer(b, f"{held}{lv}"))
            b.set_slot(self._slots[abi.Slot(name, "count", lv)], b.get(self.count[lv]))
        b.set_slot(self._slots[abi.Slot(name, "vals", 0)], self.vals(b))
        if self._cells is not None:
            with b.if_(b.ne(b.convert("ptrtoint", self._cells, "i64"), 0)):
                for k, grown in enumerate((self._runs[0], self._pos[0])):
                    b.store(self._cells, b.i64(abi.MADE + k), grown.room(b))
        if self.span is not None:
            for slot, parent in zip(self.span.slots, self._part(b), strict=True):
                b.set_slot(slot, parent)

    def finalize(self, b: Builder) -> None:
        """Repair `pos` of fibers that no loop visited."""
        for head in self.heads:
            edges = "pos" in abi.by_parent(self.tensor, head)
            pointer = self._pos[head].pointer(b, f"pos{head}") if edges else null(b)
            start, parents = b.i64(0), b.sub(self._parents(b, head), self._trailing(b, head))
            if self._shared and head == self.heads[0]:
                first, parents = self._part(b)
                start = b.add(first, 1)
            if self._own is not None and head == self.heads[-1]:
                b.set(self.count[head], self._own.finish(b, self._fiber(b, parents)))
            if not edges:
                continue
            high = b.var("high", b.i64(0))
            with b.for_(start, b.add(parents, 1), "r") as r:
                b.set(high, b.max(b.get(high), b.load(pointer, r, "i64", "edge")))
                b.store(pointer, r, b.get(high))

    def _part(self, b: Builder) -> tuple[Val, Val]:
        """The parent positions of the first sparse level that this call fills in."""
        assert self.span is not None
        axis, each = self.axes[self.tensor.format.order[0]], self._product(b, range(1, self.heads[0]))

        def parent(coordinate: Val) -> Val:
            start = coordinate if axis.step == 1 else b.min(b.mul(coordinate, axis.step), axis.span)  # blocks stick out
            return b.mul(start, each)

        return parent(b.get(self.span.first)), parent(b.get(self.span.end))

    def _trailing(self, b: Builder, head: int) -> Val:
        """The parent positions reserved for a coordinate that was never committed."""
        above = [h for h in self.heads if h < head]
        if not above:
            return b.i64(0)
        first_dense = max(lv for lv in self.sparse if lv < head) + 1
        return self._product(b, range(first_dense, head))
