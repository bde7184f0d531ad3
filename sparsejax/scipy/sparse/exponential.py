"""`expm_multiply`: the exponential of a matrix times vectors, by products with the matrix alone.

Source: Al-Mohy and Higham, Computing the Action of the Matrix Exponential, 2011: (T_m(A / s))^s B for Taylor's polynomial T_m of degree 30,
which is as exact as double precision for a 1-norm of A / s up to 3.54 (table 3.1).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsejax.core.primitive import asarray
from sparsejax.core.trace import Tracer
from sparsejax.lax.contract import matmul
from sparsejax.lax.elementwise import convert_element_type, elementwise
from sparsejax.lax.loops import fori_loop, scan
from sparsejax.lax.reduce import reduce
from sparsejax.lax.structural import convert_format, integer
from sparsejax.numpy.indexing import stack

DEGREE, RADIUS = 30, 3.54


def expm_steps(A: Any, t: float = 1.0) -> int:
    """How many steps `expm_multiply` takes for `t * A`: its 1-norm over 3.54.

    >>> import sparsejax as sj
    >>> expm_steps(sj.array(np.diag([10.0, 1.0]), format="csr"))
    3
    """
    a = asarray(A, "the matrix A of expm_multiply")
    if isinstance(a, Tracer):
        raise TypeError(
            "expm_multiply of a traced matrix needs steps=, a number at least its 1-norm over 3.54: expm_steps(A) gives it for arrays "
            "outside traced functions"
        )
    size = reduce("max", reduce("sum", elementwise("absolute", a), 0)) if a.size else 0.0
    return max(1, math.ceil(abs(t) * float(size) / RADIUS))


def expm_multiply(
    A: Any,
    B: Any,
    start: float | None = None,
    stop: float | None = None,
    num: int | None = None,
    endpoint: bool = True,
    *,
    steps: int | None = None,
) -> Any:
    """`expm(A) @ B` for a square matrix in any format and a vector or matrix `B`; or, as in SciPy, `expm(t * A) @ B` for `num` times t
    from `start` to `stop`, along a first axis. 30 products with `A` per step. Differentiable by both; inside traced functions that take
    `A`, give `steps` (`expm_steps`).

    >>> import sparsejax as sj
    >>> expm_multiply(sj.array(np.diag([0.0, 1.0]), format="csr"), np.ones(2)).todense().round(6)
    array([1.      , 2.718282])

    Raises ValueError for shapes that do not fit, TypeError for a traced `A` without `steps`.
    """
    a, b = asarray(A, "the matrix A of expm_multiply"), asarray(B, "B of expm_multiply")
    if a.ndim != 2 or a.shape[0] != a.shape[1] or b.ndim not in (1, 2) or b.shape[0] != a.shape[0]:
        raise ValueError(
            f"expm_multiply: A of shape {a.shape} must be square, and B of shape {b.shape} have as many rows"
        )
    dtype = np.result_type(a.dtype, b.dtype)
    dtype = dtype if dtype.kind in "fc" else np.dtype(np.float64)
    a, b = convert_element_type(a, dtype), convert_format(convert_element_type(b, dtype), "dense")
    if start is None and stop is None:
        return _advanced(a, b, 1.0, expm_steps(a) if steps is None else integer(steps, "steps"))
    if start is None or stop is None:
        raise ValueError("expm_multiply takes both start and stop, or neither")
    times = np.linspace(start, stop, 50 if num is None else num, endpoint)
    made, before = [], 0.0
    for t in times.tolist():
        count = expm_steps(a, t - before) if steps is None else integer(steps, "steps")
        b = b if t == before else _advanced(a, b, t - before, count)
        made.append(b)
        before = t
    return stack(made)


def _advanced(a: Any, b: Any, t: float, steps: int) -> Any:
    weights = np.array([t / steps / (k + 1) for k in range(DEGREE)])

    def step(_: Any, x: Any) -> Any:
        def term(state: Any, weight: Any) -> Any:
            power, total = state
            power = convert_element_type(convert_format(matmul(a, power), "dense") * weight, b.dtype)
            return (power, elementwise("add", total, power)), None

        (_, total), _ = scan(term, (x, x), weights)
        return total

    return fori_loop(0, steps, step, b)
