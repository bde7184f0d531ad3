"""Semirings: what a contraction multiplies and adds with.

A `Semiring` is a description for any dtype; `ring_of` makes it concrete for one: the names of two operators of index notation
and the value of an absent entry. Python callables are traced once per dtype to index notation, so that kernels compute them in
place. Nothing below knows semirings: co-iteration, fills and formats follow from the operators' identities and annihilators.

Source: Kepner and Gilbert (eds.), "Graph Algorithms in the Language of Linear Algebra"; names as in the GraphBLAS C API.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsejax.cached import cached_property
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, Literal
from sparsejax.core.primitive import asarray
from sparsejax.core.trace import Tracer, is_python_scalar, tracing
from sparsejax.formats import Format
from sparsejax.jit.ir import cin, operators, scalar_functions, simplify

Operation = str | Callable[[Any, Any], Any]

_ALIASES = {
    "plus": "add", "times": "multiply", "min": "minimum", "max": "maximum", "minus": "subtract", "div": "divide",
    "or": "logical_or", "and": "logical_and", "xor": "logical_xor", "any": "maximum",
}  # fmt: skip
_PICKS = ("first", "second", "pair")  # the left factor, the right factor, one
_ADDS = ("plus", "min", "max", "or", "xor", "any")
_ONES = {"times": 1, "plus": 0, "and": True, "min": np.inf, "max": -np.inf}


class Semiring:
    """Addition, multiplication, and their constants.

    `add` and `mul` are names of operators ("add", "minimum", ...; GraphBLAS's short names too; for `mul` also "first", "second"
    and "pair", which is 1 where both factors are present) or Python functions of two scalars, written with operators and
    `sparsejax.numpy`, which are traced and compiled. `zero` is the identity of `add` (default: that of the operator called
    `add`), annihilates `mul`, and is what a result reads where nothing contributes. `one`, where given, is the identity of `mul`.
    An infinite constant is the extreme value of an integer dtype, and is absorbed as infinity is. Addition must be associative and
    commutative: terms are combined in any order.

    Semirings are hashable and compared by structure: two lambdas with equal bodies are equal.

    Raises TypeError for a callable that is not a scalar function, ValueError for an unknown name.

    >>> tropical = Semiring("minimum", lambda x, y: x + y, np.inf, 0)
    >>> tropical == Semiring("min", lambda a, b: a + b, np.inf, 0)
    True
    """

    def __init__(self, add: Operation, mul: Operation, zero: Any = None, one: Any = None) -> None:
        self.add = _checked(add, ())
        self.mul = _checked(mul, _PICKS)
        if zero is None and (not isinstance(self.add, str) or operators.get(self.add).identity_of is None):
            raise ValueError("this addition has no known identity: give the semiring's zero")
        self.zero = _scalar(zero, "zero")
        self.one = _scalar(one, "one")

    @cached_property
    def _key(self) -> tuple[str, ...]:
        return (_signature(self.add), _signature(self.mul), repr(self.zero), repr(self.one))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Semiring) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        add, mul = (f if isinstance(f, str) else _signature(f) for f in (self.add, self.mul))
        one = "" if self.one is None else f", one={self.one}"
        return f"Semiring({add}, {mul}, zero={self.zero}{one})"

    @property
    def is_logical(self) -> bool:
        """Whether it computes with truth values, whatever the dtype of its operands."""
        return self.add in ("logical_or", "logical_xor") and self.mul in (
            "logical_and",
            "logical_or",
            "logical_xor",
            "pair",
        )


@dataclass(frozen=True)
class Ring:
    """A semiring for one dtype: names of operators, and the value of an absent entry."""

    add: str
    mul: str
    zero: Any

    def __str__(self) -> str:
        return f"{self.add}.{self.mul}"


def named(name: str) -> Semiring:
    """The semiring called `name`, an addition and a multiplication: "min_plus", "or_and", "plus_first", "any_pair", …

    Additions: plus min max or xor any (one of the terms, which must be equal). Multiplications: plus times min max minus div
    and or xor first second pair. "plus_times" is ordinary arithmetic.

    >>> named("min_plus")
    Semiring(minimum, add, zero=inf, one=0)
    """
    add, _, mul = name.partition("_")
    if add not in _ADDS or (mul not in _ALIASES and mul not in _PICKS) or mul == "any":
        raise ValueError(
            f"unknown semiring {name!r}: write ADD_MUL with ADD one of {' '.join(_ADDS)} and MUL one of "
            f"{' '.join(x for x in (*_ALIASES, *_PICKS) if x != 'any')}, or make a sparsejax.Semiring"
        )
    zero = {"min": np.inf, "max": -np.inf}.get(add, 0)
    return Semiring(add, mul, bool(zero) if add in ("or", "xor") else zero, _ONES.get(mul))


def semiring_of(value: Any) -> Semiring | None:
    """A Semiring for a name or a Semiring; None for None."""
    if value is None or isinstance(value, Semiring):
        return value
    if isinstance(value, str):
        return named(value)
    raise TypeError(f"semiring must be a name or a sparsejax.Semiring, not {type(value).__name__}")


@functools.lru_cache(maxsize=256)
def ring_of(semiring: Semiring, dtype: np.dtype[Any]) -> Ring:
    """`semiring` for values of `dtype`.

    >>> ring_of(named("plus_times"), np.dtype("int32"))
    Ring(add='add', mul='multiply', zero=np.int32(0))
    """
    known = operators.OPERATORS.get(semiring.add) if isinstance(semiring.add, str) else None
    if dtype.kind == "c" and semiring.add in ("minimum", "maximum"):
        raise TypeError(f"{semiring} orders numbers, which complex ones are not")
    identity = None if known is None else known.identity(dtype)
    if semiring.zero is None and identity is None:
        raise TypeError(f"{semiring} has no zero of dtype {dtype}; give it one")
    zero = identity if semiring.zero is None else _value(semiring.zero, dtype, "zero")
    one = None if semiring.one is None else _value(semiring.one, dtype, "one")
    if known is not None and identity is not None and cin.same_value(identity, zero):
        add = known
    else:
        add = scalar_functions.reduction(_body(semiring.add, dtype), zero)
    mul = operators.OPERATORS.get(semiring.mul) if isinstance(semiring.mul, str) else None
    if mul is None or not _annihilates(mul, zero):
        mul = scalar_functions.product(_absorbing(semiring.mul, semiring.zero, dtype), zero, one)
    return Ring(add.name, mul.name, zero)


def _annihilates(operator: operators.Operator, zero: Any) -> bool:
    sides = (operator.left_annihilator, operator.right_annihilator)
    return all(side is not None and side == zero for side in sides)


def _absorbing(operation: Operation, zero: Any, dtype: np.dtype[Any]) -> cin.Expr:
    """`operation` on `dtype`. Integers have no infinity: where an infinite zero of the same product of floats absorbs an
    argument, the extreme that stands for it does so too, instead of wrapping around."""
    body = _body(operation, dtype)
    if dtype.kind not in "iu" or not isinstance(zero, float) or np.isfinite(zero):
        return body
    try:
        floats = scalar_functions.meaning(_body(operation, np.dtype(np.float64)))
    except TypeError:
        return body
    extreme = simplify.literal(_value(zero, dtype, "zero"), dtype)
    for side, example in zip(scalar_functions.parameters(dtype), ((zero, 2.0), (2.0, zero)), strict=True):
        if body == side:  # it is the argument itself
            continue
        if floats(*example) == zero:
            test = cin.Call("equal", (side, extreme), np.dtype(np.bool_))
            body = cin.Call("where", (test, extreme, body), dtype)
    return body


def _value(constant: Any, dtype: np.dtype[Any], what: str) -> Any:
    """A constant of `dtype`: infinities become extremes where there is none. ValueError where it does not fit."""
    if isinstance(constant, float) and np.isinf(constant) and dtype.kind in "biu":
        constant = (operators.highest if constant > 0 else operators.lowest)(dtype)
    with np.errstate(all="ignore"):
        made = np.asarray(constant).astype(dtype)[()]
    if not cin.same_value(made, constant):
        raise ValueError(f"{what}={constant} of the semiring is not a value of dtype {dtype}")
    return made


def _body(operation: Operation, dtype: np.dtype[Any]) -> cin.Expr:
    """`operation` on the scalars x and y of `dtype`."""
    x, y = scalar_functions.parameters(dtype)
    if not isinstance(operation, str):
        return scalar_functions.simplified(_traced(operation, dtype), dtype)
    picks: dict[str, cin.Expr] = {"first": x, "second": y, "pair": simplify.literal(1, dtype)}
    made = picks[operation] if operation in picks else cin.Call(operation, (x, y), _result(operation, dtype))
    return scalar_functions.simplified(made, dtype)


def _result(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that the operator `name` gives on two values of `dtype`."""
    try:
        resolved: np.dtype[Any] = operators.get(name).numpy.resolve_dtypes((dtype, dtype, None))[-1]  # type: ignore[attr-defined]
    except TypeError:
        raise TypeError(f"operator {name!r} of the semiring is not defined for dtype {dtype}") from None
    if name == "divide" and dtype.kind in "biu":
        raise TypeError(
            f"operator 'divide' of the semiring needs floating point values, not {dtype}; cast the operands"
        )
    return resolved


def _traced(function: Callable[[Any, Any], Any], dtype: np.dtype[Any]) -> cin.Expr:
    """The body of a Python function of two scalars."""
    scalars = scalar_functions.parameters(dtype)
    with tracing() as trace:
        inputs = [trace.input(Aval((), dtype, Format(()))) for _ in scalars]
        result = function(*inputs)
        if not isinstance(result, Tracer) and not is_python_scalar(result):
            result = asarray(result, "the result of a semiring's function")
        jaxpr, consts = trace.finish(inputs, [result])
    values: dict[Atom, cin.Expr] = dict(zip(jaxpr.inputs, scalars, strict=True))
    for var, const in zip(jaxpr.consts, consts, strict=True):
        if const.ndim:
            raise TypeError(f"a semiring's function uses an array of shape {const.shape}; it may use numbers only")
        values[var] = simplify.literal(const.storage.vals[0], const.dtype)

    def expression(atom: Atom) -> cin.Expr:
        return simplify.literal(atom.value, atom.aval.dtype) if isinstance(atom, Literal) else values[atom]

    for eqn in jaxpr.eqns:
        if eqn.primitive.notation is None:
            raise TypeError(
                f"a semiring's function uses {eqn.primitive.name}, which is not a scalar operation ({eqn.source})"
            )
        names = {f"v{k}": expression(a) for k, a in enumerate(eqn.inputs)}
        operands = [
            a if isinstance(a, cin.Literal) else cin.Tensor(n, (), a.dtype, Format(()), a.dtype.type(0))
            for n, a in names.items()
        ]
        made: cin.Definition = eqn.primitive.notation(*operands, **eqn.param_dict)
        if made.indices or made.op is not None:
            raise TypeError(
                f"a semiring's function uses {eqn.primitive.name} on arrays; it may use scalars only ({eqn.source})"
            )
        values[eqn.outputs[0]] = cin.substitute(made.rhs, {a: names[a.tensor.name] for a in cin.accesses(made.rhs)})
    return expression(jaxpr.outputs[0])


@functools.lru_cache(maxsize=256)
def _signature(operation: Operation) -> str:
    """Text that is equal for equal operations: the name, or the body on floats, integers or booleans."""
    if isinstance(operation, str):
        return operation
    failure: Exception | None = None
    for dtype in ("float64", "int64", "bool"):
        try:
            return scalar_functions.spell(_body(operation, np.dtype(dtype)))
        except TypeError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def _checked(operation: Any, more: tuple[str, ...]) -> Operation:
    if callable(operation):
        try:
            inspect.signature(operation).bind(None, None)
        except TypeError:
            raise TypeError(
                f"an operation of a semiring is a function of two scalars, which {operation!r} is not"
            ) from None
        except ValueError:  # what is not written in Python may have no signature
            pass
        return operation
    if not isinstance(operation, str):
        raise TypeError(
            f"an operation of a semiring is a name or a function of two scalars, not {type(operation).__name__}"
        )
    name = _ALIASES.get(operation, operation)
    known = operators.OPERATORS.get(name)
    if name in more or (known is not None and known.arity == 2 and isinstance(known.numpy, np.ufunc)):
        return name
    raise ValueError(
        f"unknown operation {operation!r} of a semiring: name a binary operator such as add, minimum or times"
    )


def _scalar(value: Any, what: str) -> Any:
    if value is None or is_python_scalar(value):
        return value
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    raise TypeError(f"{what} of a semiring must be a number, not {type(value).__name__}")
