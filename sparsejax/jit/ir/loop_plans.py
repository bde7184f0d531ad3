"""How every loop of a program runs, as data: made by `rewrite/iteration`, emitted by `codegen`.

    forall i                     range, in steps               no leader: every coordinate
      where w: scalar
        forall j                 A[i,j]: unrolled, tail masked, prefetch ahead
          w += A[i,j] * x[j]
      then ...

A loop is planned as it is emitted: a body that is emitted twice, where an access is stored and where it is not, has loops of two kinds. So a
plan is found by the statement of the loop, as it is left then, and by what surrounds it (`LoopKey`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sparsejax.jit.ir import cin

Leaders = frozenset[cin.Access]
Cases = Mapping[Leaders, cin.Stmt]


class Accumulator(NamedTuple):
    """A scalar workspace in a register: whether it is `marked` once something was written, and whether it is an `exact` sum."""

    marked: bool = False
    exact: bool = False


class LoopKey(NamedTuple):
    """A loop as it is emitted: its statement; inside a strip of registers or not; with sums taken entry by entry or not; and the
    accumulators outside of it that it writes."""

    stmt: cin.Forall
    in_tile: bool
    scalar_sums: bool
    accumulators: tuple[tuple[str, Accumulator], ...]

    def __hash__(self) -> int:
        return hash((self.stmt.var, self.in_tile, self.scalar_sums, *[w.lhs for w in cin.writes(self.stmt)]))

    @staticmethod
    def of(stmt: cin.Forall, in_tile: bool, scalar_sums: bool, known: Mapping[str, Accumulator]) -> LoopKey:
        """The key of a loop inside accumulators that are `known`."""
        written = dict.fromkeys(w.lhs.tensor.name for w in cin.writes(stmt) if w.lhs.tensor.policy == "scalar")
        return LoopKey(stmt, in_tile, scalar_sums, tuple((name, known[name]) for name in written if name in known))


class Walk(NamedTuple):
    """How the next level of a leader is walked: its number, and whether a coordinate fills a range of places (`ranged`)."""

    access: cin.Access
    level: int
    ranged: bool
    consecutive: bool
    """Whether places are consecutive."""
    placed: bool
    """Whether the place is the position of the next level."""
    contiguous: bool
    """Whether the coordinates are consecutive too."""
    in_runs: bool
    """Whether ranges of coordinates share a position."""
    group: int
    """How many slots come together: a segment starts with a group, and places behind its end are slots up to the end of its last group."""

    @property
    def side_by_side(self) -> bool:
        """Whether the places of a walk are consecutive and each has its own coordinate."""
        return self.consecutive and not self.ranged

    @property
    def last(self) -> bool:
        """Whether the level is the last one."""
        return self.level + 1 == len(self.access.indices)


@dataclass(frozen=True)
class RowSums:
    """A body that sums up `stmt` over `var`, led by `leader`, whose level `level` holds the rows, and goes on with the sum (`row_blocks`)."""

    where: cin.Where
    stmt: cin.Assign
    var: cin.IndexVar
    leader: cin.Access
    level: int


@dataclass(frozen=True)
class Stage:
    """One statement of a body: over the entries of `leader`'s fiber, or once per row (`leader` is None)."""

    stmt: cin.Assign
    var: cin.IndexVar | None = None
    leader: cin.Access | None = None

    def needs_row(self, row: cin.IndexVar) -> bool:
        """Whether a statement over entries depends on their row, but for where these are."""
        read = [a for a in cin.accesses(self.stmt.rhs) if a != self.leader and not a.computed]
        return self.reduces or any(a.tensor.policy == "scalar" or row in a.indices for a in read)

    @property
    def reduces(self) -> bool:
        """Whether a statement over entries accumulates into a register."""
        return self.leader is not None and self.stmt.lhs.tensor.policy == "scalar"


@dataclass(frozen=True)
class RowStages:
    """A body made of stages, each of which may run over a whole block of rows before the next one does (`distributed`)."""

    stages: tuple[Stage, ...]
    registers: Mapping[cin.Tensor, np.dtype[Any]]
    """What is kept per row, and the type in which it is accumulated."""
    leaders: tuple[cin.Access, ...]
    """One for every operand that is walked."""

    @property
    def single(self) -> bool:
        """Whether one statement alone runs over entries."""
        return sum(stage.leader is not None for stage in self.stages) == 1

    def numbered(self, row: cin.IndexVar) -> list[cin.Access]:
        """The leaders of statements that depend on more of a row than its entries."""
        asked = {s.leader.tensor.name for s in self.stages if s.leader is not None and s.needs_row(row)}
        return [a for a in self.leaders if a.tensor.name in asked]


@dataclass(frozen=True)
class PositionWalk:
    """Loops over the levels of `leader` from `level` on that share positions, walked as one (`rewrite/position_walks`): `stmt` at every position. Where
    `where` is between the loops, the coordinates of a segment are those of the first `rows` variables."""

    leader: cin.Access
    level: int
    vars: tuple[cin.IndexVar, ...]
    stmt: cin.Stmt
    where: cin.Where | None = None
    rows: int = 0

    def __str__(self) -> str:
        return f"over {', '.join(map(str, self.vars))}"


@dataclass(frozen=True)
class LoopPlan:
    """How one loop runs. `shape`, `range`, `tail` and `prefetch` are alternatives of the choices of these names (`alternatives`)."""

    leaders: tuple[cin.Access, ...]
    """The accesses that are walked; all others follow."""
    cases: Cases
    """For each set of leaders that matters, what is left to do where only these are present, the largest first."""
    parts: tuple[Leaders, ...] = ()
    """Of a body of independent parts, in place of cases: the sets of leaders where one of these has something to do."""
    shape: str = ""
    """Empty: there is nothing to do."""
    rest: str = ""
    """The shape of the second pass of a loop that overwrites what a first one over all coordinates wrote (`first`: how)."""
    first: str = "steps"
    range: str = "steps"
    """How ranges of coordinates are visited."""
    tail: str = "scalar"
    copies: int = 1
    """How many sums run at once, of a walk that accumulates; how many slots are visited side by side, of one in groups."""
    prefetch: bool = False
    streamed: bool = False
    """Whether a walk that fetches ahead does so with what it reads itself, once for every segment."""
    streams: tuple[cin.Access, ...] = ()
    """What a loop over all coordinates reads of dense operands row by row, in order and once, of which later rows are fetched."""
    blocks: RowSums | RowStages | None = None
    rows: int = 0
    """How many coordinates make a block, of a loop that runs in blocks."""
    walk: PositionWalk | None = None
    """The loops that are one with this one, of a walk over positions."""
    unordered: cin.Tensor | None = None
    """An operand that would have to be walked in order and has none: it is converted first (`legalize`)."""

    def __str__(self) -> str:
        leaders = " ".join(map(str, self.leaders))
        how = (
            [self.shape if self.shape != "overwrite" else f"overwrite, {self.rest}"]
            if self.shape
            else ["nothing to do"]
        )
        if self.shape in ("range", "band", "runs", "gaps", "overwrite"):
            how.append(f"in {self.range}" if self.range != "once" else "at once")
        if self.walk is not None:
            how[0] += f" {self.walk}"
        if self.rows:
            how.append(f"blocks of {self.rows}")
        if self.tail != "scalar":
            how.append(f"tail {self.tail}")
        if self.prefetch or self.streams:
            how.append("prefetch" + (", of its own too" if self.streamed else ""))
        return f"{leaders}: {', '.join(how)}" if leaders else ", ".join(how)


@dataclass(frozen=True)
class LoopPlans:
    """The plans of all loops of a program, in the order in which they are emitted."""

    plans: Mapping[LoopKey, LoopPlan] = field(default_factory=dict)
    selected: frozenset[cin.Assign] = frozenset()
    """Insertions under a mask that are computed for every entry, without a jump (`rewrite/masked_inserts`): as they are left where it holds."""

    def note(self, stmt: cin.Forall) -> str:
        """How the loop of a statement runs, in words; nothing where it is emitted in parts only."""
        return next((str(plan) for key, plan in self.plans.items() if key.stmt is stmt or key.stmt == stmt), "")

    @property
    def unordered(self) -> cin.Tensor | None:
        """The first operand that would have to be walked in order and has none."""
        return next((p.unordered for p in self.plans.values() if p.unordered is not None), None)
