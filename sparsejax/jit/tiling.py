"""Register tiles: a dense variable below reduction loops moves just outside them, and runs in strips of registers.

before:  forall i                              after:  forall i
           forall j                                      forall k (tile)
             forall k (vector)                             where t: scalar
               C[i,k] += A[i,j] * B[j,k]                      forall j
                                                                t += A[i,j] * B[j,k]
                                                            then
                                                              C[i,k] += t

The result is read and written once per strip instead of once per stored entry; the sparse loops are walked once per
strip. `k` qualifies when its loop is a vector loop, the loops around it are reductions, and the target keeps its place
in memory meanwhile. Source: reuse analysis of mixed sparse-dense loops (reference section 4.4: a variable that some operand
lacks is reused over it; registers win, accumulators in memory lose).
"""

from __future__ import annotations

from sparsejax.formats import Format
from sparsejax.jit import cin, operators


def tile(stmt: cin.Stmt) -> cin.Stmt:
    """`stmt` with every loop that qualifies moved out and tiled."""
    match stmt:
        case cin.Forall(var, body, "serial"):
            return _tiled(stmt) or cin.Forall(var, tile(body))
        case cin.Where(consumer, producer):
            return cin.Where(tile(consumer), tile(producer))
        case cin.Seq(stmts):
            return cin.Seq(tuple(tile(s) for s in stmts))
        case _:
            return stmt


def _tiled(stmt: cin.Forall) -> cin.Stmt | None:
    """The tiled form of reductions around a vector loop; None when `stmt` is something else."""
    reductions: list[cin.IndexVar] = []
    inner: cin.Stmt = stmt
    while isinstance(inner, cin.Forall) and inner.kind == "serial":
        reductions.append(inner.var)
        inner = inner.body
    if not isinstance(inner, cin.Forall) or inner.kind != "vector" or not isinstance(inner.body, cin.Assign):
        return None
    lhs, op, rhs = inner.body.lhs, inner.body.op, inner.body.rhs
    if op is None or inner.var not in lhs.indices or set(reductions) & set(cin.bound_by(lhs)):
        return None
    identity = operators.get(op).identity(lhs.dtype)
    register = cin.Access(cin.Tensor(f"{lhs.tensor.name}_t", (), lhs.dtype, Format(()), identity, "scalar"), ())
    producer: cin.Stmt = cin.Assign(register, op, rhs)
    for var in reversed(reductions):
        producer = cin.Forall(var, producer)
    return cin.Forall(inner.var, cin.Where(cin.Assign(lhs, op, register), producer), "tile")
