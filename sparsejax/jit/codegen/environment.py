"""The state of lowering: which variables are bound, how far each access is resolved, what registers hold, and how code is emitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen.emit import Num
from sparsejax.jit.codegen.operands import Registers, Scalar
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import Accumulator, LoopKey
from sparsejax.jit.rewrite.loop_shapes import State


class Cursor(NamedTuple):
    """`level`: the next level to resolve. `pos`: the position reached above it; with `end`, the range [pos, end) of
    positions that share the coordinates so far (inside a coordinate run). `found`: the access is stored only if true.
    `base`: the position above the dense levels that were resolved last."""

    level: int
    pos: Val
    end: Val | None = None
    found: Val | None = None
    base: Val | None = None


@dataclass(frozen=True)
class Brief:
    """A row of `leader` that fits one vector of so many lanes; `values` holds what was kept for it, by tensor."""

    leader: cin.Access
    lanes: int
    values: dict[str, Num] = field(default_factory=dict)

    def covers(self, access: cin.Access, lanes: int) -> bool:
        """Whether a walk over the last level of `access` is one over this row, in so many lanes."""
        levels = range(len(access.indices) - 1)
        same = access.tensor == self.leader.tensor and lanes == self.lanes
        return same and all(access.level_index(k) == self.leader.level_index(k) for k in levels)


@dataclass(frozen=True)
class Rows:
    """The rows of a strip: `count` coordinates of `var` from `first` on; or those that `at` binds, where rows are entries of a walk."""

    var: cin.IndexVar
    first: Val
    count: int
    at: Callable[[Env, int], Env] | None = None
    later: Callable[[Env, int], Env] | None = None
    """The state in a row of the next tile; None where nothing is fetched ahead (`tile_fetches`)."""
    reductions: tuple[cin.IndexVar, ...] = ()
    """What is reduced inside of a tile, of which something is fetched ahead."""
    beside: cin.IndexVar | None = None
    """The second coordinate of rows that are entries of two."""

    @property
    def innermost(self) -> cin.IndexVar | None:
        """The innermost of these."""
        return self.reductions[-1] if self.reductions else None

    def tell(self, access: cin.Access) -> bool:
        """Whether rows read an access each at its own place."""
        bound = cin.bound_by(access)
        return self.var in bound or (self.beside is not None and self.beside in bound)

    def bound(self, b: Builder, env: Env, number: int) -> Env:
        """The state in a row."""
        if self.at is not None:
            return self.at(env, number)
        return env.bind(self.var, b.add(self.first, number) if number else self.first)


@dataclass(frozen=True)
class Strip:
    """The strip in work: `vectors` vectors of `lanes` lanes along `var`, in every one of its rows; of which those of `mask` exist."""

    var: cin.IndexVar
    lanes: int
    vectors: int
    rows: Rows | None = None
    mask: Val | None = None

    @property
    def registers(self) -> int:
        """How many registers accumulate."""
        return self.vectors * (1 if self.rows is None else self.rows.count)


@dataclass(frozen=True)
class Mode:
    """How all code inside some part of a statement is emitted.

    strip          every assignment is made for the lanes of this strip (`register_tiles`)
    row_in_vector  the row in work fits one vector, and values are kept there (`coiterate`)
    scalar_sums    sums are taken entry by entry where they might run in lanes (`loops.row_blocks`)
    short_rows     rows of few entries get code of their own; not where these are computed elsewhere (`loops.distributed`)
    ahead          the state at a later entry of each walk around tiles, by its variable, of which these fetch their parts of an access (`tile_fetches`)
    unasked        whether walks that add to a dense result visit the first places of segments without a question (`loops.padded`); None: nobody knows
    """

    strip: Strip | None = None
    row_in_vector: Brief | None = None
    scalar_sums: bool = False
    short_rows: bool = True
    ahead: tuple[tuple[cin.IndexVar, Callable[[Env, cin.Access], Env]], ...] = ()
    unasked: bool | None = None


class Env(NamedTuple):
    """Bound variables, cursors, accumulators of scalar workspaces by name, and the mode; never changed in place."""

    bound: Mapping[cin.IndexVar, Val]
    cursors: Mapping[cin.Access, Cursor]
    registers: Mapping[str, Scalar | Registers] = {}
    mode: Mode = Mode()
    read: Callable[[cin.Access, Val], Val] | None = None
    """The value of an array of integers at a position."""

    def bind(self, var: cin.IndexVar, value: Val) -> Env:
        return self._replace(bound={**self.bound, var: value})

    def with_cursors(self, moved: Mapping[cin.Access, Cursor]) -> Env:
        return self._replace(cursors={**self.cursors, **moved}) if moved else self

    def with_register(self, name: str, accumulator: Scalar | Registers) -> Env:
        """Inside, the scalar workspace `name` is this accumulator."""
        return self._replace(registers={**self.registers, name: accumulator})

    def in_mode(self, **changed: Any) -> Env:
        """The same state in a mode with these fields changed."""
        return self._replace(mode=replace(self.mode, **changed))

    def scalar(self, tensor: cin.Tensor) -> Scalar:
        """The accumulator of a scalar workspace that has one lane."""
        found = self.registers[tensor.name]
        assert isinstance(found, Scalar)
        return found

    def state(self) -> State:
        """What is known here, without any values."""
        levels = {access: cursor.level for access, cursor in self.cursors.items()}
        unsure = frozenset(access for access, cursor in self.cursors.items() if cursor.found is not None)
        return State(frozenset(self.bound), levels, unsure)

    def loop_key(self, stmt: cin.Forall) -> LoopKey:
        """Where the plan of a loop is found that is emitted here."""
        known = {
            name: Accumulator(r.mark is not None, isinstance(r, Scalar) and r.total is not None and r.total.exact)
            for name, r in self.registers.items()
        }
        return LoopKey.of(stmt, self.mode.strip is not None, self.mode.scalar_sums, known)

    def coordinate(self, b: Builder, index: cin.Index) -> Val:
        """The value of an index that is known."""

        def place(at: cin.Position) -> Val:
            cursor = self.cursors[at.access]
            return cursor.pos if cursor.base is None else cursor.base

        def entry(access: cin.Access) -> Val:
            assert self.read is not None
            return self.read(access, self.cursors[access].pos)

        return cin.coordinate(index, self.bound, b.i64, place, entry)

    def known(self, index: cin.Index) -> bool:
        """Whether an index has been bound, or reached."""

        def reached(access: cin.Access, level: int) -> bool:
            cursor = self.cursors[access]
            return cursor.level > level and cursor.found is None

        return cin.known(index, self.bound, reached)

    def level_coordinates(self, b: Builder, access: cin.Access) -> dict[int, Val]:
        """The coordinates of the levels of `access` whose variables are bound, by level."""
        found = {}
        for level in range(len(access.indices)):
            index = access.level_index(level)
            if self.known(index):
                found[level] = self.coordinate(b, index)
        return found
