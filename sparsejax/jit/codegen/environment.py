"""The state of lowering: which variables are bound, and how far each access is resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen.emit import Num
from sparsejax.jit.ir import cin


class Cursor(NamedTuple):
    """`level`: the next level to resolve. `pos`: the position reached above it; with `end`, the range [pos, end) of
    positions that share the coordinates so far (inside a coordinate run). `found`: the access is stored only if true.
    `base`: the position above the dense levels that were resolved last."""

    level: int
    pos: Val
    end: Val | None = None
    found: Val | None = None
    base: Val | None = None


@dataclass
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


class Env(NamedTuple):
    """Bound variables and cursors; never changed in place."""

    bound: Mapping[cin.IndexVar, Val]
    cursors: Mapping[cin.Access, Cursor]

    def bind(self, var: cin.IndexVar, value: Val) -> Env:
        return Env({**self.bound, var: value}, self.cursors)

    def with_cursors(self, moved: Mapping[cin.Access, Cursor]) -> Env:
        return Env(self.bound, {**self.cursors, **moved}) if moved else self

    def coordinate(self, b: Builder, index: cin.Index) -> Val:
        if isinstance(index, cin.Position):
            cursor = self.cursors[index.access]
            return cursor.pos if cursor.base is None else cursor.base
        return self.bound[index] if isinstance(index, cin.IndexVar) else b.i64(index)

    def known(self, index: cin.Index) -> bool:
        """Whether an index has been bound, or reached."""
        if isinstance(index, cin.Position):
            cursor = self.cursors[index.access]
            return cursor.level > index.level and cursor.found is None
        return not isinstance(index, cin.IndexVar) or index in self.bound

    def level_coordinates(self, b: Builder, access: cin.Access) -> dict[int, Val]:
        """The coordinates of the levels of `access` whose variables are bound, by level."""
        found = {}
        for level in range(len(access.indices)):
            index = access.level_index(level)
            if self.known(index):
                found[level] = self.coordinate(b, index)
        return found
