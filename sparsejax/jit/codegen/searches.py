"""Searches for a coordinate in a segment of a level.

    crd[lo .. hi]       3 | 7 | 12 | 20 | -          wanted 12
    equal               0 | 0 |  1 |  0 |            one vector, where entries fit it: nobody waits for a branch
    place               lo + number of the lane

Longer segments are halved, and where the vectors of the processor have no masks, the entries of short ones are compared one by one
(`levels/walk.find`).
"""

from __future__ import annotations

from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.walk import Segment, find, halved
from sparsejax.jit.backend.builder import SIZES, Builder, Val
from sparsejax.jit.backend.types import vector_of
from sparsejax.jit.codegen import kernel_memory, register_tiles
from sparsejax.jit.codegen.environment import Env
from sparsejax.jit.codegen.operands import Input
from sparsejax.jit.codegen.workspaces.protocol import Workspace
from sparsejax.jit.ir import cin

AHEAD = 512
"""Coordinates ahead of a segment at which those of later ones are fetched."""


def place_of(b: Builder, operand: Input | Workspace, level: int, segment: Segment, wanted: Val, steps: bool) -> Val:
    """The place of the coordinate `wanted` in a segment, -1 where there is none; `steps`: the next search is in the next segment."""

    def one_by_one() -> Val:
        place: Val = find(b, segment.coordinate, segment.lo, segment.hi, wanted)
        return place

    if not isinstance(operand, Input) or type(operand.tensor.format.levels[level]) is not Compressed:
        return one_by_one()
    crd = operand.buffers[level]["crd"]
    size = SIZES[crd.type]
    if steps:
        kernel_memory.prefetch(b, crd.pointer, b.add(segment.hi, AHEAD), size)
    if not b.has_masks():
        return one_by_one()
    lanes = register_tiles.VECTOR_BYTES // size
    count, found = b.named("count", b.sub(segment.hi, segment.lo)), b.var("found", b.i64(-1))
    narrow = b.convert("trunc", wanted, crd.type)
    fits = b.eq(b.convert("zext", narrow, "i64"), wanted)

    def few() -> None:
        with b.masked(lanes, b.select(fits, count, b.i64(0))):
            there = b.load(crd.pointer, segment.lo, vector_of(crd.type, lanes))
            assert b.mask is not None
            equal = b.and_(b.mask, b.eq(there, b.splat(narrow, lanes)))
        bits = b.convert("zext", b.convert("bitcast", equal, f"i{lanes}"), "i64")
        lane = b.call("llvm.cttz.i64", "i64", [bits, b.const("i1", 0)])
        b.set(found, b.select(b.eq(bits, 0), b.i64(-1), b.add(segment.lo, lane)))

    def many() -> None:
        b.set(found, halved(b, segment.coordinate, segment.lo, segment.hi, wanted))

    b.if_else(b.lt(count, lanes + 1), few, many)
    return b.get(found)


def in_steps(access: cin.Access, level: int, env: Env) -> bool:
    """Whether each step of the innermost loop searches another segment of a level, as where a diagonal is read."""
    if not level or not env.bound:
        return False
    *_, innermost = env.bound
    return access.level_index(level - 1) == innermost
