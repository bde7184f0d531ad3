"""Numbers as integers in their order, floats by their bits: what the passes for the largest ones compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.runtime.passes.conversion_loops import Vector

LEAST = -(2**63)
"""Below all numbers."""
LANES = 16
"""Lanes of a vector that is compared."""
WIDE = f"<{LANES} x i64>"


def covers(dtype: np.dtype[np.generic]) -> bool:
    """Whether numbers of a dtype have their order as integers of 64 bits, and one below them."""
    return dtype.itemsize in ((4, 8) if dtype.kind == "f" else (1, 2, 4)) and dtype.kind in "iuf"


@dataclass(frozen=True)
class Keys:
    """Numbers as integers above `LEAST`: one as 64 bits, many as wide as they are. Zeros are equal, NaN is above all others."""

    b: Builder
    numbers: Vector
    kind: str
    absolute: bool

    @property
    def _signed(self) -> bool:
        """Whether keys are compared with a sign: absolute values of integers have none."""
        return self.kind == "f" or (self.kind == "i" and not self.absolute)

    def number(self, at: Val) -> Val:
        return self.b.named("key", self.b.convert("sext" if self._signed else "zext", self._keys(at, 1), "i64"))

    def wide(self, at: Val) -> Val:
        """`LANES` of them as 64 bits each."""
        made = self._keys(at, LANES)
        return made if self.numbers.size == 8 else self.b.convert("sext" if self._signed else "zext", made, WIDE)

    @property
    def halved(self) -> bool:
        """Whether `upper` is not all of a key."""
        return self.numbers.size == 8

    @property
    def nothing(self) -> int:
        """`upper` of 0."""
        return 0 if self._signed or self.numbers.size < 4 else -(2**31)

    def lowest(self, size: int) -> int:
        """What no key of so many bytes, or `upper` part, is below."""
        if self._signed and not self.absolute:
            return -(1 << 8 * size - 1)
        return 0 if size == 8 else self.nothing

    def upper(self, at: Val, lanes: int = 1) -> Val:
        """Keys as 32 bits with a sign, of wider ones the upper half: in their order, but for those that have it in common."""
        b, kind = self.b, f"<{lanes} x i32>" if lanes > 1 else "i32"
        keys = self._keys(at, lanes)
        if self.numbers.size == 4:
            return keys if self._signed else self._turned(keys, lanes)
        if not self.halved:
            return b.convert("sext" if self._signed else "zext", keys, kind)
        by = b.splat(b.i64(32), lanes) if lanes > 1 else b.i64(32)
        return b.convert("trunc", b.binary("lshr", keys, by), kind)

    def above(self, at: Val, count: int, least: Val) -> Val:
        """A bit for each of so many numbers: whether it is larger than the key of another number."""
        b, beside = self.b, self.numbers.element(self.b, least)
        how = "sgt" if self._signed else "ugt"
        return self._bits(
            count, lambda begin, lanes: b.compare(how, self._keys(b.add(at, begin), lanes), b.splat(beside, lanes))
        )

    def digits(self, at: Val, lanes: int = 1) -> Val:
        """Numbers as unsigned ones, as wide as they are."""
        keys = self._keys(at, lanes)
        return self._turned(keys, lanes) if self._signed else keys

    def _turned(self, keys: Val, lanes: int) -> Val:
        """Numbers with a sign as ones without, in their order, and the other way round."""
        b, size = self.b, 8 * self.numbers.size
        lowest = b.const(f"i{size}", -(2 ** (size - 1)))
        return b.binary("xor", keys, b.splat(lowest, lanes) if lanes > 1 else lowest)

    def compared(self, how: str, at: Val, count: int, shift: int, digits: Val) -> Val:
        """A bit for each of so many numbers: how its leading digits, those behind a shift, compare with others."""
        b, beside = self.b, self.numbers.element(self.b, digits)

        def part(begin: int, lanes: int) -> Val:
            own = self.digits(b.add(at, begin), lanes)
            own = b.binary("lshr", own, b.splat(b.const(beside.type, shift), lanes)) if shift else own
            return b.compare(how, own, b.splat(beside, lanes))

        return self._bits(count, part)

    def single(self, how: str, at: Val, shift: int, digits: Val) -> Val:
        """Whether the leading digits of one number compare so."""
        b, own = self.b, self.digits(at)
        own = b.binary("lshr", own, b.const(own.type, shift)) if shift else own
        return b.compare(how, own, self.numbers.element(b, digits))

    def _bits(self, count: int, part: Callable[[int, int], Val]) -> Val:
        b, lanes = self.b, min(LANES, count)
        bits = b.i64(0)
        for begin in range(0, count, lanes):
            found = b.convert("zext", b.convert("bitcast", part(begin, lanes), f"i{lanes}"), "i64")
            bits = b.binary("or", bits, b.binary("shl", found, b.i64(begin)) if begin else found)
        return bits

    def _keys(self, at: Val, lanes: int) -> Val:
        b, size = self.b, self.numbers.size
        scalar = f"i{8 * size}"

        def of(kind: str) -> str:
            return f"<{lanes} x {kind}>" if lanes > 1 else kind

        def all_of(value: Val) -> Val:
            return b.splat(value, lanes) if lanes > 1 else value

        def number(value: int) -> Val:
            return all_of(b.const(scalar, value))

        if self.kind != "f":
            value = b.load(self.numbers.pointer, at, of(scalar))
            return self._without_sign(value, lanes) if self.absolute and self.kind == "i" else value
        missing = number((0x7FF << 52 if size == 8 else 0xFF << 23) + 1)
        if self.absolute:
            value = b.load(self.numbers.pointer, at, of(scalar))
            return b.min(b.and_(value, number(2 ** (8 * size - 1) - 1)), missing)
        kind = "double" if size == 8 else "float"
        value = b.load(self.numbers.pointer, at, of(kind))
        bits = b.convert("bitcast", b.binary("fadd", value, all_of(b.const(kind, 0.0))), of(scalar))  # zeros are equal
        flipped = b.binary("lshr", b.binary("ashr", bits, number(8 * size - 1)), number(1))
        return b.select(b.compare("uno", value, value), missing, b.binary("xor", bits, flipped))

    def _without_sign(self, value: Val, lanes: int) -> Val:
        """The absolute value, as an unsigned number."""
        name = f"{f'v{lanes}' if lanes > 1 else ''}i{8 * self.numbers.size}"
        return self.b.call(f"llvm.abs.{name}", value.type, [value, self.b.const("i1", 0)])
