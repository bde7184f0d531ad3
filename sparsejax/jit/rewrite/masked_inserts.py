"""Insertions under a mask that is known entry by entry, without a jump.

    w[i] or= masked(not seen[i], v)        before:  if seen[i] == 0: w[i] or= v, mark[i] = 1
                                           after:   w[i] = seen[i] == 0 ? w[i] or v : w[i];  mark[i] |= seen[i] == 0

Whether an entry is let through is mostly unforeseen, and a jump that was not foreseen takes as long as some ten insertions into a bitmap. Legal
where the value can be computed for every entry: its operands are resolved, and its operators cannot fail. Pays where these are few and cheap.
"""

from __future__ import annotations

from sparsejax.jit.ir import choices, cin, operators, policies, simplify
from sparsejax.jit.rewrite.loop_shapes import State

OPERATORS = 4
"""Cheap operators of a value that is computed whether it is asked for or not, at most."""


def is_legal(stmt: cin.Assign, state: State) -> bool:
    """Whether `stmt`, what is left of a statement where its mask lets an entry through, may be computed for every entry: it inserts single values into
    a workspace with marks, and all that it reads is found."""
    return (
        stmt.lhs.tensor.policy in policies.MARKED
        and stmt.op is not None
        and len(stmt.lhs.tensor.format.sparse) == len(stmt.lhs.indices)
        and stmt.rhs.dtype.kind != "c"
        and not simplify.conditions(stmt)
        and all(a.tensor.policy == "scalar" or _is_resolved(a, state) for a in cin.accesses(stmt.rhs))
    )


def selects(stmt: cin.Assign) -> bool:
    """Whether `stmt`, of which this is legal, inserts without a jump."""
    cheapest = "select" if _operators(stmt.rhs) <= OPERATORS else "jump"
    return choices.pick("masked_insert", ("jump", "select"), cheapest) == "select"


def _is_resolved(access: cin.Access, state: State) -> bool:
    return access not in state.unsure and state.levels.get(access) == len(access.indices)


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
