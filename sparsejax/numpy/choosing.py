"""NumPy's functions that choose between values, put some in other places, or leave some out. Formats are those of `where` and of indexing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import Span, length, sliced, span
from sparsejax.core.trace import Tracer
from sparsejax.errors import TracerArrayConversionError
from sparsejax.lax.elementwise import aval_of, check_fits, convert_element_type, elementwise, where
from sparsejax.lax.extents import along, coordinates, is_known, is_long
from sparsejax.lax.indexing import concatenate
from sparsejax.lax.sorting import argsort
from sparsejax.lax.structural import broadcast_to, convert_format, integer, normal_axis, reshape
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


def _named(obj: Any, name: str, n: Any, axis: int) -> tuple[Any, Any]:
    """The coordinates along an axis of extent `n` that a slice, an integer, integers or a mask name, and the extent: a range (`Span`) of a slice; a
    list where the extent is not known, and they are few; else an array, of a known extent."""
    if isinstance(obj, slice):
        return sliced(obj, n), n
    if isinstance(obj, Tracer):
        raise TracerArrayConversionError(
            f"obj of {name} has type {obj.aval}: the shape of the result depends on it, so it has to be there when the function is traced"
        )
    found = np.asarray(obj)
    if found.dtype == bool:
        if found.shape != (n,):
            raise ValueError(f"obj of {name} is a mask of shape {found.shape} for an axis of extent {n}")
        return np.flatnonzero(found), integer(n, "the extent")
    if found.size and found.dtype.kind not in "iu":
        raise IndexError(f"obj of {name} has dtype {found.dtype}; it takes a slice, integers or booleans")
    given = found.astype(np.int64).reshape(-1)
    if len(given) > FEW and not is_known((n,)):
        n = integer(n, "the extent")
    last, known = n if name == "insert" else n - 1, is_known((n,))
    for k in (given,) if known else given.tolist():
        wrong = (k < -n) | (k > last)
        if wrong.any() if known else wrong:
            raise IndexError(f"obj {np.extract(wrong, k)[0]} of {name} is out of bounds for axis {axis} with size {n}")
    if known:
        return np.where(given < 0, given + n, given), n
    return [n + k if k < 0 else k for k in given.tolist()], n


FEW = 16
"""Coordinates that are told one by one where the extent of their axis is not known: each is compared with it."""


def _whole(x: Any, axis: int | None) -> tuple[Any, int]:
    x = asarray(x)
    return (reshape(x, (x.size,)), 0) if axis is None else (x, normal_axis(axis, x.ndim))


def _in_parts(x: Any, n: Any) -> bool:
    """Whether parts of `x` along an axis of `n` coordinates are joined, and not all of them listed: of sparse arrays with many, since parts cost what
    they store, and where it is not known how many there are."""
    return not is_known((n,)) or (is_long(n) and not x.format.is_dense)


def _part(x: Any, place: int, begin: Any, end: Any) -> Any:
    return _at(x, place, slice(begin, end))


def _at(x: Any, place: int, key: Any) -> Any:
    return getitem(x, (*[slice(None)] * place, key))


def _passed(places: Any, first: Any, step: int, count: Any) -> Any:
    """How many of so many coordinates in equal steps lie at places, or before them."""
    return elementwise("maximum", elementwise("minimum", (places - first) // step + 1, count), 0)


def _rising(chosen: Any) -> tuple[Any, int, Any]:
    """(first, step, count) of the coordinates of a range, in rising order."""
    count = length(chosen)
    return (
        (chosen.start, chosen.step, count)
        if chosen.step > 0
        else (chosen.start + chosen.step * (count - 1), -chosen.step, count)
    )


def delete(x: Any, obj: Any, axis: int | None = None) -> Array:
    """`numpy.delete`: `x` (flattened without `axis`) without the coordinates of a slice, an integer, integers or a mask.

    >>> delete(np.array([[1, 2, 3], [4, 5, 6]]), 1, axis=1)
    Array([[1, 3],
           [4, 6]], dtype=int64)
    """
    x, place = _whole(x, axis)
    gone, n = _named(obj, "delete", x.shape[place], place)
    if not _in_parts(x, n):
        stays = np.ones(n, bool)
        stays[obj if isinstance(obj, slice) else gone] = False
        return _at(x, place, np.flatnonzero(stays))
    if isinstance(gone, range | Span) and abs(gone.step) == 1:
        first, _, count = _rising(gone)
        pieces = [(first, first + count)]
    elif isinstance(gone, Span):
        first, step, count = _rising(gone)
        left = coordinates(span(0, n - count))
        return _at(x, place, left + _passed(left, first, step - 1, count))
    else:
        listed = sorted(gone)
        pieces = [(k, k + 1) for m, k in enumerate(listed) if not m or listed[m - 1] < k]
    begins, ends = [0, *(end for _, end in pieces)], [*(begin for begin, _ in pieces), n]
    return concatenate([_part(x, place, *pair) for pair in zip(begins, ends, strict=True)], place)


def insert(x: Any, obj: Any, values: Any, axis: int | None = None) -> Array:
    """`numpy.insert`: `x` (flattened without `axis`) with `values` before the coordinates that a slice, an integer, integers or a mask name;
    the values have the dtype of `x`, and are stored as it is where that is sparse over 0.

    >>> insert(np.array([1, 2, 3]), [1, 3], [8, 9])
    Array([1, 8, 2, 3, 9], dtype=int64)
    """
    x, place = _whole(x, axis)
    at, n = _named(obj, "insert", x.shape[place], place)
    check_fits(values, x.dtype)
    values = convert_element_type(asarray(values), x.dtype)
    values = reshape(values, (*[1] * (x.ndim - values.ndim), *values.shape))
    if not isinstance(obj, slice) and not np.ndim(obj):
        values = moveaxis(values, 0, place)
    steps = isinstance(at, range | Span)
    alone = (length(at) if steps else len(at)) == 1
    count = values.shape[place] if alone else length(at) if steps else len(at)  # one place takes all values
    values = broadcast_to(values, [count if d == place else m for d, m in enumerate(x.shape)])
    if not x.format.is_dense and not x.fill_value:
        plain = not x.format.blocked and all(level.plain for level in x.format.levels)
        values = convert_format(values, x.format if plain else "coo")
    if alone:
        return _between(x, place, [at.start if steps else at[0]], values)
    if isinstance(at, Span):
        return _woven(x, place, at, values)
    if _in_parts(x, n):
        return _between(x, place, list(at), values)
    order = np.argsort(np.concatenate([np.asarray(at, np.int64) * 2, np.arange(n) * 2 + 1]), kind="stable")
    source = np.concatenate([n + np.arange(count), np.arange(n)])[order]
    return _at(concatenate([x, values], place), place, source)


def _between(x: Any, axis: int, places: list[Any], values: Any) -> Any:
    """`x` with a value before each of some places of an axis, or with all before the only place."""
    order = sorted(range(len(places)), key=places.__getitem__)
    if order != list(range(len(places))):
        values = _at(values, axis, np.array(order))
    parts, begin, taken = [], 0, 0
    for k, number in enumerate(order, 1):
        here, after = places[number], places[order[k]] if k < len(order) else None
        if here is not after and (type(here) is not int or here != after):  # the last of those at one place
            parts += [_part(x, axis, begin, here), _part(values, axis, taken, k if after is not None else None)]
            begin, taken = here, k
    return concatenate([*parts, _part(x, axis, begin, x.shape[axis])], axis)


def _woven(x: Any, axis: int, at: Span, values: Any) -> Any:
    """`x` with values before the coordinates of a slice of an axis whose extent is not known: what is read where is computed."""
    first, step, count = _rising(at)
    n = x.shape[axis]
    if at.step < 0:
        values = _at(values, axis, slice(None, None, -1))
    places = coordinates(span(0, n + count))
    before = _passed(places, first, step + 1, count)
    given = elementwise(
        "equal", places, first + (before - 1) * (step + 1)
    )  # the last of the values that are passed is here
    given = elementwise("logical_and", given, elementwise("greater", before, 0))
    return _at(concatenate([x, values], axis), axis, where(given, n + before - 1, places - before))
