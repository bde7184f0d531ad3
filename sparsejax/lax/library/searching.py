"""Searching in sorted vectors, membership, bins and the values of an array: library calls that count or find places."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.formats import convert
from sparsejax.formats.parts import lines
from sparsejax.formats.storage import Storage
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.elementwise import elementwise, where
from sparsejax.lax.library.calls import on_arrays, stored
from sparsejax.lax.rules.batching import faithful, moved, spread
from sparsejax.lax.structural import convert_format, densely, distinct, pattern, refill, reshape

INT: np.dtype[Any] = np.dtype(np.int64)

# ------------------------------------------------------------------------------------------------------ searchsorted


def _search(a: NDArray[Any], v: NDArray[Any], side: Any) -> NDArray[Any]:
    """Rows of `a` (…, n), places for `v` (…, *rest)."""
    outer = a.shape[:-1]
    if not outer:
        return np.asarray(np.searchsorted(a, v, side))
    made = np.empty(v.shape, INT)
    for k in np.ndindex(outer):
        made[k] = np.searchsorted(a[k], v[k], side)
    return made


def _search_batch(size: int, a: Any, v: Any, side: str) -> Any:
    if not isinstance(a, Batched):
        return searchsorted_p.bind(
            a, convert_format(v.value, "dense") if v.aval.format.is_dense else v.value, side=side
        )
    first, second = (convert_format(spread(x, size), "dense") for x in (a, v))
    made = searchsorted_p.bind(moved(first, first.ndim - 1, 0), moved(second, second.ndim - 1, 0), side=side)
    return moved(made, 0, made.ndim - 1)


def _search_call(a: Storage, v: Storage, out_aval: Aval, side: str) -> Storage:
    if v.format.is_dense:
        return _search_dense(a, v, out_aval=out_aval, side=side)
    return v.with_values(_search(convert.to_dense(a), v.vals, side), INT.type(0))


_search_dense = on_arrays(_search)

searchsorted_p: Primitive = Primitive(
    "searchsorted",
    typing=lambda a, v, side: Aval(v.shape, INT, v.format, 0),
    reference=_search,
    call=_search_call,
    jvp=lambda primals, tangents, out, side: None,
    batch=_search_batch,
)


def searchsorted(a: Any, v: Any, side: str = "left") -> Any:
    """Where the entries of `v` belong in the sorted vector `a`, before ("left") or behind ("right") equal ones: int64.
    Of a sparse `v`, and an `a` that is known, sparse over the place of its fill; else dense. O(m log n) for m stored entries of `v`.

    >>> searchsorted(np.array([1.0, 2.0, 4.0]), np.array([2.0, 3.0]))
    Array([1, 2], dtype=int64)
    """
    if side not in ("left", "right"):
        raise ValueError(f"side={side!r} must be 'left' or 'right'")
    a, v = convert_format(asarray(a), "dense"), asarray(v)
    if a.ndim != 1:
        raise ValueError(f"searchsorted takes a sorted vector, not an array of shape {a.shape}")
    if v.format.is_dense or not isinstance(a, Array):
        return searchsorted_p.bind(a, densely(v, "searchsorted"), side=side)
    fill = int(np.searchsorted(convert.to_dense(a.storage), v.fill_value, side))  # type: ignore[call-overload]
    return refill(searchsorted_p.bind(a, distinct(v), side=side), fill)


look_up_p: Primitive = Primitive(
    "look_up",
    typing=lambda table, places: Aval(places.shape, table.dtype, places.format, table.dtype.type(0)),
    reference=lambda table, places: np.take(table, places, mode="clip"),
    call=lambda table, places, out_aval: places.with_values(
        np.take(convert.to_dense(table), places.vals, mode="clip"), out_aval.fill_value
    ),
    jvp=lambda primals, tangents, out: None,
    batch=lambda size, table, places: look_up_p.bind(table, places.value),
)


def look_up(table: Array, places: Any) -> Any:
    """Entries of a vector that is known, at the places that a sparse array holds: sparse, over that at its fill. O(stored entries).

    >>> import sparsejax as sj
    >>> look_up(sj.array([5.0, 7.0]), sj.array([0, 1, 0], format="coo"))
    Array({1: 7.},
          shape=(3,), dtype=float64, format=coo, nnz=1, density=0.333, bytes=28, fill_value=5.0)
    """
    return refill(look_up_p.bind(table, distinct(places)), convert.to_dense(table.storage)[places.fill_value])


# -------------------------------------------------------------------------------------------------------------- isin


def _members(x: NDArray[Any], test: NDArray[Any]) -> NDArray[Any]:
    """Of entries of `x` (…), those that are in the rows of `test` (…, n), which have as many axes less one, or one alone."""
    if test.ndim == 1:
        return np.isin(x, test)
    made = np.empty(x.shape, bool)
    for k in np.ndindex(test.shape[:-1]):
        made[k] = np.isin(x[k], test[k])
    return made


def _isin_call(x: Storage, test: Storage, out_aval: Aval) -> Storage:
    wanted = convert.to_dense(test)
    if wanted.ndim == 1:
        return x.with_values(_members(x.vals, wanted), np.False_)
    return convert.from_dense(_members(convert.to_dense(x), wanted), out_aval.format, False)


def _isin_batch(size: int, x: Any, test: Any) -> Any:
    if not isinstance(test, Batched):
        return isin_p.bind(x.value, test)
    first, second = (convert_format(spread(y, size), "dense") for y in (x, test))
    made = isin_p.bind(moved(first, first.ndim - 1, 0), moved(second, 1, 0))
    return moved(made, 0, made.ndim - 1)


isin_p: Primitive = Primitive(
    "isin",
    typing=lambda x, test: Aval(x.shape, np.bool_, x.format, False),
    reference=_members,
    call=_isin_call,
    jvp=lambda primals, tangents, out: None,
    batch=_isin_batch,
)


def isin(x: Any, test: Any, invert: bool = False) -> Any:
    """Whether every entry of `x` is among those of `test`. Sparse, over what that is of the fill, where `x` is sparse and `test` is
    known; dense where `test` is traced. O((n + m) log m) for n stored entries of `x`.

    >>> isin(np.array([0, 1, 2]), np.array([2, 0]))
    Array([ True, False,  True], dtype=bool)
    """
    x, test = distinct(asarray(x)), asarray(test)
    flat = convert_format(reshape(test, (test.size,)), "dense")
    made = isin_p.bind(x, flat)
    if not x.format.is_dense:
        here = _holds(flat, x.fill_value)
        made = where(pattern(x, bool), made, here)
    return elementwise("logical_not", made) if invert else made


def _holds(test: Any, value: Any) -> Any:
    """Whether a number is in a vector: a Python bool where the vector is known."""
    if isinstance(test, Array):
        return bool(np.any(convert.to_dense(test.storage) == value))
    return isin_p.bind(asarray(value), test)


# --------------------------------------------------------------------------------------------------------- histogram


def _counts(x: Storage, edges: NDArray[Any]) -> NDArray[Any]:
    if x.format.is_dense:
        return np.histogram(convert.to_dense(x), edges)[0]
    _, vals = convert.to_coords(lines.distinct(x))
    made = np.histogram(vals, edges)[0]
    absent = math.prod(x.shape) - len(vals)
    return np.asarray(made + absent * np.histogram([x.fill_value], edges)[0])


def _histogram_call(x: Storage, edges: Storage, out_aval: Aval, leading: int) -> Storage:
    borders = convert.to_dense(edges)
    rows = borders.reshape(-1, borders.shape[-1])
    parts = lines.parts(x, leading)
    found = [_counts(part, rows[k if len(rows) > 1 else 0]) for k, part in enumerate(parts)]
    return stored(found if found else np.zeros(out_aval.shape, INT), out_aval)


def _histogram_reference(x: Any, edges: Any, leading: int) -> NDArray[Any]:
    outer = np.shape(x)[:leading]
    wide = np.broadcast_to(edges, (*outer, np.shape(edges)[-1]))
    found = [np.histogram(x[k], wide[k])[0] for k in np.ndindex(outer)]
    return np.reshape(found, (*outer, wide.shape[-1] - 1))


def _histogram_batch(size: int, x: Any, edges: Any, leading: int) -> Any:
    first = spread(faithful(x), size)
    borders = moved(edges.value, edges.value.ndim - 1, leading) if isinstance(edges, Batched) else edges
    if isinstance(edges, Batched) and leading:
        borders = moved(borders, leading, 0)
    made = histogram_p.bind(moved(first, first.ndim - 1, 0), borders, leading=leading + 1)
    return moved(made, 0, made.ndim - 1)


histogram_p: Primitive = Primitive(
    "histogram",
    typing=lambda x, edges, leading: rules.dense((*x.shape[:leading], edges.shape[-1] - 1), INT),
    reference=_histogram_reference,
    call=_histogram_call,
    jvp=lambda primals, tangents, out, leading: None,
    batch=_histogram_batch,
)


def histogram_counts(x: Any, edges: Any) -> Any:
    """How many entries of `x`, stored or not, lie between consecutive `edges`, as `numpy.histogram`. O(n log m) for n stored entries.

    >>> import sparsejax as sj
    >>> histogram_counts(sj.array([0, 0, 3, 0], format="coo"), np.array([0.0, 1.0, 4.0]))
    Array([3, 1], dtype=int64)
    """
    return histogram_p.bind(asarray(x), convert_format(asarray(edges), "dense"), leading=0)


# ------------------------------------------------------------------------------------------------------------ unique


def different(x: NDArray[Any], equal_nan: bool = True) -> tuple[NDArray[Any], ...]:
    """(values, where each is first, which of them each entry is, how often each occurs) of an array."""
    values, index, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, equal_nan=equal_nan
    )
    return values, index, inverse.reshape(x.shape), counts


def _padded(x: NDArray[Any], size: int, fill: Any) -> tuple[NDArray[Any], ...]:
    """The first `size`, and `fill` (None: the least value) where there are fewer."""
    values, index, inverse, counts = different(x)
    rest = max(0, size - len(values))
    filler = (values[:1] if len(values) else np.zeros(1, x.dtype)) if fill is None else np.asarray([fill], x.dtype)
    values = np.append(values[:size], np.repeat(filler, rest))
    index = np.append(index[:size], np.repeat(index[:1] if len(index) else [0], rest))
    return values, index, inverse, np.append(counts[:size], np.zeros(rest, INT))


def _different_call(x: NDArray[Any], size: int, fill: Any, leading: int) -> list[NDArray[Any]]:
    outer = x.shape[:leading]
    parts = [_padded(x[k], size, fill) for k in np.ndindex(outer)]
    shapes = ((size,), (size,), x.shape[leading:], (size,))
    return [np.reshape([p[n] for p in parts], (*outer, *shape)) for n, shape in enumerate(shapes)]


def _different_typing(x: Aval, size: int, fill: Any, leading: int) -> tuple[Aval, ...]:
    outer = x.shape[:leading]
    shapes = ((*outer, size), (*outer, size), x.shape, (*outer, size))
    return tuple(rules.dense(shape, dtype) for shape, dtype in zip(shapes, (x.dtype, INT, INT, INT), strict=True))


def _different_batch(count: int, x: Any, /, leading: int, **params: Any) -> list[Any]:
    made = different_p.bind(moved(faithful(x).value, x.aval.ndim, 0), leading=leading + 1, **params)
    return [moved(m, 0, m.ndim - 1) for m in made]


different_p: Primitive = Primitive(
    "different",
    typing=_different_typing,
    reference=_different_call,
    call=on_arrays(_different_call),
    batch=_different_batch,
    multiple=True,
)


def different_sized(x: Any, size: int, fill: Any = None) -> list[Any]:
    """`different` with `size` values, for traced functions: `fill`, or the least value, where there are fewer. Dense.

    >>> different_sized(np.array([3, 1, 3]), 3)[0]
    Array([1, 3, 1], dtype=int64)
    """
    made: list[Any] = different_p.bind(convert_format(asarray(x), "dense"), size=size, fill=fill, leading=0)
    return made
