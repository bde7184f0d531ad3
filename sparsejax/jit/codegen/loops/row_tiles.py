"""Row tiles: the places of one leader, several at a time, each of which names a row of a register tile.

    for p in lo .. end by 4:                       four entries: rows r0 .. r3 of the result, n0 .. n3 of what is gathered
      for j0 in 0 .. m by 16:
        t0 .. t3 = 0
        for c in 0 .. channels:
          w = W[k, c, j0 .. j0 + 15]               read once for four rows
          t0 += In[n0, c] * w
          ...
          t3 += In[n3, c] * w
        Out[r0, j0 .. j0 + 15] += t0
        ...
    for p in end .. hi:                            one entry

Where entries have two coordinates below the others, of which one loop over the first walks runs and one inside over the second walks a run, each
entry is a row: both loops are one.

Rows of what is gathered are read where they lie, and rows of the result written one after the other. Sums are taken in the order in which they are
entry by entry; where strips are narrow, LLVM may round products of the two before it adds them in one and not in the other.

Source: the gathered matrix products of sparse convolutions (Tang et al., "TorchSparse", MLSys 2022), without the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen import register_tiles, tile_fetches
from sparsejax.jit.codegen.environment import Env, Rows
from sparsejax.jit.codegen.loops import merge, prefetch
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import Input
from sparsejax.jit.ir import cin, simplify
from sparsejax.jit.ir.loop_plans import Leaders


def walk(loop: Loop, key: Leaders, walker: Walker) -> None:
    """The places of `walker`, as many at a time as the plan of the loop says."""
    b, segment, count, body = loop.b, walker.segment, loop.plan.copies, loop.cases[key]
    assert isinstance(body, cin.Forall)
    stmt, beside = (simplify.at_entry(body.body, walker.access), body.var) if walker.ranged else (body, None)
    assert isinstance(stmt, cin.Forall)
    length = b.named("count", b.sub(segment.hi, segment.lo))
    end = b.named("end", b.add(segment.lo, b.mul(b.binary("sdiv", length, b.i64(count)), count)))
    with b.for_(segment.lo, end, "p", count) as first:
        places = [b.named("q", b.add(first, number)) if number else first for number in range(count)]

        here = [_resolved(loop, stmt, walker, place, beside) for place in places]
        if not loop.plan.prefetch:
            rows = Rows(loop.var, first, count, _states(here), beside=beside)
        else:
            last, ahead = prefetch.last_place(loop, walker), [b.add(place, count) for place in places]
            later = [_resolved(loop, stmt, walker, b.min(place, last), beside) for place in ahead]
            rows = Rows(loop.var, first, count, _states(here), _states(later), tile_fetches.reductions(stmt), beside)
        register_tiles.strips(loop.context, stmt, loop.env, rows)
    with b.for_(end, segment.hi, "p") as place:
        if beside is None:
            merge.at_entry(loop, key, walker, place)
        else:
            loop.context.emit(stmt, _resolved(loop, stmt, walker, place, beside))


def _resolved(loop: Loop, stmt: cin.Stmt, walker: Walker, place: Val, beside: cin.IndexVar | None) -> Env:
    """The state at a place, with all that is known there of where operands are read: outside of the tile, as LLVM leaves loads of coordinates inside of
    loops that fetch."""
    coordinate = walker.segment.coordinate(place)
    env, cursor = loop.env.bind(loop.var, coordinate), walker.cursor(place, None, coordinate)
    if beside is not None:
        operand = loop.context.operands[walker.access.tensor.name]
        assert isinstance(operand, Input)
        run = operand.within(loop.b, walker.level + 1, place, loop.b.add(place, 1))
        env, cursor = env.bind(beside, run.coordinate(place)), cursor._replace(level=walker.level + 2)
    return loop.context.resolve(env.with_cursors({walker.access: cursor}), stmt)


def _states(resolved: Sequence[Env]) -> Callable[[Env, int], Env]:
    """What gives the state in a row inside of the tile: of every access, what is known of it there or outside, whichever is more."""

    def at(env: Env, number: int) -> Env:
        row = resolved[number]
        moved = {a: c for a, c in row.cursors.items() if a not in env.cursors or c.level > env.cursors[a].level}
        return env._replace(bound={**env.bound, **row.bound}).with_cursors(moved)

    return at
