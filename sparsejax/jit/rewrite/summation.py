"""Which accumulations are floating-point sums, and how exactly they are computed (`codegen/sums`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.jit.ir import cin


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which numbers of `dtype` are added up."""
    return np.dtype(np.complex128 if dtype.kind == "c" else np.float64)


def is_sum(stmt: cin.Stmt, tensor: cin.Tensor) -> bool:
    """Whether `tensor`, a scalar that `stmt` accumulates, is a floating-point sum."""
    ops = {w.op for w in cin.writes(stmt) if w.lhs.tensor.name == tensor.name}
    return ops == {"add"} and tensor.dtype.kind in "fc"


def wants_exact(stmt: cin.Stmt, inside: bool) -> bool:
    """Whether the sum that `stmt` computes, `inside` other loops or not, is worth collecting what rounding loses."""
    return not inside or all(
        not _has_product(w.rhs) and all(a.tensor.format.is_dense for a in cin.accesses(w.rhs)) for w in cin.writes(stmt)
    )


def _has_product(expr: cin.Expr) -> bool:
    if not isinstance(expr, cin.Call):
        return False
    if expr.op == "multiply" and len(set(cin.accesses(expr))) > 1:
        return True
    return any(_has_product(a) for a in expr.args)
