"""Dense: every coordinate is present; no buffers; position = parent * extent + coordinate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparsejax.formats import passes
from sparsejax.formats.levels.level import Level
from sparsejax.formats.levels.segments import Above, Array, Buffers, check_size, crd_dtype, parents_of


@dataclass(frozen=True)
class Dense(Level):
    """A dense level.

    >>> Dense().full
    True
    """

    letter: ClassVar[str] = "d"
    plain = True
    unwritten = ""
    settled: ClassVar[bool] = True
    full: ClassVar[bool] = True

    def buffer_types(self) -> dict[str, str]:
        return {}

    def positions(self, buffers: Buffers, parents: int, extents: Sequence[int]) -> int:
        return parents * extents[0]

    def expand(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> tuple[Array, list[Array], Array | None]:
        (extent,) = extents
        numbers = np.arange(extent, dtype=crd_dtype(extent))
        if above.entries == 1:
            owner, here = np.broadcast_to(np.zeros(1, np.int32), extent), numbers
        else:
            owner, here = passes.over(above.entries * extent).grid(above.entries, extent)
        position = None if above.position is None else np.add.outer(above.position * extent, numbers).reshape(-1)
        return owner, [here], position

    def count(self, buffers: Buffers, above: Above, extents: Sequence[int]) -> int:
        return above.entries * extents[0]

    def lift(
        self, buffers: Buffers, position: Array, extents: Sequence[int]
    ) -> tuple[Array, list[Array], Array | None]:
        parent, coordinate = np.divmod(position, extents[0])
        return parent, [coordinate], None

    def assemble(
        self, above: Above, keys: Sequence[Array], extents: Sequence[int], distinct: bool, vals: Array
    ) -> tuple[list[tuple[Array, ...]], Array | None, int]:
        (key,), (extent,) = keys, extents
        count = check_size(above.positions * extent, "a dense level")
        return [()], key if above.positions == 1 else parents_of(above) * extent + key, count

    def check(self, buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str]) -> int:
        return parents * extents[0]
