"""What is kept of every dimension: all of it, a range, or the coordinates that a vector names.

    csr  A[lo:hi]       rows lo to hi      a part of pos, of crd and of vals
         A[idx]         rows idx           pos from their lengths; crd and vals, segment by segment
         A[:, lo:hi]    all rows           entries inside, counted and copied
         A[:, idx]      all rows           entries as often as idx names them, ordered in their segments

What is kept of a level is a range of its positions, or a list of them; below a range of positions a level without a key stays as it is.
Formats with other levels than dense, compressed and coordinate ones go by the coordinates of their entries (`by_coordinates`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sparsejax import config
from sparsejax.formats import convert, passes, selection
from sparsejax.formats.format import Format
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.coordinate import Coordinate
from sparsejax.formats.levels.segments import check_size, ranges
from sparsejax.formats.parts import located, of_lists, plain, pruned, unlisted
from sparsejax.formats.parts.by_rows import selected
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.formats.storage import Storage

Key = selected.Key

SHARED = 4
"""A part of a buffer is a view where the memory is at most so many times as large, which the view keeps alive."""


PIECES = 4
"""Positions of pieces in the mean from which these are copied sooner than single ones (1.5 to 2 each: 1.0 to 1.4 of the time)."""


class Kept(NamedTuple):
    """The positions of a level that are kept, in order: from `first` to `stop`, those `listed`, or those from where each of some pieces begins, which stand
    between two of `ends` afterwards."""

    first: int
    stop: int
    listed: Array | None = None
    ends: Array | None = None


_WHOLE = Kept(0, 1)
_DENSE: pruned.Level = (None, [])


def taken(storage: Storage, keys: Sequence[Key], axes: tuple[int, ...], format: Format) -> Storage:
    """The entries that `keys` keep, one for every dimension, numbered by their places; `axes`, of which a range of one coordinate remains,
    are left out. Buffers are shared where most of them stays.

    Linear in the outermost level's positions and in the entries below those that are kept of it.

    >>> A = convert.from_dense(np.arange(6.0).reshape(2, 3), Format.parse("csr", 2), 0.0)
    >>> convert.to_dense(taken(A, (range(1, 2), np.array([2, 0])), (0,), Format.parse("csf", 1)))
    array([5., 3.])
    """
    made = None
    if unlisted.rows_format(storage.format) is not None:
        made = of_lists.row(storage, keys, axes) if axes else None
        if made is not None:
            return made
        storage = of_lists.narrowed(storage, keys)
        lead = storage.format.order[0]
        listed = None if lead in axes else of_lists.rows(storage, keys)
        if listed is not None:
            rest = [None if d == lead else key for d, key in enumerate(keys)]
            return listed if all(key is None for key in rest) else taken(listed, rest, axes, format)
        if not axes:
            made = of_lists.columns(storage, keys)
            made = _of_list(storage, keys, format) if made is None else made
    if axes and made is None:
        made = _row(storage, keys, axes, format)
        made = _column(storage, keys, axes) if made is None else made
    made = by_levels(storage, keys, axes, format) if made is None else made
    if made is None and storage.ndim == 2:
        storage, keys = selected.reached(storage, keys)
        if axes:
            made = selected.crossed(storage, keys, axes, format)
        elif format == storage.format:
            made = selected.selected(storage, keys, by_levels)
    if made is None:
        made = plain.by_plain(
            lambda rows: taken(rows, keys, axes, selection.without(rows.format, axes)), format, storage
        )
    return by_coordinates(storage, keys, axes, format) if made is None else made


def _of_list(storage: Storage, keys: Sequence[Key], format: Format) -> Storage | None:
    """As `taken`, of an array that lists all coordinates, by its rows; None where it has none, or only consecutive ones are kept, which are found
    by their ends."""
    if format != storage.format:
        return None
    lead, *others = [keys[d] for d in format.order]
    if isinstance(lead, range) and lead.step == 1 and all(key is None for key in others):
        return None
    return unlisted.by_rows(lambda rows: by_levels(rows, keys, (), rows.format), storage)


def by_coordinates(storage: Storage, keys: Sequence[Key], axes: Sequence[int], format: Format) -> Storage:
    """As `taken`, for any formats: of all entries, those that are kept are ordered for `format` and assembled. O(n log n) for n entries and
    coordinates that are named."""
    columns, vals = storage.expand()
    held = [*columns, vals]
    del columns, vals
    _drop(held, storage, keys)
    form = storage.format
    level = {d: k for k, d in enumerate(form.order)}
    moved = [-1]
    for d, key in enumerate(keys):
        if isinstance(key, range):
            held[d] = _placed(held[d], key)
            moved += [level[d]] if key.step < 0 and d not in axes else []
        elif key is not None:
            moved += [] if _ranked(held, d, key, storage.shape[d]) else [level[d]]
    shape = tuple(_length(key, n) for key, n in zip(keys, storage.shape, strict=True))
    kept = [d for d in range(storage.ndim) if d not in axes]
    distinct = all(level.unique for level in form.levels)
    held[:] = [*(held[d].astype(crd_dtype(shape[d]), copy=False) for d in kept), held[-1]]
    places = max(moved) + 1 if _same_order(form, format, kept) and not axes else None
    return convert.from_entries(held, tuple(shape[d] for d in kept), format, storage.fill_value, distinct, places)


def _same_order(form: Format, format: Format, kept: Sequence[int]) -> bool:
    """Whether what remains of entries in the order of `form` is in that of `format`."""
    if form.blocked or format.blocked or not all(level.ordered for level in form.levels):
        return False
    return [kept.index(d) for d in form.order if d in kept] == list(format.order)


def _drop(held: list[Array], storage: Storage, keys: Sequence[Key]) -> None:
    """Of columns and, last, values, the entries that are in all ranges."""
    lead = storage.format.order[0]
    inside: Array | None = None
    for d, key in sorted(enumerate(keys), key=lambda pair: pair[0] != lead):
        if not isinstance(key, range) or len(key) == storage.shape[d]:
            continue
        low, high = (min(key[0], key[-1]), max(key[0], key[-1])) if key else (0, -1)
        column = held[d]
        if d == lead and storage.format.levels[0].ordered and not storage.format.blocked:
            ends = column.searchsorted(np.array([low, min(high + 1, storage.shape[d])]).astype(column.dtype))
            first, end = int(ends[0]), int(ends[1]) if high + 1 < storage.shape[d] else len(column)
            held[:] = [_part(vector, first, end) for vector in held]
            column = held[d]
            if abs(key.step) < 2:
                continue
        here = (column >= low) & (column <= high)
        if abs(key.step) > 1:
            here &= (column - column.dtype.type(key.start)) % key.step == 0
        if inside is None:
            inside = here
        else:
            inside &= here
    if inside is not None:
        count = len(inside)
        _, held[:] = passes.over(count).chosen(np.array([0, count]), inside, held)


def _placed(column: Array, key: range) -> Array:
    """The places of coordinates in a range that has them."""
    if not key.start and key.step == 1:
        return column
    start = column.dtype.type(key.start)
    made: Array = column - start if key.step > 0 else start - column
    if abs(key.step) > 1:
        made //= column.dtype.type(abs(key.step))
    return made


def _ranked(held: list[Array], d: int, key: Array, extent: int) -> bool:
    """Of columns and, last, values, the entries whose coordinates d are in the list `key`, with their places in it. Whether they are in the order that
    they had, as the list increases."""
    *columns, vals = held
    if of_lists.tabled(extent, len(vals) + len(key)):
        table = np.full(extent, -1, crd_dtype(len(key)))
        places = np.arange(len(key), dtype=table.dtype)
        table[key] = places
        if (table[key] == places).all():
            del columns, vals
            held[d] = passes.over(len(held[d])).take(table, held[d])
            if len(key) < extent:
                inside = held[d] >= 0
                _, held[:] = passes.over(len(inside)).chosen(np.array([0, len(inside)]), inside, held)
            return bool((key[1:] > key[:-1]).all())
    columns, vals = _named(columns, vals, d, key, extent)
    held[:] = [*columns, vals]
    return False


def _named(columns: list[Array], vals: Array, d: int, key: Array, extent: int) -> tuple[list[Array], Array]:
    """Columns and values of the entries whose coordinate d is in the list `key`, with their places in it. Where a table of all coordinates pays, in
    the order of these places: a pass is left that sorts by the others; else each entry is searched for."""
    if not of_lists.tabled(extent, len(vals) + len(key)):
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        number, place = ranges(
            np.searchsorted(ordered, columns[d], "left"), np.searchsorted(ordered, columns[d], "right")
        )
        columns, vals = [column[number] for column in columns], vals[number]
        columns[d] = order[place]
        return columns, vals
    many = passes.over(max(len(vals), len(key)))
    pos, moved = many.bucketed(columns[d], [*columns[:d], *columns[d + 1 :], vals], extent)
    start, pos = many.picked(pos, key)
    many = passes.over(max(len(key), int(pos[-1])))
    *rest, vals = many.copied(start, pos, moved)
    return [*rest[:d], many.owners(pos), *rest[d:]], vals


def _length(key: Key, extent: int) -> int:
    return extent if key is None else len(key)


def _row(storage: Storage, keys: Sequence[Key], axes: tuple[int, ...], format: Format) -> Storage | None:
    """As `taken`, for one whole row of a matrix whose rows list their columns; else None."""
    form = storage.format
    dims = unlisted.listed_rows(form)
    if dims is None or axes != dims[:1] or keys[dims[1]] is not None or format.levels != form.levels[1:]:
        return None
    key, (pos, crd) = keys[dims[0]], storage.buffers[1]
    assert isinstance(key, range)
    first, stop = int(pos[key.start]), int(pos[key.start + 1])
    return located.listed(
        format, _part(crd, first, stop), _part(storage.vals, first, stop), storage.shape[dims[1]], storage.fill_value
    )


def _column(storage: Storage, keys: Sequence[Key], axes: tuple[int, ...]) -> Storage | None:
    """As `taken`, for one column of consecutive rows of a matrix whose rows list their columns; else None."""
    dims = unlisted.listed_rows(storage.format)
    if dims is None:
        return of_lists.column(storage, keys, axes)
    if axes != dims[1:]:
        return None
    rows, column = keys[dims[0]], keys[dims[1]]
    assert isinstance(column, range)
    if rows is None:
        rows = range(storage.shape[dims[0]])
    if not isinstance(rows, range) or rows.step != 1:
        return None
    return located.line(storage, rows.start, len(rows), column.start, 0)


class _Run(NamedTuple):
    """A run of levels, or a dense one: the first of them and the one behind them, and their dimensions, of which the only one may be left out."""

    dense: bool
    first: int
    stop: int
    dims: tuple[int, ...]
    gone: bool


@functools.lru_cache(maxsize=1024)
def _runs(form: Format, axes: tuple[int, ...], format: Format) -> tuple[_Run, ...] | None:
    """The runs of levels, if all are of the kinds that `by_levels` knows, and what remains is `format`."""
    if form.blocked or not form.ndim or form.is_dense or format.blocked:
        return None
    made = []
    for first, stop in form.runs:
        level, dims = form.levels[first], form.order[first:stop]
        run = _Run(level.full, first, stop, dims, any(d in axes for d in dims))
        if not (run.dense or (isinstance(level, Compressed | Coordinate) and level.unique)):
            return None
        above = form.levels[first - 1] if first else None
        if run.gone and not run.dense and (stop - first > 1 or (above is not None and above.full)):
            return None
        made.append(run)
    left = [form.levels[run.first : run.stop] for run in made if not run.gone]
    return tuple(made) if [format.levels[first:stop] for first, stop in format.runs] == left else None


def by_levels(storage: Storage, keys: Sequence[Key], axes: tuple[int, ...], format: Format) -> Storage | None:
    """As `taken`, level by level; None where a level is not dense, compressed or coordinate, or a key too much work for it."""
    runs = _runs(storage.format, axes, format)
    if runs is None:
        return None
    old, vals = storage.shape, storage.vals
    shape = list(old)
    for d, key in enumerate(keys):
        if key is not None:
            shape[d] = count = len(key)
            if not count:
                return None
    kept, last = _WHOLE, len(old)
    made: list[pruned.Level] = []
    moved = listed = changed = False
    for dense, first, stop, dims, gone in runs:
        lead = dims[0]
        if dense:
            key = keys[lead]
            if kept.ends is not None:
                kept = _spread_out(kept, old[lead]) if key is None else Kept(0, 0, _one_by_one(kept))
            if kept.ends is None:
                kept = _below(kept, key, old[lead])
            changed = changed or (listed and key is not None)
            if not gone:
                made.append(_DENSE)
            continue
        pos, *crds = storage.buffers[first]
        keyed = keys[lead] is not None
        if stop - first > 1:
            crds += [level[0] for level in storage.buffers[first + 1 : stop]]
            keyed = keyed or any(keys[d] is not None for d in dims)
        if not keyed and kept.listed is None:
            begin, end = int(pos[kept.first]), int(pos[kept.stop])
            if kept.first or end != len(crds[0]) or len(pos) != kept.stop + 1:
                pos = _part(pos, kept.first, kept.stop + 1) if not begin else pos[kept.first : kept.stop + 1] - begin
                crds = [_part(c, begin, end) for c in crds]
            kept = Kept(begin, end)
        elif kept.stop - kept.first == 1 and kept.listed is None and _consecutive([keys[d] for d in dims]):
            begin, end = _between(crds[0], int(pos[kept.first]), int(pos[kept.stop]), keys[lead])
            crds = [_renumbered(crds[0], begin, end, keys[lead]), *(_part(c, begin, end) for c in crds[1:])]
            pos, kept, changed = np.array([0, end - begin]), Kept(begin, end), changed or listed
        elif kept.listed is not None and not keyed and (kept.ends is not None or _follows(len(crds[0]), len(pos))):
            pos, crds, kept = _followed(kept, pos, [*crds, vals] if stop == last else crds)
            if stop == last:
                vals, moved = crds.pop(), True
        else:
            if kept.ends is not None:
                kept = Kept(0, 0, _one_by_one(kept))
            count = len(crds[0])
            own, above = made[-1] if made and stop == first + 1 and kept.listed is None else _DENSE
            apart = own is not None and len(above[0]) == kept.stop - kept.first
            chosen = _rising(keys[lead], old[lead], count) if apart else None
            if chosen is not None:
                assert own is not None
                made.pop()
                ends = pos[kept.first : kept.stop + 1]
                given = (own, *above), ends, crds[0], chosen, [vals] if stop == last else None
                (own, *above), pos, crd, (carried,) = passes.over(count).narrowed(*given)
                full = pruned.pruned(made, own)
                if full is None:
                    return None
                made.append((full, above))
                crds, listed, changed = [crd], True, False
                if stop == last:
                    vals, moved = carried, True
                else:
                    kept = Kept(0, 0, carried)
                if not gone:
                    made.append((pos, crds))
                continue
            columns: list[Array] = [*crds, *([vals] if stop == last else [])]
            if kept.listed is None:
                if stop < last:
                    columns.append(np.arange(count, dtype=crd_dtype(count)))
                pos = pos[kept.first : kept.stop + 1]
            else:
                count = len(kept.listed)
                start, pos = passes.over(count).picked(pos, kept.listed)
                kept = _WHOLE  # what was listed goes
                columns = passes.over(max(count, int(pos[-1]))).copied(start, pos, columns, stop < last)
                del start
            if keyed:
                found = _inside(pos, columns, [keys[d] for d in dims], [old[d] for d in dims])
                if found is None:
                    return None
                pos, columns = found
                changed = changed or listed
            *crds, carried = columns
            del columns
            if stop == last:
                vals, moved = carried, True
            else:
                kept = Kept(0, 0, carried)
            del carried
        if changed or gone:  # what is left empty is not stored in the levels above
            full = pruned.pruned(made, pos)
            if full is None or (gone and not made and len(crds[0]) != 1):
                return None
            pos = full
        listed = True
        if not gone:
            made.append((pos, crds))
    buffers = pruned.buffers_of(made)
    if not moved:
        if kept.listed is None:
            vals = _part(vals, kept.first, kept.stop)
        elif kept.ends is not None:
            (vals,) = passes.over(max(len(kept.listed), int(kept.ends[-1]))).copied(kept.listed, kept.ends, [vals])
        else:
            vals = passes.over(len(kept.listed)).take(vals, kept.listed)
    if axes:
        shape = [n for d, n in enumerate(shape) if d not in axes]
    return Storage.of_frozen(format, tuple(shape), storage.fill_value, buffers, pruned.frozen(vals))


def _part(buffer: Array, first: int, stop: int) -> Array:
    """`buffer[first:stop]`: the buffer itself, a view where that keeps little else alive, or a copy."""
    made = buffer[first:stop]
    if made.size == buffer.size:
        return buffer
    whole = buffer.base if isinstance(buffer.base, np.ndarray) else buffer
    return made if SHARED * made.nbytes >= whole.nbytes else made.copy()


def _consecutive(keys: Sequence[Key]) -> bool:
    """Whether of the dimensions of a run consecutive coordinates of the first are kept, and all of the others."""
    lead, *others = keys
    return isinstance(lead, range) and lead.step == 1 and all(key is None for key in others)


def _between(crd: Array, first: int, end: int, chosen: Key) -> tuple[int, int]:
    """Where the coordinates in a range of step 1 are among those from `first` to `end`, which increase."""
    assert isinstance(chosen, range)
    inner = crd[first:end]  # limits of another dtype would be compared with a copy
    ends = np.minimum((chosen.start, max(chosen.start, chosen.stop)), np.iinfo(inner.dtype).max).astype(inner.dtype)
    begin, stop = inner.searchsorted(ends).tolist()
    return first + begin, first + stop


def _renumbered(crd: Array, begin: int, end: int, chosen: Key) -> Array:
    """The coordinates from `begin` to `end` by their places in a range of step 1."""
    assert isinstance(chosen, range)
    kind = crd_dtype(len(chosen))
    if not chosen.start and kind == crd.dtype:
        return _part(crd, begin, end)
    return pruned.frozen(np.subtract(crd[begin:end], chosen.start, dtype=crd.dtype).astype(kind, copy=False))


def _below(kept: Kept, key: Key, extent: int) -> Kept:
    """The positions of a dense level that are kept below `kept` positions above it."""
    if kept.listed is None:
        if key is None:
            return Kept(kept.first * extent, kept.stop * extent)
        if kept.stop - kept.first == 1:
            base = kept.first * extent
            if isinstance(key, range):
                if key.step == 1 or len(key) == 1:
                    return Kept(base + key.start, base + key.start + len(key))
                return Kept(0, 0, np.arange(base + key.start, base + key.stop, key.step))
            return Kept(0, 0, key + base if base else key)
    above = np.arange(kept.first, kept.stop) if kept.listed is None else kept.listed.astype(np.int64, copy=False)
    if isinstance(key, range) and len(key) == 1:
        return Kept(0, 0, above * extent + key.start)
    inner = np.arange(extent) if key is None else np.asarray(key, np.int64)
    check_size(len(above) * len(inner), "a dense level")
    return Kept(0, 0, np.add.outer(above * extent, inner).reshape(-1))


def _rising(key: Key, extent: int, entries: int) -> range | Array | None:
    """A key that keeps coordinates in order, each once: a range, or a table of their places, where that is short, and there are many entries; else None."""
    if isinstance(key, range):
        return key if key.step > 0 else None
    if key is None or extent > passes.MANY or (entries < passes.MANY and not config.forcing):
        return None
    if not (key[1:] > key[:-1]).all():
        return None
    table = np.full(extent, -1, crd_dtype(len(key)))
    table[key] = np.arange(len(key), dtype=table.dtype)
    return table


def _spread_out(kept: Kept, extent: int) -> Kept:
    """The positions of a dense level, all of whose coordinates stay, below pieces of positions."""
    assert kept.listed is not None and kept.ends is not None
    return Kept(0, 0, kept.listed.astype(np.int64, copy=False) * extent, kept.ends * extent)


def _one_by_one(kept: Kept) -> Array:
    """The positions of all pieces."""
    assert kept.listed is not None and kept.ends is not None
    made: Array = np.arange(kept.ends[-1])
    made += (kept.listed - kept.ends[:-1]).repeat(kept.ends[1:] - kept.ends[:-1])
    return made


def _follows(entries: int, segments: int) -> bool:
    """Whether pieces of positions are sooner followed than one position after the other."""
    return bool(config.forcing) or entries >= PIECES * segments


def _followed(kept: Kept, pos: Array, columns: list[Array]) -> tuple[Array, list[Array], Kept]:
    """`pos` and columns of a level all of whose coordinates stay below positions that are listed, or pieces of them; and what is kept of it: pieces."""
    start, ends = kept.listed, kept.ends
    assert start is not None
    below = passes.over(len(start)).picked(pos, start, ends)
    made = below[1]
    if ends is not None:
        made = passes.over(max(len(start), int(ends[-1]))).shifted(pos, (start, ends), below)
    columns = passes.over(max(len(start), int(below[1][-1]))).copied(*below, columns)
    return made, columns, Kept(0, 0, *below)


def _inside(
    pos: Array, columns: list[Array], keys: Sequence[Key], extents: Sequence[int]
) -> tuple[Array, list[Array]] | None:
    """`pos` and columns, those of the coordinates first, of the entries that `keys` keep of a run of levels; None for what is left to
    `by_coordinates`: lists of coordinates in runs of several levels, or that are short for their extent."""
    if len(keys) > 1:
        return _masked(pos, columns, keys)
    ((key,), (extent,)) = keys, extents
    crd, *rest = columns
    entries = int(pos[-1] - pos[0])
    if isinstance(key, range) and key.step > 0:
        pos, crd, rest = passes.over(entries).within(pos, crd, key, rest)
        return pos, [crd, *rest]
    assert key is not None
    if not of_lists.tabled(extent, entries + (0 if isinstance(key, range) else len(key))):
        return None
    listed = np.arange(key.start, key.stop, key.step) if isinstance(key, range) else key
    many = passes.over(max(entries, len(listed)))
    found = many.named(pos, crd, listed, extent, rest)
    return None if found is None else (found[0], [found[1], *found[2]])


def _masked(pos: Array, columns: list[Array], keys: Sequence[Key]) -> tuple[Array, list[Array]] | None:
    """As `_inside`, by ranges of rising coordinates of several levels."""
    first, end = int(pos[0]), int(pos[-1])
    lead = keys[0]
    if isinstance(lead, range) and lead.step == 1 and len(pos) == 2:  # sorted by it
        first, end = _between(columns[0], first, end, lead)
        pos = np.array([first, end])
    columns = [column[first:end] for column in columns]
    inside: Array | None = None
    for crd, key in zip(columns, keys, strict=False):
        if key is None or (key is lead and len(pos) == 2 and isinstance(key, range) and key.step == 1):
            continue
        if not isinstance(key, range) or key.step < 0:
            return None
        here = (crd >= key.start) & (crd < key.stop)
        if key.step > 1:
            here &= (crd - crd.dtype.type(key.start)) % key.step == 0
        inside = here if inside is None else inside & here
    if inside is None:
        pos = pos - first
    else:
        pos, columns = passes.over(len(inside)).chosen(pos - first, inside, columns)
    for k, key in enumerate(keys):
        if isinstance(key, range):
            columns[k] = _placed(columns[k], key).astype(crd_dtype(len(key)), copy=False)
    return pos, columns
