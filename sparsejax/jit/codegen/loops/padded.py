"""Padded: a walk that adds to a dense result wherever coordinates say, whose segments have few entries each, as many as fall.

    for p in lo .. hi:                         before: each end comes unforeseen, and costs as much as a dozen entries
      y[crd[p]] += vals[p] * x[j]

    for j0 in 0 .. n by 256:                   after: of 24 of the next segments, how many have 4 to 9 entries, and how
      if some differ in length:                  many differ in length from the one behind them
        for j in j0 .. j0 + 256:
          if lo + 5 < stored:                  the first six places of every segment, of which those behind its end
            t = x[j]                             belong to others, and change nothing
            y[crd[lo]] = lo < hi ? y[crd[lo]] + vals[lo] * t : y[crd[lo]]
            ...
            y[crd[lo + 5]] = lo + 5 < hi ? ...
            for p in lo + 6 .. hi: as before
          else: as before
      else:
        for j in j0 .. j0 + 256: as before

Entries are added in the same order, by the same instructions, so that results have the same bits. Legal and paying: `rewrite/fetches`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen import emit
from sparsejax.jit.codegen.environment import Env
from sparsejax.jit.codegen.loops import counted, held, merge
from sparsejax.jit.codegen.loops.sampled_lengths import LANES, SAMPLES, UNEVEN, differing
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import Input
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import Leaders
from sparsejax.jit.rewrite.fetches import FIRST, LEAST, MOST

SEGMENTS = 256
"""Segments of which some are looked at."""
ENOUGH = SAMPLES * LANES // 2
"""Of these, how many have a number of entries at which it pays."""
MANY = 2048
"""Segments up to which the processor remembers how long each is, when they come again."""


def blocks(loop: Loop) -> bool:
    """A loop over segments that are walked so right inside, some at a time; False where it is none."""
    b, body = loop.b, loop.cases.get(frozenset())
    leader = None if loop.plan.range != "steps" or loop.env.mode.unasked is not None else _leader(loop, body)
    if leader is None or not isinstance(body, cin.Forall):
        return False

    def run(first: Val, end: Val, unasked: bool) -> None:
        counted.counted(replace(loop, env=loop.env.in_mode(unasked=unasked), span=(first, end)))

    with b.for_(loop.begin, loop.extent, f"{loop.var.name}0", SEGMENTS) as first:
        end = b.named("end", b.min(b.add(first, SEGMENTS), loop.extent))
        differ = b.var("differ", b.const("i1", 0))
        whole, many = b.eq(b.sub(end, first), SEGMENTS), b.lt(b.i64(MANY - 1), b.sub(loop.extent, loop.begin))
        with b.if_(b.and_(whole, many)):
            segment = loop.context.resolve(loop.env.bind(loop.var, first), body).cursors[leader]
            b.set(differ, _differ(loop, leader, segment.level, segment.pos))
        b.if_else(b.get(differ), partial(run, first, end, True), partial(run, first, end, False))
    return True


def _leader(loop: Loop, body: cin.Stmt | None) -> cin.Access | None:
    """What is walked so right inside, segment by segment; None where nothing is."""
    if not isinstance(body, cin.Forall) or loop.context.program.loops is None:
        return None
    plan = loop.context.program.loops.plans.get(loop.env.loop_key(body))
    if plan is None or plan.shape != "padded":
        return None
    (leader,) = plan.leaders
    form, level = leader.tensor.format, loop.env.cursors[leader].level
    along = form.levels[level].full and leader.level_index(level) == loop.var
    return leader if along and level + 2 == len(form.levels) and leader.level_index(level + 1) == body.var else None


def _differ(loop: Loop, leader: cin.Access, level: int, first: Val) -> Val:
    """Whether enough of some segments have a few entries each, and differ in length."""
    b, operand = loop.b, loop.context.operands[leader.tensor.name]
    assert isinstance(operand, Input)
    edges, fit = operand.buffers[level]["pos"].pointer, b.i64(0)
    least, span = (b.splat(b.i64(n), LANES) for n in (LEAST, MOST - LEAST))
    for sample in range(SAMPLES):
        place = b.add(first, sample * (SEGMENTS // SAMPLES))
        lo, hi = (b.load(edges, b.add(place, k), f"<{LANES} x i64>", "edges") for k in range(2))
        few = b.compare("ult", b.binary("sub", b.binary("sub", hi, lo), least), span)
        count = b.call("llvm.ctpop.i8", "i8", [b.convert("bitcast", few, "i8")])
        fit = b.add(fit, b.convert("zext", count, "i64"))
    unlike = differing(b, edges, lambda row: row, first, SEGMENTS, 1)
    return b.and_(b.lt(b.i64(ENOUGH - 1), fit), b.lt(b.i64(UNEVEN), unlike))


def walk(loop: Loop, key: Leaders, walker: Walker) -> None:
    """The places of `walker`."""
    b, segment, stored = loop.b, walker.segment, loop.stored(walker) if loop.env.mode.unasked else None
    if stored is None:
        merge.entries(loop, key, walker)
        return

    def unasked() -> None:
        same = held.of(loop, key)
        inside = held.inside(loop, key, same) if same else loop
        for number in range(FIRST):
            place = b.named("q", b.add(segment.lo, number)) if number else segment.lo
            there = b.lt(place, segment.hi)
            replace(inside, enter=partial(_where, loop, there)).at_place(key, walker, place)
        with b.for_(b.named("rest", b.add(segment.lo, FIRST)), segment.hi, "p") as place:
            inside.at_place(key, walker, place)

    last = b.named("last", b.add(segment.lo, FIRST - 1))
    b.if_else(b.lt(last, stored), unasked, lambda: merge.entries(loop, key, walker))


def _where(loop: Loop, there: Val, stmt: cin.Stmt, coordinate: Val, env: Env) -> None:
    """What `stmt` adds at one place, if that is `there`."""
    b, context = loop.b, loop.context
    assert isinstance(stmt, cin.Assign) and stmt.op is not None
    env = context.resolve(env.bind(loop.var, coordinate), stmt)
    value, place = context.value(stmt.rhs, env), env.cursors[stmt.lhs].pos
    pointer, tensor = context.output.vals(b), stmt.lhs.tensor
    old = emit.load(b, pointer, place, tensor.dtype, 1, tensor.name)
    emit.store(b, pointer, place, emit.choose(b, there, emit.apply(b, stmt.op, [old, value], tensor.dtype), old))
