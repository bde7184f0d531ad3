"""Machine values, and complex arithmetic on pairs of them (real part, imaginary part), as NumPy's loops have it."""

from __future__ import annotations

import math

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.backend.types import lanes_of, scalar_of, vector_of
from sparsejax.jit.ir import operators

Pair = tuple[Val, Val]


def like(b: Builder, like: Val, value: float) -> Val:
    """The constant `value` in the type of `like`."""
    scalar = scalar_of(like.type)
    one = b.const(scalar, value if scalar in ("float", "double") else int(value))
    lanes = lanes_of(like.type)
    return one if lanes == 1 else b.splat(one, lanes)


def like_bool(b: Builder, like: Val, value: bool) -> Val:
    """A truth value in as many lanes as `like`."""
    one = b.const("i1", value)
    lanes = lanes_of(like.type)
    return one if lanes == 1 else b.splat(one, lanes)


def libm(b: Builder, name: str, args: list[Val]) -> Val:
    """A function of the C library."""
    type = args[0].type
    return b.call(name + ("f" if type == "float" else ""), type, args)


def intrinsic(b: Builder, name: str, args: list[Val]) -> Val:
    """An intrinsic of LLVM, in every lane."""
    type = args[0].type
    lanes, size = lanes_of(type), {"float": "f32", "double": "f64"}[scalar_of(type)]
    return b.call(f"llvm.{name}.{size if lanes == 1 else f'v{lanes}{size}'}", type, args)


def fabs(b: Builder, x: Val) -> Val:
    return intrinsic(b, "fabs", [x])


def load(b: Builder, pointer: Val, position: Val, type: str, lanes: int, name: str) -> Pair:
    """`lanes` complex numbers from `pointer[position]`: in memory, real and imaginary parts alternate."""
    first = b.mul(position, 2)
    if lanes == 1:
        return b.load(pointer, first, type, name), b.load(pointer, b.add(first, 1), type, name)
    both = b.load(pointer, first, vector_of(type, 2 * lanes), name)
    return b.shuffle(both, both, range(0, 2 * lanes, 2)), b.shuffle(both, both, range(1, 2 * lanes, 2))


def store(b: Builder, pointer: Val, position: Val, value: Pair) -> None:
    """Write complex numbers at `pointer[position]` and on."""
    first, lanes = b.mul(position, 2), lanes_of(value[0].type)
    if lanes == 1:
        b.store(pointer, first, value[0])
        b.store(pointer, b.add(first, 1), value[1])
        return
    b.store(pointer, first, b.shuffle(*value, [lane + part * lanes for lane in range(lanes) for part in (0, 1)]))


def divide(b: Builder, x: Pair, y: Pair) -> Pair:
    """Smith's division: scale by the larger part of the divisor, so that nothing overflows early."""
    (xr, xi), (yr, yi) = x, y
    big = b.compare("oge", fabs(b, yr), fabs(b, yi))
    p, q = b.select(big, yr, yi), b.select(big, yi, yr)
    zero = b.compare("oeq", p, like(b, p, 0))
    ratio = b.select(zero, like(b, p, 0), b.binary("fdiv", q, p))
    scale = b.select(zero, fabs(b, p), b.binary("fadd", p, b.binary("fmul", q, ratio)))
    u, v = b.select(big, xr, xi), b.select(big, xi, xr)
    real = b.binary("fdiv", b.binary("fadd", u, b.binary("fmul", v, ratio)), scale)
    scaled = b.binary("fmul", u, ratio)
    cross = b.select(big, b.binary("fsub", v, scaled), b.binary("fsub", scaled, v))
    return real, b.binary("fdiv", cross, scale)


def reciprocal(b: Builder, x: Pair) -> Pair:
    """Smith's division of 1; at 0 it has no value."""
    re, im = x
    one, minus = like(b, re, 1), like(b, re, -1)
    big = b.compare("ole", fabs(b, im), fabs(b, re))
    p, q = b.select(big, re, im), b.select(big, im, re)
    ratio = b.binary("fdiv", q, p)
    scale = b.binary("fadd", p, b.binary("fmul", q, ratio))
    real, imag = b.select(big, one, ratio), b.select(big, b.binary("fmul", ratio, minus), minus)
    return b.binary("fdiv", real, scale), b.binary("fdiv", imag, scale)


def sign(b: Builder, x: Pair, size: Val) -> Pair:
    """`x / size` for the absolute value `size`: 0 at zeros of any sign; 1 or -1 for an infinite part, and nothing for two of them."""
    zero, one, infinite = (like(b, size, v) for v in (0, 1, math.inf))
    nothing = b.compare("oeq", size, zero)
    endless, undefined = b.compare("oeq", size, infinite), b.compare("uno", size, size)
    ends = [b.compare("oeq", fabs(b, p), infinite) for p in x]
    both = b.binary("and", *ends)

    def part(p: Val, end: Val) -> Val:
        limit = b.select(end, intrinsic(b, "copysign", [one, p]), zero)
        limit = b.select(both, like(b, size, math.nan), limit)
        return b.select(undefined, size, b.select(nothing, zero, b.select(endless, limit, b.binary("fdiv", p, size))))

    return part(x[0], ends[0]), part(x[1], ends[1])


def ordered(b: Builder, test: str, x: Pair, y: Pair) -> Val:
    """ "lt", "le", "gt" or "ge", lexicographically; with a NaN in an imaginary part only the tie is left, which is false."""
    known = b.compare("ord", x[1], y[1])
    strict = b.binary("and", b.compare(f"o{test[0]}t", x[0], y[0]), known)
    tie = b.binary("and", b.compare("oeq", x[0], y[0]), b.compare(f"o{test}", x[1], y[1]))
    return b.binary("or", strict, tie)


def power(b: Builder, x: Pair, y: Pair, plain: Pair) -> Pair:
    """`plain`, but for 1 where y is 0, and for a power of zero: 0 if the real part of y is positive, else no value."""
    zero, one, nan = (like(b, x[0], v) for v in (0, 1, math.nan))
    none, empty = (b.binary("and", *(b.compare("oeq", p, zero) for p in z)) for z in (y, x))
    at_zero = b.select(b.compare("ogt", y[0], zero), zero, nan)
    parts = [b.select(empty, at_zero, p) for p in plain]
    return b.select(none, one, parts[0]), b.select(none, zero, parts[1])


def threefry(b: Builder, key: Val, counter: Val) -> Val:
    """The operator threefry of `operators` as straight-line code on words of 32 bits, in every lane."""
    narrow = vector_of("i32", lanes_of(key.type))

    def halves(x: Val) -> list[Val]:
        return [b.convert("trunc", b.binary("lshr", x, like(b, x, 32)), narrow), b.convert("trunc", x, narrow)]

    keys, (x0, x1) = halves(key), halves(counter)
    keys.append(b.binary("xor", b.binary("xor", *keys), like(b, x0, operators.PARITY)))
    x0, x1 = b.binary("add", x0, keys[0]), b.binary("add", x1, keys[1])
    for group in range(5):
        for turn in operators.ROTATIONS[group % 2]:
            x0 = b.binary("add", x0, x1)
            left, right = b.binary("shl", x1, like(b, x1, turn)), b.binary("lshr", x1, like(b, x1, 32 - turn))
            x1 = b.binary("xor", b.binary("or", left, right), x0)
        x0 = b.binary("add", x0, keys[(group + 1) % 3])
        x1 = b.binary("add", b.binary("add", x1, keys[(group + 2) % 3]), like(b, x1, group + 1))
    high = b.binary("shl", b.convert("zext", x0, key.type), like(b, key, 32))
    return b.binary("or", high, b.convert("zext", x1, key.type))


def united(b: Builder, x: Val, y: Val) -> Val:
    """The bits of both, of any type."""
    if scalar_of(x.type) not in ("float", "double"):
        return b.binary("or", x, y)
    bits = vector_of("i32" if scalar_of(x.type) == "float" else "i64", lanes_of(x.type))
    return b.convert("bitcast", b.binary("or", b.convert("bitcast", x, bits), b.convert("bitcast", y, bits)), x.type)
