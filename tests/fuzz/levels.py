"""The level types that random and enumerated tests draw formats from. A new level type joins by a line
in INPUTS."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sparsejax.errors import FormatError
from sparsejax.formats import (
    Banded,
    Bitmap,
    Compressed,
    Coordinate,
    Dense,
    Diagonal,
    Ell,
    Format,
    Grouped,
    Hash,
    Level,
    LooseCompressed,
    RunLength,
)

ENUMERATED: tuple[Level, ...] = (Dense(), Compressed(), Coordinate())
"""What the exhaustive enumeration runs over."""

INPUTS: tuple[Level, ...] = (
    Dense(),
    Compressed(),
    Coordinate(),
    Compressed(unique=False),
    LooseCompressed(),
    Bitmap(),
    Hash(),
    RunLength(),
    Banded(),
    Diagonal(),
    Ell(),
    Grouped(2),
    Grouped(4),
)
"""Every level that an operand may have."""

OUTPUTS: tuple[Level, ...] = tuple(level for level in INPUTS if level.unique)
"""Every level that a result may have."""


def fits(levels: Sequence[Level]) -> bool:
    """Whether the levels make a format."""
    try:
        Format(levels)
    except FormatError:
        return False
    return True


def random_format(
    rng: random.Random, ndim: int, levels: Sequence[Level] = OUTPUTS, blocks: Sequence[int] | None = None
) -> Format:
    """Levels in any order that make a format; in half of them most levels are dense, compressed or coordinate. `blocks` has a size
    per dimension."""
    places = [*range(ndim), *(d for d, b in enumerate(blocks or ()) if b > 1)]
    order = rng.sample(places, len(places))
    usual = rng.random() < 0.5
    while True:
        chosen = [rng.choice(ENUMERATED if usual and rng.random() < 0.8 else levels) for _ in places]
        if fits(chosen):
            return Format(chosen, order, blocks)
