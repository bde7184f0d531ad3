"""Groups: the places of one leader whose slots come in groups, all slots of a group before the next one.

    for p in lo .. end by 4:                   whole groups: nobody asks whether the segment ends
      t += vals[p] * B[crd[p], k]
      ...
      t += vals[p + 3] * B[crd[p + 3], k]
    for p in end .. hi:                        what is left of the last one, whose other slots are no entries
      t += vals[p] * B[crd[p], k]

Pays where segments have many groups. Elsewhere the ends of two loops in place of one are not foreseen: products with 8 or 16 columns of matrices of 22
to 76 entries a row take 0.96 of the time that places one by one take, those of 3 to 12 entries 1.02 to 1.3; with 128 columns, where
rows of the other operand are waited for, there is no difference (an EPYC, float32, groups of four: `benchmarks/groups.py`).

Entries come in the order in which they come one by one, and results have the same bits. Of groups of many slots, a part that divides them is
visited at a time.

Source: the fixed trip counts of Won et al., "Insum: Sparse GPU Kernels Simplified and Optimized with Indirect Einsums" (ASPLOS 2026), section 4;
there the last group is padded with zeros that are multiplied like entries, which infinities forbid.
"""

from __future__ import annotations

from sparsejax.jit.codegen.loops import merge, prefetch
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.ir.loop_plans import Leaders


def walk(loop: Loop, key: Leaders, walker: Walker) -> None:
    """The places of `walker`, as many at a time as the plan of the loop says."""
    b, segment, count = loop.b, walker.segment, loop.plan.copies
    length = b.named("count", b.sub(segment.hi, segment.lo))
    if loop.plan.prefetch:  # no pass of LLVM moves a load out of a loop that fetches
        walker.last = prefetch.last_place(loop, walker)
    with loop.room(length):
        power = count & (count - 1) == 0
        whole = b.and_(length, b.i64(-count)) if power else b.mul(b.binary("sdiv", length, b.i64(count)), count)
        end = b.named("end", b.add(segment.lo, whole))
        with b.for_(segment.lo, end, "p", count) as first:
            for number in range(count):
                merge.at_entry(loop, key, walker, b.named("q", b.add(first, number)) if number else first)
        with b.for_(end, segment.hi, "p") as place:
            merge.at_entry(loop, key, walker, place)
    walker.last = None
