"""Consecutive: the coordinates of one leader, which nobody reads but for where they are; a segment of consecutive ones is a range.

    for p in lo .. hi:                             before: k = crd[p]
      for l in 0 .. g:
        t += V[k, l] * B[K[k, l], j]

    if crd[hi - 1] - crd[lo] == hi - 1 - lo:       after: coordinates ascend, so that none is missing between the first and the last
      for q in crd[lo] * g .. crd[hi - 1] * g + g: what lies side by side, in one loop
        t += V.vals[q] * B[K.vals[q], j]
    else: as before

Entries of an index array that is sorted are consecutive in every row that it names: `C[R[p],n] += V[p,l] * B[K[p,l],n]` walks its arrays as a product
walks those of a matrix. Whether it is sorted need not be known before: two coordinates of a segment tell it of that segment. Terms come in the same order
in both, and results have the same bits.
"""

from __future__ import annotations

from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen.environment import Cursor, Env
from sparsejax.jit.codegen.loops import merge, prefetch
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import Leaders
from sparsejax.jit.rewrite import loop_shapes


def walk(loop: Loop, key: Leaders, walker: Walker) -> None:
    """The places of `walker`, of every segment as its coordinates are."""
    b, segment = loop.b, walker.segment
    with b.if_(b.lt(segment.lo, segment.hi)):
        last = b.named("last", b.sub(segment.hi, 1))
        first = segment.coordinate(segment.lo)
        distance = b.sub(segment.coordinate(last), first)
        b.if_else(
            b.eq(distance, b.sub(last, segment.lo)),
            lambda: _range(loop, key, walker, first),
            lambda: merge.entries(loop, key, walker),
        )


def _range(loop: Loop, key: Leaders, walker: Walker, first: Val) -> None:
    """A segment whose first coordinate is `first` and whose others follow it."""
    b, context, segment = loop.b, loop.context, walker.segment
    inner, stmt, side_by_side = loop_shapes.rows_in_order(loop.cases[key], loop.var)
    each = b.i64(1)
    for var in inner:
        each = b.mul(each, context.bound(var, loop.env))
    start = b.named("start", b.mul(first, each))
    count = b.mul(b.sub(segment.hi, segment.lo), each)
    # nothing but what lies side by side depends on these variables
    env = loop.env.bind(loop.var, first)
    for var in inner:
        env = env.bind(var, b.i64(0))
    env = env.with_cursors({walker.access: walker.cursor(segment.lo, None, first)})

    def at(place: Val) -> Env:
        moved = {a: Cursor(1 + len(inner), place, base=loop.env.cursors[a].pos) for a in side_by_side}
        return context.resolve(env.with_cursors(moved), stmt)

    end = b.named("end", b.add(start, count))
    # behind the end comes what the next segment names, as a rule
    stored = b.mul(context.bound(loop.var, loop.env), each)
    with b.for_(start, end, "q") as place:
        strip = loop.env.mode.strip
        if loop.plan.prefetch and isinstance(stmt, cin.Assign) and strip is not None and merge.is_widest(loop, strip):
            soon = b.named("soon", b.min(b.add(place, prefetch.ROWS), b.sub(stored, 1)))
            prefetch.lines(loop, at(soon), stmt, strip.var, strip.vectors * strip.lanes)
        context.emit(stmt, at(place))
