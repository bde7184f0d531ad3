"""A walk that only accumulates into a register, a vector at a time, the last one masked: operands are gathered by the processor.

    for p in lo .. hi by 8:                                       at least once: an empty segment is a vector without lanes
      where p + (0, 1, .. 7) < hi:
        t0 .. t7 += vals[p .. p + 7] * x[crd[p .. p + 7]]
    w = t0 + .. + t7

Most rows of matrices fit one or two vectors: how many, and so the only branch, is mostly foreseen, and nothing is read behind a segment. Where
processors gather slowly (`host.has_gathers`), operands are put together from single loads (`unrolled`), and rows taken in blocks (`row_blocks`).
Segments of few entries (`pairs`) are walked two by two.

Source: the masked tail is the strip-mined remainder of "Efficient Vectorization of Sparse Matrix-Vector Multiplication" kernels in MKL's CSR;
measured here beside `unrolled`: rows of 6 to 60 entries take 0.4 to 0.8 of its time.
"""

from __future__ import annotations

from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen import emit, register_tiles, vectors
from sparsejax.jit.codegen.environment import Env
from sparsejax.jit.codegen.loops import prefetch
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import DenseArea, Input
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import Leaders


def walk(loop: Loop, key: Leaders, walker: Walker) -> None:
    """The walk."""
    b, context, stmt, segment = loop.b, loop.context, loop.cases[key], walker.segment
    assert isinstance(stmt, cin.Assign)
    total = loop.env.scalar(stmt.lhs.tensor).total
    widest = max(a.dtype.itemsize for a in (stmt.lhs, *cin.accesses(stmt.rhs)))
    count = register_tiles.VECTOR_BYTES // (widest if total is None else max(widest, total.wide.itemsize))
    lanes = vectors.Lanes(b, stmt, count, total)
    around = context.resolve(loop.env, stmt)
    same = cin.largest(stmt.rhs, lambda a: loop.var not in cin.bound_by(a))
    once = {e: emit.splat(b, context.value(e, around), count) for e in dict.fromkeys(same)}

    def gathers(access: cin.Access) -> bool:
        return access != walker.access and not access.others

    read = [a for a in dict.fromkeys(cin.accesses(stmt.rhs)) if loop.var in cin.bound_by(a)]
    ends = [_at(loop, stmt, walker, coordinate) for coordinate in (0, 1)] if any(map(gathers, read)) else []

    with b.for_(segment.lo, segment.hi, "p", count, some=True) as place, b.masked(count, b.sub(segment.hi, place)):
        if loop.plan.prefetch:
            prefetch.stream(loop, walker, place, bool(ends), (a for a in read if not gathers(a)))
        coordinates = _coordinates(loop, walker, place, count) if ends else None
        known: dict[cin.Expr, emit.Num] = dict(once)
        for access in read:
            if coordinates is None or not gathers(access):
                known[access] = context.operands[access.tensor.name].leaf(b, place, count)
            else:
                known[access] = _gathered(loop, access, ends, coordinates, count)
        value = context.value(stmt.rhs, around, count, known)
        lanes.add(vectors.kept(b, stmt, value, count))
    vectors.add_up(context, stmt, loop.env, (lanes,))


def _at(loop: Loop, stmt: cin.Assign, walker: Walker, coordinate: int) -> Env:
    """Where dense operands are at a coordinate, wherever that is stored."""
    at = loop.b.i64(coordinate)
    env = loop.env.with_cursors({walker.access: walker.cursor(walker.segment.lo, None, at)})
    return loop.context.resolve(env.bind(loop.var, at), stmt)


def _coordinates(loop: Loop, walker: Walker, place: Val, count: int) -> Val:
    """The coordinates at so many places: they are never negative, so that how they are extended does not matter but to the processor."""
    b, operand = loop.b, loop.context.operands[walker.access.tensor.name]
    assert isinstance(operand, Input)
    crd = operand.buffers[walker.level]["crd"]
    found = b.load(crd.pointer, place, f"<{count} x {crd.type}>", "j")
    return found if crd.type == "i64" else b.convert("sext", found, f"<{count} x i64>")


def _gathered(loop: Loop, access: cin.Access, ends: list[Env], coordinates: Val, count: int) -> emit.Num:
    """What a dense operand has at these coordinates: its positions grow evenly with them."""
    b, operand = loop.b, loop.context.operands[access.tensor.name]
    assert isinstance(operand, Input | DenseArea)
    first, second = (env.cursors[access].pos for env in ends)
    positions = coordinates
    if (first.ref, second.ref) != ("0", "1"):
        step = b.splat(b.sub(second, first), count)
        positions = b.binary("add", b.splat(first, count), b.binary("mul", step, coordinates))
    return emit.gather(b, operand.vals, positions, access.dtype, access.tensor.name.lower())
