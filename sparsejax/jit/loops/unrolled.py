"""Several running sums at once: a walk that only accumulates into a register.

    for p in lo .. hi by 4:                       one after the other, then the sums are put together, then the rest
      t0 += vals[p] * x[crd[p]]
      t1 += vals[p + 1] * x[crd[p + 1]]           no addition waits for the one before
      ...

An addition takes about four times as long as the processor needs to start the next one. Applies to every associative and
commutative reduction into a register whose other operands are dense below, or are looked up in a workspace.
"""

from __future__ import annotations

from sparsejax.formats import Dense
from sparsejax.jit import cin, operators, scatter, sums
from sparsejax.jit.loops.walker import Leaders, Loop, Walker
from sparsejax.jit.operands import Scalar

COPIES = 4


def applies(loop: Loop, key: Leaders, walker: Walker) -> bool:
    """Whether the walk of `walker` alone accumulates into a register, with nothing to look up."""
    stmt, lowering = loop.cases[key], loop.lowering
    if not isinstance(stmt, cin.Assign) or stmt.lhs.tensor.policy != "scalar" or lowering.strip is not None:
        return False
    if stmt.op is None or not operators.get(stmt.op).associative or not operators.get(stmt.op).commutative:
        return False
    whole = lowering.scalars[stmt.lhs.tensor.name]
    if whole.total is not None and whole.total.exact:
        return False
    for access in cin.accesses(stmt.rhs):
        if access.tensor.policy == "scalar":
            continue
        cursor = loop.env.cursors[access]
        below = access.tensor.format.levels[cursor.level + (access in key) :]
        looked_up = access.tensor.policy == scatter.POLICY and whole.mark is None
        if cursor.found is not None or not (looked_up or all(isinstance(level, Dense) for level in below)):
            return False
    return walker.side_by_side


def accumulate(loop: Loop, key: Leaders, walker: Walker) -> None:
    """The walk, `COPIES` places at a time while there are as many."""
    b, lowering, segment, stmt = loop.b, loop.lowering, walker.segment, loop.cases[key]
    assert isinstance(stmt, cin.Assign)
    tensor = stmt.lhs.tensor
    whole = lowering.scalars[tensor.name]
    rest = b.var("rest", segment.lo)
    count = b.named("count", b.sub(segment.hi, segment.lo))
    with b.if_(b.compare("sge", count, b.i64(COPIES))):
        copies = [whole]
        for _ in range(COPIES - 1):
            total = None if whole.total is None else sums.Sum(b, tensor.name, tensor.dtype, False)
            copies.append(Scalar(b, tensor, tracked=False, total=total))
        end = b.named("end", b.add(segment.lo, b.and_(count, b.i64(-COPIES))))
        with b.for_(segment.lo, end, "p", COPIES) as first:
            for number, copy in enumerate(copies):
                lowering.scalars[tensor.name] = copy
                loop.at_place(key, walker, b.named("q", b.add(first, number)) if number else first)
        lowering.scalars[tensor.name] = whole
        for copy in copies[1:]:
            whole.put(b, stmt.op, copy.get(b))
        b.set(rest, end)
    with b.for_(b.get(rest), segment.hi, "p") as place:
        loop.at_place(key, walker, place)
