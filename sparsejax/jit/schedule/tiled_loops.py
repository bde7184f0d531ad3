"""What loops cost that become register tiles (`rewrite/tile`, `loops/row_tiles`), in the model of `search`.

forall i: forall ii: forall l: forall j     tiles of two dense loops, ii and j: the loop over l runs once for several ii
forall k: forall p: forall l: forall j      entries p of a walk are rows of tiles: the loop over l runs once for several entries
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sparsejax.jit.ir import cin
from sparsejax.jit.schedule import regions
from sparsejax.jit.schedule.assembly import SCATTER

if TYPE_CHECKING:
    from sparsejax.jit.schedule.search import Model

Order = tuple[cin.IndexVar, ...]


def first(model: Model, order: Order) -> int | None:
    """Where the loops of an order begin that become tiles."""
    nest, producers = model.nest, model.nest.producers
    if len(order) < len(nest.variables) or len(producers) != 1 or nest.nested or producers[0].op is None:
        return None
    if order not in model.tiles:
        scatters = model.assembled(order)[0] == SCATTER
        model.tiles[order] = None if scatters else regions.region(order, model.result, model.accesses)
    return model.tiles[order]


def around(model: Model, order: Order, begin: int) -> float | None:
    """What the loops around the last cost where two become tiles from `begin` on, or entries of a walk are their rows: the reductions run once
    for several rows."""
    if rows(model, order, begin) is not None:
        before, inside = model.walk(order[:begin]).cost, model.walk(order[:-1]).cost
        return before + (inside - before) / regions.ROWS
    dense = [v for v in order[begin:-1] if v in model.nest.indices]
    if not dense or dense[-1] is order[-1].outer:
        return None
    reductions = tuple(v for v in order[begin:-1] if v not in dense)
    before, inside = model.walk(order[:begin]).cost, model.walk((*order[:begin], *reductions)).cost
    times = math.prod(model.extents[v] for v in dense) / min(regions.ROWS, max(1, model.extents[dense[-1]]))
    return before + (inside - before) * times


def rows(model: Model, order: Order, begin: int | None) -> tuple[cin.IndexVar, ...] | None:
    """The variables of walks whose entries are rows of the tiles that the loops of an order become from `begin` on, if there are any."""
    if not begin:
        return None
    out = model.result
    found = regions.entry_rows(order, begin, out, model.accesses, model.walk(order[:begin]).leaders)
    if not found:
        return None
    two = begin > 1 and regions.entries_are_rows(order[begin - 2 :], out, model.accesses)
    return order[begin - 2 : begin] if two else order[begin - 1 : begin]
