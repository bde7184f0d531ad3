"""What prices are made of that belongs to the machine."""

from __future__ import annotations

import math

CACHE = 1 << 20  # bytes of a second-level cache


def missed(size: float) -> float:
    """The fraction of accesses to random places among `size` bytes that miss the cache."""
    return min(1.0, max(0.0, math.log2(max(1.0, size / CACHE)) / 4))


FAR = 1 << 18
"""Entries from which prefetching pays: fewer stay in the caches."""


UNEVEN = 8
"""A segment this many times longer than the other is searched instead of walked."""
