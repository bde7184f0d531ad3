"""What is asked of all numbers of a vector, some at a time: differences of all of them would be as large as the vector."""

from __future__ import annotations

from sparsejax.formats.passes import Array

BLOCK = 1 << 15
"""Numbers that are compared at a time."""


def increases(numbers: Array) -> bool:
    """Whether each number is larger than the one before."""
    return all(
        (numbers[k + 1 : k + BLOCK + 1] > numbers[k : k + BLOCK][: len(numbers) - k - 1]).all()
        for k in range(0, len(numbers), BLOCK)
    )


def longest(pos: Array) -> int:
    """The length of the longest segment."""
    return max(
        int((pos[k + 1 : k + BLOCK + 1] - pos[k : k + BLOCK][: len(pos) - k - 1]).max(initial=0))
        for k in range(0, len(pos), BLOCK)
    )
