"""Insertions under a mask that is known entry by entry, without a jump.

    w[i] or= masked(not seen[i], v)        before:  if seen[i] == 0: w[i] or= v, mark[i] = 1
                                           after:   w[i] = seen[i] == 0 ? w[i] or v : w[i];  mark[i] |= seen[i] == 0

Whether an entry is let through is mostly unforeseen, and a jump that was not foreseen takes as long as some ten insertions into a bitmap. Legal
where the value can be computed for every entry: its operands are resolved, and its operators cannot fail. Pays where these are few and cheap.

    mark[i] = 1 for all;  drain: mark[i .. i + 63] &= seen[i .. i + 63] == 0          marks of one value, under a mask that is a dense vector

The mask is tested once for every entry in place of once for every insertion, and in lanes. Legal where whatever is inserted is one constant
(`single_valued`), and all of it is under this mask. 80,000 insertions take 0.6 of the time (`sieve`).
"""

from __future__ import annotations

from sparsejax.jit.codegen.environment import Env
from sparsejax.jit.codegen.workspaces.bitmap import Bitmap
from sparsejax.jit.codegen.workspaces.protocol import Workspace
from sparsejax.jit.ir import choices, cin, indices, operators, simplify

WAYS = "jump", "select", "drained"
"""What is known under these names in `alternatives`."""

OPERATORS = 4
"""Cheap operators of a value that is computed whether it is asked for or not, at most."""


def sieve(stmt: cin.Stmt, tensor: cin.Tensor) -> tuple[cin.Access, bool] | None:
    """The dense vector that is the mask of everything that `stmt` inserts into the marks `tensor`, and whether it lets through where it is false."""
    writes = [w for w in cin.writes(stmt) if w.lhs.tensor.name == tensor.name]
    if tensor.policy != "marks" or len(writes) != 1 or len(tensor.shape) != 1:
        return None
    (write,), asked = writes, list(simplify.conditions(writes[0]))
    if len(asked) != 1 or not isinstance(write.rhs, cin.Call) or write.rhs.op != "masked":
        return None
    mask, complement = asked[0], False
    while isinstance(mask, cin.Call) and len(mask.args) == 1:
        if mask.op == "logical_not":
            complement = not complement
        elif mask.op != "cast" or mask.dtype.kind != "b":
            return None
        mask = mask.args[0]
    (key,) = write.lhs.indices
    legal = (
        isinstance(mask, cin.Access)
        and mask.tensor.policy is None
        and mask.tensor.format.is_dense
        and len(mask.tensor.shape) == 1
        and not mask.tensor.format.blocked
        and mask.indices == (key,)
        and indices.follows(key) is not None
        and mask.tensor.dtype.kind in "biuf"
        and mask.tensor.dtype.itemsize <= 8
        and mask.tensor.dtype != "float16"
    )
    if not legal or choices.pick("masked_insert", WAYS, "drained") != "drained":
        return None
    assert isinstance(mask, cin.Access)
    return mask, complement


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
    return choices.pick("masked_insert", WAYS[:2], cheapest) == "select"


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
