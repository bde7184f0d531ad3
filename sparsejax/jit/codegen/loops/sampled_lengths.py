"""Rows in blocks: which operands have them, and whether those of a block are alike in length: then their ends are foreseen, and a loop over
every row is fastest.

    of the rows i0 .. i0 + 7, and as many from a third and from two thirds of the block on:
      pos[i + 1] - pos[i]  beside  pos[i + 2] - pos[i + 1]

Blocks are sampled when they are computed, so that nobody needs to know their rows before.
"""

from __future__ import annotations

from collections.abc import Callable

from sparsejax.jit.backend.builder import Builder, Val

LANES = 8
SAMPLES = 3
"""Where lengths of eight rows of a block are compared with those of the next rows."""
EVEN, UNEVEN = 2, SAMPLES * LANES // 4
"""Of these, how many differ in blocks of rows that are alike, fewer; and in blocks that are better computed at once, more than so many."""


def differing(b: Builder, edges: Val, place_of: Callable[[Val], Val], first: Val, rows: int, step: int) -> Val:
    """How many rows of some of a block differ in length from the next one, as loops over `step` entries at a time see it: a power of two.

    `edges` has where segments begin, that of a row at `place_of` it. Rows of the block and one more are read."""
    total, shift = b.i64(0), step.bit_length() - 1
    up, by = (b.splat(b.i64(n), LANES) for n in (step - 1, shift))

    def seen(length: Val) -> Val:
        return b.binary("ashr", b.binary("add", length, up), by) if shift else length

    for sample in range(SAMPLES):
        place = place_of(b.add(first, sample * (rows // SAMPLES)))
        ends = [b.load(edges, b.add(place, k), f"<{LANES} x i64>", "edges") for k in range(3)]
        lengths = [b.binary("sub", ends[k + 1], ends[k]) for k in range(2)]
        differ = b.compare("ne", *map(seen, lengths))
        count = b.call("llvm.ctpop.i8", "i8", [b.convert("bitcast", differ, "i8")])
        total = b.add(total, b.convert("zext", count, "i64"))
    return total
