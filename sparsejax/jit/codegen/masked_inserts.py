"""Insertions under a mask that is known entry by entry, without a jump.

    w[i] or= masked(not seen[i], v)        before:  if seen[i] == 0: w[i] or= v, mark[i] = 1
                                           after:   w[i] = seen[i] == 0 ? w[i] or v : w[i];  mark[i] |= seen[i] == 0

Whether an entry is let through is mostly unforeseen, and a jump that was not foreseen takes as long as some ten insertions into a bitmap. Legal
where the value can be computed for every entry: its operands are resolved, and its operators cannot fail. Pays where these are few and cheap.
"""

from __future__ import annotations

from sparsejax.jit.codegen.environment import Env
from sparsejax.jit.codegen.workspaces.bitmap import Bitmap
from sparsejax.jit.codegen.workspaces.protocol import Workspace
from sparsejax.jit.ir import choices, cin, operators, simplify

OPERATORS = 4
"""Cheap operators of a value that is computed whether it is asked for or not, at most."""


def selects(workspace: Workspace, stmt: cin.Assign, env: Env) -> bool:
    """Whether `stmt`, what is left of a statement where its mask lets an entry through, inserts into its workspace without a jump."""
    legal = (
        isinstance(workspace, Bitmap)
        and stmt.op is not None
        and len(stmt.lhs.indices) == workspace.keys
        and stmt.rhs.dtype.kind != "c"
        and not simplify.conditions(stmt)
        and all(a.tensor.policy == "scalar" or _is_resolved(a, env) for a in cin.accesses(stmt.rhs))
    )
    if not legal:
        return False
    cheapest = "select" if _operators(stmt.rhs) <= OPERATORS else "jump"
    return choices.pick("masked_insert", ("jump", "select"), cheapest) == "select"


def _is_resolved(access: cin.Access, env: Env) -> bool:
    cursor = env.cursors.get(access)
    return cursor is not None and cursor.found is None and cursor.level == len(access.indices)


def _operators(expr: cin.Expr) -> int:
    """The cheap operators of an expression; more than `OPERATORS` where one is not cheap."""
    if not isinstance(expr, cin.Call):
        return 0
    operator = operators.get(expr.op)
    if operator.body is not None:
        own = _operators(operator.body)
    else:
        own = 0 if expr.op == "cast" else 1 if operator.cost <= operators.CHEAP else OPERATORS + 1
    return own + sum(map(_operators, expr.args))
