"""Dense: every coordinate is present; no buffers; position = parent * extent + coordinate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats.level import Level
from sparsejax.formats.segments import Array, Buffers, crd_dtype

MAX_POSITIONS = 2**38
"""More positions than this are an error at once, rather than an allocation that cannot succeed."""


@dataclass(frozen=True)
class Dense(Level):
    """A dense level.

    >>> Dense().full
    True
    """

    letter: ClassVar[str] = "d"
    full: ClassVar[bool] = True

    def buffer_names(self, continues: bool) -> tuple[str, ...]:
        return ()

    def expand(self, buffers: Buffers, parents: int, extents: Sequence[int]) -> tuple[Array, list[Array]]:
        (extent,) = extents
        above, here = (np.arange(n, dtype=crd_dtype(n)) for n in (parents, extent))
        return np.repeat(above, extent), [np.tile(here, parents)]

    def assemble(
        self, parent: Array, parents: int, keys: Sequence[Array], extents: Sequence[int], distinct: bool
    ) -> tuple[list[tuple[Array, ...]], Array, int]:
        (key,), (extent,) = keys, extents
        count = parents * extent
        if count > MAX_POSITIONS:
            raise FormatError(
                f"a dense level would need {count} positions, more than any memory holds; store that dimension compressed instead"
            )
        return [()], key.astype(np.int64) if parents == 1 else parent * extent + key, count

    def check(self, buffers: Buffers, parents: int, extents: Sequence[int], names: Sequence[str]) -> int:
        return parents * extents[0]
