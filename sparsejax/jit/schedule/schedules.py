"""What the schedulers decide: a loop order with its cost, and what goes with it."""

from __future__ import annotations

from dataclasses import dataclass

from sparsejax.formats import Format
from sparsejax.jit.ir import cin
from sparsejax.jit.schedule import placement


@dataclass(frozen=True)
class Cost:
    """What an order is expected to cost, in iterations of a scalar loop: its loops, its output, its conversions."""

    loops: float
    output: float
    conversions: float

    @property
    def total(self) -> float:
        return self.loops + self.output + self.conversions

    def __str__(self) -> str:
        parts = f"loops {self.loops:.4g} + output {self.output:.4g} + conversions {self.conversions:.4g}"
        return f"{self.total:.4g} = {parts}"


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


def unpriced(order: tuple[cin.IndexVar, ...], workspace: str | None = None) -> Schedule:
    """A loop order that nobody chose, with a policy for the workspace of a sparse result: for tests and experiments."""
    return Schedule(order, (), Cost(0.0, 0.0, 0.0), workspace=workspace)
