"""Entries that come from outside are looked at, and copied on the way: what one kernel runs.

    pos 0 2 3    crd 0 4 2    extent 5    vals a b c
    outside      whether pos falls, or a coordinate is outside
    falls        entries whose coordinates are no larger than those of the one before: 1 (the 2 behind the 4), less those that begin a segment: 1

All entries are compared with the one before, a vector at a time, wherever segments begin; of entries without segments, until some fall. The first ones
of segments are looked at by themselves, so that nothing branches for each entry. Each thread has a part of the entries, and one of the segments.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.formats.admission import Admitted
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.backend.compiler import Kernel, check
from sparsejax.jit.codegen import kernel_memory
from sparsejax.jit.codegen.abi import ALIGNMENT
from sparsejax.jit.cost.machine import FAR
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, address, as_kernel, run, run_parts, vectors
from sparsejax.jit.runtime.system import result_memory, threads
from sparsejax.jit.runtime.system.result_memory import word_at

OUTSIDE, FALLS = range(2)
"""What a kernel tells."""
LANES, BLOCK = 16, 4096
"""Entries that are compared at once, and after how many it is seen whether some fall."""
TOGETHER = 1 << 20
"""Bytes of results that share a block: what is kept of one keeps all of it, and to take a block in place of three is a third of a small copy."""


def admitted(
    pos: Array | None, columns: Sequence[Array], extents: Sequence[int], vals: Array, copies: bool
) -> Admitted | None:
    """See `formats.passes`."""
    count, rows, pos_size = len(vals), 0, 0
    found = [*map(np.ascontiguousarray, columns), np.ascontiguousarray(vals)]
    if pos is not None:
        pos = np.ascontiguousarray(pos)
        rows, pos_size = len(pos) - 1, pos.itemsize
    sizes, alone = tuple([column.itemsize for column in found]), count < FAR or threads.count() == 1
    narrow = tuple(map(crd_dtype, extents))
    if copies and alone and 8 * rows + count * (8 * len(columns) + sizes[-1]) <= TOGETHER:
        return _together(pos_size, sizes, narrow, vals.dtype)(pos, found, extents)
    vals = found[-1]
    slots: list[int | Array] = []
    if pos is not None:
        ends, place = result_memory.fresh(rows + 1, INT64, None)
        slots += pos, place
        pos = ends
    for k, extent in enumerate(extents):
        slots += extent, found[k]
        if copies:
            found[k], place = result_memory.fresh(count, narrow[k], None)
            slots.append(place)
    if copies:
        found[-1], place = result_memory.fresh(count, vals.dtype, None)
        slots += vals, place
    outs = tuple([dtype.itemsize for dtype in narrow]) if copies else ()
    kernel = _admitted(pos_size, sizes[:-1], outs, sizes[-1] if copies else 0)
    if alone:
        told = np.empty(2, INT64)
        run(kernel, 0, rows, 0, count, count, told, *slots)
        outside, falls = told.tolist()
    else:
        outside, falls = _in_parts(kernel, rows, count, slots)
    if outside:
        return None
    return pos, found[:-1], found[-1], not falls


@functools.cache
def _together(
    pos_size: int, sizes: tuple[int, ...], narrow: tuple[np.dtype[Any], ...], kind: np.dtype[Any]
) -> Callable[[Array | None, Sequence[Array], Sequence[int]], Admitted | None]:
    """`admitted`, with copies, of vectors of these sizes, the last one of values, as a function: all copies are in one block, which an earlier result of
    the function had where nobody refers to it any more, behind what the kernel tells."""
    widths, size = tuple([dtype.itemsize for dtype in narrow]), kind.itemsize
    kernel, take = _admitted(pos_size, sizes[:-1], widths, size), result_memory.blocks()
    made_of, each = tuple(zip(narrow, widths, strict=True)), sum(widths) + size
    spare = ALIGNMENT * (len(sizes) + 2)
    pack = struct.Struct(f"{5 + 2 * bool(pos_size) + 3 * len(sizes)}q").pack

    def admit(pos: Array | None, given: Sequence[Array], extents: Sequence[int]) -> Admitted | None:
        vals = given[-1]
        count, rows, room = len(vals), 0, spare + len(vals) * each
        if pos is not None:
            rows = len(pos) - 1
            room += 8 * rows
        whole, begin, told = take(room)
        slots, made, ends = [0, rows, 0, count, count, told], [], None
        at = ALIGNMENT
        if pos is not None:
            end = at + 8 * rows + 8
            slots += address(pos), told + at
            ends = whole[begin + at : begin + end].view(INT64)
            at = end + ALIGNMENT - 1 & -ALIGNMENT
        for (dtype, width), column, extent in zip(made_of, given, extents, strict=False):
            end = at + count * width
            slots += extent, address(column), told + at
            made.append(whole[begin + at : begin + end].view(dtype))
            at = end + ALIGNMENT - 1 & -ALIGNMENT
        slots += address(vals), told + at
        status = kernel.run_packed(pack(*slots))
        if status:
            check(status)
        if word_at(told):
            return None
        begin += at
        return ends, made, whole[begin : begin + count * size].view(kind), not word_at(told + 8)

    return admit


def _in_parts(kernel: Kernel, rows: int, count: int, slots: Sequence[int | Array]) -> list[int]:
    """What parts tell, together."""
    parts = threads.count()
    told, behind = np.empty((parts, 2), INT64), [s if isinstance(s, int) else address(s) for s in slots]
    shares = [list(itertools.pairwise(n * k // parts for k in range(parts + 1))) for n in (rows, count)]
    run_parts(
        kernel,
        [
            (*own, *part, count, address(told) + 16 * k, *behind)
            for k, (own, part) in enumerate(zip(*shares, strict=True))
        ],
    )
    together: list[int] = told.sum(axis=0).tolist()
    return together


@as_kernel
def _admitted(b: Builder, pos_size: int, sizes: tuple[int, ...], made_sizes: tuple[int, ...], vals_size: int) -> None:
    names = "row", "rows", "first", "end", "count"
    row, rows, first, end, count = (b.slot(k, "i64", name) for k, name in enumerate(names))
    told, slot = Vector.in_slot(b, 5, 8, "told"), 6
    pos, made = vectors(b, slot, (pos_size, 8), ("pos", "made")) if pos_size else (None, None)
    slot += 2 if pos_size else 0
    columns, targets, extents = [], [], []
    for k, size in enumerate(sizes):
        extents.append(b.slot(slot, "i64", "extent"))
        columns.append(Vector.in_slot(b, slot + 1, size, "column"))
        slot += 2
        if made_sizes:
            targets.append(Vector.in_slot(b, slot, made_sizes[k], "target"))
            slot += 1
    falls, outside = b.var("falls", b.i64(0)), b.var("outside", b.const("i1", 0))

    def look(at: Val, lanes: int, tops: Sequence[Any], follows: bool = True) -> None:
        """Some entries, which others stand before if they follow."""
        increases: Val | None = None
        for k, (column, top) in reversed(list(enumerate(zip(columns, tops, strict=True)))):
            kind = f"<{lanes} x {column.type}>" if lanes > 1 else column.type
            here = b.named("here", b.load(column.pointer, at, kind))
            b.set(top, b.select(b.compare("ult", b.get(top), here), here, b.get(top)))
            if targets:
                narrow, target = _as(b, here, targets[k].type, lanes), targets[k]
                b.store(target.pointer, at, narrow)
            if follows:
                before = b.load(column.pointer, b.sub(at, 1), kind)
                larger = b.compare("ugt", here, before)
                if increases is not None:
                    larger = b.binary("or", larger, b.and_(b.compare("eq", here, before), increases))
                increases = b.named("increases", larger)
        if increases is not None:
            b.increment(falls, b.sub(b.i64(lanes), _set(b, increases, lanes)))

    singles = [b.var("top", b.const(column.type, 0)) for column in columns]
    wide = [b.var("tops", b.splat(b.const(column.type, 0), LANES)) for column in columns]
    at = b.var("at", first)
    with b.if_(b.and_(b.eq(first, 0), b.lt(first, end))):
        look(first, 1, singles, follows=False)
        b.set(at, b.i64(1))
    with b.while_(lambda: b.lt(b.add(b.get(at), LANES - 1), end)):
        begin = b.named("begin", b.get(at))
        left = b.binary("sdiv", b.sub(b.min(end, b.add(begin, BLOCK)), begin), b.i64(LANES))
        stop = b.named("stop", b.add(begin, b.mul(left, LANES)))
        with b.for_(begin, stop, "p", step=LANES) as p:
            look(p, LANES, wide)
        b.set(at, stop)
        if pos is None:
            b.set(at, b.select(b.eq(b.get(falls), 0), stop, end))
    with b.for_(b.get(at), end, "p") as p:
        look(p, 1, singles)
    for single, tops, extent in zip(singles, wide, extents, strict=True):
        most = b.call(f"llvm.vector.reduce.umax.v{LANES}{single.type}", single.type, [b.get(tops)])
        top = _as(b, b.select(b.compare("ult", most, b.get(single)), b.get(single), most), "i64", 1)
        # of entries none are outside of an extent of 0
        some = b.lt(first, end)
        b.set(outside, b.binary("or", b.get(outside), b.and_(some, b.compare("uge", top, extent))))
    if vals_size:
        vals, copied = vectors(b, slot, (vals_size, vals_size), ("vals", "copied"))
        begin = b.named("begin", b.mul(first, vals_size))
        to, given = (kernel_memory.moved(b, vector.pointer, begin) for vector in (copied, vals))
        many = b.sub(end, first)
        if pos is None:
            many = b.select(b.eq(b.get(falls), 0), many, b.i64(0))
        b.call("memcpy", "ptr", [to, given, b.mul(many, vals_size)])
    if pos is not None and made is not None:
        _segments(b, (row, rows), count, pos, made, columns[0], falls, outside)
    told.put(b, b.i64(OUTSIDE), b.convert("zext", b.get(outside), "i64"))
    told.put(b, b.i64(FALLS), b.get(falls))


def _segments(
    b: Builder,
    share: tuple[Val, Val],
    count: Val,
    pos: Vector,
    made: Vector,
    crd: Vector,
    falls: Any,
    outside: Any,
) -> None:
    """Whether `pos` never falls, and does not begin before 0; entries that begin a segment may be smaller than the one before."""
    begin = b.var("begin", b.i64(0))
    b.set(begin, _as(b, pos.get(b, share[0]), "i64", 1))
    wrong = b.and_(b.eq(share[0], 0), b.ne(b.get(begin), 0))
    b.set(outside, b.binary("or", b.get(outside), wrong))
    made.put(b, share[0], b.get(begin))
    with b.for_(*share, "r") as r:
        here, end = b.get(begin), b.named("end", _as(b, pos.get(b, b.add(r, 1)), "i64", 1))
        made.put(b, b.add(r, 1), end)
        b.set(outside, b.binary("or", b.get(outside), b.lt(end, here)))
        b.set(begin, end)
        inside = b.and_(b.lt(b.i64(0), here), b.lt(here, count))
        with b.if_(b.and_(b.lt(here, end), inside)):
            smaller = b.compare("ule", crd.get(b, here), crd.get(b, b.sub(here, 1)))
            b.set(falls, b.sub(b.get(falls), b.convert("zext", smaller, "i64")))


def _as(b: Builder, value: Val, kind: str, lanes: int) -> Val:
    """A number, or some, as others of that type, negative ones as such."""
    wide = f"<{lanes} x {kind}>" if lanes > 1 else kind
    if value.type == wide:
        return value
    return b.convert("sext" if kind == "i64" else "trunc", value, wide)


def _set(b: Builder, flags: Val, lanes: int) -> Val:
    """How many of some flags hold."""
    if lanes == 1:
        return b.convert("zext", flags, "i64")
    bits = b.convert("bitcast", flags, f"i{lanes}")
    return b.convert("zext", b.call(f"llvm.ctpop.i{lanes}", f"i{lanes}", [bits]), "i64")
