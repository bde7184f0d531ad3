"""Consecutive: segments of one leader whose places are their coordinates; what lies at these is walked side by side.

    for p in lo .. hi:                             before: k = crd[p]
      for l in 0 .. g:
        t += V[k, l] * B[K[k, l], j]

    prefetch crd[pos[i + 2]], crd[pos[i + 3] - 1]  after: the ends of the segment after the next one
    if crd[lo] == lo and crd[hi - 1] == hi - 1:    coordinates ascend, so that those between are their places, too
      for q in lo * g .. hi * g:                   one loop, whose start waits for no coordinate
        prefetch B[K.vals[q + D], j]               of wide strips, and of tiles over blocks
        t += V.vals[q] * B[K.vals[q], j]
    else: as before

Such are the positions of an index array that is sorted: `C[R[p],n] += V[p,l] * B[K[p,l],n]` walks its arrays as a product walks those of a matrix.
Whether it is sorted need not be known before: two coordinates of a segment tell it of that segment. Nothing else is read there, so the processor
foresees neither, and runs only as far ahead as it has room while it waits for them: they are fetched two segments before, as `pos` tells them (products
with 32 columns of matrices beyond the second cache take 0.86 to 0.95 of the time: float32, an EPYC of the third generation). Terms come in the same
order in both, and results have the same bits.
"""

from __future__ import annotations

from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen import tile_fetches
from sparsejax.jit.codegen.environment import Cursor, Env
from sparsejax.jit.codegen.loops import merge, prefetch
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import Leaders
from sparsejax.jit.rewrite import loop_shapes


def walk(loop: Loop, key: Leaders, walker: Walker) -> None:
    """The places of `walker`."""
    b, segment = loop.b, walker.segment
    with b.if_(b.lt(segment.lo, segment.hi)):
        last = b.named("last", b.sub(segment.hi, 1))
        if loop.plan.prefetch:
            prefetch.ends(loop, walker)
        ends = [b.eq(segment.coordinate(place), place) for place in (segment.lo, last)]
        b.if_else(b.and_(*ends), lambda: _range(loop, key, walker), lambda: merge.entries(loop, key, walker))


def _range(loop: Loop, key: Leaders, walker: Walker) -> None:
    """A segment whose places are its coordinates."""
    b, context, segment = loop.b, loop.context, walker.segment
    inner, stmt, side_by_side = loop_shapes.rows_in_order(loop.cases[key], loop.var)
    each = b.i64(1)
    for var in inner:
        each = b.mul(each, context.bound(var, loop.env))
    # nothing but what lies side by side depends on these variables
    env = loop.env.bind(loop.var, segment.lo).with_cursors({walker.access: walker.cursor(segment.lo, None, segment.lo)})
    for var in inner:
        env = env.bind(var, b.i64(0))
    stored = b.mul(context.bound(loop.var, loop.env), each)

    def at(place: Val) -> Env:
        moved = {a: Cursor(1 + len(inner), place, base=loop.env.cursors[a].pos) for a in side_by_side}
        return context.resolve(env.with_cursors(moved), stmt)

    with b.for_(b.mul(segment.lo, each), b.named("end", b.mul(segment.hi, each)), "q") as place:
        strip = loop.env.mode.strip
        if loop.plan.prefetch and isinstance(stmt, cin.Assign) and strip is not None and merge.is_wide(strip):
            # behind the end comes what the next segment names, as a rule
            soon = b.named("soon", b.min(b.add(place, prefetch.ROWS), b.sub(stored, 1)))
            prefetch.lines(loop, at(soon), stmt, strip.var, strip.vectors * strip.lanes)
        elif loop.plan.prefetch and strip is not None:
            later = at(b.named("soon", b.min(b.add(place, tile_fetches.BLOCKS), b.sub(stored, 1))))
            tile_fetches.held(context, stmt, at(place).in_mode(ahead=((loop.var, lambda env, read: later),)), strip)
        context.emit(stmt, at(place))
