"""Sparse linear algebra, by the names of `scipy.sparse.linalg`: solvers of equations, factors, eigenvalues and singular values.

They are differentiated implicitly: the tangent of `x` solves `A dx = db - dA x`, and the cotangent of `b` the transposed equation, by
the same method. So derivatives are as accurate as the tolerance lets them be, and no iteration is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.primitive import asarray
from sparsejax.core.trace import stack
from sparsejax.lax.elementwise import convert_element_type, elementwise, real, where
from sparsejax.lax.extents import along
from sparsejax.lax.library.callbacks import observe
from sparsejax.lax.library.decompositions import pinv
from sparsejax.lax.linalg import spsolve
from sparsejax.lax.linear import full, zeros
from sparsejax.lax.loops import fori_loop, while_loop
from sparsejax.lax.reduce import reduce
from sparsejax.lax.structural import convert_format, expand_dims, reshape
from sparsejax.numpy.linalg import norm as _norm
from sparsejax.scipy.sparse import krylov
from sparsejax.scipy.sparse.eigen import eigsh, lobpcg, svds
from sparsejax.scipy.sparse.exponential import expm_multiply, expm_steps
from sparsejax.scipy.sparse.factors import SuperLU, factorized, jacobi, spilu, splu, spsolve_triangular
from sparsejax.scipy.sparse.operators import LinearOperator, aslinearoperator
from sparsejax.transforms import staging
from sparsejax.transforms.linear_solve import Algorithm, Function, linear_solve

__all__ = [
    "LinearOperator",
    "SuperLU",
    "aslinearoperator",
    "bicgstab",
    "cg",
    "eigsh",
    "expm_multiply",
    "expm_steps",
    "factorized",
    "gmres",
    "jacobi",
    "lobpcg",
    "lsqr",
    "minres",
    "norm",
    "onenormest",
    "spilu",
    "splu",
    "spsolve",
    "spsolve_triangular",
    "svds",
]


def __dir__() -> list[str]:
    return __all__


Matrix = Any
"""A square matrix in any format, or a function that multiplies by it."""


def cg(
    A: Matrix,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    rtol: float | None = None,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Matrix | None = None,
    callback: Callable[[Any], None] | None = None,
) -> tuple[Any, Any]:
    """`(x, info)` where `A @ x = b` for a Hermitian positive definite `A`, by conjugate gradients.

    `A` is a square matrix in any format, or a linear function of arrays like `b`; so is `M`, an approximate inverse of `A`. Iterations
    start from `x0` (zero) and end when `norm(b - A @ x) <= max(tol * norm(b), atol)` (SciPy's name for `tol` is `rtol`), or after
    `maxiter` (10 times the size of `b`). `info` is 0 where they converged, else how many there were. `callback(x)` is called with every
    iterate, a NumPy array. `A` and `M` may be LinearOperators; `jacobi` and `spilu` make some.

    One loop of compiled kernels, also outside `jit`; differentiable with respect to `b` and to what `A` is made of.
    Source: Hestenes and Stiefel 1952; Saad, Iterative Methods for Sparse Linear Systems, algorithm 9.1.

    >>> import sparsejax as sj
    >>> A = sj.array(np.array([[4.0, 1.0], [1.0, 3.0]]), format="csr")
    >>> x, info = cg(A, np.array([6.0, 7.0]))
    >>> x.todense().round(6), int(info)
    (array([1., 2.]), 0)

    Raises ValueError for shapes that do not fit together.
    """
    limit = tol if rtol is None else rtol
    if callback is not None:
        return _solved("cg", _watched(callback), A, b, x0, limit, atol, maxiter, M)
    return _solution("cg", 0, A, b, x0, limit, atol, maxiter, M)


def gmres(
    A: Matrix,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    rtol: float | None = None,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Matrix | None = None,
    solve_method: str = "batched",
) -> tuple[Any, Any]:
    """`(x, info)` where `A @ x = b`, by GMRES with restarts; arguments as in `cg`, for any square `A`.

    A cycle builds a basis of `restart` vectors, which are kept; `maxiter` and `info` count cycles. `M` is applied on the right, so the
    residual is that of the equation. Of JAX's methods there is "batched", which looks at the residual once per cycle.
    Source: Saad and Schultz 1986; Saad, algorithm 9.5, with Gram-Schmidt twice.

    >>> import sparsejax as sj
    >>> A = sj.array(np.array([[0.0, 1.0], [2.0, 0.0]]), format="csr")
    >>> gmres(A, np.array([3.0, 4.0]))[0].todense().round(6)
    array([2., 3.])
    """
    if solve_method != "batched":
        raise ValueError(f"gmres: solve_method {solve_method!r} is not implemented; it must be 'batched'")
    if restart < 1:
        raise ValueError(f"gmres: restart={restart} must be at least 1")
    return _solution("gmres", restart, A, b, x0, tol if rtol is None else rtol, atol, maxiter, M)


def bicgstab(
    A: Matrix,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    rtol: float | None = None,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Matrix | None = None,
) -> tuple[Any, Any]:
    """`(x, info)` where `A @ x = b`, by stabilised biconjugate gradients; arguments as in `cg`, for any square `A`. Two products with `A` an
    iteration, no basis is kept; `M` is applied on the right.

    >>> import sparsejax as sj
    >>> A = sj.array(np.array([[4.0, 1.0], [2.0, 3.0]]), format="csr")
    >>> bicgstab(A, np.array([6.0, 8.0]))[0].todense().round(6)
    array([1., 2.])
    """
    return _solution("bicgstab", 0, A, b, x0, tol if rtol is None else rtol, atol, maxiter, M)


def minres(
    A: Matrix,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    rtol: float | None = None,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Matrix | None = None,
) -> tuple[Any, Any]:
    """`(x, info)` where `A @ x = b`, by minimal residuals; arguments as in `cg`, for a Hermitian `A` that need not be definite. `M` must be
    positive definite.

    >>> import sparsejax as sj
    >>> A = sj.array(np.array([[0.0, 1.0], [1.0, 0.0]]), format="csr")
    >>> minres(A, np.array([2.0, 1.0]))[0].todense().round(6)
    array([1., 2.])
    """
    return _solution("minres", 0, A, b, x0, tol if rtol is None else rtol, atol, maxiter, M)


def lsqr(
    A: Any,
    b: Any,
    damp: float = 0.0,
    atol: float = 1e-10,
    btol: float = 0.0,
    iter_lim: int | None = None,
    x0: Any = None,
) -> tuple[Any, Any]:
    """`(x, info)` where `norm(A @ x - b)^2 + norm(damp * x)^2` is least, for a matrix in any format or a LinearOperator with an adjoint;
    `info` is 0 where it converged: where `A^H (b - A x) - damp^2 x` is below `atol` times its size at x = 0.

    By conjugate gradients on the normal equations, which find what LSQR finds (Paige and Saunders 1982). Differentiable implicitly.

    >>> import sparsejax as sj
    >>> A = sj.array(np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), format="csr")
    >>> lsqr(A, np.array([1.0, 4.0, 9.0]))[0].todense().round(6)
    array([1., 2.])
    """
    operator = aslinearoperator(A)
    side = operator.rmatvec(convert_format(asarray(b, "the right side b of lsqr"), "dense"))
    weight = damp * damp

    def normal(x: Any) -> Any:
        made = operator.rmatvec(operator.matvec(x))
        return made if weight == 0 else made + weight * x

    limit = max(2 * sum(operator.shape), 10) if iter_lim is None else iter_lim
    return _solved("lsqr", krylov.least_squares, normal, side, x0, max(atol, btol), 0.0, limit, None)


def norm(x: Any, ord: Any = None, axis: Any = None) -> Any:
    """`scipy.sparse.linalg.norm`: `sparsejax.numpy.linalg.norm`; the norm 2 of a sparse matrix by its largest singular value (`svds`)."""
    made = asarray(x)
    if ord == 2 and axis is None and made.ndim == 2 and not made.format.is_dense:
        return reduce("max", svds(made, 1, return_singular_vectors=False))
    return _norm(made, ord, axis)


def onenormest(A: Any) -> Any:
    """The 1-norm of a matrix: exactly, in O(stored entries), where SciPy estimates it.

    >>> import sparsejax as sj
    >>> float(onenormest(sj.array([[1.0, -2.0], [0.0, 3.0]], format="csr")))
    5.0
    """
    return _norm(A, 1)


# --------------------------------------------------------------------------------------------------------- arguments


def _solution(
    name: str, size: int, A: Matrix, b: Any, x0: Any, rtol: Any, atol: Any, maxiter: Any, M: Matrix | None
) -> tuple[Any, Any]:
    """What an algorithm finds; at once with arrays alone, it runs as one program, which serves all later equations of other sizes too."""
    if stack.traces or callable(A) or callable(M):
        return _solved(name, _algorithm(name, size), A, b, x0, rtol, atol, maxiter, M)
    side = asarray(b, f"the right side b of {name}")
    given: list[Any] = [asarray(A, f"the matrix A of {name}"), side]
    given += [
        np.asarray(n, t)
        for n, t in ((rtol, "f8"), (atol, "f8"), (10 * side.size if maxiter is None else maxiter, "i8"))
    ]
    given += [] if M is None else [asarray(M, f"the matrix M of {name}")]
    given += [] if x0 is None else [asarray(x0, f"the start x0 of {name}")]
    found: tuple[Array, Array] = _program(*given, M is not None, x0 is not None, name, size)
    return found


@again(7, whole=True)
def _program(A: Any, b: Any, rtol: Any, atol: Any, maxiter: Any, *rest: Any) -> tuple[Any, Any]:
    """An algorithm as a function of arrays: behind the numbers the preconditioner and the start, if there are any, whether there are, and its name."""
    *others, preconditioned, started, name, size = rest
    M, x0 = (others[0] if preconditioned else None), (others[-1] if started else None)
    return _solved(name, _algorithm(name, size), A, b, x0, rtol, atol, maxiter, M)


def _solved(
    name: str,
    algorithm: Algorithm,
    A: Matrix,
    b: Any,
    x0: Any,
    rtol: Any,
    atol: Any,
    maxiter: Any,
    M: Matrix | None,
) -> tuple[Any, Any]:
    side = convert_format(asarray(b, f"the right side b of {name}"), "dense")
    matvec = _function(name, "A", A, side)
    preconditioner = (lambda x: x) if M is None else _function(name, "M", M, side)
    dtype = dtypes.result_type((side.dtype, False), *([] if x0 is None else [(asarray(x0).dtype, False)]))
    side = convert_element_type(side, dtype if dtype.kind in "fc" else np.float64)
    for _ in range(2):
        out = staging.trace_to_jaxpr(lambda x: [matvec(x)], [side.aval]).out_avals[0]
        _check_shape(name, "A(x)", out, side)
        side = convert_element_type(side, dtypes.result_type((side.dtype, False), (out.dtype, False)))
    start = zeros(side.aval) if x0 is None else convert_format(asarray(x0, f"the start x0 of {name}"), "dense")
    _check_shape(name, "x0", start, side)
    rounds = 10 * side.size if maxiter is None else maxiter
    numbers = [convert_element_type(asarray(n), t) for n, t in ((rtol, "f8"), (atol, "f8"), (rounds, "i8"))]
    return linear_solve(matvec, preconditioner, algorithm, side, start, numbers)


def _check_shape(name: str, what: str, x: Any, b: Any) -> None:
    if x.shape != b.shape:
        raise ValueError(f"{name}: {what} has shape {x.shape}, but must have the shape of b, {b.shape}")


def _function(name: str, what: str, A: Matrix, b: Any) -> Function:
    """`A` as a function of arrays like `b`."""
    if callable(A):
        function: Callable[[Any], Any] = A
        return lambda x: asarray(function(x), f"the result of {what} in {name}")
    matrix = asarray(A, f"the matrix {what} of {name}")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or b.shape[:1] != matrix.shape[:1]:
        raise ValueError(
            f"{name}: {what} must be a square matrix of {b.shape[0] if b.ndim else 'some'} rows, as many as b of shape "
            f"{b.shape} has, but it has shape {matrix.shape}"
        )
    return lambda x: matrix @ x


# -------------------------------------------------------------------------------------------------------- algorithms


def _algorithm(name: str, size: int) -> Algorithm:
    """The algorithm of this name; `size` vectors are kept by that which keeps a basis."""
    if name == "gmres":
        return _gmres(size)
    return {"cg": _cg, "bicgstab": krylov.bicgstab, "minres": krylov.minres}[name]


def _dot(x: Any, y: Any) -> Any:
    """sum(conj(x) * y), as a kernel, which is fused with what makes x and y (a contraction of dense arrays is a call of BLAS)"""
    return reduce("sum", _conjugate(x) * y)


def _conjugate(x: Any) -> Any:
    return elementwise("conjugate", x) if x.dtype.kind == "c" else x


def _square(x: Any) -> Any:
    """The square of the norm of `x`."""
    return real(_dot(x, x))


def _limit(b: Any, rtol: Any, atol: Any) -> Any:
    """The square of the residual's norm that is small enough."""
    return elementwise("maximum", rtol * rtol * _square(b), atol * atol)


def _info(rest: Any, limit: Any, rounds: Any) -> Any:
    return where(elementwise("less_equal", rest, limit), 0, elementwise("maximum", rounds, 1))


def _going(limit: Any, maxiter: Any) -> Callable[[Any], Any]:
    return lambda state: (state[-2] > limit) & (state[-1] < maxiter)


@functools.lru_cache(maxsize=64)
def _watched(callback: Callable[[Any], None]) -> Algorithm:
    """Conjugate gradients that show their iterates."""

    def algorithm(A: Function, M: Function, b: Any, x0: Any, rtol: Any, atol: Any, maxiter: Any) -> tuple[Any, Any]:
        return _cg(A, M, b, x0, rtol, atol, maxiter, callback)

    return algorithm


def _cg(
    A: Function, M: Function, b: Any, x0: Any, rtol: Any, atol: Any, maxiter: Any, callback: Any = None
) -> tuple[Any, Any]:
    limit = _limit(b, rtol, atol)

    def step(state: Any) -> Any:
        x, r, p, weight, _, k = state
        moved = A(p)
        length = weight / _dot(p, moved)
        x, r = x + length * p, r - length * moved
        if callback is not None:
            observe("callback of cg", callback, [x])
        z = M(r)
        new = _dot(r, z)
        return x, r, z + (new / weight) * p, new, _square(r), k + 1

    r = b - A(x0)
    z = M(r)
    x, *_, rest, k = while_loop(_going(limit, maxiter), step, (x0, r, z, _dot(r, z), _square(r), maxiter * 0))
    return x, _info(rest, limit, k)


@functools.lru_cache
def _gmres(restart: int) -> Algorithm:
    """GMRES with cycles of `restart` steps, or of as many as there are unknowns: basis (steps + 1, n), Hessenberg matrix (steps + 1, steps)."""

    def algorithm(A: Function, M: Function, b: Any, x0: Any, rtol: Any, atol: Any, maxiter: Any) -> tuple[Any, Any]:
        limit = _limit(b, rtol, atol)
        steps = min(restart, max(1, b.size))
        numbers = along(steps + 1, 0, 1)
        smallest = float(np.finfo(b.dtype).eps)

        def unit(k: Any) -> Any:
            return convert_element_type(elementwise("equal", numbers, k), b.dtype)

        def combined(basis: Any, h: Any) -> Any:
            """sum_k h[k] * basis[k]"""
            return reduce("sum", expand_dims(h, 1) * basis, axis=0)

        def project(basis: Any, w: Any) -> tuple[Any, Any]:
            """The components of `w` along the basis, and what is left of it."""
            h = reduce("sum", _conjugate(basis) * w, axis=1)
            return h, w - combined(basis, h)

        def arnoldi(k: Any, state: Any) -> Any:
            basis, hessenberg, v = state
            w = reshape(A(M(reshape(v, b.shape))), (b.size,))
            size = _square(w)
            h, w = project(basis, w)
            again, w = project(basis, w)
            norm = elementwise("sqrt", _square(w))
            fresh = norm > smallest * elementwise("sqrt", size)
            norm = where(fresh, norm, 0)
            scale = where(fresh, 1 / where(fresh, norm, 1), 0)
            column = h + again + unit(k + 1) * norm
            return basis + _outer(unit(k + 1) * scale, w), hessenberg + _outer(column, unit(k)[:steps]), w * scale

        def cycle(state: Any) -> Any:
            x, r, rest, k = state
            norm = elementwise("sqrt", rest)
            v = reshape(r, (b.size,)) / norm
            basis = _outer(unit(0), v)
            empty = full(Aval((steps + 1, steps), b.dtype, basis.format, 0), 0)
            basis, hessenberg, _ = fori_loop(0, steps, arnoldi, (basis, empty, v))
            y = pinv(hessenberg, 1e-15)[:, 0] * norm
            x = x + M(reshape(combined(basis[:steps], y), b.shape))
            r = b - A(x)
            return x, r, _square(r), k + 1

        r = b - A(x0)
        x, *_, rest, k = while_loop(_going(limit, maxiter), cycle, (x0, r, _square(r), maxiter * 0))
        return x, _info(rest, limit, k)

    return algorithm


def _outer(x: Any, y: Any) -> Any:
    return expand_dims(x, 1) * y
