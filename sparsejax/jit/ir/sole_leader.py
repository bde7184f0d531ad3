"""Which operand leads loops alone, so that what is written there has an entry for each of its own."""

from __future__ import annotations

from sparsejax.jit.ir import cin, simplify


def is_stored(condition: cin.Expr, access: cin.Access) -> bool:
    """Whether `condition` asks whether `access` is stored, and nothing else."""
    return isinstance(condition, cin.Call) and condition.op == "stored" and condition.args == (access,)


def leads(access: cin.Access, outer: list[cin.IndexVar]) -> bool:
    """Whether the first levels of an operand are over `outer`, with a position for each entry and no other."""
    form, depth = access.tensor.format, len(outer)
    levels = form.levels[:depth]
    if access.tensor.paired or len(levels) < depth or levels[-1].full:
        return False
    below = range(depth, len(form.levels))
    if any(form.continues(level) for level in below[:1]) or any(access.level_index(level) in outer for level in below):
        return False  # several positions to an entry of a run, or a diagonal, which may not be stored
    plain = all(level.settled and level.unique for level in levels)
    return plain and [access.level_index(level) for level in range(depth)] == outer


def alone(access: cin.Access, inner: cin.Stmt, outer: list[cin.IndexVar]) -> bool:
    """Whether the loops over `outer` walk `access` alone: nothing is left where it is absent, and others are dense there."""
    for other in dict.fromkeys(cin.accesses(inner)):
        if other == access or other.tensor.policy == "scalar":
            continue
        levels = [k for k in range(len(other.indices)) if other.level_index(k) in outer]
        if any(not level.full for level in other.tensor.format.levels[: max(levels, default=-1) + 1]):
            return False
    return simplify.exhaust_stmt(inner, {access}) is None


def fills(access: cin.Access, var: cin.IndexVar, assign: cin.Assign) -> bool:
    """Whether a loop over `var` walks `access` alone at its last level, and writes for each of its entries."""
    if assign.op is not None or not access.indices or access.level_index(len(access.indices) - 1) != var:
        return False
    outer = [access.level_index(level) for level in range(len(access.indices))]
    bound = cin.followed(outer)
    asked = all(is_stored(condition, access) for condition in simplify.conditions(assign))
    return len(bound) == len(outer) and asked and leads(access, bound) and alone(access, assign, bound)
