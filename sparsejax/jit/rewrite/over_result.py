"""Dense workspaces in the memory of the result, which takes their elements one by one once they are complete.

before:  where w: dense                        after:  the same, w being where out will be
           forall j, i
             w[i] += A[j,i]
         then
           forall i (vector)
             out[i] = max(w[i], 0)

Nothing is allocated beside the result, and what is stored lies in the cache where it was just read. Legal where the workspace is filled before all loops
over the result, and these assign every element once: from the element of the workspace at its very position, of as many bytes, which nobody
reads otherwise. One workspace of a kernel can be there.
"""

from __future__ import annotations

from dataclasses import replace

from sparsejax.jit.ir import cin
from sparsejax.jit.ir.program import Program
from sparsejax.jit.rewrite import assigned_once


def noted(program: Program) -> Program:
    """`program`, which says which workspace is in the memory of its result."""
    found: list[cin.Where] = []
    stmt, output = program.stmt, program.output
    while isinstance(stmt, cin.Where):
        found.append(stmt)
        stmt = stmt.consumer
    if stmt is None or not found or output.inner or assigned_once.assigned(stmt, output) is None:
        return program
    loops, store = cin.nested(stmt, "serial", "vector")
    if not loops or not isinstance(store, cin.Assign) or store.lhs.tensor.name != output.name or store.op is not None:
        return program
    name = next((t.name for where in found if _fits(t := cin.workspace(where), where.consumer, store)), None)
    return program if name is None else replace(program, resting=(name,), whole=True)


def _fits(tensor: cin.Tensor, consumer: cin.Stmt, store: cin.Assign) -> bool:
    """Whether all that is read of a workspace is, in `store`, what stands where the result's element will."""
    if tensor.policy != "dense" or tensor.lacks or tensor.inner or tensor.dtype.itemsize != store.lhs.dtype.itemsize:
        return False
    reads = [a for a in cin.accesses(consumer) if a.tensor.name == tensor.name]
    own = [a for a in cin.accesses(store) if a.tensor.name == tensor.name]
    return len(reads) == len(own) > 0 and all(_places(a) == _places(store.lhs) for a in own)


def _places(access: cin.Access) -> list[cin.Index]:
    """The indices of an access in the order of its memory."""
    return [access.level_index(level) for level in range(len(access.indices))]
