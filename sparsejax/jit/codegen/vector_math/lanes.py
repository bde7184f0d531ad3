"""Real numbers in any number of lanes, with Python's operators: formulas are written once for float and double, one lane or many.

Every operation is rounded on its own, or is a fused multiply-add where it is written as one, so that a number gives the same
bits in every lane of every vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsejax.cached import cached_property
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.backend.types import lanes_of, scalar_of, vector_of
from sparsejax.jit.codegen import complex_parts


@dataclass(frozen=True)
class Layout:
    """An IEEE 754 format: bits of the fraction, bias of the exponent; `row` is its place in tables of coefficients."""

    fraction: int
    bias: int
    integer: str
    real: str
    row: int


DOUBLE, SINGLE = Layout(52, 1023, "i64", "double", 0), Layout(23, 127, "i32", "float", 1)


class Lanes:
    """Values (real numbers, integers of the same size, truth values) in some number of lanes."""

    def __init__(self, b: Builder, val: Val) -> None:
        self.b, self.val = b, val

    @property
    def count(self) -> int:
        return lanes_of(self.val.type)

    @cached_property
    def layout(self) -> Layout:
        return DOUBLE if scalar_of(self.val.type) in (DOUBLE.real, DOUBLE.integer) else SINGLE

    @property
    def _prefix(self) -> str:
        return "f" if scalar_of(self.val.type) in (DOUBLE.real, SINGLE.real) else ""

    def like(self, value: float) -> Lanes:
        """The constant `value` in the type of these."""
        return Lanes(self.b, complex_parts.like(self.b, self.val, value))

    def _operand(self, other: Any) -> Val:
        return other.val if isinstance(other, Lanes) else self.like(other).val

    def _binary(self, op: str, other: Any) -> Lanes:
        return Lanes(self.b, self.b.binary(op, self.val, self._operand(other)))

    def _intrinsic(self, name: str, *others: Any) -> Lanes:
        return Lanes(self.b, complex_parts.intrinsic(self.b, name, [self.val, *map(self._operand, others)]))

    # real numbers, and integers where that makes sense ----------------------------------------------------------
    def __add__(self, other: Any) -> Lanes:
        return self._binary(f"{self._prefix}add", other)

    def __sub__(self, other: Any) -> Lanes:
        return self._binary(f"{self._prefix}sub", other)

    def __mul__(self, other: Any) -> Lanes:
        return self._binary("fmul", other)

    def __truediv__(self, other: Any) -> Lanes:
        return self._binary("fdiv", other)

    def __neg__(self) -> Lanes:
        return Lanes(self.b, self.b.binary("fsub", self.like(-0.0).val, self.val))

    def __abs__(self) -> Lanes:
        return self._intrinsic("fabs")

    def root(self) -> Lanes:
        """The square root."""
        return self._intrinsic("sqrt")

    def fma(self, by: Any, plus: Any) -> Lanes:
        """`self * by + plus`, rounded once."""
        return self._intrinsic("fma", by, plus)

    def signed_as(self, other: Lanes) -> Lanes:
        """The absolute value of these with the sign of `other`."""
        return self._intrinsic("copysign", other)

    def polynomial(self, coefficients: tuple[tuple[float, ...], tuple[float, ...]]) -> Lanes:
        """The polynomial in these, by Horner's rule."""
        *rest, made = (self.like(c) for c in coefficients[self.layout.row])
        for c in reversed(rest):
            made = made.fma(self, c)
        return made

    # comparisons --------------------------------------------------------------------------------------------------
    def _compare(self, test: str, other: Any) -> Lanes:
        return Lanes(self.b, self.b.compare(test, self.val, self._operand(other)))

    def __lt__(self, other: Any) -> Lanes:
        return self._compare("olt", other)

    def __gt__(self, other: Any) -> Lanes:
        return self._compare("ogt", other)

    def equals(self, other: Any) -> Lanes:
        return self._compare("oeq" if self._prefix else "eq", other)

    def beyond(self, other: Lanes) -> Lanes:
        """Whether these integers, without signs, are not below others."""
        return self._compare("uge", other)

    def either(self, yes: Any, no: Any) -> Lanes:
        """`yes` where these are true, else `no`; one of them may be a number."""
        like = yes if isinstance(yes, Lanes) else no
        return Lanes(self.b, self.b.select(self.val, like._operand(yes), like._operand(no)))

    # bits ---------------------------------------------------------------------------------------------------------
    def __and__(self, other: Any) -> Lanes:
        return self._binary("and", other)

    def __xor__(self, other: Any) -> Lanes:
        return self._binary("xor", other)

    def __lshift__(self, count: int) -> Lanes:
        return self._binary("shl", count)

    def __rshift__(self, count: int) -> Lanes:
        """Zeros come in from the left."""
        return self._binary("lshr", count)

    def bits(self) -> Lanes:
        """The bits of real numbers as integers."""
        return Lanes(self.b, self.b.convert("bitcast", self.val, vector_of(self.layout.integer, self.count)))

    def real(self) -> Lanes:
        """The real numbers of which these are the bits."""
        return Lanes(self.b, self.b.convert("bitcast", self.val, vector_of(self.layout.real, self.count)))

    # all lanes ----------------------------------------------------------------------------------------------------
    def anywhere(self) -> Val:
        """Whether any of these truth values is true."""
        n = self.count
        return self.val if n == 1 else self.b.call(f"llvm.vector.reduce.or.v{n}i1", "i1", [self.val])
