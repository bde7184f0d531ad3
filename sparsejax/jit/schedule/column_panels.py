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
the result are computed. In return, the other operands are read once for every panel. (Products of 1,000 rows of 95 entries with 512 columns, C and
ours: 9 Gflop/s, in panels 23, Sapphire Rapids.) What is packed together shares that cache: of the MTTKRP of 500,000 entries with two matrices of 2,000 x
128, 2 MB each, panels take 0.46 of the time (Granite Rapids). Panels begin with a line; operands that are given are taken not to (`line_starts`).

Panels of rows that are walked entry by entry have whole strips of four sums: in narrower ones an entry waits for the one before. Panels of blocks have
one strip: what a block meets lies together, and half a megabyte or less stays near while a walk passes by. (Blocks of 8x8, 4096^2, 512 columns, half of them
stored: 100 ms in panels of 96 columns and strips of two lines, 96 of 64, 77 of 32, 74 of 48 in strips of three lines; a fifth: 35, 31, 30, 27.5;
Granite Rapids.)

The price is that of all columns at once, with what differs (`price`). Legal where a dense result adds up products in place, below a reduction whose
sums may stay in registers, and its last loop runs along it and some dense operands that lack other loops. Source: packing of panels as in Goto and
van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sparsejax.jit.backend import host
from sparsejax.jit.cost import machine
from sparsejax.jit.cost.memory import LINE
from sparsejax.jit.cost.price_table import Levels
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.ir import blocks, choices, cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import line_starts, regions, search
from sparsejax.jit.schedule.schedules import Cost, Schedule

NEAR = 8
"""Lines of a block whose rows come with each other: of larger ones, a tile of rows after the other, every line is waited for as if it came from
memory. Products of 4096^2 with 512 columns in blocks of 8x8 float32 (four lines) take 0.5 to 0.75 of the time in panels; in blocks of 32x32 (64
lines), longer than without."""
GAIN = 0.9
"""What panels of products of blocks may cost, as times what all columns at once do."""
ROOM = 0.8
"""The share of the second cache that what is read again finds: the rest is for what passes by. Products of rows of 95 entries with 8 matrices of 32
columns, of 0.5 to 2.4 MB, take 0.090 ns per product from 0.4 to 0.65 of the second cache, 0.12 from 0.8 of it, 0.13 where it is as large, 0.155 where
it is 1.17 times as large (Granite Rapids, one thread, alone); packed, of which half is read at once, 0.097 to 0.104."""


def chosen(nest: Nest, known: Facts, made: Schedule) -> Schedule:
    """`made`, in panels of columns if that is cheaper."""
    if made.panels is not None or (sizes := widths(nest, made)) is None:
        return made
    if not sizes and not choices.free():
        return made
    extent, unit = _extent(nest, made.order[-1]), _unit(nest)
    priced = [(price(nest, known, made, size), size) for size in sizes or (-(-extent // (2 * unit)) * unit,)]
    cost, size = min(priced, key=lambda x: x[0].total)
    packs, waiting = packed(nest, made.order[-1]), search.model(nest, known).waiting
    whole = made.cost.total + waiting.crowded(packs, made.order, ROOM)
    whole += line_starts.paid(nest, known, made)
    most = whole if _inside(nest, made.order) is None else GAIN * whole
    cheapest = "packed" if sizes and cost.total < most else "whole"
    if choices.pick("columns", ("whole", "packed"), cheapest) == "whole":
        return made
    return replace(made, columns=size, cost=cost, remembered=None, at_once=False)


def widths(nest: Nest, schedule: Schedule) -> tuple[int, ...] | None:
    """How many columns a panel may have, so that it stays in the second cache: none where no number is worth a price; None where there can be no
    panels."""
    order, out = schedule.order, cin.Access(nest.output, nest.indices)
    if not nest.direct or nest.op is None or nest.nested or nest.bounded or nest.has_constant or len(order) < 3:
        return None
    if schedule.scattered or schedule.workspace is not None or not nest.output.format.is_dense:
        return None
    if not out.indices:
        return None
    var = order[-1]
    if set(order) != set(nest.variables) or var.outer is not None or out.indices[out.tensor.format.order[-1]] != var:
        return None
    if regions.region(order, out, nest.reads) is None or any(
        isinstance(ix, cin.Position) for a in (out, *nest.reads) for ix in a.indices
    ):
        return None
    reads = [a for a in nest.reads if var in cin.bound_by(a)]
    if any(a.tensor.name in dict(schedule.conversions) for a in reads):
        return None
    if any(a.indices.count(var) != 1 or any(blocks.unpaired(a, {var})) for a in (out, *reads)):
        return None
    packs = packed(nest, var)
    if not packs or len({a.dtype.itemsize for a in (out, *reads)}) > 1:
        return None
    extent, unit = _extent(nest, var), _unit(nest)
    if extent <= unit:
        return None
    column = sum(math.prod(a.tensor.shape) // extent * a.dtype.itemsize for a in packs)
    room = int(ROOM * machine.current().caches[1] / max(1, column))
    inside, kept = _inside(nest, order), cin.extents((out, *nest.reads))
    if inside is not None and any(kept[v] >= regions.ROWS for v in order[inside:-1] if v in nest.indices):
        return (unit,)
    if inside is not None or _tiled(nest, order):
        size = unit * max(1, room // unit)
        return (size,) if size < extent else ()
    unit = regions.NARROW // nest.output.dtype.itemsize
    powers = (unit << k for k in range(max(0, extent // unit).bit_length()))
    return tuple(size for size in powers if size <= room and size < extent)


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
    var, size = schedule.order[-1], schedule.columns
    assert size is not None
    outer, inner = _parts(nest, var, size)
    return blocks.split_in(nest, {var: (outer, inner)}), replace(schedule, order=(outer, *schedule.order[:-1], inner))


def _parts(nest: Nest, var: cin.IndexVar, size: int) -> tuple[cin.IndexVar, cin.IndexVar]:
    extent = _extent(nest, var)
    outer = cin.IndexVar(f"{var.name}o")
    return outer, cin.IndexVar(f"{var.name}i", outer, size, extent % size)


def price(nest: Nest, known: Facts, made: Schedule, size: int) -> Cost:
    """What panels of so many columns cost: as all columns at once, but packed operands lie among a part of their bytes; then other
    operands are read for every panel, a tile of rows after the other, entries are walked for more strips, and packing is one pass."""
    var, here = made.order[-1], machine.current()
    itemsize = nest.output.dtype.itemsize
    extents, packs = cin.extents((cin.Access(nest.output, nest.indices), *nest.reads)), packed(nest, var)
    begin, model, panels = _inside(nest, made.order), search.model(nest, known), math.ceil(extents[var] / size)
    saved = model.waiting.nearer(packs, made.order, size / extents[var])
    copied = sum(line_starts.one_pass(nest, known, name) for name in {a.tensor.name for a in packs})
    others = [known[a.tensor.name][-1] * a.dtype.itemsize for a in nest.reads if a not in packs]
    near = begin is None or math.prod(extents[v] for v in made.order[begin:-1]) * itemsize <= NEAR * LINE
    again = sum(n / LINE * (_waits(here.stream, here.beyond(n)) if near else sum(here.line)) for n in others)
    loops = made.cost.loops
    if begin is None:
        wide = (
            regions.strip_bytes() if _tiled(nest, made.order) else regions.WIDE if host.has_masks() else regions.NARROW
        )
        walks = panels * math.ceil(size * itemsize / wide) - math.ceil(extents[var] * itemsize / wide)
        rows = model.walk(made.order[: regions.region(made.order, model.result, nest.reads)]).survivors
        loops += walks * (model.walk(made.order[:-1]).cost + here.start * rows)
        apart = [x - y for x, y in zip(here.write, here.fill, strict=True)]  # each row of a panel begins anew
        again += rows * _along(apart, here.beyond(math.prod(nest.output.shape) * itemsize))
    elif regions.blocks_pay(made.order[begin:], model.result, extents, here):  # in panels, sums are held over the walk
        sums = math.prod(extents[v] for v in made.order[begin:] if v in nest.indices) * itemsize
        loops = max(0.0, loops - model.walk(made.order[:begin]).survivors * sums / 8 * here.lane)
    return replace(made.cost, loops=loops, memory=max(0.0, made.cost.memory - saved) + copied + (panels - 1) * again)


def _along(lines: Sequence[float], beyond: Levels) -> float:
    """What a line costs, of which shares lie beyond each level."""
    return sum(each * share for each, share in zip(lines, beyond, strict=True))


def _waits(lines: Levels, beyond: Levels) -> float:
    """What a line costs from beyond the second cache, of which shares lie beyond each level."""
    return lines[1] * beyond[1] + lines[2] * beyond[2]


def _tiled(nest: Nest, order: tuple[cin.IndexVar, ...]) -> bool:
    """Whether tiles have several rows, over a dense loop of the result: narrow strips have sums enough."""
    first = regions.region(order, cin.Access(nest.output, nest.indices), nest.reads)
    return first is not None and any(v in nest.indices for v in order[first:-1])


def _inside(nest: Nest, order: tuple[cin.IndexVar, ...]) -> int | None:
    """Where the loops begin of a product of blocks; None where there are none."""
    out = cin.Access(nest.output, nest.indices)
    first = regions.region(order, out, nest.reads)
    return None if first is None else regions.block(order, first, out, nest.reads)
