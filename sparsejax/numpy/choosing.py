"""NumPy's functions that choose between values, put some in other places, or leave some out. Formats are those of `where` and of indexing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import sliced
from sparsejax.core.trace import Tracer
from sparsejax.errors import TracerArrayConversionError
from sparsejax.lax.elementwise import aval_of, check_fits, convert_element_type, where
from sparsejax.lax.extents import along, is_known, is_long
from sparsejax.lax.indexing import concatenate
from sparsejax.lax.sorting import argsort
from sparsejax.lax.structural import broadcast_to, convert_format, expand_dims, integer, normal_axis, reshape
from sparsejax.numpy.arranging import take_along_axis
from sparsejax.numpy.functions import moveaxis
from sparsejax.numpy.indexing import getitem
from sparsejax.numpy.updates import At


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Array:
    """`numpy.select`: everywhere the choice whose condition is the first that holds, `default` where none does.

    >>> x = np.arange(4)
    >>> select([x < 1, x > 2], [x - 5, x * 10], 7)
    Array([-5,  7,  7, 30], dtype=int64)
    """
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ValueError(
            f"condlist has {len(condlist)} conditions and choicelist {len(choicelist)} choices; select takes a choice for every "
            "condition, and one at least"
        )
    dtype = dtypes.result_type(*((a.dtype, a.weak_type) for a in map(aval_of, (*choicelist, default))))
    made = convert_element_type(default, dtype)
    for k, (condition, choice) in reversed(list(enumerate(zip(condlist, choicelist, strict=True)))):
        made = where(_condition(condition, f"condlist[{k}]"), convert_element_type(choice, dtype), made)
    return made


def _condition(given: Any, name: str) -> Any:
    condition = asarray(given)
    if condition.dtype != bool:
        raise TypeError(f"{name} has dtype {condition.dtype}; conditions hold booleans")
    return condition


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kwargs: Any) -> Array:
    """`numpy.piecewise`: everywhere the function of `x` (or the number) whose condition is the last that holds; one function more than there
    are conditions is for what is left, which is 0 else. The dtype is that of `x`.

    Functions are called with all of `x`, and have to be elementwise.

    >>> x = np.array([-2.0, 1.0, 4.0])
    >>> piecewise(x, [x < 0, x > 2], [lambda v: -v, 5.0])
    Array([2., 0., 5.], dtype=float64)
    """
    x = asarray(x)
    conditions = list(condlist) if isinstance(condlist, list | tuple) else [condlist]
    if conditions and np.ndim(conditions[0]) == 0 and x.ndim:
        conditions = [asarray(condlist)]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        raise ValueError(
            f"funclist has {len(funclist)} functions for {len(conditions)} conditions; it takes as many, or one more for what is left"
        )

    def value(function: Callable[..., Any] | Any) -> Any:
        made = function(x, *args, **kwargs) if callable(function) else function
        return convert_element_type(asarray(made), x.dtype)

    made = value(funclist[-1] if len(funclist) > len(conditions) else 0)
    for k, (condition, function) in enumerate(zip(conditions, funclist, strict=False)):
        made = where(_condition(condition, f"condlist[{k}]"), value(function), made)
    return broadcast_to(made, x.shape)


def put_along_axis(x: Any, indices: Any, values: Any, axis: int | None) -> Array:
    """`numpy.put_along_axis`, as a new array: `x` with `values` at the `indices` of every line along `axis`, in the format of `x`.

    >>> put_along_axis(np.array([[1, 2], [3, 4]]), np.array([[1], [0]]), 9, 1)
    Array([[1, 9],
           [9, 4]], dtype=int64)
    """
    x, index = asarray(x), asarray(indices)
    if axis is None:
        return reshape(At(reshape(x, (x.size,)))[index].set(values), x.shape)
    place = normal_axis(axis, x.ndim)
    if index.ndim != x.ndim:
        raise ValueError(
            f"indices of shape {index.shape} must have as many dimensions as the array, of shape {x.shape}"
        )
    numbers = [along(n, d, x.ndim) for d, n in enumerate(x.shape)]
    key = tuple(index if d == place else numbers[d] for d in range(x.ndim))
    return At(x)[key].set(values)


def lexsort(keys: Any, axis: int = -1) -> Array:
    """`numpy.lexsort`: the coordinates that sort lines along `axis` by the last of `keys`, then by the one before it, and so on; stable.

    >>> lexsort([np.array([2, 1, 3]), np.array([0, 1, 0])])
    Array([0, 2, 1], dtype=int64)
    """
    listed = list(keys) if isinstance(keys, list | tuple) else [keys[k] for k in range(asarray(keys).shape[0])]
    if not listed:
        raise TypeError("keys is empty: lexsort sorts by one key at least")
    order: Any = None
    for key in map(asarray, listed):
        if not key.ndim:
            raise ValueError("keys of lexsort are arrays of one dimension or more")
        place = normal_axis(axis, key.ndim)
        now = argsort(key if order is None else take_along_axis(key, order, place), place)
        order = now if order is None else take_along_axis(order, now, place)
    return order


def _numbers(obj: Any, name: str, n: int) -> Any:
    """Coordinates along an axis of extent `n` that a slice, an integer, or integers name (and whether it is one integer)."""
    if isinstance(obj, slice):
        chosen = range(*obj.indices(n))
        return np.arange(chosen.start, chosen.stop, chosen.step)
    if isinstance(obj, Tracer):
        raise TracerArrayConversionError(
            f"obj of {name} has type {obj.aval}: the shape of the result depends on it, so it has to be there when the function is traced"
        )
    found = np.asarray(obj)
    if found.dtype == bool:
        if found.shape != (n,):
            raise ValueError(f"obj of {name} is a mask of shape {found.shape} for an axis of extent {n}")
        return np.flatnonzero(found)
    if found.size and found.dtype.kind not in "iu":
        raise IndexError(f"obj of {name} has dtype {found.dtype}; it takes a slice, integers or booleans")
    return found.astype(np.int64)


def _between(x: Any, axis: int, places: list[Any], values: Any, several: bool) -> Any:
    """`x` with values before a few places of an axis of an extent that is not known."""
    check_fits(values, x.dtype)
    values = convert_element_type(asarray(values), x.dtype)
    values = reshape(values, (*[1] * (x.ndim - values.ndim), *values.shape))
    values = values if several else moveaxis(values, 0, axis)
    count = len(places) if len(places) > 1 else values.shape[axis]  # one place takes all values
    values = broadcast_to(values, [count if d == axis else m for d, m in enumerate(x.shape)])
    parts, begin = [], 0
    for k in sorted(range(len(places)), key=places.__getitem__):
        parts += [_part(x, axis, begin, places[k]), _part(values, axis, k, k + 1) if len(places) > 1 else values]
        begin = places[k]
    return concatenate([*parts, _part(x, axis, begin, x.shape[axis])], axis)


FEW = 16
"""Coordinates between which parts of an axis are taken whose extent is not known."""


def _places(obj: Any, name: str, n: Any, axis: int) -> list[Any] | None:
    """A few coordinates along an axis of an extent that is not known; None for what has to know it."""
    if isinstance(obj, slice | Tracer):
        return None
    found = np.asarray(obj)
    if found.dtype.kind not in "iu" or not 0 < found.size <= FEW:
        return None
    given = [int(k) for k in found.ravel()]
    for k in given:
        if (k > n if name == "insert" else k >= n) or -n > k:
            raise IndexError(f"obj {k} of {name} is out of bounds for axis {axis} with size {n}")
    return [n + k if k < 0 else k for k in given]


def _whole(x: Any, axis: int | None) -> tuple[Any, int]:
    x = asarray(x)
    return (reshape(x, (x.size,)), 0) if axis is None else (x, normal_axis(axis, x.ndim))


def _is_long(x: Any, n: Any) -> bool:
    """Whether coordinates along an axis of `n` are not to be listed: parts of `x` cost what they store."""
    return is_long(n) and not x.format.is_dense


def _part(x: Any, place: int, begin: int, end: int) -> Any:
    return getitem(x, (*[slice(None)] * place, slice(begin, end)))


def _parts(x: Any, place: int, ranges: list[tuple[int, int]]) -> Any:
    """What ranges of coordinates along an axis name, one after the other."""
    return concatenate([_part(x, place, *ends) for ends in ranges], place)


def delete(x: Any, obj: Any, axis: int | None = None) -> Array:
    """`numpy.delete`: `x` (flattened without `axis`) without the coordinates of a slice, an integer, integers or a mask.

    >>> delete(np.array([[1, 2, 3], [4, 5, 6]]), 1, axis=1)
    Array([[1, 3],
           [4, 6]], dtype=int64)
    """
    x, place = _whole(x, axis)
    n = x.shape[place]
    if isinstance(obj, slice) and _is_long(x, n) and obj.step in (None, 1, -1):
        gone = range(*obj.indices(n))[:: obj.step]  # forwards
        return _parts(x, place, [(0, gone.start), (gone.stop, n)] if gone else [(0, n)])
    if not is_known((n,)):
        if isinstance(obj, slice) and obj.step in (None, 1, -1):
            there = sliced(obj, n)
            first, last = (there.start, there.stop) if there.step > 0 else (there.stop + 1, there.start + 1)
            return _parts(x, place, [(0, first), (last if last > first else first, n)])
        named = _places(obj, "delete", n, place)
        if named is not None:
            named.sort()
            alone = [k for m, k in enumerate(named) if not m or named[m - 1] < k]
            return _parts(x, place, list(zip([0, *(k + 1 for k in alone)], [*alone, n], strict=True)))
        n = integer(n, "the extent")
    chosen = _numbers(obj, "delete", n)
    wrong = (chosen < -n) | (chosen >= n)
    if wrong.any():
        raise IndexError(f"obj {chosen[wrong].flat[0]} of delete is out of bounds for axis {place} with size {n}")
    if _is_long(x, n):
        gone = np.unique(np.where(chosen < 0, chosen + n, chosen)).tolist()
        return _parts(x, place, list(zip([0, *(k + 1 for k in gone)], [*gone, n], strict=True)))
    stays = np.ones(n, bool)
    stays[chosen] = False
    return getitem(x, (*[slice(None)] * place, np.flatnonzero(stays)))


def insert(x: Any, obj: Any, values: Any, axis: int | None = None) -> Array:
    """`numpy.insert`: `x` (flattened without `axis`) with `values` before the coordinates that a slice, an integer, integers or a mask name;
    the values have the dtype of `x`.

    >>> insert(np.array([1, 2, 3]), [1, 3], [8, 9])
    Array([1, 8, 2, 3, 9], dtype=int64)
    """
    x, place = _whole(x, axis)
    n = x.shape[place]
    places = None if is_known((n,)) else _places(obj, "insert", n, place)
    if places is not None:
        return _between(x, place, places, values, bool(np.ndim(obj)))
    n = integer(n, "the extent")
    at = _numbers(obj, "insert", n)
    wrong = (at < -n) | (at > n)
    if wrong.any():
        raise IndexError(f"obj {at[wrong].flat[0]} of insert is out of bounds for axis {place} with size {n}")
    check_fits(values, x.dtype)
    values = convert_element_type(asarray(values), x.dtype)
    while values.ndim < x.ndim:
        values = expand_dims(values, 0)
    if not at.ndim:
        values = moveaxis(values, 0, place)
    if at.size == 1:  # one place takes all values
        at = np.full(values.shape[place], int(at.reshape(())))
    count = len(at)
    values = broadcast_to(values, [count if d == place else m for d, m in enumerate(x.shape)])
    at = np.where(at < 0, at + n, at)
    if _is_long(x, n):
        values = values if x.fill_value else convert_format(values, "coo")
        order = np.argsort(at, kind="stable")
        begins = np.searchsorted(at[order], ends := np.unique(at))
        given = (getitem(values, (*[slice(None)] * place, some)) for some in np.split(order, begins[1:]) if count)
        kept = [_part(x, place, *pair) for pair in itertools.pairwise([0, *ends.tolist(), n])]
        return concatenate([*itertools.chain.from_iterable(zip(kept, given, strict=False)), kept[-1]], place)
    order = np.argsort(np.concatenate([at * 2, np.arange(n) * 2 + 1]), kind="stable")
    source = np.concatenate([n + np.arange(count), np.arange(n)])[order]
    return getitem(concatenate([x, values], place), (*[slice(None)] * place, source))
