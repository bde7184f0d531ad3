"""Extents of which a kernel knows a bound alone, so that it serves many shapes.

    A[n:d,m:c], n at most 4095, m at most 255         is planned as if it were A[4095:d,255:c]

A plan for the largest shape of a bucket is right for every smaller one: code reads extents at run time, and asks of their types only how many
bits coordinates take (`words_of`), which of two loops is long enough for wide vectors, and whether some are left over, as they are
when the extent is one less than a power of two. What is stored in memory is never that large.
"""

from __future__ import annotations

from typing import Any

STEP = 4
"""Bits by which bounds grow, so that there are few plans; half as many from `FINE` bits on, where a plan takes no time beside the kernel."""
FINE = 16


class Bounded(int):
    """An extent that is at most this number. Two are equal if they have one name: each stands for one expression of symbols.

    >>> n, m = Bounded.named("n", 300), Bounded.named("m", 300)
    >>> n, n == m, n == 4095, n <= 4095, [n] == [Bounded.named("n", 17)]
    (n<=4095, False, False, True, False)
    """

    name: str
    usual: int
    """The value that it had when something was planned for it first, or the `middle` of the bucket: what is decided once for a whole program is decided for
    extents as these."""

    @staticmethod
    def named(name: str, value: int) -> Bounded:
        """The extent of that name whose value is now `value`."""
        made = Bounded(bound(value))
        made.name, made.usual = name, int(value)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bounded) and self.name == other.name and int(self) == int(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.name, int(self)))

    def __repr__(self) -> str:
        return f"{self.name}<={int(self)}"

    __str__ = __repr__

    def __mod__(self, size: int) -> Bounded:
        """What is left of the extent beyond blocks of a size: anything below it."""
        made = Bounded(size - 1)
        made.name, made.usual = f"({self.name})%{size}", size - 1
        return made

    def __reduce__(self) -> Any:
        return Bounded._again, (self.name, int(self))

    @staticmethod
    def _again(name: str, value: int) -> Bounded:
        return Bounded.named(name, value)


def middle(value: int) -> int:
    """The extent in the middle of the bucket of this one, as products are.

    >>> middle(5), middle(300), middle(4095), middle(70_000)
    (4, 1024, 1024, 131072)
    """
    most = bound(value)
    return most + 1 >> (STEP // 2 if most.bit_length() <= FINE else STEP // 4)


def bound(value: int) -> int:
    """The bound of the bucket of an extent: one less than a power of two. Those of 31 bits and less, whose coordinates are int32, are apart.

    >>> bound(5), bound(15), bound(16), bound(300), bound(70_000)
    (15, 15, 255, 4095, 262143)
    >>> bound(2**31 - 1) == 2**31 - 1, bound(2**31) == 2**32 - 1
    (True, True)
    """
    bits = STEP
    while value >= 1 << bits:
        bits += STEP if bits < FINE else STEP // 2
    return (1 << (31 if value < 1 << 31 <= 1 << bits else bits)) - 1
