"""Operators that a program defines (of semirings, `jit.ir.scalar_functions`), so that a process that never saw the definition knows them.

    operator = {"kind": "reduction" | "product", "body": expr, "dtype": dtype, "constant": number, "one": number | null}
    expr     = ["scalar", dtype, name] | ["literal", dtype, hex bytes, absent] | [operator, dtype, expr, ...]

Expressions are of scalars: x and y in an operator, the factors of a product in its derivative. A reduction's constant is its identity, a product's what
annihilates. Operators inside are those of this package by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.export.errors import LayoutError
from sparsejax.formats import Format
from sparsejax.jit.ir import cin, operators, scalar_functions, simplify

DEEPEST = 100
"""Calls inside each other."""


def is_defined(name: str) -> bool:
    """Whether an operator is one that a program has defined."""
    known = operators.OPERATORS.get(name) if name.startswith("{") else None
    return known is not None and known.body is not None


def encoded(name: str) -> dict[str, Any]:
    """A defined operator as JSON."""
    made = operators.get(name)
    assert made.body is not None
    dtype = made.body.dtype
    constant = made.identity(dtype) if made.associative else made.left_annihilator
    one = None if made.associative or made.identity_of is None else made.identity(dtype)
    return {
        "kind": "reduction" if made.associative else "product",
        "body": expression_text(made.body),
        "dtype": dtype.str,
        "constant": _hex(constant, dtype),
        "one": None if one is None else _hex(one, dtype),
    }


def decoded(about: Any) -> str:
    """The name of what `encoded` wrote, which is known from now on. LayoutError for anything else."""
    try:
        dtype, body = np.dtype(about["dtype"]), expression(about["body"])
        constant = _number(about["constant"], dtype)
        if about["kind"] == "reduction":
            return scalar_functions.reduction(body, constant).name
        if about["kind"] == "product":
            one = None if about["one"] is None else _number(about["one"], dtype)
            return scalar_functions.product(body, constant, one).name
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise LayoutError(f"an operator that is none: {type(error).__name__}: {error}") from error
    raise LayoutError(f"an operator of the unknown kind {about['kind']!r}")


def expression_text(expr: cin.Expr) -> Any:
    """An expression of scalars as JSON. LayoutError for one that reads arrays."""
    match expr:
        case cin.Access(tensor, ()) if not tensor.shape and tensor == _scalar(tensor.name, tensor.dtype):
            return ["scalar", tensor.dtype.str, tensor.name]
        case cin.Literal(value, dtype, absent, False):
            return ["literal", dtype.str, _hex(value, dtype), absent]
        case cin.Call(op, args, dtype):
            return [op, dtype.str, *map(expression_text, args)]
    raise LayoutError(f"an expression with {type(expr).__name__}")


def expression(value: Any, depth: int = 0) -> cin.Expr:
    """What `expression_text` wrote. LayoutError for anything else."""
    try:
        name, dtype, rest = value[0], np.dtype(value[1]), value[2:]
        if depth > DEEPEST:
            raise LayoutError("an expression with too many calls inside each other")
        if name == "scalar":
            if not (isinstance(rest[0], str) and rest[0].isidentifier()):
                raise LayoutError(f"a scalar named {rest[0]!r:.100}")
            return cin.Access(_scalar(rest[0], dtype), ())
        if name == "literal":
            return simplify.literal(_number(rest[0], dtype), dtype, bool(rest[1]))
        known = operators.OPERATORS.get(name)
        if known is None or known.arity != len(rest):
            raise LayoutError(f"an operator {name!r:.100} of {len(rest)} arguments")
        return cin.Call(name, tuple(expression(v, depth + 1) for v in rest), dtype)
    except (KeyError, IndexError, TypeError) as error:
        raise LayoutError(f"an expression that is none: {type(error).__name__}: {error}") from error


def _scalar(name: str, dtype: np.dtype[Any]) -> cin.Tensor:
    return cin.Tensor(name, (), dtype, Format(()), dtype.type(0))


def _hex(value: Any, dtype: np.dtype[Any]) -> str:
    return np.asarray(value, dtype).tobytes().hex()


def _number(text: str, dtype: np.dtype[Any]) -> Any:
    return np.frombuffer(bytes.fromhex(text), dtype)[0]
