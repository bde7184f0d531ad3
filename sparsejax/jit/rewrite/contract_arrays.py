"""Forwarding: what is made for a dense workspace and read once goes where it is read, and is not stored.

before:  where w: dense                        after:  forall j (tile)
           forall j (tile)                               where t: scalar
             where t: scalar                               forall k
               forall k                                      t += A[k] * B[k,j]
                 t += A[k] * B[k,j]                      then
             then                                          out[j] = max(t, 0)
               w[j] = t
         then
           forall j (vector)
             out[j] = max(w[j], 0)

Legal where both run once over all elements of the workspace, and the reader in lanes. What cannot be forwarded but is assigned as a whole
(`assigned_once`) is not cleared first. Source: array contraction (Gao, Olsen, Sarkar and Thekkath 1992).
"""

from __future__ import annotations

from dataclasses import replace

from sparsejax.jit.ir import cin, simplify
from sparsejax.jit.rewrite import assigned_once


def forwarded(stmt: cin.Stmt) -> cin.Stmt:
    """`stmt` with workspaces forwarded, or assigned as wholes, where that is legal."""
    made = cin.within(stmt, forwarded)
    if not isinstance(made, cin.Where):
        return made
    kept = cin.workspace(made)
    if kept.policy != "dense" or kept.lacks:
        return made
    assigned = assigned_once.assigned(made.producer, kept)
    if assigned is None:
        return made
    return _into(made.consumer, assigned, kept) or replace(made, producer=assigned)


def _into(consumer: cin.Stmt, producer: cin.Stmt, kept: cin.Tensor) -> cin.Stmt | None:
    """`producer` with what it assigns to `kept` given to `consumer`, whose innermost statement then takes its place."""
    loops, inner = set[cin.IndexVar](), consumer
    while isinstance(inner, cin.Forall) and inner.kind in ("serial", "vector"):
        last, inner = inner, inner.body
        loops.add(last.var)
    if not isinstance(inner, cin.Assign) or not loops or last.kind != "vector" or inner.op is not None:
        return None
    if simplify.conditions(inner) or any(inner.lhs.dtype != a.dtype for a in cin.accesses(inner.rhs)):
        return None
    (made,) = (w for w in cin.writes(producer) if w.lhs.tensor.name == kept.name)
    read = [a for a in dict.fromkeys(cin.accesses(inner.rhs)) if a.tensor.name == kept.name]
    if read != [made.lhs] or set(made.lhs.indices) != loops or not isinstance(made.rhs, cin.Access):
        return None
    if made.rhs.tensor.policy != "scalar" or made.rhs.tensor.lacks or not assigned_once.over_all(inner, loops):
        return None
    value = cin.substitute(inner.rhs, {made.lhs: made.rhs})
    return _with(producer, made, replace(inner, rhs=value))


def _with(stmt: cin.Stmt, old: cin.Assign, new: cin.Assign, tiled: bool = False) -> cin.Stmt | None:
    """`stmt` with one assignment in place of another; None where that is in no loop that runs in tiles."""
    match stmt:
        case cin.Forall(_, inner, kind):
            body = _with(inner, old, new, tiled or kind == "tile")
            return None if body is None else replace(stmt, body=body)
        case cin.Where(consumer, _):
            made = _with(consumer, old, new, tiled)
            return None if made is None else replace(stmt, consumer=made)
        case _:
            return new if stmt == old and tiled else None
