"""What loops cost that become register tiles (`rewrite/tile`, `loops/row_tiles`), in the model of `search`.

forall i: forall ii: forall l: forall j     tiles of two dense loops, ii and j: the loop over l runs once for several ii
forall j: forall l: forall i        a tile over i, whose lanes are stored one by one where the result has j behind i
forall k: forall p: forall l: forall j      entries p of a walk are rows of tiles: the loop over l runs once for several entries
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from sparsejax.jit.backend import host
from sparsejax.jit.cost.memory import LINE
from sparsejax.jit.ir import cin
from sparsejax.jit.schedule import regions
from sparsejax.jit.schedule.assembly import SCATTER

if TYPE_CHECKING:
    from sparsejax.jit.schedule.loop_costs import LoopCosts
    from sparsejax.jit.schedule.schedules import State

Order = tuple[cin.IndexVar, ...]

HELD, TILED = 0.5, 0.6
"""What a lane costs, as a share, where rows of the result stay in registers (`tile`); the share of that in tiles of two dense loops."""
STORED = 8
"""What storing a lane by itself takes, in lanes: a vector of eight words is stored at once else."""
AHEAD = 128
"""Steps of sums over which a processor looks ahead, about: 512 instructions, four to a step."""


class Tiles(NamedTuple):
    """The loops of an order as tiles run them: `around` outside, `reductions` inside of those over tiles of rows and over strips."""

    around: Order
    rows: cin.IndexVar | None
    """The variable with several coordinates to a tile."""
    groups: int
    """How many tiles these are, one after the other."""
    reductions: Order
    walks: int
    """How many of these there are up to the last one over entries."""
    along: cin.IndexVar
    strips: int
    """How many strips a row has, for each of which the reductions run again."""
    strided: bool
    """Whether the lanes of a strip are stored one by one."""


def tiles(model: LoopCosts, order: Order) -> Tiles | None:
    """The tiles that the loops of an order become; None where there are none, or entries of a walk are their rows."""
    begin = first(model, order)
    if begin is None or rows(model, order, begin) is not None:
        return None
    if order not in model.tiled:
        model.tiled[order] = _tiles(model, order, begin)
    return model.tiled[order]


def _tiles(model: LoopCosts, order: Order, begin: int) -> Tiles:
    out, along = model.result, order[-1]
    block = regions.block(order, begin, out, model.accesses)
    if block is not None and regions.blocks_pay(order[block:], out, model.extents, model.machine):
        begin = block
    kept = cin.bound_by(out)
    dense = [v for v in order[begin:-1] if v in kept]
    row = dense[-1] if dense and dense[-1] is not along.outer else None
    around = (*order[:begin], *(v for v in dense if v is not row))
    wide, several = host.has_masks(), row is not None
    many = regions.MANY_ROWS if wide else regions.ROWS
    groups = math.ceil(model.extents[row] / many) if row is not None else 1
    row_bytes = float(model.extents[along] * model.nest.output.dtype.itemsize)
    strip = regions.STRIP if wide else LINE
    if not several:
        strip = regions.WIDE if wide and row_bytes >= regions.WIDE else regions.NARROW
    reductions = tuple([v for v in order[begin:-1] if v not in kept])
    walks = [k for k, v in enumerate(reductions, 1) if not regions.is_dense(v, (out, *model.accesses))]
    walked, strips = walks[-1] if walks else 0, max(1, math.ceil(row_bytes / strip))
    return Tiles(around, row, max(1, groups), reductions, walked, along, strips, strided(model, along))


def strided(model: LoopCosts, along: cin.IndexVar) -> bool:
    """Whether tiles along a variable store their lanes one by one: the result is dense and has it elsewhere than last, and something that is read has it."""
    form = model.nest.output.format
    apart = along in model.storage[:-1] and form.is_dense and not form.blocked
    return apart and any(along in a.indices for a in model.accesses)


def first(model: LoopCosts, order: Order) -> int | None:
    """Where the loops of an order begin that become tiles."""
    nest, producers = model.nest, model.nest.producers
    if len(order) < len(nest.variables) or len(producers) != 1 or nest.nested or producers[0].op is None:
        return None
    if order not in model.tiles:
        scatters = model.assembled(order)[0] == SCATTER
        model.tiles[order] = None if scatters else regions.region(order, model.result, model.accesses)
    return model.tiles[order]


def strip(model: LoopCosts, state: State, order: Order, begin: int, each: float) -> tuple[float, float]:
    """What the loops around the last cost where the loops of `order` become tiles from `begin` on, and what an element of the last one does, of which it
    is `each` in no tile. `state` has the loops around the last."""
    several, each = around(model, order, begin), HELD * each
    stored = _stored(model, order, begin)
    if several is not None:
        return several + stored, TILED * each
    waits = chained(model, state, begin, order[-1]) / max(1.0, float(model.extents[order[-1]]))
    return state.cost + stored, max(each, waits)


def _stored(model: LoopCosts, order: Order, begin: int) -> float:
    """What storing lanes one by one takes where tiles begin at `begin`, beside what vectors take."""
    if not strided(model, order[-1]):
        return 0.0
    kept = cin.bound_by(model.result)
    lanes = math.prod([float(model.extents[v]) for v in order[begin:] if v in kept])
    return STORED * model.machine.lane * model.walk(order[:begin]).survivors * lanes


def around(model: LoopCosts, order: Order, begin: int) -> float | None:
    """What the loops around the last cost where two become tiles from `begin` on, or entries of a walk are their rows: the reductions run once
    for several rows."""
    if rows(model, order, begin) is not None:
        before, inside = model.walk(order[:begin]).cost, model.walk(order[:-1]).cost
        return before + (inside - before) / regions.ROWS
    found = tiles(model, order)
    if found is None or found.rows is None:
        return None
    before, inside = model.walk(found.around).cost, model.walk((*found.around, *found.reductions)).cost
    return before + (inside - before) * found.groups * (found.strips if found.walks else 1)


def rows(model: LoopCosts, order: Order, begin: int | None) -> tuple[cin.IndexVar, ...] | None:
    """The variables of walks whose entries are rows of the tiles that the loops of an order become from `begin` on, if there are any."""
    if not begin:
        return None
    out = model.result
    found = regions.entry_rows(order, begin, out, model.accesses, model.walk(order[:begin]).leaders)
    if not found:
        return None
    two = begin > 1 and regions.entries_are_rows(order[begin - 2 :], out, model.accesses)
    return order[begin - 2 : begin] if two else order[begin - 1 : begin]


def chained(model: LoopCosts, state: State, begin: int, along: cin.IndexVar) -> float:
    """What a run of the loop over a strip takes at least where it has one row, inside a dense reduction: each sum of a strip waits for its last step, and
    short strips have few sums. Steps of a walk over entries wait for what these lead to; those of short sums for none of the sums before."""
    last, steps = state.order[-1], state.survivors / max(1.0, model.walk(state.order[:begin]).survivors)
    if state.leaders or last in model.nest.indices or steps < AHEAD:
        return 0.0
    row = model.extents[along] * model.nest.output.dtype.itemsize
    return model.machine.chain * math.ceil(row / (regions.WIDE if host.has_masks() else regions.NARROW))
