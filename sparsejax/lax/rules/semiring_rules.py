"""Derivatives of contractions over semirings.

    C[i,j] = min over k of A[i,k] + B[k,j]
    first[i,j] = min over k of k where A[i,k] + B[k,j] == C[i,j]              `first_p`
    tC[i,j] = sum over k of tA[i,k] * W(A[i,k], B[k,j]) where k == first[i,j]       `pick_p`, W the derivative of the product

and the same for every factor. Of equal terms the first in row-major order of the summed subscripts wins (a subgradient). A semiring
whose addition is + sums all terms instead. `pick_p` is linear in its first operand, and its transpose is again a `pick_p`: with the
cotangent in that place, at the pattern of what it stood for. Its derivative by a factor is one too, with another W.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.core.symbolic import span
from sparsejax.core.tangents import Linear
from sparsejax.formats import Format
from sparsejax.jit.ir import cin, operators, scalar_functions, simplify
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.contract import Labels, extents_of, factor_of
from sparsejax.lax.extents import coordinates
from sparsejax.lax.linear import keep
from sparsejax.lax.rules.elementwise_rules import added, behind
from sparsejax.lax.semiring import Ring
from sparsejax.lax.structural import diagonal

BOOL: np.dtype[Any] = np.dtype(np.bool_)
INT: np.dtype[Any] = np.dtype(np.int64)
LAST = np.iinfo(np.int64).max
TESTS = ("greater", "less", "equal", "isnan", "logical_or", "logical_and")

# ----------------------------------------------------------------------------------------------------- index notation


def _picked(operand: rules.Operand, labels: Labels) -> cin.Expr:
    return rules.access(operand, [cin.IndexVar(f"i{x}") for x in labels])


def _place(iotas: Sequence[rules.Operand], labels: Labels, extents: Sequence[int]) -> cin.Expr:
    """The number of a term in row-major order of the summed subscripts."""
    made: cin.Expr = simplify.literal(0, INT)
    for iota, label, n in zip(iotas, labels, extents, strict=True):
        scaled = cin.Call("multiply", (made, simplify.literal(n, INT)), INT)
        made = simplify.simplify(cin.Call("add", (scaled, _picked(iota, (label,))), INT))
    return made


def _present(factors: Sequence[rules.Operand], inputs: Sequence[Labels]) -> list[cin.Expr]:
    """That every sparse factor is stored."""
    return [
        cin.Call("stored", (_picked(f, ls),), BOOL)
        for f, ls in zip(factors, inputs, strict=True)
        if isinstance(f, cin.Tensor) and not f.format.is_dense
    ]


def _all(conditions: Sequence[cin.Expr]) -> cin.Expr | None:
    return functools.reduce(lambda a, b: cin.Call("logical_and", (a, b), BOOL), conditions) if conditions else None


def variable(k: int, dtype: np.dtype[Any]) -> cin.Access:
    """The k-th factor in the expression of a weight."""
    return cin.Access(cin.Tensor(f"v{k}", (), dtype, Format(()), dtype.type(0)), ())


def _reference(*args: Any, **params: Any) -> Any:
    raise NotImplementedError("the derivative of a semiring has no reference on dense arrays")


# ---------------------------------------------------------------------------------------------------------- first


def _first_notation(
    *operands: rules.Operand, inputs: tuple[Labels, ...], output: Labels, summed: Labels, dtype: Any, ring: Ring
) -> cin.Definition:
    """out[o] min= masked((product == best[o] or product is NaN) and product != zero, place, last)"""
    count = len(inputs)
    factors, best, iotas = operands[:count], operands[count], operands[count + 1 :]
    zero = simplify.literal(ring.zero, dtype, absent=True)
    terms = [factor_of(_picked(f, ls), dtype, zero) for f, ls in zip(factors, inputs, strict=True)]
    product = functools.reduce(lambda a, b: cin.Call(ring.mul, (a, b), dtype), terms)
    nan = cin.Call("not_equal", (product, product), BOOL)
    conditions = [
        *_present(factors, inputs),
        cin.Call("not_equal", (product, simplify.literal(ring.zero, dtype)), BOOL),
        cin.Call("logical_or", (cin.Call("equal", (product, _picked(best, output)), BOOL), nan), BOOL),
    ]
    condition = _all(conditions)
    assert condition is not None
    place = _place(iotas, summed, [rules.shape_of(i)[0] for i in iotas])
    value = cin.Call("masked", (condition, place, simplify.literal(LAST, INT)), INT)
    return cin.Definition(tuple(cin.IndexVar(f"i{x}") for x in output), "minimum" if summed else None, value)


def _first_typing(*avals: Aval, **params: Any) -> Aval:
    return rules.infer(_first_notation, avals, params, avals[len(params["inputs"])].shape, INT).strong()


first_p = Primitive(
    "first",
    typing=_first_typing,
    reference=_reference,
    notation=_first_notation,
    jvp=lambda primals, tangents, out, **params: None,
    describe=lambda ring, **_: str(ring),
)

# ----------------------------------------------------------------------------------------------------------- pick


def _pick_notation(
    *operands: rules.Operand,
    moving: Labels,
    inputs: tuple[Labels, ...],
    chosen: Labels | None,
    summed: Labels,
    output: Labels,
    weight: cin.Expr,
    dtype: Any,
    masked: bool,
    format: Format | None,
) -> cin.Definition:
    """out[o] += masked(all factors stored and place == first[chosen], t[moving] * weight(factors), 0)"""
    count = len(inputs)
    t, factors, rest = operands[0], operands[1 : count + 1], operands[count + 1 :]
    conditions = _present(factors, inputs)
    if masked:
        conditions.append(cin.Call("stored", (_picked(rest[-1], output),), BOOL))
        rest = rest[:-1]
    if chosen is not None:
        place = _place(rest[1:], summed, [rules.shape_of(i)[0] for i in rest[1:]])
        conditions.append(cin.Call("equal", (place, _picked(rest[0], chosen)), BOOL))
    names = {
        variable(k, dtype): rules.cast(_picked(f, ls), dtype)
        for k, (f, ls) in enumerate(zip(factors, inputs, strict=True))
    }
    value: cin.Expr = cin.Call(
        "multiply", (rules.cast(_picked(t, moving), dtype), cin.substitute(weight, dict(names))), dtype
    )
    condition = _all(conditions)
    if condition is not None:
        value = cin.Call("masked", (condition, value, simplify.literal(0, dtype)), dtype)
    labels = {*moving, *(x for ls in inputs for x in ls)}
    return cin.Definition(tuple(cin.IndexVar(f"i{x}") for x in output), "add" if labels - set(output) else None, value)


def _pick_typing(*avals: Aval, **params: Any) -> Aval:
    labels = (params["moving"], *params["inputs"])
    extents = extents_of([a.shape for a in avals[: len(labels)]], labels)
    shape = tuple(extents[x] for x in params["output"])
    if params["format"] is not None:
        return Aval(shape, params["dtype"], params["format"], 0)
    return rules.infer(_pick_notation, avals, params, shape, params["dtype"]).strong()


def _pick_jvp(primals: list[Any], tangents: list[Any], out: Any, **params: Any) -> Any:
    """By the moving operand the same; by a factor, the old moving operand becomes a factor of the weight."""
    inputs, weight, dtype = params["inputs"], params["weight"], params["dtype"]
    count = len(inputs)
    made = None if tangents[0] is None else pick_p.bind(tangents[0], *primals[1:], **params)
    for k, t in enumerate(tangents[1 : count + 1]):
        slope = simplify.simplify(derivative(weight, variable(k, dtype)))
        if t is None or _is_zero(slope):
            continue
        more = simplify.simplify(cin.Call("multiply", (variable(count, dtype), slope), dtype))
        changed = {**params, "moving": inputs[k], "inputs": (*inputs, params["moving"]), "weight": more}
        operands = [t, *primals[1 : count + 1], primals[0], *primals[count + 1 :]]
        made = added(made, pick_p.bind(*operands, **changed))
    return made


def _pick_transpose(ct: Any, t: Linear, *rest: Any, **params: Any) -> list[Any]:
    own = rest[:-1] if params["masked"] else rest
    mask = [t.pattern] if t.is_sparse else []
    changed = {
        **params,
        "moving": params["output"],
        "output": params["moving"],
        "masked": t.is_sparse,
        "format": t.format if t.is_sparse else None,
    }
    return [keep(pick_p.bind(ct, *own, *mask, **changed), t), *([None] * len(rest))]


pick_p = Primitive(
    "pick",
    typing=_pick_typing,
    reference=_reference,
    notation=_pick_notation,
    jvp=_pick_jvp,
    transpose=_pick_transpose,
    describe=lambda weight, **_: scalar_functions.spell(weight),
)

# ------------------------------------------------------------------------------------------- the rule of contractions


def jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    out: Any,
    inputs: tuple[Labels, ...],
    output: Labels,
    dtype: np.dtype[Any],
    ring: Ring,
) -> Any:
    """The tangent of a contraction over `ring`, of its factors and their tangents. NotImplementedError for additions other than
    +, min and max."""
    if ring.add not in ("add", "minimum", "maximum"):
        raise NotImplementedError(
            f"a contraction over the semiring {ring} has no derivative here: its addition is not +, min or max"
        )
    count = len(inputs)
    extents = extents_of([x.shape for x in primals[:count]], inputs)
    pairs = [_plain((x, t), ls, extents) for x, t, ls in zip(primals, tangents, inputs, strict=False)]
    inputs = tuple(ls for _, ls in pairs)
    primals, tangents = zip(*(values for values, _ in pairs), strict=True)
    summed = tuple(x for x in extents if x not in output)
    factors = list(primals[:count])
    more: list[Any] = []
    if ring.add != "add":
        iotas = [asarray(coordinates(span(0, extents[x]))) for x in summed]
        first = first_p.bind(*factors, out, *iotas, inputs=inputs, output=output, summed=summed, dtype=dtype, ring=ring)
        more = [first, *iotas]
    product: cin.Expr = variable(0, dtype)
    for k in range(1, count):
        product = _product(ring, product, variable(k, dtype))
    made = None
    for k, t in enumerate(tangents[:count]):
        slope = None if t is None else simplify.simplify(derivative(product, variable(k, dtype)))
        if t is None or slope is None or _is_zero(slope):
            continue
        operands = [t, *factors, *more]
        made = added(
            made,
            pick_p.bind(
                *operands,
                moving=inputs[k],
                inputs=inputs,
                chosen=output if more else None,
                summed=summed,
                output=output,
                weight=slope,
                dtype=dtype,
                masked=False,
                format=None,
            ),
        )
    return made


def _plain(values: Sequence[Any], labels: Labels, extents: dict[int, int]) -> tuple[list[Any], Labels]:
    """Values with the same axes (None: no value) whose labels stand once, and have the extents of their axes: diagonals where one stands
    twice, and new labels, which `extents` takes, for axes of extent one that are broadcast.

    i, i, j -> j, i        j (extent 1, of 5) -> k (extent 1)
    """
    made, names = list(values), list(labels)
    for axis, n in enumerate(made[0].shape):
        if n != extents[names[axis]]:
            names[axis] = max(extents) + 1
            extents[names[axis]] = n
    while twice := [x for x in names if names.count(x) > 1]:
        first, second = [axis for axis, x in enumerate(names) if x == twice[0]][:2]
        made = [None if x is None else diagonal(x, 0, first, second) for x in made]
        names = [x for axis, x in enumerate(names) if axis not in (first, second)] + [twice[0]]
    return made, tuple(names)


def _product(ring: Ring, x: cin.Expr, y: cin.Expr) -> cin.Expr:
    body = operators.get(ring.mul).body
    if body is None:
        return cin.Call(ring.mul, (x, y), x.dtype)
    names: dict[cin.Access, cin.Expr] = dict(zip(scalar_functions.parameters(x.dtype), (x, y), strict=True))
    return cin.substitute(body, names)


def _is_zero(expr: cin.Expr) -> bool:
    return isinstance(expr, cin.Literal) and bool(expr.value == 0)


def derivative(expr: cin.Expr, by: cin.Access) -> cin.Expr:
    """The derivative of a scalar expression by one of its variables, simplified by `simplify`.

    >>> x, y = variable(0, np.dtype("f8")), variable(1, np.dtype("f8"))
    >>> print(derivative(cin.Call("multiply", (x, y), x.dtype), x))
    v1[]
    """
    dtype = by.dtype
    zero, one = simplify.literal(0, dtype), simplify.literal(1, dtype)

    def call(op: str, *args: cin.Expr) -> cin.Expr:
        if op == "multiply" and any(_is_zero(a) for a in args):
            return zero
        return simplify.simplify(cin.Call(op, args, dtype))

    match expr:
        case cin.Access():
            return one if expr == by else zero
        case cin.Literal():
            return zero
        case cin.Call("where" | "masked", (condition, yes, no), _):
            return call("where", condition, derivative(yes, by), derivative(no, by))
        case cin.Call("cast", (x,), _):
            return derivative(x, by) if x.dtype == dtype else zero
        case cin.Call(_, args, _):
            slopes = [derivative(a, by) for a in args]
            if all(_is_zero(s) for s in slopes):
                return zero
            parts = [p for p, s in zip(_partial(expr), slopes, strict=True) if not _is_zero(s)]
            slopes = [s for s in slopes if not _is_zero(s)]
            return functools.reduce(
                lambda a, b: call("add", a, b), map(lambda p, s: call("multiply", s, p), parts, slopes)
            )


def _partial(expr: cin.Call) -> list[cin.Expr]:
    """The derivatives of an operator by its arguments."""
    dtype, args = expr.dtype, expr.args

    def number(value: float) -> cin.Literal:
        return simplify.literal(value, dtype)

    def call(op: str, *inner: cin.Expr) -> cin.Expr:
        return cin.Call(op, inner, BOOL if op in TESTS else dtype)

    x = args[0]
    y = args[-1]
    match expr.op:
        case "add":
            return [number(1), number(1)]
        case "subtract":
            return [number(1), number(-1)]
        case "multiply":
            return [y, x]
        case "divide":
            return [call("divide", number(1), y), call("negative", call("divide", expr, y))]
        case "minimum" | "maximum":
            loses = behind(expr.op, x, y, call, lambda operand: True)
            return [call("where", loses, number(0), number(1)), call("where", loses, number(1), number(0))]
        case "negative":
            return [number(-1)]
        case "positive":
            return [number(1)]
        case "square":
            return [call("multiply", number(2), x)]
        case "exp":
            return [expr]
        case "log":
            return [call("divide", number(1), x)]
        case "sqrt":
            return [call("divide", number(0.5), expr)]
        case "absolute":
            return [call("sign", x)]
        case "sin":
            return [call("cos", x)]
        case "cos":
            return [call("negative", call("sin", x))]
        case "tanh":
            return [call("subtract", number(1), call("square", expr))]
        case "power":
            lower = call("multiply", y, call("power", x, call("subtract", y, number(1))))
            return [lower, call("multiply", expr, call("log", x))]
        case "sign" | "floor" | "ceil" | "trunc" | "rint":
            return [number(0)]
    raise NotImplementedError(f"the operator {expr.op} in a semiring has no derivative here")
