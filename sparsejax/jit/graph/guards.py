"""Whether products of several arrays are the same in any order, but for rounding: what is checked where they are associated otherwise.

    zero finite       no NaN or infinity, and no number so large that a product of all could overflow
    zero infinite     no NaN, and not the opposite infinity: `zero` itself absorbs, and no product meets what it does not absorb

Arrays never change, so that each is looked at once, and remembers. What a program computes is looked at in every call, before the step
that needs it; a product of arrays is not looked at, but what it is made of.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.jaxpr import Var
from sparsejax.formats.storage import Storage

ORDER = 1.9
"""The sum of the squares of each of n arrays is at most the largest number to the power of this over n."""


@dataclass(frozen=True)
class Check:
    """A value that is one of several factors, over a ring with this zero."""

    var: Var
    zero: float
    factors: int


Asked = tuple[int, float, int]
"""A register that is looked at, and what `is_moderate` is asked of it."""


@dataclass(frozen=True)
class Placed:
    """Checks of registers, by the step before which they are made."""

    before: Mapping[int, Sequence[Asked]]

    @property
    def later(self) -> bool:
        """Whether there is one after the first step."""
        return any(self.before)

    @property
    def registers(self) -> frozenset[int]:
        """What is looked at."""
        return frozenset(k for checks in self.before.values() for k, _, _ in checks)

    def hold(self, number: int, registers: Sequence[Storage]) -> bool:
        """Whether values are as they must be before a step."""
        return all(is_moderate(registers[k], zero, factors) for k, zero, factors in self.before.get(number, ()))


NOTHING = Placed({})
"""No checks."""


def placed(checks: Sequence[Check], numbers: Mapping[Var, int], made: Sequence[range]) -> Placed:
    """Every check as soon as its value is in its register; `made` are the registers that every step makes."""
    found: dict[int, dict[Asked, None]] = {}
    for check in checks:
        register = numbers[check.var]
        before = next((k + 1 for k, registers in enumerate(made) if register in registers), 0)
        found.setdefault(before, {})[register, check.zero, check.factors] = None
    return Placed({before: tuple(asked) for before, asked in found.items()})


def is_moderate(storage: Storage, zero: float, factors: int) -> bool:
    """Whether an array is as one of so many factors must be; looked at once."""
    key = "moderate", zero, factors
    known: bool | None = storage.cache.get(key)
    if known is None:
        known = storage.cache[key] = _is_moderate(storage.vals, zero, factors)
    return known


def _is_moderate(values: NDArray[Any], zero: float, factors: int) -> bool:
    if values.dtype.kind not in "fc" or not values.size:
        return True
    if not math.isfinite(zero):
        return bool(values.min() > -np.inf if zero > 0 else values.max() < np.inf)
    real = values.view(values.real.dtype) if values.dtype.kind == "c" else values
    # `vdot`, as it does not warn of overflows: `dot` would have to be kept from that, which takes longer than the sum
    return bool(np.vdot(real, real) <= _most(real.dtype, factors))


@functools.lru_cache(maxsize=256)
def _most(dtype: np.dtype[Any], factors: int) -> float:
    """What the sum of the squares may be."""
    return float(float(np.finfo(dtype).max) ** (ORDER / factors))
