"""Coefficients of the polynomials in `sparsejax/jit/codegen/vector_math/coefficients.py`: `python -m benchmarks.minimax` prints that file.

Remez exchange in decimal arithmetic of 60 digits, with weights so that the relative error of the *function* is levelled
(Muller, "Elementary Functions", section 3.5). The references are series, nothing here depends on a math library.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

Function = Callable[[Decimal], Decimal]
decimal.getcontext().prec = 60
POINTS = 12
"""Points per coefficient at which the error is looked at."""


def _series(first: Decimal, following: Callable[[int, Decimal], Decimal]) -> Decimal:
    """`first` and the terms that follow, until they are too small to matter."""
    total = term = first
    k = 0
    while term and abs(term) > abs(total) * Decimal("1e-58"):
        k += 1
        term = following(k, term)
        total += term
    return total


PI = 4 * (4 * _series(Decimal(1), lambda k, _: Decimal((-1) ** k) / (2 * k + 1) / 25**k) / 5) - 4 * (
    _series(Decimal(1), lambda k, _: Decimal((-1) ** k) / (2 * k + 1) / 239 ** (2 * k)) / 239
)
LN2 = Decimal(2).ln()


def exp_tail(r: Decimal) -> Decimal:
    """(e^r - 1 - r) / r^2."""
    return _series(Decimal("0.5"), lambda k, t: t * r / (k + 2))


def log_tail(z: Decimal) -> Decimal:
    """(log((1 + s) / (1 - s)) - 2 s) / s^3 where z is s^2."""
    return _series(Decimal(2) / 3, lambda k, _: 2 * z**k / (2 * k + 3))


def sin_tail(z: Decimal) -> Decimal:
    """(sin r - r) / r^3 where z is r^2."""
    return _series(Decimal(-1) / 6, lambda k, t: -t * z / ((2 * k + 2) * (2 * k + 3)))


def cos_tail(z: Decimal) -> Decimal:
    """(cos r - 1 + r^2 / 2) / r^4 where z is r^2."""
    return _series(Decimal(1) / 24, lambda k, t: -t * z / ((2 * k + 3) * (2 * k + 4)))


def sinh_tail(z: Decimal) -> Decimal:
    """(sinh x - x) / x^3 where z is x^2."""
    return _series(Decimal(1) / 6, lambda k, t: t * z / ((2 * k + 2) * (2 * k + 3)))


def atan_tail(z: Decimal) -> Decimal:
    """(arctan r - r) / r^3 where z is r^2."""
    return _series(Decimal(-1) / 3, lambda k, _: (-1) ** (k + 1) * z**k / (2 * k + 3))


def asin_tail(z: Decimal) -> Decimal:
    """(arcsin r - r) / r^3 where z is r^2."""
    return _series(Decimal(1) / 6, lambda k, t: t * z * (2 * k + 1) ** 2 / ((2 * k + 2) * (2 * k + 3)))


def erf_ratio(z: Decimal) -> Decimal:
    """erf(x) / x where z is x^2: terms of one sign, by DLMF 7.6.2."""
    return _series(Decimal(1), lambda k, t: t * 2 * z / (2 * k + 1)) * 2 / (PI.sqrt() * z.exp())


def log_erfc(x: Decimal) -> Decimal:
    """log(1 - erf(x))."""
    return (1 - x * erf_ratio(x * x)).ln()


@dataclass(frozen=True)
class Table:
    """`function` on lo to hi by polynomials of the degrees `double` and `single`; `weight` times the error is levelled."""

    name: str
    function: Function
    weight: Function
    lo: Decimal
    hi: Decimal
    double: int
    single: int
    single_hi: Decimal | None = None


def _one(_: Decimal) -> Decimal:
    return Decimal(1)


R, Q = LN2 / 2 * Decimal("1.001"), PI / 4 * Decimal("1.001")
T = Decimal(2).sqrt() - 1  # the tangent of an eighth of pi
S = (Decimal(2).sqrt() - 1) / (Decimal(2).sqrt() + 1)
TABLES = (
    Table("EXP", exp_tail, lambda r: r * r / r.exp(), -R, R, 9, 4),
    Table("LOG", log_tail, lambda z: z / 2, Decimal(0), S * S * Decimal("1.001"), 6, 2),
    Table("SIN", sin_tail, lambda z: z, Decimal(0), Q * Q, 5, 2),
    Table("COS", cos_tail, lambda z: z * z, Decimal(0), Q * Q, 5, 2),
    Table("SINH", sinh_tail, lambda z: z, Decimal(0), Decimal("1.001"), 6, 3),
    Table("ATAN", atan_tail, lambda z: z, Decimal(0), T * T * Decimal("1.001"), 11, 4),
    Table("ASIN", asin_tail, lambda z: z, Decimal(0), Decimal("0.25025"), 12, 4),
    Table("ERF", lambda z: erf_ratio(z) - 1, _one, Decimal(0), Decimal(1), 11, 6),
    Table(
        "ERFC",
        log_erfc,
        lambda x: 1 - x * erf_ratio(x * x),
        Decimal(1),
        Decimal(6),
        16,
        7,
        Decimal(4),
    ),
)


def _solve(rows: list[list[Decimal]]) -> list[Decimal]:
    """The solution of linear equations, given as rows that end with the right side."""
    n = len(rows)
    for k in range(n):
        best = max(range(k, n), key=lambda i: abs(rows[i][k]))
        rows[k], rows[best] = rows[best], rows[k]
        for i in range(k + 1, n):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    made = [Decimal(0)] * n
    for k in reversed(range(n)):
        made[k] = (rows[k][n] - sum(rows[k][j] * made[j] for j in range(k + 1, n))) / rows[k][k]
    return made


def _cos(x: Decimal) -> Decimal:
    return _series(Decimal(1), lambda k, t: -t * x * x / ((2 * k - 1) * 2 * k))


def evaluate(coefficients: list[Decimal], x: Decimal) -> Decimal:
    """The polynomial, lowest degree first, by Horner's rule."""
    made = Decimal(0)
    for c in reversed(coefficients):
        made = made * x + c
    return made


def remez(function: Function, weight: Function, lo: Decimal, hi: Decimal, degree: int) -> tuple[list[Decimal], Decimal]:
    """The polynomial of least weighted error on lo to hi, and that error."""
    count = degree + 2
    half, middle = (hi - lo) / 2, (hi + lo) / 2
    grid = [middle - half * _cos(PI * (2 * k + 1) / (2 * POINTS * count)) for k in range(POINTS * count)]
    values, weights = [function(x) for x in grid], [weight(x) for x in grid]
    chosen = [POINTS * k + POINTS // 2 for k in range(count)]
    for _ in range(30):
        rows = [
            [grid[i] ** p for p in range(degree + 1)] + [(-1) ** k / weights[i], values[i]]
            for k, i in enumerate(chosen)
        ]
        *coefficients, _level = _solve(rows)
        errors = [(v - evaluate(coefficients, x)) * w for x, v, w in zip(grid, values, weights, strict=True)]
        runs: list[int] = []  # the largest error of every run of equal signs
        for i, e in enumerate(errors):
            if runs and (e < 0) == (errors[runs[-1]] < 0):
                runs[-1] = max(runs[-1], i, key=lambda j: abs(errors[j]))
            else:
                runs.append(i)
        while len(runs) > count:
            runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
        if len(runs) < count or runs == chosen:
            break
        chosen = runs
    return coefficients, max(abs(e) for e in errors)


def rounded(value: Decimal, single: bool) -> float:
    """The nearest double, or single precision number."""
    number = float(value)
    return float(struct.unpack("f", struct.pack("f", number))[0]) if single else number


def table(entry: Table, single: bool) -> tuple[list[float], Decimal]:
    """Rounded coefficients, lowest degree first, and the weighted error before rounding."""
    hi = entry.single_hi if single and entry.single_hi else entry.hi
    made, error = remez(entry.function, entry.weight, entry.lo, hi, entry.single if single else entry.double)
    return [rounded(c, single) for c in made], error


def parts(value: Decimal, count: int, single: bool) -> list[float]:
    """`value` as a sum of `count` numbers, each the nearest to what the ones before leave."""
    made: list[float] = []
    for _ in range(count):
        made.append(rounded(value, single))
        value -= Decimal(made[-1])
    return made


SUMS = {
    "LN2": (LN2, 2), "HALF_PI": (PI / 2, 3), "LOG10_2": (LN2 / Decimal(10).ln(), 2),
    "PER_LN2": (1 / LN2, 2), "PER_LN10": (1 / Decimal(10).ln(), 2), "PER_HALF_PI": (2 / PI, 1),
}  # fmt: skip
"""Constants, and of how many numbers they are the sum."""

HEAD = '''"""Coefficients, lowest degree first: (double precision, single precision). `python -m benchmarks.minimax` writes this file."""

'''


def main() -> None:
    """Print the file."""
    print(HEAD, end="")
    for name, (value, count) in SUMS.items():
        print(f"{name} = (")
        for single in (False, True):
            print(
                f"    ({', '.join(repr(p) for p in parts(value, count, single))}),"
                if count > 1
                else f"    ({parts(value, 1, single)[0]!r},),"
            )
        print(")")
    for entry in TABLES:
        print(f"{entry.name} = (")
        for single in (False, True):
            coefficients, error = table(entry, single)
            print(f"    (  # error {error:.1e}")
            for c in coefficients:
                print(f"        {c!r},")
            print("    ),")
        print(")")


if __name__ == "__main__":
    main()
