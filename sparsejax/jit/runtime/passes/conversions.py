"""Conversions as one kernel call each, of few entries or on one thread: the passes of `formats.convert`, planned once per pair of types.

A plan covers what one counting sort does (`convert.counting_sorts`): sources whose levels are compressed or coordinates, below a dense level or
not; targets of dense levels above one run of these, where entries are sorted by the dense levels at most:

    source   columns of coordinates: buffers as they are, owners of segments, and what is above taken along
    key      the dense levels of the target: a column, or several as one number
    order    one counting sort by the key, which finds `pos` on its way; entries that come in order only give `pos`
    result   buffers that stay as they are are shared, others are written by the kernel

    csr to csc   owners, count, add up, move         coo to csr   offsets; columns and values are shared
    csr to coo   owners; the rest is shared          csf to (d,q,q)   owners, take, owners, take, take, offsets

Where rows are long, or there are many entries, csr to csc makes no owners: rows are walked while entries are moved, and what these will touch is
fetched ahead. That takes 1.1 to 1.7 times as long without, whether neighbouring rows have columns close by or not.

With many entries and several threads, passes one by one run on these (`SHARED`); so they do in conversions that are not covered, or have many more
buckets than entries. A kernel is compiled, or
loaded, for a conversion of `passes.MANY` entries; loaded when a plan has been asked for `LOADED` times, compiled after `COMPILED`: until then
the passes of NumPy cost less.

Source: "Automatic Generation of Efficient Sparse Tensor Format Conversion Routines", sections 4 to 6.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import config
from sparsejax.formats import Format, convert, passes
from sparsejax.formats.levels.segments import MAX_POSITIONS
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.cost.machine import FAR
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime import binding
from sparsejax.jit.runtime.passes import conversion_loops, pass_kernels
from sparsejax.jit.runtime.passes.conversion_loops import LANES, Part, Vector
from sparsejax.jit.runtime.passes.conversion_passes import SPREAD, crowded
from sparsejax.jit.runtime.system import result_memory, threads

LOADED, COMPILED = 16, 128
"""Small conversions after which a kernel is loaded that another process has compiled; after which it is compiled."""

AHEAD = 1 << 15
"""Entries from which rows are walked, and what their entries will touch is fetched ahead, instead of a column being made of rows."""
CROWDED = 2
"""Entries per row from which the same holds for fewer than `FAR` entries: where short rows end is not to be foreseen."""
SHARED = 1 << 19
"""Entries from which several threads are faster (two: 0.66 to 0.93 of the time for 700,000 to 3 million entries, 1.2 for 370,000)."""
MOST = 2**31 - 1
"""Entries whose places fit 32 bits."""
BUCKETS, MAX_BUCKETS = 1 << 14, 1 << 20
"""Buckets that any number of entries may be sorted into: without being asked to, and in any case."""
Array = NDArray[Any]
_INT64, _NARROW = np.dtype(np.int64), passes.crd_dtype(1)


class Plan:
    """How arrays of one format become arrays of another one, whatever their extents are."""

    def __init__(
        self, source: Format, target: Format, widths: Sequence[np.dtype[Any]], dtype: np.dtype[Any], sorts: bool
    ) -> None:
        """`widths` are the dtypes of coordinates by dimension."""
        self.source, self.target, self.widths, self.dtype = source, target, tuple(widths), dtype
        self.depth = len(target.runs) - 1
        """Dense levels of the target."""
        self.keys, self.listed = target.order[: self.depth], target.order[self.depth :]
        self.sorts = sorts
        self._above: tuple[tuple[Array, ...], ...] = ((),) * self.depth
        self._heads = [first for first, _ in source.runs if not source.levels[first].full]
        self._columns = self._plain_columns()
        below_one_dense = source.levels[0].full and len(source.runs) == 2
        self._same_pos = not self.sorts and below_one_dense and self.keys == source.order[:1]
        """Whether `pos` stays as it is."""
        self._by_rows = self.sorts and below_one_dense and source.order[0] in self.listed
        """Whether entries lie row by row, and their rows are moved with them."""
        self._made: list[np.dtype[Any]] = []
        """The dtypes of buffers of the result that have an entry each."""
        self._places: list[tuple[int, int]] = []
        """For each column of the result: (level, which) in the source, or (-1, which) among those that are made."""
        for d in self.listed:
            if self.sorts or d not in self._columns:
                self._places.append((-1, len(self._made)))
                self._made.append(self.widths[d])
            else:
                self._places.append(self._columns[d])
        self._idle = not self._made and not self.sorts and (not self.depth or self._same_pos)
        """Whether everything is shared."""
        self._makes_pos = bool(self.depth) and not self._same_pos
        self._asked = 0
        """How often small conversions asked for a kernel."""
        self._kernels: dict[tuple[bool, bool], tuple[compiler.Kernel, int]] = {}
        """By whether few rows are empty, and whether what entries will touch is fetched ahead: a kernel, and columns that it keeps for itself."""
        number = len(self._made) + self._makes_pos + self.sorts
        self._pack = struct.Struct(f"{number + 2}q").pack

    def _plain_columns(self) -> dict[int, tuple[int, int]]:
        """Where the source has the columns of its last run, by dimension: (level, number of the buffer)."""
        first, stop = self.source.runs[-1]
        names = [self.source.buffer_names(level) for level in range(stop)]
        return {self.source.order[level]: (level, len(names[level]) - 1) for level in range(first, stop)}

    def run(self, storage: Storage) -> Storage | None:
        """`storage` in the target format; None where passes one by one are cheaper."""
        vals, buffers, shape = storage.vals, storage.buffers, storage.shape
        parents = math.prod([shape[d] for d in self.keys])
        if parents > MAX_POSITIONS:
            return None
        entries, forced = len(vals), False
        way = self._cheapest(entries, parents, shape)
        if config.forcing and choices.free():
            with choices.drawing("conversion", self.source, self.target, shape, self.dtype, entries):
                forced, way = True, choices.pick("conversion", lambda: self._legal(entries, parents, way), way)
        if way == "passes":
            return None
        made: list[Array] = []
        if not self._idle:
            far = way == "ahead"
            kind, empty = (crowded(entries, parents), far), pass_kernels.empty if far else np.empty
            kernel, temporaries = self._kernels.get(kind) or self._kernel(*kind, entries, forced)
            if kernel is None:
                return None
            slots = storage.cache.get("slots") or binding.input_slots(storage)
            if self._makes_pos:
                made.append(empty(parents + 1, _INT64))
            room = entries if self.sorts else entries + LANES
            for dtype in self._made:
                made.append(empty(room, dtype))
            if self.sorts:
                made.append(empty(entries, self.dtype))
            most = address = 0
            if temporaries:
                # the last one is of as many numbers of half the size as there are buckets
                most = LANES + max([len(buffers[level][-1]) for level in self._heads])
                kept = empty((temporaries - self.sorts) * most + (parents + 1 if self.sorts else 0), _INT64)
                address = result_memory.address_of(kept)
            status = kernel.run_packed(slots, self._pack(most, address, *map(result_memory.address_of, made)))
            if status:
                compiler.check(status)
            for array in made:
                result_memory.freeze(array, False)
        return self._result(storage, made)

    def _cheapest(self, entries: int, parents: int, shape: tuple[int, ...]) -> str:
        """How so many entries are converted (`alternatives.CHOICES`, "conversion") to segments below so many `parents`."""
        if self.sorts and parents > BUCKETS and parents > SPREAD * entries:
            return "passes"
        if entries >= FAR and (not self._by_rows or entries > MOST or _shared_out(entries, parents)):
            return "passes"
        far = self._by_rows and entries >= min(FAR, max(AHEAD, CROWDED * shape[self.source.order[0]]))
        return "ahead" if far else "kernel"

    def _legal(self, entries: int, parents: int, cheapest: str) -> list[str]:
        ways = ["passes", "kernel", "ahead"] if self._by_rows else ["passes", "kernel"]
        covered = not self.sorts or parents <= MAX_BUCKETS
        return ways if cheapest != "passes" or (covered and entries <= MOST) else ["passes"]

    def _result(self, storage: Storage, made: list[Array]) -> Storage:
        buffers, entries = storage.buffers, len(storage.vals)
        vals = made.pop() if self.sorts else storage.vals
        if self._makes_pos:
            pos = made.pop(0)
        elif self.depth:
            pos = buffers[1][0]
        else:
            pos = np.array([0, entries])
            pos.setflags(write=False)
        head = [pos]
        levels = list(self._above)
        for level, k in self._places:
            head.append(made[k][:entries] if level < 0 else buffers[level][k])
            levels.append(tuple(head))
            head = []
        return Storage.of_frozen(self.target, storage.shape, storage.fill_value, tuple(levels), vals)

    def _kernel(self, full: bool, ahead: bool, entries: int, forced: bool) -> tuple[compiler.Kernel | None, int]:
        """The kernel and the columns that it keeps; None as long as it is not worth being loaded, or compiled, unless it is `forced`."""
        self._asked += 1
        pays = forced or entries >= passes.MANY or self._asked >= COMPILED
        if not pays and self._asked != LOADED:
            return None, 0
        b = LLVMBuilder()
        emitter = _Emitter(self, b, self._by_rows and ahead)
        emitter.emit(full)
        text = b.finish(lambda: None)
        kernel = compiler.compile_text(text) if pays else compiler.known_text(text)
        if kernel is not None:
            self._kernels[full, ahead] = kernel, emitter.columns_kept
        return kernel, emitter.columns_kept


class _Emitter:
    """The kernel of a plan. Slots: those of the source; elements of a temporary column, and memory for these; what is made."""

    def __init__(self, plan: Plan, b: Builder, by_rows: bool) -> None:
        self.plan, self.b, self.by_rows = plan, b, by_rows
        form, slots = plan.source, itertools.count(plan.source.ndim)
        self._extents = [b.slot(d, "i64", f"n{d}") for d in range(form.ndim)]
        self._pos: dict[int, Vector] = {}
        self._crd: dict[int, Vector] = {}
        for level, d in enumerate(form.order):
            for name in form.buffer_names(level):
                slot = next(slots)
                if name == "pos":
                    self._pos[level] = Vector.in_slot(b, slot, 8, f"pos{level}")
                else:
                    self._crd[level] = Vector.in_slot(b, slot, plan.widths[d].itemsize, f"crd{level}")
        self._vals = Vector.in_slot(b, next(slots), plan.dtype.itemsize, "vals")
        self._most, self._kept = b.slot(next(slots), "i64", "most"), b.slot(next(slots), "ptr", "kept")
        self.pos = Vector.in_slot(b, next(slots), 8, "out_pos") if plan._makes_pos else None
        self.made = [Vector.in_slot(b, next(slots), t.itemsize, f"out{k}") for k, t in enumerate(plan._made)]
        self.vals = Vector.in_slot(b, next(slots), plan.dtype.itemsize, "out_vals") if plan.sorts else None
        self.columns_kept = 0

    def temporary(self, size: int) -> Vector:
        """The next temporary column."""
        b = self.b
        start = b.mul(b.mul(self._most, self.columns_kept), 8)
        self.columns_kept += 1
        return Vector(b.convert("inttoptr", b.add(b.convert("ptrtoint", self._kept, "i64"), start), "ptr"), size)

    def columns(self) -> tuple[dict[int, Vector], Val]:
        """The coordinates of every entry by dimension, and how many there are."""
        b, plan, form = self.b, self.plan, self.plan.source
        made: dict[int, Vector] = {}
        count, counted = b.i64(1), -1  # the dimension whose coordinates are the numbers of what is above
        last = len(form.runs) - 1
        for number, (first, stop) in enumerate(form.runs):
            if form.levels[first].full:
                counted = form.order[first]
                count = self._extents[counted]
                continue
            pos, parents = self._pos[first], count
            count = b.named("count", pos.get(b, parents))
            above = [d for d in (counted, *made) if d >= 0 and self._wanted(d)]
            if above and not self.by_rows:
                size = plan.widths[counted].itemsize if counted >= 0 else 8
                owners = (self._out(counted) if number == last else None) or self.temporary(size)
                conversion_loops.owners(b, parents, pos, owners)
                for d in list(made):
                    column = made[d]
                    moved = (self._out(d) if number == last else None) or self.temporary(column.size)
                    conversion_loops.take(b, count, column, owners, moved)
                    made[d] = moved
                if counted >= 0:
                    made[counted] = owners
            counted = -1
            made |= {form.order[level]: self._crd[level] for level in range(first, stop)}
        return made, count

    def _wanted(self, d: int) -> bool:
        """Whether the coordinates of a dimension are read or stored."""
        return d in self.plan.listed or not self.plan._same_pos

    def _out(self, d: int) -> Vector | None:
        """Where the coordinates of a dimension are made, unless they are moved there later."""
        if self.plan.sorts or d not in self.plan.listed:
            return None
        level, which = self.plan._places[self.plan.listed.index(d)]
        return self.made[which] if level < 0 else None

    def key(self, columns: dict[int, Vector], count: Val) -> Vector:
        """The dense levels of the target as one number."""
        made = columns[self.plan.keys[0]]
        for d in self.plan.keys[1:]:
            joined = self.temporary(8)
            conversion_loops.joined(self.b, count, self._extents[d], made, columns[d], joined)
            made = joined
        return made

    def emit(self, full: bool) -> None:
        b, plan = self.b, self.plan
        columns, count = self.columns()
        if self.pos is None:
            return
        key, zero = self.key(columns, count), b.i64(0)
        parents = b.i64(1)
        for d in plan.keys:
            parents = b.mul(parents, self._extents[d])
        if not plan.sorts:
            conversion_loops.offsets(b, zero, count, count, parents, key, self.pos, full)
            return
        assert self.vals is not None
        places = self.temporary(4)  # the last one, as it may be longer
        part = Part(zero, count, parents, zero, b.i64(-1), key, places)
        conversion_loops.counted(b, part)
        conversion_loops.summed(b, b.i64(1), parents, places, self.pos)
        moves = [(columns[d], out) for d, out in zip(plan.listed, self.made, strict=True) if d in columns]
        moves.append((self._vals, self.vals))
        if not self.by_rows:
            conversion_loops.moved(b, part, moves, ahead=False)
            return
        rows = plan.source.order[0]
        owner = self.made[plan.listed.index(rows)]
        conversion_loops.moved_by_rows(b, part, self._extents[rows], self._pos[1], owner, moves, ahead=True)


def _shared_out(entries: int, parents: int) -> bool:
    """Whether several threads are faster, each with numbers of all buckets, than one that does all at once."""
    several = threads.count()
    return several > 1 and entries >= max(SHARED, several * parents)


@functools.lru_cache(maxsize=1024)
def _plan(source: Format, target: Format, wide: tuple[bool, ...], dtype: np.dtype[Any]) -> Plan | None:
    """The plan of a conversion, of which some dimensions have coordinates of 64 bits; None where none covers it."""
    sorts = convert.counting_sorts(source, target)
    if sorts is None or dtype.itemsize not in (1, 2, 4, 8, 16):
        return None
    return Plan(source, target, [_INT64 if w else _NARROW for w in wide], dtype, bool(sorts))


def converted(storage: Storage, format: Format) -> Storage | None:
    """`storage` in another format, if a plan covers that and is worth it."""
    wide = tuple([passes.crd_dtype(n) is not _NARROW for n in storage.shape])
    plan = _plan(storage.format, format, wide, storage.vals.dtype)
    return None if plan is None else plan.run(storage)
