"""The values of entries go where other segments have the same coordinates: what one kernel runs.

    pos 0 1 2    crd 4 2    vals a b    to pos 0 2 3    crd 0 4 3
    carried      0 a 0

Both are walked side by side, and what is written does not branch: at each place the value at hand, or 0 where its coordinate is another; it is
written again where the place stays.
"""

from __future__ import annotations

import numpy as np

from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen import kernel_memory
from sparsejax.jit.runtime.passes.pass_kernels import address, as_kernel, empty, run_parts, vectors


def carried(own: tuple[Array, Array, Array], other: tuple[Array, Array], parts: list[tuple[int, int]]) -> Array:
    """See `formats.passes`."""
    pos, crd, vals, to_pos, to_crd = (np.ascontiguousarray(a) for a in (*own, *other))
    made = empty(len(to_crd), vals.dtype)
    behind = [address(a) for a in (pos, crd, vals, to_pos, to_crd, made)]
    run_parts(_carried(crd.itemsize, to_crd.itemsize, vals.itemsize), [(*part, *behind) for part in parts])
    return made


@as_kernel
def _carried(b: Builder, size: int, to_size: int, vals_size: int) -> None:
    first, end = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end")))
    names = "pos", "crd", "vals", "to_pos", "to_crd", "made"
    pos, crd, vals, to_pos, to_crd, made = vectors(b, 2, (8, size, vals_size, 8, to_size, vals_size), names)
    p, q = b.var("p", b.i64(0)), b.var("q", b.i64(0))
    nothing = b.splat(b.i64(0), 2) if vals_size == 16 else b.const(vals.type, 0)
    with b.for_(first, end, "r") as r:
        begin, stop = b.named("begin", to_pos.get(b, r)), b.named("stop", to_pos.get(b, b.add(r, 1)))
        low, high = b.named("low", pos.get(b, r)), b.named("high", pos.get(b, b.add(r, 1)))

        def side_by_side(begin: Val = begin, stop: Val = stop, low: Val = low, high: Val = high) -> None:
            b.set(p, begin)
            b.set(q, low)
            with b.while_(lambda: b.and_(b.lt(b.get(p), stop), b.lt(b.get(q), high))):
                to, at = b.named("to", b.get(p)), b.named("at", b.get(q))
                wanted, c = b.named("wanted", to_crd.number(b, to)), b.named("c", crd.number(b, at))
                made.put(b, to, b.select(b.eq(wanted, c), vals.get(b, at), nothing))
                b.set(p, b.select(b.lt(c, wanted), to, b.add(to, 1)))
                b.set(q, b.select(b.lt(wanted, c), at, b.add(at, 1)))
            with b.for_(b.get(p), stop, "k") as k:
                made.put(b, k, nothing)

        def cleared(begin: Val = begin, stop: Val = stop) -> None:
            kernel_memory.clear(b, made.pointer, begin, stop, vals_size)

        b.if_else(b.lt(low, high), side_by_side, cleared)
