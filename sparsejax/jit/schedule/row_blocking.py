"""Panels: the outermost loop of a kernel is cut into blocks of rows, inside of which statements run one after the other.

A product of dense operands that is computed row by row reads one of them again for every row: nothing of it stays in registers,
and the processor waits for what the statement before it reads from far away. In panels its rows are tiled, four at a time (`tile`), and
what is kept between statements is a panel, which stays in the first cache.

before:  forall i                              after:  forall io
           where w: dense over l                         where w: dense over ii,l
             forall k                                      forall ii
               forall l                                      forall k
                 w[l] += A[i,k] * H[k,l]                       forall l
           then                                                  w[ii,l] += A[io,ii,k] * H[k,l]
             forall l                                    then
               forall j                                    forall l
                 out[i,j] += w[l] * W[l,j]                   forall ii
                                                               forall j
                                                                 out[io,ii,j] += w[ii,l] * W[l,j]

Kernels of a single statement whose outermost loop would become the rows of tiles get a loop around these, which threads share.

A panel is a split as of blocks (`blocks`), of a variable that every tensor stores in a dense level. Source: blocking for registers
and the first cache as in BLIS (Van Zee and van de Geijn 2015), the first operand being made panel by panel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparsejax.jit.ir import blocks, choices, cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import placement, regions
from sparsejax.jit.schedule.schedules import Schedule

ROWS, ALONE = 32, 64
"""Rows of a panel; of one in a kernel of a single statement, where nothing is kept."""
ROOM = 1 << 15
"""Bytes that are kept of a panel, at most: the first cache."""


@dataclass(frozen=True)
class Panel:
    """The variable that is cut, and how many of its coordinates a panel has."""

    var: cin.IndexVar
    size: int

    def parts(self, extent: int) -> dict[cin.Index, tuple[cin.IndexVar, cin.IndexVar]]:
        """What the variable is split into."""
        outer = cin.IndexVar(f"{self.var.name}o")
        return {self.var: (outer, cin.IndexVar(f"{self.var.name}i", outer, self.size, extent % self.size))}


def find(nest: Nest, schedule: Schedule, most: int = ALONE) -> Panel | None:
    """The panels, of at most so many rows, that a kernel runs in, if that is of use and possible."""
    accesses = _accesses(nest)
    if any(t.source is not None for t in (nest.output, *nest.inputs)) or not nest.variables:
        return None
    if not nest.output.format.full:
        return None
    panel = _of_statements(nest, schedule) if nest.nested else _alone(nest, schedule)
    panel = panel and replace(panel, size=min(panel.size, most))
    if panel is None or panel.size < 2 or _extent(nest, panel.var) < 2 * panel.size:
        return None
    if any(a.computed for a in accesses):
        return None
    read = [a for a in accesses if panel.var in a.indices]
    if any(a.indices.count(panel.var) > 1 or any(blocks.unpaired(a, {panel.var})) for a in read):
        return None
    return panel


def cut(nest: Nest, schedule: Schedule) -> tuple[Nest, Schedule]:
    """A kernel and its schedule, in panels where these are of use."""
    panel = find(nest, schedule)
    now = "whole" if panel is None else "blocks"

    def legal() -> list[str]:
        return [*dict.fromkeys(("whole", now)), *(["pairs"] if find(nest, schedule, 2) else [])]

    how = choices.pick("rows", legal, now)
    if how == "pairs":
        panel = find(nest, schedule, 2)
    if panel is None or how == "whole":
        return nest, schedule
    parts = panel.parts(_extent(nest, panel.var))
    outer, inner = parts[panel.var]
    if not nest.nested:
        order = (outer, *(inner if v == panel.var else v for v in schedule.order))
        return blocks.split_in(nest, parts), replace(schedule, order=order)
    places = []
    for number, place in enumerate(schedule.places):
        loops = place.loops
        if panel.var in loops:
            rest = loops[1:]
            tiled = _gains(nest, number, loops)
            loops = (outer, *rest[:-1], inner, rest[-1]) if tiled else (outer, inner, *rest)
        places.append(replace(place, loops=loops))
    order = (outer, inner, *schedule.order[1:])
    return blocks.split_in(nest, parts), replace(schedule, order=order, places=tuple(places))


def levels(given: Sequence[cin.Tensor], read: Sequence[cin.Tensor]) -> dict[tuple[str, int], tuple[str, int]]:
    """Where the levels of the tensors of a kernel are in the tensors that it reads in panels."""
    made = {}
    for before, after in zip(given, read, strict=True):
        added = len(after.format.levels) - len(before.format.levels)
        first = min((after.format.order.index(k) for k in after.paired), default=0) if added else 0
        for level in range(len(before.format.levels)):
            made[before.name, level] = after.name, level + (added if level >= first else 0)
    return made


def gains(nest: Nest, number: int, place: placement.Place) -> bool:
    """Whether a statement at its place would run in tiles of several rows, if its outermost loop ran in panels."""
    return place.depth == 1 and _gains(nest, number, place.loops)


def _gains(nest: Nest, number: int, loops: placement.Loops) -> bool:
    """Whether statement `number` with its loops in this order is a reduction of dense operands, some of which are read again for every
    coordinate of the outermost loop."""
    producer = nest.producers[number]
    if producer.op is None or len(loops) < 3 or loops[0] not in producer.target.indices:
        return False
    reads = tuple(dict.fromkeys(cin.accesses(producer.rhs)))
    used = (producer.target, *reads)
    if not all(a.tensor.format.full for a in used):
        return False
    var, last = loops[0], loops[-1]
    if regions.region(loops, producer.target, reads) != 1 or not any(last in a.indices for a in reads):
        return False
    return any(var not in a.indices for a in reads if last in a.indices)


def _of_statements(nest: Nest, schedule: Schedule) -> Panel | None:
    """Panels of the loop that all statements share."""
    if not schedule.order:
        return None
    var, found, kept = schedule.order[0], False, 0
    for number, place in enumerate(schedule.places):
        target = nest.producers[number].target
        if var not in place.loops:
            if var in placement.variables(nest, number):
                return None
            continue
        if place.depth != 1 or place.loops[0] != var or place.policy is not None or target.tensor.lacks:
            return None
        rest = placement.kept(nest, number, place)
        kept += math.prod(target.tensor.shape[target.indices.index(v)] for v in rest) * target.dtype.itemsize
        found |= _gains(nest, number, place.loops)
    size = ROWS
    while size > 2 and size * kept > ROOM:
        size //= 2
    return Panel(var, size) if found and size * kept <= ROOM else None


def _alone(nest: Nest, schedule: Schedule) -> Panel | None:
    """Panels of the loop that becomes the rows of tiles, outside all others."""
    order, out = schedule.order, cin.Access(nest.output, nest.indices)
    if not nest.direct or nest.op is None or len(order) < 3 or set(order) != set(nest.variables):
        return None
    first = regions.region(order, out, nest.reads)
    if first is None or any(v in nest.indices for v in order[:first]):
        return None
    dense = [v for v in order[first:-1] if v in nest.indices]
    return Panel(dense[0], ALONE) if dense else None


def _accesses(nest: Nest) -> list[cin.Access]:
    return list(dict.fromkeys((cin.Access(nest.output, nest.indices), *nest.reads)))


def _extent(nest: Nest, var: cin.IndexVar) -> int:
    return next(n for a in _accesses(nest) for ix, n in zip(a.indices, a.tensor.shape, strict=True) if ix == var)
