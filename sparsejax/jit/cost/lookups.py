"""Index arrays as coordinates: how near to each other the rows lie that they name one after the other, from some windows of entries.

    forall t: forall p in S[t]: forall q: forall j:  C[t,j] += V[p,q] * B[K[p,q],j]     K's entries in the order in which S names p: those of B's rows
    forall p: forall j:  C[p,j] = B[K[p],j]                                             in its own order
    forall x: forall z in N[x]: forall c:  C[x,c] += B[N[x,z],c]                        the entries that a sparse index array has, in its own order

`statistics.spread` tells the same of the coordinates of sparse operands. Index arrays of few entries are not looked at, nor are those of which nobody knows
where one entry is followed by the next: these are taken to name rows anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import skew, spreads
from sparsejax.jit.cost.spreads import EVEN, WINDOW, WINDOWS, Spread
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest

Key = tuple[str, int, str]
"""An index array, by name; the extent of what it indexes; and what leads the loops over its entries (""; nothing)."""


class Lookup(NamedTuple):
    """An index array, by its number among the inputs of a kernel; the extent of what it indexes; the number of what leads the loops over its entries,
    or -1; and for each of its dimensions the level of that one, or -1."""

    array: int
    extent: int
    leader: int
    levels: tuple[int, ...]


def of_nest(nest: Nest) -> dict[Key, Lookup]:
    """The index arrays of a kernel that have many entries, with all that may lead the loops over these."""
    numbers = {t.name: k for k, t in enumerate(nest.inputs)}
    found: dict[Key, Lookup] = {}
    for access in nest.reads:
        for index, extent in zip(access.indices, access.tensor.shape, strict=True):
            if not isinstance(index, cin.Access) or not _is_looked_at(index.tensor) or type(extent) is not int:
                continue
            name, number = index.tensor.name, numbers.get(index.tensor.name)
            if number is None or not cin.are_variables(index.indices):
                continue
            if not index.tensor.format.is_dense:
                found[name, extent, name] = Lookup(number, extent, number, ())
                continue
            found[name, extent, ""] = Lookup(number, extent, -1, (-1,) * len(index.indices))
            for leader in nest.reads:
                levels = _led(leader, index)
                if levels is not None and leader.tensor.name in numbers:
                    key = name, extent, leader.tensor.name
                    found[key] = Lookup(number, extent, numbers[leader.tensor.name], levels)
    return found


def _is_looked_at(tensor: cin.Tensor) -> bool:
    if tensor.format.blocked or not spreads.in_line(tensor.format) or any(type(n) is not int for n in tensor.shape):
        return False
    return math.prod(tensor.shape) >= spreads.LEAST


def _led(leader: cin.Access, index: cin.Access) -> tuple[int, ...] | None:
    """The levels of an operand that walk the dimensions of an index array, where these are one run of coordinates and nothing is below."""
    form = leader.tensor.format
    if form.is_dense or form.blocked or not spreads.in_line(form) or leader.tensor.name == index.tensor.name:
        return None
    own = [leader.level_index(level) for level in range(len(form.levels))]
    levels = tuple([own.index(ix) if ix in own else -1 for ix in index.indices])
    walked = sorted({level for level in levels if level >= 0})
    if not walked or walked != list(range(walked[0], len(own))) or form.levels[walked[0]].full:
        return None
    for level in walked[1:]:
        unit = form.levels[level].full and leader.tensor.shape[form.order[level]] == 1
        if not unit and not form.continues(level):
            return None
    return levels


def spread(how: Lookup, inputs: Sequence[Storage]) -> Spread:
    """How near the rows lie that an index array names; looked up once for an array and what leads it.

    >>> from sparsejax.formats import ingest
    >>> near = ingest.as_storage(np.arange(100_000) // 2)
    >>> spread(Lookup(0, 50_000, -1, (-1,)), [near])
    Spread(new=0.5, among=0.015625)
    """
    index = inputs[how.array]
    if len(index.vals) < spreads.LEAST:
        return EVEN
    leader = None if how.leader in (-1, how.array) else inputs[how.leader]
    by = None if leader is None else skew.mark(leader)
    known: dict[Any, Any] = index.cache.setdefault("lookups", {})
    key = how.extent, how.levels
    if key not in known or known[key][0] is not by:
        windows = _in_own_order(index.vals) if leader is None else _in_order_of(leader, index, how.levels)
        silent = WINDOWS - len(windows)
        known[key] = by, spreads.told([np.sort(w, axis=None) for w in windows], how.extent, silent)
    made: Spread = known[key][1]
    return made


def _in_own_order(vals: NDArray[Any]) -> list[NDArray[Any]]:
    return [vals[k : k + WINDOW] for k in spreads.starts(len(vals))]


def _in_order_of(leader: Storage, index: Storage, levels: Sequence[int]) -> list[NDArray[Any]]:
    """Windows of the entries of a dense index array in the order in which a leader names them."""
    first = min(level for level in levels if level >= 0)
    *above, crd = leader.buffers[first]
    rest = math.prod([n for n, level in zip(index.shape, levels, strict=True) if level < 0])
    each = max(1, WINDOW // max(1, rest))
    if len(crd) < each:
        return []
    table = index.vals.reshape([index.shape[d] for d in index.format.order]).transpose(np.argsort(index.format.order))
    windows = []
    for start in spreads.starts(len(crd), each):
        if above and spreads.in_one(above[0], 1, start, each):
            continue
        part = slice(start, start + each)
        named = [_coordinates(leader, level, part) if level >= 0 else slice(None) for level in levels]
        windows.append(table[tuple(named)].reshape(-1)[:WINDOW])
    return windows


def _coordinates(leader: Storage, level: int, part: slice) -> Any:
    form: Format = leader.format
    return 0 if form.levels[level].full else leader.buffers[level][-1][part]
