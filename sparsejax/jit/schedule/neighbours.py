"""Loop orders that differ from the cheapest one in the place of a reduction, where loops become tiles of several rows.

    m i l j n k       each slot m of groups adds to all rows of the result
    i l m j n k       all slots of a group add to a row while it is near

What tiles wait for depends on all loops (`tile_waits`), and the search forgets orders whose first loops cost more than those of others over the same variables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import outside
from sparsejax.jit.schedule import tiled_loops
from sparsejax.jit.schedule.schedules import Cost, State

if TYPE_CHECKING:
    from sparsejax.jit.schedule.search import Model

Order = tuple[cin.IndexVar, ...]
FEW = 4
"""Variables up to which the search meets these orders by itself."""


def added(model: Model, priced: list[tuple[Cost, State]], prefix: Order) -> list[tuple[Cost, State]]:
    """Orders that begin with `prefix`, cheapest first, and such others, until none of these is cheaper. O(v^2) of them at a time."""
    if len(model.nest.variables) <= FEW:
        return priced
    known, best = {state.order for _, state in priced}, None
    while best is not priced[0][1]:
        best = priced[0][1]
        tiles = tiled_loops.tiles(model, best.order)
        if tiles is None or tiles.rows is None or best.leaders:
            break
        for order in _others(model, best.order, len(prefix)):
            if order not in known:
                known.add(order)
                state = model.walk(order)
                cost = model.total(state)
                priced += [(cost, state)] if math.isfinite(cost.total) else []
        priced = sorted(priced, key=lambda item: item[0].total)
    return priced


def _others(model: Model, order: Order, first: int) -> Iterator[Order]:
    """Legal orders with a reduction elsewhere behind the first loops."""
    around = outside(model.nest)
    for var in (v for v in order[first:] if v not in model.nest.indices):
        rest = [v for v in order if v is not var]
        for place in range(first, len(rest)):
            made = (*rest[:place], var, *rest[place:])
            if all(around.get(v, frozenset()) <= {*made[:k]} for k, v in enumerate(made)):
                yield made
