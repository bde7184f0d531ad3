"""Levels that are assembled as users may, not as we do: slack, larger tables, wider bands, runs that could be merged.

Each is sound by the definition of its level; a storage made with them is relabelled with the real levels.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparsejax.formats import Banded, Diagonal, Ell, Format, Hash, LooseCompressed, RunLength
from sparsejax.formats.levels import segments
from sparsejax.formats.storage import Storage

RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class SloppyLoose(LooseCompressed):
    """Segments in any order, with slack before each and behind the last."""

    ordered: ClassVar[bool] = False

    def assemble(self, above, keys, extents, distinct, vals):
        [(lo, hi, crd)], position, _ = super().assemble(above, keys, extents, distinct, vals)
        parent = np.repeat(np.arange(len(lo)), hi - lo)
        moved, end = np.zeros(len(lo), np.int64), 0
        for p in RNG.permutation(len(lo)):
            moved[p] = end + RNG.integers(0, 3)
            end = moved[p] + hi[p] - lo[p]
        capacity = int(end + RNG.integers(0, 3))
        wide = RNG.integers(-5, 2**20, capacity).astype(crd.dtype)
        place = moved[parent] + np.arange(len(crd)) - lo[parent]
        wide[place] = crd
        return [(moved, moved + hi - lo, wide)], place if position is None else place[position], capacity


@dataclass(frozen=True)
class SloppyEll(Ell):
    """More slots than any parent needs."""

    def assemble(self, above, keys, extents, distinct, vals):
        [(width, lengths, crd)], position, _ = super().assemble(above, keys, extents, distinct, vals)
        old, new = int(width[0]), int(width[0]) + 2
        rows = np.zeros((above.positions, new), crd.dtype)
        rows[:, :old] = crd.reshape(above.positions, old)
        moved = position // max(old, 1) * new + position % max(old, 1)
        return [(width + 2, lengths, rows.reshape(-1))], moved, rows.size


@dataclass(frozen=True)
class SloppyHash(Hash):
    """Tables of any allowed size, filled one by one in any order."""

    def assemble(self, above, keys, extents, distinct, vals):
        parent, key = segments.parents_of(above), keys[0]
        tables = []
        for p in range(above.positions):
            wanted = np.unique(key[parent == p])
            size = 1
            while size < 2 * len(wanted):
                size *= 2
            size *= int(RNG.choice([1, 2, 4])) if len(wanted) else int(RNG.integers(0, 2))
            table = [-1] * size
            for c in RNG.permutation(wanted).tolist():
                slot = first_slot(c, size)
                while table[slot] != -1:
                    slot = (slot + 1) % size
                table[slot] = c
            tables.append(table)
        pos = np.cumsum([0, *map(len, tables)]).astype(np.int64)
        slots = [{c: slot for slot, c in enumerate(table)} for table in tables]
        position = [pos[p] + slots[p][c] for p, c in zip(parent.tolist(), key.tolist(), strict=True)]
        crd = np.array([c for table in tables for c in table], segments.crd_dtype(extents[0]))
        return [(pos, crd)], np.array(position, np.int64), len(crd)


def first_slot(c, size):
    """Where the search for `c` starts, in Python integers."""
    return (c * 0x9E3779B97F4A7C15 % 2**64 >> 32) % size


@dataclass(frozen=True)
class SloppyBanded(Banded):
    """Wider bands than needed; empty ones that start anywhere."""

    def assemble(self, above, keys, extents, distinct, vals):
        parent, key, extent = segments.parents_of(above), keys[0].astype(np.int64), extents[0]
        pos, start = [0], []
        for p in range(above.positions):
            here = key[parent == p]
            first = RNG.integers(0, here.min() + 1) if len(here) else RNG.integers(0, max(extent, 1))
            stop = RNG.integers(here.max() + 1, extent + 1) if len(here) else first
            start.append(first)
            pos.append(pos[-1] + stop - first)
        pos, start = np.array(pos, np.int64), np.array(start, segments.crd_dtype(extent))
        return [(pos, start)], pos[parent] + key - start[parent], int(pos[-1])


@dataclass(frozen=True)
class SloppyDiagonal(Diagonal):
    """More diagonals than needed, inside and outside."""

    def assemble(self, above, keys, extents, distinct, vals):
        offset = keys[0].astype(np.int64) - above.coordinate
        wild = [-(2**63), 2**63 - 1, *RNG.integers(-6, 7, 2).tolist()]
        off = np.unique(np.concatenate([offset, np.array(wild, np.int64)]))
        position = segments.parents_of(above) * len(off) + np.searchsorted(off, offset)
        return [(np.array([len(off)]), off)], position, above.positions * len(off)


@dataclass(frozen=True)
class SloppyRunLength(RunLength):
    """One run per entry."""

    def assemble(self, above, keys, extents, distinct, vals):
        start = keys[0].astype(segments.crd_dtype(extents[0]))
        pos = segments.offsets(segments.parents_of(above), above.positions)
        return [(pos, start, start + start.dtype.type(1))], np.arange(len(start)), len(start)


SLOPPY = {
    kind.__base__: kind for kind in (SloppyLoose, SloppyEll, SloppyHash, SloppyBanded, SloppyDiagonal, SloppyRunLength)
}


def sloppy(form, seed):
    """`form` with levels that are assembled as users may; choices follow from `seed`. Bands in blocks stay inside the shape."""
    RNG.bit_generator.state = np.random.default_rng(seed).bit_generator.state
    kinds = {kind: made for kind, made in SLOPPY.items() if kind is not Banded or not form.blocked}
    levels = [kinds.get(type(level), lambda level=level: level)() for level in form.levels]
    return Format(levels, form.order, form.blocks)


def relabelled(storage, form):
    """The same buffers under the real levels."""
    return Storage(form, storage.shape, storage.fill_value, storage.buffers, storage.vals)
