"""Passes that find how long segments are, each thread those of a part, and what is made of it: where segments begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.runtime.passes import segment_loops
from sparsejax.jit.runtime.passes.pass_kernels import address, as_kernel, run, run_parts, vectors


def lengths(
    kernel: Any, sizes: tuple[Any, ...], made: Array, parts: Sequence[tuple[int, int]], *slots: int | Array
) -> int:
    """`made` becomes the `pos` of segments whose lengths a pass finds, from these slots; the longest of them."""
    longest, numbers = np.zeros(1, np.int64), [s if isinstance(s, int) else address(s) for s in slots]
    behind = address(made), address(longest), *numbers
    alone = len(parts) == 1
    run_parts(kernel(*sizes, alone), [(*pair, *behind) for pair in parts])
    if not alone:
        run(summed(), len(made) - 1, made, longest)
    return int(longest[0])


@as_kernel
def summed(b: Builder) -> None:
    segment_loops.summed(b, b.slot(0, "i64", "rows"), *vectors(b, 1, (8, 8), ("made", "longest")))


def share(b: Builder) -> tuple[Val, Val]:
    """The first two slots of a pass over a part."""
    return b.slot(0, "i64", "first"), b.slot(1, "i64", "end")


def counting(b: Builder, alone: bool) -> segment_loops.Lengths:
    """The first four slots of a pass that finds lengths: of all segments, or of a part."""
    (first, end), (made, longest) = share(b), vectors(b, 2, (8, 8), ("made", "longest"))
    return segment_loops.Lengths(first, end, made, longest, alone)
