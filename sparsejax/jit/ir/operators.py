"""The scalar operators of sparsejax and the algebra that the compiler derives everything from.

Co-iteration, fills, output formats and reductions follow from five facts about an operator: its NumPy meaning,
its identity, its annihilators, whether it commutes and associates, and what reducing `m` copies of a value gives
(`repeat`). No pass looks at an operator's name for any of these.

Source of the scheme: "Compilation of Sparse Array Programming Models", sections on fill values and annihilators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

DType = np.dtype[Any]
Scalar = Any  # a NumPy scalar or a Python number


@dataclass(frozen=True)
class Operator:
    """One scalar operator.

    `identity(dtype)` is the neutral element of a reduction with this operator, or None. `left_identity` and
    `right_identity` tell on which side it may be dropped. `left_annihilator` is a constant `z` such that
    `op(z, x)` is `left_result` for every finite `x` (an unstored zero stays zero even beside NaN or infinity,
    as in SciPy). `repeat` names the operator that reduces `m` copies of `g`, as `g repeat m` (idempotent ones keep `g`).
    `undoes` is (o, u) where `op(x, y)` is `o(x, u(y))`.

    `lanewise` names the kinds of NumPy types for which the operator works lane by lane of a vector, without a call of a scalar library
    function. `elementary` functions (exp, sin, ...) are far more work than anything else that is done in lanes. `cost` is that of one
    evaluation, in additions: what computing a value again is judged by.
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    _: KW_ONLY
    commutative: bool = False
    associative: bool = False
    idempotent: bool = False
    identity_of: Callable[[DType], Scalar] | None = None
    left_identity: bool = False
    right_identity: bool = False
    left_annihilator: Scalar | None = None
    right_annihilator: Scalar | None = None
    repeat: str | None = None
    undoes: tuple[str, str] | None = None
    body: Any = None
    lanewise: str = ""
    elementary: bool = False
    cost: float = 4.0

    def identity(self, dtype: DType) -> Scalar | None:
        """The neutral element as a NumPy scalar of `dtype`, or None when there is none."""
        value = None if self.identity_of is None else self.identity_of(dtype)
        return None if value is None else dtype.type(value)

    def repeats(self, dtype: DType) -> bool:
        """Whether copies of a value of `dtype` can be reduced at once."""
        if self.idempotent:
            return True
        if self.repeat is None or dtype.kind == "c":
            return False
        # as an exponent the number must be exact, and a power must not run over beside a zero
        return self.repeat != "power" or (dtype.kind in "iu" and dtype.itemsize == 8)


def lowest(dtype: DType) -> Scalar:
    """The smallest value of `dtype` (-inf for floats, False for bool): the identity of maximum. Complex numbers are ordered
    by real part, then by imaginary part."""
    if dtype.kind in "fc":
        return -np.inf if dtype.kind == "f" else complex(-np.inf, -np.inf)
    return False if dtype.kind == "b" else np.iinfo(dtype).min


def highest(dtype: DType) -> Scalar:
    """The largest value of `dtype` (inf for floats, True for bool): the identity of minimum."""
    if dtype.kind in "fc":
        return np.inf if dtype.kind == "f" else complex(np.inf, np.inf)
    return True if dtype.kind == "b" else np.iinfo(dtype).max


def _zero(dtype: DType) -> Scalar:
    return 0


def _one(dtype: DType) -> Scalar:
    return 1


def _all_ones(dtype: DType) -> Scalar:
    return True if dtype.kind == "b" else dtype.type(0) | ~dtype.type(0)


def _stored(x: Any) -> Any:
    return np.asarray(x) != 0


def _either(x: Any, y: Any) -> Any:
    x, y = np.broadcast_arrays(x, y)
    part = np.dtype(f"u{x.itemsize // (2 if x.dtype.kind == 'c' else 1)}")
    one, other = (np.atleast_1d(a).copy().view(part) for a in (x, y))
    return (one | other).view(x.dtype).reshape(x.shape)[()]


def _logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _erf(x: Any) -> Any:
    from scipy import special  # a third of the import of this package, if it came first

    return special.erf(x)


def _cast(x: Any) -> Any:
    return x


ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
"""Constants of threefry2x32."""


def _threefry(key: Any, counter: Any) -> Any:
    """The cipher threefry-2x32 of 20 rounds: 64 bits from a key and a counter of 64 bits, the first word being the high one.

    Source: Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", section 4.2; Random123's constants.
    """
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    key, counter = np.asarray(key, np.uint64), np.asarray(counter, np.uint64)
    k0, k1 = key >> half, key & low
    keys = (k0, k1, k0 ^ k1 ^ np.uint64(PARITY))
    x0, x1 = ((counter >> half) + k0) & low, (counter + k1) & low
    for group in range(5):
        for turn in ROTATIONS[group % 2]:
            x0 = (x0 + x1) & low
            x1 = ((x1 << np.uint64(turn)) & low | x1 >> np.uint64(32 - turn)) ^ x0
        x0 = (x0 + keys[(group + 1) % 3]) & low
        x1 = (x1 + keys[(group + 2) % 3] + np.uint64(group + 1)) & low
    return x0 << half | x1


_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_ROUNDINGS = ("floor", "ceil", "trunc", "rint")
_ELEMENTARY = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arctan"),
    *("sinh", "cosh", "tanh", "arcsinh", "arctanh", "logistic", "erf", "logaddexp"),
)
_OF_ONE = (
    *("negative", "positive", "absolute", "sign", "square", "sqrt", "cbrt", "reciprocal", "conjugate", "real", "imag"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"),
    *("logical_not", "invert", "isnan", "isinf", "isfinite", "signbit", *_ROUNDINGS),
)
"""Functions of NumPy's, of one argument."""


def _monoid(name: str, numpy: Callable[..., Any], identity_of: Callable[[DType], Scalar], **facts: Any) -> Operator:
    """An operator that commutes, associates and has an identity: what reductions may use."""
    return Operator(name, 2, numpy, commutative=True, associative=True, identity_of=identity_of, **facts)


def _table() -> dict[str, Operator]:
    either_side = {"left_identity": True, "right_identity": True}
    zero = {"left_annihilator": 0, "right_annihilator": 0}
    one = {"left_annihilator": 1, "right_annihilator": 1}
    ops = [
        _monoid("add", np.add, _zero, **either_side, repeat="multiply"),
        Operator("subtract", 2, np.subtract, identity_of=_zero, right_identity=True, undoes=("add", "negative")),
        _monoid("multiply", np.multiply, _one, **either_side, **zero, repeat="power"),
        Operator("divide", 2, np.divide, identity_of=_one, right_identity=True, left_annihilator=0),
        Operator("floor_divide", 2, np.floor_divide, left_annihilator=0),
        Operator("remainder", 2, np.remainder, left_annihilator=0),
        Operator("power", 2, np.power, identity_of=_one, right_identity=True),
        _monoid("maximum", np.maximum, lowest, **either_side, idempotent=True),
        _monoid("minimum", np.minimum, highest, **either_side, idempotent=True),
        _monoid("logical_and", np.logical_and, _one, **zero, idempotent=True),
        _monoid("logical_or", np.logical_or, _zero, **one, idempotent=True),
        _monoid("logical_xor", np.logical_xor, _zero),
        _monoid("bitwise_and", np.bitwise_and, _all_ones, **either_side, **zero, idempotent=True),
        _monoid("bitwise_or", np.bitwise_or, _zero, **either_side, idempotent=True),
        _monoid("bitwise_xor", np.bitwise_xor, _zero, **either_side),
        # either(x, 0.0) is x, bit by bit: sums of which one term at most is no zero, with the sign of zero that it has
        _monoid("either", _either, _zero, **either_side, idempotent=True),
        Operator("left_shift", 2, np.left_shift, identity_of=_zero, right_identity=True, left_annihilator=0),
        Operator("right_shift", 2, np.right_shift, identity_of=_zero, right_identity=True, left_annihilator=0),
        Operator("arctan2", 2, np.arctan2),
        Operator("hypot", 2, np.hypot),
        Operator("logaddexp", 2, np.logaddexp),
        Operator("nextafter", 2, np.nextafter),
        Operator("copysign", 2, np.copysign),
        # as maximum and minimum, but of a NaN and a number the number wins
        Operator("fmax", 2, np.fmax, commutative=True),
        Operator("fmin", 2, np.fmin, commutative=True),
        Operator("where", 3, np.where),
        # masked(c, x, z) is x where c holds; elsewhere there is no entry, and z is what is read there
        Operator("masked", 3, np.where),
        # stored(A[i]) tells whether the entry is stored, whatever its value (without formats: whether it is not zero)
        Operator("stored", 1, _stored),
        Operator("cast", 1, _cast),
        Operator("logistic", 1, _logistic),
        Operator("erf", 1, _erf),
        # threefry(key, counter): 64 random bits
        Operator("threefry", 2, _threefry),
        *(Operator(name, 2, getattr(np, name)) for name in _COMPARISONS),
        *(Operator(name, 1, getattr(np, name)) for name in _OF_ONE),
    ]
    return {op.name: _measured(op) for op in ops}


_REAL, _ANY = "biuf", "biufc"
_LANEWISE = {
    **dict.fromkeys(["add", "subtract", "multiply", "divide", "negative", "positive", "square"], _ANY),
    **dict.fromkeys(["maximum", "minimum", "fmax", "fmin", "where", "cast", "conjugate", "real", "imag"], _ANY),
    **dict.fromkeys(["logical_and", "logical_or", "logical_xor", "logical_not", "isfinite", "isinf", "isnan"], _ANY),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "either"], _ANY),
    **dict.fromkeys([*_COMPARISONS, *_ROUNDINGS, "threefry"], _ANY),
    **dict.fromkeys(["absolute", "sqrt", *_ELEMENTARY], _REAL),
}
CHEAP = 1.0
"""Additions that an operator may cost for its expression to be computed again instead of stored."""
_COST = {
    **dict.fromkeys(["add", "subtract", "multiply", "divide", "negative", "positive", "cast", "where", "square"], 1.0),
    **dict.fromkeys(["maximum", "minimum", "conjugate", "real", "imag", "absolute", "either", *_COMPARISONS], 1.0),
    **dict.fromkeys(["logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "signbit"], 1.0),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor", "invert"], 1.0),
    **dict.fromkeys(_ELEMENTARY, 20.0),
}


def _measured(op: Operator) -> Operator:
    """The operator with what it costs and for which kinds of values it works in lanes."""
    return replace(
        op,
        lanewise=_LANEWISE.get(op.name, ""),
        elementary=op.name in _ELEMENTARY,
        cost=_COST.get(op.name, op.cost),
    )


OPERATORS = _table()


def register(operator: Operator) -> Operator:
    """Add an operator whose name tells all about it; the one that is there already under that name, if any."""
    return OPERATORS.setdefault(operator.name, operator)


def get(name: str) -> Operator:
    """The operator called `name`.

    >>> get("add").identity(np.dtype("float64"))
    np.float64(0.0)
    """
    return OPERATORS[name]
