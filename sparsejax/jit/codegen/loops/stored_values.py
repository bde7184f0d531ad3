"""A walk in lanes: stored values lie side by side, whatever their coordinates are, and so does what is appended to the output.

    for p in lo .. hi by 8:                             room for hi - lo entries is made once
      crd_out[n + p - lo ..] = crd[p ..]
      vals_out[n + p - lo ..] = exp(vals[p ..])

    for p in lo .. hi by 8:   t0 .. t7 += exp(vals[p ..])         a reduction: the lanes are added up at the end

Applies where nothing but the leader's values changes in the walk. Reductions of cheap values are better off with scalars
(`unrolled`): rows are short, and lanes must be put together after each.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from sparsejax.formats import Coordinate
from sparsejax.jit.backend import host
from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen.environment import Cursor
from sparsejax.jit.codegen.loops.walker import Leaders, Loop, Walker
from sparsejax.jit.codegen.vectors import VectorLoop
from sparsejax.jit.codegen.workspaces.append import Append
from sparsejax.jit.ir import cin, simplify
from sparsejax.jit.rewrite import lanewise
from sparsejax.jit.rewrite.vectorize import maskable, vectorizable


def applies(loop: Loop, key: Leaders, walker: Walker) -> bool:
    """Whether the walk of `walker` alone may run over lanes, and should."""
    stmt, context = loop.cases[key], loop.context
    if not isinstance(stmt, cin.Assign) or loop.env.mode.strip is not None or simplify.conditions(stmt):
        return False
    if not walker.side_by_side or not walker.segment.places_are_positions:
        return False
    changing = {a for a in cin.accesses(stmt.rhs) if loop.var in cin.bound_by(a)}
    along = {a for a in changing if _along(a, walker)}
    if changing - along != {walker.access} or walker.level + 1 != len(walker.access.indices):
        return False
    if any(c.found is not None for c in (loop.env.cursors[a] for a in cin.accesses(stmt.rhs) if a in loop.env.cursors)):
        return False
    if loop.enters:
        level, output = loop.env.cursors[stmt.lhs].level, context.output
        if stmt.op is not None or level + 1 != len(stmt.lhs.indices) or not output.is_run_end(level):
            return False
    elif stmt.lhs.tensor.policy == "append":
        last = isinstance(stmt.lhs.tensor.format.levels[-1], Coordinate) and stmt.lhs.indices[-1] == loop.var
        if stmt.op is not None or not last:
            return False
    elif not _along(stmt.lhs, walker) and (
        loop.var in stmt.lhs.indices or not (lanewise.elementary(stmt.rhs) or host.has_masks())
    ):
        return False
    return vectorizable(cin.Forall(loop.var, stmt), walked=(walker.access, stmt.lhs, *along))


def _along(access: cin.Access, walker: Walker) -> bool:
    """Whether `access` is a vector of values beside the walked one."""
    return len(access.indices) == 1 and cin.beside(access, (walker.access,))


def _few(loop: Loop, stmt: cin.Assign, walker: Walker) -> bool:
    """Whether a register accumulates segments that mostly hold less than two entries: whether there is any is not to be foreseen."""
    if stmt.lhs.tensor.policy != "scalar" or loop.env.scalar(stmt.lhs.tensor).mark is not None:
        return False
    return loop.is_short(walker) and maskable(stmt)


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
    if sink is None and _few(loop, stmt, walker):
        vector = VectorLoop(context, env, loop.var, stmt)
        vector.run_few(vector.prepared(env), segment.lo, segment.hi, follow)
        vector.finish(env)
        return
    with nullcontext() if sink is not None else b.if_(b.lt(segment.lo, segment.hi)):
        vector = VectorLoop(context, env, loop.var, stmt, beside=beside if writes else None)
        vector.run(vector.prepared(env), segment.lo, segment.hi, follow, short=not lanewise.elementary(stmt.rhs))
        vector.finish(env)
    if isinstance(kept, Append):
        kept.commit(b)
    elif sink is not None:
        output.commit(b, count)
