"""Thinning: which stored entries of an array stay, and the array of those.

    x, fill 0      5 · 1        kept, tol 1      T · F        thinned      5 · ·
                   · 0 7                         · F T                     · · 7

Where a format stores more than it is told to (blocks, dense levels below sparse ones), what is dropped beside an entry that stays
holds the fill.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import config
from sparsejax.formats import convert, entries, ordering, passes
from sparsejax.formats.distances import differs, magnitudes
from sparsejax.formats.format import Format
from sparsejax.formats.largest import beyond
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.segments import Array
from sparsejax.formats.parts import located, moved, plain
from sparsejax.formats.parts import pruned as parts_pruned
from sparsejax.formats.storage import Storage

Flags = NDArray[np.bool_]
_freeze: Any = np.ndarray.setflags


def flags_format(form: Format) -> Format:
    """The format of a flag per entry of an array in `form`: its own, where every position holds one entry, else coo.

    >>> flags_format(Format.parse("csr", 2)), flags_format(Format.parse("rle", 2))
    (Format('csr'), Format('coo'))
    """
    single = all(level.unique and not level.shared for level in form.levels)
    return form if single else Format.parse("coo", form.ndim)


def kept(x: Storage, tol: Any, mask: Storage | None, keep: int | None, axes: Sequence[int]) -> Storage:
    """A flag for every entry of `x`, in `flags_format`, over its positions: whether it differs from the fill by more than `tol` (None: any
    may stay), holds in `mask`, and is then among the `keep` largest magnitudes of its line along `axes`.

    `tol` is a number, or an array that broadcasts to the shape of `x`. Linear in the entries.

    >>> row = convert.from_dense(np.array([0.0, -3.0, 2.0, 1.0]), Format.parse("coo", 1), 0.0)
    >>> kept(row, 1.0, None, 1, (0,)).vals
    array([ True, False, False])
    """
    form = flags_format(x.format)
    x = x if form == x.format else convert.convert(x, form)
    position = None if x.packed else entries.expand(x.format, x.shape, x.buffers)[1]
    found: list[list[Array]] = []

    def columns() -> list[Array]:
        """Coordinates of entries, for those who ask."""
        if not found:
            found.append(entries.expand(x.format, x.shape, x.buffers)[0])
        return found[0]

    vals = x.vals if position is None else x.vals[position]
    if np.ndim(tol):
        tol = np.broadcast_to(tol, x.shape)[tuple(columns())]
    last = keep is not None and mask is None and not np.ndim(tol) and tol == 0 and x.fill_value == 0
    chosen = None if tol is None or last else differs(vals, x.fill_value, tol)
    if mask is not None:
        flags = _flags_at(mask, x, columns, position)
        chosen = flags if chosen is None else chosen & flags
    if keep is not None:
        chosen = None if chosen is None or chosen.all() else chosen
        all_of_them = keep > 0 and position is None and chosen is None
        rows, lines = (_rows(x, axes), _lines(x, axes)) if all_of_them else (None, None)
        if rows is not None:
            chosen = passes.over(max(len(vals), len(rows))).largest(vals, rows, keep, True)
        elif lines is not None:
            ends, number = passes.over(len(vals)).numbered(*lines)
            chosen = _largest(np.zeros(len(vals), bool), vals, ends, number, keep)
        else:
            columns()
            chosen = largest(vals, found.pop(), x.shape, axes, chosen, keep)  # which gives them up
        if last:  # zeros are below all others
            chosen = _where_not_zero(chosen, vals)
    if chosen is None:
        chosen = np.ones(len(vals), bool)
    if position is not None:
        chosen = passes.over(len(x.vals)).spread(chosen, position, len(x.vals), False)
    return x.with_values(chosen, np.False_)


def _where_not_zero(chosen: Flags, vals: Array) -> Flags:
    """Flags of values that are not 0; only those that hold are looked at, where these are few."""
    if len(vals) < passes.MANY or np.count_nonzero(chosen) * 8 > len(vals):
        return np.logical_and(chosen, vals)
    places = np.flatnonzero(chosen)
    zeros = places[vals[places] == 0]
    if len(zeros):
        chosen = chosen.copy()
        chosen[zeros] = False
    return chosen


def _rows(x: Storage, axes: Sequence[int]) -> Array | None:
    """Where the lines along `axes` begin and end, if these are the segments of the last level and in order; else None."""
    form = x.format
    if tuple(axes) != form.order[-1:] or not len(x.vals):
        return None
    alone = _lists(form) == 1 and form.levels[-1].ordered
    return moved.lines(x) if alone or _lists_last(form) else None


def _lines(x: Storage, axes: Sequence[int]) -> tuple[Array, int] | None:
    """The line along `axes` of every entry, as a vector that is stored, and how many there are: of entries that follow each other in each line in the order
    of `axes`; else None."""
    form, others = x.format, [d for d in range(x.ndim) if d not in axes]
    first = form.runs[-1][0]
    if _lists(form) != len(form.levels) - first or len(others) != 1 or form.order.index(others[0]) < first:
        return None
    extent = x.shape[others[0]]
    if extent > max(passes.MANY, ordering.CROWDED * len(x.vals)):
        return None
    target = Format(Format.parse("coo", x.ndim).levels, (*others, *axes))
    return (x.buffers[form.order.index(others[0])][-1], extent) if convert.levels_to_sort(form, target) == 1 else None


def thinned(x: Storage, flags: Storage) -> Storage:
    """The entries of `x` where `flags` hold, in its format over its fill. Linear in the entries.

    >>> A = convert.from_dense(np.array([[5.0, 0.0], [1.0, 7.0]]), Format.parse("csr", 2), 0.0)
    >>> thinned(A, kept(A, 1.0, None, None, ())).vals
    array([5., 7.])
    """
    form = x.format
    if not all(level.unique for level in form.levels):
        x = convert.convert(convert.convert(x, Format.parse("coo", x.ndim)), form)
    last = _lists(form)
    if last and x.packed and same_positions(x, flags):
        return _at_positions(x, flags.vals, last)
    if x.packed and _lists_last(form) and same_positions(x, flags):
        made = _below_others(x, flags.vals)
        if made is not None:
            return made
    columns, position = entries.expand(form, x.shape, x.buffers)
    chosen = _flags_at(flags, x, lambda: columns, position)
    if chosen.all():
        return x
    number = np.flatnonzero(chosen)
    vals = x.vals[number if position is None else position[number]]
    places = convert.levels_to_sort(form, form)
    return convert.from_columns([c[number] for c in columns], vals, x.shape, form, x.fill_value, True, places)


def of_kind(x: Storage, kind: int) -> Storage:
    """`apart(x)`, by a function that is remembered for arrays of a `kind`: a number for all that their types say but for extents."""
    known = None if config.forcing else _thinners.get(kind)
    if known is None:
        return _of_unknown(x, kind)
    last, thinner = known
    buffers, vals = x.buffers, x.vals
    pos = buffers[-last][0]
    if len(vals) + len(pos) > FEW:
        return apart(x)
    found = thinner(pos, (buffers[-1][-1], vals) if last == 1 else _columns(x, last), ())
    if found is None:
        return x
    ends, columns = found
    made = (*buffers[:-last], (ends, columns[0]))
    if last > 1:
        made += tuple([(crd,) for crd in columns[1:-1]])
    return Storage.of_frozen(x.format, x.shape, x.fill_value, made, columns[-1])


FEW = 1 << 16
"""Entries and segments of arrays that functions thin which are remembered."""
_thinners: dict[int, tuple[int, passes.Thinner]] = {}


def _of_unknown(x: Storage, kind: int) -> Storage:
    """`apart(x)`; what thins arrays of the kind is remembered."""
    last = _lists(x.format)
    if last and not x.format.blocked and x.format.packed and not config.forcing:
        columns = _columns(x, last)
        thinner = passes.over(len(x.vals)).thinner(tuple([column.dtype for column in columns]), x.fill_value)
        if thinner is not None:
            if len(_thinners) >= 1024:
                _thinners.clear()
            _thinners[kind] = last, thinner
    return apart(x)


def apart(x: Storage, tol: Any = 0) -> Storage:
    """`thinned` by what differs from the fill by more than the number `tol`."""
    last = _lists(x.format)
    if last and x.packed:
        buffers, vals = x.buffers, x.vals
        (pos, *_) = buffers[-last]
        few = len(vals) if len(vals) > len(pos) else len(pos)
        columns = [buffers[-1][-1], vals] if last == 1 else _columns(x, last)
        return _of_columns(x, passes.over(few).distant(pos, x.fill_value, tol, columns), last)
    return pruned(x, tol, None, None, ())


def pruned(x: Storage, tol: Any, mask: Storage | None, keep: int | None, axes: Sequence[int]) -> Storage:
    """`thinned` by what is `kept`, by rows where the format of `x` lists its coordinates in another way."""
    listed = (_lists(x.format) or _lists_last(x.format)) and x.packed
    made = None
    if not listed and not np.ndim(tol) and (mask is None or mask.format.is_dense):
        made = plain.by_plain(lambda rows: pruned(rows, tol, mask, keep, axes), x.format, x)
    return thinned(x, kept(x, tol, mask, keep, axes)) if made is None else made


def of_dense(x: Storage, tol: Any, mask: Storage | None, keep: int | None, axes: Sequence[int]) -> Storage | None:
    """As `kept` and `thinned` of the csr matrix that holds what differs from the fill in a dense one; beside the result, a flag for every element is made
    at most. None where that is to be converted first.

    >>> of_dense(convert.from_dense(np.array([[5.0, 0.0], [1.0, 7.0]]), Format.parse("dense", 2), 0.0), 0, None, 1, (1,)).vals
    array([5., 7.])
    """
    if (
        x.ndim != 2
        or not convert.in_order(x.format)
        or not x.vals.size
        or (mask is not None and not mask.format.is_dense)
    ):
        return None
    if keep and mask is None and not np.ndim(tol) and not tol and x.fill_value == 0 and 1 in axes:
        made = foremost(x, keep, len(axes) == 2)
        if made is not None:
            return made
    rows, fill, run = convert.to_dense(x), x.fill_value, passes.over(x.vals.size)
    tol, flags, by_size = 0 if tol is None else tol, None, False
    if keep and mask is None and not np.ndim(tol) and tol == 0 and fill == 0 and 1 in axes:
        if len(axes) == 2 and keep < x.vals.size < passes.MANY:
            below = beyond(magnitudes(x.vals), keep)
            if below is not None:
                pos, crd, vals = run.sifted(rows, fill, below)
                return Storage(_CSR, x.shape, fill, ((), (pos, crd)), vals)
        # what equals the fill is below all others, and goes last
        ends = np.arange(len(rows) + 1) * rows.shape[1] if len(axes) == 1 else np.array([0, rows.size])
        flags, keep, by_size = run.largest(x.vals, ends, keep, True), None, True
    elif mask is not None or np.ndim(tol):
        flags = differs(x.vals, fill, np.broadcast_to(tol, x.shape).ravel() if np.ndim(tol) else tol)
        if mask is not None:
            flags &= convert.to_dense(mask).ravel()
    pos, crd, vals = run.sifted(rows, fill, tol, None if flags is None else flags.reshape(x.shape))
    made = Storage(_CSR, x.shape, fill, ((), (pos, crd)), vals)
    if keep is None:
        return made if not by_size or np.logical_and.reduce(vals) else apart(made)
    return thinned(made, kept(made, None, None, keep, axes))


def foremost(x: Storage, keep: int, whole: bool) -> Storage | None:
    """The csr matrix of what differs from 0 among the `keep` largest of the rows of a dense one, or of all of it, as `whole`, in the order of rows; None where
    there is no such pass."""
    found = passes.over(len(x.vals)).foremost(x.vals.reshape(x.shape), keep, whole)
    if found is None:
        return None
    pos, crd, vals, zeros = found
    made = Storage.of_frozen(_CSR, x.shape, x.fill_value, ((), (pos, crd)), vals)
    return apart(made) if zeros else made


_CSR = Format.parse("csr", 2)


@functools.lru_cache(maxsize=1024)
def _lists(form: Format) -> int:
    """How many levels list coordinates, each once, below dense levels, if these are all; else 0."""
    first = form.runs[-1][0] if form.levels else 0
    above, below = form.levels[:first], form.levels[first:]
    listed = bool(below) and all(level.listed and level.unique for level in below)
    return len(below) if listed and all(level.full for level in above) else 0


@functools.lru_cache(maxsize=1024)
def _lists_last(form: Format) -> bool:
    """Whether all levels are dense, compressed or coordinate ones, and the last one lists coordinates, below others that do or in one run with them."""
    return located.searched(form) and form.ndim > 1 and not form.levels[-1].full


def _below_others(x: Storage, chosen: Flags) -> Storage | None:
    """The entries of `x` at the positions that are chosen, without coordinates above that have none left; None where dense levels are between others."""
    if chosen.all():
        return x
    first, stop = x.format.runs[-1]
    pos, columns = x.buffers[first][0], _columns(x, stop - first)
    found = passes.over(max(len(chosen), len(pos))).chosen(pos, chosen, columns)
    return parts_pruned.with_entries(x, *found)


def _at_positions(x: Storage, chosen: Flags, last: int) -> Storage:
    """The entries of `x` at the positions that are chosen; the `last` levels list coordinates, below dense ones."""
    if chosen.all():
        return x
    (pos, *_) = x.buffers[-last]
    return _of_columns(x, passes.over(max(len(chosen), len(pos))).chosen(pos, chosen, _columns(x, last)), last)


def _columns(x: Storage, last: int) -> list[Array]:
    """Coordinates in the last levels, and values."""
    return [*[level[-1] for level in x.buffers[-last:]], x.vals]


def _of_columns(x: Storage, found: tuple[Array, list[Array]] | None, last: int) -> Storage:
    """An array like `x` with these ends of segments and `_columns`; `x` itself without them."""
    if found is None:
        return x
    ends, (first, *others, vals) = found
    for array in (ends, *found[1]):
        _freeze(array, False)
    buffers = (*x.buffers[:-last], (ends, first))
    if others:
        buffers += tuple([(crd,) for crd in others])
    return Storage.of_frozen(x.format, x.shape, x.fill_value, buffers, vals)


def same_positions(x: Storage, y: Storage) -> bool:
    """Whether two storages hold the same entries at the same positions."""
    if x.format != y.format or x.shape != y.shape or len(x.vals) != len(y.vals):
        return False
    pairs = [(a, b) for xs, ys in zip(x.buffers, y.buffers, strict=True) for a, b in zip(xs, ys, strict=True)]
    return all(_same_memory(a, b) or np.array_equal(a, b) for a, b in pairs)


def _same_memory(a: Array, b: Array) -> bool:
    return a is b or (a.shape == b.shape and a.__array_interface__["data"] == b.__array_interface__["data"])


def _flags_at(mask: Storage, x: Storage, coordinates: Callable[[], list[Array]], position: Array | None) -> Flags:
    """`mask` at the entries of `x`, whose coordinates these are, and which are at `position`."""
    if mask.format.is_dense:
        return convert.to_dense(mask)[tuple(coordinates())]
    if x.format == flags_format(x.format) and same_positions(x, mask):
        return mask.vals if position is None else mask.vals[position]
    columns, (others, values) = coordinates(), mask.expand()
    count, flat = len(columns[0]), Format.parse("coo", x.ndim)
    both = [np.concatenate([c, o]).astype(np.int64, copy=False) for c, o in zip(columns, others, strict=True)]
    codes = np.concatenate([np.zeros(count, np.int8), 1 + values.astype(np.int8)])  # nothing known, False, True
    union = convert.from_coords(both, codes, x.shape, flat, 0, np.maximum).vals
    owned = convert.from_coords(both, np.arange(len(codes)) < count, x.shape, flat, False).vals
    found = union[owned]
    made = np.empty(count, bool)
    place = convert.from_columns(columns, np.arange(count), x.shape, flat, 0, True).vals
    made[place] = np.where(found == 0, bool(mask.fill_value), found == 2)
    return made


def positioned(x: Storage, values: Flags) -> Storage:
    """Flags for the positions of `x`, in the order of its values, as an array; unused positions hold False. In `flags_format`."""
    made = x.with_values(np.array(values), np.False_)
    position = entries.used(x.format, x.shape, x.buffers)
    if position is not None:
        flags = np.zeros(len(values), bool)
        flags[position] = values[position]
        made = x.with_values(flags, np.False_)
    form = flags_format(x.format)
    return made if form == x.format else convert.convert(made, form)


def number(tol: Storage) -> Any:
    """The values of a dense tolerance: a scalar, where it has no dimensions."""
    return convert.to_dense(tol)[()]


def largest(
    vals: Array, columns: Sequence[Array], shape: Sequence[int], axes: Sequence[int], chosen: Flags | None, keep: int
) -> Flags:
    """Which of the entries that are `chosen` (None: all) are among the `keep` largest magnitudes of them in their line along `axes`; of equal ones the first
    coordinates, NaN before all numbers. Linear in the entries, but for the order of those that are not sorted."""
    order = [*(d for d in range(len(shape)) if d not in axes), *axes]
    count = len(order) - len(axes)
    number = None if chosen is None else np.flatnonzero(chosen)
    keys = [columns[d] if number is None else columns[d][number] for d in order]
    del columns
    places = ordering.unsorted(keys)
    made = np.zeros(len(vals), bool)
    if places:
        number = np.arange(len(vals), dtype=passes.crd_dtype(len(vals))) if number is None else number
        extents = [shape[d] for d in order]
        if places == count == 1 and extents[0] <= max(passes.MANY, ordering.CROWDED * len(number)):
            key = keys.pop(0)
            del keys
            ends, (number,) = passes.over(len(number)).bucketed(key, [number], extents[0])
            del key
            return _largest(made, vals, ends, number, keep)
        keys, number = ordering.arranged(keys, number, extents, places)
    lines = keys[:count]
    del keys
    ends = np.append(np.flatnonzero(segments.changes(lines)) if lines else 0, len(vals if number is None else number))
    del lines
    return _largest(made, vals, ends, number, keep)


BLOCK = 1 << 16
"""Entries that are looked at in another order than that of storage at a time, if no line has more."""


def _largest(made: Flags, vals: Array, ends: Array, number: Array | None, keep: int) -> Flags:
    """`made`, where nothing holds yet, with the largest of lines, which lie between neighbours of `ends` among the entries of these numbers (None: all)."""
    count, lines = len(vals if number is None else number), len(ends) - 1
    if not keep or not count:
        return made
    if number is None:
        return passes.over(count).largest(vals, ends, keep, True)
    first = 0
    while first < lines:
        begin = int(ends[first])
        last = max(first + 1, int(np.searchsorted(ends, ends.dtype.type(min(begin + BLOCK, count)), "right")) - 1)
        last = lines if count - begin <= BLOCK else last
        here = number[begin : int(ends[last])]
        if len(here):
            many = passes.over(max(len(here), last - first))
            made[here[many.largest(vals[here], ends[first : last + 1] - begin, keep, True)]] = True
        first = last
    return made
