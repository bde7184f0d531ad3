"""Two running sums: a walk over few entries that only accumulates into a register.

    for p in lo .. hi by 2:                       then the last one, if it is left over, then both sums are put together
      t0 += vals[p] * x[crd[p]]
      t1 += vals[p + 1] * x[crd[p + 1]]

An addition waits four cycles for the one before; rows of four entries in vectors (`gathered`, `unrolled`) wait as long for their lanes to be put
together. Where the ends of rows are foreseen, because they are few or alike (`row_blocks`), this is fastest up to some eight entries (calls beside
masked vectors, on rows of 3.6, 4.0, 5.6, 6.7 and 7.6 entries: 0.74, 0.79, 0.85, 0.90 and 0.94 of the time).
"""

from __future__ import annotations

from sparsejax.jit.codegen.loops import prefetch, unrolled
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import Leaders


def walk(loop: Loop, key: Leaders, walker: Walker) -> None:
    """The walk."""
    b, segment, stmt = loop.b, walker.segment, loop.cases[key]
    assert isinstance(stmt, cin.Assign)
    if loop.plan.prefetch:
        own = [walker.access] if walker.level + 1 == len(walker.access.indices) else []
        prefetch.stream(loop, walker, segment.lo, len(set(cin.accesses(stmt.rhs))) > 1, own)
    end = b.named("end", b.add(segment.lo, b.and_(b.sub(segment.hi, segment.lo), b.i64(-2))))
    with b.if_(b.lt(segment.lo, end)):
        unrolled.in_registers(loop, stmt, key, walker, end, 2)
    with b.if_(b.lt(end, segment.hi)):
        loop.at_place(key, walker, end)
