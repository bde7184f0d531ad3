"""Definitions of more than one kernel may hold (`limits.PIECES`), as long statements of `insum` are: parts of them are stored first.

before:  out[i] += max(A[i,j], B[i,j]) * (C[i,j] + D[i,j]) * max(E[i,j], F[i,j]) + max(G[i,j], H[i,j]) * (K[i,j] + L[i,j])
after:   t[i,j] = max(A[i,j], B[i,j]) * (C[i,j] + D[i,j]) * max(E[i,j], F[i,j])
         out[i] += t[i,j] + max(G[i,j], H[i,j]) * (K[i,j] + L[i,j])

A part has the variables of one of its operands, so that it is as large as those at most; its format follows from its type, as that of any value does.
What depends on index arrays, and on what is stored, stays. Where no part makes the rest smaller, the kernel is as large as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Var
from sparsejax.jit.graph import limits
from sparsejax.jit.ir import cin, infer_formats
from sparsejax.jit.ir.nest import patterns


def divided(made: cin.Definition) -> tuple[dict[Var, cin.Definition], cin.Definition]:
    """What is stored before `made`, first things first, and what is left of it, which reads this by the names of its variables."""
    extents = cin.extents(cin.accesses(made.rhs))
    before: dict[Var, cin.Definition] = {}
    while (whole := limits.pieces(made.rhs, made.op)) > limits.PIECES:
        part = max(_parts(made.rhs), key=limits.pieces, default=None)
        if part is None:
            break
        variables = cin.variables(part)
        shape, definition = tuple(extents[v] for v in variables), cin.Definition(variables, None, part)
        var = Var(Aval(shape, part.dtype, *infer_formats.infer(definition, shape, part.dtype)))
        tensor = cin.Tensor(f"v{var.number}", shape, part.dtype, var.aval.format, var.aval.fill_value)
        left = cin.exchanged(made.rhs, part, cin.Access(tensor, variables))
        if limits.pieces(left, made.op) >= whole:
            break
        before[var], made = definition, cin.Definition(made.indices, made.op, left)
    return before, made


def _parts(expr: cin.Expr) -> Iterator[cin.Expr]:
    """The parts of `expr` that may be stored, each of which is no larger than one of its operands and fits into a kernel."""
    if not isinstance(expr, cin.Call) or expr.op == "stored":
        return
    read = cin.accesses(expr)
    within = any(set(cin.variables(expr)) <= set(a.indices) for a in read)
    if within and len(set(read)) > 1 and not any(patterns(expr)) and limits.pieces(expr) <= limits.PIECES:
        yield expr
        return
    for arg in expr.args:
        yield from _parts(arg)
