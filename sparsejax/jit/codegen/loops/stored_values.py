"""A walk in lanes: stored values lie side by side, whatever their coordinates are, and so does what is appended to the output.

    for p in lo .. hi by 8:                             room for hi - lo entries is made once
      crd_out[n + p - lo ..] = crd[p ..]
      vals_out[n + p - lo ..] = exp(vals[p ..])

    for p in lo .. hi by 8:   t0 .. t7 += exp(vals[p ..])         a reduction: the lanes are added up at the end

Applies where nothing but the leader's values changes in the walk. Reductions of cheap values are better off with scalars
(`reduce`): rows are short, and lanes must be put together after each.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen.environment import Cursor
from sparsejax.jit.codegen.loops import prefetch
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.vectors import VectorLoop
from sparsejax.jit.codegen.workspaces.append import Append
from sparsejax.jit.ir import cin, lanewise
from sparsejax.jit.ir.loop_plans import Leaders


def walk(loop: Loop, key: Leaders, walker: Walker) -> None:
    """The places of `walker`, many at a time."""
    b, context, stmt, segment, env = loop.b, loop.context, loop.cases[key], walker.segment, loop.env
    assert isinstance(stmt, cin.Assign)
    output, kept = context.output, context.operands.get(stmt.lhs.tensor.name)
    last = len(stmt.lhs.indices) - 1
    count = b.named("count", b.sub(segment.hi, segment.lo))
    sink = kept if isinstance(kept, Append) else output if loop.enters else None
    first = None
    if sink is not None:
        first = kept.extend(b, count) if isinstance(kept, Append) else output.extend(b, count, segment.lo)
    outer = {} if sink is None else env.level_coordinates(b, stmt.lhs)

    def follow(place: Val) -> Mapping[cin.Access, Cursor]:
        found = {walker.access: walker.cursor(place, None, place)}
        if first is not None:
            found[stmt.lhs] = Cursor(last + 1, b.add(first, b.sub(place, segment.lo)))
        return found

    def beside(place: Val, lanes: int) -> None:
        """The coordinates of appended entries."""
        if first is None:
            return
        start = b.add(first, b.sub(place, segment.lo))
        for lane in range(lanes):
            coordinates = {**outer, last: segment.coordinate(b.add(place, lane))}
            if isinstance(kept, Append):
                kept.put_key(b, b.add(start, lane), list(coordinates.values()))
            else:
                output.write_coordinates(b, last, b.add(start, lane), coordinates)

    writes = isinstance(kept, Append) or (first is not None and output.writes_coordinates)
    brief = env.mode.row_in_vector
    if brief is not None and sink in (None, output) and brief.covers(walker.access, VectorLoop.widest(stmt)):
        vector = VectorLoop(context, env, loop.var, stmt, lanes=brief.lanes)
        if vector.masks:
            vector.once(vector.prepared(env), segment.lo, segment.hi, follow, brief.values)
            vector.finish(env)
            if sink is not None:
                output.commit(b, count)
            return
    if loop.plan.prefetch:
        changing = dict.fromkeys(a for a in cin.accesses(stmt.rhs) if loop.var in cin.bound_by(a))
        prefetch.stream(loop, walker, segment.lo, False, changing)
    if loop.plan.tail == "unasked":
        vector = VectorLoop(context, env, loop.var, stmt)
        vector.run_few(vector.prepared(env), segment.lo, segment.hi, follow)
        vector.finish(env)
        return
    with nullcontext() if sink is not None else b.if_(b.lt(segment.lo, segment.hi)):
        vector = VectorLoop(
            context, env, loop.var, stmt, beside=beside if writes else None, masked=loop.plan.tail != "scalar"
        )
        vector.run(vector.prepared(env), segment.lo, segment.hi, follow, short=not lanewise.elementary(stmt.rhs))
        vector.finish(env)
    if isinstance(kept, Append):
        kept.commit(b)
    elif sink is not None:
        output.commit(b, count)
