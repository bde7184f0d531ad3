"""What register tiles fetch before they read it, whose rows are entries of a walk (`loops/row_tiles`): nothing of it follows in memory what was read before.

    for p in lo .. end by 6:
      for j0 in 0 .. m by 16:
        fetch Out[r0, j0], ..., Out[r5, j0]              what this tile adds to, when its sums are done
        fetch In[n6, j0], ..., In[n11, j0]               the rows of the next tile, of which every strip fetches its part
        for c in 0 .. channels:
          fetch W[k, c + 8, j0]                          where all that rows share is larger than the first cache
          w = W[k, c, j0 .. j0 + 15]
          t0 += In[n0, c] * w
          ...
Of a walk over blocks, or over groups of them slot by slot, what the rows of a tile share is fetched two blocks ahead: by the strip, where sums are held over
the walk; where each block adds its own, a row for each row of the tile. Values of blocks follow each other in memory: some kilobytes behind those that
are read now, others are fetched.

Convolutions of point clouds with 128 channels, in C: the first two gain 1.03 to 1.08, all three 1.09 to 1.15 on one of them (float32, an EPYC of the third
generation). `W` packed into strips, whose lines do not share sets of the first cache, gains 1.02 to 1.04.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen.context import Context
from sparsejax.jit.codegen.environment import Env, Strip
from sparsejax.jit.codegen.kernel_memory import LINE
from sparsejax.jit.codegen.kernel_memory import prefetch as prefetch_line
from sparsejax.jit.codegen.loops import prefetch
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import DenseArea, Input
from sparsejax.jit.cost import machine
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import Leaders

AHEAD = 8
"""How many coordinates of the innermost reduction ahead what rows share is fetched (16 is no better)."""
BLOCKS, MOST, SLOTS = 2, 24, 4
"""How many blocks ahead of a walk what these meet is fetched, how many lines a tile fetches of a block at most, and of how many blocks that are walked at once.
Products of 4096^2 in blocks of 8x8 and 32x32 float32 with 128 and 512 columns take 0.85 to 0.93 of the time so (Sapphire Rapids; C code 0.8 to 0.93)."""


VALUES = 2048
"""How many bytes behind the values that a tile reads of a block others are fetched: the processor does not look past the end of a page. Products of 4096^2,
half of whose blocks of 8x8 float32 are stored, take 0.73 to 0.81 of the time so, of 32x32 0.83 to 0.97; with 1,024 and 4,096 bytes as long (loaded)."""


def of_strip(context: Context, body: cin.Stmt, env: Env) -> None:
    """Fetch what the rows of the strip of `env` write, and a part of what those of the next tile read."""
    strip = env.mode.strip
    if strip is None or strip.rows is None or not isinstance(body, cin.Where):
        return
    if env.mode.ahead and strip.rows.at is None:
        _next_block(context, body.producer, env, strip)
        _next_values(context, body.producer, env, strip)
    if strip.rows.later is None:
        return
    _results(context, body.consumer, env, strip)
    loops, inner = cin.nested(body.producer)
    if isinstance(inner, cin.Assign):
        _next_rows(context, inner, loops, env, strip)


def of_shared(context: Context, access: cin.Access, position: Val, strip: Strip) -> None:
    """Fetch what all rows of `strip` will read of `access`, now read at `position`, at a later coordinate of the innermost reduction."""
    rows, form = strip.rows, access.tensor.format
    operand = context.operands.get(access.tensor.name)
    if rows is None or rows.later is None or not isinstance(operand, Input):
        return
    last = len(access.indices) - 1
    if rows.tell(access) or not form.is_dense or last < 1:
        return
    if access.level_index(last) != strip.var or access.level_index(last - 1) != rows.innermost:
        return
    size = access.dtype.itemsize
    extents = (int(context.program.extent(v)) for v in cin.bound_by(access) if v in (strip.var, *rows.reductions))
    if strip.lanes * size < LINE or math.prod(extents) * size <= machine.current().caches[0]:
        return
    b, span = context.b, context.axis_of_level(access, last).span
    prefetch_line(b, operand.vals, b.add(position, b.mul(span, AHEAD)), size)


def of_blocks(loop: Loop, key: Leaders, walker: Walker, place: Val, end: Val | None = None) -> Loop:
    """The loop over blocks, now at `place`, or at a range that ends at `end`, as it runs where a later block's part of dense operands is fetched: by the
    strip around it, or by tiles inside."""
    strip, b = loop.env.mode.strip, loop.b
    here = loop.env.with_cursors({walker.access: walker.cursor(place, end, walker.segment.coordinate(place))})

    def ahead(env: Env, read: cin.Access) -> Env:
        there = env._replace(cursors=here.cursors)
        slot = _slot(loop, env, read)
        if slot is None:
            return there.bind(loop.var, prefetch.soon(loop, walker, place, BLOCKS))
        extent, number = loop.context.bound(slot, env), b.add(env.bound[slot], BLOCKS)
        behind = b.compare("sge", number, extent)
        entry = b.select(behind, prefetch.soon(loop, walker, place, 1), env.bound[loop.var])
        found = b.min(b.select(behind, b.sub(number, extent), number), b.sub(extent, 1))
        return there.bind(loop.var, entry).bind(slot, found)

    walks = (*loop.env.mode.ahead, (loop.var, ahead))
    if strip is None:
        return replace(loop, env=loop.env.in_mode(ahead=walks)) if b.has_masks() else loop
    now = here.bind(loop.var, walker.segment.coordinate(place)).in_mode(ahead=walks[-1:])
    held(loop.context, loop.cases[key], now, strip)
    return loop


def held(context: Context, stmt: cin.Stmt, env: Env, strip: Strip) -> None:
    """Fetch what the whole tile of `strip`, whose sums are held over the walk around `stmt`, will read at later blocks of it (`env.mode.ahead`)."""
    if strip.rows is not None and strip.rows.at is None and context.b.has_masks():
        _next_block(context, stmt, env, strip, whole=True)
        _next_values(context, stmt, env, strip, whole=True)


def _slot(loop: Loop, env: Env, read: cin.Access) -> cin.IndexVar | None:
    """The loop over the slots of a group inside of a walk over groups, now at `env`, if each slot leads `read` to a block of its own; None where the walk
    alone does, or its entries have fewer slots than blocks are fetched ahead."""
    strip = env.mode.strip
    inside = [v for v in cin.bound_by(read) if v in env.bound and v not in loop.env.bound and v != loop.var]
    slots = [v for v in inside if strip is None or v != strip.var]
    if len(slots) != 1 or int(loop.context.program.extent(slots[0])) < BLOCKS:
        return None
    return slots[0]


def _next_block(context: Context, stmt: cin.Stmt, env: Env, strip: Strip, whole: bool = False) -> None:
    """Fetch what the strip will read of dense operands at a later block of the innermost walk around that picks it: of all rows, or of as many as this tile
    has, so that each tile of rows fetches its part."""
    loops, inner = cin.nested(stmt)
    rows, b = strip.rows, context.b
    if not loops or not isinstance(inner, cin.Assign) or rows is None:
        return
    found = [a for a in dict.fromkeys(cin.accesses(inner.rhs)) if _shared(context, a, loops, strip)]
    lines = max(1, strip.lanes * strip.vectors * inner.rhs.dtype.itemsize // LINE)
    *slots, row = loops
    extents = [int(context.program.extent(v)) for v in slots]
    each = int(context.program.extent(row)) if whole else rows.count
    if len(found) != 1 or each * lines > MOST or math.prod(extents) > SLOTS:
        return
    (access,) = found
    operand, size = context.operands[access.tensor.name], access.dtype.itemsize
    later = [state for var, state in env.mode.ahead if var in cin.bound_by(access)]
    if not isinstance(operand, (Input, DenseArea)) or not later:
        return
    there = later[-1](env, access)
    for *slot, number in itertools.product(*map(range, (*extents, each))):
        here = there.bind(row, b.i64(number) if whole else b.add(rows.first, number))
        for var, place in zip(slots, slot, strict=True):
            here = here.bind(var, b.i64(place))
        position = context.resolve(here, inner).cursors[access].pos
        for line in range(lines):
            prefetch_line(b, operand.vals, b.add(position, line * LINE // size), size)


def _next_values(context: Context, stmt: cin.Stmt, env: Env, strip: Strip, whole: bool = False) -> None:
    """Fetch what lies some bytes behind the values of a block that the rows of this tile read side by side: all of them, or this strip's part."""
    loops, inner = cin.nested(stmt)
    rows, b = strip.rows, context.b
    if not loops or not isinstance(inner, cin.Assign) or rows is None:
        return
    *slots, last = loops
    extents = [int(context.program.extent(v)) for v in slots]
    found = [a for a in dict.fromkeys(cin.accesses(inner.rhs)) if _of_rows(context, a, rows.var, last, strip)]
    if math.prod(extents) > SLOTS:
        return
    count = rows.count * int(context.program.extent(last))
    strips = 1 if whole else -(-int(context.program.extent(strip.var)) // (strip.lanes * strip.vectors))
    for access, slot in itertools.product(found, itertools.product(*map(range, extents))):
        here = env.bind(rows.var, rows.first).bind(last, b.i64(0))
        for var, place in zip(slots, slot, strict=True):
            here = here.bind(var, b.i64(place))
        operand, size = context.operands[access.tensor.name], access.dtype.itemsize
        assert isinstance(operand, Input)
        each = -(-count * size // (LINE * strips))
        position = b.add(context.resolve(here, inner).cursors[access].pos, VALUES // size)
        if strips > 1:
            number = b.binary("sdiv", env.bound[strip.var], b.i64(strip.lanes * strip.vectors))
            position = b.add(position, b.mul(number, each * LINE // size))
        for line in range(min(MOST, each)):
            prefetch_line(b, operand.vals, b.add(position, line * LINE // size), size)


def _of_rows(context: Context, access: cin.Access, row: cin.IndexVar, last: cin.IndexVar, strip: Strip) -> bool:
    """Whether what the rows of a tile read of an operand lies side by side: its last two levels are dense, along `row` and the reduction inside."""
    inner, levels = len(access.indices) - 1, access.tensor.format.levels
    if not isinstance(context.operands.get(access.tensor.name), Input) or inner < 2:
        return False
    pair = (access.level_index(inner - 1), access.level_index(inner)) == (row, last)
    return pair and all(level.full for level in levels[-2:]) and strip.var not in cin.bound_by(access)


def _shared(context: Context, access: cin.Access, loops: list[cin.IndexVar], strip: Strip) -> bool:
    """Whether all rows of a strip read a row of a dense operand, one for each coordinate of the reduction inside."""
    assert strip.rows is not None
    last = access.indices and access.level_index(len(access.indices) - 1)
    dense = access.tensor.format.is_dense and access.tensor.policy in (None, "dense")
    return bool(dense and last == strip.var and loops[-1] in access.indices and not strip.rows.tell(access))


def _results(context: Context, consumer: cin.Stmt, env: Env, strip: Strip) -> None:
    """Fetch what the tile will add its sums to."""
    assert strip.rows is not None
    if not isinstance(consumer, cin.Assign):
        return
    b, tensor = context.b, consumer.lhs.tensor
    area = context.operands.get(tensor.name)
    values = area.vals if isinstance(area, DenseArea) else context.output.vals(b)
    for number in range(strip.rows.count):
        here = context.resolve(strip.rows.bound(b, env, number), consumer)
        prefetch_line(b, values, here.cursors[consumer.lhs].pos, tensor.dtype.itemsize)


def _next_rows(context: Context, inner: cin.Assign, loops: list[cin.IndexVar], env: Env, strip: Strip) -> None:
    """Fetch a part of the rows that entries of the next tile lead to, as large as leaves none over after the last strip."""
    rows, b = strip.rows, context.b
    assert rows is not None and rows.later is not None
    found = [
        a
        for a in dict.fromkeys(cin.accesses(inner.rhs))
        if a.tensor.format.is_dense
        and isinstance(context.operands.get(a.tensor.name), Input)
        and rows.tell(a)
        and a.level_index(len(a.indices) - 1) in loops
    ]
    if not found:
        return
    strips = -(-int(context.program.extent(strip.var)) // (strip.lanes * strip.vectors))
    number = b.binary("sdiv", env.bound[strip.var], b.i64(strip.lanes * strip.vectors))
    for row in range(rows.count):
        there = rows.later(env, row)
        for var in loops:
            there = there.bind(var, b.i64(0))
        there = context.resolve(there, inner)
        for access in found:
            operand, size = context.operands[access.tensor.name], access.dtype.itemsize
            assert isinstance(operand, Input)
            length = math.prod(int(context.program.extent(v)) for v in loops if v in access.indices)
            lines = -(-length * size // LINE)
            each = -(-lines // strips)
            for line in range(each):
                offset = b.add(b.mul(number, each * LINE // size), line * LINE // size)
                position = b.add(there.cursors[access].pos, b.min(offset, b.i64(length - 1)))
                prefetch_line(b, operand.vals, position, size)


def reductions(stmt: cin.Forall) -> tuple[cin.IndexVar, ...]:
    """What is reduced inside of a tile."""
    return tuple(cin.nested(stmt.body.producer)[0]) if isinstance(stmt.body, cin.Where) else ()
