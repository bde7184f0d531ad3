"""Extents that an exported program leaves open: symbols, expressions of them, and what must hold of both.

    symbols = {"names": ["n", "m"], "hints": [1009, 1110], "guards": [condition]}
    text    = sums, products, quotients (//), remainders and negatives of integers and names: "2*n + (m//4)"
    condition = "text == 0" | "text < 0" | "not text < 0" | "not text == 0"

Texts of a file are read by a grammar that knows nothing else, and computed as `core.symbolic` computes; nothing of a file is evaluated.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Sequence
from typing import Any

from sparsejax.core.symbolic import Scope, SymbolicDim
from sparsejax.export.errors import LayoutError

LONGEST = 10_000
"""Letters of one text."""
_OPERATIONS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def parsed(text: Any, scope: Scope | None) -> Any:
    """The extent that a text tells. LayoutError for anything else."""
    return _computed(_tree(text), scope, text)


def encoded(scope: Scope) -> dict[str, Any]:
    """The symbols of a program as JSON."""
    return {
        "names": list(scope.symbols),
        "hints": [scope.symbol(n).hint for n in scope.symbols],
        "guards": list(scope.guards),
    }


def decoded(about: Any) -> Scope:
    """What `encoded` wrote. LayoutError for names and conditions that are none."""
    names, hints = list(about["names"]), list(about["hints"])
    if len(set(names)) != len(names) or not all(isinstance(n, str) and n.isascii() and n.isidentifier() for n in names):
        raise LayoutError(f"symbols named {names}")
    if not all(type(h) is int and 2 <= h < 2**31 for h in hints) or len(hints) != len(names):
        raise LayoutError(f"symbols with values {hints}")
    for name in names:
        if not isinstance(_tree(name), ast.Name):
            raise LayoutError(f"a symbol named {name}")
    scope = Scope(dict(zip(names, hints, strict=True)))
    for guard in about["guards"]:
        _check(guard, scope)
        scope.guards.setdefault(guard, "an exported program")
    return scope


def _tree(text: Any) -> ast.expr:
    if not isinstance(text, str) or len(text) > LONGEST:
        raise LayoutError(f"an extent {text!r:.100}")
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise LayoutError(f"an extent {text!r:.100} that is no expression") from error


def _computed(node: ast.expr, scope: Scope | None, text: Any) -> Any:
    match node:
        case ast.Name(id=name) if scope is not None and name in scope.symbols:
            return scope.symbol(name)
        case ast.Constant(value=number) if type(number) is int and abs(number) < 2**63:
            return number
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_computed(inner, scope, text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            a, b = _computed(left, scope, text), _computed(right, scope, text)
            if b == 0 and isinstance(op, ast.FloorDiv | ast.Mod):
                raise LayoutError(f"an extent {text!r:.100} that divides by zero")
            return _OPERATIONS[type(op)](a, b)
    raise LayoutError(f"an extent {text!r:.100} with something else than sums, products and quotients of known symbols")


def _check(guard: Any, scope: Scope) -> None:
    """LayoutError for a condition that is none."""
    node = _tree(guard)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node = node.operand
    match node:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Lt()], comparators=[ast.Constant(value=number)]) if (
            type(number) is int
        ):
            _computed(left, Scope({n: scope.symbol(n).hint for n in scope.symbols}), guard)
        case _:
            raise LayoutError(f"a condition {guard!r:.100}")


def named(avals: Sequence[Any]) -> tuple[Scope, list[Any]] | None:
    """A scope for the extents that types name, and the types with its symbols; None where all extents are numbers. ValueError for extents that are more
    than a name."""
    extents = [n for a in avals for n in a.shape if isinstance(n, SymbolicDim)]
    if not extents:
        return None
    compound = next((n for n in extents if not n.code.isidentifier()), None)
    if compound is not None:
        raise ValueError(f"the extent {compound} is an expression; name the extents of arguments, as in ('n', 'm')")
    names = dict.fromkeys(n.code for n in extents)
    scope = Scope({name: 1009 + 101 * k for k, name in enumerate(names)})
    made = [a.resized(lambda n: scope.symbol(n.code) if isinstance(n, SymbolicDim) else n) for a in avals]
    return scope, made
