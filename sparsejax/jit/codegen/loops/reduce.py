"""Several running sums at once: a walk that only accumulates into a register.

    unrolled    for p in lo .. hi by 4:           one after the other, then the rest, then the sums are put together
                  t0 .. t3 += vals[p .. p + 3] * (x[crd[p]], x[crd[p + 1]], ...)

    pairs       for p in lo .. hi by 2:           then the last one, if it is left over, then both sums are put together
                  t0 += vals[p] * x[crd[p]]
                  t1 += vals[p + 1] * x[crd[p + 1]]

    gathered    for p in lo .. hi by 8:           at least once: an empty segment is a vector without lanes
                  where p + (0, 1, .. 7) < hi:
                    t0 .. t7 += vals[p .. p + 7] * x[crd[p .. p + 7]]

An addition takes about four times as long as the processor needs to start the next one: no addition waits for the one before. Applies to every
associative and commutative reduction into a register whose other operands are dense below, or are looked up in a workspace.

Unrolled: the sums are lanes of one vector, whose operands are contiguous, or put together from single loads (a third faster than four sums in four
registers; the gathers of x86 are slower, and masked ones for the rest several times so). What has no lanes, or is looked up, has a
register for every sum. The rest fills some lanes of one more vector, where the processor has masks: the others read what is stored
behind the segment, which is there but for the last segments of all, and leave it out. A loop over the rest would end unforeseen for every
second row (rows of ten entries: a tenth of the time, of 14 and power-law lengths: a sixth). Where segments hold less than two
entries on average, the additional tests cost more than they save (a quarter).

Pairs: rows of four entries in vectors wait as long for their lanes to be put together as for their sums. Where the ends of rows are foreseen, because
they are few or alike (`row_blocks`), two sums are fastest up to some eight entries (calls beside masked vectors, on rows of 3.6, 4.0,
5.6, 6.7 and 7.6 entries: 0.74, 0.79, 0.85, 0.90 and 0.94 of the time).

Gathered: most rows of matrices fit one or two vectors: how many, and so the only branch, is mostly foreseen, and nothing is read behind a segment.
Pays where processors gather fast (`host.has_gathers`): rows of 6 to 60 entries take 0.4 to 0.8 of the time. Source: the masked
tail is the strip-mined remainder of "Efficient Vectorization of Sparse Matrix-Vector Multiplication" kernels in MKL's CSR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen import emit, register_tiles, sums, vectors
from sparsejax.jit.codegen.environment import Env
from sparsejax.jit.codegen.loops import prefetch
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import DenseArea, Input, Operand, Scalar
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import Leaders
from sparsejax.jit.rewrite import scatter_operands, vectorize

LANES = 4
"""Lanes that are put together from single loads."""


def walk(loop: Loop, key: Leaders, walker: Walker) -> None:
    """The walk, with as many running sums as its plan says, while there are as many places; then the rest one by one."""
    b, segment, stmt, copies = loop.b, walker.segment, loop.cases[key], loop.plan.copies
    assert isinstance(stmt, cin.Assign)
    if loop.plan.prefetch:
        own = [walker.access] if walker.level + 1 == len(walker.access.indices) else []
        prefetch.stream(loop, walker, segment.lo, len(set(cin.accesses(stmt.rhs))) > 1, own)
    whole = b.and_(b.sub(segment.hi, segment.lo), b.i64(-copies))
    end = b.named("end", b.add(segment.lo, whole))
    found = all(a.tensor.policy != scatter_operands.POLICY for a in cin.accesses(stmt.rhs))
    lanes = copies == LANES and found and vectorize.reduces_in_lanes(stmt, loop.var)
    stored = loop.stored(walker) if loop.plan.tail == "masked" else None
    if stored is not None:
        end = _in_lanes(loop, stmt, walker, end, stored)
    else:
        with b.if_(b.lt(segment.lo, end)):
            if lanes:
                _in_lanes(loop, stmt, walker, end)
            else:
                _in_registers(loop, stmt, key, walker, end)
    if copies == 2:
        with b.if_(b.lt(end, segment.hi)):
            loop.at_place(key, walker, end)
        return
    with b.for_(end, segment.hi, "p") as place:
        loop.at_place(key, walker, place)


def _in_lanes(loop: Loop, stmt: cin.Assign, walker: Walker, end: Val, stored: Val | None = None) -> Val:
    """The places before `end`, as many as there are lanes at a time. Where it is known how many are `stored`, what is left fills some
    lanes of one more vector. Where the places end that were visited."""
    b, lanes = loop.b, vectors.Lanes(loop.b, stmt, LANES, loop.env.scalar(stmt.lhs.tensor).total)
    at = reader(loop, stmt, walker, LANES)
    with b.for_(walker.segment.lo, end, "p", LANES, some=stored is None) as first:
        lanes.add(at(first))
    if stored is not None:
        done, hi = b.var("done", end), walker.segment.hi
        with b.if_(b.lt(end, hi)), b.if_(b.lt(end, b.named("last", b.sub(stored, LANES - 1)))):
            with b.masked(LANES, b.sub(hi, end)):
                lanes.add(vectors.kept(b, stmt, at(end), LANES))
            b.set(done, hi)
        end = b.get(done)
    vectors.add_up(loop.context, stmt, loop.env, (lanes,))
    return end


def _invariants(loop: Loop, stmt: cin.Assign, around: Env, lanes: int) -> dict[cin.Expr, emit.Num]:
    """What `stmt` reads that is the same at all places, in every lane."""
    same = cin.largest(stmt.rhs, lambda a: loop.var not in cin.bound_by(a))
    return {e: emit.splat(loop.b, loop.context.value(e, around), lanes) for e in dict.fromkeys(same)}


def _changing(loop: Loop, stmt: cin.Assign) -> list[cin.Access]:
    """The accesses that read something else at every place."""
    return [a for a in dict.fromkeys(cin.accesses(stmt.rhs)) if loop.var in cin.bound_by(a)]


def reader(loop: Loop, stmt: cin.Assign, walker: Walker, lanes: int) -> Callable[[Val], emit.Num]:
    """What `stmt` accumulates at so many places of `walker`, as lanes: a function of the first place. What is the same at all
    places is computed here."""
    context, read = loop.context, _changing(loop, stmt)
    once = _invariants(loop, stmt, context.resolve(loop.env, stmt), lanes)

    def at(first: Val) -> emit.Num:
        places = _places(loop, first, lanes)
        envs = [_at(loop, stmt, walker, place, walker.segment.coordinate(place)) for place in places]
        known = dict(once)
        for access in read:
            operand, positions = context.operands[access.tensor.name], [env.cursors[access].pos for env in envs]
            known[access] = leaves(loop, operand, places, positions)
        return context.value(stmt.rhs, envs[0], lanes, known)

    return at


def _places(loop: Loop, first: Val, count: int) -> list[Val]:
    b = loop.b
    return [first, *(b.named("q", b.add(first, number)) for number in range(1, count))]


def _at(loop: Loop, stmt: cin.Assign, walker: Walker, place: Val, coordinate: Val) -> Env:
    """Where everything is that `stmt` reads at a place of the walker, which has a coordinate."""
    env = loop.env.with_cursors({walker.access: walker.cursor(place, None, coordinate)})
    return loop.context.resolve(env.bind(loop.var, coordinate), stmt)


def leaves(loop: Loop, operand: Operand, places: Sequence[Val], positions: Sequence[Val]) -> emit.Num:
    """What an operand has at some positions, as lanes: side by side where these are the places of a walk."""
    b = loop.b
    if list(positions) == list(places):
        return operand.leaf(b, positions[0], len(places))
    if len(set(positions)) == 1:
        return emit.splat(b, operand.leaf(b, positions[0]), len(places))
    return emit.lanes(b, [operand.leaf(b, position) for position in positions])


def _in_registers(loop: Loop, stmt: cin.Assign, key: Leaders, walker: Walker, end: Val) -> None:
    """The places before `end`, some at a time, each with a register of its own."""
    b, tensor, count = loop.b, stmt.lhs.tensor, loop.plan.copies
    whole = loop.env.scalar(tensor)
    copies = [whole]
    for _ in range(count - 1):
        total = None if whole.total is None else sums.Sum(b, tensor.name, tensor.dtype, False)
        copies.append(Scalar(b, tensor, tracked=False, total=total))
    with b.for_(walker.segment.lo, end, "p", count, some=True) as first:
        for copy, place in zip(copies, _places(loop, first, count), strict=True):
            replace(loop, env=loop.env.with_register(tensor.name, copy)).at_place(key, walker, place)
    for copy in copies[1:]:
        whole.put(b, stmt.op, copy.get(b) if copy.total is None else copy.total.plain(b))


# ----------------------------------------------------------------------------------------------------------- gathered


def gathered(loop: Loop, key: Leaders, walker: Walker) -> None:
    """The walk in masked lanes, as many as a vector has."""
    b, context, stmt, segment = loop.b, loop.context, loop.cases[key], walker.segment
    assert isinstance(stmt, cin.Assign)
    total = loop.env.scalar(stmt.lhs.tensor).total
    widest = max(a.dtype.itemsize for a in (stmt.lhs, *cin.accesses(stmt.rhs)))
    count = register_tiles.VECTOR_BYTES // (widest if total is None else max(widest, total.wide.itemsize))
    lanes = vectors.Lanes(b, stmt, count, total)
    around, read = context.resolve(loop.env, stmt), _changing(loop, stmt)
    once = _invariants(loop, stmt, around, count)

    def gathers(access: cin.Access) -> bool:
        return access != walker.access and not access.computed

    zero, one = b.i64(0), b.i64(1)
    ends = [_at(loop, stmt, walker, segment.lo, at) for at in (zero, one)] if any(map(gathers, read)) else []
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
