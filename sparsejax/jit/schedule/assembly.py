"""How an output is put together under a loop order."""

from __future__ import annotations

from collections.abc import Sequence

from sparsejax.jit.ir import cin

IN_ORDER, IN_PLACE, SCATTER = "in order", "in place", "scatter"


def assembly(output: cin.Tensor, storage: Sequence[cin.IndexVar], order: Sequence[cin.IndexVar]) -> tuple[str, int]:
    """How the output is assembled under a loop order, and the length p of the common prefix."""
    p = 0
    for stored, walked in zip(storage, order, strict=False):
        if stored != walked:
            break
        p += 1
    rest = len(storage) - p
    if not rest:
        return IN_ORDER, p
    if all(level.full for level in output.format.levels[-rest:]):
        return IN_PLACE, p
    return SCATTER, p
