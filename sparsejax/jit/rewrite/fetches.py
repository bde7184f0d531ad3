"""What loops fetch before they read it, and what they visit before they ask: what is legal, and what pays (choices `prefetch` and, for `padded`, `loop_shape`;
code in `codegen/loops/prefetch`, `tile_fetches` and `codegen/loops/padded`).

before:  forall o                 range, in steps
           t += W[b,o,k] * z[o]
after:   forall o                 range, in steps, prefetch       a row of W six kilobytes further on
"""

from __future__ import annotations

import math

from sparsejax.formats.levels.compressed import Compressed
from sparsejax.jit.backend import host
from sparsejax.jit.cost import machine
from sparsejax.jit.ir import choices, cin, lanewise, simplify
from sparsejax.jit.ir.loop_plans import Leaders, Walk
from sparsejax.jit.rewrite.loop_shapes import Loop, reduces

FAR = 8
"""The part of the second cache above which a result is far: walks fetch what they read themselves."""
FIRST = 6
"""Places at the start of each segment that are visited without a question."""
LEAST, MOST = 4, 10
"""Entries of a segment, on average, between which that pays, where lengths differ from segment to segment. Products of 5,000 columns with five entries in
the mean, as many as fall, take 0.66 of the time with six places or five, 0.9 with four, 0.8 with eight; where all have five, so that ends are foreseen, 1.5,
1.3, 1.2 and 1.8 (C code, Granite Rapids, alone). `x @ A` of real matrices of 2,500 to 26,000 rows takes 0.83 to 1.0 of the time, where lengths are looked at
first (loaded). Without masks LLVM writes a branch for each place."""


def prefetches(loop: Loop, key: Leaders, shape: str) -> str:
    """The alternative of `prefetch` that a walk takes. What it will come to is fetched before: of many pairs, and of reductions of many segments, what they
    read themselves; inside of register tiles, rows that do not lie in the second cache. Sums at single elements of a dense result that is large fetch what
    they read of their own too, segment by segment: the elements, which are waited for, take the places in which the processor would fetch by itself. Products
    of 200,000 and 1,000,000 columns with five entries take 1.01 and 0.68 of the time, 0.90 and 0.72 where segments have any number of entries, so that they
    end unforeseen; of 200,000 with 20 entries 0.90 and 0.84; of 50,000 columns 0.87 to 1.03 (Granite Rapids)."""
    (walk,) = (loop.walks[a] for a in key)
    if shape in ("pairs", "stored_values"):
        fetched = loop.is_input(walk.access) and (shape == "pairs" or reduces(loop, key, walk))
        legal = ("ahead", "none") if fetched else ("none",)
        return choices.pick("prefetch", legal, "ahead" if fetched and loop.in_blocks(walk) else "none")
    if shape == "entries" and scatters(loop, key, walk):
        return choices.pick("prefetch", ("ahead", "own", "none"), "own" if _are_far(loop) else "ahead")
    return choices.pick("prefetch", ("ahead", "none"), "none" if _rows_are_near(loop, key) else "ahead")


def scatters(loop: Loop, key: Leaders, walk: Walk) -> bool:
    """Whether a walk of an operand adds to single elements of a dense result wherever its coordinates say."""
    stmt = loop.cases[key]
    if loop.state.in_tile or not isinstance(stmt, cin.Assign) or stmt.op is None or stmt.lhs.computed:
        return False
    if not walk.side_by_side or not loop.is_input(walk.access):
        return False
    lhs, output = stmt.lhs, loop.program.output
    if lhs.tensor.name != output.name or not output.format.is_dense or not cin.are_variables(lhs.indices):
        return False
    last = len(lhs.indices) - 1
    return last >= 0 and lhs.level_index(last) == loop.var


def _are_far(loop: Loop) -> bool:
    """Whether the elements do not lie near the processor."""
    return _bytes(loop.program.output) > machine.current().caches[1] / FAR


def padded(loop: Loop, key: Leaders) -> tuple[bool, bool]:
    """Whether the first places of every segment may be visited without asking where it ends (`codegen/loops/padded`), and whether that pays.

    Those behind its end are places of other segments: their coordinates are inside, and all that is read there is stored; the loop must not be cut for
    threads, as others add to these elements then."""
    (walk,) = (loop.walks[a] for a in key)
    stmt = loop.cases[key]
    level = walk.access.tensor.format.levels[walk.level]
    if walk.level == 0 or type(level) is not Compressed or not scatters(loop, key, walk) or not loop.counted(walk):
        return False, False
    if loop.stmt.kind != "serial" or simplify.conditions(stmt):
        return False, False
    assert isinstance(stmt, cin.Assign)
    if any(v.outer is not None for v in (loop.var, *cin.bound_by(stmt.lhs))):
        return False, False
    for access in cin.accesses(stmt.rhs):
        if access.computed or access in loop.state.unsure or access.tensor.policy not in (None, "scalar"):
            return False, False
        if access.tensor.policy is None and not loop.state.below(access, access in key):
            return False, False
    few = not loop.is_short(walk, LEAST) and loop.is_short(walk, MOST)
    return True, host.has_masks() and few and not _are_far(loop) and not lanewise.elementary(stmt.rhs)


def _bytes(tensor: cin.Tensor) -> int:
    return math.prod(map(int, tensor.shape)) * tensor.dtype.itemsize


def streams_fetched(loop: Loop) -> tuple[cin.Access, ...]:
    """The dense operands whose later rows a loop over all coordinates inside of register tiles fetches: each is read once in the whole program, row by
    row, and larger than the second cache. The processor fetches by itself what follows in memory, up to the end of a page and as far ahead as few
    instructions reach: weights of 180 to 377 MB, seven sums of four lines to a row, take 0.77 of the time in C (Granite Rapids). Not for one sum: many
    rows are under way by themselves (sums of columns took 1.05 to 1.1 times as long)."""
    if not loop.state.in_tile:
        return ()
    around, size = loop.state.bound | {loop.var}, machine.current().caches[1]
    found = [
        a
        for a in dict.fromkeys(cin.accesses(loop.stmt.body))
        if loop.is_input(a) and a.tensor.format.is_dense and not a.entries and _by_rows(a, loop.var, around)
    ]
    several = len(cin.writes(loop.stmt.body)) > 1
    large = [a for a in found if _bytes(a.tensor) > size and several]
    ahead = choices.pick("prefetch", ("ahead", "none") if found else ("none",), "ahead" if large else "none") == "ahead"
    return tuple(large or found) if ahead else ()


def _by_rows(access: cin.Access, row: cin.IndexVar, around: frozenset[cin.IndexVar]) -> bool:
    """Whether the rows of an access follow each other along `row`, and all loops `around` lead to other ones."""
    last = len(access.indices) - 1
    if last < 1 or access.level_index(last - 1) != row or access.level_index(last) not in around:
        return False
    return around <= frozenset(cin.bound_by(access))


def _rows_are_near(loop: Loop, key: Leaders) -> bool:
    """Whether a walk inside of register tiles picks rows of dense operands alone that the second cache holds: asking for them takes the place of
    loads (0.92 to 0.95 of the speed with 64 KB to 256 KB; with more 1.03 to 1.25, an EPYC of the third generation)."""
    if not loop.state.in_tile:
        return False
    read = [a for a in dict.fromkeys(cin.accesses(loop.cases[key])) if a not in key and loop.var in cin.bound_by(a)]
    if not read or not all(a.tensor.format.full and loop.is_input(a) for a in read):
        return False
    return all(_bytes(a.tensor) <= machine.current().caches[1] / 2 for a in read)
