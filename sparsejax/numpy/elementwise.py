"""NumPy's elementwise functions. Each broadcasts and promotes as NumPy does; see `sparsejax.lax.elementwise` for when the
result is sparse and what its fill is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from sparsejax.lax.elementwise import (
    BINARY,
    UNARY,
    aval_of,
    convert_element_type,
    elementwise,
    loop_dtypes,
    strong,
    where,
)


def _unary(op: str) -> Callable[[Any], Any]:
    def function(x: Any, /) -> Any:
        return strong(elementwise(op, x))

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"`numpy.{op}` of every entry of `x`; the fill is mapped too."
    return function


def _binary(op: str) -> Callable[[Any, Any], Any]:
    def function(x: Any, y: Any, /) -> Any:
        return strong(elementwise(op, x, y))

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"`numpy.{op}` of `x` and `y`, entry by entry, broadcast."
    return function


unary = {op: _unary(op) for op in UNARY}
binary = {op: _binary(op) for op in BINARY}


def _raised(x: Any, y: Any) -> Any:
    """`x ** y`: NumPy's operator squares for an exponent of 2, which gives int8 for booleans where `power` gives int64."""
    is_bool = isinstance(y, int) and y == 2 and not isinstance(x, int | float | complex) and x.dtype == bool
    return elementwise("square", x) if is_bool else elementwise("power", x, y)


operators: dict[str, Callable[..., Any]] = {
    **{op: functools.partial(elementwise, op) for op in UNARY + BINARY},
    "power": _raised,
}
"""What Python's operators call: a number that a traced function computes from its Python numbers stays weakly typed."""


def logaddexp(x: Any, y: Any, /) -> Any:
    """`numpy.logaddexp`: log(exp(x) + exp(y)) without overflow, entry by entry, broadcast; fills 0 give fill log(2).

    >>> import numpy as np
    >>> round(float(logaddexp(0.0, 1000.0)))
    1000
    """
    types = aval_of(x), aval_of(y)
    if all(a.dtype.kind in "biu" for a in types):  # differences of integers wrap around
        wide = loop_dtypes("hypot", types)[1]
        x, y = convert_element_type(x, wide), convert_element_type(y, wide)
    gap = elementwise("subtract", x, y)
    more = elementwise("log1p", elementwise("exp", elementwise("negative", elementwise("absolute", gap))))
    # equal infinities have no gap, but NaN; nor has a NaN
    return strong(
        where(
            elementwise("isnan", gap), elementwise("add", x, y), elementwise("add", elementwise("maximum", x, y), more)
        )
    )
