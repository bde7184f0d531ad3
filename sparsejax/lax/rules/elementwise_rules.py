"""Derivatives of elementwise operations.

    unary    f: tangent = t * f'(x)             the table gives f' from x and y = f(x)
    binary   f: tangent = t1 * f1 + t2 * f2     the table gives each summand from its tangent

Operations that are constant almost everywhere (sign, floor, ...) have no tangents. Of equal operands the first is the maximum,
or the minimum. The tangent of a complex absolute value is that of JAX: Re(t conj(x)) / |x|.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.core.primitive import asarray
from sparsejax.core.tangents import Linear
from sparsejax.lax.elementwise import (
    cast_p,
    convert_element_type,
    elementwise,
    imag,
    logistic,
    primitives,
    real,
    unary_p,
    where,
    where_p,
)
from sparsejax.lax.linear import aligned, as_dtype, keep, pull, same_entries, zeros_like
from sparsejax.lax.structural import convert_format

E = elementwise


def _sqrt_of(x: Any, sign: str) -> Any:
    return E("sqrt", E(sign, E("square", x), 1))


DERIVATIVES: dict[str, Callable[[Any, Any], Any]] = {
    "square": lambda x, y: x * 2,
    "sqrt": lambda x, y: 0.5 / y,
    "cbrt": lambda x, y: 1 / (E("square", y) * 3),
    "reciprocal": lambda x, y: -E("square", y),
    "exp": lambda x, y: y,
    "exp2": lambda x, y: y * math.log(2),
    "expm1": lambda x, y: y + 1,
    "log": lambda x, y: 1 / x,
    "log2": lambda x, y: 1 / (x * math.log(2)),
    "log10": lambda x, y: 1 / (x * math.log(10)),
    "log1p": lambda x, y: 1 / (x + 1),
    "sin": lambda x, y: E("cos", x),
    "cos": lambda x, y: -E("sin", x),
    "tan": lambda x, y: E("square", y) + 1,
    "arcsin": lambda x, y: 1 / E("sqrt", 1 - E("square", x)),
    "arccos": lambda x, y: -1 / E("sqrt", 1 - E("square", x)),
    "arctan": lambda x, y: 1 / (E("square", x) + 1),
    "sinh": lambda x, y: E("cosh", x),
    "cosh": lambda x, y: E("sinh", x),
    "tanh": lambda x, y: 1 - E("square", y),
    "arcsinh": lambda x, y: 1 / _sqrt_of(x, "add"),
    "arccosh": lambda x, y: 1 / (E("sqrt", x - 1) * E("sqrt", x + 1)),
    "arctanh": lambda x, y: 1 / (1 - E("square", x)),
    "logistic": lambda x, y: y * (1 - y),
    "erf": lambda x, y: E("exp", -E("square", x)) * (2 / math.sqrt(math.pi)),
}
LINEAR = ("positive", "negative", "conjugate")
CONSTANT = ("sign", "floor", "ceil", "trunc", "rint", "floor_divide", "nextafter")


def _absolute(t: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind != "c":
        return t * E("sign", x)
    return real(t * E("conjugate", x)) / where(E("equal", y, 0), 1.0, y)


def _power_of_base(t: Any, x: Any, y: Any) -> Any:
    if not hasattr(y, "aval"):  # a number: the pattern of x stays
        return None if y == 0 else t * (E("power", x, y - 1) * y) if y != 2 else t * (x * 2)
    zero = E("equal", y, 0)
    return t * where(zero, 0.0, y * E("power", x, where(zero, 1.0, y - 1)))


def _power_of_exponent(t: Any, x: Any, out: Any) -> Any:
    return t * (E("log", where(E("equal", x, 0), 1.0, x)) * out)


def behind(op: str, x: Any, y: Any, call: Callable[..., Any], floats: Callable[[Any], bool]) -> Any:
    """Whether the first operand of `maximum` or `minimum` is behind the second, which has the tangent then: a NaN is behind nothing, and a number behind a
    NaN, which may be in what `floats` says. The answer is made by `call`, of operators."""
    found = call("less" if op == "maximum" else "greater", x, y)
    if not floats(y):
        return found
    sick = call("isnan", y)
    return call("logical_or", found, call("logical_and", sick, call("equal", x, x)) if floats(x) else sick)


def _loses(op: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The summands of `maximum` and `minimum`."""
    return (
        lambda t, x, y, z: where(behind(op, x, y, E, _floats), 0.0, t),
        lambda t, x, y, z: where(behind(op, x, y, E, _floats), t, 0.0),
    )


def _floats(x: Any) -> bool:
    """Whether a NaN may be in an operand, which is no number that is known."""
    return hasattr(x, "aval") and x.dtype.kind in "fc"


def _wins(order: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The summands of `fmax` and `fmin`: the first operand has the tangent where it is chosen, beside a NaN too."""

    def first(x: Any, y: Any) -> Any:
        return E("logical_or", E(order, x, y), E("isnan", y))

    return (lambda t, x, y, z: where(first(x, y), t, 0.0), lambda t, x, y, z: where(first(x, y), 0.0, t))


BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    # (tangent, x, y, f(x, y)) -> the summand of the first operand, of the second
    "add": (lambda t, x, y, z: t, lambda t, x, y, z: t),
    "subtract": (lambda t, x, y, z: t, lambda t, x, y, z: -t),
    "multiply": (lambda t, x, y, z: t * y, lambda t, x, y, z: x * t),
    "divide": (lambda t, x, y, z: t / y, lambda t, x, y, z: -(t * (z / y))),
    "power": (lambda t, x, y, z: _power_of_base(t, x, y), lambda t, x, y, z: _power_of_exponent(t, x, z)),
    "arctan2": (
        lambda t, x, y, z: t * (y / (E("square", x) + E("square", y))),
        lambda t, x, y, z: -(t * (x / (E("square", x) + E("square", y)))),
    ),
    "logaddexp": (lambda t, x, y, z: t * logistic(x - y), lambda t, x, y, z: t * logistic(y - x)),
    "hypot": (lambda t, x, y, z: t * (x / z), lambda t, x, y, z: t * (y / z)),
    "remainder": (lambda t, x, y, z: t, lambda t, x, y, z: -(t * E("floor", x / y))),
    "maximum": _loses("maximum"),
    "minimum": _loses("minimum"),
    "fmax": _wins("greater_equal"),
    "fmin": _wins("less_equal"),
    "copysign": (lambda t, x, y, z: t * (E("copysign", 1.0, x) * E("copysign", 1.0, y)), lambda t, x, y, z: None),
}


def _cast(value: Any, dtype: np.dtype[Any]) -> Any:
    return value if value is None or not hasattr(value, "aval") else convert_element_type(value, dtype)


def _jvp(op: str) -> Callable[..., Any]:
    def jvp(primals: list[Any], tangents: list[Any], out: Any, loops: Any) -> Any:
        if op in CONSTANT or out.dtype.kind not in "fc":
            return None
        xs = [_cast(x, d) for x, d in zip(primals, loops[0], strict=True)]
        ts = [_cast(t, d) for t, d in zip(tangents, loops[0], strict=True)]
        if op == "absolute":
            return _absolute(ts[0], xs[0], out)
        if op in LINEAR:
            return E(op, ts[0])
        if op in DERIVATIVES:
            return ts[0] * DERIVATIVES[op](xs[0], out)
        first, second = BINARY[op]
        made = added(
            None if ts[0] is None else first(ts[0], *xs, out), None if ts[1] is None else second(ts[1], *xs, out)
        )
        return made if op == "multiply" else _with_entries_of(out, made, primals, tangents)

    return jvp


def _with_entries_of(out: Any, t: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """A tangent of `out` that stores whatever `out` does, where sparse operands that do not move gave it entries of their own."""
    still = any(
        x is None and not p.format.is_dense for p, x in zip(primals, tangents, strict=True) if hasattr(p, "aval")
    )
    if t is None or out.format.is_dense or not still:
        return t
    return convert_format(E("add", t, zeros_like(out, t.dtype)), out.format)


def added(x: Any, y: Any) -> Any:
    """The sum of two tangents, of which either may be zero."""
    return y if x is None else x if y is None else E("add", x, y)


# ------------------------------------------------------------------------------------------ transposition, broadcast


def _add_transpose(ct: Any, *operands: Any, loops: Any) -> list[Any]:
    return [_summand(ct, o) if isinstance(o, Linear) else None for o in operands]


def _summand(ct: Any, to: Linear) -> Any:
    if ct.shape == to.shape:
        return same_entries(ct, to)
    return pull([aligned(ct, ct.ndim)], aligned(to, ct.ndim)[1], to)


def _subtract_transpose(ct: Any, x: Any, y: Any, loops: Any) -> list[Any]:
    first, second = _add_transpose(ct, x, y, loops=loops)
    return [first, None if second is None else -second]


def _multiply_transpose(ct: Any, x: Any, y: Any, loops: Any) -> list[Any]:
    if isinstance(x, Linear):
        return [_scaled(ct, x, E("multiply", ct, _cast(y, ct.dtype)) if ct.shape == x.shape else None, y), None]
    return [None, _scaled(ct, y, E("multiply", ct, _cast(x, ct.dtype)) if ct.shape == y.shape else None, x)]


def _scaled(ct: Any, to: Linear, product: Any, other: Any) -> Any:
    """The cotangent of a factor: it has no other entries than the result, or is summed where it was broadcast."""
    if product is not None:
        return keep(product, to)
    return pull([aligned(ct, ct.ndim), aligned(asarray(other), ct.ndim)], aligned(to, ct.ndim)[1], to)


def _divide_transpose(ct: Any, x: Linear, y: Any, loops: Any) -> list[Any]:
    made = E("divide", ct, _cast(y, ct.dtype))
    return [keep(made, x) if ct.shape == x.shape else pull([aligned(made, ct.ndim)], aligned(x, ct.ndim)[1], x), None]


TRANSPOSES: dict[str, Callable[..., list[Any]]] = {
    "add": _add_transpose,
    "subtract": _subtract_transpose,
    "multiply": _multiply_transpose,
    "divide": _divide_transpose,
    "positive": lambda ct, x, loops: [keep(ct, x)],
    "negative": lambda ct, x, loops: [keep(-ct, x)],
    "conjugate": lambda ct, x, loops: [keep(E("conjugate", ct), x)],
    "real": lambda ct, x, loops: [keep(convert_element_type(ct, x.dtype), x)],
    "imag": lambda ct, x, loops: [keep(convert_element_type(ct, x.dtype) * -1j, x)],
}
for name, primitive in primitives.items():
    primitive.jvp = _jvp(name)
    primitive.transpose = TRANSPOSES.get(name)


# -------------------------------------------------------------------------------- cast, where, real, imag, logistic


def _cast_jvp(primals: list[Any], tangents: list[Any], out: Any, dtype: np.dtype[Any]) -> Any:
    return None if dtype.kind not in "fc" else as_dtype(tangents[0], dtype)


cast_p.jvp = _cast_jvp
cast_p.transpose = lambda ct, x, dtype: [keep(ct, x)]


def _where_jvp(primals: list[Any], tangents: list[Any], out: Any, dtype: np.dtype[Any]) -> Any:
    yes, no = (None if t is None else _cast(t, dtype) for t in tangents[1:])
    if yes is None and no is None:
        return None
    made = where(primals[0], 0.0 if yes is None else yes, 0.0 if no is None else no)
    return _with_entries_of(out, made, primals[1:], tangents[1:])


def _where_transpose(ct: Any, c: Any, x: Any, y: Any, dtype: np.dtype[Any]) -> list[Any]:
    made: list[Any] = [None, None, None]
    if isinstance(x, Linear):
        made[1] = pull([aligned(where(c, ct, 0.0), ct.ndim)], aligned(x, ct.ndim)[1], x)
    if isinstance(y, Linear):
        made[2] = pull([aligned(where(c, 0.0, ct), ct.ndim)], aligned(y, ct.ndim)[1], y)
    return made


where_p.jvp = _where_jvp
where_p.transpose = _where_transpose


def _apply_jvp(primals: list[Any], tangents: list[Any], out: Any, op: str, compute: Any, dtype: Any) -> Any:
    t = _cast(tangents[0], compute)
    if op in ("real", "imag"):
        return real(t) if op == "real" else imag(t)
    return t * DERIVATIVES[op](_cast(primals[0], compute), out)


unary_p.jvp = _apply_jvp
unary_p.transpose = lambda ct, x, op, compute, dtype: TRANSPOSES[op](ct, x, loops=None)
