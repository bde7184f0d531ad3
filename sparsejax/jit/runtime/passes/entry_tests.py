"""Which elements of a vector stay, as bits of words, lowest first: what kernels ask that keep some of many entries.

    Differing    elements that differ from a fill, or from 0 by more than a bound
    Flags        those whose flag holds

Elements are compared in vectors, `WORD` of them for a word, or fewer.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.runtime.passes.conversion_loops import Vector

WORD, LANES = 64, 16
"""Bits of a word; lanes of a vector that is compared."""
EVEN = 0x5555555555555555
"""Every other bit of a word."""
_CLOSER = tuple((by, sum(((1 << 2 * by) - 1) << k for k in range(0, WORD, 4 * by))) for by in (1, 2, 4, 8, 16))
"""Steps by which every other bit of a word moves to its lower half, and the bits that are left after each."""


def covers(dtype: np.dtype[Any]) -> bool:
    """Whether kernels compare elements of a dtype: its parts have 1, 2, 4 or 8 bytes, floats at least 4."""
    size = dtype.itemsize // (1 + (dtype.kind == "c"))
    return size in (4, 8) if dtype.kind in "fc" else dtype.kind in "biu" and size in (1, 2, 4, 8)


class Words(Protocol):
    """A test within a kernel."""

    def word(self, at: Val) -> Val:
        """A bit for each of `WORD` elements from a place on."""

    def bit(self, at: Val) -> Val:
        """0 or 1, for one element."""


class Parts(Words, Protocol):
    """A test of fewer elements at once, too, each of which has some `parts`."""

    parts: int

    def bits(self, at: Val, count: int) -> Val:
        """A bit for each part of so many elements."""

    def of_elements(self, bits: Val) -> Val:
        """The bits of elements, in the place of the first of their parts."""


@dataclass(frozen=True)
class Flags:
    """Elements whose flag holds."""

    def within(self, b: Builder, elements: Vector, beside: Vector | None) -> Parts:
        return _Flags(b, elements)


@dataclass(frozen=True, eq=False)
class Differing:
    """Elements of a dtype that differ from what stands `beside` them, the fill, which `is_nan` or not (from 0 without it); or, `bounded`, real floats that
    differ from 0 by more than what stands beside. NaN equals NaN alone. `distant` makes one for each, so that kernels are found by it at once."""

    dtype: np.dtype[Any]
    is_nan: bool
    bounded: bool = False

    def within(self, b: Builder, elements: Vector, beside: Vector | None) -> Parts:
        return _Comparison(b, self, elements, beside)


Test = Flags | Differing


class _Flags:
    parts = 1

    def __init__(self, b: Builder, flags: Vector) -> None:
        self._b, self._flags = b, flags

    def word(self, at: Val) -> Val:
        return self.bits(at, WORD)

    def bit(self, at: Val) -> Val:
        return self._flags.number(self._b, at)

    def bits(self, at: Val, count: int) -> Val:
        b = self._b
        if count == 1:
            return self.bit(at)
        flags = b.load(self._flags.pointer, at, f"<{count} x i8>")
        bits = b.convert("bitcast", b.compare("ne", flags, b.splat(b.const("i8", 0), count)), f"i{count}")
        return b.convert("zext", bits, "i64")

    def of_elements(self, bits: Val) -> Val:
        return bits


class _Comparison:
    """Elements beside a fill. Of complex ones both parts are compared, which have a bit each until these become one."""

    def __init__(self, b: Builder, test: Differing, elements: Vector, fill: Vector | None) -> None:
        self._b, self._test, self._elements = b, test, elements
        self.parts = 1 + (test.dtype.kind == "c")
        size, floats = test.dtype.itemsize // self.parts, test.dtype.kind in "fc"
        self._kind = {4: "float", 8: "double"}[size] if floats else f"i{8 * size}"
        self._differs = "ugt" if test.bounded else "une" if floats else "ne"
        nothing = b.const(self._kind, 0)
        self._fills = [
            b.named("fill", b.load(fill.pointer, b.i64(k), self._kind)) if fill else nothing for k in range(self.parts)
        ]

    def word(self, at: Val) -> Val:
        b = self._b
        if self.parts == 1:
            return self.bits(at, WORD)
        low, high = (self._closer(self.of_elements(self.bits(b.add(at, k), WORD // 2))) for k in (0, WORD // 2))
        return b.binary("or", low, b.binary("shl", high, b.i64(WORD // 2)))

    def bit(self, at: Val) -> Val:
        return self.of_elements(self.bits(at, 1))

    def bits(self, at: Val, count: int) -> Val:
        """A bit for each part of so many elements: whether it differs."""
        b, lanes = self._b, min(LANES, count * self.parts)
        bits: Val | None = None
        for begin in range(0, count * self.parts, lanes):
            where = b.add(b.mul(at, self.parts), begin)
            part = self._compared(where, lanes)
            part = b.convert("zext", b.convert("bitcast", part, f"i{lanes}") if lanes > 1 else part, "i64")
            part = b.binary("shl", part, b.i64(begin)) if begin else part
            bits = part if bits is None else b.binary("or", bits, part)
        assert bits is not None
        return bits

    def _compared(self, where: Val, lanes: int) -> Val:
        b, test = self._b, self._test
        kind = f"<{lanes} x {self._kind}>" if lanes > 1 else self._kind
        value = b.load(self._elements.pointer, where, kind)
        if test.is_nan:
            return b.compare("ord", value, value)
        fill = b.splat(self._fills[0], lanes) if lanes > 1 else self._fills[0]
        for lane in range(1, lanes, 2) if self.parts == 2 else ():
            fill = b.insert(fill, lane, self._fills[1])
        if test.bounded:
            name = f"{f'v{lanes}' if lanes > 1 else ''}{'f32' if self._kind == 'float' else 'f64'}"
            value = b.call(f"llvm.fabs.{name}", kind, [value])
        return b.compare(self._differs, value, fill)

    def of_elements(self, bits: Val) -> Val:
        """The bits of elements, in the place of the first of their parts; elements with a part of NaN equal a fill that has one."""
        b = self._b
        if self.parts == 1:
            return bits
        both = b.binary("and" if self._test.is_nan else "or", bits, b.binary("lshr", bits, b.i64(1)))
        return b.and_(both, b.i64(EVEN))

    def _closer(self, bits: Val) -> Val:
        """Every other bit, side by side."""
        b = self._b
        for by, mask in _CLOSER:
            bits = b.and_(b.binary("or", bits, b.binary("lshr", bits, b.i64(by))), b.i64(mask))
        return bits


def distant(dtype: np.dtype[Any], fill: Any, tol: Any) -> Differing | None:
    """The test of `distances.differs`, where a kernel has it."""
    if type(tol) is not int:
        if np.ndim(tol) or (tol != 0 and np.result_type(dtype, tol) != dtype):
            return None
        tol = 1 if tol != 0 else 0
    return _distant(dtype, bool(fill != fill), bool(fill), bool(tol))


@functools.cache
def _distant(dtype: np.dtype[Any], is_nan: bool, filled: bool, bounded: bool) -> Differing | None:
    if not covers(dtype) or (bounded and (filled or dtype.kind != "f")):
        return None
    return Differing(dtype, is_nan, bounded)
