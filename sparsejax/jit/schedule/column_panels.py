"""Column panels: the columns of a product are computed in panels, outside all other loops, for which dense operands that are read again and again
are packed (`rewrite/pack`).

before:  forall io                             after:  forall jo
           forall ko                                     where P: dense over ko,ki,ji
             forall ii                                     forall ko: forall ki: forall ji
               forall ki                                     P[ko,ki,ji] = B[ko,ki,jo,ji]
                 forall j                                then
                   C[io,ii,j] += A[io,ko,ii,ki] * B[ko,ki,j]
                                                           forall io: forall ko: forall ii: forall ki: forall ji
                                                             C[io,ii,jo,ji] += A[io,ko,ii,ki] * P[ko,ki,ji]

Entries lead to rows of B in any order. Whole rows come from where all of B fits; of a part of their columns, that lies apart by the length of
a row, few lines share a set of a cache, and each page holds few. A packed panel lies together, and stays in the second cache while all rows of
the result are computed. In return, the other operands are read once for every panel.

The price is that of the loops after, as `search` prices them, with packing: a line of B is read in order and written nearby, once. Legal where a
dense result is a reduction, in place, whose last loop runs along it and some dense operands that lack other loops. Source: packing of panels as in
Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008).
"""

from __future__ import annotations

import math
from dataclasses import replace

from sparsejax.jit.cost import machine
from sparsejax.jit.cost.memory import LINE
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.ir import blocks, choices, cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import regions, search
from sparsejax.jit.schedule.schedules import Cost, Schedule

ROOM = 0.8
"""The share of the second cache that packed panels may take: the rest is for what passes by."""


def chosen(nest: Nest, known: Facts, made: Schedule) -> Schedule:
    """`made`, in panels of columns if that is cheaper."""
    if made.panels is not None or (size := width(nest, made)) is None:
        return made
    extent, unit = _extent(nest, made.order[-1]), _unit(nest)
    near = size >= extent
    if near and not choices.free():
        return made
    if near:  # all columns stay near as they are; asked for, there are two panels
        size = -(-extent // (2 * unit)) * unit
    cost = price(nest, known, made, size)
    cheapest = "packed" if not near and cost.total < made.cost.total else "whole"
    if choices.pick("columns", ("whole", "packed"), cheapest) == "whole":
        return made
    return replace(made, columns=size, cost=cost, remembered=None, at_once=False)


def width(nest: Nest, schedule: Schedule) -> int | None:
    """How many columns a panel may have, so that it stays in the second cache; None where there can be no panels."""
    order, out = schedule.order, cin.Access(nest.output, nest.indices)
    if not nest.direct or nest.op is None or nest.nested or nest.bounded or nest.has_constant or len(order) < 3:
        return None
    if schedule.scattered or schedule.workspace is not None or not nest.output.format.is_dense:
        return None
    var = order[-1]
    if set(order) != set(nest.variables) or var.outer is not None or out.indices[out.tensor.format.order[-1]] != var:
        return None
    first = regions.region(order, out, nest.reads)
    if first is None or any(isinstance(ix, cin.Position) for a in (out, *nest.reads) for ix in a.indices):
        return None
    reads = [a for a in nest.reads if var in cin.bound_by(a)]
    apart = dict(schedule.conversions)
    if any(a.indices.count(var) != 1 or any(blocks.unpaired(a, {var})) or a.tensor.name in apart for a in (out, *reads)):
        return None
    packs = packed(nest, var)
    if not packs or len({a.dtype.itemsize for a in (out, *reads)}) > 1:
        return None
    extent, unit = _extent(nest, var), _unit(nest)
    if extent <= unit:
        return None
    column = sum(math.prod(a.tensor.shape) // extent * a.dtype.itemsize for a in packs)
    return unit * max(1, int(ROOM * machine.current().caches[1] / max(1, column * unit)))


def _extent(nest: Nest, var: cin.IndexVar) -> int:
    """How many columns there are."""
    return nest.output.shape[nest.indices.index(var)]


def _unit(nest: Nest) -> int:
    """The columns of a strip, of which a panel is a multiple."""
    return max(1, regions.strip_bytes() // nest.output.dtype.itemsize)


def packed(nest: Nest, var: cin.IndexVar) -> list[cin.Access]:
    """The accesses whose panels are packed: dense operands along `var` that other loops read again, last in memory."""
    found = []
    for a in nest.reads:
        form = a.tensor.format
        last = form.is_dense and bool(a.indices) and a.indices[form.order[-1]] == var
        if last and a.tensor.policy is None and len(cin.bound_by(a)) < len(nest.variables):
            found.append(a)
    return found


def cut(nest: Nest, schedule: Schedule) -> tuple[Nest, Schedule]:
    """A kernel and its schedule in panels."""
    made, order = _split(nest, schedule)
    return made, replace(schedule, order=order)


def _split(nest: Nest, schedule: Schedule) -> tuple[Nest, tuple[cin.IndexVar, ...]]:
    var, size = schedule.order[-1], schedule.columns
    assert size is not None
    outer, inner = _parts(nest, var, size)
    return blocks.split_in(nest, {var: (outer, inner)}), (outer, *schedule.order[:-1], inner)


def _parts(nest: Nest, var: cin.IndexVar, size: int) -> tuple[cin.IndexVar, cin.IndexVar]:
    extent = _extent(nest, var)
    outer = cin.IndexVar(f"{var.name}o")
    return outer, cin.IndexVar(f"{var.name}i", outer, size, extent % size)


def price(nest: Nest, known: Facts, made: Schedule, size: int) -> Cost:
    """What panels of so many columns cost, with packing."""
    var, here = made.order[-1], machine.current()
    parts = _parts(nest, var, size)
    cut, order = _split(nest, replace(made, columns=size))
    counts = {a.tensor.name: blocks.split_counts(a, {var: parts}, known[a.tensor.name]) for a in nest.reads}
    found = search.model(cut, replace(known, counts={**known.counts, **counts})).given(order).cost
    read = sum(math.prod(a.tensor.shape) * a.dtype.itemsize for a in packed(nest, var)) / LINE
    lines = sum(here.line) + here.write[0]
    return replace(found, memory=found.memory + read * lines, conversions=made.cost.conversions)
