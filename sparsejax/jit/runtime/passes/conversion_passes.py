"""The passes of conversions as machine code: see `formats.passes`.

Their loops are in `conversion_loops`. Kernels depend on the widths of what they move alone, so that a handful serves all formats, and comes
from the object cache in every process but the first. Of many entries, each thread takes a part.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.formats.in_numpy.merging import Chosen
from sparsejax.formats.passes import MANY, Array, crd_dtype, use
from sparsejax.jit.backend.builder import Builder
from sparsejax.jit.cost.machine import FAR
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime.passes import (
    conversion_loops,
    entry_tests,
    partitions,
    pass_kernels,
    sifted_rows,
)
from sparsejax.jit.runtime.passes.conversion_loops import LANES, Vector
from sparsejax.jit.runtime.passes.joined import merged_segments, narrowed_segments, swapped_segments
from sparsejax.jit.runtime.passes.pass_kernels import (
    INT64,
    address,
    as_kernel,
    empty,
    filled,
    pairs_of,
    run,
    run_parts,
    vectors,
)
from sparsejax.jit.runtime.passes.segment_passes import SegmentPasses, rows_in_parts
from sparsejax.jit.runtime.system import threads

SPREAD, DIGIT = 4, 11
"""Extents up to SPREAD times the entries take one pass; others are split into digits of DIGIT bits, so that no cost depends on them."""


class CompiledPasses(SegmentPasses):
    """The passes in machine code. What they return is read-only."""

    def loaded(self, name: str, args: Sequence[Any]) -> Any:
        return pass_kernels.loaded(getattr(self, name), *args)

    def owners(self, pos: Array) -> Array:
        parents, entries = len(pos) - 1, int(pos[-1])
        out = empty(entries + LANES, crd_dtype(parents))
        run(_owners(out.itemsize), parents, pos, out)
        return out[:entries]

    def offsets(self, parent: Array, parents: int, shift: int = 0, dtype: Any = np.int64, base: int = 0) -> Array:
        pos, entries, parent = empty(parents + 1, np.dtype(dtype)), len(parent), np.ascontiguousarray(parent)
        parts = threads.count() if entries >= FAR else 1
        ends = [entries * k // parts for k in range(parts + 1)]
        behind = [entries, parents, address(parent), address(pos)]
        moved = shift > 0 or base > 0
        behind += [shift, base] if moved else []
        run_parts(
            _offsets(parent.itemsize, pos.itemsize, crowded(entries, parents), moved),
            [(*pair, *behind) for pair in itertools.pairwise(ends)],
        )
        return pos

    def take(self, column: Array, index: Array) -> Array:
        out = empty(len(index), column.dtype)
        column, index = np.ascontiguousarray(column), np.ascontiguousarray(index)
        run(_take(column.itemsize, index.itemsize), len(index), column, index, out)
        return out

    def ordered(self, key: Array, columns: Sequence[Array], extent: int) -> tuple[Array, list[Array]]:
        if extent <= SPREAD * len(key):
            pos, moved = _scattered(key, columns, extent)
            return self.owners(pos), moved
        for shift in range(0, (extent - 1).bit_length(), DIGIT):
            _, (key, *columns) = _scattered(key, [key, *columns], 1 << DIGIT, shift)
        return key, list(columns)

    def bucketed(
        self, key: Array, columns: Sequence[Array], extent: int, kinds: Sequence[np.dtype[Any]] | None = None
    ) -> tuple[Array, list[Array]]:
        if extent <= SPREAD * len(key):
            return _scattered(key, columns, extent, kinds=kinds)
        return super().bucketed(key, columns, extent, kinds)

    def distinct(self, columns: Sequence[Array]) -> tuple[list[Array], Array]:
        columns = [np.ascontiguousarray(column) for column in columns]
        entries = len(columns[0])
        made, number = [empty(entries, c.dtype) for c in columns], empty(entries, crd_dtype(entries))
        pairs = [a for pair in zip(columns, made, strict=True) for a in pair]
        run(_distinct(number.itemsize, tuple(c.itemsize for c in columns)), entries, number, *pairs)
        left = int(number[-1]) + 1 if entries else 0
        return [c[:left].copy() if 2 * left < entries else c[:left] for c in made], number

    def grid(self, count: int, extent: int) -> tuple[Array, Array]:
        owners, numbers = empty(count * extent, crd_dtype(count)), empty(count * extent, crd_dtype(extent))
        run(_grid(owners.itemsize, numbers.itemsize), count, extent, owners, numbers)
        return owners, numbers

    def spread(self, vals: Array, position: Array, count: int, fill: Any) -> Array:
        made = filled(count, vals.dtype, fill)
        if not len(vals):
            return made
        vals, position = np.ascontiguousarray(vals), np.ascontiguousarray(position)
        run(_spread(vals.itemsize, position.itemsize), len(vals), vals, position, made)
        return made

    def turned(self, matrix: Array) -> Array:
        made = empty(matrix.size, matrix.dtype)
        run(_turned(matrix.itemsize), *matrix.shape, np.ascontiguousarray(matrix), made)
        return made

    def spliced(self, parts: Sequence[tuple[Array, Array, Array]], end: int) -> Array:
        return merged_segments.spliced(parts, end, rows_in_parts)

    def united(self, one: Sequence[Array], other: Sequence[Array]) -> tuple[Array, list[Array], Array, Array]:
        return merged_segments.united(one, other, rows_in_parts)

    def merged(self, one: Sequence[Array], other: Sequence[Array], by: int, shift: int) -> list[Array]:
        return merged_segments.merged(one, other, by, shift, rows_in_parts)

    def halves(self, pos: Array, crd: Array, cut: int) -> Array:
        return swapped_segments.halves(pos, crd, cut, rows_in_parts(pos))

    def swapped(
        self,
        pos: Array,
        half: Array,
        columns: Sequence[Array],
        shifts: tuple[int, int] | tuple[Array, Array] | None = None,
    ) -> list[Array]:
        return swapped_segments.swapped(pos, half, columns, shifts, rows_in_parts(pos))

    def shifted(self, pos: Array, pieces: tuple[Array, Array], below: tuple[Array, Array]) -> Array:
        return swapped_segments.shifted(pos, pieces, below, rows_in_parts(pieces[1]))

    def narrowed(
        self, above: Sequence[Array], pos: Array, crd: Array, chosen: Chosen, columns: Sequence[Array] | None
    ) -> tuple[list[Array], Array, Array, list[Array]]:
        return narrowed_segments.narrowed(above, pos, crd, chosen, columns, rows_in_parts)

    def sifted(self, matrix: Array, fill: Any, tol: Any = 0, flags: Array | None = None) -> tuple[Array, Array, Array]:
        test = entry_tests.Flags() if flags is not None else entry_tests.distant(matrix.dtype, fill, tol)
        if test is None or matrix.itemsize not in (1, 2, 4, 8, 16):
            return super().sifted(matrix, fill, tol, flags)
        asked = np.array([tol if tol else fill], matrix.dtype) if flags is None else np.ascontiguousarray(flags)
        parts = threads.count() if matrix.size >= FAR else 1
        ends = [len(matrix) * k // parts for k in range(parts + 1)]
        return sifted_rows.sifted(np.ascontiguousarray(matrix), test, asked, list(itertools.pairwise(ends)))


def crowded(entries: int, parents: int) -> bool:
    """Whether few rows are expected to be empty."""
    return entries >= 2 * parents


def _scattered(
    key: Array, columns: Sequence[Array], buckets: int, shift: int = 0, kinds: Sequence[np.dtype[Any]] | None = None
) -> tuple[Array, list[Array]]:
    """(pos, columns): entries ordered by the bucket `(key >> shift) % buckets`, and where each bucket begins; `buckets` is a
    power of two, or more than any key. Columns of integers become ones of narrower dtypes, if `kinds` are given."""
    kinds = [column.dtype for column in columns] if kinds is None else kinds
    # what moves a number cuts it: one that becomes wider is wide before
    columns = [c.astype(k) if k.itemsize > c.itemsize else c for c, k in zip(columns, kinds, strict=True)]
    key, columns = np.ascontiguousarray(key), [np.ascontiguousarray(column) for column in columns]
    entries, parts = len(key), threads.count() if len(key) >= FAR else 1
    if parts * buckets > SPREAD * entries:
        parts = 1
    if entries >= FAR and not shift and buckets < 1 << 32:
        width = partitions.width_of(key, columns, buckets)
        several = threads.count()
        ranges = [(entries * k // several, entries * (k + 1) // several) for k in range(several)]
        found = width and partitions.scattered(key, columns, kinds, buckets, width, ranges)
        if found:
            return found
    pos, moved = empty(buckets + 1, INT64), [empty(entries, kind) for kind in kinds]
    mask = -1 if buckets & (buckets - 1) else buckets - 1
    pairs = [address(a) for pair in zip(columns, moved, strict=True) for a in pair]
    places = empty(parts * buckets, INT64)
    sizes = tuple([c.itemsize for c in columns]), tuple([kind.itemsize for kind in kinds])
    first, source = address(places), address(key)
    rows = [
        (
            entries * k // parts,
            entries * (k + 1) // parts,
            buckets,
            shift,
            mask,
            source,
            first + 8 * k * buckets,
            *pairs,
        )
        for k in range(parts)
    ]
    run_parts(partitions.counted(key.itemsize), rows)
    run(partitions.summed(), parts, buckets, first, pos)
    run_parts(_moved(key.itemsize, *sizes, entries >= FAR), rows)
    return pos, moved


@as_kernel
def _owners(b: Builder, size: int) -> None:
    pos, out = vectors(b, 1, (8, size), ("pos", "out"))
    conversion_loops.owners(b, b.slot(0, "i64", "parents"), pos, out)


@as_kernel
def _offsets(b: Builder, size: int, pos_size: int, full: bool, moved: bool) -> None:
    first, end, entries, parents = (
        b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "entries", "parents"))
    )
    parent, pos = vectors(b, 4, (size, pos_size), ("parent", "pos"))
    rows = conversion_loops.Rows(parent, b.slot(6, "i64", "shift"), b.slot(7, "i64", "base")) if moved else parent
    conversion_loops.offsets(b, first, end, entries, parents, rows, pos, full)


@as_kernel
def _take(b: Builder, size: int, index_size: int) -> None:
    conversion_loops.take(
        b, b.slot(0, "i64", "entries"), *vectors(b, 1, (size, index_size, size), ("column", "index", "out"))
    )


@as_kernel
def _moved(b: Builder, key_size: int, given: tuple[int, ...], sizes: tuple[int, ...], ahead: bool) -> None:
    """Entries to the places of their buckets, of one part."""
    conversion_loops.moved(b, partitions.part_in_slots(b, key_size), pairs_of(b, 7, given, sizes), ahead)


@as_kernel
def _distinct(b: Builder, number_size: int, sizes: tuple[int, ...]) -> None:
    entries, number = b.slot(0, "i64", "entries"), Vector.in_slot(b, 1, number_size, "number")
    conversion_loops.distinct(b, entries, number, pairs_of(b, 2, sizes))


@as_kernel
def _grid(b: Builder, size: int, number_size: int) -> None:
    count, extent = b.slot(0, "i64", "count"), b.slot(1, "i64", "extent")
    conversion_loops.grid(b, count, extent, *vectors(b, 2, (size, number_size), ("owners", "numbers")))


@as_kernel
def _turned(b: Builder, size: int) -> None:
    rows, columns = b.slot(0, "i64", "rows"), b.slot(1, "i64", "columns")
    conversion_loops.turned(b, rows, columns, *vectors(b, 2, (size, size), ("matrix", "out")))


@as_kernel
def _spread(b: Builder, size: int, position_size: int) -> None:
    entries = b.slot(0, "i64", "entries")
    conversion_loops.spread(b, entries, *vectors(b, 1, (size, position_size, size), ("vals", "position", "out")))


def _compiled_pays(entries: int) -> bool:
    """Whether passes over so many entries are machine code."""
    cheapest = "numpy" if entries < MANY else "compiled"
    with choices.drawing("passes", entries):
        return choices.pick("passes", ("numpy", "compiled"), cheapest) == "compiled"


use(CompiledPasses(), _compiled_pays)
