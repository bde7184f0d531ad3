"""Sums of floating-point numbers in registers, without loss of digits.

float32 and complex64 are summed in double precision and rounded once. Doubles are summed with what rounding loses collected
beside them:

    t = s + x                           the rounded sum, and all that the next term waits for
    b = t - s
    c = c + ((s - (t - b)) + (x - b))   the exact error of that addition
    s = t

The total is `s + c`: one rounding, and n^2 roundings of roundings for n terms. Where `s` overflowed or met infinity, `c` is
not a number and the total is `s`. Terms that were rounded before (products) are added four by four first, in lanes
(`vectors`). So are summed what has no loop around it, and dense operands, where NumPy sums in pairs.
Products and sparse operands inside other loops (rows of a matrix product) are summed plainly in double precision, as in SciPy
and BLAS: short sums out of the cache, where every addition shows (a factor of two, measured). Products along a dense dimension for every
entry of a sparse walk (sampled products) are summed in their own precision, `narrow`, in as many sums as a vector has lanes, as in
BLAS: converting both factors took as long as all else.

In lanes, four of these seven additions are products with one, to which the other number is added: exactly the same numbers, from units of the
processor that have nothing else to do (a million doubles: 0.18 ms instead of 0.31, Zen 3). The one is hidden from LLVM, which would make
additions of them.

Source: D. E. Knuth, TAOCP volume 2, section 4.2.2 (the exact error of an addition); Neumaier's summation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.jit.backend import host
from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.backend.types import lanes_of, vector_of
from sparsejax.jit.codegen import complex_parts, emit
from sparsejax.jit.rewrite.summation import wide


def _hidden(b: Builder, value: float) -> Val:
    """A number that nothing is known about."""
    return b.call("llvm.arithmetic.fence.f64", "double", [b.const("double", value)])


def _nothing(type: str) -> Val:
    """Zero in all lanes of a type."""
    return Val("zeroinitializer", type)


class Sum:
    """A running sum of numbers of `dtype`, one lane or many; `exact` collects what rounding loses, a `narrow` one rounds to `dtype` all along. The
    lanes of a `lasting` sum, which is around all loops, are its own: all loops that add to it share them, and they are added up once, at the end."""

    def __init__(
        self,
        b: Builder,
        name: str,
        dtype: np.dtype[Any],
        exact: bool,
        lanes: int = 1,
        narrow: bool = False,
        lasting: bool = False,
        shared: tuple[list[Var], list[Var]] | None = None,
    ) -> None:
        self.dtype, self.narrow = dtype, narrow
        self.wide = dtype if narrow else wide(dtype)
        self.exact = exact and dtype == self.wide
        self.lasting = lasting and self.exact
        self.owned = shared is not None
        """Whether these lanes are those of another sum, which adds them up."""
        self._own: dict[tuple[int, int], tuple[list[Var], list[Var]]] = {}
        if shared is not None:
            self._sums, self._lost = shared
        else:
            start = emit.splat(b, emit.constant(b, 0, self.wide), lanes)
            self._sums = [b.var(name, p) for p in start.parts]
            self._lost = [b.var(f"{name}_lost", p) for p in start.parts] if self.exact else []
        self._ones: tuple[Val, Val] | None = None
        """One and minus one in lanes, where sums and differences are also products with these."""
        if self.exact and lanes > 1 and host.has("fma"):
            one, minus = (b.splat(_hidden(b, x), lanes) for x in (1.0, -1.0))
            self._ones = one, minus

    def in_lanes(self, b: Builder, lanes: int, copy: int = 0) -> Sum:
        """A sum like this one in so many lanes, which is to be absorbed unless it is `owned`; another one for every `copy`."""
        shared = None
        if self.lasting:
            if (lanes, copy) not in self._own:
                nothing = _nothing(vector_of("double", lanes))
                names = [f"{name}{k}" for name in ("lanes", "lanes_lost") for k in range(len(self._sums))]
                made = [b.lasting(name, nothing) for name in names]
                self._own[lanes, copy] = made[: len(self._sums)], made[len(self._sums) :]
            shared = self._own[lanes, copy]
        return Sum(b, "lanes", self.dtype, self.exact, lanes, self.narrow, shared=shared)

    def _settle(self, b: Builder) -> None:
        """Add up the lanes, which begin anew."""
        for (lanes, _), shared in self._own.items():
            self.absorb(b, Sum(b, "lanes", self.dtype, self.exact, lanes, self.narrow, shared=shared))
            for var in (*shared[0], *shared[1]):
                b.set(var, _nothing(var.type))

    def add(self, b: Builder, value: emit.Num) -> None:
        """Add `value` (as many lanes as the sum)."""
        parts = emit.cast(b, value, self.wide).parts
        for k, (total, part) in enumerate(zip(self._sums, parts, strict=True)):
            old = b.get(total)
            new = b.binary("fadd", old, part)
            if self.exact:
                moved = b.binary("fsub", new, old)
                kept = self._less(b, old, self._less(b, new, moved))
                error = self._plus(b, kept, self._less(b, part, moved))
                b.set(self._lost[k], b.binary("fadd", b.get(self._lost[k]), error))
            b.set(total, new)

    def _plus(self, b: Builder, x: Val, y: Val) -> Val:
        return (
            b.binary("fadd", x, y) if self._ones is None else complex_parts.intrinsic(b, "fma", [y, self._ones[0], x])
        )

    def _less(self, b: Builder, x: Val, y: Val) -> Val:
        return (
            b.binary("fsub", x, y) if self._ones is None else complex_parts.intrinsic(b, "fma", [y, self._ones[1], x])
        )

    def plain(self, b: Builder) -> emit.Num:
        """The sum in every lane, not rounded, without what was collected beside it."""
        return emit.Num(self.wide, tuple(map(b.get, self._sums)))

    def get(self, b: Builder) -> emit.Num:
        """The total so far, rounded to `dtype`."""
        self._settle(b)
        parts = []
        for k, total in enumerate(self._sums):
            plain = b.get(total)
            if self.exact:
                lost = b.get(self._lost[k])
                plain = b.select(b.compare("oeq", lost, lost), b.binary("fadd", plain, lost), plain)
            parts.append(plain)
        return emit.cast(b, emit.Num(self.wide, tuple(parts)), self.dtype)

    @property
    def width(self) -> int:
        """How many doubles `save` writes."""
        return len(self._sums) + len(self._lost)

    def save(self, b: Builder, pointer: Val, place: Val) -> None:
        """Write the sum with all its digits to `pointer[place]` and on."""
        self._settle(b)
        for k, var in enumerate((*self._sums, *self._lost)):
            b.store(pointer, b.add(place, k), b.get(var))

    def merge(self, b: Builder, pointer: Val, place: Val) -> None:
        """Add a sum like this one that was saved."""
        parts = [b.load(pointer, b.add(place, k), "double", "part") for k in range(self.width)]
        self.add(b, emit.Num(self.wide, tuple(parts[: len(self._sums)])))
        if self._lost:
            lost = (b.select(b.compare("oeq", x, x), x, b.const("double", 0.0)) for x in parts[len(self._sums) :])
            self.add(b, emit.Num(self.wide, tuple(lost)))

    def absorb(self, b: Builder, lanes: Sum) -> None:
        """Add all lanes of another sum, and what they lost."""
        for parts in filter(None, (lanes._sums, lanes._lost)):
            vectors = [b.get(part) for part in parts]
            count = lanes_of(vectors[0].type)
            if parts is lanes._lost:
                zero = b.splat(b.const("double", 0.0), count)
                vectors = [b.select(b.compare("oeq", v, v), v, zero) for v in vectors]
            for lane in range(count):
                self.add(b, emit.Num(self.wide, tuple(b.extract(v, lane) for v in vectors)))
