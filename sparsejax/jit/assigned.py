"""Whether a kernel assigns every element of its dense result, so that memory for it need not be cleared before.

    forall i                              yes: i is counted, and the assignment always happens
      where w: scalar
        forall j
          w += A[i,j] * x[j]
      then
        out[i] = w

No where an element is accumulated in memory, where a loop over a variable of the result is led by something sparse, where a mask or
something that may turn out not to be stored decides whether it is assigned, and where blocks stick out of the shape. O(statement).
"""

from __future__ import annotations

from sparsejax.formats import Dense
from sparsejax.jit import cin, simplify
from sparsejax.jit.lower import Program


def assigns_all(program: Program) -> bool:
    """Whether `program` assigns every element of its result."""
    stmt, output = program.stmt, program.output
    if stmt is None or program.chunking.partial or not output.format.is_dense or output.format.blocked:
        return False
    writes = [w for w in cin.writes(stmt) if w.lhs.tensor.name == output.name]
    if len(writes) != 1 or simplify.conditions(stmt) or output.paired or output.inner:
        return False
    return _reaches(stmt, writes[0], frozenset(writes[0].lhs.indices))


def _reaches(stmt: cin.Stmt, write: cin.Assign, left: frozenset[cin.Index]) -> bool:
    """Whether `stmt` runs `write` for all coordinates of the variables that are `left`."""
    match stmt:
        case cin.Forall(var, body, _):
            counted = var in left and var.outer is None and not any(_leads(a, var) for a in cin.accesses(body))
            return counted and _reaches(body, write, left - {var})
        case cin.Where(consumer, _):
            tensor = cin.workspace(stmt)
            filled = all(a.tensor == tensor for a in cin.accesses(consumer) if a.tensor.name == tensor.name)
            return filled and tensor.policy == "scalar" and _reaches(consumer, write, left)
        case cin.Assign():
            return stmt == write and stmt.op is None and not left and all(map(_there, cin.accesses(stmt.rhs)))
    return False


def _leads(access: cin.Access, var: cin.IndexVar) -> bool:
    levels = access.tensor.format.levels
    return any(access.level_index(k) == var for k, level in enumerate(levels) if not isinstance(level, Dense))


def _there(access: cin.Access) -> bool:
    """Whether an access is a register or dense."""
    return access.tensor.policy == "scalar" or all(isinstance(level, Dense) for level in access.tensor.format.levels)
