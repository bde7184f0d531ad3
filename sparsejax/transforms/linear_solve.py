"""Solutions of linear equations that are given by a function: differentiated as solutions, not as what an algorithm does.

    x, info = linear_solve[solver] c… b x0 n…          A(c…) x = b, by an algorithm that starts from x0, with numbers n…
    dx      = linear_solve[solver] c… (db - dA x)      tangents: the same equation, from 0
    db      = linear_solve[solver^T] c… dx             cotangents: the transposed one

Before compilation the algorithm's own program takes its place. A batch is a solver whose parts are batched.
Source: Griewank and Walther, Evaluating Derivatives, chapter 15; JAX's `custom_linear_solve`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched
from sparsejax.core.jaxpr import ClosedJaxpr, evaluate
from sparsejax.core.primitive import Primitive
from sparsejax.lax.control import plain
from sparsejax.lax.elementwise import convert_element_type, elementwise
from sparsejax.lax.linear import full, zeros
from sparsejax.lax.loops import Traced, together
from sparsejax.lax.rules.batching import batch_jaxpr, spread
from sparsejax.lax.structural import convert_format
from sparsejax.transforms import ad, staging

Function = Callable[[Any], Any]
Algorithm = Callable[..., tuple[Any, Any]]
"""(matvec, preconditioner, b, x0, *numbers) -> (x, info)"""


@dataclass(frozen=True)
class Plain:
    """What a solver was made of: its preconditioner, a jaxpr of (c…, x), and the algorithm."""

    preconditioner: ClosedJaxpr
    algorithm: Algorithm


@dataclass(frozen=True)
class Batch:
    """A batch of a solver of one element, with the operands that all elements share; the first `extras` are not among its own."""

    inner: Solver
    size: int
    shared: tuple[bool, ...]
    extras: int


@dataclass(frozen=True)
class Solver:
    """How an equation is solved: `matvec` is a jaxpr of (c…, x), `program` of all operands."""

    matvec: ClosedJaxpr
    program: ClosedJaxpr
    origin: Plain | Batch

    @property
    def constants(self) -> int:
        return len(self.matvec.in_avals) - 1


Made = tuple[list[Any], Solver]
"""Arrays that a solver reads besides what it was made for, its first operands; and the solver."""


def _made(matvec: Traced, preconditioner: Traced, algorithm: Algorithm, rest: Sequence[Aval]) -> Made:
    """The solver of parts that are functions of (c…, x); `rest` are the types of b, x0 and numbers."""
    inputs = [v.aval for v in matvec.jaxpr.inputs]
    count = len(inputs) - 1

    def program(*operands: Any) -> list[Any]:
        def applied(part: Traced) -> Function:
            def apply(x: Any) -> Any:
                args = [*operands[:count], typed(x, inputs[-1])]
                return typed(staging.bind_jaxpr(part.jaxpr, part.consts, args)[0], inputs[-1])

            return apply

        return list(algorithm(applied(matvec), applied(preconditioner), *operands[count:]))

    traced = Traced(program, [*inputs[:-1], *rest])
    extras, (m, p, s) = together([matvec, preconditioner, traced])
    return extras, Solver(m, s, Plain(p, algorithm))


def _batched(inner: Solver, size: int, shared: tuple[bool, ...], avals: Sequence[Aval]) -> Made:
    """`avals`: types of the operands, of which some are batched."""

    def part(closed: ClosedJaxpr) -> Traced:
        count = len(closed.in_avals)

        def function(*values: Any) -> list[Any]:
            elements = zip(values, shared, closed.in_avals, strict=False)
            operands = [x if same else Batched(x, aval) for x, same, aval in elements]
            return [convert_format(spread(x, size), "dense") for x in batch_jaxpr(closed, size, operands)]

        return Traced(function, avals[:count])

    extras, (m, s) = together([part(inner.matvec), part(inner.program)])
    return extras, Solver(m, s, Batch(inner, size, shared, len(extras)))


@functools.lru_cache(maxsize=256)
def _transposed(solver: Solver) -> tuple[int, list[Any], Solver]:
    """The solver of the transposed equation: its operands are those of `solver` without the first so many, behind others."""
    rest = solver.program.in_avals[solver.constants :]
    origin = solver.origin
    if isinstance(origin, Plain):
        made = _made(_transpose_of(solver.matvec), _transpose_of(origin.preconditioner), origin.algorithm, rest)
        return 0, *made
    skip, extras, inner = _transposed(origin.inner)
    shared = (*(True for _ in extras), *origin.shared[skip:])
    own = [x.aval for x in extras]
    more, batched = _batched(inner, origin.size, shared, [*own, *solver.program.in_avals[origin.extras + skip :]])
    return origin.extras + skip, [*more, *extras], batched


def _transpose_of(closed: ClosedJaxpr) -> Traced:
    """The transpose of a jaxpr that is linear in its last input."""
    count = len(closed.in_avals) - 1
    lin = ad.linearized(closed, [*[False] * count, True])

    def function(*args: Any) -> list[Any]:
        env, _ = ad.known_values(lin, [*args[:count], full(closed.in_avals[-1], 1)])
        return [typed(ad.backward(lin, env, [args[-1]])[0], closed.in_avals[-1])]

    return Traced(function, closed.in_avals)


def typed(x: Any, aval: Aval) -> Any:
    """`x` with the dtype and the format of `aval`."""
    return convert_format(convert_element_type(x, aval.dtype), aval.format)


# ------------------------------------------------------------------------------------------------------------- rules


def _bound(solver: Solver, operands: Sequence[Any]) -> list[Any]:
    """Bind with b, and from x0 = 0."""
    k = solver.constants
    b = typed(operands[k], solver.program.in_avals[k])
    return list(linear_solve_p.bind(*operands[:k], b, zeros(b.aval), *operands[k + 2 :], solver=solver))


def _jvp(primals: list[Any], tangents: list[Any], outs: list[Any], solver: Solver) -> list[Any]:
    k = solver.constants
    side, moving = tangents[k], tangents[:k]
    if any(t is not None for t in moving):
        lin = ad.linearized(solver.matvec, [*(t is not None for t in moving), False])
        env, _ = ad.known_values(lin, [*primals[:k], outs[0]])
        (product,) = ad.forward(lin, env, [t for t in moving if t is not None])
        if product is not None:
            side = -product if side is None else elementwise("subtract", side, product)
    if side is None:
        return [None, None]
    return [_bound(solver, [*primals[:k], side, *primals[k + 1 :]])[0], None]


def _transpose(cts: list[Any], *operands: Any, solver: Solver) -> list[Any]:
    k = solver.constants
    skip, extras, transposed = _transposed(solver)
    made = _bound(transposed, [*extras, *operands[skip:k], cts[0], *operands[k + 1 :]])
    return [made[0] if n == k else None for n in range(len(operands))]


def _batch(size: int, *operands: Any, solver: Solver) -> list[Any]:
    k = solver.constants
    values, shared = [], []
    for n, x in enumerate(operands):
        if n in (k, k + 1):
            x = Batched(convert_format(spread(x, size), "dense"), solver.program.in_avals[n])
        values.append(x.value if isinstance(x, Batched) else x)
        shared.append(not isinstance(x, Batched))
    extras, batched = _batched(solver, size, tuple(shared), [plain(x.aval) for x in values])
    return list(linear_solve_p.bind(*extras, *values, solver=batched))


linear_solve_p = Primitive(
    "linear_solve",
    typing=lambda *avals, solver: tuple(plain(a) for a in solver.program.out_avals),
    reference=lambda *xs, solver: list(evaluate(solver.program, *xs)),
    inline=lambda solver: solver.program.jaxpr,
    bodies=lambda solver: (solver.program,),
    describe=lambda solver: "",
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    multiple=True,
)


def linear_solve(
    matvec: Function, preconditioner: Function, algorithm: Algorithm, b: Any, x0: Any, numbers: Sequence[Any]
) -> tuple[Any, Any]:
    """What `algorithm(matvec, preconditioner, b, x0, *numbers)` returns, (x, info), where x solves `matvec(x) = b`; differentiable
    with respect to `b` and to what `matvec` closes over.

    `matvec` and `preconditioner` are linear functions of dense arrays of the type of `b`; `algorithm` must be hashable and close
    over no arrays. `numbers` are arrays.
    """
    parts = [Traced(lambda x, f=f: [f(x)], [b.aval]) for f in (matvec, preconditioner)]
    consts, closed = together(parts)
    avals = [*(plain(c.aval) for c in consts), b.aval]
    over = [Traced(lambda *xs, j=c.jaxpr: staging.bind_jaxpr(j, (), xs), avals) for c in closed]
    operands = [b, typed(x0, b.aval), *numbers]
    extras, solver = _made(over[0], over[1], algorithm, [plain(x.aval) for x in operands])
    x, info = linear_solve_p.bind(*extras, *consts, *operands, solver=solver)
    return x, info
