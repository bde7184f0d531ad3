"""Operations of a table that follow each other on words that follow each other, as one.

    COPY 41 63 4;  COPY 45 67 1              COPY 41 63 5
    FREE 64 -1;  FREE 65 -1;  FREE 66 -1     FREE 64 -1 3
    SET 91 0;  SET 92 0;  SET 93 0           SET 91 0 3

A round of few entries takes about as long as its operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparsejax.jit.runtime.whole.driver import COPY, FREE, JUMP, SET, UNLESS

Raises = dict[int, Callable[[Any], None]]


def merged(ops: Sequence[list[int]], failures: Raises) -> tuple[list[list[int]], Raises]:
    """The operations, of which none that another one goes on at is part of one before it; and what raises by their numbers."""
    targets = {op[2] for op in ops if op[0] in (UNLESS, JUMP)}
    made: list[list[int]] = []
    numbers = []
    for k, op in enumerate(ops):
        joined = _joined(made[-1], op) if made and k not in targets else None
        if joined is None:
            made.append(list(op))
        else:
            made[-1] = joined
        numbers.append(len(made) - 1)
    numbers.append(len(made))
    for op in made:
        if op[0] in (UNLESS, JUMP):
            op[2] = numbers[op[2]]
    return made, {numbers[k]: raises for k, raises in failures.items()}


def _joined(first: Sequence[int], second: Sequence[int]) -> list[int] | None:
    """Two operations as one; None where they are not."""
    code, x, y, n, _ = first
    if second[0] != code:
        return None
    _, x2, y2, n2, _ = second
    if code == COPY and (x2, y2) == (x + n, y + n):
        return [code, x, y, n + n2, 0]
    if code in (FREE, SET) and (x2, y2) == (x + n, y):
        return [code, x, y, n + n2, 0]
    return None
