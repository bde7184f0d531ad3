"""Workspaces all of whose entries have one value, which is not stored.

    w[j] or= masked(not seen[j], pair(f[i], A[i,j]))        before:  w[j] = w[j] or 1;  mark[j] = 1        after:  mark[j] = 1

Legal where every insertion gives the same constant, and combining it with the identity or with itself gives it again: what is reached, over
"or_pair" or "any_pair", or the largest or smallest of ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sparsejax.jit.ir import choices, cin, operators, policies
from sparsejax.jit.ir.program import Program


def noted(program: Program) -> Program:
    """`program`, which says of which workspaces no values are stored."""
    if program.stmt is None:
        return program
    marked = dict.fromkeys(w.lhs.tensor for w in cin.writes(program.stmt) if w.lhs.tensor.policy in policies.MARKED)
    legal = [tensor for tensor in marked if constant(program.stmt, tensor) is not None]
    single = tuple(t.name for t in legal if choices.pick("entries", ("kept", "one"), "one") == "one")
    return replace(program, single=single) if single else program


def constant(stmt: cin.Stmt, tensor: cin.Tensor) -> cin.Literal | None:
    """What every entry of the workspace `tensor` is, if that is one constant."""
    found = {_constant(w) for w in cin.writes(stmt) if w.lhs.tensor.name == tensor.name}
    (only, *others) = found
    if only is None or others or only.dtype != tensor.dtype or tensor.format.sparse != tuple(range(len(tensor.shape))):
        return None
    return only


def _constant(write: cin.Assign) -> cin.Literal | None:
    """What every entry is that `write` makes."""
    value = write.rhs
    while isinstance(value, cin.Call) and value.op == "masked":
        value = value.args[1]
    body = operators.get(value.op).body if isinstance(value, cin.Call) else None
    if not isinstance(body, cin.Literal) or body.dtype.kind == "c":
        return None
    return body if write.op is None or _stays(write, body) else None


def _stays(write: cin.Assign, constant: cin.Literal) -> bool:
    """Whether what is there, nothing or the constant, becomes the constant where that is added to it."""
    assert write.op is not None
    operator, tensor = operators.get(write.op), write.lhs.tensor
    one = np.asarray(constant.value, constant.dtype)
    before = np.asarray(tensor.fill_value, tensor.dtype), one
    return all(np.asarray(operator.numpy(x, one)).astype(tensor.dtype).tobytes() == one.tobytes() for x in before)
