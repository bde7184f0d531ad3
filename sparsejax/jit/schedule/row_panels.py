"""Row panels: a sparse operand is read in panels of rows, inside of which its columns come first, where entries of a column share a dense operand.

before:  forall i                                        after:  forall io                                          N in (d,d,c)@(0,1,0)/(1024,1)
           forall k            N[i,k]                              forall k
             forall c                                                forall ii          N[io,k,ii]: rows of register tiles
               forall j                                                forall j (tile)
                 out[i,j] += In[N[i,k],c] * W[k,c,j]                     forall c
                                                                           out[io,ii,j] += In[N[io,k,ii],c] * W[k,c,j]

Row by row, all of `W[k]` is read for every entry. In a panel the entries of a column lie side by side and are rows of register tiles
(`loops/row_tiles`), for which a part of `W[k]` is read once; the panel of the result stays in the second cache meanwhile. Every row adds up its
terms in the same order of columns as before.

An operand of three dimensions has entries of two coordinates in a panel, a row and what is reduced besides (`regions.entries_are_rows`):

         forall x                                        forall xo
           forall z                                        forall z
             forall y            S[x,z,y]                    forall xi, y          S[xo,z,xi,y]: rows of register tiles
               forall c                                        forall j (tile)
                 forall j                                        forall c
                   out[x,j] += ...                                 out[xo,xi,j] += S[xo,z,xi,y] * In[y,c] * W[z,c,j]

The copy in panels is made by a conversion and remembered with the array (`formats/copies`), as others are. Its price counts in the first call.

Source: the gathered matrix products of sparse convolutions, grouped by their offset (Tang et al., "TorchSparse", MLSys 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from sparsejax.formats import Compressed, Coordinate, Dense, Format
from sparsejax.jit.cost import conversion_price, machine, skew
from sparsejax.jit.cost.statistics import Counts, Facts
from sparsejax.jit.ir import blocks, choices, cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import regions
from sparsejax.jit.schedule.schedules import Schedule

SHARED = 1.1
"""How many times as expensive panels may be as loops with a reduction outermost, which threads do not share."""
LEAST, MOST = regions.ROWS, 1 << 13
"""Rows of a panel."""


TOGETHER = 2.0
"""Entries of a column in a panel, on average over those columns that have any there, from which on they may be rows of a tile."""

Panels = tuple[str, Format]
"""The operand that is read in panels, by name, and its format then."""


_Facts = TypeVar("_Facts", Facts, "Facts | None")


def chosen(nest: Nest, known: Facts, made: Schedule, schedule: Callable[[Nest, Facts], Schedule | None]) -> Schedule:
    """`made`, or the schedule of `nest` with an operand in panels, by `schedule`, if that is cheaper with its conversion."""
    found = find(nest)
    if found is None:
        return made
    apart = schedule(*read(nest, known, found))
    if apart is None:
        return made
    name, form = found
    tensor = next(t for t in nest.inputs if t.name == name)
    copied = conversion_price.cost(tensor.format, form, tensor.shape, known[tensor.name][-1])
    copied /= 1.0 if name in known.fresh else machine.current().calls
    cost = replace(apart.cost, conversions=apart.cost.conversions + copied)
    legal = name not in dict(apart.conversions) and math.isfinite(cost.total)
    most = made.cost.total * (1.0 if made.order[0] in cin.bound_by(cin.Access(nest.output, nest.indices)) else SHARED)
    cheapest = "columns" if legal and cost.total < most and _together(nest, known, found) >= TOGETHER else "rows"
    if choices.pick("panels", ("rows", "columns") if legal else ("rows",), cheapest) == "rows":
        return replace(made, against=cost.total)
    return replace(apart, cost=cost, panels=found, against=made.cost.total, remembered=None, at_once=False)


def read(nest: Nest, known: _Facts, panels: Panels | None) -> tuple[Nest, _Facts]:
    """`nest` with its operand in panels and without blocks, and what is known of it, if anything is; or both as they are."""
    if panels is None:
        return nest, known
    if known is None:
        return blocks.split(with_panels(nest, panels)), known
    made = with_panels(nest, panels)
    name, form = panels
    shape = next(t.shape for t in nest.inputs if t.name == name)
    counts = {a.tensor.name: known[a.tensor.name] for a in made.reads}
    counts[name] = _counts(form, shape, counts[name])
    parts = blocks.parts_of_nest(made)
    apart = {a.tensor.name: blocks.split_counts(a, parts, counts[a.tensor.name]) for a in made.reads}
    return blocks.split(made), replace(known, counts={**known.counts, **apart})


def _together(nest: Nest, known: Facts, panels: Panels) -> float:
    """How many entries of a column lie in a panel, on average over those columns that have any there, wherever they fall."""
    name, form = panels
    shape = next(t.shape for t in nest.inputs if t.name == name)
    outer, inner, *_ = form.level_extents(shape)
    entries, places = known[name][-1], float(outer * inner)
    return entries / max(1.0, skew.distinct(entries, places))


def _counts(form: Format, shape: Sequence[int], known: Counts) -> Counts:
    """Positions per level of an operand in panels; below its columns all entries."""
    outer, inner, *rest = form.level_extents(shape)
    return (float(outer), float(outer * inner), *(known[-1] for _ in rest))


def with_panels(nest: Nest, panels: Panels | None) -> Nest:
    """`nest` reading its operand in panels."""
    if panels is None:
        return nest
    name, form = panels
    return nest.in_formats({a: form for a in nest.reads if a.tensor.name == name})


def find(nest: Nest) -> Panels | None:
    """The operand of which panels may be of use, and can be read: the only sparse one, over a row of the result and a column that is reduced and
    leads to rows of a dense operand, which several entries share."""
    found = considered(nest)
    return None if isinstance(found, str) else found


def considered(nest: Nest) -> Panels | str:
    """The operand of which panels may be of use, or why there is none."""
    if nest.nested or len(nest.producers) != 1 or nest.producers[0].op is None:
        return "the kernel is no single reduction"
    if nest.bounded:
        return "it serves many shapes, and rows of panels are counted when it is compiled"
    out = cin.Access(nest.output, nest.indices)
    used = (out, *nest.reads)
    sparse = [a for a in nest.reads if not a.tensor.format.is_dense]
    if len(sparse) != 1:
        return f"{len(sparse) or 'no'} sparse operands are walked, and panels are of one"
    (access,) = sparse
    if blocks.has_blocks(nest) or any(a.tensor.source for a in used):
        return "operands are stored in blocks"
    if not out.tensor.format.is_dense:
        return "the result is sparse"
    if not cin.are_variables(out.indices):
        return "rows of the result are named by an array"
    if len(set(access.indices)) not in (2, 3) or not cin.are_variables(access.indices) or _repeats(access):
        return f"{access} is no array over two or three variables"
    if any(isinstance(ix, cin.Position) for a in used for ix in a.indices):
        return "operands are read by position"
    if not all(level.unique for level in access.tensor.format.levels):
        return f"{access.tensor.name} may hold duplicates"
    kept = [d for d, v in enumerate(access.indices) if v in nest.indices]
    if len(kept) != 1:
        return f"{access} has {'several axes' if kept else 'no axis'} in the result"
    others = [a for a in nest.reads if a != access]
    columns = [d for d, v in enumerate(access.indices) if d not in kept and _leads(access, v, others, nest)]
    row = access.indices[kept[0]]
    if any(a.indices.count(row) > 1 or any(blocks.unpaired(a, {row})) for a in used if a != access):
        return f"{row} is no axis that can be cut everywhere"
    if not columns:
        reduced = " or ".join(str(v) for d, v in enumerate(access.indices) if d not in kept)
        return f"entries of one {reduced} share no matrix of another operand"
    extent = access.tensor.shape[kept[0]]
    if extent < 2 * LEAST:
        return f"{row} has {extent} coordinates only"
    size = [1] * len(access.indices)
    size[kept[0]] = _rows(nest, extent)
    order = (kept[0], columns[0], kept[0])
    if len(access.indices) == 2:
        return access.tensor.name, Format((Dense(), Dense(), Compressed()), order, size)
    last = next(d for d in range(3) if d not in order)
    return access.tensor.name, Format((Dense(), Dense(), Coordinate(), Coordinate()), (*order, last), size)


def _repeats(access: cin.Access) -> bool:
    return len(set(access.indices)) != len(access.indices)


def _leads(access: cin.Access, column: cin.Index, others: Sequence[cin.Access], nest: Nest) -> bool:
    """Whether entries of one `column` share a matrix of another operand, whatever their other coordinates are."""
    rest = [v for v in access.indices if v != column]
    return any(all(_is_shared(a, v, column, nest) for v in rest) for a in others)


def _is_shared(access: cin.Access, row: cin.Index, column: cin.Index, nest: Nest) -> bool:
    """Whether all entries of a column meet the same matrix of `access`: what is reduced by what the result has."""
    others = [v for v in cin.bound_by(access) if v != column]
    if column not in access.indices or row in cin.bound_by(access):
        return False
    return any(v in nest.indices for v in others) and any(v not in nest.indices for v in others)


def _rows(nest: Nest, extent: int) -> int:
    """How many rows a panel has: a power of two, as many as take a quarter of the second cache, where what they gather lies too; two panels at least."""
    row = math.prod(nest.output.shape) / extent * nest.output.dtype.itemsize
    most = min(machine.current().caches[1] / 4 / max(1.0, row), extent / 2, MOST)
    return max(LEAST, 1 << int(math.log2(max(1.0, most))))
