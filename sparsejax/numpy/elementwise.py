"""NumPy's elementwise functions. Each broadcasts and promotes as NumPy does; see `sparsejax.lax.elementwise` for when the
result is sparse and what its fill is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from sparsejax.lax.elementwise import BINARY, UNARY, elementwise, strong


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
operators = {op: functools.partial(elementwise, op) for op in UNARY + BINARY}
"""What Python's operators call: a number that a traced function computes from its Python numbers stays weakly typed."""
