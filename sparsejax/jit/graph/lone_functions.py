"""Elementary functions of sums that are computed one after the other: the sums are stored first where that pays.

before:  out[i] = tanh(w[i]),   w[i] += A[i,k] * x[k]        a number after every row, which takes as long as a vector
after:   t[i] += A[i,k] * x[k];    out[i] = tanh(t[i])       in vectors

Sums along the innermost axis of every operand come one at a time; where an operand has the last axis of the result innermost, as H[k,j] in
A[i,k] * H[k,j], they come in vectors already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparsejax.core.avals import Aval
from sparsejax.jit.cost import machine, operator_counts
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule.loop_costs import VECTOR


def pays(sums: Nest, rhs: cin.Expr, indices: Sequence[cin.Index], out: Aval) -> bool:
    """Whether to store the result of `sums` before `rhs`, over the `indices` of a dense result, computes functions of it."""
    functions = sum(n for depends, n in operator_counts.by_variables(rhs)[2].items() if depends.issuperset(indices))
    if not functions or not sums.producers or not out.format.is_dense:
        return False
    long = [ix for ix, n in zip(indices, out.shape, strict=True) if n != 1]
    if not long or any(_innermost(a) == long[-1] for p in sums.producers for a in cin.accesses(p.rhs)):
        return False
    here, lanes = machine.current(), out.dtype.itemsize / 8
    each = lanes * (functions * (VECTOR - 1) * here.function - 2 * here.lane)
    return each * math.prod(out.shape) > here.call


def _innermost(access: cin.Access) -> cin.Index | None:
    """What runs along the last axis that is stored, of those that are longer than one."""
    order = [d for d in access.tensor.format.order if access.tensor.shape[d] != 1]
    return access.indices[order[-1]] if order else None
