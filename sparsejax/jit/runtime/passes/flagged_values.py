"""The values of entries whose flags hold, ordered by a key: what one kernel runs. Entries whose flags do not hold go nowhere.

key 1 0 1 0    flags 1 1 0 1    vals a b c d
counted    2 1, as places 0 2        how many of every bucket hold, and where these begin
moved      b d a                     each to the next place of its bucket
"""

from __future__ import annotations

from sparsejax.formats.passes import Array
from sparsejax.jit.backend.builder import Builder
from sparsejax.jit.codegen import kernel_memory
from sparsejax.jit.cost.machine import FAR
from sparsejax.jit.runtime.passes.conversion_loops import SOON
from sparsejax.jit.runtime.passes.pass_kernels import INT64, as_kernel, empty, run, vectors


def flagged(key: Array, flags: Array, vals: Array, buckets: int, found: int) -> Array:
    """The values; `found` flags hold."""
    made, places = empty(found, vals.dtype), empty(buckets, INT64)
    kernel = _flagged(key.itemsize, vals.itemsize, len(key) >= FAR)
    run(kernel, len(key), buckets, key, flags, vals, places, made)
    return made


@as_kernel
def _flagged(b: Builder, size: int, vals_size: int, ahead: bool) -> None:
    """Of many entries, the places of later ones are fetched `ahead`."""
    entries, buckets = b.slot(0, "i64", "entries"), b.slot(1, "i64", "buckets")
    names = "key", "flags", "vals", "places", "made"
    key, flags, vals, places, made = vectors(b, 2, (size, 1, vals_size, 8, vals_size), names)
    kernel_memory.clear(b, places.pointer, b.i64(0), buckets, 8)
    with b.for_(b.i64(0), entries, "p") as p:
        here = b.named("here", key.number(b, p))
        places.put(b, here, b.add(places.get(b, here), flags.number(b, p)))
    total = b.var("total", b.i64(0))
    with b.for_(b.i64(0), buckets, "r") as r:
        count, before = b.named("count", places.get(b, r)), b.get(total)
        places.put(b, r, before)
        b.set(total, b.add(before, count))
    last = b.named("last", b.sub(entries, 1))
    with b.for_(b.i64(0), entries, "p") as p:
        if ahead:
            places.prefetch(b, key.number(b, b.min(b.add(p, SOON), last)))
        with b.if_(b.ne(flags.number(b, p), 0)):
            here = b.named("here", key.number(b, p))
            to = b.named("to", places.get(b, here))
            made.put(b, to, vals.get(b, p))
            places.put(b, here, b.add(to, 1))
