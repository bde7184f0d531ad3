"""Scattered operands: a fiber that is met with many others is put where its entries can be looked up.

before:  forall i                                     after:  forall i
           forall j                                             where b: scattered
             forall k                                             forall k
               out[i,j] += A[i,k] * B[j,k]                          b[k] = A[i,k]
                                                                then
                                                                  forall j
                                                                    forall k
                                                                      out[i,j] += b[k] * B[j,k]

Two sparse fibers of lengths m and n meet by merging, m + n steps; the scattered one costs m once for all j, and then n lookups each. These are
the inner products of a masked product of matrices, such as the cotangents of a sparse product, at the cost of the product itself.

Source: the row workspaces of Gustavson, "Two Fast Algorithms for Sparse Matrices: Multiplication and Permuted Transposition", read
instead of drained.
"""

from __future__ import annotations

from collections.abc import Collection

from sparsejax.formats import Bitmap, Format
from sparsejax.jit.ir import cin

POLICY = "scattered"


def scattered(stmt: cin.Stmt, names: Collection[str]) -> cin.Stmt:
    """`stmt` with the operands of these names scattered, each over its last storage level."""
    for access in dict.fromkeys(a for a in cin.accesses(stmt) if a.tensor.name in names):
        stmt = _scattered(stmt, access, frozenset())
    return stmt


def _scattered(stmt: cin.Stmt, access: cin.Access, bound: frozenset[cin.Index]) -> cin.Stmt:
    *outer, inner = (access.level_index(level) for level in range(len(access.indices)))
    if access not in set(cin.accesses(stmt)) or inner in bound:
        return stmt
    if isinstance(stmt, cin.Forall):
        bound |= {stmt.var}
        if stmt.var in outer and bound.issuperset(outer):
            walked = cin.follows(inner)
            assert walked is not None
            return cin.within(stmt, lambda body: _filled(body, access, walked))
    return cin.within(stmt, lambda part: _scattered(part, access, bound))


def _filled(body: cin.Stmt, access: cin.Access, var: cin.IndexVar) -> cin.Stmt:
    """`body` reading the fiber of `access` over `var` from a workspace."""
    tensor = access.tensor
    extent = tensor.shape[access.indices.index(var)]
    made = tensor.reshaped((extent,), Format((Bitmap(),)))._replace(name=f"{tensor.name}_row", policy=POLICY)
    row = cin.Access(made, (var,))
    consumer = cin.map_values(body, lambda expr: cin.substitute(expr, {access: row}))
    return cin.Where(consumer, cin.Forall(var, cin.Assign(row, None, access)))
