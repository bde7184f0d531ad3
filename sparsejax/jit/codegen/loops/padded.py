"""Padded: a walk that adds to a dense result wherever coordinates say, whose segments have few entries each, as many as fall.

    for p in lo .. hi:                         before: each end comes unforeseen, and costs as much as a dozen entries
      y[crd[p]] += vals[p] * x[j]

    if j % 256 == 0:                           after: of some of the next segments, how many differ in length from the
      limit = stored - 5 if they differ else 0   one behind them
    if lo < limit:                             the first six places of every segment, of which those behind its end
      t = x[j]                                   belong to others, and change nothing
      y[crd[lo]] = lo < hi ? y[crd[lo]] + vals[lo] * t : y[crd[lo]]
      ...
      y[crd[lo + 5]] = lo + 5 < hi ? ...
      for p in lo + 6 .. hi: as before
    else: as before

Entries are added in the same order, by the same instructions, so that results have the same bits. Legal and paying: `rewrite/fetches`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen import emit
from sparsejax.jit.codegen.environment import Env
from sparsejax.jit.codegen.loops import held, merge
from sparsejax.jit.codegen.loops.sampled_lengths import LANES, SAMPLES, UNEVEN, differing
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import Input
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import Leaders
from sparsejax.jit.rewrite.fetches import FIRST, LEAST, MOST

SEGMENTS = 256
"""Segments of which some are looked at."""
SAMPLED = SAMPLES * LANES


def walk(loop: Loop, key: Leaders, walker: Walker) -> None:
    """The places of `walker`."""
    b, segment = loop.b, walker.segment

    def unasked() -> None:
        same = held.of(loop, key)
        inside = held.inside(loop, key, same) if same else loop
        for number in range(FIRST):
            place = b.named("q", b.add(segment.lo, number)) if number else segment.lo
            there = b.lt(place, segment.hi)
            replace(inside, enter=partial(_where, loop, there)).at_place(key, walker, place)
        with b.for_(b.named("rest", b.add(segment.lo, FIRST)), segment.hi, "p") as place:
            inside.at_place(key, walker, place)

    b.if_else(b.lt(segment.lo, _limit(loop, walker)), unasked, lambda: merge.entries(loop, key, walker))


def _limit(loop: Loop, walker: Walker) -> Val:
    """The place from which on segments are walked place by place: none of those that are alike in length, or have few entries or many, is before it."""
    b, operand, number = loop.b, loop.context.operands[walker.access.tensor.name], loop.env.cursors[walker.access].pos
    stored = loop.stored(walker)
    assert isinstance(operand, Input) and stored is not None
    segments, edges = operand.stored(b, walker.level - 1), operand.buffers[walker.level]["pos"].pointer
    assert segments is not None
    limit = b.lasting("limit", b.i64(0))
    with b.if_(b.eq(b.and_(number, b.i64(SEGMENTS - 1)), 0)):
        b.set(limit, b.i64(0))
        with b.if_(b.lt(b.named("behind", b.add(number, SEGMENTS + LANES)), segments)):
            entries, first = b.i64(0), [b.add(number, k * (SEGMENTS // SAMPLES)) for k in range(SAMPLES)]
            for place in first:
                ends = [b.load(edges, at, "i64", "edge") for at in (place, b.add(place, LANES))]
                entries = b.add(entries, b.sub(ends[1], ends[0]))
            differ = differing(b, edges, lambda row: row, number, SEGMENTS, 1)
            some = b.and_(b.lt(b.i64(SAMPLED * LEAST), entries), b.lt(entries, b.i64(SAMPLED * MOST)))
            with b.if_(b.and_(some, b.lt(b.i64(UNEVEN), differ))):
                b.set(limit, b.sub(stored, FIRST - 1))
    return b.get(limit)


def _where(loop: Loop, there: Val, stmt: cin.Stmt, coordinate: Val, env: Env) -> None:
    """What `stmt` adds at one place, if that is `there`."""
    b, context = loop.b, loop.context
    assert isinstance(stmt, cin.Assign) and stmt.op is not None
    env = context.resolve(env.bind(loop.var, coordinate), stmt)
    value, place = context.value(stmt.rhs, env), env.cursors[stmt.lhs].pos
    pointer, tensor = context.output.vals(b), stmt.lhs.tensor
    old = emit.load(b, pointer, place, tensor.dtype, 1, tensor.name)
    emit.store(b, pointer, place, emit.choose(b, there, emit.apply(b, stmt.op, [old, value], tensor.dtype), old))
