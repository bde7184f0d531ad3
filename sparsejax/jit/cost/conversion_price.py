"""Which copies of operands loops want, and what a copy in another format costs (`formats.convert`): a sum of terms, each a count times a constant.

`terms` counts, `NANOSECONDS` holds the constants: `python -m benchmarks.calibrate` measures conversions, fits and prints them.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparsejax.formats import Format, ordering
from sparsejax.formats.convert import counting_sorts
from sparsejax.formats.passes import MANY
from sparsejax.jit.cost import machine
from sparsejax.jit.cost.machine import FAR, missed

DIGITS = 65536.0  # larger extents than this, and than the entries, are sorted by digits

# Rounded from fits of the kind that `python -m benchmarks.calibrate` makes, on an AMD EPYC, one thread; other machines charge so many times as much
# (`Machine.conversion`). What a conversion costs per call is that of the NumPy calls which it is made of.
NANOSECONDS = {
    "call": 43_000.0,
    "call_expand": 15_000.0,
    "expand": 0.4,
    "expand_root": 0.8,
    "column": 0.3,
    "compress": 0.5,
    "call_sort": 12_000.0,
    "sort_few": 12.0,
    "sort": 5.0,
    "sort_far": 0.5,
    "histogram": 0.6,
    "root": 0.6,
    "plan": 4_000.0,
    "count": 1.7,
}
"""The last two are of conversions in one kernel call (`conversions`), where columns cost what it takes to expand them."""


def terms(before: Format, after: Format, shape: Sequence[int], entries: float) -> dict[str, float]:
    """The counts of one conversion of an array with so many entries.

    >>> terms(Format.parse("coo", 2), Format.parse("csc", 2), (10, 20), 30.0)
    {'call': 1.0, 'column': 60.0, 'root': 20.0, 'call_sort': 1.0, 'sort_few': 30.0}
    """
    counted = counting_sorts(before, after) if MANY <= entries < FAR else None
    made = {"call": 1.0, "column": entries * after.ndim} if counted is None else {"plan": 1.0}
    if before.levels[0].full:
        made["expand_root"] = float(shape[before.order[0]])
    if not before.levels[-1].chained:
        made |= {"expand": entries * _segmented(before)} | ({"call_expand": 1.0} if counted is None else {})
    if after.levels[0].full:
        made["root"] = float(shape[after.order[0]])
    distinct = len(after.sparse) - 1 - sum(after.continues(level) for level in after.sparse)
    if distinct > 0 or not after.levels[0].full:
        made["compress"] = entries * max(1, distinct)
    if counted is not None:
        return made | {"count": counted * entries, "sort_far": counted * entries * missed(16.0 * entries)}
    sorts = float(ordering.passes_between(before.order, [(d,) for d in after.order]))
    if sorts and entries < MANY:
        made |= {"call_sort": sorts, "sort_few": sorts * entries}
    elif sorts:
        buckets = sum(min(float(shape[d]), max(DIGITS, entries)) for d in after.order[: int(sorts)])
        far = sorts * entries * missed(16.0 * entries)
        made |= {"call_sort": sorts, "sort": sorts * entries, "sort_far": far, "histogram": buckets}
    return made


def _segmented(form: Format) -> int:
    """Over how many levels entries are counted until each has the coordinates of all: those whose positions lie in segments."""
    return max(1, sum(not form.continues(level) for level in form.sparse if level))


def cost(before: Format, after: Format, shape: Sequence[int], entries: float) -> float:
    """The cost of one conversion in nanoseconds."""
    return machine.current().conversion * sum(
        NANOSECONDS[name] * count for name, count in terms(before, after, shape, entries).items()
    )
