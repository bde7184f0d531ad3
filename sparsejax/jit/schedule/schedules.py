"""What the schedulers decide: a loop order with its cost, and what goes with it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import NamedTuple

from sparsejax.formats import Format
from sparsejax.jit.ir import cin
from sparsejax.jit.schedule import placement


@dataclass(frozen=True)
class Cost:
    """What an order is expected to cost, in nanoseconds of one thread: its loops, waiting for memory, its output, its conversions."""

    loops: float
    memory: float
    output: float
    conversions: float

    @property
    def running(self) -> float:
        """Without conversions: what it costs once copies are there."""
        return self.loops + self.memory + self.output

    @property
    def total(self) -> float:
        return self.running + self.conversions

    def __str__(self) -> str:
        parts = ((f.name, getattr(self, f.name)) for f in fields(self))
        return f"{self.total:.4g} = {' + '.join(f'{name} {ns:.4g}' for name, ns in parts)}"


FREE = Cost(0.0, 0.0, 0.0, 0.0)
IMPOSSIBLE = Cost(math.inf, 0.0, 0.0, 0.0)


def total(costs: Iterable[Cost]) -> Cost:
    """What all of them cost together.

    >>> str(total([FREE, Cost(1.0, 2.0, 0.0, 0.0)]))
    '3 = loops 1 + memory 2 + output 0 + conversions 0'
    """
    found = list(costs)
    return Cost(*(sum(getattr(c, f.name) for c in found) for f in fields(Cost)))


class State(NamedTuple):
    """The loops of an order so far, and what they cost."""

    order: tuple[cin.IndexVar, ...]
    bound: frozenset[cin.IndexVar]
    """Those of `order`."""
    discordant: frozenset[cin.Access]
    cost: float
    survivors: float
    scattered: tuple[str, ...] = ()
    fixed: tuple[tuple[int, float], ...] = ()
    """What scattering costs, with the number of loops around it."""
    leaders: tuple[cin.Access, ...] = ()
    """Of the last loop."""
    thin: float = 1.0
    """The share of `survivors` at which loops inside find entries: the outermost one counts over all positions of copies."""
    operators: tuple[float, float] = (0.0, 0.0)
    """What operators and elementary functions cost, which `cost` has."""


@dataclass(frozen=True)
class Candidate:
    """A loop order with its cost; an infinite one cannot run as one kernel."""

    order: tuple[cin.IndexVar, ...]
    cost: Cost

    def __str__(self) -> str:
        return f"{','.join(map(str, self.order))}: {self.cost}"


@dataclass(frozen=True)
class Loop:
    """One loop of an order: how often it starts, how many iterations it runs in all, how many of these have something
    to do, and the operands that lead it (none: it counts over the whole extent)."""

    var: cin.IndexVar
    starts: float
    iterations: float
    survivors: float
    leaders: tuple[str, ...]


@dataclass(frozen=True)
class Schedule:
    """A loop order, the formats that operands are converted to first, its cost, and the best few of those that were priced."""

    order: tuple[cin.IndexVar, ...]
    conversions: tuple[tuple[str, Format], ...]
    cost: Cost
    candidates: tuple[Candidate, ...] = ()
    workspace: str | None = None
    """The policy of the workspace that the output is scattered through, and why."""
    reason: str = ""
    places: tuple[placement.Place, ...] = ()
    """In a kernel of several statements, where every producer is computed."""
    scattered: tuple[str, ...] = ()
    """Operands whose fibers are scattered into a workspace, where they are read again and again (`scatter_operands`)."""
    registers: frozenset[str] = frozenset()
    """In a kernel of several statements, sparse results that are computed in all of their loops (`placement.statement`)."""
    remembered: Candidate | None = None
    """What is cheaper by a fifth, and gives the same bits, when copies of operands are remembered from earlier calls."""
    at_once: bool = False
    """Whether the copies for that are made in the first call, whatever they cost."""
    panels: tuple[str, Format] | None = None
    """An operand, by name, that is read in panels of rows (`row_panels`), and its format then; loops are over what it splits into."""
    columns: int | None = None
    """How many columns a panel has, outside all loops of `order`, for which operands are packed (`column_panels`)."""
    against: float | None = None
    """The price of doing otherwise, in nanoseconds, where panels were considered: without them, or with."""
    inserted: tuple[float, float] | None = None
    """How many insertions into the workspace are expected, in how many times that it is filled and drained."""


def unpriced(order: tuple[cin.IndexVar, ...], workspace: str | None = None) -> Schedule:
    """A loop order that nobody chose, with a policy for the workspace of a sparse result: for tests and experiments."""
    return Schedule(order, (), FREE, workspace=workspace)
