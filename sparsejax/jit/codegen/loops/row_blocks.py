"""Rows in blocks: what a reduction adds up is computed for all entries of a block of rows, and then added up row by row.

    for i0 in .. by 256:
      for p in pos[i0] .. pos[i0 + 256] by 8:   t[p - pos[i0] ..] = vals[p ..] * (x[crd[p]], x[crd[p + 1]], ...)
      for i in i0 .. i0 + 256:
        w = the sum of t[pos[i] - pos[i0] .. pos[i + 1] - pos[i0]], some lanes of a vector as a rule
        y[i] = w

A loop over the entries of a row ends unforeseen where rows differ in length: that costs as much as eight entries, and what the
processor has asked memory for ahead is lost. Here no branch depends on a single row. Blocks whose rows are alike in length (a stencil),
or that have too many entries (`ENTRIES`), run row by row; this is decided block by block from the lengths of some rows, so that nobody
needs to know them before. Only levels of many entries are worth it (`Program.blocks`): of few, the processor remembers all lengths.

Where processors gather fast (`host.has_gathers`), rows by themselves are faster than values that are kept (`reduce`): blocks tell only
rows that are alike and short from others.

Sums of the stored values themselves gain as well (a million rows of half an entry: 1.5 ms, 2.0 where they are read in place). Applies to
outermost loops whose body reduces one fiber into a register and goes on with the result, where what is reduced depends on no row but
through that fiber. Chunks begin where blocks do: the bits of a result do not depend on them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sparsejax.formats.levels.level import segment_below, segment_of
from sparsejax.jit.backend import host
from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen import emit, vectors
from sparsejax.jit.codegen.environment import Cursor, Env
from sparsejax.jit.codegen.loops import reduce
from sparsejax.jit.codegen.loops.sampled_lengths import EVEN, LANES, UNEVEN, differing
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import Buffer, DenseArea, Input, Scalar
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import RowSums

ENTRIES = 4096
"""Entries of a block, at most: their values stay in the first cache."""
STEP = 4
"""Entries at a time that rows are added up in (`reduce`)."""
USUAL, MOST = 3072, 32
"""Entries of the rows of a block, about, and of one row, that are read without asking whether it has as many."""
FEW = 8
"""Entries of rows that are alike, on average, below which entry by entry is fastest: the processor foresees where rows end, and is at the next
ones before the last sums are there (rows of six: a quarter less than in lanes)."""


def blocks(loop: Loop) -> None:
    """The loop, some coordinates at a time."""
    b, found, rows = loop.b, loop.plan.blocks, loop.plan.rows
    assert isinstance(found, RowSums)
    alone = host.has_gathers()
    name, dtype = f"{found.leader.tensor.name}_t", found.stmt.rhs.dtype
    kept = None if alone else loop.context.keep(name, dtype, ENTRIES + LANES)
    with b.for_(loop.begin, loop.extent, loop.var.name, rows) as first:
        end = b.named("end", b.min(b.add(first, rows), loop.extent))
        start, stop = _edge(loop, found, first), _edge(loop, found, end)
        differ = b.var("differ", b.i64(UNEVEN))
        with b.if_(b.and_(b.eq(b.sub(end, first), rows), b.lt(b.sub(stop, start), ENTRIES + 1))):
            place_of, edges = partial(_place_of, loop, found), _buffers(loop, found)[1]["pos"].pointer
            b.set(differ, differing(b, edges, place_of, first, rows, 1 if alone else STEP))

        def at_once(first: Val = first, end: Val = end, start: Val = start, stop: Val = stop) -> None:
            assert kept is not None
            _fill(loop, found, kept, first, start, stop)
            with b.for_(first, end, loop.var.name, some=True) as row:
                _row(loop, found, kept, row, start, max(LANES, min(MOST, USUAL // rows)))

        def one_by_one(scalar_sums: bool = False, first: Val = first, end: Val = end) -> None:
            with b.for_(first, end, loop.var.name, some=True) as row:
                replace(loop, env=loop.env.in_mode(scalar_sums=scalar_sums)).at(row, frozenset(), {})

        few = b.and_(b.lt(b.sub(stop, start), FEW * rows), b.lt(b.get(differ), EVEN))
        rest = partial(b.if_else, few, partial(one_by_one, True), one_by_one)
        if alone:
            rest()
        else:
            b.if_else(b.lt(b.i64(UNEVEN), b.get(differ)), at_once, rest)


def _place_of(loop: Loop, found: RowSums, row: Val) -> Val:
    """The number of a row's segment."""
    return _at_row(loop, found, row).cursors[found.leader].pos


def _at_row(loop: Loop, found: RowSums, row: Val) -> Env:
    return loop.context.resolve(loop.env.bind(loop.var, row), found.where)


def _buffers(loop: Loop, found: RowSums) -> tuple[Input, dict[str, Buffer]]:
    operand = loop.context.operands[found.leader.tensor.name]
    assert isinstance(operand, Input)
    return operand, operand.buffers[found.level + 1]


def _edge(loop: Loop, found: RowSums, row: Val) -> Val:
    """Where the entries of a row begin, which may be the one behind the last."""
    _, buffers = _buffers(loop, found)
    return loop.b.load(buffers["pos"].pointer, _at_row(loop, found, row).cursors[found.leader].pos, "i64", "edge")


def _fill(loop: Loop, found: RowSums, kept: DenseArea, first: Val, start: Val, stop: Val) -> None:
    """What is added up, for all entries of a block, `LANES` at a time: those behind its end are not read again."""
    b, (operand, buffers), stmt = loop.b, _buffers(loop, found), found.stmt
    segment = segment_of(b, buffers, start, stop)
    inner = replace(loop, var=found.var, env=_at_row(loop, found, first))
    walker = Walker(found.leader, found.level + 1, segment, ranged=False)
    stored = operand.stored(b, found.level + 1)
    assert stored is not None
    values = reduce.reader(inner, stmt, walker, LANES)
    whole = b.and_(b.add(b.sub(stop, start), LANES - 1), b.i64(-LANES))
    end = b.named("end", b.add(start, b.min(whole, b.and_(b.sub(stored, start), b.i64(-LANES)))))
    with b.for_(start, end, "p", LANES) as place:
        emit.store(b, kept.vals, b.sub(place, start), values(place))
    single = reduce.reader(inner, stmt, walker, 1)
    with b.for_(end, stop, "p") as place:
        emit.store(b, kept.vals, b.sub(place, start), single(place))


def _row(loop: Loop, found: RowSums, kept: DenseArea, row: Val, start: Val, usual: int) -> None:
    """Add up one row, which mostly has so many entries, and go on with the sum."""
    b, context, (_, buffers) = loop.b, loop.context, _buffers(loop, found)
    env, position = _at_row(loop, found, row), cin.IndexVar(f"{found.var.name}_t")
    segment = segment_below(b, buffers, env.cursors[found.leader].pos)
    read = cin.Access(kept.tensor, (position,))
    scalar = found.stmt.lhs.tensor
    env = env.with_register(scalar.name, Scalar(b, scalar, False, context.sum_of(found.where, scalar, env)))
    env = env.with_cursors({read: Cursor(0, b.i64(0))})
    vector = vectors.VectorLoop(context, env, position, replace(found.stmt, rhs=read))
    vector.run_few(
        vector.prepared(env), b.sub(segment.lo, start), b.sub(segment.hi, start), None, -(-usual // vector.widths[0])
    )
    vector.finish(env)
    context.emit(found.where.consumer, env)
