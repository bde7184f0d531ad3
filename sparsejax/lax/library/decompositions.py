"""Eigenvalues, singular values and orthogonal factors of dense matrices by LAPACK, on the last two axes.

    w, V = eigh A       A V = V diag(w);     dw = diag(V^H dA V),   dV = V (F * V^H dA V),   F[i,j] = 1 / (w[j] - w[i])
    u, s, vh = svd A    A = u diag(s) vh;    Townsend, Differentiating the Singular Value Decomposition, 2016
    q, r = qr A         A = q r;             dq = q (S - S^H) + (1 - q q^H) dA r^-1, S the lower triangle of q^H dA r^-1

Where two eigenvalues or singular values agree, no derivative of their vectors exists: their part is 0 here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.contract import matmul
from sparsejax.lax.elementwise import elementwise, imag, real, where
from sparsejax.lax.library.calls import leading, on_arrays
from sparsejax.lax.library.solves import adjoint, hermitian, matrices, real_type, solve, solve_p, turned
from sparsejax.lax.reduce import reduce
from sparsejax.lax.structural import dense_in_any_order, diagonal, expand_dims


def _column(x: Any) -> Any:
    return expand_dims(x, x.ndim)


def _row(x: Any) -> Any:
    return expand_dims(x, x.ndim - 1)


def _gaps(w: Any) -> Any:
    """1 / (w[j] - w[i]), 0 where they agree."""
    gap = elementwise("subtract", _row(w), _column(w))
    same = elementwise("equal", gap, 0)
    return where(same, 0, elementwise("divide", 1, where(same, 1, gap)))


def _diagonal(x: Any) -> Any:
    return diagonal(x, 0, x.ndim - 2, x.ndim - 1)


def _dense(x: Any) -> Any:
    return dense_in_any_order(x)


# -------------------------------------------------------------------------------------------------------------- eigh


def _eigh(a: NDArray[Any]) -> Sequence[NDArray[Any]]:
    if not a.size:
        return np.zeros(a.shape[:-1], real_type_of(a)), np.zeros_like(a)
    return np.linalg.eigh(a)


def real_type_of(a: NDArray[Any]) -> np.dtype[Any]:
    return a.real.dtype


def _eigh_jvp(primals: Sequence[Any], tangents: Sequence[Any], outs: Any) -> list[Any]:
    w, v = outs
    inner = matmul(adjoint(v), matmul(tangents[0], v))
    return [real(_diagonal(inner)), matmul(v, elementwise("multiply", _gaps(w), inner))]


eigh_p: Primitive = Primitive(
    "eigh",
    typing=lambda a: (rules.dense(a.shape[:-1], real_type(a)), rules.dense(a.shape, a.dtype)),
    reference=_eigh,
    call=on_arrays(_eigh),
    jvp=_eigh_jvp,
    batch=leading(lambda: eigh_p),
    multiple=True,
)


def eigh(a: Any, UPLO: str | None = None) -> tuple[Any, Any]:
    """Eigenvalues, increasing, and eigenvectors, as columns, of stacks of Hermitian matrices. O(n^3).

    Of the mean of `a` and its adjoint, as JAX does, so that derivatives are Hermitian; with `UPLO` "L" or "U", of the matrix that this
    triangle stands for, as in NumPy. Differentiable; vectors where eigenvalues have a gap.

    >>> eigh(np.array([[2.0, 0.0], [0.0, 1.0]]))[0]
    Array([1., 2.], dtype=float64)
    """
    a = matrices(a, "the argument of eigh")
    if UPLO is None:
        a = hermitian(a)
    elif UPLO.upper() in ("L", "U"):
        n = a.shape[-1]
        inside = np.tri(n, dtype=bool) if UPLO.upper() == "L" else np.tri(n, dtype=bool).T
        other = adjoint(a)
        a = where(inside, a, other)
    else:
        raise ValueError(f"UPLO={UPLO!r} must be 'L' or 'U'")
    values, vectors = eigh_p.bind(_dense(a))
    return values, vectors


# --------------------------------------------------------------------------------------------------------------- eig


def _complex(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.result_type(dtype, np.complex64)


def _eig(a: NDArray[Any]) -> list[NDArray[Any]]:
    if not a.size:
        return [np.zeros(a.shape[:-1], complex), np.zeros(a.shape, complex)]
    values, vectors = np.linalg.eig(a)
    return [values, vectors]


def _eig_jvp(primals: Sequence[Any], tangents: Sequence[Any], outs: Any) -> list[Any]:
    """Vectors have norm 1; what changes them along themselves is a phase, which stays as it is."""
    w, v = outs
    inner = solve(v, matmul(tangents[0], v))
    dv = matmul(v, elementwise("multiply", _gaps(w), inner))
    along = real(reduce("sum", elementwise("multiply", elementwise("conjugate", v), dv), v.ndim - 2))
    return [_diagonal(inner), elementwise("subtract", dv, elementwise("multiply", v, _row(along)))]


eig_p: Primitive = Primitive(
    "eig",
    typing=lambda a: (rules.dense(a.shape[:-1], _complex(a.dtype)), rules.dense(a.shape, _complex(a.dtype))),
    reference=_eig,
    call=on_arrays(_eig),
    jvp=_eig_jvp,
    batch=leading(lambda: eig_p),
    multiple=True,
)


def eig(a: Any) -> tuple[Any, Any]:
    """Eigenvalues and eigenvectors of norm 1, as columns, of stacks of square matrices: always complex, since dtypes do not depend on
    values. O(n^3). Differentiable where eigenvalues have a gap.

    >>> eig(np.array([[0.0, -1.0], [1.0, 0.0]]))[0]
    Array([0.+1.j, 0.-1.j], dtype=complex128)
    """
    values, vectors = eig_p.bind(matrices(a, "the argument of eig"))
    return values, vectors


# --------------------------------------------------------------------------------------------------------------- svd


def _svd_typing(a: Aval, full: bool) -> tuple[Aval, ...]:
    *outer, m, n = a.shape
    k = min(m, n)
    left, right = (m, n) if full else (k, k)
    return (
        rules.dense((*outer, m, left), a.dtype),
        rules.dense((*outer, k), real_type(a)),
        rules.dense((*outer, right, n), a.dtype),
    )


def _svd(a: NDArray[Any], full: bool) -> Sequence[NDArray[Any]]:
    if a.size:
        return np.linalg.svd(a, full_matrices=full)
    *outer, m, n = a.shape
    k = min(m, n)
    eyes = [
        np.broadcast_to(np.eye(r, c, dtype=a.dtype), (*outer, r, c))
        for r, c in ((m, m if full else k), (n if full else k, n))
    ]
    return eyes[0], np.zeros((*outer, k), real_type_of(a)), eyes[1]


def _svd_jvp(primals: Sequence[Any], tangents: Sequence[Any], outs: Any, full: bool) -> list[Any]:
    u, s, vh = outs
    t = tangents[0]
    m, n = primals[0].shape[-2:]
    k = min(m, n)
    u, vh = u[..., :k], vh[..., :k, :]
    inner = matmul(matmul(adjoint(u), t), adjoint(vh))  # (k, k)
    ds = real(_diagonal(inner))
    if full and m != n:
        raise NotImplementedError("svd is differentiable with full_matrices=False alone, but for square matrices")
    squares = elementwise("multiply", s, s)
    gaps = _gaps(squares)
    right = elementwise("multiply", inner, _row(s))
    left = elementwise("multiply", inner, _column(s))
    zero = elementwise("equal", s, 0)
    inverse = where(zero, 0, elementwise("divide", 1, where(zero, 1, s)))
    du = matmul(u, elementwise("multiply", gaps, right + adjoint(right)))
    dv = matmul(adjoint(vh), elementwise("multiply", gaps, left + adjoint(left)))
    if u.dtype.kind == "c":  # the phase that both share
        phase = elementwise("multiply", imag(_diagonal(inner)), inverse) * 0.5j
        du = du + elementwise("multiply", u, _row(phase))
        dv = dv - elementwise("multiply", adjoint(vh), _row(phase))
    if m > k:
        rest = t - matmul(u, matmul(adjoint(u), t))
        du = du + elementwise("multiply", matmul(rest, adjoint(vh)), _row(inverse))
    if n > k:
        other = adjoint(t)
        rest = other - matmul(adjoint(vh), matmul(vh, other))
        dv = dv + elementwise("multiply", matmul(rest, u), _row(inverse))
    return [du, ds, adjoint(dv)]


svd_p: Primitive = Primitive(
    "svd",
    typing=_svd_typing,
    reference=_svd,
    call=on_arrays(_svd),
    jvp=_svd_jvp,
    batch=leading(lambda: svd_p),
    multiple=True,
)


def svd(a: Any, full_matrices: bool = True) -> tuple[Any, Any, Any]:
    """`(u, s, vh)` with `a = u * s @ vh`, singular values decreasing, of stacks of matrices; all columns of the unitary factors, or with
    `full_matrices=False` only those of singular values. O(m n min(m, n)). Differentiable where singular values have a gap; with
    `full_matrices`, of square matrices.

    >>> svd(np.array([[3.0, 0.0], [0.0, 4.0]]))[1]
    Array([4., 3.], dtype=float64)
    """
    a = matrices(a, "the argument of svd", square=False)
    full = full_matrices and a.shape[-1] != a.shape[-2]
    u, s, vh = svd_p.bind(a, full=full)
    return u, s, vh


# ---------------------------------------------------------------------------------------------------------------- qr


def _qr_typing(a: Aval, full: bool) -> tuple[Aval, Aval]:
    *outer, m, n = a.shape
    k = m if full else min(m, n)
    return rules.dense((*outer, m, k), a.dtype), rules.dense((*outer, k, n), a.dtype)


def _qr(a: NDArray[Any], full: bool) -> Sequence[NDArray[Any]]:
    return np.linalg.qr(a, "complete" if full else "reduced")


def _qr_jvp(primals: Sequence[Any], tangents: Sequence[Any], outs: Any, full: bool) -> list[Any]:
    q, r = outs
    m, n = primals[0].shape[-2:]
    if m < n or (full and m != n):
        raise NotImplementedError(
            f"qr is differentiable for matrices of at least as many rows as columns, in mode 'reduced', not for {m} by {n}"
            + (" in mode 'complete'" if full else "")
        )
    t = tangents[0]
    # t r^-1 by substitution: (r^T x^T = t^T)
    inner = turned(solve_p.bind(_dense(turned(r)), _dense(turned(t)), structure="lower"))
    both = matmul(adjoint(q), inner)
    lower = elementwise("multiply", both, np.tri(n, k=-1, dtype=real_type(r.aval)))
    turn = lower - adjoint(lower)
    if q.dtype.kind == "c":
        eye = np.eye(n, dtype=real_type(r.aval))
        turn = turn + elementwise("multiply", imag(both) * 1j, eye)
    dq = matmul(q, turn - both) + inner
    return [dq, matmul(both - turn, r)]


qr_p: Primitive = Primitive(
    "qr",
    typing=_qr_typing,
    reference=_qr,
    call=on_arrays(_qr),
    jvp=_qr_jvp,
    batch=leading(lambda: qr_p),
    multiple=True,
)


def qr(a: Any, full: bool = False) -> tuple[Any, Any]:
    """`(q, r)` with `a = q @ r`, columns of `q` orthonormal, `r` upper triangular, of stacks of matrices; `full`: `q` is square.
    O(m n min(m, n)).

    >>> qr(np.array([[0.0], [2.0]]))[1].todense().round(6) ** 2
    array([[4.]])
    """
    q, r = qr_p.bind(matrices(a, "the argument of qr", square=False), full=full)
    return q, r


# -------------------------------------------------------------------------------------------------------------- pinv


def _pinv(a: NDArray[Any], rtol: Any) -> NDArray[Any]:
    """NaN where `a` is not finite. The precision of its type times its larger extent is `rtol` where that is None."""
    if not a.size:
        return np.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    finite = np.isfinite(a).all(axis=(-2, -1), keepdims=True)
    least = float(np.finfo(a.dtype).eps) * max(a.shape[-2:]) if rtol is None else rtol
    made = np.linalg.pinv(np.where(finite, a, 0), rcond=least)
    return np.where(finite, made, np.nan)


def _pinv_jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any, rtol: Any) -> Any:
    """Golub and Pereyra, The differentiation of pseudo-inverses and nonlinear least squares problems, 1973, equation 4.12"""
    a, t, p = primals[0], tangents[0], out
    other = adjoint(t)
    first = -matmul(p, matmul(t, p))
    second = matmul(p, matmul(adjoint(p), other))
    third = matmul(other, matmul(adjoint(p), p))
    return first + (second - matmul(matmul(second, a), p)) + (third - matmul(p, matmul(a, third)))


pinv_p: Primitive = Primitive(
    "pinv",
    typing=lambda a, rtol: rules.dense((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype),
    reference=_pinv,
    call=on_arrays(_pinv),
    jvp=_pinv_jvp,
    batch=leading(lambda: pinv_p),
)


def pinv(a: Any, rtol: float | None = None) -> Any:
    """The pseudoinverses of stacks of matrices by singular values, those below `rtol` (the larger dimension times the precision) of the
    largest left out. O(m n min(m, n)).

    >>> pinv(np.array([[2.0, 0.0], [0.0, 0.0]]))
    Array([[0.5, 0. ],
           [0. , 0. ]], dtype=float64)
    """
    a = matrices(a, "the argument of pinv", square=False)
    return pinv_p.bind(a, rtol=None if rtol is None else float(rtol))
