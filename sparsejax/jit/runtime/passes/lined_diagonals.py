"""A matrix with vectors on its diagonals: what one kernel runs (`segment_loops.lined`).

before:  extents 2 3, offsets 0 2, lines 5 6 and 7
after:   pos 0 2 3, crd 0 2 1, vals 5 7 6
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.jit.backend.builder import Builder
from sparsejax.jit.runtime.passes import segment_loops
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, as_kernel, empty, run, vectors

MOST = 8
"""Diagonals up to which the kernel has code for each."""


def lined(
    extents: tuple[int, int], offsets: Sequence[int], lines: Sequence[Array] | None
) -> tuple[Array, Array, Array | None]:
    """See `formats.passes`."""
    rows, extent = extents
    ends = [(max(0, -k), min(rows, extent - k)) for k in offsets]
    entries = sum(max(0, end - first) for first, end in ends)
    low = min(rows, max(first for first, _ in ends))
    high = max(low, min(end for _, end in ends))
    pos, crd = empty(rows + 1, INT64), empty(entries, crd_dtype(extent))
    vals, steady, kept = None, (False,) * len(offsets), []
    if lines is not None:
        vals = empty(entries, lines[0].dtype)
        kept = [np.ascontiguousarray(line) for line in lines]
        steady = tuple([line.size == 1 for line in kept])
    kernel = _lined(steady, crd.itemsize, 0 if vals is None else vals.itemsize)
    run(kernel, rows, extent, low, high, pos, crd, 0 if vals is None else vals, *offsets, *kept)
    return pos, crd, vals


@as_kernel
def _lined(b: Builder, steady: tuple[bool, ...], crd_size: int, val_size: int) -> None:
    rows, extent, low, high = (b.slot(k, "i64", name) for k, name in enumerate(("rows", "extent", "low", "high")))
    pos, crd, vals = vectors(b, 4, (8, crd_size, val_size or 8), ("pos", "crd", "vals"))
    offsets = [b.slot(7 + k, "i64", "offset") for k in range(len(steady))]
    lines = [
        (Vector.in_slot(b, 7 + len(steady) + k, val_size, "line"), same) for k, same in enumerate(steady) if val_size
    ]
    segment_loops.lined(b, (rows, extent), (low, high), offsets, lines, (pos, crd, vals))
