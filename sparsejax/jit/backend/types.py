"""Types of values in machine code, as LLVM spells them."""

from __future__ import annotations

import functools


@functools.cache
def lanes_of(type: str) -> int:
    """The number of lanes of a type (1 for a scalar)."""
    return int(type[1:].split(" x ")[0]) if type.startswith("<") else 1


@functools.cache
def scalar_of(type: str) -> str:
    """The type of one lane."""
    return type[1:-1].split(" x ")[1] if type.startswith("<") else type


@functools.cache
def vector_of(type: str, lanes: int) -> str:
    """The vector type of `lanes` lanes of a scalar type."""
    return type if lanes == 1 else f"<{lanes} x {type}>"
