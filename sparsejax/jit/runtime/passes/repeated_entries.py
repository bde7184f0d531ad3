"""Every entry several times: what one kernel runs.

3 times      crd 2 0    as they are    2 2 2 0 0 0
                        counted on     6 7 8 0 1 2
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder
from sparsejax.jit.runtime.passes import lengths
from sparsejax.jit.runtime.passes.pass_kernels import address, as_kernel, empty, run_parts, vectors


def repeated(column: Array, count: int, counted: np.dtype[Any] | None, parts: list[tuple[int, int]]) -> Array:
    """See `formats.passes`."""
    column = np.ascontiguousarray(column)
    made = empty(len(column) * count, column.dtype if counted is None else counted)
    behind = count, address(column), address(made)
    run_parts(_repeated(column.itemsize, made.itemsize, counted is not None), [(*part, *behind) for part in parts])
    return made


@as_kernel
def _repeated(b: Builder, size: int, made_size: int, counted: bool) -> None:
    (first, end), count = lengths.share(b), b.slot(2, "i64", "count")
    column, made = vectors(b, 3, (size, made_size), ("column", "made"))
    with b.for_(first, end, "p") as p:
        begin = b.named("begin", b.mul(p, count))
        if counted:
            number = b.named("number", b.mul(column.number(b, p), count))
            with b.for_(b.i64(0), count, "k") as k:
                made.put(b, b.add(begin, k), made.element(b, b.add(number, k)))
        else:
            value = column.get(b, p)
            with b.for_(b.i64(0), count, "k") as k:
                made.put(b, b.add(begin, k), value)
