"""Operators that are defined by others: `body` is an expression over the scalars x and y.

    define(add(x, y), zero inf)      the multiplication of min-plus: an entry that is not stored annihilates
    define(maximum(x, y), identity 0)

Kernels compute the body in place. An operator's name spells its body, dtype and constants, so that equal definitions are
the same operator and equal kernels are the same text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.formats import Format
from sparsejax.jit.ir import cin, operators, simplify

PARAMETERS = ("x", "y")


def parameters(dtype: np.dtype[Any]) -> tuple[cin.Access, cin.Access]:
    """The scalars x and y as index notation."""
    x, y = (cin.Access(cin.Tensor(name, (), dtype, Format(()), dtype.type(0)), ()) for name in PARAMETERS)
    return x, y


def spell(body: cin.Expr) -> str:
    """`body` as text that tells everything about it."""
    match body:
        case cin.Call(op, args, dtype):
            name = f"cast<{dtype}>" if op == "cast" else op
            return f"{name}({', '.join(map(spell, args))})"
        case cin.Literal(value, dtype):
            return f"{_plain(value, dtype)}:{dtypes.short_name(dtype)}"
        case cin.Access(tensor, _):
            return tensor.name


def reduction(body: cin.Expr, identity: Any) -> operators.Operator:
    """The operator `body` as an associative and commutative reduction with `identity`: an operator that there is, where they agree.

    >>> x, y = parameters(np.dtype("float64"))
    >>> reduction(cin.Call("maximum", (x, y), x.dtype), 0.0).name
    '{maximum(x, y); identity 0.0; float64}'
    >>> reduction(cin.Call("add", (y, x), x.dtype), 0.0).name
    'add'
    """
    dtype = body.dtype
    if isinstance(body, cin.Call) and set(body.args) == set(parameters(dtype)):
        known = operators.get(body.op)
        agrees = known.associative and known.commutative and known.identity_of is not None
        if agrees and cin.same_value(dtype.type(known.identity(dtype)), dtype.type(identity)):
            return known
    name = f"{{{spell(body)}; identity {_plain(identity, dtype)}; {dtype}}}"
    return operators.register(
        operators.Operator(
            name,
            2,
            meaning(body),
            commutative=True,
            associative=True,
            identity_of=lambda _: identity,
            left_identity=True,
            right_identity=True,
            body=body,
        )
    )


def product(body: cin.Expr, zero: Any, one: Any = None) -> operators.Operator:
    """The operator `body` where `zero` annihilates, and `one`, if given, is the identity on both sides."""
    dtype = body.dtype
    unit = "" if one is None else f"one {_plain(one, dtype)}; "
    name = f"{{{spell(body)}; zero {_plain(zero, dtype)}; {unit}{dtype}}}"
    plain = meaning(body)

    def annihilated(x: Any, y: Any) -> Any:
        return np.where((np.asarray(x) == zero) | (np.asarray(y) == zero), zero, plain(x, y))

    return operators.register(
        operators.Operator(
            name,
            2,
            annihilated,
            identity_of=None if one is None else lambda _: one,
            left_identity=one is not None,
            right_identity=one is not None,
            left_annihilator=zero,
            right_annihilator=zero,
            body=body,
        )
    )


def _plain(value: Any, dtype: np.dtype[Any]) -> str:
    return str(np.asarray(value, dtype)[()])


def meaning(body: cin.Expr) -> Callable[..., Any]:
    """The NumPy meaning of `body`."""
    dtype = body.dtype

    def value(expr: cin.Expr, args: tuple[Any, ...]) -> Any:
        match expr:
            case cin.Access(tensor, _):
                return args[PARAMETERS.index(tensor.name)]
            case cin.Literal(number, kind):
                return np.asarray(number, kind)
            case cin.Call("cast", (x,), kind):
                return np.asarray(value(x, args)).astype(kind)
            case cin.Call(op, inner, kind):
                made = operators.get(op).numpy(*(value(a, args) for a in inner))
                return np.asarray(made).astype(kind, copy=False)

    def function(x: Any, y: Any) -> Any:
        with np.errstate(all="ignore"):
            made = np.asarray(value(body, (np.asarray(x, dtype), np.asarray(y, dtype))))
        return np.broadcast_to(made, np.broadcast_shapes(np.shape(x), np.shape(y)))

    return function


def read_by(stmt: cin.Stmt) -> set[cin.Access]:
    """The accesses of `stmt` whose values it depends on: an operator that is defined by others may not ask for all of its arguments.

    >>> x, y = parameters(np.dtype("bool"))
    >>> pair = product(cin.Literal(True, x.dtype), False)
    >>> w = cin.Access(x.tensor, ())
    >>> read_by(cin.Assign(w, cin.Call(pair.name, (x, y), x.dtype), None))
    set()
    """
    found: set[cin.Access] = set()

    def look(expr: cin.Expr) -> None:
        if isinstance(expr, cin.Access):
            found.add(expr)
            found.update(expr.others)
        elif isinstance(expr, cin.Call):
            body = None if expr.op in ("cast", "stored") else operators.get(expr.op).body
            names = None if body is None else {a.tensor.name for a in cin.accesses(body)}
            for name, arg in zip(PARAMETERS if names is not None else expr.args, expr.args, strict=True):
                if names is None or name in names:
                    look(arg)

    for write in cin.writes(stmt):
        look(write.rhs)
    return found


def simplified(body: cin.Expr, dtype: np.dtype[Any]) -> cin.Expr:
    """`body` simplified, as `dtype`."""
    return simplify.simplify(body if body.dtype == dtype else cin.Call("cast", (body,), dtype))
