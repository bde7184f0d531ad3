"""Consecutive rows of matrices in formats with other levels than rows or lists of coordinates, and such matrices one behind the other, both by their
buffers as they are.

ell       width 2, len 1 2, crd 3 0 1 4       cut 1:    width 2, len 2, crd 1 4
dia       off -1 0, vals · a b c              cut 1:    off 0 1, vals b c
banded    pos 0 3 5, start 1 4                cut 1:    pos 0 2, start 4
behind    ell as wide as the widest of all, dia with the diagonals of any, others one behind the other

What is cut may have more slots or diagonals than it needs; what stands one behind the other has not.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsejax.formats import convert, passes
from sparsejax.formats.format import Format
from sparsejax.formats.levels.banded import Banded
from sparsejax.formats.levels.bitmap import Bitmap
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.dense import Dense
from sparsejax.formats.levels.diagonal import Diagonal
from sparsejax.formats.levels.ell import Ell
from sparsejax.formats.levels.grouped import Grouped
from sparsejax.formats.levels.hashed import Hash
from sparsejax.formats.levels.level import Level
from sparsejax.formats.levels.loose import LooseCompressed
from sparsejax.formats.levels.runlength import RunLength
from sparsejax.formats.levels.segments import check_size, closed
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.formats.storage import Storage


class Rows(NamedTuple):
    """The dimension of the rows, how many a position of the outermost level stands for, and values per position of the level below it, which is `level`."""

    axis: int
    step: int
    size: int
    level: type[Level]


@functools.lru_cache(maxsize=1024)
def rows_of(form: Format) -> Rows | None:
    """What the rows of a format are; None for those of other kinds, and those whose rows others know.

    >>> rows_of(Format.parse("ell", 2)).axis, rows_of(Format.parse("bsr:2x3", 2)).size, rows_of(Format.parse("csr", 2))
    (0, 6, None)
    """
    if form.ndim != 2 or not form.levels[0].full:
        return None
    kind = type(form.levels[1])
    if form.blocked:
        known = kind in (Compressed, Grouped) and form.levels[1].unique and len(form.levels) == 4
        inside = known and form.levels[2:] == (Dense(), Dense()) and form.order[:2] == form.order[2:]
        return (
            Rows(form.order[0], form.blocks[form.order[0]], form.blocks[0] * form.blocks[1], kind) if inside else None
        )
    listed = kind in (Ell, Diagonal, Banded, LooseCompressed, RunLength, Grouped, Hash, Bitmap)
    return Rows(form.order[0], 1, 1, kind) if listed else None


def listed_rows(form: Format) -> Rows | None:
    """As `rows_of`, also of rows that list their columns."""
    found = rows_of(form)
    if found is None and form.ndim == 2 and not form.blocked and form.levels[0].full:
        kind = type(form.levels[1])
        found = Rows(form.order[0], 1, 1, kind) if kind is Compressed and form.levels[1].unique else None
    return found


def cut(storage: Storage, first: int, stop: int) -> Storage | None:
    """The rows from `first` to `stop`, some of them, over the same memory; None for other formats than `listed_rows`, and rows within blocks.

    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 7.0]]), Format.parse("ell", 2), 0.0)
    >>> convert.to_dense(cut(A, 1, 2))
    array([[6., 7.]])
    """
    rows = listed_rows(storage.format)
    if rows is None or first % rows.step or (stop % rows.step and stop != storage.shape[rows.axis]):
        return None
    if stop - first == storage.shape[rows.axis]:
        return storage
    shape = tuple([stop - first if d == rows.axis else n for d, n in enumerate(storage.shape)])
    low, high = first // rows.step, -(-stop // rows.step)
    own, vals = storage.buffers[1], storage.vals
    if rows.level is Ell:
        width, lengths, crd = own
        begin, end = low * int(width[0]), high * int(width[0])
        own = width, lengths[low:high], crd[begin:end]
    elif rows.level is Diagonal:
        count, off = own
        begin, end = low * len(off), high * len(off)
        own = count, off + low
    elif rows.level is Bitmap:
        extent = storage.shape[1 - rows.axis]
        words = -(-extent // 64)
        begin, end = low * extent, high * extent
        own = (own[0][low * words : high * words],)
    elif rows.level is LooseCompressed:
        lo, hi, crd = own[0][low:high], own[1][low:high], own[2]
        used = hi > lo
        begin, end = (int(lo[used].min()), int(hi.max())) if used.any() else (0, 0)
        if int((hi - lo).sum()) != end - begin:  # others stand between them
            pos, crd, vals = closed(lo, hi - lo, crd, vals)
            own, begin, end = (pos[:-1], pos[1:], crd), 0, len(crd)
        else:
            own = np.where(used, lo - begin, 0), np.where(used, hi - begin, 0), crd[begin:end]
    else:
        pos, *others = own
        group = storage.format.levels[1].group
        begin, end = int(pos[low]), int(pos[high])
        if rows.level is Banded:
            others = [others[0][low:high]]
        elif rows.level is Grouped:
            others = [others[0][low:high], others[1][group * begin : group * end]]
        else:
            others = [other[begin:end] for other in others]
        own = (pos[low : high + 1] - begin, *others)
        begin, end = group * begin * rows.size, group * end * rows.size
    buffers = ((), own, *storage.buffers[2:])
    return Storage(storage.format, shape, storage.fill_value, buffers, vals[begin:end])


def shares(storage: Storage) -> bool:
    """Whether reading a matrix as rows that list their columns takes no memory for these: segments that lie one behind the other. O(rows)."""
    rows = rows_of(storage.format)
    if rows is None or rows.level is not LooseCompressed:
        return False
    lo, hi, crd = storage.buffers[1]
    return not len(lo) or bool(lo[0] == 0 and hi[-1] == len(crd) and (lo[1:] == hi[:-1]).all())


def listed(storage: Storage, first: int, stop: int, form: Format) -> Storage:
    """The rows from `first` to `stop` of a matrix in `listed_rows`, as rows that list their columns, which `form` is.

    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 7.0]]), Format.parse("bsr:2x2", 2), 0.0)
    >>> listed(A, 1, 2, Format.parse("csr", 2)).buffers[1]
    (array([0, 2]), array([0, 1], dtype=int32))
    """
    known = listed_rows(storage.format)
    assert known is not None
    low = first - first % known.step
    part = cut(storage, low, min(storage.shape[known.axis], stop + -stop % known.step))
    assert part is not None
    rows = convert.convert(part, form)
    pos, crd = rows.buffers[1]
    if low == first and len(pos) == stop - first + 1:
        return rows
    pos = pos[first - low : stop - low + 1]
    begin, end = int(pos[0]), int(pos[-1])
    shape = tuple([stop - first if d == known.axis else n for d, n in enumerate(storage.shape)])
    return Storage(form, shape, storage.fill_value, ((), (pos - begin, crd[begin:end])), rows.vals[begin:end])


def fits(parts: Sequence[Storage], axis: int) -> bool:
    """Whether matrices of one format stand one behind the other along an axis, as `behind` has it."""
    rows = rows_of(parts[0].format)
    return rows is not None and rows.axis == axis and all(s.shape[axis] % rows.step == 0 for s in parts[:-1])


def behind(parts: list[Storage]) -> Storage:
    """Matrices that `fits`, of one dtype and fill, one behind the other. Each is dropped from the list once it was copied, to memory that is
    touched then: of parts that nobody else holds nothing stands twice.

    >>> A = convert.from_dense(np.array([[0.0, 5.0], [6.0, 7.0]]), Format.parse("ell", 2), 0.0)
    >>> behind([A, cut(A, 0, 1)]).buffers[1]
    (array([2]), array([1, 2, 1]), array([1, 0, 0, 1, 1, 0], dtype=int32))
    """
    first = parts[0]
    form, fill = first.format, first.fill_value
    rows = listed_rows(form)
    assert rows is not None
    counts = [-(-s.shape[rows.axis] // rows.step) for s in parts]
    shape = tuple([sum(s.shape[d] for s in parts) if d == rows.axis else n for d, n in enumerate(first.shape)])
    join = {Ell: _ell, Diagonal: _diagonals, LooseCompressed: _loose, Bitmap: _words}.get(rows.level, _edged)
    own, vals = join(parts, counts, shape[1 - rows.axis])
    return Storage(form, shape, fill, ((), own, *first.buffers[2:]), vals)


NARROW = 3
"""Columns of a matrix that are copied one by one, at most."""
LARGE = 1 << 20
"""Bytes of vectors from which on memory is used again that others had: below, taking that costs more than it saves."""
_INT64 = np.dtype(np.int64)
Joined = tuple[tuple[Array, ...], Array]
"""The buffers of the second level, and values."""


def _room(count: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """A vector for a result, and the same to be written to."""
    if count * dtype.itemsize >= LARGE:
        return passes.over(count).room(count, dtype)
    made = np.empty(count, dtype)
    return made, made


def _ell(parts: list[Storage], counts: Sequence[int], extent: int) -> Joined:
    total, stored = sum(counts), sum(len(s.vals) for s in parts)
    width = max((int(s.buffers[1][1].max(initial=0)) for s in parts), default=0)
    check(total * width, stored, parts[0])
    lengths, lens = _room(total, _INT64)
    crd, crds = _room(total * width, crd_dtype(extent))
    vals, values = _room(total * width, parts[0].dtype)
    grids, at = (crds.reshape(total, width), values.reshape(total, width)), 0
    while parts:
        part, count = parts.pop(0), counts[len(counts) - len(parts) - 1]
        (slots,), own_lengths, own_crd = part.buffers[1]
        here = slice(at, at + count)
        lens[here] = own_lengths
        own = min(width, int(slots))
        for made, given, fill in zip(grids, (own_crd, part.vals), (0, part.fill_value), strict=True):
            side_by_side(made[here], given.reshape(count, int(slots)), own, fill)
        at += count
    return (np.array([width]), lengths, crd), vals


def side_by_side(made: Array, given: Array, width: int, fill: Any) -> None:
    """Copy the first `width` columns, and the fill to the others: of few columns one by one, as rows are short then."""
    if made.shape == given.shape:
        made[...] = given
    elif made.shape[1] > NARROW:
        made[:, :width], made[:, width:] = given[:, :width], fill
    else:
        for k in range(made.shape[1]):
            made[:, k] = given[:, k] if k < width else fill


def _diagonals(parts: list[Storage], counts: Sequence[int], extent: int) -> Joined:
    kept, offs, at = [], [np.empty(0, np.int64)], 0
    for part, count in zip(parts, counts, strict=True):
        off = part.buffers[1][1]
        kept.append((off > -count) & (off < extent) if count else np.zeros(len(off), bool))
        offs.append(off[kept[-1]] - at)
        at += count
    whole = np.unique(np.concatenate(offs))
    check(at * len(whole), sum(len(s.vals) for s in parts), parts[0])
    vals, values = _room(at * len(whole), parts[0].dtype)
    grid, at = values.reshape(at, len(whole)), 0
    while parts:
        k = len(counts) - len(parts)
        part, off = parts.pop(0), offs[k + 1]
        block, given = grid[at : at + counts[k]], part.vals.reshape(counts[k], len(kept[k]))
        if len(off) < len(whole):
            block[...] = part.fill_value
        for place, column in zip(np.searchsorted(whole, off).tolist(), kept[k].nonzero()[0].tolist(), strict=True):
            block[:, place] = given[:, column]
        at += counts[k]
    return (np.array([len(whole)]), whole), vals


def _loose(parts: list[Storage], counts: Sequence[int], extent: int) -> Joined:
    total, stored = sum(counts), sum(len(s.vals) for s in parts)
    low, lows = _room(total, _INT64)
    high, highs = _room(total, _INT64)
    crd, crds = _room(stored, crd_dtype(extent))
    vals, values = _room(stored, parts[0].dtype)
    at = entry = 0
    while parts:
        part, count = parts.pop(0), counts[len(counts) - len(parts) - 1]
        lo, hi, own = part.buffers[1]
        np.add(lo, entry, out=lows[at : at + count])
        np.add(hi, entry, out=highs[at : at + count])
        crds[entry : entry + len(own)], values[entry : entry + len(own)] = own, part.vals
        at, entry = at + count, entry + len(own)
    return (low, high, crd), vals


def _words(parts: list[Storage], counts: Sequence[int], extent: int) -> Joined:
    sizes = [
        sum(len(buffer) for buffer in buffers)
        for buffers in zip(*((s.buffers[1][0], s.vals) for s in parts), strict=True)
    ]
    (words, into), (vals, values) = _room(sizes[0], np.dtype(np.uint64)), _room(sizes[1], parts[0].dtype)
    word = value = 0
    while parts:
        part = parts.pop(0)
        (own,), given = part.buffers[1], part.vals
        into[word : word + len(own)], values[value : value + len(given)] = own, given
        word, value = word + len(own), value + len(given)
    return (words,), vals


def _edged(parts: list[Storage], counts: Sequence[int], extent: int) -> Joined:
    """Of levels with `pos`, whose other buffers, and values, stand one behind the other."""
    first, total = parts[0], sum(counts)
    sizes = [sum(len(s.buffers[1][k]) for s in parts) for k in range(1, len(first.buffers[1]))]
    stored = sum(len(s.vals) for s in parts)
    pos, edges = _room(total + 1, _INT64)
    vals, values = _room(stored, first.dtype)
    rest = [_room(n, b.dtype) for n, b in zip(sizes, first.buffers[1][1:], strict=True)]
    own_made, others = [made for made, _ in rest], [into for _, into in rest]
    ends, value, at = [0] * len(others), 0, 0
    edges[0] = 0
    while parts:
        part, count = parts.pop(0), counts[len(counts) - len(parts) - 1]
        own_pos, *given = part.buffers[1]
        np.add(own_pos[1:], edges[at], out=edges[at + 1 : at + count + 1])
        for k, (made, own) in enumerate(zip(others, given, strict=True)):
            made[ends[k] : ends[k] + len(own)] = own
            ends[k] += len(own)
        values[value : value + len(part.vals)] = part.vals
        value, at = value + len(part.vals), at + count
    return (pos, *own_made), vals


def check(positions: int, stored: int, like: Storage) -> None:
    """Raise as conversions do where a format has many more positions than these parts."""
    check_size(positions, f"an array in {like.format}")
    convert.check_padding(
        positions, np.broadcast_to(like.vals[:1] if len(like.vals) else like.dtype.type(0), stored), like.format
    )
