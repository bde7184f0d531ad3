"""Packing: dense operands are copied to a workspace for one panel of columns at a time, outside of the loops that read them again and again.

before:  forall jo                             after:  forall jo
           forall i                                      where P: dense over k,ji
             forall k                                      forall k
               forall ji                                     forall ji
                 C[i,jo,ji] += A[i,k] * B[k,jo,ji]             P[k,ji] = B[k,jo,ji]
                                                         then
                                                           forall i
                                                             forall k
                                                               forall ji
                                                                 C[i,jo,ji] += A[i,k] * P[k,ji]

`schedule/column_panels` says where, and why. An axis that is looked up (`B[K[p],j]`) is packed whole, under its coordinates.
"""

from __future__ import annotations

from dataclasses import replace

from sparsejax.formats import Dense, Format
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.program import Program


def packed(program: Program) -> Program:
    """`program`, whose outermost loop is one over panels, with what is read of each packed."""
    stmt = program.stmt
    assert isinstance(stmt, cin.Forall)
    loops, _ = cin.nested(stmt)
    extents, copies, moved = dict(program.extents), dict[str, cin.Stmt](), dict[cin.Access, cin.Expr]()
    for access in dict.fromkeys(cin.accesses(stmt.body)):
        if access.tensor.policy is None and access.tensor.format.is_dense and _runs_along(access, stmt.var, loops):
            own, tensor, copy = _copy(access, stmt.var, extents)
            copies.setdefault(tensor.name, copy)
            moved[access] = cin.Access(tensor, own)
    made = cin.map_values(stmt.body, lambda expr: cin.substitute(expr, moved))
    for copy in copies.values():
        made = cin.Where(made, copy)
    return replace(program, stmt=replace(stmt, body=made), extents=extents)


def copies(stmt: cin.Stmt) -> set[cin.Tensor]:
    """The workspaces that hold what is packed for an iteration of the outermost loop: copies of dense operands."""
    found, part = set[cin.Tensor](), stmt.body if isinstance(stmt, cin.Forall) else stmt
    while isinstance(part, cin.Where):
        _, copy = cin.nested(part.producer)
        source = copy.rhs if isinstance(copy, cin.Assign) and copy.op is None else None
        if isinstance(source, cin.Access) and source.tensor.policy is None and source.tensor.format.is_dense:
            found.update(w.lhs.tensor for w in cin.writes(copy))
        part = part.consumer
    return found


def _runs_along(access: cin.Access, panel: cin.IndexVar, loops: list[cin.IndexVar]) -> bool:
    """Whether an operand is read along panels, last in memory, and again for other loops."""
    last = [access.indices[d] for d in access.tensor.format.order[-2:]]
    if len(last) < 2 or last[0] != panel or len(loops) <= len(cin.bound_by(access)):
        return False
    var = cin.follows(last[1])
    return var is not None and var.outer == panel


def _copy(
    access: cin.Access, panel: cin.IndexVar, extents: dict[cin.IndexVar, tuple[str, int]]
) -> tuple[tuple[cin.Index, ...], cin.Tensor, cin.Stmt]:
    """The indices under which what is packed of an operand is read, the workspace, and the loops that fill it."""
    tensor = access.tensor
    kept = [d for d in tensor.format.order if access.indices[d] != panel and cin.variables_of(access.indices[d])]
    place = dict[int, cin.Index](enumerate(access.indices))
    for d in kept:
        if cin.follows(access.indices[d]) is None:
            place[d] = var = cin.IndexVar(f"{tensor.name}_{d}")
            extents[var] = tensor.name, d
    loops = cin.followed(place[d] for d in kept)
    plain = tensor.reshaped([tensor.shape[d] for d in kept], Format((Dense(),) * len(kept)))
    made = plain._replace(name=f"{tensor.name}_p", policy="dense")
    source = cin.Access(tensor, tuple(place[d] for d in range(len(place))))
    copy = cin.around(loops, cin.Assign(cin.Access(made, tuple(loops)), None, source))
    return tuple(access.indices[d] for d in kept), made, copy
