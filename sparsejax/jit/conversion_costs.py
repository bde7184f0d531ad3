"""What it costs to copy an operand into another format (`formats.convert`): a sum of terms, each a count times a constant.

`terms` counts, `NANOSECONDS` holds the constants: `python -m benchmarks.calibrate` measures conversions, fits and prints them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparsejax.formats import Compressed, Coordinate, Dense, Format
from sparsejax.formats.passes import MANY

CACHE = 1 << 20  # bytes of a second-level cache

# Rounded from fits of `python -m benchmarks.calibrate` on an AMD EPYC, one thread (`root` is set by hand). A nanosecond is about an iteration of a
# scalar loop. What a conversion costs per call is that of the NumPy calls which it is made of.
NANOSECONDS = {
    "call": 40_000.0,
    "call_expand": 12_000.0,
    "expand": 1.2,
    "column": 1.7,
    "call_sort": 10_000.0,
    "sort": 6.4,
    "sort_far": 10.0,
    "compress": 4.5,
    "turn": 9.0,
    "root": 1.0,
}


def terms(before: Format, after: Format, shape: Sequence[int], entries: float) -> dict[str, float]:
    """The counts of one conversion of an array with so many entries.

    >>> terms(Format.parse("coo", 2), Format.parse("csc", 2), (10, 20), 30.0)
    {'call': 1.0, 'root': 20.0, 'column': 60.0, 'call_sort': 1.0, 'sort': 30.0, 'sort_far': 0.0}
    >>> terms(Format.parse("csr", 2), Format.parse("csc", 2), (10, 20), 1e5)["turn"]
    100000.0
    """
    dense = isinstance(after.levels[0], Dense)
    made = {"call": 1.0, "root": float(shape[after.order[0]]) if dense else 0.0}
    if before.levels == after.levels == (Dense(), Compressed()) and entries >= MANY:
        return {**made, "turn": entries}
    if not isinstance(before.levels[-1], Coordinate):
        made |= {"call_expand": 1.0, "expand": entries}
    if not dense:
        made["compress"] = entries
    made["column"] = entries * after.ndim
    sorts = float(passes(before.order, after.order))
    if sorts:
        made |= {"call_sort": sorts, "sort": sorts * entries, "sort_far": sorts * entries * missed(16.0 * entries)}
    return made


def passes(before: tuple[int, ...], after: tuple[int, ...]) -> int:
    """How many dimensions entries are sorted by: those in front of what is in order already (`ordering.sort_order`).

    >>> passes((0, 1, 2), (2, 0, 1)), passes((0, 1, 2), (2, 1, 0))
    (1, 2)
    """
    return 0 if before == after else next(k for k in range(len(after) + 1) if after[k:] == before[: len(after) - k])


def cost(before: Format, after: Format, shape: Sequence[int], entries: float) -> float:
    """The cost of one conversion in nanoseconds."""
    return sum(NANOSECONDS[name] * count for name, count in terms(before, after, shape, entries).items())


def missed(size: float) -> float:
    """The fraction of accesses to random places among `size` bytes that miss the cache."""
    return min(1.0, max(0.0, math.log2(max(1.0, size / CACHE)) / 4))
