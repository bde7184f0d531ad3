"""`bicgstab`, `minres` and least squares by `lsqr`, as algorithms of `transforms.linear_solve`: functions of (A, M, b, x0, numbers)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.lax.elementwise import elementwise, real, where
from sparsejax.lax.loops import while_loop
from sparsejax.lax.reduce import reduce
from sparsejax.transforms.linear_solve import Function


def dot(x: Any, y: Any) -> Any:
    """sum(conj(x) * y), as a kernel, which is fused with what makes x and y (a contraction of dense arrays is a call of BLAS)"""
    return reduce("sum", (elementwise("conjugate", x) if x.dtype.kind == "c" else x) * y)


def square(x: Any) -> Any:
    """The square of the norm of `x`."""
    return real(dot(x, x))


def limit(b: Any, rtol: Any, atol: Any) -> Any:
    """The square of the residual's norm that is small enough."""
    return elementwise("maximum", rtol * rtol * square(b), atol * atol)


def info(rest: Any, small: Any, rounds: Any) -> Any:
    """0 where the residual is small enough, else the number of rounds."""
    return where(elementwise("less_equal", rest, small), 0, elementwise("maximum", rounds, 1))


def _safe(x: Any) -> Any:
    """`x`, or 1 where it is 0."""
    return where(elementwise("equal", x, 0), 1, x)


def bicgstab(A: Function, M: Function, b: Any, x0: Any, rtol: Any, atol: Any, maxiter: Any) -> tuple[Any, Any]:
    """Source: van der Vorst 1992; Saad, Iterative Methods for Sparse Linear Systems, algorithm 7.7, preconditioned on the right."""
    small = limit(b, rtol, atol)
    r = b - A(x0)

    def going(state: Any) -> Any:
        return (state[-3] > small) & (state[-1] < maxiter) & elementwise("isfinite", state[-3]) & state[-2]

    def step(state: Any) -> Any:
        x, r, p, rho, _, _, k = state
        first = M(p)
        v = A(first)
        below = dot(start, v)
        alpha = rho / _safe(below)
        s = r - alpha * v
        second = M(s)
        t = A(second)
        omega = dot(t, s) / _safe(square(t))
        x = x + alpha * first + omega * second
        r = s - omega * t
        new = dot(start, r)
        going_on = elementwise("not_equal", new * omega, 0) & elementwise("not_equal", below, 0)
        p = r + (new / _safe(rho)) * (alpha / _safe(omega)) * (p - omega * v)
        return x, r, p, new, square(r), going_on, k + 1

    start = r
    state = x0, r, r, dot(r, r), square(r), elementwise("greater_equal", square(r), 0), maxiter * 0
    x, _, _, _, rest, _, k = while_loop(going, step, state)
    return x, info(rest, small, k)


def minres(A: Function, M: Function, b: Any, x0: Any, rtol: Any, atol: Any, maxiter: Any) -> tuple[Any, Any]:
    """Lanczos vectors and plane rotations; `M` positive definite. Source: Paige and Saunders 1975, section 4."""
    small = limit(b, rtol, atol)
    zero = b * 0
    r = b - A(x0)
    z = M(r)
    beta = elementwise("sqrt", elementwise("maximum", real(dot(r, z)), 0))
    tiny = float(np.finfo(b.dtype).eps)

    def going(state: Any) -> Any:
        return (state[-2] > small) & (state[-1] < maxiter) & (state[6] > 0)

    def step(state: Any) -> Any:
        x, before, r, z, w, older, beta, old, eta, c, s, c1, s1, _, k = state
        v = z / _safe(beta)
        moved = A(v)
        alpha = real(dot(v, moved))
        new = moved - (alpha / _safe(beta)) * r - where(elementwise("greater", k, 0), beta / _safe(old), 0) * before
        following = M(new)
        size = elementwise("sqrt", elementwise("maximum", real(dot(new, following)), 0))
        size = where(elementwise("greater", size, tiny * (elementwise("absolute", alpha) + beta)), size, 0)
        epsilon, delta = s1 * beta, c * alpha - c1 * s * beta
        kept = c * c1 * beta + s * alpha
        gamma = elementwise("hypot", delta, size)
        cosine, sine = delta / _safe(gamma), size / _safe(gamma)
        direction = (v - epsilon * older - kept * w) / _safe(gamma)
        x = x + (cosine * eta) * direction
        eta = -sine * eta
        return x, r, new, following, direction, w, size, beta, eta, cosine, sine, c, s, eta * eta, k + 1

    one = beta * 0 + 1
    state = (x0, zero, r, z, zero, zero, beta, one, beta, one, beta * 0, one, beta * 0, square(r), maxiter * 0)
    x, *_, k = while_loop(going, step, state)
    return x, info(square(b - A(x)), small * 4, k)


def least_squares(A: Function, M: Function, b: Any, x0: Any, rtol: Any, atol: Any, maxiter: Any) -> tuple[Any, Any]:
    """Conjugate gradients on the normal equations, whose matrix `A` is and whose right side `b`: what LSQR (Paige and Saunders 1982) finds."""
    small = limit(b, rtol, atol)

    def going(state: Any) -> Any:
        return (state[-2] > small) & (state[-1] < maxiter)

    def step(state: Any) -> Any:
        x, r, p, weight, k = state
        moved = A(p)
        length = weight / _safe(real(dot(p, moved)))
        x, r = x + length * p, r - length * moved
        new = square(r)
        return x, r, r + (new / _safe(weight)) * p, new, k + 1

    r = b - A(x0)
    x, _, _, rest, k = while_loop(going, step, (x0, r, r, square(r), maxiter * 0))
    return x, info(rest, small, k)
