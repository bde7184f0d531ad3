"""The passes that take parts of arrays as machine code: see `formats.passes`. Their loops are in `segment_loops`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.formats.admission import Admitted
from sparsejax.formats.distances import magnitudes
from sparsejax.formats.passes import MANY, Array, Passes, Room, Thinner, Woven, crd_dtype
from sparsejax.formats.runs import ADDED
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.cost.machine import FAR
from sparsejax.jit.runtime.passes import (
    admitted_entries,
    block_by_block,
    carried_entries,
    duplicates,
    entered_rows,
    entry_tests,
    flagged_values,
    insertions,
    lengths,
    lined_diagonals,
    long_segments,
    packed_entries,
    partitions,
    repeated_entries,
    rotated_segments,
    segment_loops,
)
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.largest import halving, heaps, leading_digits, listed_rows
from sparsejax.jit.runtime.passes.largest.keys import covers
from sparsejax.jit.runtime.passes.listed import listed_segments, named_segments, ranked_names
from sparsejax.jit.runtime.passes.listed.ranked_names import Names
from sparsejax.jit.runtime.passes.packed_entries import Tested
from sparsejax.jit.runtime.passes.pass_kernels import (
    INT64,
    address,
    as_kernel,
    empty,
    moved_up,
    pairs_of,
    room,
    run,
    run_parts,
    vectors,
)
from sparsejax.jit.runtime.passes.ranked_segments import Segments, aside, longest
from sparsejax.jit.runtime.system import threads

COPIED = 1 << 23
"""Bytes from which threads copy sooner than one (4 MB: 166 us by two, 116 by one; 16 MB: 462 and 769, Zen 3)."""
SEARCHED = 4
"""As many entries that are moved take as long as one that is searched."""
HEAPED = 64
"""The largest numbers of segments that a heap finds sooner than partitions do: with 100 they take as long (rows of 1,000)."""

NAMED, FEW, SOME = 1 << 15, 8, 32
"""Entries, and coordinates of a short list, that one kernel numbers sooner than several (25,000 of 5,000 rows by a tenth of the columns: 0.8 of the time);
so many are named in a segment in the mean at most. Where fewer than one coordinate of so many is named, the others go over entries once, and it twice."""


class SegmentPasses(Passes):
    """The passes over segments in machine code. What they return is read-only, but for few entries. Of many, each thread takes a part."""

    def largest(self, size: Array, pos: Array, keep: int, absolute: bool = False) -> Array:
        if absolute and size.dtype.kind == "c":
            size, absolute = magnitudes(size), False
        longest = block_by_block.longest(pos)
        if longest <= keep:
            return super().largest(size, pos, keep, absolute)
        pos = np.ascontiguousarray(pos, INT64)
        many = len(size) >= halving.LEAST * (len(pos) - 1)
        if many and halving.is_short(longest, keep) and covers(size.dtype):
            return halving.largest(np.ascontiguousarray(size), pos, keep, absolute, longest, rows_in_parts(pos))
        if keep <= HEAPED and covers(size.dtype):
            return heaps.largest(np.ascontiguousarray(size), pos, keep, absolute, rows_in_parts(pos))
        if len(size) >= leading_digits.LONG * (len(pos) - 1) and leading_digits.covers(size.dtype, len(size)):
            return leading_digits.largest(np.ascontiguousarray(size), pos, keep, absolute, rows_in_parts(pos))
        return super().largest(size, pos, keep, absolute)

    def foremost(self, matrix: Array, keep: int, whole: bool = False) -> tuple[Array, Array, Array, bool] | None:
        count = matrix.size if whole else matrix.shape[1]
        short = halving.is_short(count, keep)
        if not 0 < keep < count or not (short or (keep <= HEAPED and not whole)) or not covers(matrix.dtype):
            return None
        shares = [(0, 1)] if whole else _shares(0, len(matrix), matrix.size)
        return listed_rows.listed(np.ascontiguousarray(matrix), keep, whole, shares)

    def admitted(
        self, pos: Array | None, columns: Sequence[Array], extents: Sequence[int], vals: Array, copies: bool
    ) -> Admitted | None:
        found = admitted_entries.admitted(pos, columns, extents, vals, copies)
        return found if copies or found is None else (found[0], list(columns), vals, found[3])

    def numbered(self, listed: Array, extent: int) -> tuple[Array, Array]:
        listed = np.ascontiguousarray(listed)
        # every entry reads somewhere in this table: half of the size, half of the lines of cache
        ends, order = empty(extent + 1, crd_dtype(len(listed) + 1)), empty(len(listed), crd_dtype(len(listed)))
        kernel = ranked_names.numbered(listed.itemsize, ends.itemsize, order.itemsize)
        run(kernel, len(listed), extent, listed, ends, order)
        return ends, order

    def places(self, listed: Array, extent: int) -> object:
        return ranked_names.names(listed, extent)

    def picked(self, pos: Array, index: Array, ends: Array | None = None) -> tuple[Array, Array]:
        index, several = np.ascontiguousarray(index, INT64), ends is not None
        start, made = empty(len(index), INT64), empty(len(index) + 1, INT64)
        shares = _shares(0, len(index), len(index))
        lengths.lengths(_picked, (several,), made, shares, pos, index, start, made if ends is None else ends)
        return start, made

    def begun(self, listed: Array, extent: int, wanted: Array) -> tuple[Array, Array]:
        shares = _shares(0, len(wanted), SEARCHED * len(wanted))
        return listed_segments.begun(self, np.ascontiguousarray(listed), extent, np.ascontiguousarray(wanted), shares)

    def copied(self, start: Array, pos: Array, columns: Sequence[Array], places: bool = False) -> list[Array]:
        entries = int(pos[-1])
        moved, pairs, sizes = _targets(columns, entries)
        if places:
            moved.append(empty(entries, INT64))
            pairs.append(address(moved[-1]))
        behind = address(start), address(pos), *pairs
        run_parts(_copied(sizes, entries >= FAR, places), [(*pair, *behind) for pair in rows_in_parts(pos)])
        return moved

    def within(
        self, pos: Array, crd: Array, chosen: range, columns: Sequence[Array]
    ) -> tuple[Array, Array, list[Array]]:
        entries = int(pos[-1]) - int(pos[0])
        if entries < MANY:
            return self._filtered(pos, crd, chosen, columns, entries)
        made, parts = empty(len(pos), INT64), rows_in_parts(pos)
        crd, steps, bounds = (
            np.ascontiguousarray(crd),
            chosen.step > 1,
            (chosen.start, len(chosen) * chosen.step, chosen.step),
        )
        lengths.lengths(_counted_within, (crd.itemsize, steps), made, parts, pos, crd, *bounds)
        source = address(crd)
        found = int(made[-1])
        out = empty(found, crd_dtype(len(chosen)))
        moved, pairs, sizes = _targets(columns, found)
        rows = [
            (int(pos[first]), int(made[first]), int(made[end]), *bounds, source, address(out), *pairs)
            for first, end in parts
        ]
        run_parts(_compacted(crd.itemsize, out.itemsize, sizes, steps), rows)
        return made, out, moved

    def _filtered(
        self, pos: Array, crd: Array, chosen: range, columns: Sequence[Array], entries: int
    ) -> tuple[Array, Array, list[Array]]:
        """`within` of few entries, in one call: what there is room for is cut."""
        start, step = chosen.start, chosen.step
        made, out = empty(len(pos), INT64), np.empty(entries, crd_dtype(len(chosen)))
        moved = [np.empty(entries, column.dtype) for column in columns]
        pairs = [a for pair in zip(columns, moved, strict=True) for a in pair]
        sizes = tuple([column.itemsize for column in columns])
        kernel = _filtered(crd.itemsize, out.itemsize, sizes, step > 1)
        run(kernel, len(pos) - 1, start, len(chosen) * step, step, pos, crd, made, out, *pairs)
        found = int(made[-1])
        if 2 * found < entries:
            return made, out[:found].copy(), [column[:found].copy() for column in moved]
        return made, out[:found], [column[:found] for column in moved]

    def below(self, pos: Array, crd: Array, k: int) -> Array:
        made, crd = empty(len(pos), INT64), np.ascontiguousarray(crd)
        lengths.lengths(_counted_below, (crd.itemsize,), made, rows_in_parts(pos), pos, crd, k)
        return made

    def named(
        self,
        pos: Array,
        crd: Array,
        listed: Array,
        extent: int,
        columns: Sequence[Array],
        places: object = None,
        room: Room | None = None,
    ) -> tuple[Array, Array, list[Array]] | None:
        crd, columns, count = np.ascontiguousarray(crd), [np.ascontiguousarray(c) for c in columns], len(listed)
        most = MANY
        if ranked_names.SELDOM * count < extent and len(crd) * count <= FEW * extent * len(pos):
            most = NAMED if SOME * count >= extent else 2 * MANY
        if places is None and len(columns) == 1 and extent < most and len(crd) + count < most:
            found_few = named_segments.few(pos, crd, np.ascontiguousarray(listed), extent, columns)
            if found_few is not None:
                return found_few
        names = places if isinstance(places, Names) else ranked_names.names(listed, extent)
        found = named_segments.named((pos, crd, columns), names, count, extent, rows_in_parts(pos), room)
        if found is None:
            return None
        made, out, moved, untidy = found
        if untidy:
            self.tidied(made, out, moved[0])
        return made, out, moved

    def located(self, pos: Array, crd: Array, parent: Array, wanted: Array) -> Array:
        out = empty(len(wanted), INT64)
        crd, parent, wanted = (np.ascontiguousarray(a) for a in (crd, parent, wanted))
        behind = [address(a) for a in (pos, crd, parent, wanted, out)]
        kernel = _located(crd.itemsize, parent.itemsize, wanted.itemsize)
        shares = _shares(0, len(wanted), SEARCHED * len(wanted))
        run_parts(kernel, [(*pair, *behind) for pair in shares])
        return out

    def carried(self, pos: Array, crd: Array, vals: Array, to_pos: Array, to_crd: Array) -> Array:
        return carried_entries.carried((pos, crd, vals), (to_pos, to_crd), rows_in_parts(to_pos))

    def rotated(self, pos: Array, crd: Array, vals: Array, cut: int, extent: int) -> tuple[Array, Array]:
        return rotated_segments.rotated(pos, crd, vals, cut, extent, rows_in_parts(pos))

    def repeated(self, column: Array, count: int, counted: np.dtype[Any] | None = None) -> Array:
        return repeated_entries.repeated(column, count, counted, _shares(0, len(column), len(column) * count))

    def placed(self, pos: Array, crd: Array, parent: Array, wanted: Array, vals: Array) -> tuple[Array, Array]:
        places = len(wanted)
        whole = np.ascontiguousarray
        crd, parent, wanted = whole(crd), whole(parent), whole(wanted)
        shares = _shares(0, places, SEARCHED * places)
        number, made = empty(places, crd_dtype(places)), empty(places, vals.dtype)
        count = np.empty(len(shares), INT64)
        kernel = _placed(crd.itemsize, parent.itemsize, wanted.itemsize, number.itemsize, vals.itemsize)
        given = pos, crd, parent, wanted, number, vals, made
        if len(shares) == 1:
            run(kernel, 0, places, count, *given)
        else:
            counts, behind = address(count), list(map(address, given))
            run_parts(kernel, [(*pair, counts + 8 * k, *behind) for k, pair in enumerate(shares)])
        return _found(number, made, shares, count)

    def spotted(
        self, listed: Array, crd: Array, extent: int, row: Array, wanted: Array, vals: Array
    ) -> tuple[Array, Array]:
        listed, crd, row, wanted, vals = (np.ascontiguousarray(a) for a in (listed, crd, row, wanted, vals))
        shares = _shares(0, len(wanted), SEARCHED * len(wanted))
        number, made, count = listed_segments.spotted(self, (listed, crd, vals), extent, (row, wanted), shares)
        return _found(number, made, shares, count)

    def recurred(self, x: Array, b: Array, begins: Array) -> Array:
        if b.dtype.kind not in "fc" or b.dtype.itemsize // (1 + (b.dtype.kind == "c")) not in (4, 8):
            return super().recurred(x, b, begins)
        out = empty(len(b), b.dtype)
        x, b = (np.ascontiguousarray(a, out.dtype) for a in (x, b))
        run(_recurred(out.dtype), len(b), x, b, np.ascontiguousarray(begins), out)
        return out

    def met(self, pos: Array, crd: Array, start: int, step: int, vals: Array) -> tuple[Array, Array]:
        rows = len(pos) - 1
        number, parts = empty(rows, crd_dtype(rows + 1)), rows_in_parts(pos)
        made, count = empty(rows, vals.dtype), np.zeros(len(parts), np.int64)
        behind = start, step, *(address(a) for a in (pos, crd, number)), address(vals), address(made)
        counts, kernel = address(count), _met(crd.itemsize, number.itemsize, vals.itemsize)
        run_parts(kernel, [(*pair, counts + 8 * k, *behind) for k, pair in enumerate(parts)])
        return _found(number, made, parts, count)

    def lined(
        self, extents: tuple[int, int], offsets: Sequence[int], lines: Sequence[Array] | None
    ) -> tuple[Array, Array, Array | None]:
        if not 0 < len(offsets) <= lined_diagonals.MOST:
            return super().lined(extents, offsets, lines)
        return lined_diagonals.lined(extents, offsets, lines)

    def strung(self, columns: Sequence[Array], shifts: Sequence[int] | None, dtype: np.dtype[Any]) -> Array:
        count = sum(map(len, columns))
        near = max(
            FAR, COPIED // dtype.itemsize
        )  # NumPy adds and copies in vectors, and takes memory that is in the cache
        if shifts is not None or count < near or any(column.dtype != dtype for column in columns):
            return super().strung(columns, shifts, dtype)
        made, kept = empty(count, dtype), [np.ascontiguousarray(column) for column in columns]
        rows: list[tuple[int, ...]] = []
        place, size = address(made), dtype.itemsize
        for column in kept:
            for first, end in _shares(0, len(column), len(column)):
                rows.append((size * (end - first), address(column) + first * size, place + first * size))
            place += len(column) * size
        run_parts(_strung(), rows)
        return made

    def interleaved(
        self, parts: Sequence[tuple[Array, ...]], shifts: Sequence[int] | None, out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        kept = [tuple(np.ascontiguousarray(a) for a in part) for part in parts]
        pos = kept[0][0].copy()
        for other in kept[1:]:
            pos += other[0]
        made = [empty(int(pos[-1]), column.dtype) for column in kept[0][1:]] if out is None else out
        added = [0] * len(kept) if shifts is None else shifts
        table = np.array([[*map(address, part), shift] for part, shift in zip(kept, added, strict=True)], np.int64)
        behind = len(kept), *map(address, (table, pos, *made))
        kernel = _interleaved(tuple([column.itemsize for column in made]), shifts is not None)
        run_parts(kernel, [(*pair, *behind) for pair in rows_in_parts(pos)])
        return pos, *made

    def room(self, count: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        return room(count, dtype)

    def crossed(
        self,
        one: tuple[Array, Array, Array],
        other: tuple[Array, Array, Array],
        width: int,
        extents: tuple[int, int],
        multiplied: bool = False,
    ) -> tuple[Array, ...]:
        kept = [np.ascontiguousarray(a) for a in (*one, *other)]
        entries = len(kept[1]) * len(kept[4])
        values = [kept[2].dtype] if multiplied else [kept[2].dtype, kept[5].dtype]
        made = tuple(empty(entries, dtype) for dtype in (crd_dtype(extents[0]), crd_dtype(extents[1]), *values))
        behind = len(kept[3]) - 1, width, *map(address, (*kept, *made))
        kernel = _crossed(tuple(a.itemsize for a in (*kept, *made)), kept[2].dtype.kind == "f" if multiplied else None)
        run_parts(
            kernel,
            [(*pair, *behind) for pair in (rows_in_parts(kept[0]) if entries >= FAR else [(0, len(kept[0]) - 1)])],
        )
        return made

    def regrouped(self, columns: Sequence[Array], old: Sequence[int], new: Sequence[int]) -> list[Array]:
        entries = len(columns[0])
        kept = [np.ascontiguousarray(column) for column in columns]
        made = [empty(entries, crd_dtype(n)) for n in new]
        behind: list[int] = []
        for extents, own in ((old, kept), (new, made)):
            for extent, vector in zip(extents, own, strict=True):
                behind += max(1, extent), address(vector)
        kernel = _regrouped(tuple(c.itemsize for c in kept), tuple(c.itemsize for c in made))
        run_parts(kernel, [(*pair, *behind) for pair in _shares(0, entries, entries)])
        return made

    def chosen(self, pos: Array, flags: Array, columns: Sequence[Array]) -> tuple[Array, list[Array]]:
        found = packed_entries.packed(pos, Tested(entry_tests.Flags(), np.ascontiguousarray(flags)), columns)
        return (pos, list(columns)) if found is None else found

    def flagged(self, key: Array, flags: Array, vals: Array, extent: int) -> Array:
        key, flags, vals = (np.ascontiguousarray(a) for a in (key, flags, vals))
        return flagged_values.flagged(key, flags, vals, extent, int(np.count_nonzero(flags)))

    def distant(self, pos: Array, fill: Any, tol: Any, columns: Sequence[Array]) -> tuple[Array, list[Array]] | None:
        test = entry_tests.distant(columns[-1].dtype, fill, tol)
        if test is None:
            return super().distant(pos, fill, tol, columns)
        number = tol if test.bounded else fill
        beside = np.array([number], columns[-1].dtype) if number != 0 else None
        return packed_entries.packed(pos, Tested(test, None, beside), columns)

    def thinner(self, kinds: tuple[np.dtype[Any], ...], fill: Any) -> Thinner | None:
        test = entry_tests.distant(kinds[-1], fill, 0)
        if test is None or fill != 0:
            return None
        return packed_entries.together(Tested(test).key, kinds)

    def tidied(self, pos: Array, crd: Array, vals: Array) -> tuple[Array, Array, bool]:
        crd, vals, parts = np.ascontiguousarray(crd), np.ascontiguousarray(vals), rows_in_parts(pos)
        most, ranked = block_by_block.longest(pos), longest(crd.itemsize)
        if most > ranked:  # in order before the others, so that nothing is moved in them
            long_segments.ordered(pos, crd, vals, ranked, most, parts)
        twice = np.zeros(len(parts), np.int64)
        behind, counts = (len(crd), *map(address, (pos, crd, vals))), address(twice)
        room, rows = aside(len(parts), crd.itemsize, (vals.itemsize,))
        run_parts(
            _tidied(crd.itemsize, vals.itemsize),
            [(*pair, *behind, counts + 8 * k, *rows[k]) for k, pair in enumerate(parts)],
        )
        del room  # until here, threads write to it
        return crd, vals, not (twice.any() if len(parts) > 1 else twice[0])

    def folded(self, pos: Array, crd: Array, vals: Array) -> tuple[Array, Array, Array]:
        crd, vals = np.ascontiguousarray(crd), np.ascontiguousarray(vals)
        short = vals.dtype.kind not in "fc" or block_by_block.longest(pos) <= ADDED
        # of few entries, another look at all of them takes longer than memory does
        inplace = len(crd) >= MANY and (short or (len(crd) >= FAR and duplicates.longest_run(pos, crd) <= ADDED))
        return duplicates.folded(pos, crd, vals, inplace) or Passes.folded(self, pos, crd, vals)

    def entered(
        self, row: Array, column: Array, vals: Array, rows: int, extent: int
    ) -> tuple[Array, Array, Array] | None:
        row, column, vals = (np.ascontiguousarray(a) for a in (row, column, vals))
        # entries in some order stay in the caches on their way, and a thread that is alone has nobody to share passes with
        if len(vals) < FAR or (threads.count() == 1 and partitions.in_order(row, [column, vals], rows)):
            found = entered_rows.entered(row, column, vals, rows, extent)
            if found is not None:
                return found
        return super().entered(row, column, vals, rows, extent)

    def woven(
        self, pos: Array, crds: Sequence[Array], vals: Array, places: Sequence[Array], new: Array, replace: bool
    ) -> Woven:
        return insertions.woven(pos, crds, vals, places, new, replace)


def _found(number: Array, made: Array, parts: Sequence[tuple[int, int]], count: Array) -> tuple[Array, Array]:
    """What parts have found, each so much from its beginning on, as one."""
    if len(parts) == 1:
        found = int(count[0])
    else:
        pieces = [slice(first, first + int(n)) for (first, _), n in zip(parts, count, strict=True)]
        found = moved_up(number, pieces)
        moved_up(made, pieces)
    if 2 * found < len(number):
        return number[:found].copy(), made[:found].copy()
    return number[:found], made[:found]


def _shares(first: int, end: int, entries: int) -> list[tuple[int, int]]:
    """The numbers from `first` to `end` in parts, one for every thread where there are many entries."""
    if entries < FAR:
        return [(first, end)]
    parts = threads.count()
    return list(itertools.pairwise(first + (end - first) * k // parts for k in range(parts + 1)))


def rows_in_parts(pos: Array) -> list[tuple[int, int]]:
    """Segments in parts of about as many entries each."""
    first, end = int(pos[0]), int(pos[-1])
    parts = threads.count() if end - first >= FAR else 1
    if parts == 1:
        return [(0, len(pos) - 1)]
    inner = np.searchsorted(pos, [first + (end - first) * k // parts for k in range(1, parts)]).tolist()
    return list(itertools.pairwise([0, *inner, len(pos) - 1]))


def _targets(columns: Sequence[Array], count: int) -> tuple[list[Array], list[int], tuple[int, ...]]:
    """Columns for so many entries, the addresses of sources and targets in turns, and the sizes of elements."""
    sources = [np.ascontiguousarray(column) for column in columns]
    moved = [empty(count, column.dtype) for column in sources]
    pairs = [address(a) for pair in zip(sources, moved, strict=True) for a in pair]
    return moved, pairs, tuple(column.itemsize for column in sources)


@as_kernel
def _picked(b: Builder, several: bool, alone: bool) -> None:
    counting, (pos, index, start, ends) = (
        lengths.counting(b, alone),
        vectors(b, 4, (8,) * 4, ("pos", "index", "start", "ends")),
    )
    segment_loops.picked(b, counting, pos, index, start, ends if several else None)


@as_kernel
def _copied(b: Builder, sizes: tuple[int, ...], ahead: bool, places: bool) -> None:
    (first, end), (start, pos) = lengths.share(b), vectors(b, 2, (8, 8), ("start", "pos"))
    place = Vector.in_slot(b, 4 + 2 * len(sizes), 8, "place") if places else None
    segment_loops.copied(b, first, end, start, pos, pairs_of(b, 4, sizes), ahead, place)


def _bounds(b: Builder, first: int, steps: bool) -> tuple[Val, Val, Val | None]:
    """Where a range begins, how far it reaches, and its step if it has one."""
    step = b.slot(first + 2, "i64", "step") if steps else None
    return b.slot(first, "i64", "start"), b.slot(first + 1, "i64", "span"), step


@as_kernel
def _counted_within(b: Builder, size: int, steps: bool, alone: bool) -> None:
    counting, (pos, crd) = lengths.counting(b, alone), vectors(b, 4, (8, size), ("pos", "crd"))
    bounds = _bounds(b, 6, steps)
    segment_loops.counted(b, counting, pos, lambda p: segment_loops.inside(b, crd.number(b, p), *bounds))


@as_kernel
def _counted_below(b: Builder, size: int, alone: bool) -> None:
    counting, (pos, crd) = lengths.counting(b, alone), vectors(b, 4, (8, size), ("pos", "crd"))
    segment_loops.counted_below(b, counting, pos, crd, b.slot(6, "i64", "k"))


@as_kernel
def _compacted(b: Builder, size: int, out_size: int, sizes: tuple[int, ...], steps: bool) -> None:
    begin, place, stop = (b.slot(k, "i64", name) for k, name in enumerate(("begin", "place", "stop")))
    crd, out = vectors(b, 6, (size, out_size), ("crd", "out"))
    segment_loops.compacted(b, begin, place, stop, *_bounds(b, 3, steps), crd, out, pairs_of(b, 8, sizes))


@as_kernel
def _filtered(b: Builder, size: int, out_size: int, sizes: tuple[int, ...], steps: bool) -> None:
    (start, span, step), (pos, crd, made, out) = (
        _bounds(b, 1, steps),
        vectors(b, 4, (8, size, 8, out_size), ("pos", "crd", "made", "out")),
    )
    segment_loops.filtered(b, b.slot(0, "i64", "rows"), start, span, step, pos, crd, made, out, pairs_of(b, 8, sizes))


@as_kernel
def _recurred(b: Builder, dtype: np.dtype[Any]) -> None:
    parts = 1 + (dtype.kind == "c")
    kind = "double" if dtype.itemsize // parts == 8 else "float"
    count, (x, more, begins, out) = b.slot(0, "i64", "count"), vectors(b, 1, (8, 8, 1, 8), ("x", "b", "begins", "out"))
    segment_loops.recurred(b, count, kind, parts, (x.pointer, more.pointer), begins, out.pointer)


@as_kernel
def _located(b: Builder, size: int, parent_size: int, wanted_size: int) -> None:
    names = "pos", "crd", "parent", "wanted", "out"
    segment_loops.located(b, *lengths.share(b), *vectors(b, 2, (8, size, parent_size, wanted_size, 8), names))


@as_kernel
def _placed(b: Builder, size: int, parent_size: int, wanted_size: int, number_size: int, vals_size: int) -> None:
    (first, end), (count,) = lengths.share(b), vectors(b, 2, (8,), ("count",))
    sizes, names = (8, size, parent_size, wanted_size, number_size), ("pos", "crd", "parent", "wanted", "number")
    pos, crd, parent, wanted, number = vectors(b, 3, sizes, names)

    def here(q: Val) -> Val:
        return segment_loops.found(b, crd, pos, b.named("p", parent.number(b, q)), b.named("c", wanted.number(b, q)))

    segment_loops.met(b, first, end, here, number, count, pairs_of(b, 8, (vals_size,)))


@as_kernel
def _met(b: Builder, size: int, number_size: int, vals_size: int) -> None:
    (first, end), (count,) = lengths.share(b), vectors(b, 2, (8,), ("count",))
    start, step = b.slot(3, "i64", "start"), b.slot(4, "i64", "step")
    pos, crd, number = vectors(b, 5, (8, size, number_size), ("pos", "crd", "number"))

    def here(r: Val) -> Val:
        return segment_loops.found(b, crd, pos, r, b.named("c", b.add(start, b.mul(r, step))))

    segment_loops.met(b, first, end, here, number, count, pairs_of(b, 8, (vals_size,)))


@as_kernel
def _strung(b: Builder) -> None:
    b.call("memcpy", "ptr", [b.slot(2, "ptr", "target"), b.slot(1, "ptr", "source"), b.slot(0, "i64", "bytes")])


@as_kernel
def _interleaved(b: Builder, sizes: tuple[int, ...], shifted: bool) -> None:
    (first, end), parts = lengths.share(b), b.slot(2, "i64", "parts")
    names = "table", "made", "crd", *(f"column{k}" for k in range(1, len(sizes)))
    table, made, *columns = vectors(b, 3, (8, 8, *sizes), names)
    segment_loops.interleaved(b, first, end, parts, table, made, columns, shifted)


@as_kernel
def _crossed(b: Builder, sizes: tuple[int, ...], floats: bool | None) -> None:
    """With values of both, or (where it says whether they are floats) their products."""
    (first, end), rows, width = lengths.share(b), b.slot(2, "i64", "rows"), b.slot(3, "i64", "width")
    names = ("pos", "crd", "vals", "pos", "crd", "vals", "row", "column", "left", "right")[: len(sizes)]
    given = vectors(b, 4, sizes, names)
    segment_loops.crossed(b, first, end, rows, width, given[:3], given[3:6], given[6:], floats)


@as_kernel
def _regrouped(b: Builder, sizes: tuple[int, ...], out_sizes: tuple[int, ...]) -> None:
    first, end = lengths.share(b)
    both = [
        (b.slot(2 + 2 * k, "i64", "extent"), Vector.in_slot(b, 3 + 2 * k, size, "column"))
        for k, size in enumerate((*sizes, *out_sizes))
    ]
    segment_loops.regrouped(b, first, end, both[: len(sizes)], both[len(sizes) :])


@as_kernel
def _tidied(b: Builder, size: int, vals_size: int) -> None:
    (first, end), stop = lengths.share(b), b.slot(2, "i64", "stop")
    pos, crd, vals, twice = vectors(b, 3, (8, size, vals_size, 8), ("pos", "crd", "vals", "twice"))
    number, *kept = vectors(b, 7, (8, size, vals_size), ("number", "kept", "kept"))
    segment_loops.tidied(b, first, end, pos, Segments((crd, vals), kept, number, stop), twice)
