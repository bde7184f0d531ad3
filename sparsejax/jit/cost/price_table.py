"""What a machine charges: a frozen table of nanoseconds and bytes. Every price of the compiler is made of these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Levels = tuple[float, float, float]
"""One number for the second-level cache, the third-level cache, and memory."""


@dataclass(frozen=True)
class Machine:
    """Prices in nanoseconds, sizes in bytes."""

    name: str
    caches: Levels
    """Bytes of the first, second and third-level caches that one core has, or shares."""

    call: float
    """A kernel: its inputs are bound, its result is allocated."""
    iterate: float
    """An iteration of a scalar loop over entries."""
    enter: float
    """A run of an inner loop that sparse operands lead, and that has any iteration: it ends where nobody foresees it."""
    row: float
    """The same in rows of few entries that are taken in blocks, whose ends are foreseen."""
    lone: float
    """The same of rows whose entries lead to nothing, as those of a sum of rows: loads of one row wait for none of another."""
    short: float
    """Entries of a row, on average, up to which rows are taken in blocks."""
    lane: float
    """8 bytes of an innermost dense loop, in a vector."""
    strided: float
    """An element of an innermost dense loop that walks an operand with a stride."""
    start: float
    """A row of a register tile: its running sums are cleared and stored."""
    chain: float
    """A step of a sum that waits for the step before it: a product that is added."""
    merge: float
    """A step of operands that are walked together, which advances at least one of them."""
    lookup: float
    """A coordinate that is looked up in a scattered fiber, and one more where it is found."""
    miss: float
    """A branch that goes where the processor does not foresee it."""
    scatter: float
    """An entry that is scattered, and forgotten again."""
    take: float
    """A value that goes to its place in a copy whose pattern is remembered: 0.7 to 3.8 measured, most where caches are left."""
    arithmetic: float
    """An operator per lane, beside the loop that it stands in."""
    function: float
    """A function that takes a polynomial, or a division of long latency, per lane."""
    multiply: float
    """A multiplication of a product of dense operands, in BLAS."""
    workspace: float
    """What workspaces cost, as times the table of `workspace_price`."""

    conversion: float
    """What conversions cost, as times the table of `conversion_price`."""

    line: Levels
    """A cache line anywhere, that the caches so far do not hold: what it costs more to come from each level."""
    stream: Levels
    """The same of lines that follow one another."""
    write: Levels
    """A line of a result, written anywhere."""
    fill: Levels
    """The same of lines that follow one another."""
    split: float
    """A line of the second cache whose vectors lie across two lines, beside what it costs else."""
    store: float
    """An entry that is stored between two kernels: pages that are touched for the first time."""
    append: float
    """An entry of a part of a sparse result that is kept for some loops: written and read again in the cache."""
    close: float
    """A part of a sparse result below a sparse level, which stays empty or not: it is begun, and closed when its loops are through."""
    whole: float
    """An entry of a result that is kept whole."""
    gather: float
    """An entry that is kept and then leads to memory out of the cache: a loop over all entries starts many such reads at once, that over a few
    stops after each row (measured on attention over 5,000 to 20,000 rows: 12 for 2.5 MB, 25 for 10 MB)."""
    stall: float
    """A run of loops that statements share, in which one of them reads lines anywhere, out of the caches: the next run's are not read ahead, as its
    end is not foreseen (layers of a graph network over 65,536 and 100,000 rows: 75 measured); where it is, no longer than other statements are busy."""
    look: float
    """An element of an operand whose values are checked before every call."""
    remember: float
    """A copy whose pattern is remembered, beside its values."""
    compile: float
    """Another kernel is planned and compiled."""
    calls: float
    """Calls that are assumed to read an operand that stays, where nothing is known of them: each pays such a part of a copy that stays with it."""

    def looked_up(self, hits: float) -> float:
        """A coordinate that is looked up where a share of them is found: a branch that goes the other way less often than not is foreseen else.

        >>> from sparsejax.jit.cost.machines import ZEN4
        >>> [round(ZEN4.looked_up(hits), 2) for hits in (0.0, 0.1, 0.5, 1.0)]
        [0.8, 1.78, 5.7, 1.6]
        """
        found = min(1.0, hits)
        return self.lookup * (1.0 + found) + self.miss * min(found, 1.0 - found)

    def ended(self, length: float) -> float:
        """A run of a loop over entries that has one at least, and so many on average: where most have one, a branch goes where the processor does not
        foresee it for those that have more.

        >>> from sparsejax.jit.cost.machines import ZEN4
        >>> [round(ZEN4.ended(length), 2) for length in (1.0, 1.1, 2.0, 30.0)]
        [0.0, 0.9, 5.0, 5.0]
        """
        return min(self.enter, self.miss * max(0.0, length - 1.0))

    def merged(self, met: float) -> float:
        """A step of operands that are walked together where a share of the steps finds a coordinate in all of them: a branch that goes the other way
        less often than not is foreseen else.

        >>> from sparsejax.jit.cost.machines import ZEN3
        >>> [round(ZEN3.merged(met), 2) for met in (0.0, 0.1, 0.5, 1.0)]
        [2.9, 3.8, 7.4, 2.9]
        """
        return self.merge + self.miss * min(met, 1.0 - met)

    def together(self, lengths: Sequence[float], met: float | None, extent: float, work: float) -> float:
        """What an iteration of a loop over `extent` coordinates costs that several operands lead, with so many each, of `work` of them. They meet in
        `met` coordinates; None: by chance. One step there advances them all.

        >>> from sparsejax.jit.cost.machines import ZEN3
        >>> [round(ZEN3.together([4.0, 4.0], met, 100.0, 8.0), 2) for met in (None, 2.0, 4.0)]
        [3.02, 4.43, 1.45]
        >>> ZEN3.together([0.0, 0.0], None, 0.0, 0.0)  # no coordinates at all
        2.9
        """
        if work > sum(lengths):  # all coordinates are walked
            return self.merge
        known = extent * math.prod(n / max(1.0, extent) for n in lengths) if met is None else min(met, *lengths)
        steps = max(work - (len(lengths) - 1) * known, known, 1e-9)
        return self.merged(known / steps) * steps / max(1e-9, work)

    def beyond(self, size: float) -> Levels:
        """The fraction of `size` bytes that none of the caches up to each level holds.

        >>> from sparsejax.jit.cost.machines import ZEN4
        >>> ZEN4.beyond(1 << 20)
        (0.96875, 0.0, 0.0)
        """
        first, second, third = self.caches
        size = max(1.0, size)
        return max(0.0, 1.0 - first / size), max(0.0, 1.0 - second / size), max(0.0, 1.0 - third / size)
