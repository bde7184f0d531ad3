"""What operations, bytes and tasks cost, and what is known of a value by which they are counted.

Prices are fixed, and no `Machine`'s: that of the client must not decide what the graph is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Eqn
from sparsejax.dask.cuts import Cut
from sparsejax.dask.layouts import Rule

BYTE, TASK = 1.0, 2e5
"""Prices in nanoseconds: a byte at 1 GB/s between processes of one machine or over 10 Gbit/s, and a task of Dask's (`benchmarks/dask_scaling.py`)."""
VISIT, LANE, PRODUCT, MULTIPLY = 1.8, 0.9, 5.2, 0.05
"""Nanoseconds of an operation, measured by `benchmarks/dask_simulation.py`: an entry that reads one number of a dense operand; that times each column of one; a
multiplication of two sparse operands; one of dense operands, for four bytes. Others take a nanosecond."""


@dataclass
class Known:
    """What prices depend on: the type of a value, how its axes are cut, and the entries that it is expected to store."""

    aval: Aval
    cuts: tuple[Cut, ...]
    entries: float

    @property
    def bytes(self) -> float:
        """Of the whole value."""
        return self.entries * bytes_per_entry(self.aval)

    @property
    def count(self) -> int:
        """The number of blocks."""
        return math.prod(len(c) - 1 for c in self.cuts)

    @property
    def block_bytes(self) -> float:
        """Of one block, on average."""
        return self.bytes / max(self.count, 1)


def rate(eqn: Eqn, rule: Rule) -> float:
    """Nanoseconds of an operation of an equation.

    y = A @ x    VISIT        Y = A @ X    LANE        C = A @ B    PRODUCT        of a dense A: MULTIPLY
    """
    if rule.op is None or len(eqn.inputs) < 2:
        return 1.0
    named = [(a.aval, own) for a, own in zip(eqn.inputs, rule.operands, strict=True)]
    sparse = [own for aval, own in named if not aval.is_dense]
    if not sparse:
        return MULTIPLY * max(aval.dtype.itemsize for aval, _ in named) / 4
    if len(sparse) > 1:
        return PRODUCT
    last = rule.outputs[0][-1:]
    return LANE if last and last[0] is not None and last[0] not in sparse[0] else VISIT


def bytes_per_entry(aval: Aval) -> float:
    """Bytes that an entry takes: its value, and coordinates of four bytes for the levels that store them."""
    return aval.dtype.itemsize + (
        0 if aval.is_dense else 4 * max(1, sum(level.letter != "d" for level in aval.format.levels))
    )
