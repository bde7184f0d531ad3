"""Elementary functions of real numbers as polynomials, the same for one lane or many. At most 2 ulp from the true value.

    exp(x) = 2^n (1 + r + r^2 q(r))                 n the nearest integer to x / log 2, r = x - n log 2
    log(2^k (1 + f)) = k log 2 + f - f^2 / 2 + s (f^2 / 2 + s^2 L(s^2))                            s = f / (2 + f)
    sinh(x) = x + x^3 H(x^2) below 1, (e^x - e^-x) / 2 above
    sin(n pi / 2 + r), by n modulo 4, from r + r^3 S(r^2) and 1 - r^2 / 2 + r^4 C(r^2)
    arctan(x) = k pi / 4 + r + r^3 T(r^2), r at most the tangent of an eighth of pi
    erf(x) = x (1 + E(x^2)) below 1, 1 - exp(F(x)) above

Reduction by multiples of a constant that is held as a sum of numbers: Cody and Waite, "Software Manual for the Elementary
Functions" (1980); with fused multiply-adds, and the form of the logarithm: Muller, "Elementary Functions" (2016), chapters 11
and 10. `benchmarks/minimax.py` derives the coefficients. NaN goes through every formula; infinities, zeros and what has no
value are put in at the end. No formula converts to an integer that does not fit: everything is defined for all inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen import complex_parts
from sparsejax.jit.codegen.vector_math import coefficients as table
from sparsejax.jit.codegen.vector_math.lanes import Lanes

Parts = tuple[tuple[float, ...], tuple[float, ...]]


def _nearest(x: Lanes, factor: Lanes) -> tuple[Lanes, Lanes]:
    """The integer nearest to `x * factor` (below 2^50 in double precision, 2^21 in single), as real number and as integer."""
    shift = x.like(1.5 * 2.0**x.layout.fraction)  # behind it, no bits are left for fractions
    moved = x.fma(factor, shift)
    return moved - shift, moved.bits() - shift.bits()


def _power_of_two(n: Lanes) -> Lanes:
    """2^n for integers n, of a normal number."""
    return ((n + n.layout.bias) << n.layout.fraction).real()


def _scaled(x: Lanes, n: Lanes) -> Lanes:
    """x 2^n, rounded once, where the result may be subnormal or infinite; n is at least -2 bias."""
    both = n + 2 * n.layout.bias
    half = both >> 1
    return x * (half << n.layout.fraction).real() * ((both - half) << n.layout.fraction).real()


def _clamped(x: Lanes, lo: float, hi: float) -> Lanes:
    """x between lo and hi; NaN stays."""
    x = (x > hi).either(hi, x)
    return (x < lo).either(lo, x)


def _constant(x: Lanes, sums: Parts, part: int) -> Lanes:
    return x.like(sums[x.layout.row][part])


# ---------------------------------------------------------------------------------------------------- exponentials

_GROWN = (709.0, 88.0)
"""Up to here exp is finite; halves of what is larger go to the C library, one by one."""


def _exp_range(x: Lanes) -> tuple[float, float]:
    """Between these bounds, exp is neither zero nor infinite; outside it is, and its scale is still a pair of numbers."""
    return (-746.0, 710.0) if x.layout.row == 0 else (-104.0, 89.0)


def _exp_reduced(x: Lanes) -> tuple[Lanes, Lanes]:
    """n and 1 + y with exp(x) = 2^n (1 + y), for x in range."""
    count, n = _nearest(x, _constant(x, table.PER_LN2, 0))
    r = count.fma(-_constant(x, table.LN2, 0), x)
    r = count.fma(-_constant(x, table.LN2, 1), r)
    return n, (r * r).fma(r.polynomial(table.EXP), r) + 1


def exp(x: Lanes) -> Lanes:
    n, value = _exp_reduced(_clamped(x, *_exp_range(x)))
    return _scaled(value, n)


def exp2(x: Lanes) -> Lanes:
    lo, hi = (-1080.0, 1025.0) if x.layout.row == 0 else (-152.0, 129.0)
    x = _clamped(x, lo, hi)
    count, n = _nearest(x, x.like(1))
    fraction, ln2 = x - count, _constant(x, table.LN2, 0)
    r = fraction * ln2
    rest = fraction.fma(_constant(x, table.LN2, 1), fraction.fma(ln2, -r))
    return _scaled((r * r).fma(r.polynomial(table.EXP), rest) + r + 1, n)


def _expm1(x: Lanes) -> tuple[Lanes, Lanes]:
    """exp(x) - 1 as a sum: 2 (2^(n-1) - 1/2 + 2^(n-1) r + 2^(n-1) (exp(r) - 1 - r)), where the first difference is exact."""
    hi = _exp_range(x)[1]
    inside = _clamped(x, -40.0, hi)
    count, n = _nearest(inside, _constant(x, table.PER_LN2, 0))
    first = count.fma(-_constant(x, table.LN2, 0), inside)
    low = -_constant(x, table.LN2, 1)
    r = count.fma(low, first)
    rest = count.fma(low, first - r)
    tail = (r * r).fma(r.polynomial(table.EXP), rest)
    scale, near = _power_of_two(n - 1), n.equals(0)
    whole = near.either(r, scale.fma(r, scale - 0.5))
    tail = near.either(tail, scale * tail)
    made = whole + tail
    rest, twice = whole - made + tail, near.either(1.0, made.like(2))
    return made * twice, rest * twice


def expm1(x: Lanes) -> Lanes:
    return _expm1(x)[0].signed_as(x)


def tanh(x: Lanes) -> Lanes:
    """q = E / (E + 2) with E = exp(2 |x|) - 1. What rounding took from both is put back by 1 / (E + 2) = (1 - q) / 2."""
    size = abs(x)
    size = (size > 20.0).either(20.0, size)
    high, low = _expm1(size + size)
    below = high + 2
    lost = (high < 2).either(high.like(2) - below + high, high - below + 2) + low
    made = high / below
    return lost.fma(-made, low).fma(made.fma(-0.5, 0.5), made).signed_as(x)


def sinh(x: Lanes) -> Lanes:
    """x + x^3 H(x^2) up to 1; beyond, G / 2 - 1 / (2 G) with G = exp(|x|), of which the second is a seventh of the first at most."""
    size = abs(x)
    z = size * size
    near = (size * z).fma(z.polynomial(table.SINH), size)
    n, value = _exp_reduced(_clamped(size, *_exp_range(x)))
    half = value * _power_of_two(n - 1)
    far = half - half.like(0.25) / half
    return _beyond(x, (size < 1).either(near, far).signed_as(x), "sinh", _GROWN)


def cosh(x: Lanes) -> Lanes:
    """G / 2 + 1 / (2 G) with G = exp(|x|)."""
    grown = exp(abs(x))
    return _beyond(x, grown.fma(0.5, grown.like(0.5) / grown), "cosh", _GROWN)


def logistic(x: Lanes) -> Lanes:
    """1 / (1 + exp(-x)), by E = exp(-|x|), which cannot overflow. What rounding took from 1 + E is put back by 1 - E / 2."""
    grown = exp(-abs(x))
    below = grown + 1
    lost = below.like(1) - below + grown
    made = (x < 0).either(grown, 1) / below
    return (lost * made).fma(grown.fma(0.5, -1), made)


def erf(x: Lanes) -> Lanes:
    size, hi = abs(x), 6.0 if x.layout.row == 0 else 4.0
    square = size * size
    near = size.fma(square.polynomial(table.ERF), size)
    n, value = _exp_reduced((size > hi).either(hi, size).polynomial(table.ERFC))
    far = -(value * _power_of_two(n)) + 1
    return (size < 1).either(near, far).signed_as(x)


# ------------------------------------------------------------------------------------------------------ logarithms


def _log_reduced(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """k, as real number and as integer, and f with x = 2^k (1 + f), where 1 + f lies between sqrt(1/2) and sqrt(2); normal x."""
    layout, like = x.layout, x.like
    least = x.like(math.sqrt(0.5)).bits()
    # how many powers of two the bits lie above those of sqrt(1/2)
    n = ((x.bits() - least + (layout.bias << layout.fraction)) >> layout.fraction) - layout.bias
    shift = like(1.5 * 2.0**layout.fraction)
    count = (n + shift.bits()).real() - shift
    return count, n, (x.bits() - (n << layout.fraction)).real() - 1


def _log_parts(f: Lanes) -> tuple[Lanes, Lanes]:
    """log(1 + f) as a sum, f between -0.3 and 0.42."""
    s = f / (f + 2)
    z, half = s * s, f * 0.5
    square = half * f
    high = f - square
    low = f - high - square - half.fma(f, -square)
    return high, s.fma(square + z * z.polynomial(table.LOG), low)


def _log_sum(count: Lanes, high: Lanes, low: Lanes, unit: Parts, per: Parts | None = None) -> Lanes:
    """`count * unit + (high + low) * per`."""
    if per is not None:
        factor = _constant(high, per, 0)
        scaled = high * factor
        low = low.fma(factor, high.fma(_constant(high, per, 1), high.fma(factor, -scaled)))
        high = scaled
    whole = _constant(high, unit, 0)
    first = count * whole
    rest = count.fma(_constant(high, unit, 1), count.fma(whole, -first))
    total = first + high
    return total + (first - total + high + (rest + low))


def _log_limits(x: Lanes, distance: Lanes, value: Lanes) -> Lanes:
    """`value`, but for what a logarithm is at infinity, at the pole (`distance` 0) and beyond it."""
    beyond = (distance < 0).either(math.nan, x)
    special = distance.equals(0).either(-math.inf, beyond)
    return ((distance > 0) & (distance < math.inf)).either(value, special)


def _log(x: Lanes, unit: Parts, per: Parts | None) -> Lanes:
    shift = float(x.layout.fraction + 2)
    tiny = x < 2.0 ** (1 - x.layout.bias)
    count, _, f = _log_reduced(tiny.either(x * 2.0**shift, x))
    count = tiny.either(count - shift, count)
    return _log_limits(x, x, _log_sum(count, *_log_parts(f), unit, per))


def log(x: Lanes) -> Lanes:
    """Of normal numbers by fewer steps: log(1 + f) is f and something small, and k log 2 is larger than it or zero, so that one sum of
    both is enough. Other numbers are rare, and take the way of `log2`."""
    count, _, f = _log_reduced(x)
    s, square = f / (f + 2), f * f * 0.5
    z = s * s
    rest = s.fma(z.fma(z.polynomial(table.LOG), square), count * _constant(x, table.LN2, 1))
    value = count.fma(_constant(x, table.LN2, 0), f - (square - rest))
    least, b = x.like(2.0 ** (1 - x.layout.bias)).bits(), x.b
    made = b.var("value", value.val)
    rare = (x.bits() - least).beyond(x.like(math.inf).bits() - least)
    with b.if_(rare.anywhere()):
        b.set(made, rare.either(_log(x, table.LN2, None), value).val)
    return Lanes(b, b.get(made))


ONE: Parts = ((1.0, 0.0), (1.0, 0.0))


def log2(x: Lanes) -> Lanes:
    return _log(x, ONE, table.PER_LN2)


def log10(x: Lanes) -> Lanes:
    return _log(x, table.LOG10_2, table.PER_LN10)


def log1p(x: Lanes) -> Lanes:
    return _log1p(x, x.like(0)).signed_as(x)


def _log1p(x: Lanes, low: Lanes) -> Lanes:
    """log(u) with u the rounded 1 + x; what rounding took away goes back into f, and what x is short of, which is `low`."""
    u = x + 1
    back = u - 1
    lost = x.like(1) - (u - back) + (x - back) + low
    count, n, f = _log_reduced(u)
    lost = (x > 2.0**60).either(0.0, lost * _power_of_two(n.like(0) - n))
    full = f + lost
    high, low = _log_parts(full)
    value = _log_sum(count, high, low + (f - full + lost), table.LN2)
    return _log_limits(x, u, value)


def arcsinh(x: Lanes) -> Lanes:
    """log(1 + y) with y = |x| + x^2 / (1 + sqrt(1 + x^2))."""
    size = abs(x)
    square = size * size
    second = square / ((square + 1).root() + 1)
    y = size + second
    made = _log1p(y, size - y + second).signed_as(x)
    return _beyond(x, made, "asinh", (2.0**500, 2.0**60))


def arctanh(x: Lanes) -> Lanes:
    """(k log 2 + log(1 + f)) / 2 with (1 + |x|) / (1 - |x|) = 2^k (1 + f). Of f, only s = f / (2 + f) is made, by one division: where above and below are
    the two factors, k of them already taken from the second, it is (above - below) / (above + below)."""
    size, layout = abs(x), x.layout
    above, distance = size + 1, size.like(1) - size
    more, less = size - (above - 1), size.like(1) - distance - size  # what rounding took from them
    n = (above.bits() - distance.bits()) >> layout.fraction
    shift = size.like(1.5 * 2.0**layout.fraction)
    count, scale = (n + shift.bits()).real() - shift, _power_of_two(n)
    far = above > distance * scale * math.sqrt(2)
    count, scale = far.either(count + 1, count), far.either(scale + scale, scale)
    below, less = distance * scale, less * scale
    top, bottom = above - below, above + below
    lost = far.either(below, above) - bottom + far.either(above, below) + (more + less)
    inverse = size.like(1) / bottom
    first = top * inverse
    rest = (first.fma(-bottom, top) + (more - less - first * lost)) * inverse
    s = first + rest
    z = s * s
    low = first - s + rest
    value = _log_sum(count, s + s, s.fma(z * z.polynomial(table.LOG), low + low), table.LN2) * 0.5
    pole = distance.equals(0).either(math.inf, (distance < 0).either(math.nan, x))
    return (distance > 0).either(value, pole).signed_as(x)


# ---------------------------------------------------------------------------------------------------- trigonometry

_LIMITS = (2.0**30, 2.0**16)
"""Up to here three numbers hold enough of pi/2; larger angles go to the C library, one by one."""


def _quarter(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """n, r and a correction of r, with x = n pi / 2 + r. The first product cancels exactly."""
    count, n = _nearest(x, _constant(x, table.PER_HALF_PI, 0))
    first = count.fma(-_constant(x, table.HALF_PI, 0), x)
    middle = _constant(x, table.HALF_PI, 1)
    product = count * middle
    r = first - product
    taken = first - r  # the rounding error of a difference: Knuth's two-sum
    rest = first - (r + taken) - (product - taken)
    lost = count.fma(_constant(x, table.HALF_PI, 2), count.fma(middle, -product))
    return n, r, rest - lost


def _sine(r: Lanes, rest: Lanes) -> tuple[Lanes, Lanes]:
    """The sine as a sum."""
    z = r * r
    return r, r.fma(z * z.polynomial(table.SIN), rest * z.fma(-0.5, 1))


def _cosine(r: Lanes, rest: Lanes) -> tuple[Lanes, Lanes]:
    """The cosine as a sum."""
    z = r * r
    half = z * 0.5
    whole = half.like(1) - half
    return whole, half.like(1) - whole - half + (z * z).fma(z.polynomial(table.COS), -(r * rest))


def _turned(x: Lanes, quarters: int) -> Lanes:
    """sin(x + quarters pi / 2)."""
    n, r, rest = _quarter(x)
    n = n + quarters
    (s, small), (c, little) = _sine(r, rest), _cosine(r, rest)
    value = (n & 1).equals(0).either(small + s, c + little)
    sign_bit = x.layout.fraction + x.layout.bias.bit_length() + 1
    return (value.bits() ^ ((n & 2) << (sign_bit - 1))).real()


def sin(x: Lanes) -> Lanes:
    return _beyond(x, x.equals(0).either(x, _turned(x, 0)), "sin")


def cos(x: Lanes) -> Lanes:
    return _beyond(x, _turned(x, 1), "cos")


def tan(x: Lanes) -> Lanes:
    """The sine over the cosine, or minus the reciprocal in every other quarter; both are sums, and what the quotient lacks is put back."""
    n, r, rest = _quarter(x)
    even = (n & 1).equals(0)
    (s, small), (c, little) = _sine(r, rest), _cosine(r, rest)
    above, above_rest = even.either(s, -c), even.either(small, -little)
    below, below_rest = even.either(c, s), even.either(little, small)
    inverse = below.like(1) / (below + below_rest)
    made = (above + above_rest) * inverse
    lacks = made.fma(-below, above) + made.fma(-below_rest, above_rest)
    return _beyond(x, x.equals(0).either(x, lacks.fma(inverse, made)), "tan")


def arctan(x: Lanes) -> Lanes:
    """k pi / 4 + arctan((|x| - t) / (1 + t |x|)) with t the tangent of k pi / 4, so that the second angle is at most an eighth of pi."""
    size = abs(x)
    middle, large = size > math.sqrt(2) - 1, size > math.sqrt(2) + 1
    above = large.either(-1.0, middle.either(size - 1, size))
    below = large.either(size, middle.either(size + 1, 1.0))
    r = above / below
    z = r * r
    whole, rest = (_constant(x, table.HALF_PI, part) for part in (0, 1))
    zero = x.like(0)
    begins = large.either(whole, middle.either(whole * 0.5, zero))
    ends = large.either(rest, middle.either(rest * 0.5, zero))
    return (begins + (r + (r * z).fma(z.polynomial(table.ATAN), ends))).signed_as(x)


def arcsin(x: Lanes) -> Lanes:
    """x + x^3 A(x^2) up to 1/2; beyond, pi / 2 - 2 arcsin(s) with s the root of (1 - |x|) / 2, which is a sum."""
    size = abs(x)
    far = size > 0.5
    z = far.either((x.like(1) - size) * 0.5, size * size)
    root = z.root()
    lost = root.equals(0).either(0.0, root.fma(-root, z) / (root + root))
    s = far.either(root, size)
    tail = (s * z).fma(z.polynomial(table.ASIN), far.either(lost, 0.0))
    whole, rest = (_constant(x, table.HALF_PI, part) for part in (0, 1))
    double = s + s
    first = whole - double
    turned = first + (whole - first - double + (rest - (tail + tail)))
    return far.either(turned, s + tail).signed_as(x)


def _beyond(x: Lanes, value: Lanes, name: str, limits: tuple[float, float] = _LIMITS) -> Lanes:
    """`value`, but for lanes with large angles and infinities: these are rare and call the C library."""
    b = x.b
    far = abs(x) > limits[x.layout.row]
    made = b.var("value", value.val)
    with b.if_(far.anywhere()):
        for lane in range(x.count):
            here, angle = (v.val if x.count == 1 else b.extract(v.val, lane) for v in (far, x))
            with b.if_(here):
                slow = complex_parts.libm(b, name, [angle])
                b.set(made, slow if x.count == 1 else b.insert(b.get(made), lane, slow))
    return Lanes(b, b.get(made))


FUNCTIONS: dict[str, Callable[[Lanes], Lanes]] = {
    f.__name__: f
    for f in (
        exp,
        exp2,
        expm1,
        log,
        log2,
        log10,
        log1p,
        sin,
        cos,
        tan,
        arcsin,
        arctan,
        arcsinh,
        arctanh,
        sinh,
        cosh,
        tanh,
        logistic,
        erf,
    )
}


def call(b: Builder, name: str, x: Val) -> Val:
    """The function `name` of `FUNCTIONS` in every lane of x: written once for each number of lanes, called here."""
    return b.function(name, x, lambda b, given: FUNCTIONS[name](Lanes(b, given)).val)
