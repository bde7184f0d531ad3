"""NumPy's elementwise functions. Each broadcasts and promotes as NumPy does; see `sparsejax.lax.elementwise` for when the
result is sparse and what its fill is."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.trace import is_python_scalar
from sparsejax.lax.elementwise import (
    BINARY,
    UNARY,
    aval_of,
    convert_element_type,
    elementwise,
    imag,
    loop_dtypes,
    real,
    strong,
    where,
)
from sparsejax.lax.names import rem

ROUNDING = frozenset(BINARY) - {"power", "left_shift", "right_shift"}
"""Functions to which an integer beside floating-point numbers is the number of their type that it is rounded to, and nothing else: powers of integers
are products."""


def _unary(op: str) -> Callable[[Any], Array]:
    def function(x: Any, /) -> Any:
        return strong(elementwise(op, x))

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"`numpy.{op}` of every entry of `x`; the fill is mapped too."
    return again(1)(function)


def _binary(op: str) -> Callable[[Any, Any], Array]:
    def function(x: Any, y: Any, /) -> Any:
        return strong(elementwise(op, x, y))

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"`numpy.{op}` of `x` and `y`, entry by entry, broadcast."
    return again(2, rounds=op in ROUNDING)(function)


unary = {op: _unary(op) for op in UNARY}
binary = {op: _binary(op) for op in BINARY}


def _raised(x: Any, y: Any) -> Any:
    """`x ** y`: NumPy's operator squares for an exponent of 2, which gives int8 for booleans where `power` gives int64."""
    is_bool = isinstance(y, int) and y == 2 and not isinstance(x, int | float | complex) and x.dtype == bool
    return elementwise("square", x) if is_bool else elementwise("power", x, y)


operators: dict[str, Callable[..., Any]] = {
    **{op: again(1)(functools.partial(elementwise, op)) for op in UNARY},
    **{op: again(2, rounds=op in ROUNDING)(functools.partial(elementwise, op)) for op in BINARY},
    "power": again(2)(_raised),
}
"""What Python's operators call: a number that a traced function computes from its Python numbers stays weakly typed."""


@again(1)
def deg2rad(x: Any, /) -> Array:
    """`numpy.deg2rad`: degrees as radians.

    >>> deg2rad(np.array([90], np.int16)).dtype
    dtype('float32')
    """
    return _times(_real("deg2rad", x), math.pi / 180)


@again(1)
def rad2deg(x: Any, /) -> Array:
    """`numpy.rad2deg`: radians as degrees."""
    return _times(_real("rad2deg", x), 180 / math.pi)


def _real(name: str, x: Any) -> Any:
    """`x`, which must not be complex, as in NumPy."""
    if aval_of(x).dtype.kind == "c":
        raise TypeError(f"{name} takes no complex numbers, as x of dtype {aval_of(x).dtype} has: take x.real or abs(x)")
    return x


def _times(x: Any, factor: float) -> Array:
    """`x` times a number, in the floats that functions of `x` have."""
    _, dtype = loop_dtypes("sqrt", (aval_of(x),))
    return strong(elementwise("multiply", convert_element_type(x, dtype), factor))


@again(1, whole=True)
def sinc(x: Any, /) -> Array:
    """`numpy.sinc`: sin(pi x) / (pi x), 1 at 0; fill 0 gives fill 1."""
    away = elementwise("multiply", x, math.pi)
    at_zero = elementwise("equal", away, 0)
    safe = where(at_zero, 1.0, away)
    return where(at_zero, 1.0, elementwise("divide", elementwise("sin", safe), safe))


@again(2, whole=True)
def heaviside(x1: Any, x2: Any, /) -> Array:
    """`numpy.heaviside`: 0 below 0, 1 above it, `x2` there; NaN stays."""
    _, dtype = loop_dtypes("copysign", (aval_of(x1), aval_of(x2)))
    above = where(elementwise("greater", x1, 0), 1.0, x2 if is_python_scalar(x2) else convert_element_type(x2, dtype))
    made = where(elementwise("isnan", x1), np.nan, where(elementwise("less", x1, 0), 0.0, above))
    return convert_element_type(made, dtype)


@again(1)
def angle(x: Any, deg: bool = False) -> Array:
    """`numpy.angle`: the argument of complex numbers, in radians or degrees."""
    x = convert_element_type(x, float) if aval_of(x).dtype.kind == "b" else x
    made = elementwise("arctan2", imag(x), real(x))
    return rad2deg(made) if deg else made


@again(2)
def fmod(x1: Any, x2: Any, /) -> Array:
    """`numpy.fmod`: the remainder with the sign of `x1`, where `remainder` has that of `x2`.

    >>> fmod(np.array([-7.0, 7.0]), 3)
    Array([-1.,  1.], dtype=float64)
    """
    return strong(rem(x1, x2))


def divmod(x1: Any, x2: Any, /) -> tuple[Any, Any]:
    """`numpy.divmod`: quotient, rounded down, and remainder."""
    return binary["floor_divide"](x1, x2), binary["remainder"](x1, x2)


@again(2)
def float_power(x1: Any, x2: Any, /) -> Array:
    """`numpy.float_power`: powers in float64 or complex128."""
    kind = np.complex128 if any(aval_of(x).dtype.kind == "c" for x in (x1, x2)) else np.float64
    return elementwise("power", convert_element_type(x1, kind), x2)


@again(2, whole=True)
def logaddexp2(x: Any, y: Any, /) -> Array:
    """`numpy.logaddexp2`: log2(2**x + 2**y) without overflow."""
    scale = math.log(2)
    _, dtype = loop_dtypes("logaddexp", (aval_of(x), aval_of(y)))
    wide = (elementwise("multiply", convert_element_type(v, dtype), scale) for v in (x, y))
    return strong(elementwise("multiply", elementwise("logaddexp", *wide), 1 / scale))


@again(1)
def fabs(x: Any, /) -> Array:
    """`numpy.fabs`: absolute values as floating point numbers."""
    return elementwise("absolute", convert_element_type(_real("fabs", x), loop_dtypes("sqrt", (aval_of(x),))[1]))


def fix(x: Any, /) -> Array:
    """`numpy.fix`: rounded towards zero."""
    return unary["trunc"](x)


@again(1, whole=True)
def iscomplex(x: Any, /) -> Array:
    """`numpy.iscomplex`: whether entries have an imaginary part."""
    return elementwise("not_equal", imag(x), 0)


@again(1, whole=True)
def isreal(x: Any, /) -> Array:
    """`numpy.isreal`: whether entries have no imaginary part."""
    return elementwise("equal", imag(x), 0)


@again(1, whole=True)
def isposinf(x: Any, /) -> Array:
    """`numpy.isposinf`: whether entries are +inf."""
    return elementwise("equal", _real("isposinf", x), np.inf)


@again(1, whole=True)
def isneginf(x: Any, /) -> Array:
    """`numpy.isneginf`: whether entries are -inf."""
    return elementwise("equal", _real("isneginf", x), -np.inf)
