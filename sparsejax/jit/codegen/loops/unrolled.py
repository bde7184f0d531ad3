"""Several running sums at once: a walk that only accumulates into a register.

    for p in lo .. hi by 4:                       one after the other, then the rest, then the sums are put together
      t0 .. t3 += vals[p .. p + 3] * (x[crd[p]], x[crd[p + 1]], ...)           no addition waits for the one before

An addition takes about four times as long as the processor needs to start the next one. Applies to every associative and
commutative reduction into a register whose other operands are dense below, or are looked up in a workspace. The sums are lanes of
one vector, whose operands are contiguous, or put together from single loads (a third faster than four sums in four registers;
the gathers of x86 are slower, and masked ones for the rest several times so). What has no lanes, or is looked up, has a register
for every sum.

The rest fills some lanes of one more vector, where the processor has masks: the others read what is stored behind the segment, which is
there but for the last segments of all, and leave it out. A loop over the rest would end unforeseen for every second row (rows of
ten entries: a tenth of the time, of 14 and power-law lengths: a sixth). Where segments hold less than two entries on average, the
additional tests cost more than they save (a quarter).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen import emit, sums, vectors
from sparsejax.jit.codegen.environment import Env
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import Scalar
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import Leaders
from sparsejax.jit.rewrite import scatter_operands, vectorize

COPIES = 4


def walk(loop: Loop, key: Leaders, walker: Walker) -> None:
    """The walk, `COPIES` places at a time while there are as many."""
    b, segment, stmt = loop.b, walker.segment, loop.cases[key]
    assert isinstance(stmt, cin.Assign)
    whole = b.and_(b.sub(segment.hi, segment.lo), b.i64(-COPIES))
    end = b.named("end", b.add(segment.lo, whole))
    found = all(a.tensor.policy != scatter_operands.POLICY for a in cin.accesses(stmt.rhs))
    lanes = found and vectorize.reduces_in_lanes(stmt, loop.var)
    stored = loop.stored(walker) if loop.plan.tail == "masked" else None
    if stored is not None:
        end = _in_lanes(loop, stmt, key, walker, end, stored)
    else:
        with b.if_(b.lt(segment.lo, end)):
            if lanes:
                _in_lanes(loop, stmt, key, walker, end)
            else:
                in_registers(loop, stmt, key, walker, end)
    with b.for_(end, segment.hi, "p") as place:
        loop.at_place(key, walker, place)


def _in_lanes(loop: Loop, stmt: cin.Assign, key: Leaders, walker: Walker, end: Val, stored: Val | None = None) -> Val:
    """The places before `end`, as many as there are lanes at a time. Where it is known how many are `stored`, what is left fills some
    lanes of one more vector. Where the places end that were visited."""
    b, lanes = loop.b, vectors.Lanes(loop.b, stmt, COPIES, loop.env.scalar(stmt.lhs.tensor).total)
    at = reader(loop, stmt, walker, COPIES)
    with b.for_(walker.segment.lo, end, "p", COPIES, some=stored is None) as first:
        lanes.add(at(first))
    if stored is not None:
        done, hi = b.var("done", end), walker.segment.hi
        with b.if_(b.lt(end, hi)), b.if_(b.lt(end, b.named("last", b.sub(stored, COPIES - 1)))):
            with b.masked(COPIES, b.sub(hi, end)):
                lanes.add(vectors.kept(b, stmt, at(end), COPIES))
            b.set(done, hi)
        end = b.get(done)
    vectors.add_up(loop.context, stmt, loop.env, (lanes,))
    return end


def reader(loop: Loop, stmt: cin.Assign, walker: Walker, lanes: int) -> Callable[[Val], emit.Num]:
    """What `stmt` accumulates at so many places of `walker`, as lanes: a function of the first place. What is the same at all
    places is computed here."""
    b, context = loop.b, loop.context
    around = context.resolve(loop.env, stmt)
    same = cin.largest(stmt.rhs, lambda a: loop.var not in cin.bound_by(a))
    once = {e: emit.splat(b, context.value(e, around), lanes) for e in dict.fromkeys(same)}
    read = [a for a in dict.fromkeys(cin.accesses(stmt.rhs)) if loop.var in cin.bound_by(a)]

    def at(first: Val) -> emit.Num:
        places = _places(loop, first, lanes)
        envs = [_at(loop, stmt, walker, place) for place in places]
        known: dict[cin.Expr, emit.Num] = {**once, **{a: _leaves(loop, a, places, envs) for a in read}}
        return context.value(stmt.rhs, envs[0], lanes, known)

    return at


def _places(loop: Loop, first: Val, count: int) -> list[Val]:
    b = loop.b
    return [first, *(b.named("q", b.add(first, number)) for number in range(1, count))]


def _at(loop: Loop, stmt: cin.Assign, walker: Walker, place: Val) -> Env:
    """Where everything is that `stmt` reads at a place of the walker."""
    coordinate = walker.segment.coordinate(place)
    env = loop.env.with_cursors({walker.access: walker.cursor(place, None, coordinate)})
    return loop.context.resolve(env.bind(loop.var, coordinate), stmt)


def _leaves(loop: Loop, access: cin.Access, places: Sequence[Val], envs: Sequence[Env]) -> emit.Num:
    """What an access reads at all places, as lanes."""
    b, operand = loop.b, loop.context.operands[access.tensor.name]
    positions = [env.cursors[access].pos for env in envs]
    if positions == list(places):
        return operand.leaf(b, positions[0], len(places))
    if len(set(positions)) == 1:
        return emit.splat(b, operand.leaf(b, positions[0]), len(places))
    return emit.lanes(b, [operand.leaf(b, position) for position in positions])


def in_registers(loop: Loop, stmt: cin.Assign, key: Leaders, walker: Walker, end: Val, count: int = COPIES) -> None:
    """The places before `end`, `count` at a time, each with a register of its own."""
    b, tensor = loop.b, stmt.lhs.tensor
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
