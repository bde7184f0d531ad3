"""Which operand gives a sparse result its positions: when that is legal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sparsejax.jit.ir import cin, simplify, sole_leader
from sparsejax.jit.ir.program import Given, heads


def find(
    stmt: cin.Stmt | None, inputs: tuple[cin.Tensor, ...], output: cin.Tensor, extents: Mapping[cin.IndexVar, int]
) -> tuple[cin.Stmt, Given] | None:
    """The operand that gives the output of a concrete statement its positions, with the statement, whose blocks are assigned where
    they can be; None where there is no such operand."""
    form = output.format
    settled = all(level.settled for level in form.levels)
    if stmt is None or not settled or len(heads(output)) != 1 or output.paired or 0 in extents.values():
        return None
    last = form.sparse[-1]
    targets = {w.lhs for w in cin.writes(stmt) if w.lhs.tensor.name == output.name}
    if len(targets) != 1:
        return None
    (lhs,) = targets
    outer, inner = _outer(stmt, lhs, last)
    if inner is None or not _always(inner, output.name, set(outer)):
        return None
    for access in dict.fromkeys(cin.accesses(inner)):
        if not all(sole_leader.is_stored(condition, access) for condition in simplify.conditions(inner)):
            continue
        if (
            access.tensor in inputs
            and sole_leader.leads(access, outer)
            and sole_leader.alone(access, inner, outer)
            and _stays(stmt, access, outer)
        ):
            assigned = _assigned(inner, lhs, set(lhs.indices) - set(outer))
            whole = assigned is not None and simplify.exhaust_stmt(assigned, {access}) is None
            body = assigned if whole and assigned is not None else inner
            return _around(stmt, body, len(outer)), Given(access, last, whole)
    return None


def _outer(stmt: cin.Stmt, lhs: cin.Access, last: int) -> tuple[list[cin.IndexVar], cin.Stmt | None]:
    """The variables of the output's levels down to `last` and what is inside their loops, if these are outermost and in order; around
    them, workspaces may be filled that hold something in any case."""
    outer: list[cin.IndexVar] = []
    for level in range(last + 1):
        var = lhs.level_index(level)
        stmt = behind(stmt)
        if not isinstance(stmt, cin.Forall) or stmt.kind != "serial" or stmt.var != var:
            return outer, None
        outer.append(stmt.var)
        stmt = stmt.body
    return outer, stmt if len(set(outer)) == len(outer) else None


def _around(stmt: cin.Stmt, body: cin.Stmt, depth: int) -> cin.Stmt:
    """`stmt` with `body` inside its outermost loops."""
    if not depth:
        return body
    if isinstance(stmt, cin.Where):
        return replace(stmt, consumer=_around(stmt.consumer, body, depth))
    assert isinstance(stmt, cin.Forall)
    return replace(stmt, body=_around(stmt.body, body, depth - 1))


def behind(stmt: cin.Stmt) -> cin.Stmt:
    """What runs behind the workspaces around it, whatever was written to these."""
    while isinstance(stmt, cin.Where) and _certain(cin.workspace(stmt)):
        stmt = stmt.consumer
    return stmt


def _certain(workspace: cin.Tensor) -> bool:
    """Whether what reads a workspace runs, whether anything was written to it or not: its values are there."""
    return workspace.policy == "overlay" or (workspace.policy in ("scalar", "dense") and not workspace.lacks)


def _stays(stmt: cin.Stmt, leader: cin.Access, outer: list[cin.IndexVar]) -> bool:
    """Whether what is inside the loops over `outer` is still to be done where workspaces between these loops keep their initial values.

    `w` has a value wherever it is read, but where nothing is added to it this is a constant, and a result that would then hold its fill
    is not written:

        forall i                                   A csr, B dcsr, out at the positions of A
          where w
            forall k
              w[] += B[i,k]
          then
            forall j
              out[i,j] = masked(stored(A[i,j]), w[], 0.0)
    """
    bound: set[cin.Index] = set()
    empty: set[cin.Access] = set()
    while not bound.issuperset(outer):
        if isinstance(stmt, cin.Where):
            if _vanishes(stmt.producer, leader, bound, empty):
                names = {w.lhs.tensor.name for w in cin.writes(stmt.producer)}
                empty |= {a for a in cin.accesses(stmt.consumer) if a.tensor.name in names}
            stmt = stmt.consumer
        else:
            assert isinstance(stmt, cin.Forall)
            bound.add(stmt.var)
            stmt = stmt.body
    return simplify.exhaust_stmt(stmt, empty) is not None


def _vanishes(stmt: cin.Stmt, leader: cin.Access, bound: set[cin.Index], empty: set[cin.Access]) -> bool:
    """Whether nothing may be left to do of `stmt` inside loops over `bound`, where the leader is there: operands are not, or what is `empty`."""
    if any(not sole_leader.is_stored(condition, leader) for condition in simplify.conditions(stmt)):
        return True

    def absent(access: cin.Access) -> bool:
        if access.tensor.policy == "scalar":
            return access in empty
        index, levels = access.level_index, access.tensor.format.levels
        asked = [k for k, lv in enumerate(levels) if not lv.full and cin.known(index(k), bound)]
        walked = access.tensor == leader.tensor and all(
            index(k) == leader.level_index(k) for k in range(max(asked, default=-1) + 1)
        )
        return bool(asked) and not walked

    gone = {a for a in cin.accesses(stmt) if absent(a)}
    return bool(gone) and simplify.exhaust_stmt(stmt, gone) is None


def _always(stmt: cin.Stmt, name: str, bound: set[cin.IndexVar]) -> bool:
    """Whether `stmt` writes the tensor `name` whenever it runs, the sparse levels over variables in `bound` being resolved."""

    def resolved(access: cin.Access) -> bool:
        levels = enumerate(access.tensor.format.levels)
        return all(level.full or access.level_index(k) in bound for k, level in levels)

    match stmt:
        case cin.Assign(lhs, _, rhs):
            return lhs.tensor.name == name and all(map(resolved, cin.accesses(rhs)))
        case cin.Forall(var, body, _):
            return all(resolved(a) for a in cin.accesses(body) if var in a.indices) and _always(body, name, bound)
        case cin.Where(consumer, producer):
            if cin.workspace(stmt).policy not in ("scalar", "dense"):
                return False
            certain = not cin.workspace(stmt).lacks or all(map(resolved, cin.accesses(producer)))
            return certain and _always(consumer, name, bound)
        case _:
            return False


def _assigned(stmt: cin.Stmt, lhs: cin.Access, left: set[cin.Index]) -> cin.Stmt | None:
    """`stmt` with `lhs` assigned instead of accumulated, where it writes every value of a block once; None elsewhere. The loops over
    the variables `left` are still to come."""
    match stmt:
        case cin.Assign():
            return None if left else replace(stmt, op=None)
        case cin.Forall(var, body, _):
            inner = _assigned(body, lhs, left - {var}) if var in left and var.outer is None else None
            return None if inner is None else replace(stmt, body=inner)
        case cin.Where(consumer, _):
            made = _assigned(consumer, lhs, left)
            return None if made is None else replace(stmt, consumer=made)
        case _:
            return None
