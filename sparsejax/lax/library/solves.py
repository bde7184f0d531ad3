"""Dense equations and determinants by LAPACK, on the last two axes.

    x = solve[structure] A b       A x = b;   tangent  dx = A^-1 (db - dA x);   cotangents  db = A^-T dx,  dA = -(A^-T dx) x^T
    s, l = slogdet A               det A = s exp(l);   dl = re tr(A^-1 dA),   ds = s i im tr(A^-1 dA)
    d = det A                      dd = tr(adj(A) dA), also where A is singular

`structure` says which part of `A` is read: "" all of it, "lower" or "upper" a triangle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import dtypes
from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.contract import matmul
from sparsejax.lax.elementwise import convert_element_type, elementwise, imag, real
from sparsejax.lax.library.calls import leading, on_arrays
from sparsejax.lax.reduce import reduce
from sparsejax.lax.structural import broadcast_to, convert_format, dense_in_any_order, diagonal, transpose

_FLIPPED = {"": "", "lower": "upper", "upper": "lower"}


def matrices(x: Any, what: str, square: bool = True) -> Any:
    """`x` as a dense array of floating point matrices; ValueError, which names `what`, for other shapes."""
    x = dense_in_any_order(asarray(x, what))
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        kind = "square matrices" if square else "matrices"
        raise np.linalg.LinAlgError(f"{what} must be {kind} (in its last two axes), but has shape {x.shape}")
    return x if x.dtype.kind in "fc" else convert_element_type(x, np.float64)


def turned(x: Any) -> Any:
    """The last two axes exchanged."""
    return transpose(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def adjoint(x: Any) -> Any:
    """The last two axes exchanged, conjugated."""
    return elementwise("conjugate", turned(x)) if x.dtype.kind == "c" else turned(x)


def trace(x: Any) -> Any:
    return reduce("sum", diagonal(x, 0, x.ndim - 2, x.ndim - 1), x.ndim - 2)


# ------------------------------------------------------------------------------------------------------------- solve


def _solve(a: NDArray[Any], b: NDArray[Any], structure: str) -> NDArray[Any]:
    if not b.size:
        return np.zeros_like(b)
    if not structure:
        return np.asarray(np.linalg.solve(a, b))
    from scipy.linalg import solve_triangular

    made = np.empty_like(b)
    for k in np.ndindex(a.shape[:-2]):
        made[k] = solve_triangular(a[k], b[k], lower=structure == "lower", check_finite=False)
    return made


def _solve_reference(a: Any, b: Any, structure: str) -> NDArray[Any]:
    a = np.asarray(a)
    a = np.tril(a) if structure == "lower" else np.triu(a) if structure == "upper" else a
    return np.asarray(np.linalg.solve(a, b))


def _solve_jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any, structure: str) -> Any:
    a = primals[0]
    moving, side = tangents
    if moving is not None:
        product = matmul(_part(moving, structure), out)
        side = -product if side is None else elementwise("subtract", side, product)
    return solve_p.bind(a, dense_in_any_order(side), structure=structure)


def _part(x: Any, structure: str) -> Any:
    if not structure:
        return x
    n = x.shape[-1]
    mask = np.tri(n, dtype=x.dtype) if structure == "lower" else np.tri(n, dtype=x.dtype).T
    return elementwise("multiply", x, mask)


def _solve_transpose(ct: Any, a: Any, b: Any, structure: str) -> list[Any]:
    return [None, solve_p.bind(turned(a), dense_in_any_order(ct), structure=_FLIPPED[structure])]


solve_p: Primitive = Primitive(
    "solve",
    typing=lambda a, b, structure: rules.dense(b.shape, b.dtype),
    reference=_solve_reference,
    call=on_arrays(_solve),
    jvp=_solve_jvp,
    transpose=_solve_transpose,
    batch=leading(lambda: solve_p),
    describe=lambda structure: structure,
)


def solve(a: Any, b: Any, structure: str = "") -> Any:
    """The solutions of `a @ x = b` for stacks of square matrices `a` (…, n, n) and columns `b` (…, n, k); leading axes broadcast.
    Dense, by LU factors (LAPACK's gesv), or by substitution with the `structure` "lower" or "upper". O(n^3) and O(n^2 k).

    >>> solve(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([[2.0], [3.0]]))
    Array([[1.],
           [2.]], dtype=float64)

    Raises numpy.linalg.LinAlgError for singular matrices.
    """
    a, b = matrices(a, "a of solve"), matrices(b, "b of solve", square=False)
    if b.shape[-2] != a.shape[-1]:
        raise ValueError(f"solve: b of shape {b.shape} must have {a.shape[-1]} rows, like a of shape {a.shape}")
    dtype = dtypes.result_type((a.dtype, False), (b.dtype, False))
    outer = rules.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = broadcast_to(convert_element_type(a, dtype), (*outer, *a.shape[-2:]))
    b = broadcast_to(convert_element_type(b, dtype), (*outer, *b.shape[-2:]))
    return solve_p.bind(dense_in_any_order(a), dense_in_any_order(b), structure=structure)


def inv(a: Any) -> Any:
    """The inverses of stacks of square matrices. O(n^3).

    >>> inv(np.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float64)
    """
    a = matrices(a, "the argument of inv")
    return solve(a, np.eye(a.shape[-1], dtype=a.dtype))


# ------------------------------------------------------------------------------------------------------ determinants


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def _slogdet_jvp(primals: Sequence[Any], tangents: Sequence[Any], outs: Any) -> list[Any]:
    ratio = trace(solve(primals[0], tangents[0]))
    if ratio.dtype.kind != "c":
        return [None, ratio]
    return [outs[0] * imag(ratio) * 1j, real(ratio)]


slogdet_p: Primitive = Primitive(
    "slogdet",
    typing=lambda a: (rules.dense(a.shape[:-2], a.dtype), rules.dense(a.shape[:-2], _real(a.dtype))),
    reference=lambda a: list(np.linalg.slogdet(a)),
    call=on_arrays(lambda a: np.linalg.slogdet(a)),
    jvp=_slogdet_jvp,
    batch=leading(lambda: slogdet_p),
    multiple=True,
)


def _adjugate(a: NDArray[Any]) -> NDArray[Any]:
    """The transposed cofactors, by singular values: a = u s vh has det(u) det(vh) v diag(products of the others) uh."""
    n = a.shape[-1]
    u, s, vh = np.linalg.svd(a)
    others = np.stack([np.prod(np.delete(s, k, -1), axis=-1) for k in range(n)], -1) if n else s
    sign = np.linalg.det(u) * np.linalg.det(vh)
    middle = (vh.swapaxes(-1, -2).conj() * others[..., None, :]) @ u.swapaxes(-1, -2).conj()
    return np.asarray(sign[..., None, None] * middle, a.dtype)


def _adjugate_jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any) -> Any:
    """adj(A) = det(A) A^-1, where A is not singular"""
    step = solve(primals[0], tangents[0])
    ratio = trace(step)
    return elementwise("multiply", out, ratio.reshape((*ratio.shape, 1, 1))) - matmul(step, out)


adjugate_p: Primitive = Primitive(
    "adjugate",
    typing=lambda a: rules.dense(a.shape, a.dtype),
    reference=_adjugate,
    call=on_arrays(_adjugate),
    jvp=_adjugate_jvp,
    batch=leading(lambda: adjugate_p),
)


def _det_jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any) -> Any:
    return trace(matmul(adjugate_p.bind(primals[0]), tangents[0]))


det_p: Primitive = Primitive(
    "det",
    typing=lambda a: rules.dense(a.shape[:-2], a.dtype),
    reference=lambda a: np.linalg.det(a),
    call=on_arrays(lambda a: np.linalg.det(a)),
    jvp=_det_jvp,
    batch=leading(lambda: det_p),
)


def det(a: Any) -> Any:
    """The determinants of stacks of square matrices; differentiable, also where they are 0. O(n^3).

    >>> float(det(np.array([[2.0, 1.0], [0.0, 3.0]])))
    6.0
    """
    return det_p.bind(matrices(a, "the argument of det"))


def slogdet(a: Any) -> tuple[Any, Any]:
    """Sign and logarithm of the absolute value of the determinants of stacks of square matrices. O(n^3).

    >>> [float(x) for x in slogdet(np.eye(2))]
    [1.0, 0.0]
    """
    sign, size = slogdet_p.bind(matrices(a, "the argument of slogdet"))
    return sign, size


# ---------------------------------------------------------------------------------------------------------- cholesky


def _cholesky(a: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.linalg.cholesky(a)) if a.size else np.zeros_like(a)


def _cholesky_jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any) -> Any:
    """dL = L phi(L^-1 dA L^-H), phi: the lower triangle with half the diagonal (Murray, Differentiation of the Cholesky
    decomposition, 2016)"""
    t = tangents[0]
    inner = solve_p.bind(out, t, structure="lower")
    both = adjoint(solve_p.bind(out, dense_in_any_order(adjoint(inner)), structure="lower"))
    n = out.shape[-1]
    half = np.tri(n, dtype=_real(out.dtype)) - 0.5 * np.eye(n, dtype=_real(out.dtype))
    return matmul(out, elementwise("multiply", both, half))


cholesky_p: Primitive = Primitive(
    "cholesky",
    typing=lambda a: rules.dense(a.shape, a.dtype),
    reference=_cholesky,
    call=on_arrays(_cholesky),
    jvp=_cholesky_jvp,
    batch=leading(lambda: cholesky_p),
)


def hermitian(a: Any) -> Any:
    """The mean of matrices and their adjoints, whose derivatives are Hermitian."""
    return elementwise("multiply", elementwise("add", a, adjoint(a)), 0.5)


def cholesky(a: Any, upper: bool = False) -> Any:
    """The lower triangular factors of stacks of positive definite Hermitian matrices (upper ones with `upper`), of which the mean with
    their adjoints is taken, as JAX does. O(n^3).

    >>> cholesky(np.array([[4.0, 2.0], [2.0, 2.0]]))
    Array([[2., 0.],
           [1., 1.]], dtype=float64)

    Raises numpy.linalg.LinAlgError for matrices that are not positive definite.
    """
    made = cholesky_p.bind(convert_format(hermitian(matrices(a, "the argument of cholesky")), "dense"))
    return adjoint(made) if upper else made


def real_type(aval: Aval) -> np.dtype[Any]:
    """The dtype of the absolute values of entries."""
    return _real(aval.dtype)
