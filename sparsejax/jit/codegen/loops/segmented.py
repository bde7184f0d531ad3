"""Sums of neighbouring positions with equal coordinates, in lanes: a segmented scan.

    for p in lo .. hi by 8:                          i = crd0[p .. p + 7]
      t0 .. t7 = vals[p .. p + 7] * x[crd1[p .. p + 7]]
      t += t one lane below, where i is the same there             three times: 1, 2, 4 lanes below
      t += the last t of the positions before, where i is the same
      y[i] = t, where i is another one at the next position

    i   0   0   1   1   1   2   3   3
    t   a   b   c   d   e   f   g   h
        a   a+b c   c+d c+d+e   f   g   g+h          scattered: lanes 1, 4, 5, and 7 unless row 3 goes on

No branch depends on where a row ends, and what a row sums up never leaves registers: per entry it takes as long for rows of one entry as of fifty
(1.1 to 0.8 ns from the second cache, Granite Rapids). Lanes are those of places that are a multiple of their number, wherever a walk begins: the
order in which a row is summed up does not depend on chunks, which end where rows do. Lanes outside of a walk have the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.backend.types import lanes_of, scalar_of
from sparsejax.jit.codegen import emit, register_tiles, vectors
from sparsejax.jit.codegen.loops import positions
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import DenseArea, Input
from sparsejax.jit.ir import cin, operators
from sparsejax.jit.ir.loop_plans import PositionWalk
from sparsejax.jit.rewrite import summation

Place = Callable[[Sequence[Val]], Val]
"""Where something is at some coordinates of a walk, in lanes."""


def walk(loop: Loop, walker: Walker) -> None:
    """The places of `walker` in lanes, and what becomes of each sum where its segment ends."""
    b, context, found, segment = loop.b, loop.context, loop.plan.walk, walker.segment
    assert found is not None and found.where is not None
    stmt, used = found.stmt, found.where.consumer
    assert isinstance(stmt, cin.Assign) and isinstance(used, cin.Assign)
    tensor, op = stmt.lhs.tensor, stmt.op or ""
    dtype = summation.wide(tensor.dtype) if summation.is_sum(stmt, tensor) else tensor.dtype
    sizes = (dtype.itemsize, *(a.dtype.itemsize for a in (stmt.lhs, used.lhs, *cin.accesses(stmt.rhs))))
    count = register_tiles.VECTOR_BYTES // max(sizes)
    around, varies = context.resolve(loop.env, stmt), set(found.vars)
    once = _once(loop, stmt, varies, count)
    outside = _once(loop, used, varies, count)
    read = [a for a in dict.fromkeys(cin.accesses(stmt.rhs)) if varies & set(cin.bound_by(a))]
    gathered = {a: _placed(loop, found, a, stmt, count) for a in read if a != found.leader and not a.computed}
    target = _placed(loop, found, used.lhs, used, count)
    identity = emit.constant(b, operators.get(op).identity(dtype), dtype)
    total = [b.var("total", part) for part in emit.splat(b, identity, count).parts]
    before = [b.var("row", b.splat(b.const(_crd_type(loop, found, k), -1), count)) for k in range(found.rows)]
    with b.for_(b.and_(segment.lo, b.i64(-count)), segment.hi, "p", count) as place:
        inside = b.below(count, b.sub(segment.hi, place))
        behind = b.below(count, b.sub(segment.lo, place))
        inside = b.named("inside", b.and_(inside, b.binary("xor", behind, b.splat(b.const("i1", 1), count))))
        with b.under(inside):
            own = [_loaded(loop, found, k, place, count) for k in range(len(found.vars))]
            wide = [b.convert("sext", c, f"<{count} x i64>") for c in own]
            known: dict[cin.Expr, emit.Num] = dict(once)
            for access in read:
                operand = context.operands[access.tensor.name]
                if access in gathered:
                    assert isinstance(operand, Input | DenseArea)
                    where = gathered[access](wide)
                    known[access] = emit.gather(b, operand.vals, where, access.dtype, access.tensor.name.lower())
                else:
                    known[access] = operand.leaf(b, place, count)
            value = vectors.kept(b, stmt, context.value(stmt.rhs, around, count, known), count)
            value = _named(b, "term", value)
        rows = own[: found.rows]
        value = _scanned(b, op, emit.cast(b, value, dtype), rows)
        carried = emit.Num(dtype, tuple(map(b.get, total)))
        value = _onto(b, op, carried, value, _equal(b, rows, [b.get(var) for var in before]))
        for var, part in zip((*before, *total), (*rows, *value.parts), strict=True):
            b.set(var, b.shuffle(part, part, [count - 1] * count))
        more = b.named("more", b.below(count, b.sub(b.sub(segment.hi, place), 1)))
        with b.under(b.and_(inside, more)):
            later = [_loaded(loop, found, k, b.add(place, 1), count) for k in range(found.rows)]
        on = b.and_(_equal(b, rows, later), more)
        last = b.named("last", b.and_(inside, b.binary("xor", on, b.splat(b.const("i1", 1), count))))
        with b.under(last):
            _write(loop, used, {**outside, stmt.lhs: emit.cast(b, value, tensor.dtype)}, target(wide), count)


def _once(loop: Loop, stmt: cin.Assign, varies: set[cin.IndexVar], count: int) -> dict[cin.Expr, emit.Num]:
    """What `stmt` reads that is the same at all positions, in every lane."""
    env = loop.context.resolve(loop.env, stmt)
    same = cin.largest(stmt.rhs, lambda a: not _changes(loop, a, varies))
    return {e: emit.splat(loop.b, loop.context.value(e, env), count) for e in dict.fromkeys(same)}


def _changes(loop: Loop, access: cin.Access, varies: set[cin.IndexVar]) -> bool:
    """Whether an access reads something else from one position to another: with other coordinates, or the sum of a segment."""
    inside = access.tensor.policy == "scalar" and access.tensor.name not in loop.env.registers
    return inside or bool(varies & set(cin.bound_by(access)))


def _crd_type(loop: Loop, found: PositionWalk, number: int) -> str:
    return _operand(loop, found).buffers[found.level + number]["crd"].type


def _operand(loop: Loop, found: PositionWalk) -> Input:
    operand = loop.context.operands[found.leader.tensor.name]
    assert isinstance(operand, Input)
    return operand


def _loaded(loop: Loop, found: PositionWalk, number: int, place: Val, count: int) -> Val:
    """The coordinates of one of the levels at so many places."""
    crd = _operand(loop, found).buffers[found.level + number]["crd"]
    return loop.b.load(crd.pointer, place, f"<{count} x {crd.type}>", found.vars[number].name)


def _equal(b: Builder, rows: Sequence[Val], others: Sequence[Val]) -> Val:
    """Where all coordinates are the same."""
    made = b.eq(rows[0], others[0])
    for row, other in zip(rows[1:], others[1:], strict=True):
        made = b.and_(made, b.eq(row, other))
    return made


def _scanned(b: Builder, op: str, value: emit.Num, rows: Sequence[Val]) -> emit.Num:
    """In every lane, the sum of those up to it that have the same coordinates, which are in order."""
    count, step = lanes_of(rows[0].type), 1
    while step < count:
        lanes = [max(lane - step, 0) for lane in range(count)]
        nobody = [b.splat(b.const(scalar_of(row.type), -1), count) for row in rows]
        moved = [
            b.shuffle(none, row, [lane if lane < step else count + lane - step for lane in range(count)])
            for none, row in zip(nobody, rows, strict=True)
        ]
        below = emit.Num(value.dtype, tuple(b.shuffle(part, part, lanes) for part in value.parts))
        value = _onto(b, op, below, value, _equal(b, rows, moved))
        step *= 2
    return value


def _onto(b: Builder, op: str, earlier: emit.Num, value: emit.Num, where: Val) -> emit.Num:
    """`value`, in some lanes with what is `earlier` before it."""
    return _named(b, "sum", emit.choose(b, where, emit.apply(b, op, [earlier, value], value.dtype), value))


def _named(b: Builder, name: str, value: emit.Num) -> emit.Num:
    return emit.Num(value.dtype, tuple(b.named(name, part) for part in value.parts))


def _placed(loop: Loop, found: PositionWalk, access: cin.Access, stmt: cin.Stmt, count: int) -> Place:
    """Where a dense array has what is at some coordinates: its positions grow evenly with each of them."""
    b = loop.b

    def at(number: int) -> Val:
        """The position where all coordinates are zero but one, which is one."""
        coordinates = [b.i64(int(k == number)) for k in range(len(found.vars))]
        env = positions.at(loop.env, found, b.i64(0), coordinates)
        return loop.context.resolve(env, stmt).cursors[access].pos

    first = at(-1)
    changing = [k for k, v in enumerate(found.vars) if v in cin.bound_by(access)]
    second = [at(k) for k in changing]
    if first.ref == "0" and [p.ref for p in second] == ["1"]:
        return lambda coordinates: coordinates[changing[0]]
    start, steps = b.splat(first, count), [b.splat(b.sub(p, first), count) for p in second]

    def place(coordinates: Sequence[Val]) -> Val:
        made = start
        for k, step in zip(changing, steps, strict=True):
            made = b.binary("add", made, b.binary("mul", step, coordinates[k]))
        return made

    return place


def _write(loop: Loop, stmt: cin.Assign, known: dict[cin.Expr, emit.Num], places: Val, count: int) -> None:
    """Write what `stmt` makes of what is `known` at places that differ, in the lanes that end a segment."""
    b, context, tensor = loop.b, loop.context, stmt.lhs.tensor
    value = emit.cast(b, context.value(stmt.rhs, loop.env, count, known), tensor.dtype)
    area = context.operands.get(tensor.name)
    pointer = area.vals if isinstance(area, DenseArea) else context.output.vals(b)
    if stmt.op is not None:
        old = emit.gather(b, pointer, places, tensor.dtype, tensor.name)
        value = emit.apply(b, stmt.op, [old, value], tensor.dtype)
    emit.scatter(b, pointer, places, value)
