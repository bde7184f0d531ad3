"""Elementwise operations. All broadcast like NumPy (in the notation: nothing is materialised) and promote like NumPy 2.

A result that NumPy would give as float16 (square roots of int8 and such) is float32 here; operands of dtype float16 are refused.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval, scalar_aval
from sparsejax.core.primitive import Primitive, as_operand, asarray
from sparsejax.core.symbolic import SymbolicDim, hint
from sparsejax.core.trace import is_python_scalar
from sparsejax.errors import NEGATIVE_POWER
from sparsejax.jit.ir import cin, operators, simplify
from sparsejax.lax import typing_rules as rules

_UFUNCS = [op for op in operators.OPERATORS.values() if isinstance(op.numpy, np.ufunc)]
UNARY = [op.name for op in _UFUNCS if op.arity == 1]
BINARY = [op.name for op in _UFUNCS if op.arity == 2]

COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")

Signature = tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]


@functools.lru_cache(maxsize=4096)
def loop_dtypes(op: str, avals: tuple[Aval, ...]) -> Signature:
    """(compute dtypes of the arguments, dtype of the result) of the NumPy ufunc `op`; TypeError where it has no loop."""
    python = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
    weak = [a.weak_type for a in avals]
    if op in COMPARISONS and all(a.dtype.kind in "biu" for a in avals):
        # by value: a Python integer need not fit the dtype of what it is compared with
        weak = [w and _fits(a, avals) for a, w in zip(avals, weak, strict=True)]
    wanted = [
        python[a.dtype.kind] if w and not all(weak) and a.dtype.kind != "b" else a.dtype
        for a, w in zip(avals, weak, strict=True)
    ]
    ufunc: Any = operators.get(op).numpy
    resolved = ufunc.resolve_dtypes((*wanted, None))
    made = [np.dtype(np.float32) if d == np.float16 else d for d in resolved]
    for aval, dtype in zip(avals, made, strict=False):
        if aval.is_literal and aval.dtype.kind in "iu":
            check_fits(int(aval.fill_value), dtype)
    return tuple(made[:-1]), made[-1]


def _fits(number: Aval, others: tuple[Aval, ...]) -> bool:
    """Whether a Python integer is known to be a value of every dtype among `others`."""
    kinds = [np.iinfo(a.dtype if a.dtype.kind in "iu" else np.int64) for a in others if not a.weak_type]
    return number.is_literal and all(k.min <= int(number.fill_value) <= k.max for k in kinds)


def _ufunc_primitive(op: str) -> Primitive:
    def notation(*operands: rules.Operand, loops: Signature) -> cin.Definition:
        shape = rules.broadcast_shapes(*(rules.shape_of(o) for o in operands))
        indices = rules.index_vars(len(shape))
        args = [rules.cast(rules.aligned(o, indices, shape), d) for o, d in zip(operands, loops[0], strict=True)]
        value = _multiplied(args[0], simplify.simplify(args[1])) if op == "power" else None
        return cin.Definition(indices, None, value or cin.Call(op, tuple(args), loops[1]))

    def typing(*avals: Aval, loops: Signature) -> Aval:
        shape = rules.broadcast_shapes(*(a.shape for a in avals))
        return rules.infer(notation, avals, {"loops": loops}, shape, loops[1])

    def reference(*args: Any, loops: Signature) -> Any:
        cast = [np.asarray(a).astype(d) for a, d in zip(args, loops[0], strict=True)]
        return operators.get(op).numpy(*cast)

    static = (lambda position, value: position == 1 and value in EXPONENTS) if op == "power" else None
    return Primitive(
        op,
        typing=typing,
        reference=reference,
        notation=notation,
        describe=lambda loops: "",
        static=static,
        entrywise=True,
    )


EXPONENTS = (2, 3, 4, -1, 0.5)
"""Powers that are computed without a power function; other numbers are exponents at run time."""


def _multiplied(x: cin.Expr, exponent: cin.Expr) -> cin.Expr | None:
    """`x ** exponent` by multiplications, a reciprocal or a square root; None where that is not all there is to it.

    At most one and a half units in the last place from the true power.
    """
    if not isinstance(exponent, cin.Literal) or exponent.value not in EXPONENTS or x.dtype.kind not in "iufc":
        return None

    def call(op: str, *args: cin.Expr, dtype: Any = x.dtype) -> cin.Expr:
        return cin.Call(op, args, dtype)

    whole = exponent.value in (2, 3, 4)
    if (not whole and x.dtype.kind != "f") or (exponent.value == 4 and x.dtype.kind == "c"):
        return None
    if whole:
        square = call("multiply", x, x)
        return square if exponent.value == 2 else call("multiply", square, x if exponent.value == 3 else square)
    if exponent.value == -1:
        return call("divide", simplify.literal(1, x.dtype), x)
    return call("sqrt", x)


primitives = {op: _ufunc_primitive(op) for op in UNARY + BINARY}


def elementwise(op: str, *args: Any) -> Any:
    """The NumPy ufunc `op` on arrays, entry by entry.

    Shapes broadcast; dtypes promote as in NumPy 2. The result is sparse where `op` gives one constant for all entries that
    are not stored; that constant is its fill: `exp` of an array with fill 0 has fill 1. O(stored entries) then. Such constants are
    numbers, Python's (which promote weakly) and NumPy's scalars (which promote as arrays do); our own arrays of no dimensions are data.

    >>> import sparsejax as sj, numpy as np
    >>> elementwise("exp", sj.array(np.eye(3), format="csr")).fill_value
    np.float64(1.0)
    """
    values = [a if is_python_scalar(a) else as_operand(a, f"argument {k} of {op}") for k, a in enumerate(args)]
    if any(_is_long(v) for v in values):
        values = [_shortened(v, op, values) for v in values]
    loops = loop_dtypes(op, tuple([_promoted(v) for v in values]))
    for a, dtype in zip(args, loops[0], strict=False):
        if type(a) is SymbolicDim:
            check_fits(a, dtype)
    values = _numbers(args, values)
    if op == "power" and loops[0][1].kind == "i" and _is_negative(values[1]):
        if not any(type(n) is int and not n for v in values if not is_python_scalar(v) for n in v.shape):
            raise ValueError(NEGATIVE_POWER)
        values[1] = 1 if is_python_scalar(values[1]) else values[1]  # of no elements, any number is the exponent
    return primitives[op].bind(*values, loops=loops)


def check_fits(value: Any, dtype: np.dtype[Any]) -> None:
    """OverflowError for a Python integer that `dtype` cannot hold, and for such an extent: that others fit is guarded."""
    if type(value) not in (int, SymbolicDim) or dtype.kind not in "iu":
        return
    limits = np.iinfo(dtype)
    if not (value >= int(limits.min) and value <= int(limits.max)):
        raise OverflowError(f"Python integer {hint(value)} out of bounds for {dtype}")


def _numbers(args: Sequence[Any], values: list[Any]) -> list[Any]:
    """NumPy's scalars beside arrays as Python numbers: parts of the program, on which types may depend (`A > np.float64(5)` is as
    sparse as `A > 5`). For operations whose parameters tell the dtypes, since NumPy's scalars promote as arrays do.
    """
    known = [_is_numpy_scalar(a) for a in args]
    if not any(known) or all(k or is_python_scalar(v) or v.aval.weak_type for k, v in zip(known, values, strict=True)):
        return values
    return [a.item() if k else v for k, a, v in zip(known, args, values, strict=True)]


def _is_numpy_scalar(value: Any) -> bool:
    return isinstance(value, np.generic) or (type(value) is np.ndarray and not value.shape)


def _is_negative(exponent: Any) -> bool:
    """Whether it is plain that an exponent of integers is negative: of others, kernels find out (`emit`)."""
    return bool((exponent if is_python_scalar(exponent) else exponent.fill_value) < 0)


def _promoted(value: Any) -> Aval:
    """The type of an operand as far as promotion depends on it: of all small numbers, zero stands for the others."""
    if type(value) is Array:
        return value.aval
    if isinstance(value, bool | float | complex) and not isinstance(value, np.generic):
        value = type(value)(0)
    elif isinstance(value, int) and 0 <= value < 128:
        value = 0
    return aval_of(value)


def _is_long(value: Any) -> bool:
    return isinstance(value, int) and not -(2**63) <= value < 2**64


def _shortened(value: Any, op: str, others: list[Any]) -> Any:
    """An integer of more than 64 bits as a float, beside floats; integers compare with it as with an infinity."""
    if not _is_long(value):
        return value
    if any(not _is_long(v) and aval_of(v).dtype.kind in "fc" for v in others):
        return float(value)
    return math.copysign(math.inf, value) if op in COMPARISONS else value


def strong(value: Any) -> Any:
    """`value` without weak typing: what NumPy's functions return, unlike Python's operators on numbers."""
    if type(value) is Array:
        return value
    aval = aval_of(value)
    return cast_p.bind(value, dtype=aval.dtype) if aval.weak_type else asarray(value)


def aval_of(value: Any) -> Aval:
    """The type of an operand; a Python number is a literal."""
    if is_python_scalar(value):
        return _zero_aval(type(value).__name__, value) if value == 0 else scalar_aval(value, is_literal=True)
    aval: Aval = asarray(value, "the operand", keep=False).aval
    return aval


@functools.lru_cache(maxsize=64)
def _zero_aval(kind: str, value: Any) -> Aval:
    return scalar_aval(value, is_literal=True)


# ------------------------------------------------------------------------------------------------------------ cast


def _cast_notation(x: rules.Operand, dtype: np.dtype[Any]) -> cin.Definition:
    indices = rules.index_vars(len(rules.shape_of(x)))
    return cin.Definition(indices, None, rules.cast(rules.access(x, indices), dtype))


cast_p = Primitive(
    "cast",
    typing=lambda x, dtype: rules.infer(_cast_notation, (x,), {"dtype": dtype}, x.shape, dtype).strong(),
    reference=lambda x, dtype: np.asarray(x).astype(dtype),
    notation=_cast_notation,
    describe=lambda dtype: str(dtype),
    entrywise=True,
)


def convert_element_type(x: Any, dtype: Any) -> Any:
    """`x` with values of `dtype`, as NumPy's astype; the fill is converted too."""
    wanted = dtypes.canonical(dtype)
    aval = aval_of(x)
    return asarray(x) if aval.dtype == wanted and not aval.weak_type else cast_p.bind(x, dtype=wanted)


# ----------------------------------------------------------------------------------------------------------- where


def _where_notation(c: rules.Operand, x: rules.Operand, y: rules.Operand, dtype: np.dtype[Any]) -> cin.Definition:
    shape = rules.broadcast_shapes(*(rules.shape_of(o) for o in (c, x, y)))
    indices = rules.index_vars(len(shape))
    condition = rules.cast(rules.aligned(c, indices, shape), np.dtype(np.bool_))
    yes, no = (rules.cast(rules.aligned(o, indices, shape), dtype) for o in (x, y))
    return cin.Definition(indices, None, cin.Call("where", (condition, yes, no), dtype))


def _where_typing(c: Aval, x: Aval, y: Aval, dtype: np.dtype[Any]) -> Aval:
    shape = rules.broadcast_shapes(c.shape, x.shape, y.shape)
    return rules.infer(_where_notation, (c, x, y), {"dtype": dtype}, shape, dtype)


where_p = Primitive(
    "where",
    typing=_where_typing,
    reference=lambda c, x, y, dtype: np.asarray(np.where(np.asarray(c).astype(bool), x, y), dtype),
    notation=_where_notation,
    describe=lambda dtype: "",
)


def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` where `condition` holds, else `y`; all three broadcast."""
    pairs = [(a.dtype, a.weak_type) for a in (aval_of(x), aval_of(y))]
    operands = [v.item() if _is_numpy_scalar(v) else v for v in (condition, x, y)]
    return strong(where_p.bind(*operands, dtype=dtypes.result_type(*pairs)))


# ------------------------------------------------------------------------------------ logistic, erf, real, imaginary


def _unary_notation(x: rules.Operand, op: str, compute: np.dtype[Any], dtype: np.dtype[Any]) -> cin.Definition:
    indices = rules.index_vars(len(rules.shape_of(x)))
    return cin.Definition(indices, None, cin.Call(op, (rules.cast(rules.access(x, indices), compute),), dtype))


unary_p = Primitive(
    "apply",
    typing=lambda x, **params: rules.infer(_unary_notation, (x,), params, x.shape, params["dtype"]),
    reference=lambda x, op, compute, dtype: operators.get(op).numpy(np.asarray(x).astype(compute)).astype(dtype),
    notation=_unary_notation,
    describe=lambda op, compute, dtype: op,
)


def _part(op: str, x: Any) -> Any:
    dtype = aval_of(x).dtype
    if dtype.kind != "c" and op == "real":
        return strong(x)
    part = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
    return strong(unary_p.bind(x, op=op, compute=dtype, dtype=part))


def real(x: Any) -> Any:
    """The real part."""
    return _part("real", x)


def imag(x: Any) -> Any:
    """The imaginary part; zero for a real array."""
    return _part("imag", x)


def logistic(x: Any) -> Any:
    """`1 / (1 + exp(-x))` in floating point; fill 0 becomes fill 1/2."""
    dtype = aval_of(x).dtype
    compute = dtype if dtype.kind in "fc" else np.dtype(np.float64)
    return strong(unary_p.bind(x, op="logistic", compute=compute, dtype=compute))


def erf(x: Any) -> Any:
    """The error function 2 / sqrt(pi) * integral of exp(-t^2) for t from 0 to x, of real numbers; fill 0 stays.

    >>> import sparsejax as sj, numpy as np
    >>> erf(sj.array(np.array([0.0, 0.5]))).todense()
    array([0.        , 0.52049988])
    """
    dtype = aval_of(x).dtype
    if dtype.kind == "c":
        raise TypeError(
            f"erf of complex numbers is not supported: the argument has dtype {dtype}; take erf of its real part"
        )
    compute = dtype if dtype.kind == "f" else np.dtype(np.float64)
    return strong(unary_p.bind(x, op="erf", compute=compute, dtype=compute))
