"""NumPy's functions that repeat, turn and shift what is there. No arithmetic on values; sparse arrays keep their format unless the
number of dimensions changes (then coo)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.core.trace import Tracer, current
from sparsejax.errors import TracerArrayConversionError
from sparsejax.formats import Format, convert
from sparsejax.formats.parts import moved
from sparsejax.lax.extents import along
from sparsejax.lax.indexing import concatenate
from sparsejax.lax.structural import (
    broadcast_to,
    expand_dims,
    integer,
    normal_axes,
    normal_axis,
    reshape,
    signed_integers,
    transpose,
)
from sparsejax.numpy import at_once
from sparsejax.numpy.indexing import flip, getitem, take


def roll(x: Any, shift: Any, axis: Any = None) -> Array:
    """`numpy.roll`: entries moved by `shift` places along `axis` (or along the array flattened), the last ones to the front.

    >>> import sparsejax as sj
    >>> roll(sj.array(np.array([[1, 0, 2]]), format="csr"), 1, axis=1).todense()
    array([[2, 1, 0]])
    """
    x = asarray(x)
    if axis is None:
        whole = at_once.along(x, 0, moved.rolled_flat, shift) if type(shift) is int and x.ndim == 2 else None
        if whole is not None:
            return whole
        return reshape(roll(reshape(x, (x.size,)), shift, 0), x.shape, None if x.format.is_dense else x.format)
    listed = axis if isinstance(axis, tuple | list) else (axis,)
    shifts, axes = np.broadcast_arrays(signed_integers(shift, "shift"), [normal_axis(a, x.ndim) for a in listed])
    found = at_once.moved(x, np.roll, shifts.tolist(), tuple(axes.tolist()))
    if found is not None:
        return found
    for places, place in zip(shifts.tolist(), axes.tolist(), strict=True):
        cut = -places % max(1, x.shape[place])
        if not cut:
            continue
        made = at_once.along(x, place, moved.rolled, cut)
        if made is not None:
            x = made
        else:
            front = (slice(None),) * place
            x = concatenate([getitem(x, (*front, slice(cut, None))), getitem(x, (*front, slice(cut)))], place)
    return x


def repeat(x: Any, repeats: Any, axis: int | None = None) -> Array:
    """`numpy.repeat`: every entry along `axis` (or of the array flattened) `repeats` times, or each as often as it says.

    O(entries of the result).

    >>> repeat(np.array([1, 2]), 2), repeat(np.array([1, 2]), [0, 2])
    (Array([1, 1, 2, 2], dtype=int64), Array([2, 2], dtype=int64))
    """
    x = asarray(x)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    place = normal_axis(axis, x.ndim)
    if type(repeats) is int and repeats >= 0:
        return _repeated(x, repeats, place)
    given = _counts(repeats)
    places, counts = convert.to_coords(given.storage)
    if given.dtype.kind not in "iu" or given.ndim > 1 or np.any(counts < 0) or given.fill_value < 0:
        raise ValueError(f"repeats={repeats!r} must be integers that are not negative")
    n = x.shape[place]
    if given.size != 1:
        if given.shape != (n,):
            raise ValueError(f"repeats has {given.size} numbers, but axis {place} of shape {x.shape} has extent {n}")
        return take(x, np.repeat(places[0], counts), place)
    return _repeated(x, given.item(), place)


def _repeated(x: Any, count: int, place: int) -> Any:
    found = at_once.moved(x, np.repeat, count, place)
    if found is None and count > 1:
        found = at_once.along(x, place, moved.repeated, count)
    listed = 0 if _is_outermost(x, place) else x.shape[place] * count
    if found is None and _short(x, listed) and _listed(x, place):
        return take(x, np.repeat(np.arange(x.shape[place]), count), place)
    return _spread(x, [(1, count) if d == place else (1, 1) for d in range(x.ndim)]) if found is None else found


def _is_outermost(x: Any, place: int) -> bool:
    """Whether a dense level stores an axis above all others: a result has as many segments as a list of its coordinates has numbers."""
    form = x.format
    return not form.blocked and bool(form.levels[0].full) and form.order[0] == place


MANY = 1 << 17
"""Entries in row-major order from which to name every inner coordinate several times takes longer than to broadcast them (1.3 to 1.45 times as long for a
million, 0.5 for 25,000)."""


def _listed(x: Array, place: int) -> bool:
    """Whether the parts of a sparse array along an axis are soonest taken by a list."""
    order = x.format.order
    return place == order[0] or order != tuple(range(x.ndim)) or len(x.storage.vals) < MANY


def _counts(repeats: Any) -> Any:
    """`repeats` as an array that stores all numbers but zeros, in order; TracerArrayConversionError for what is traced."""
    if isinstance(repeats, Tracer):
        raise TracerArrayConversionError(
            f"repeats={repeats} is traced, and the shape of a result depends on it: pass it as a static argument, or index with take"
        )
    listed = (
        np.asarray(repeats, np.intp if not len(repeats) else None)
        if isinstance(repeats, list | tuple | range)
        else repeats
    )
    made = asarray(listed, "repeats")
    sparse = not made.format.is_dense and made.fill_value == 0
    return (
        Array(convert.convert(made.storage, Format.parse("coo" if sparse else "dense", made.ndim)))
        if made.ndim
        else made
    )


def tile(x: Any, reps: Any) -> Array:
    """`numpy.tile`: `reps[d]` copies of the array behind each other along axis d. O(entries of the result).

    >>> import sparsejax as sj
    >>> tile(sj.array(np.array([[1, 0]]), format="csr"), (2, 2)).todense()
    array([[1, 0, 1, 0],
           [1, 0, 1, 0]])
    """
    x, counts = asarray(x), signed_integers(reps, "reps")
    if any(n < 0 for n in counts):
        raise ValueError(f"reps={counts} must not be negative")
    found = at_once.moved(x, np.tile, counts)
    if found is not None:
        return found
    ndim = max(x.ndim, len(counts))
    if x.ndim < ndim:
        x = reshape(x, (1,) * (ndim - x.ndim) + x.shape)
    counts = (1,) * (ndim - len(counts)) + counts
    if counts and min(counts) and _short(x, max(counts)):
        for d in reversed(range(ndim)):
            x = concatenate([x] * counts[d], d) if counts[d] > 1 else x
        return x
    return _spread(x, [(n, 1) for n in counts])


def _short(x: Any, count: int) -> bool:
    """Whether a list of so many numbers is short beside a sparse array, whose entries can be looked at."""
    return type(x) is Array and current() is None and not x.format.is_dense and count <= 2 * len(x.storage.vals)


def _spread(x: Any, counts: Sequence[tuple[int, int]]) -> Any:
    """Along every axis, the array `before` times, every entry `after` times: broadcast along new axes, which are merged with the old."""
    shape, form = x.shape, None if x.format.is_dense else x.format
    whole: list[int] = []
    made = x
    for n, (before, after) in zip(shape, counts, strict=True):
        for count, axis in ((before, len(whole)), (after, len(whole) + 1 + (before != 1))):
            if count != 1:
                made = expand_dims(made, axis)
        whole += [*([before] if before != 1 else []), n, *([after] if after != 1 else [])]
    if made is x:
        return x
    return reshape(broadcast_to(made, whole), [n * b * a for n, (b, a) in zip(shape, counts, strict=True)], form)


def fliplr(x: Any) -> Array:
    """`numpy.fliplr`: the order along axis 1 reversed."""
    return flip(_matrix("fliplr", x), 1)


def flipud(x: Any) -> Array:
    """`numpy.flipud`: the order along axis 0 reversed."""
    return flip(x, 0)


def rot90(x: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """`numpy.rot90`: turned by `k` quarters in the plane of two axes. A quarter of csr is csc.

    >>> rot90(np.array([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], dtype=int64)
    """
    x, (first, second) = _matrix("rot90", x), axes
    placed = normal_axes((first, second), asarray(x).ndim, "axes")
    turns = integer(k, "k") % 4
    if turns % 2 == 0:
        return flip(x, placed) if turns else x
    order = list(range(x.ndim))
    order[placed[0]], order[placed[1]] = order[placed[1]], order[placed[0]]
    return flip(transpose(x, order), placed[0] if turns == 1 else placed[1])


def _matrix(name: str, x: Any) -> Any:
    x = asarray(x)
    if x.ndim < 2:
        raise ValueError(f"{name} takes an array of two dimensions or more, not one of shape {x.shape}")
    return x


def column_stack(arrays: Sequence[Any]) -> Array:
    """`numpy.column_stack`: arrays beside each other; vectors are columns.

    >>> column_stack([np.array([1, 2]), np.array([3, 4])])
    Array([[1, 3],
           [2, 4]], dtype=int64)
    """
    parts = [asarray(x) for x in arrays]
    return concatenate([reshape(x, (-1, 1)) if x.ndim < 2 else x for x in parts], 1)


def dstack(arrays: Sequence[Any]) -> Array:
    """`numpy.dstack`: arrays behind each other along a third axis.

    >>> dstack([np.array([1, 2]), np.array([3, 4])]).shape
    (1, 2, 2)
    """
    parts = [asarray(x) for x in arrays]
    parts = [reshape(x, (1, -1)) if x.ndim < 2 else x for x in parts]
    return concatenate([expand_dims(x, 2) if x.ndim == 2 else x for x in parts], 2)


def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Array:
    """`numpy.take_along_axis`: of every line along `axis` the entries at the `indices` of that line; a sparse array gives coo.

    >>> take_along_axis(np.array([[1, 2], [3, 4]]), np.array([[1], [0]]), 1)
    Array([[2],
           [3]], dtype=int64)
    """
    x, index = asarray(x), asarray(indices)
    if axis is None:
        return getitem(reshape(x, (x.size,)), index)
    place = normal_axis(axis, x.ndim)
    if index.ndim != x.ndim:
        raise ValueError(
            f"indices of shape {index.shape} must have as many dimensions as the array, of shape {x.shape}"
        )
    numbers = [along(n, d, x.ndim) for d, n in enumerate(x.shape)]
    return getitem(x, tuple(index if d == place else numbers[d] for d in range(x.ndim)))
