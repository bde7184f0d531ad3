"""Loops distributed over blocks of short rows: every statement of a body runs over all entries of a block before the next one does.

before:  for i:  m = max of A[i, :];  s = sum of exp(A[i, :] - m);  out[i, :] = exp(A[i, :] - m) / s

after:   for i0 in .. by 1024:
           r[p - p0] = i - i0                     for the entries p of every row i of the block, p0 the first one
           m[..] = -inf;   for p: m[r[p]] = max(m[r[p]], A[p])
           s[..] = 0;      for p by 8: t[p ..] = exp(A[p ..] - (m[r[p]], m[r[p + 1]], ...);   for p: s[r[p]] += t[p]
           for p by 8:     out[p ..] = exp(A[p ..] - (m[r[p]], ...)) / (s[r[p]], ...)

Registers of a row become an array over the rows of a block (scalar expansion). Where rows hold less than two entries on average, a loop
per row and statement ends unforeseen nearly every time, and lanes are mostly empty (softmax of a million rows of half an entry: 7.5 ms
by rows). No branch depends on a single row here. Blocks with more entries than rows can
bear (`ENTRIES`, `ONE`, `SEVERAL`) run row by row; this is decided block by block.

Applies to outermost loops over rows whose body is made of reductions of fibers into registers, of values at the positions of a
fiber, and of what is computed once per row. A statement reads other operands densely, wherever they are. Chunks begin where blocks do:
the bits of a result do not depend on them.

Source: loop distribution with scalar expansion, R. Allen and K. Kennedy, "Automatic Translation of FORTRAN Programs to Vector Form",
TOPLAS 1987; the flattened loop over entries is the segmented reduction of "Implementation of a Portable Nested Data-Parallel
Language" (Blelloch et al., 1993).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsejax.formats.levels.level import segment_below, segment_of
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen import emit, register_tiles, vectors
from sparsejax.jit.codegen.environment import Cursor, Env
from sparsejax.jit.codegen.kernel_memory import moved
from sparsejax.jit.codegen.loops.reduce import leaves
from sparsejax.jit.codegen.loops.sampled_lengths import EVEN, differing
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import DenseArea, Input
from sparsejax.jit.ir import cin, lanewise
from sparsejax.jit.ir.loop_plans import RowStages, Stage
from sparsejax.jit.rewrite import vectorize

ENTRIES = 4096
"""Entries of a block, at most: what is kept for them stays in the first caches."""
ONE, SEVERAL = 3, 4
"""Entries of a row, on average over a block, up to which it is computed at once: bodies of one statement over entries, and of more (the
crossing points measured: two and a half, and four to five)."""
MOST = 1024
"""Rows of a block from which on rows by themselves are so rare that they have no code for few entries."""
MARKS = 4
"""Entries whose row is noted at once."""
ROW = np.dtype(np.int32)


@dataclass(frozen=True)
class _Block:
    """A block in work: its rows, and by walked operand where its entries begin and end, and the number of the row of each."""

    first: Val
    end: Val
    edges: dict[str, tuple[Val, Val]]
    rows: dict[str, DenseArea]


def blocks(loop: Loop) -> None:
    """The loop, some coordinates at a time."""
    b, context, found, rows = loop.b, loop.context, loop.plan.blocks, loop.plan.rows
    assert isinstance(found, RowStages)
    spare, keep = register_tiles.VECTOR_BYTES // ROW.itemsize, context.keep
    numbered = found.numbered(loop.var)
    maps = {a.tensor.name: keep(f"{a.tensor.name}_rows", ROW, ENTRIES + spare) for a in numbered}
    others = {a: _apart(loop, numbered[0], a, maps) for a in numbered[1:]}
    kept = {t.name: keep(f"{t.name}_kept", dtype, rows + spare) for t, dtype in found.registers.items()}
    types = dict.fromkeys(found.registers[s.stmt.lhs.tensor] for s in found.stages if _in_two_steps(s))
    values = {dtype: keep(f"entries_{dtype}", dtype, ENTRIES + spare) for dtype in types}
    with b.for_(loop.begin, loop.extent, loop.var.name, rows) as first:
        end = b.named("end", b.min(b.add(first, rows), loop.extent))
        edges = {a.tensor.name: (_edge(loop, a, first), _edge(loop, a, end)) for a in found.leaders}
        most = b.min(b.i64(ENTRIES), b.mul(b.sub(end, first), b.i64(ONE if found.single else SEVERAL)))
        few = b.const("i1", 1)
        for start, stop in edges.values():
            few = b.and_(few, b.lt(b.sub(stop, start), b.add(most, 1)))
        if found.single:
            few = b.and_(few, _differ(loop, found.leaders[0], first, end, rows))

        def at_once(block: _Block = _Block(first, end, edges, maps)) -> None:
            for leader in numbered[:1]:
                _number_rows(loop, block, leader)
            for leader, apart in others.items():
                with b.if_(apart):
                    _number_rows(loop, block, leader)
            for tensor in found.registers:
                _start(b, kept[tensor.name], tensor, b.sub(block.end, block.first))
            for stage in found.stages:
                if stage.leader is None:
                    _once_per_row(loop, stage, block, kept)
                elif stage.reduces:
                    _reduce(loop, stage, block, kept, values)
                else:
                    _store(loop, stage, block, kept)

        def by_rows(first: Val = first, end: Val = end) -> None:
            with b.for_(first, end, loop.var.name, some=True) as row:
                replace(loop, env=loop.env.in_mode(short_rows=rows < MOST)).at(row, frozenset(), {})

        b.if_else(few, at_once, by_rows)


def _differ(loop: Loop, leader: cin.Access, first: Val, end: Val, rows: int) -> Val:
    """Whether the rows of a block differ in length: those that are alike are faster one by one."""
    b, count = loop.b, loop.b.var("differ", loop.b.i64(EVEN))
    with b.if_(b.eq(b.sub(end, first), rows)):
        b.set(count, differing(b, _buffers(loop, leader)["pos"].pointer, lambda row: row, first, rows, 1))
    return b.lt(b.i64(EVEN - 1), b.get(count))


def _buffers(loop: Loop, leader: cin.Access) -> dict[str, Any]:
    operand = loop.context.operands[leader.tensor.name]
    assert isinstance(operand, Input)
    return operand.buffers[1]


def _edge(loop: Loop, leader: cin.Access, row: Val) -> Val:
    """Where the entries of a row begin, which may be the one behind the last."""
    return loop.b.load(_buffers(loop, leader)["pos"].pointer, row, "i64", "edge")


def _apart(loop: Loop, first: cin.Access, leader: cin.Access, maps: dict[str, DenseArea]) -> Val:
    """Whether the entries of `leader` are in other rows than those of the `first` operand; else (an array that is read twice) both
    share the numbers of the rows."""
    b, (one, two) = loop.b, (_buffers(loop, a)["pos"].pointer for a in (first, leader))
    apart = b.named("apart", b.ne(*(b.convert("ptrtoint", pointer, "i64") for pointer in (one, two))))
    area = maps[leader.tensor.name]
    area.vals = b.named("rows", b.select(apart, area.vals, maps[first.tensor.name].vals))
    return apart


def _number_rows(loop: Loop, block: _Block, leader: cin.Access) -> None:
    """Note the row of every entry of a block: of some at once, those of the next row over what was too many."""
    b, area = loop.b, block.rows[leader.tensor.name]
    start, stop = block.edges[leader.tensor.name]
    with b.for_(block.first, block.end, loop.var.name, some=True) as row:
        segment = segment_below(b, _buffers(loop, leader), row)
        number = b.splat(b.convert("trunc", b.sub(row, block.first), "i32"), MARKS)
        with b.for_(segment.lo, segment.hi, "p", MARKS, some=True) as place:
            b.store(area.vals, b.sub(place, start), number)
    spare = register_tiles.VECTOR_BYTES // ROW.itemsize
    b.store(area.vals, b.sub(stop, start), b.splat(b.const("i32", 0), spare))  # lanes behind the last entry read it


def _start(b: Builder, area: DenseArea, tensor: cin.Tensor, rows: Val) -> None:
    """Set what is kept of all rows to what an empty row has."""
    lanes = 1 if tensor.dtype.kind in "bc" else register_tiles.VECTOR_BYTES // area.tensor.dtype.itemsize
    nothing = emit.splat(b, emit.constant(b, tensor.fill_value, area.tensor.dtype), lanes)
    with b.for_(b.i64(0), rows, "row", lanes, some=True) as row:
        emit.store(b, area.vals, row, nothing)


def _put(b: Builder, area: DenseArea, op: str | None, row: Val, value: emit.Num) -> None:
    dtype = area.tensor.dtype
    value = emit.cast(b, value, dtype)
    if op is not None:
        value = emit.apply(b, op, [area.leaf(b, row), value], dtype)
    emit.store(b, area.vals, row, value)


def _once_per_row(loop: Loop, stage: Stage, block: _Block, kept: dict[str, DenseArea]) -> None:
    """A statement of all rows, with arrays over these in place of registers: in lanes where its operands are contiguous."""
    b, context, stmt = loop.b, loop.context, stage.stmt
    used = {a.tensor.name: kept[a.tensor.name] for a in (stmt.lhs, *cin.accesses(stmt.rhs)) if a.tensor.name in kept}
    arrays = {name: cin.Access(area.tensor, (loop.var,)) for name, area in used.items()}
    stmt = _over_rows(stmt, arrays)
    env = loop.env.with_cursors({array: Cursor(0, b.i64(0)) for array in arrays.values()})
    with _from(b, used.values(), block.first):
        if vectorize.vectorizable(cin.Forall(loop.var, stmt)):
            vector = vectors.VectorLoop(context, env, loop.var, stmt)
            vector.run(vector.prepared(env), block.first, block.end)
            vector.finish(env)
            return
        with b.for_(block.first, block.end, loop.var.name, some=True) as row:
            context.emit(stmt, context.resolve(env.bind(loop.var, row), stmt))


def _over_rows(stmt: cin.Assign, arrays: dict[str, cin.Access]) -> cin.Assign:
    """A statement with arrays in place of registers, in the types in which these are accumulated."""
    known: dict[cin.Access, cin.Expr] = {}
    for access in cin.accesses(stmt.rhs):
        if access.tensor.name in arrays:
            known[access] = _as(arrays[access.tensor.name], access.dtype)
    lhs = arrays.get(stmt.lhs.tensor.name, stmt.lhs)
    return cin.Assign(lhs, stmt.op, _as(cin.substitute(stmt.rhs, known), lhs.dtype))


def _as(expr: cin.Expr, dtype: np.dtype[Any]) -> cin.Expr:
    return expr if expr.dtype == dtype else cin.Call("cast", (expr,), dtype)


@contextmanager
def _from(b: Builder, areas: Collection[DenseArea], first: Val) -> Iterator[None]:
    """Inside, what is kept of rows is at the numbers of these, not at their places in the block."""
    before = [area.vals for area in areas]
    for area in areas:
        area.vals = moved(b, area.vals, b.mul(b.sub(b.i64(0), first), b.i64(area.tensor.dtype.itemsize)))
    yield
    for area, vals in zip(areas, before, strict=True):
        area.vals = vals


def _in_two_steps(stage: Stage) -> bool:
    """Whether what is accumulated is computed for all entries before any is added: functions are faster in lanes."""
    return stage.reduces and lanewise.elementary(stage.stmt.rhs)


def _reduce(
    loop: Loop, stage: Stage, block: _Block, kept: dict[str, DenseArea], values: dict[np.dtype[Any], DenseArea]
) -> None:
    b, area = loop.b, kept[stage.stmt.lhs.tensor.name]
    assert stage.leader is not None
    start, stop = block.edges[stage.leader.tensor.name]
    at = _reader(loop, stage, block, kept)
    ready = values.get(area.tensor.dtype) if _in_two_steps(stage) else None
    if ready is not None:

        def keep(place: Val, lanes: int, spare: DenseArea = ready) -> None:
            emit.store(b, spare.vals, b.sub(place, start), emit.cast(b, at(place, lanes), spare.tensor.dtype))

        _in_lanes(loop, stage, start, stop, keep)
    numbers = block.rows[stage.leader.tensor.name]
    with b.for_(start, stop, "p") as place:
        value = at(place, 1) if ready is None else ready.leaf(b, b.sub(place, start))
        _put(b, area, stage.stmt.op, _row_of(b, numbers, b.sub(place, start)), value)


def _store(loop: Loop, stage: Stage, block: _Block, kept: dict[str, DenseArea]) -> None:
    b, target = loop.b, stage.stmt.lhs.tensor
    assert stage.leader is not None
    at = _reader(loop, stage, block, kept)
    area = loop.context.operands.get(target.name)
    pointer = area.vals if isinstance(area, DenseArea) else loop.context.output.vals(b)

    def write(place: Val, lanes: int) -> None:
        emit.store(b, pointer, place, at(place, lanes))

    _in_lanes(loop, stage, *block.edges[stage.leader.tensor.name], write)


def _in_lanes(loop: Loop, stage: Stage, start: Val, stop: Val, visit: Callable[[Val, int], None]) -> None:
    """All entries, as many at a time as a vector has lanes; those behind the last whole vector masked, or one by one."""
    b, stmt = loop.b, stage.stmt
    lanes = vectors.VectorLoop.widest(stmt) if _lanewise(stmt) else 1
    if lanes > 1 and vectorize.maskable(stmt):
        with b.for_(start, stop, "p", lanes) as place, b.masked(lanes, b.sub(stop, place)):
            visit(place, lanes)
        return
    end = start
    if lanes > 1:
        end = b.named("end", b.add(start, b.and_(b.sub(stop, start), b.i64(-lanes))))
        with b.for_(start, end, "p", lanes) as place:
            visit(place, lanes)
    with b.for_(end, stop, "p") as place:
        visit(place, 1)


def _lanewise(stmt: cin.Assign) -> bool:
    """Whether all that `stmt` computes can be computed in lanes."""
    used = (stmt.lhs, *cin.accesses(stmt.rhs))
    return all(a.dtype.kind in "iuf" for a in used) and _computed_lanewise(stmt.rhs)


def _computed_lanewise(expr: cin.Expr) -> bool:
    if not isinstance(expr, cin.Call):
        return expr.dtype.kind in "biuf"
    kinds = {a.dtype.kind for a in expr.args} | {expr.dtype.kind}
    return lanewise.lanewise(expr.op, kinds) and all(map(_computed_lanewise, expr.args))


def _row_of(b: Builder, numbers: DenseArea, place: Val) -> Val:
    return b.convert("zext", b.load(numbers.vals, place, "i32", "row"), "i64")


def _reader(loop: Loop, stage: Stage, block: _Block, kept: dict[str, DenseArea]) -> Callable[[Val, int], emit.Num]:
    """What a statement computes at some entries of a block: a function of the first one, and how many."""
    b, context, stmt, leader, var = loop.b, loop.context, stage.stmt, stage.leader, stage.var
    assert leader is not None and var is not None
    start, stop = block.edges[leader.tensor.name]
    walker = Walker(leader, 1, segment_of(b, _buffers(loop, leader), start, stop), ranged=False)
    numbers, last = block.rows.get(leader.tensor.name), b.sub(stop, 1)

    def leaf(access: cin.Access, places: list[Val], rows: list[Val], envs: list[Env]) -> emit.Num:
        if access.tensor.name in kept:
            area = kept[access.tensor.name]
            return emit.cast(b, emit.lanes(b, [area.leaf(b, row) for row in rows]), access.dtype)
        if access.tensor.policy == "scalar":
            return emit.splat(b, loop.env.scalar(access.tensor).get(b), len(places))
        return leaves(loop, context.operands[access.tensor.name], places, [env.cursors[access].pos for env in envs])

    def at(first: Val, lanes: int) -> emit.Num:
        places = [first, *(b.named("q", b.add(first, k)) for k in range(1, lanes))]
        rows, envs = [], []
        for place in places:
            coordinate = walker.segment.coordinate(b.min(place, last) if lanes > 1 else place)
            env = loop.env.with_cursors({leader: walker.cursor(place, None, coordinate)}).bind(var, coordinate)
            if numbers is not None:
                rows.append(_row_of(b, numbers, b.sub(place, start)))
                env = env.bind(loop.var, b.add(block.first, rows[-1]))
            envs.append(context.resolve(env, stmt))
        read = dict.fromkeys(cin.accesses(stmt.rhs))
        return context.value(stmt.rhs, envs[0], lanes, {a: leaf(a, places, rows, envs) for a in read})

    return at
