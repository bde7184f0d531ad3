"""Scalar operators as machine code: one function per operator family, for every dtype, one lane or many.

A `Num` is a NumPy-typed value: one machine value, or two (real, imaginary) for a complex number. Booleans are `i1` in
registers and bytes in memory. Integer division by zero gives zero, as in NumPy, and never traps. Elementary functions are
polynomials (`vector_math`), rarer ones call libm, complex ones C99's complex functions.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsejax.jit.backend.builder import NEGATIVE_EXPONENT, Builder, Val
from sparsejax.jit.backend.types import lanes_of, vector_of
from sparsejax.jit.codegen import complex_parts
from sparsejax.jit.codegen.complex_parts import fabs as _fabs
from sparsejax.jit.codegen.complex_parts import intrinsic as _intrinsic
from sparsejax.jit.codegen.complex_parts import libm as _libm
from sparsejax.jit.codegen.complex_parts import like as _like
from sparsejax.jit.codegen.complex_parts import like_bool as _like_bool
from sparsejax.jit.codegen.vector_math import functions as vector_math
from sparsejax.jit.ir import cin, operators, scalar_functions

DType = np.dtype[Any]
BOOL: DType = np.dtype(np.bool_)


class Num(NamedTuple):
    """A value of a NumPy dtype; `parts` holds one machine value, or real and imaginary part."""

    dtype: DType
    parts: tuple[Val, ...]

    @property
    def val(self) -> Val:
        return self.parts[0]

    @property
    def kind(self) -> str:
        return self.dtype.kind


def machine_type(dtype: DType) -> str:
    """The register type of one part of `dtype`."""
    if dtype.kind == "b":
        return "i1"
    if dtype.kind in "iu":
        return f"i{8 * dtype.itemsize}"
    return {4: "float", 8: "double"}[part_dtype(dtype).itemsize]


def memory_type(dtype: DType) -> str:
    """The type of one part of `dtype` in memory: booleans are bytes."""
    return "i8" if dtype.kind == "b" else machine_type(dtype)


def part_dtype(dtype: DType) -> DType:
    """The real dtype of one part."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def constant(b: Builder, value: Any, dtype: DType) -> Num:
    """A literal."""
    type = machine_type(dtype)
    if dtype.kind == "c":
        number = complex(value)
        return Num(dtype, (b.const(type, number.real), b.const(type, number.imag)))
    number = float(value) if dtype.kind == "f" else int(value)
    return Num(dtype, (b.const(type, number),))


def load(b: Builder, pointer: Val, position: Val, dtype: DType, lanes: int = 1, name: str = "x") -> Num:
    """`lanes` consecutive values at `pointer[position]`."""
    type = memory_type(dtype)
    if dtype.kind == "c":
        return Num(dtype, complex_parts.load(b, pointer, position, type, lanes, name))
    value = b.load(pointer, position, vector_of(type, lanes), name)
    return Num(dtype, (b.compare("ne", value, _like(b, value, 0)),)) if dtype.kind == "b" else Num(dtype, (value,))


def gather(b: Builder, pointer: Val, positions: Val, dtype: DType, name: str = "x") -> Num:
    """The values at `pointer[positions]`, a vector of positions; of a real type of four or eight bytes."""
    return Num(dtype, (b.gather(pointer, positions, vector_of(memory_type(dtype), lanes_of(positions.type)), name),))


def scatter(b: Builder, pointer: Val, positions: Val, value: Num) -> None:
    """Write `value` at `pointer[positions]`; of a real type of four or eight bytes."""
    b.scatter(pointer, positions, value.val)


def store(b: Builder, pointer: Val, position: Val, value: Num) -> None:
    """Write `value` at `pointer[position]`."""
    if value.kind == "c":
        complex_parts.store(b, pointer, position, (value.parts[0], value.parts[1]))
        return
    bytes_ = vector_of("i8", lanes_of(value.val.type))
    b.store(pointer, position, b.convert("zext", value.val, bytes_) if value.kind == "b" else value.val)


def lanes(b: Builder, values: Sequence[Num]) -> Num:
    """Numbers as the lanes of one."""
    made = list(splat(b, values[0], len(values)).parts)
    for lane, value in enumerate(values[1:], 1):
        made = [b.insert(part, lane, new) for part, new in zip(made, value.parts, strict=True)]
    return Num(values[0].dtype, tuple(made))


def splat(b: Builder, value: Num, lanes: int) -> Num:
    """`value` in every lane."""
    return value if lanes == 1 else Num(value.dtype, tuple(b.splat(p, lanes) for p in value.parts))


def choose(b: Builder, condition: Val, yes: Num, no: Num) -> Num:
    """`yes` in the lanes where `condition` holds, else `no`."""
    return Num(yes.dtype, tuple(b.select(condition, p, q) for p, q in zip(yes.parts, no.parts, strict=True)))


def cast(b: Builder, x: Num, dtype: DType) -> Num:
    """`x` converted as NumPy's astype does."""
    if x.dtype == dtype:
        return x
    if dtype.kind == "b":
        return truth(b, x)
    part = part_dtype(dtype)
    if dtype.kind == "c":
        real = _cast_real(b, Num(part_dtype(x.dtype), (x.val,)), part)
        imag = (
            _cast_real(b, Num(part_dtype(x.dtype), (x.parts[1],)), part).val if x.kind == "c" else _like(b, real.val, 0)
        )
        return Num(dtype, (real.val, imag))
    return _cast_real(b, Num(part_dtype(x.dtype), (x.val,)), dtype)


def _cast_real(b: Builder, x: Num, dtype: DType) -> Num:
    type = vector_of(machine_type(dtype), lanes_of(x.val.type))
    if x.dtype == dtype:
        return x
    source, target = x.kind, dtype.kind
    if source in "bui" and target in "ui":
        wider = 8 * dtype.itemsize > (1 if source == "b" else 8 * x.dtype.itemsize)
        op = ("sext" if source == "i" else "zext") if wider else "trunc"
        same = machine_type(dtype) == machine_type(x.dtype)
        return Num(dtype, (x.val if same else b.convert(op, x.val, type),))
    if source in "bui":
        return Num(dtype, (b.convert("sitofp" if source == "i" else "uitofp", x.val, type),))
    if target == "f":
        return Num(dtype, (b.convert("fpext" if dtype.itemsize > x.dtype.itemsize else "fptrunc", x.val, type),))
    if target == "u" and dtype.itemsize == 8:
        # negative values wrap as NumPy's do on this hardware: through the signed conversion
        wide = vector_of("i64", lanes_of(x.val.type))
        below = b.compare("olt", x.val, _like(b, x.val, 2.0**63))
        signed = b.convert("fptosi", x.val, wide)
        return Num(dtype, (b.select(below, signed, b.convert("fptoui", x.val, wide)),))
    wide = vector_of("i64", lanes_of(x.val.type))
    return Num(dtype, (b.convert("trunc", b.convert("fptosi", x.val, wide), type),))


def truth(b: Builder, x: Num) -> Num:
    """`x != 0`, part by part; NaN is true."""
    if x.kind == "b":
        return x
    tests = [b.compare("une" if x.kind in "fc" else "ne", p, _like(b, p, 0)) for p in x.parts]
    return Num(BOOL, (tests[0] if len(tests) == 1 else b.binary("or", *tests),))


def apply(b: Builder, op: str, args: list[Num], dtype: DType) -> Num:
    """The operator `op` of `operators` on `args`, which have its compute dtype; the result has `dtype`."""
    if op == "cast":
        return cast(b, args[0], dtype)
    family = _FAMILIES.get(op)
    result = _defined(b, operators.get(op).body, args) if family is None else family(b, op, args)
    return cast(b, result, dtype)


def _defined(b: Builder, body: cin.Expr, args: list[Num]) -> Num:
    """The body of an operator that is defined by others, in place."""
    match body:
        case cin.Access(tensor, _):
            return args[scalar_functions.PARAMETERS.index(tensor.name)]
        case cin.Literal(value, dtype):
            return splat(b, constant(b, value, dtype), lanes_of(args[0].val.type))
        case cin.Call(op, inner, dtype):
            return apply(b, op, [_defined(b, a, args) for a in inner], dtype)


# ---------------------------------------------------------------------------------------------------- arithmetic


_INT = {"add": "add", "subtract": "sub", "multiply": "mul"}
_FLOAT = {"add": "fadd", "subtract": "fsub", "multiply": "fmul", "divide": "fdiv"}
_BOOL = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and", "subtract": "xor"}


def _arithmetic(b: Builder, op: str, args: list[Num]) -> Num:
    x, y = args
    if x.kind == "b":
        return Num(x.dtype, (b.binary(_BOOL[op], x.val, y.val),))
    if x.kind in "iu":
        return Num(x.dtype, (b.binary(_INT[op], x.val, y.val),))
    if x.kind == "f":
        return Num(x.dtype, (b.binary(_FLOAT[op], x.val, y.val),))
    return _complex_arithmetic(b, op, x, y)


def _complex_arithmetic(b: Builder, op: str, x: Num, y: Num) -> Num:
    (xr, xi), (yr, yi) = x.parts, y.parts

    def mul(p: Val, q: Val) -> Val:
        return b.binary("fmul", p, q)

    if op in ("add", "subtract"):
        return Num(x.dtype, (b.binary(_FLOAT[op], xr, yr), b.binary(_FLOAT[op], xi, yi)))
    if op == "multiply":
        real = b.binary("fsub", mul(xr, yr), mul(xi, yi))
        return Num(x.dtype, (real, b.binary("fadd", mul(xr, yi), mul(xi, yr))))
    return Num(x.dtype, complex_parts.divide(b, (xr, xi), (yr, yi)))


def _negative(b: Builder, op: str, args: list[Num]) -> Num:
    x = args[0]
    if x.kind in "iu":
        return Num(x.dtype, (b.binary("sub", _like(b, x.val, 0), x.val),))
    return Num(x.dtype, tuple(b.binary("fsub", _like(b, p, -0.0), p) for p in x.parts))


def _positive(b: Builder, op: str, args: list[Num]) -> Num:
    return args[0]


def _square(b: Builder, op: str, args: list[Num]) -> Num:
    return _arithmetic(b, "multiply", [args[0], args[0]])


def _reciprocal(b: Builder, op: str, args: list[Num]) -> Num:
    if args[0].kind == "c":
        return Num(args[0].dtype, complex_parts.reciprocal(b, (args[0].parts[0], args[0].parts[1])))
    one = cast(b, Num(BOOL, (_like_bool(b, args[0].val, True),)), args[0].dtype)
    if args[0].kind in "iu":
        return _int_divide(b, one, args[0], floor=False)[0]
    return _arithmetic(b, "divide", [one, args[0]])


def _int_divide(b: Builder, x: Num, y: Num, floor: bool) -> tuple[Num, Num]:
    """Quotient and remainder; zero where the divisor is zero, and no trap at `min / -1`."""
    zero, one = _like(b, x.val, 0), _like(b, x.val, 1)
    by_zero = b.compare("eq", y.val, zero)
    if x.kind == "u":
        safe = b.select(by_zero, one, y.val)
        quotient, rest = b.binary("udiv", x.val, safe), b.binary("urem", x.val, safe)
    else:
        negated = b.compare("eq", y.val, _like(b, y.val, -1))
        safe = b.select(b.binary("or", by_zero, negated), one, y.val)
        quotient, rest = b.binary("sdiv", x.val, safe), b.binary("srem", x.val, safe)
        if floor:
            opposite = b.compare("slt", b.binary("xor", rest, safe), zero)
            fix = b.binary("and", b.compare("ne", rest, zero), opposite)
            quotient = b.select(fix, b.binary("sub", quotient, one), quotient)
            rest = b.select(fix, b.binary("add", rest, safe), rest)
        quotient = b.select(negated, b.binary("sub", zero, x.val), quotient)
        rest = b.select(negated, zero, rest)
    return Num(x.dtype, (b.select(by_zero, zero, quotient),)), Num(x.dtype, (b.select(by_zero, zero, rest),))


def _floor_divide(b: Builder, op: str, args: list[Num]) -> Num:
    x, y = args
    if x.kind in "iu":
        return _int_divide(b, x, y, floor=True)[0 if op == "floor_divide" else 1]
    zero = _like(b, x.val, 0)
    rest = b.binary(
        "frem", x.val, y.val
    )  # LLVM takes `fmod` of an integer and NaN for one that is no NaN, as neither is an infinity
    opposite = b.binary("xor", b.compare("olt", y.val, zero), b.compare("olt", rest, zero))
    exact = b.compare("oeq", rest, zero)
    fix = b.binary("and", b.compare("une", rest, zero), opposite)
    if op == "remainder":
        moved = b.select(fix, b.binary("fadd", rest, y.val), rest)
        return Num(x.dtype, (b.select(exact, _intrinsic(b, "copysign", [zero, y.val]), moved),))
    plain = b.binary("fdiv", x.val, y.val)
    quotient = b.binary("fdiv", b.binary("fsub", x.val, rest), y.val)
    quotient = b.select(fix, b.binary("fsub", quotient, _like(b, x.val, 1)), quotient)
    floored = _intrinsic(b, "floor", [quotient])
    slack = b.compare("ogt", b.binary("fsub", quotient, floored), _like(b, x.val, 0.5))
    floored = b.select(slack, b.binary("fadd", floored, _like(b, x.val, 1)), floored)
    is_zero = b.compare("oeq", quotient, zero)
    floored = b.select(is_zero, _intrinsic(b, "copysign", [zero, plain]), floored)
    return Num(x.dtype, (b.select(b.compare("oeq", y.val, zero), plain, floored),))


def _power(b: Builder, op: str, args: list[Num]) -> Num:
    x, y = args
    if x.kind == "f":
        return Num(x.dtype, (_libm(b, "pow", [x.val, y.val]),))
    if x.kind == "c":
        plain = _complex_call(b, "cpow", [x, y])
        pairs = [(z.parts[0], z.parts[1]) for z in (x, y, plain)]
        return Num(x.dtype, complex_parts.power(b, pairs[0], pairs[1], pairs[2]))
    if y.kind == "i":
        with b.if_(b.lt(y.val, 0)):
            b.fail(NEGATIVE_EXPONENT)
    # square and multiply
    result, base, rest = b.var("power", _like(b, x.val, 1)), b.var("base", x.val), b.var("exponent", y.val)
    with b.while_(lambda: b.ne(b.get(rest), 0)):
        odd = b.ne(b.binary("and", b.get(rest), _like(b, y.val, 1)), 0)
        b.set(result, b.select(odd, b.binary("mul", b.get(result), b.get(base)), b.get(result)))
        b.set(base, b.binary("mul", b.get(base), b.get(base)))
        b.set(rest, b.binary("lshr", b.get(rest), _like(b, y.val, 1)))
    return Num(x.dtype, (b.get(result),))


# ------------------------------------------------------------------------------------------ comparison and logic

_TESTS = {"equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"}


def _test(b: Builder, test: str, kind: str, x: Val, y: Val) -> Val:
    if kind == "f":
        return b.compare("une" if test == "ne" else f"o{test}", x, y)
    return b.compare(test if test in ("eq", "ne") else f"{'s' if kind == 'i' else 'u'}{test}", x, y)


def _mixed_test(b: Builder, test: str, x: Num, y: Num) -> Val:
    """A signed against an unsigned integer of 64 bits: a negative number is smaller than any other."""
    if x.kind == "u":
        turned = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(test, test)
        return _mixed_test(b, turned, y, x)
    negative = b.compare("slt", x.val, _like(b, x.val, 0))
    settled = _like_bool(b, x.val, test in ("ne", "lt", "le"))
    return b.select(negative, settled, _test(b, test, "u", x.val, y.val))


def _comparison(b: Builder, op: str, args: list[Num]) -> Num:
    x, y = args
    test = _TESTS[op]
    if x.kind + y.kind in ("iu", "ui"):
        return Num(BOOL, (_mixed_test(b, test, x, y),))
    if x.kind != "c":
        return Num(BOOL, (_test(b, test, x.kind, x.val, y.val),))
    if test in ("eq", "ne"):
        tests = (_test(b, test, "f", p, q) for p, q in zip(x.parts, y.parts, strict=True))
        return Num(BOOL, (b.binary("and" if test == "eq" else "or", *tests),))
    return Num(BOOL, (complex_parts.ordered(b, test, (x.parts[0], x.parts[1]), (y.parts[0], y.parts[1])),))


_LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}


def _logic(b: Builder, op: str, args: list[Num]) -> Num:
    tests = [truth(b, a).val for a in args]
    return Num(BOOL, (b.binary(_LOGIC[op], *tests),))


def _logical_not(b: Builder, op: str, args: list[Num]) -> Num:
    test = truth(b, args[0]).val
    return Num(BOOL, (b.binary("xor", test, _like_bool(b, test, True)),))


def _bitwise(b: Builder, op: str, args: list[Num]) -> Num:
    return Num(args[0].dtype, (b.binary(op.removeprefix("bitwise_"), args[0].val, args[1].val),))


def _either(b: Builder, op: str, args: list[Num]) -> Num:
    x, y = args
    return Num(x.dtype, tuple(map(functools.partial(complex_parts.united, b), x.parts, y.parts)))


def _invert(b: Builder, op: str, args: list[Num]) -> Num:
    x = args[0]
    ones = _like_bool(b, x.val, True) if x.kind == "b" else _like(b, x.val, -1)
    return Num(x.dtype, (b.binary("xor", x.val, ones),))


def _shift(b: Builder, op: str, args: list[Num]) -> Num:
    x, y = args
    bits = 8 * x.dtype.itemsize
    inside = b.compare("ult", y.val, _like(b, y.val, bits))
    if op == "left_shift":
        count = b.select(inside, y.val, _like(b, y.val, 0))
        return Num(x.dtype, (b.select(inside, b.binary("shl", x.val, count), _like(b, x.val, 0)),))
    if x.kind == "i":
        return Num(x.dtype, (b.binary("ashr", x.val, b.select(inside, y.val, _like(b, y.val, bits - 1))),))
    count = b.select(inside, y.val, _like(b, y.val, 0))
    return Num(x.dtype, (b.select(inside, b.binary("lshr", x.val, count), _like(b, x.val, 0)),))


def _extremum(b: Builder, op: str, args: list[Num]) -> Num:
    (x, y), plain = args, {"fmax": "maximum", "fmin": "minimum"}.get(op, op)
    if x.kind == "b":
        return _arithmetic(b, plain, args)
    if x.kind == "c":
        wins = _comparison(b, "greater_equal" if plain == "maximum" else "less_equal", args).val
        wins = b.binary("or", wins, _classify(b, "isnan", [x if op == plain else y]).val)
        return choose(b, wins, x, y)
    better = _test(b, "gt" if plain == "maximum" else "lt", x.kind, y.val, x.val)
    made = b.select(better, y.val, x.val)
    # a NaN on either side wins (where this is a running extremum, that of y is known early), or loses
    if x.kind == "f":
        last = y.val if op == plain else x.val
        made = b.select(b.compare("uno", last, last), y.val, made)
    return Num(x.dtype, (made,))


def _sign_bit(b: Builder, op: str, args: list[Num]) -> Num:
    if op == "copysign":
        return Num(args[0].dtype, (_intrinsic(b, op, [args[0].val, args[1].val]),))
    signed = _intrinsic(b, "copysign", [_like(b, args[0].val, 1), args[0].val])
    return Num(BOOL, (b.compare("olt", signed, _like(b, signed, 0)),))


def _where(b: Builder, op: str, args: list[Num]) -> Num:
    condition, x, y = args
    return choose(b, truth(b, condition).val, x, y)


def _classify(b: Builder, op: str, args: list[Num]) -> Num:
    x = args[0]
    if x.kind not in "fc":
        return Num(BOOL, (_like_bool(b, x.val, op == "isfinite"),))
    tests = []
    for p in x.parts:
        if op == "isnan":
            tests.append(b.compare("uno", p, p))
        else:
            tests.append(b.compare("oeq" if op == "isinf" else "olt", _fabs(b, p), _like(b, p, math.inf)))
    if len(tests) == 1:
        return Num(BOOL, (tests[0],))
    return Num(BOOL, (b.binary("and" if op == "isfinite" else "or", *tests),))


def _sign(b: Builder, op: str, args: list[Num]) -> Num:
    x = args[0]
    if x.kind == "c":
        return Num(x.dtype, complex_parts.sign(b, (x.parts[0], x.parts[1]), _complex_abs(b, x)))
    zero, one = _like(b, x.val, 0), _like(b, x.val, 1)
    positive = _test(b, "gt", x.kind, x.val, zero)
    if x.kind == "u":
        return Num(x.dtype, (b.select(positive, one, zero),))
    negative = _test(b, "lt", x.kind, x.val, zero)
    # a NaN is neither: it stays itself; a negative zero becomes a positive one
    rest = b.binary("fadd", x.val, zero) if x.kind == "f" else x.val
    return Num(x.dtype, (b.select(positive, one, b.select(negative, _like(b, x.val, -1), rest)),))


def _absolute(b: Builder, op: str, args: list[Num]) -> Num:
    x = args[0]
    if x.kind == "f":
        return Num(x.dtype, (_fabs(b, x.val),))
    if x.kind == "c":
        return Num(part_dtype(x.dtype), (_complex_abs(b, x),))
    if x.kind in "bu":
        return x
    zero = _like(b, x.val, 0)
    return Num(x.dtype, (b.select(b.compare("slt", x.val, zero), b.binary("sub", zero, x.val), x.val),))


# ------------------------------------------------------------------------------------------- functions and parts

_LIBM = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "cbrt": "cbrt",
    "arctan2": "atan2", "hypot": "hypot", "nextafter": "nextafter",
}  # fmt: skip


def _complex_abs(b: Builder, x: Num) -> Val:
    return _libm(b, "hypot", list(x.parts))


def _complex_call(b: Builder, name: str, args: list[Num]) -> Num:
    """A C99 complex function, computed in complex128; numbers go there and come back in registers, but not on Windows."""
    if sys.platform == "win32":
        raise NotImplementedError(
            f"functions of complex numbers ({name[1:]}) cannot be compiled on Windows, whose C library has others; "
            "compute with real and imaginary parts, or outside with NumPy"
        )
    wide = [p for a in args for p in cast(b, a, np.dtype(np.complex128)).parts]
    pair = b.call(name, "{ double, double }", wide)
    result = Num(np.dtype(np.complex128), (b.member(pair, 0, "double"), b.member(pair, 1, "double")))
    return cast(b, result, args[0].dtype)


def _function(b: Builder, op: str, args: list[Num]) -> Num:
    x = args[0]
    if x.kind == "f" and op in vector_math.FUNCTIONS:
        return Num(x.dtype, (vector_math.call(b, op, x.val),))
    if x.kind == "f":
        return Num(x.dtype, (_libm(b, _LIBM[op], [a.val for a in args]),))
    if op in ("exp2", "log2", "log10"):
        scale = b.const(machine_type(x.dtype), math.log(10 if op == "log10" else 2))
        if op == "exp2":
            scaled = Num(x.dtype, tuple(b.binary("fmul", p, scale) for p in x.parts))
            return _complex_call(b, "cexp", [scaled])
        made = _complex_call(b, "clog", [x])
        return Num(x.dtype, tuple(b.binary("fdiv", p, scale) for p in made.parts))
    if op == "expm1":
        return _complex_expm1(b, x)
    if op == "log1p":
        more = b.binary("fadd", x.val, _like(b, x.val, 1))
        return _complex_call(b, "clog", [Num(x.dtype, (more, x.parts[1]))])
    return _complex_call(b, "c" + _LIBM[op], [x])


def _complex_expm1(b: Builder, x: Num) -> Num:
    """exp(r + i t) - 1 = expm1(r) cos(t) - 2 sin(t/2)^2 + i exp(r) sin(t), without the cancellation near zero; of infinities and NaN
    C's exp less one, as the array API asks, where NumPy has NaN."""
    real, turn = (Num(part_dtype(x.dtype), (p,)) for p in x.parts)

    def call(op: str, of: Num) -> Val:
        return _function(b, op, [of]).val

    half = call("sin", Num(turn.dtype, (b.binary("fmul", turn.val, _like(b, turn.val, 0.5)),)))
    lost = b.binary("fmul", b.binary("fmul", half, half), _like(b, half, 2))
    kept = b.binary("fmul", call("expm1", real), call("cos", turn))
    zero, one = _like(b, half, 0), _like(b, half, 1)
    first = b.binary("fadd", b.binary("fsub", kept, lost), zero)  # a zero without a sign
    second = b.binary("fmul", call("exp", real), call("sin", turn))
    finite = b.binary("and", *(b.compare("oeq", b.binary("fsub", p, p), zero) for p in x.parts))
    ends = _complex_call(b, "cexp", [x]).parts
    return Num(x.dtype, (b.select(finite, first, b.binary("fsub", ends[0], one)), b.select(finite, second, ends[1])))


def _sqrt(b: Builder, op: str, args: list[Num]) -> Num:
    x = args[0]
    return _complex_call(b, "csqrt", [x]) if x.kind == "c" else Num(x.dtype, (_intrinsic(b, "sqrt", [x.val]),))


def _round(b: Builder, op: str, args: list[Num]) -> Num:
    x = args[0]
    if x.kind not in "fc":
        return x
    return Num(x.dtype, tuple(_intrinsic(b, op, [p]) for p in x.parts))


def _logistic(b: Builder, op: str, args: list[Num]) -> Num:
    x = args[0]
    if x.kind == "f":
        return _function(b, op, args)
    one = constant(b, 1, x.dtype)
    grown = _function(b, "exp", [_negative(b, "negative", [x])])
    return _arithmetic(b, "divide", [one, _arithmetic(b, "add", [one, grown])])


def _logaddexp(b: Builder, op: str, args: list[Num]) -> Num:
    """max(x, y) + log1p(exp(-abs(x - y))); equal infinities have no difference, but NaN, as NaN has."""
    x, y = args
    gap = _arithmetic(b, "subtract", args)
    small = _function(b, "exp", [_negative(b, "negative", [_absolute(b, "absolute", [gap])])])
    made = _arithmetic(b, "add", [_extremum(b, "maximum", args), _function(b, "log1p", [small])])
    plain = b.binary("fadd", x.val, y.val)
    return Num(x.dtype, (b.select(b.compare("uno", gap.val, gap.val), plain, made.val),))


def _threefry(b: Builder, op: str, args: list[Num]) -> Num:
    return Num(args[0].dtype, (complex_parts.threefry(b, args[0].val, args[1].val),))


def _part(b: Builder, op: str, args: list[Num]) -> Num:
    x = args[0]
    if x.kind != "c":
        return x if op != "imag" else Num(x.dtype, (_like(b, x.val, 0),))
    if op == "conjugate":
        return Num(x.dtype, (x.val, b.binary("fsub", _like(b, x.val, -0.0), x.parts[1])))
    return Num(part_dtype(x.dtype), (x.parts[0 if op == "real" else 1],))


_FAMILIES: dict[str, Callable[[Builder, str, list[Num]], Num]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide"), _arithmetic),
    **dict.fromkeys(("floor_divide", "remainder"), _floor_divide),
    **dict.fromkeys(_TESTS, _comparison),
    **dict.fromkeys(_LOGIC, _logic),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), _bitwise),
    "either": _either,
    **dict.fromkeys(("left_shift", "right_shift"), _shift),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin"), _extremum),
    **dict.fromkeys(("copysign", "signbit"), _sign_bit),
    **dict.fromkeys(("isnan", "isinf", "isfinite"), _classify),
    **dict.fromkeys((*_LIBM, "erf"), _function),
    **dict.fromkeys(("floor", "ceil", "trunc", "rint"), _round),
    **dict.fromkeys(("conjugate", "real", "imag"), _part),
    "negative": _negative,
    "positive": _positive,
    "square": _square,
    "reciprocal": _reciprocal,
    "power": _power,
    "logical_not": _logical_not,
    "invert": _invert,
    **dict.fromkeys(("where", "masked"), _where),
    "sign": _sign,
    "absolute": _absolute,
    "sqrt": _sqrt,
    "logistic": _logistic,
    "logaddexp": _logaddexp,
    "threefry": _threefry,
}
