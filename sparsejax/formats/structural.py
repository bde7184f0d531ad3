"""Changes of shape and of fill that need no arithmetic: transpose, expand_dims, reshape, refill, pattern."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats import convert, entries, passes
from sparsejax.formats.format import Format
from sparsejax.formats.levels.dense import Dense
from sparsejax.formats.parts import located, of_lists, plain, unlisted
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.formats.storage import Storage, dense_template
from sparsejax.formats.validate import checked_shape


def transpose(storage: Storage, axes: Sequence[int], format: Format | None = None) -> Storage:
    """`storage.transpose(axes)` over the same buffers, in O(ndim), which has this `format`, where that is known. FormatError unless `axes` is a permutation.

    >>> A = convert.from_dense(np.eye(2, 3), Format.parse("csr", 2), 0.0)
    >>> transpose(A, (1, 0)).format
    Format('csc')
    """
    views: dict[Any, Storage] = storage.cache.get("views") or storage.cache.setdefault("views", {})
    key = ("transpose", *axes)
    known = views.get(key)
    if known is None:
        form = storage.format.transposed(axes) if format is None else format
        given = storage.shape
        shape = tuple([given[a] for a in axes])
        make = Storage if "transient" in storage.cache else Storage.of_frozen  # what is the caller's may be writable
        known = views[key] = make(form, shape, storage.fill_value, storage.buffers, storage.vals)
    return known


def _view(storage: Storage, key: tuple[Any, ...], make: Callable[[], Storage]) -> Storage:
    """A view of a storage, made once: what is derived from it (addresses, statistics) is kept with it."""
    views: dict[Any, Storage] = storage.cache.setdefault("views", {})
    known = views.get(key)
    if known is None:
        known = views[key] = make()
    return known


@functools.lru_cache(maxsize=1024)
def expanded(form: Format, axis: int) -> Format:
    """The format of an array in `form` with a new axis of extent one: one more dense level, the outermost of a sparse format.

    >>> expanded(Format.parse("csr", 2), 2), expanded(Format.parse("dense", 2), 2)
    (Format('(d,d,c)@(2,0,1)'), Format('dense'))
    """
    place = 0
    if form.is_dense:
        place = form.order.index(axis) if axis < form.ndim else form.ndim
    order = [d + (d >= axis) for d in form.order]
    levels, blocks = [*form.levels], [*form.blocks]
    levels.insert(place, Dense())
    order.insert(place, axis)
    blocks.insert(axis, 1)
    return Format(levels, order, blocks)


def expand_dims(storage: Storage, axis: int) -> Storage:
    """The array with a new axis of extent one, over the same buffers, in O(ndim). See `expanded` for its format.

    >>> A = convert.from_dense(np.eye(2), Format.parse("csr", 2), 0.0)
    >>> convert.to_dense(expand_dims(A, 0))
    array([[[1., 0.],
            [0., 1.]]])
    """

    def made() -> Storage:
        shape, buffers = [*storage.shape], [*storage.buffers]
        form = expanded(storage.format, axis)
        shape.insert(axis, 1)
        buffers.insert(form.order.index(axis), ())
        return Storage(form, tuple(shape), storage.fill_value, tuple(buffers), storage.vals)

    return _view(storage, ("expand_dims", axis), made)


def refill(storage: Storage, fill_value: Any) -> Storage:
    """The same entries over another fill: what is not stored changes its value.

    O(1); O(positions) where positions are unused, since these hold the fill.

    >>> A = convert.from_dense(np.array([0.0, 5.0]), Format.parse("coo", 1), 0.0)
    >>> convert.to_dense(refill(A, 2))
    array([2., 5.])
    """
    fill, vals = storage.dtype.type(fill_value), storage.vals
    used = None if same_bits(fill, storage.fill_value) else entries.used(storage.format, storage.shape, storage.buffers)
    if used is not None:
        vals = np.full(len(vals), fill, vals.dtype)
        vals[used] = storage.vals[used]
    return Storage(storage.format, storage.shape, fill, storage.buffers, vals)


def same_bits(x: Any, y: Any) -> bool:
    """Whether two scalars are the same to the last bit.

    >>> same_bits(np.float64(0.0), np.float64(-0.0)), same_bits(np.float64("nan"), np.float64("nan"))
    (False, True)
    """
    left, right = np.asarray(x), np.asarray(y)
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()


def pattern(storage: Storage, dtype: Any) -> Storage:
    """One of `dtype` for every stored entry, over fill zero, in the same format. O(positions).

    >>> A = convert.from_dense(np.array([0.0, 5.0]), Format.parse("coo", 1), 0.0)
    >>> convert.to_dense(pattern(A, bool))
    array([False,  True])
    """
    made = np.dtype(dtype)
    used = entries.used(storage.format, storage.shape, storage.buffers)
    if used is None:
        ones = np.ones(len(storage.vals), made)
    else:
        ones = np.zeros(len(storage.vals), made)
        ones[used] = 1
    return Storage(storage.format, storage.shape, made.type(0), storage.buffers, ones)


def diagonal(storage: Storage, offset: int, axis1: int, axis2: int, format: Format) -> Storage:
    """The entries whose coordinate on `axis2` is `offset` more than on `axis1`; the diagonal is the last axis of the result.

    Linear in the entries, or in the rows of a matrix whose long rows list their columns, and in the result once it was asked of the same pattern
    before (places are remembered with it); a dense array is read as a view.

    >>> A = convert.from_dense(np.arange(6.0).reshape(2, 3), Format.parse("csr", 2), 0.0)
    >>> convert.to_dense(diagonal(A, 1, 0, 1, Format.parse("coo", 1)))
    array([1., 5.])
    """
    lines = storage.cache.get("lines")
    if lines is not None and (known := lines.get((offset, axis1, axis2))):
        return known.of(storage)  # type: ignore[no-any-return]
    first, second = max(0, -offset), max(0, offset)
    count = max(0, min(storage.shape[axis1] - first, storage.shape[axis2] - second))
    if not count:  # as of the nearest diagonal that is outside
        offset = max(min(offset, storage.shape[axis2]), -storage.shape[axis1])
        first = max(0, -offset)
    dims = unlisted.listed_rows(storage.format)
    if dims is not None and count:
        begin = (first, second) if dims == (axis1, axis2) else (second, first)
        if located.comes_back(storage, (offset, axis1, axis2)):
            return located.remembered(storage, (offset, axis1, axis2), begin, count)
        return located.line(storage, begin[0], count, begin[1], 1)
    if count and storage.ndim == 2:
        begin = (first, second) if storage.format.order[0] == axis1 else (second, first)
        listed = of_lists.diagonal(storage, begin, count)
        listed = located.crossed(storage, begin, count, 1) if listed is None else listed
        if listed is not None:
            return convert.convert(listed, format)
    rest = [a for a in range(storage.ndim) if a not in (axis1, axis2)]
    shape = (*(storage.shape[a] for a in rest), count)
    if storage.format.is_dense:
        dense = convert.to_dense(storage)
        found = np.diagonal(dense, offset, axis1, axis2) if count else np.empty(shape, dense.dtype)
        return convert.from_dense(np.array(found), format, storage.fill_value)
    read = None if rest or not count else plain.plain(storage)
    if read is not None and unlisted.listed_rows(read.format) is not None:
        return convert.convert(diagonal(read, offset, axis1, axis2, format), format)
    coords, vals = convert.to_coords(storage)
    on = np.flatnonzero(coords[axis2] - coords[axis1] == offset)
    kept = np.stack([*(coords[a][on] for a in rest), coords[axis1][on] - first])
    return convert.from_coords(kept, vals[on], shape, format, storage.fill_value)


def reshape(storage: Storage, shape: Sequence[int], format: Format) -> Storage:
    """The same entries, in row-major order of dimensions, under another shape and format.

    Linear in the entries; O(ndim) where dense levels alone merge or split. Only axes that merge or split are recomputed; a group of them with more
    than 2^63 positions is recomputed in Python integers, which is slower but exact. A dense array is a view where its layout allows.
    FormatError where the sizes differ or a new extent exceeds 64 bits.

    >>> A = convert.from_dense(np.eye(2), Format.parse("csr", 2), 0.0)
    >>> convert.to_coords(reshape(A, (4,), Format.parse("coo", 1)))[0]
    array([[0, 3]])
    """
    new = checked_shape(shape)
    if math.prod(storage.shape) != math.prod(new):
        raise FormatError(f"cannot reshape an array of shape {storage.shape} into {new}: the sizes differ")
    if storage.format.is_dense:
        if convert.in_order(storage.format) and convert.in_order(format):
            return Storage.dense(dense_template(format, new, storage.fill_value), storage.vals, {})
        return convert.from_dense(convert.to_dense(storage).reshape(new), format, storage.fill_value)
    buffers = _kept_buffers(storage, new, format)
    if buffers is not None:
        return Storage(format, new, storage.fill_value, buffers, storage.vals)
    columns, vals = storage.expand()
    moved: list[Array] = [np.zeros(0)] * len(new)
    for old_axes, new_axes in groups(storage.shape, new):
        size = math.prod(storage.shape[a] for a in old_axes)
        own, extents = [columns[a] for a in old_axes], [new[a] for a in new_axes]
        if size < 2**63 and own and extents:
            made = passes.over(len(vals)).regrouped(own, [storage.shape[a] for a in old_axes], extents)
        else:
            made = _regrouped_exactly(own, [storage.shape[a] for a in old_axes], extents, len(vals))
        for axis, column in zip(new_axes, made, strict=True):
            moved[axis] = column
    form = storage.format
    in_order = form.order == tuple(range(form.ndim)) and all(level.ordered for level in form.levels)
    in_order = in_order and format.order == tuple(range(format.ndim)) and not form.blocked and not format.blocked
    distinct = all(level.unique for level in form.levels)
    return convert.from_columns(moved, vals, new, format, storage.fill_value, distinct, 0 if in_order else None)


def _kept_buffers(storage: Storage, new: Sequence[int], format: Format) -> tuple[tuple[Array, ...], ...] | None:
    """The buffers of the same entries under another shape, if these are the same: dense levels alone merge and split, in row-major order.

    (d,d,c)  20 2 7     csr  40 7      pos and crd of the last level, and values
    """
    form = storage.format
    for one in (form, format):
        if one.blocked or one.order != tuple(range(one.ndim)):
            return None
    made: list[tuple[Array, ...]] = []
    for old_axes, new_axes in groups(storage.shape, new):
        levels, wanted = ([own.levels[a] for a in axes] for own, axes in ((form, old_axes), (format, new_axes)))
        if all(level.full for level in (*levels, *wanted)):
            made += [()] * len(new_axes)
        elif levels == wanted and len(levels) == 1 and storage.shape[old_axes[0]] == new[new_axes[0]]:
            made.append(storage.buffers[old_axes[0]])
        else:
            return None
    return tuple(made)


def _regrouped_exactly(columns: Sequence[Array], old: Sequence[int], new: Sequence[int], count: int) -> list[Array]:
    """As `passes.Passes.regrouped`, of any number of places, in Python's integers; none of either extents is the extent one."""
    flat: Array = np.zeros(count, object)
    for column, extent in zip(columns, old, strict=True):
        flat = flat * extent + column
    made = []
    for extent in reversed(new):
        made.append((flat % max(1, extent)).astype(crd_dtype(extent)))
        flat = flat // max(1, extent)
    return made[::-1]


def groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of old and new axes of equal size."""
    made = []
    i = j = 0
    while i < len(old) or j < len(new):
        left, right = [], []
        a = b = 1
        if i < len(old):
            left.append(i)
            a *= old[i]
            i += 1
        if j < len(new):
            right.append(j)
            b *= new[j]
            j += 1
        while a != b or (a == 0 and (i < len(old) or j < len(new))):
            if (a < b or j >= len(new)) and i < len(old):
                left.append(i)
                a *= old[i]
                i += 1
            else:
                right.append(j)
                b *= new[j]
                j += 1
        made.append((left, right))
    return made
