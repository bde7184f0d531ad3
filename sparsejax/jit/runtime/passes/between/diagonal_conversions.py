"""Rows or columns of entries into diagonals (dia), in two kernel calls; nothing is made beside the result but two numbers a diagonal of the shape.

    marked     crd[p] - r + rows - 1                    a byte for every diagonal that the shape has; of columns, r - crd[p] + rows - 1
    written    out[r * count + rank[the same]]          the values, where the fill was; of columns, out[crd[p] * count + ..]

Covered are csr, csc and coo of either order into rows of diagonals, or columns of them; of matrices with a few times as many diagonals as entries
at most.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

from sparsejax import config
from sparsejax.formats import Format, convert, passes
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.coordinate import Coordinate
from sparsejax.formats.levels.dense import Dense
from sparsejax.formats.levels.diagonal import Diagonal
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.cost.machine import FAR
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime.passes.between import block_conversions
from sparsejax.jit.runtime.passes.pass_kernels import address, as_kernel, filled, run_parts, vectors
from sparsejax.jit.runtime.system import threads

SPREAD = 8
"""Diagonals of the shape for each entry, up to which every one of them has a mark."""


@functools.lru_cache(maxsize=256)
def _rows_of(source: Format, target: Format) -> Format | None:
    """The format of compressed rows or columns that become the diagonals of `target`: entries of `source` are in its order. None for other formats."""
    if (source.ndim, target.ndim) != (2, 2) or source.blocked or target.blocked:
        return None
    kinds = tuple(map(type, source.levels))
    listed = kinds in ((Dense, Compressed), (Dense, Coordinate), (Coordinate, Coordinate))
    listed = listed and all(level.unique for level in source.levels)
    if tuple(map(type, target.levels)) != (Dense, Diagonal) or not listed:
        return None
    return Format((Dense(), Compressed()), source.order)


def _into(storage: Storage, format: Format) -> Storage:
    """Rows or columns of entries, of which there are some, as diagonals."""
    (pos, crd), vals = storage.buffers[1], storage.vals
    rows, columns = (storage.shape[d] for d in format.order)
    spread = rows + columns - 1
    turned, outer = storage.format.order != format.order, len(pos) - 1
    parts = threads.count() if len(vals) >= FAR else 1
    shares = list(itertools.pairwise(outer * k // parts for k in range(parts + 1)))
    marks = np.zeros(spread, np.uint8)
    given = rows - 1, address(pos), address(crd)
    run_parts(_marked(crd.itemsize, turned), [(*share, *given, address(marks)) for share in shares])
    off = np.flatnonzero(marks)
    count, rank = len(off), np.empty(spread, np.int32)
    rank[off] = np.arange(count, dtype=np.int32)
    off -= rows - 1
    positions = segments.check_size(rows * count, "a diagonal level")
    convert.check_padding(positions, vals, format)
    stored = filled(positions, vals.dtype, storage.fill_value)
    behind = *given, count, address(rank), address(vals), address(stored)
    run_parts(_written(crd.itemsize, vals.itemsize, turned), [(*share, *behind) for share in shares])
    return Storage(format, storage.shape, storage.fill_value, ((), (np.array([count]), off)), stored)


def _diagonals(b: Builder, turned: bool, r: Val, c: Val, last: Val) -> Val:
    """The number of the diagonal of an entry, counted from the last row on."""
    return b.named("diagonal", b.add(b.sub(r, c) if turned else b.sub(c, r), last))


@as_kernel
def _marked(b: Builder, size: int, turned: bool) -> None:
    first, end, last = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "last")))
    pos, crd, marks = vectors(b, 3, (8, size, 1), ("pos", "crd", "marks"))
    with b.for_(first, end, "r") as r, b.for_(pos.get(b, r), pos.get(b, b.add(r, 1)), "p") as p:
        marks.put(b, _diagonals(b, turned, r, crd.number(b, p), last), b.const("i8", 1))


@as_kernel
def _written(b: Builder, size: int, vals_size: int, turned: bool) -> None:
    first, end, last = (b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "last")))
    (pos, crd), count = vectors(b, 3, (8, size), ("pos", "crd")), b.slot(5, "i64", "count")
    rank, vals, out = vectors(b, 6, (4, vals_size, vals_size), ("rank", "vals", "out"))
    with b.for_(first, end, "r") as r, b.for_(pos.get(b, r), pos.get(b, b.add(r, 1)), "p") as p:
        c = b.named("c", crd.number(b, p))
        place = rank.number(b, _diagonals(b, turned, r, c, last))
        out.put(b, b.add(b.mul(c if turned else r, count), place), vals.get(b, p))


def converted(storage: Storage, format: Format) -> Storage | None:
    """`storage` in another format, diagonals or others; None where no plan covers that, or passes one by one cost less."""
    rows = _rows_of(storage.format, format)
    if (
        rows is None
        or not len(storage.vals)
        or storage.dtype.itemsize not in (1, 2, 4, 8, 16)
        or sum(storage.shape) > SPREAD * len(storage.vals)
    ):
        return block_conversions.converted(storage, format)
    if config.forcing and choices.free():
        with choices.drawing("conversion", storage.format, format, storage.shape, storage.dtype):
            if choices.pick("conversion", ("passes", "kernel"), "kernel") == "passes":
                return None
    elif len(storage.vals) < passes.MANY:
        return None
    return _into(convert.convert(storage, rows), format)


convert.use(converted)
