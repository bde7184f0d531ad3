"""Dense: every coordinate is present; no buffers; position = parent * extent + coordinate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparsejax.formats.level import Level


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
