"""Which loops run over the lanes of a vector: marks on innermost loops, and what loops over lanes ask."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sparsejax.jit.backend import host
from sparsejax.jit.ir import cin, lanewise, policies, simplify


def maskable(body: cin.Assign) -> bool:
    """Whether some lanes of a vector can be left out, in memory too."""
    return host.has_masks() and all(a.dtype.kind in "iuf" for a in (body.lhs, *cin.accesses(body.rhs)))


def vectorizable(stmt: cin.Forall, fixed: Collection[cin.Access] = (), walked: Collection[cin.Access] = ()) -> bool:
    """Whether an innermost loop may run over SIMD lanes: contiguous in its variable, lane-wise operators.

    In the range in question, accesses in `fixed` keep their position, and those in `walked` are contiguous.
    """
    body, var = stmt.body, stmt.var
    if not isinstance(body, cin.Assign):
        return False
    target = body.lhs.tensor
    if target.policy in policies.KEYED and body.lhs not in walked and not target.format.levels[-1].full:
        return False
    if var not in (*body.lhs.indices, *cin.variables(body.rhs)):
        return False
    reached = (a for a in (body.lhs, *cin.accesses(body.rhs)) if a not in walked)
    if any(cin.jumps(a, var) for a in reached):
        return False
    used = [body.lhs, *_read(body.rhs, var)]
    accumulates = body.op is not None and body.lhs.dtype.kind == "b"
    if any(a.dtype.kind not in "biufc" for a in used) or (accumulates and body.lhs.tensor.policy != "scalar"):
        return False
    if not all(a in fixed or a in walked or contiguous(a, var) for a in used):
        return False
    if var not in cin.bound_by(body.lhs) and (body.op is None or body.lhs.tensor.policy != "scalar"):
        return False
    return _lanewise(body.rhs, var) and (body.op is None or lanewise.lanewise(body.op, body.lhs.dtype.kind))


def reduces_in_lanes(body: cin.Assign, var: cin.IndexVar) -> bool:
    """Whether a reduction into a register may accumulate in lanes whose operands are put together."""
    used = (body.lhs, *cin.accesses(body.rhs))
    return (
        all(a.dtype.kind in "iufc" for a in used)
        and lanewise.lanewise(body.op or "", body.lhs.dtype.kind)
        and _lanewise(body.rhs, var)
    )


def _read(expr: cin.Expr, var: cin.IndexVar) -> Iterator[cin.Access]:
    """The accesses of `expr` but those in the conditions of masks that are decided before a loop over `var` starts."""
    if isinstance(expr, cin.Access):
        yield expr
    elif isinstance(expr, cin.Call):
        decided = expr.op == "masked" and not simplify.decides(var, expr.args[0])
        for arg in expr.args[1:] if decided else expr.args:
            yield from _read(arg, var)


def contiguous(access: cin.Access, var: cin.IndexVar) -> bool:
    """Whether the elements of an access over `var` lie side by side, or are one."""
    if var not in access.indices:
        return True
    last = len(access.indices) - 1
    return access.indices.count(var) == 1 and access.level_index(last) == var and access.tensor.format.levels[last].full


def _lanewise(expr: cin.Expr, var: cin.IndexVar) -> bool:
    if isinstance(expr, cin.Call):
        if expr.dtype.kind in "iufc" and not any(var in cin.bound_by(a) for a in cin.accesses(expr)):
            return True  # computed before the loop starts
        if expr.op == "masked" and not simplify.decides(var, expr.args[0]):
            return all(_lanewise(a, var) for a in expr.args[1:])  # decided before the loop starts
        kinds = {a.dtype.kind for a in expr.args} | {expr.dtype.kind}
        return lanewise.lanewise(expr.op, kinds) and all(_lanewise(a, var) for a in expr.args)
    return expr.dtype.kind in "biufc"


def mark_vectors(stmt: cin.Stmt) -> cin.Stmt:
    """Turn innermost loops that qualify into vector loops.

    before:  forall j                         after:  forall j (vector)
               C[i,j] += A[i,k] * B[k,j]                C[i,j] += A[i,k] * B[k,j]
    """
    if isinstance(stmt, cin.Forall) and isinstance(stmt.body, cin.Assign):
        return cin.Forall(stmt.var, stmt.body, "vector") if vectorizable(stmt) else stmt
    return cin.within(stmt, mark_vectors)
