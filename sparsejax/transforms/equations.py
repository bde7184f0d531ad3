"""`custom_linear_solve` and `custom_root`: solutions by the user's own methods, differentiated as solutions.

x = custom_linear_solve(A, b, solve)        A x = b;        dx = A^-1 (db - dA x)
x = custom_root(f, x0, solve)               f(x, p) = 0;    dx = -(df/dx)^-1 df/dp dp
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsejax import tree_util
from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched
from sparsejax.core.jaxpr import ClosedJaxpr, evaluate
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.lax.control import plain
from sparsejax.lax.elementwise import convert_element_type, elementwise
from sparsejax.lax.linear import full
from sparsejax.lax.loops import Traced, together
from sparsejax.lax.rules.batching import batch_jaxpr, spread
from sparsejax.lax.structural import convert_format
from sparsejax.transforms import ad, staging
from sparsejax.transforms.custom import stop_gradient
from sparsejax.transforms.gradients import jvp
from sparsejax.transforms.linear_solve import typed

Solve = Callable[[Callable[[Any], Any], Any], Any]


# --------------------------------------------------------------------------------------------------------- primitive


@dataclass(frozen=True)
class _Parts:
    """The equation and its solutions as jaxprs of (c…, x) and (c…, b); `back`, of the transposed equation, may be missing."""

    matvec: ClosedJaxpr
    solve: ClosedJaxpr
    back: ClosedJaxpr | None

    @property
    def constants(self) -> int:
        return len(self.matvec.in_avals) - 1


def _bound(parts: _Parts, operands: Sequence[Any]) -> Any:
    b = typed(operands[-1], parts.matvec.in_avals[-1])
    return solution_p.bind(*operands[:-1], b, parts=parts)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any, parts: _Parts) -> Any:
    side, moving = tangents[-1], tangents[:-1]
    if any(t is not None for t in moving):
        lin = ad.linearized(parts.matvec, [*(t is not None for t in moving), False])
        env, _ = ad.known_values(lin, [*primals[:-1], out])
        (product,) = ad.forward(lin, env, [t for t in moving if t is not None])
        if product is not None:
            side = -product if side is None else elementwise("subtract", side, product)
    return None if side is None else _bound(parts, [*primals[:-1], side])


def _transpose(ct: Any, *operands: Any, parts: _Parts) -> list[Any]:
    if parts.back is None:
        raise TypeError(
            "custom_linear_solve is differentiated in reverse mode only with transpose_solve=, or symmetric=True"
        )
    count = parts.constants
    matvec = Traced(_transposed(parts.matvec), [*parts.matvec.in_avals])
    others = [
        Traced(lambda *xs, j=c.jaxpr: staging.bind_jaxpr(j, (), xs), c.in_avals) for c in (parts.back, parts.solve)
    ]
    extras, (m, s, b) = together([matvec, *others])
    made = _bound(_Parts(m, s, b), [*extras, *operands[:count], ct])
    return [*(None for _ in range(count)), made]


def _transposed(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    """The transpose of a jaxpr that is linear in its last input."""
    count = len(closed.in_avals) - 1
    lin = ad.linearized(closed, [*[False] * count, True])

    def function(*args: Any) -> list[Any]:
        env, _ = ad.known_values(lin, [*args[:count], full(closed.in_avals[-1], 1)])
        return [typed(ad.backward(lin, env, [args[-1]])[0], closed.in_avals[-1])]

    return function


def _each(closed: ClosedJaxpr, size: int, values: Sequence[Any]) -> Traced:
    """A jaxpr for a batch; `values` are its operands as far as it matters which of them are `Batched`."""

    def function(*given: Any) -> list[Any]:
        pairs = zip(given, values, closed.in_avals, strict=True)
        elements = [Batched(x, aval) if isinstance(v, Batched) else x for x, v, aval in pairs]
        return [convert_format(spread(x, size), "dense") for x in batch_jaxpr(closed, size, elements)]

    return Traced(function, [plain((v.value if isinstance(v, Batched) else v).aval) for v in values])


def _wide(x: Any, size: int, aval: Aval) -> Batched:
    return Batched(convert_format(spread(x, size), "dense"), aval)


def _batch(size: int, *operands: Any, parts: _Parts) -> Any:
    values = [*operands[:-1], _wide(operands[-1], size, parts.matvec.in_avals[-1])]
    traced = [_each(c, size, values) for c in (parts.matvec, parts.solve, parts.back) if c is not None]
    extras, closed = together(traced)
    inner = [x.value if isinstance(x, Batched) else x for x in values]
    return solution_p.bind(*extras, *inner, parts=_Parts(closed[0], closed[1], closed[2] if parts.back else None))


def _typing(*avals: Aval, parts: _Parts) -> Aval:
    return plain(parts.matvec.in_avals[-1])


solution_p: Primitive = Primitive(
    "custom_linear_solve",
    typing=_typing,
    reference=lambda *xs, parts: evaluate(parts.solve, *xs)[0],
    inline=lambda parts: parts.solve.jaxpr,
    bodies=lambda parts: (parts.solve,),
    describe=lambda parts: "",
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
)


@dataclass(frozen=True)
class _Root:
    """A function and how its root is found, as jaxprs of (c…, x); and the equation of tangents, of (c…, x, t)."""

    f: ClosedJaxpr
    find: ClosedJaxpr
    tangents: _Parts


def _root_jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any, root: _Root) -> Any:
    moving = tangents[:-1]
    if all(t is None for t in moving):
        return None
    lin = ad.linearized(root.f, [*(t is not None for t in moving), False])
    env, _ = ad.known_values(lin, [*primals[:-1], out])
    (product,) = ad.forward(lin, env, [t for t in moving if t is not None])
    return None if product is None else _bound(root.tangents, [*primals[:-1], out, -product])


def _root_batch(size: int, *operands: Any, root: _Root) -> Any:
    aval = root.f.in_avals[-1]
    guess = _wide(operands[-1], size, aval)
    values, moving = [*operands[:-1], guess], [*operands[:-1], guess, guess]
    parts = root.tangents
    traced = [_each(root.f, size, values), _each(root.find, size, values)]
    traced += [_each(c, size, moving) for c in (parts.matvec, parts.solve, parts.back) if c is not None]
    extras, (f, find, m, s, b) = together(traced)
    inner = [x.value if isinstance(x, Batched) else x for x in values]
    return root_p.bind(*extras, *inner, root=_Root(f, find, _Parts(m, s, b)))


root_p: Primitive = Primitive(
    "custom_root",
    typing=lambda *avals, root: plain(root.f.in_avals[-1]),
    reference=lambda *xs, root: evaluate(root.find, *xs)[0],
    inline=lambda root: root.find.jaxpr,
    bodies=lambda root: (root.find,),
    describe=lambda root: "",
    jvp=_root_jvp,
    batch=_root_batch,
)

# --------------------------------------------------------------------------------------------------------- functions


def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: Any,
    solve: Solve,
    transpose_solve: Solve | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """`solve(matvec, b)`, the solution of `matvec(x) = b`, differentiated by solving the same equation for the tangents, and the
    transposed one, by `transpose_solve(vecmat, b)`, for cotangents; as `jax.lax.custom_linear_solve`, of one dense array `b`.

    >>> import sparsejax as sj, sparsejax.numpy as snp
    >>> A = np.array([[2.0, 1.0], [0.0, 4.0]])
    >>> def solution(b):
    ...     return custom_linear_solve(
    ...         lambda x: A @ x, b, lambda f, b: snp.linalg.solve(A, b), lambda f, b: snp.linalg.solve(A.T, b)
    ...     )
    >>> solution(np.array([4.0, 8.0])), sj.grad(lambda b: solution(b).sum())(np.array([4.0, 8.0]))
    (Array([1., 2.], dtype=float64), Array([0.5  , 0.125], dtype=float64))
    """
    if has_aux:
        raise NotImplementedError("custom_linear_solve: has_aux=True is not provided; return the solution alone")
    side = convert_format(asarray(b, "the right side b of custom_linear_solve"), "dense")
    side = side if side.dtype.kind in "fc" else convert_element_type(side, np.float64)
    aval = plain(side.aval)

    def solved(method: Solve, equation: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
        return lambda b: [
            typed(asarray(method(lambda x: typed(asarray(equation(typed(asarray(x), aval))), aval), b)), aval)
        ]

    traced = [Traced(lambda x: [typed(asarray(matvec(x)), aval)], [aval]), Traced(solved(solve, matvec), [aval])]
    back = solve if symmetric else transpose_solve
    if back is not None:
        transposed = _transposed(traced[0].closed)
        consts = traced[0].consts
        traced.append(Traced(solved(back, lambda x: transposed(*consts, x)[0]), [aval]))
    consts, closed = together(traced)
    over = [*(plain(c.aval) for c in consts), aval]
    wide = [Traced(lambda *xs, j=c.jaxpr: staging.bind_jaxpr(j, (), xs), over) for c in closed]
    extras, parts = together(wide)
    return solution_p.bind(
        *extras, *consts, side, parts=_Parts(parts[0], parts[1], parts[2] if back is not None else None)
    )


def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    tangent_solve: Solve,
    has_aux: bool = False,
) -> Any:
    """A root of `f`, `solve(f, initial_guess)`, differentiated by the implicit function theorem with respect to what `f` closes over;
    `tangent_solve(g, y)` solves the linear equation `g(x) = y`. As `jax.lax.custom_root`, of one dense array.

    The derivative of the method does not enter, and neither does that of the guess.

    >>> import sparsejax as sj, sparsejax.numpy as snp
    >>> def root(a):
    ...     return custom_root(lambda x: x * x - a, a, lambda f, x: snp.sqrt(a), lambda g, y: y / g(1.0))
    >>> root(4.0), sj.grad(root)(4.0)
    (Array(2., dtype=float64), Array(0.25, dtype=float64))
    """
    if has_aux:
        raise NotImplementedError("custom_root: has_aux=True is not provided; return the root alone")
    if tree_util.tree_structure(initial_guess).num_leaves != 1:
        raise TypeError("custom_root finds one array; ravel several into one")
    guess = convert_format(asarray(initial_guess, "initial_guess"), "dense")
    guess = convert_element_type(guess, guess.dtype if guess.dtype.kind in "fc" else np.float64)
    aval = plain(guess.aval)

    def of(x: Any) -> Any:
        return typed(asarray(x), aval)

    def slope(x: Any, t: Any) -> Any:
        return of(jvp(f, (x,), (of(t),))[1])

    equation = Traced(lambda x, t: [slope(x, t)], [aval, aval])
    transposed, consts = _transposed(equation.closed), equation.consts
    parts = [
        Traced(lambda x: [of(f(x))], [aval]),
        Traced(lambda x: [of(solve(lambda y: of(f(of(y))), x))], [aval]),
        equation,
        Traced(lambda x, b: [of(tangent_solve(lambda t: slope(x, t), b))], [aval, aval]),
        Traced(lambda x, b: [of(tangent_solve(lambda t: of(transposed(*consts, x, of(t))[0]), b))], [aval, aval]),
    ]
    free, closed = together(parts)
    over = [plain(c.aval) for c in free]
    wide = [
        Traced(lambda *xs, j=c.jaxpr: staging.bind_jaxpr(j, (), xs), [*over, *([aval] * (1 if k < 2 else 2))])
        for k, c in enumerate(closed)
    ]
    extras, (g, find, m, s, b) = together(wide)
    return root_p.bind(*extras, *free, stop_gradient(guess), root=_Root(g, find, _Parts(m, s, b)))
