"""Running sums, sorted lines, and the places of entries: library calls on whole arrays, since none is a sum of products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.core.tangents import Linear
from sparsejax.formats import Format, convert
from sparsejax.formats.parts import lines
from sparsejax.formats.storage import Storage
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.contract import contract
from sparsejax.lax.elementwise import convert_element_type
from sparsejax.lax.extents import along
from sparsejax.lax.linear import keep, sample
from sparsejax.lax.rules.batching import faithful, moved, spread
from sparsejax.lax.structural import convert_format, densely, normal_axis

INT: np.dtype[Any] = np.dtype(np.int64)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


# ------------------------------------------------------------------------------------------------------------ cumsum


def _cumsum_reference(x: Any, axis: int, reverse: bool) -> NDArray[Any]:
    x = np.asarray(x)
    x = np.flip(x, axis) if reverse else x
    made = np.cumsum(x, axis=axis, dtype=x.dtype)
    return np.flip(made, axis) if reverse else made


def _cumsum_call(x: Storage, out_aval: Aval, axis: int, reverse: bool) -> Storage:
    return convert.from_dense(_cumsum_reference(convert.to_dense(x), axis, reverse), out_aval.format, 0)


def _cumsum_transpose(ct: Any, x: Linear, axis: int, reverse: bool) -> list[Any]:
    return [keep(cumsum_p.bind(convert_format(ct, "dense"), axis=axis, reverse=not reverse), x)]


cumsum_p: Primitive = Primitive(
    "cumsum",
    typing=lambda x, axis, reverse: rules.dense(x.shape, x.dtype),
    reference=_cumsum_reference,
    call=_cumsum_call,
    jvp=lambda primals, tangents, out, axis, reverse: cumsum(tangents[0], axis, reverse),
    transpose=_cumsum_transpose,
    batch=lambda size, x, axis, reverse: cumsum(faithful(x).value, axis, reverse),
)


def cumsum(x: Any, axis: int = 0, reverse: bool = False) -> Any:
    """The sums of all entries of a line up to and including each (or, with `reverse`, from each on): dense, of the dtype of `x`.

    >>> import sparsejax as sj
    >>> cumsum(sj.array(np.array([0, 2, 0, 1]), format="coo"))
    Array([0, 2, 2, 3], dtype=int64)
    """
    x = densely(x, "cumsum")
    return cumsum_p.bind(x, axis=normal_axis(axis, x.ndim), reverse=reverse)


# -------------------------------------------------------------------------------------------------------------- sort


moves_p: Primitive = Primitive(
    "moves",
    typing=lambda x, axis, dtype: Aval(
        (*x.shape, x.shape[axis]), dtype, Format.parse("coo", len(x.shape) + 1), dtype.type(0)
    ),
    reference=lambda x, axis, dtype: np.eye(x.shape[axis], dtype=dtype)[np.argsort(x, axis=axis, kind="stable")],
    call=lambda x, out_aval, axis, dtype: lines.moves(x, axis, dtype),
    jvp=lambda primals, tangents, out, axis, dtype: None,
    batch=lambda size, x, axis, dtype: moved(  # behind the coordinate before
        moves_p.bind(faithful(x).value, axis=axis, dtype=dtype), x.aval.ndim, x.aval.ndim + 1
    ),
)
"""Which stored entry goes where when lines are sorted: ones at (coordinates of the sorted entry, its coordinate along `axis` before)."""


def _sort_jvp(primals: list[Any], tangents: list[Any], out: Any, axis: int) -> Any:
    """Of sparse lines d sort(x)[.., r, ..] = sum_j moves[.., r, .., j] dx[.., j, ..]: what follows is that of a contraction."""
    x, t = primals[0], tangents[0]
    if x.format.is_dense:
        index = argsort(x, axis)
        return t[tuple([index if d == axis else along(n, d, t.ndim) for d, n in enumerate(t.shape)])]
    labels = tuple(range(x.ndim))
    before = tuple(x.ndim if d == axis else d for d in labels)
    moves = moves_p.bind(x, axis=axis, dtype=np.dtype(t.dtype))
    return sample(contract([moves, t], [(*labels, x.ndim), before], labels, None, t.dtype), out)


sort_p = Primitive(
    "sort",
    typing=lambda x, axis: Aval(x.shape, x.dtype, x.format, x.fill_value),
    reference=lambda x, axis: np.sort(x, axis=axis),
    call=lambda x, out_aval, axis: lines.sort(x, axis, out_aval.format),
    jvp=_sort_jvp,
    batch=lambda size, x, axis: sort(faithful(x).value, axis),
)


def sort(x: Any, axis: int = -1) -> Any:
    """Every line along `axis` in increasing order, NaN last, in the format and over the fill of `x`. O(n log n) for n stored entries.

    >>> import sparsejax as sj
    >>> sort(sj.array(np.array([[0, 3, -1], [0, 0, 2]]), format="csr")).todense()
    array([[-1,  0,  3],
           [ 0,  0,  2]])
    """
    x = asarray(x)
    return sort_p.bind(x, axis=normal_axis(axis, x.ndim))


argsort_p = Primitive(
    "argsort",
    typing=lambda x, axis: rules.dense(x.shape, INT),
    reference=lambda x, axis: np.argsort(x, axis=axis, kind="stable"),
    call=lambda x, out_aval, axis: convert.from_dense(
        np.argsort(convert.to_dense(x), axis=axis, kind="stable"), out_aval.format, 0
    ),
    jvp=lambda primals, tangents, out, axis: None,
    batch=lambda size, x, axis: argsort(faithful(x).value, axis),
)


def argsort(x: Any, axis: int = -1) -> Any:
    """The coordinates along `axis` that sort every line, equal entries in their order: dense, int64.

    >>> argsort(np.array([3.0, 1.0, 2.0]))
    Array([1, 2, 0], dtype=int64)
    """
    x = densely(x, "argsort")
    return argsort_p.bind(x, axis=normal_axis(axis, x.ndim))


# ------------------------------------------------------------------------------------------------------------ places


def _counting(extent: Any) -> np.dtype[Any]:
    """The dtype of places along an axis: half of what a result takes, where that holds the extent."""
    return np.dtype(np.int32) if extent < 2**31 else INT


first_absent_p: Primitive = Primitive(
    "first_absent",
    typing=lambda x, axis: rules.dense(_without(x.shape, axis), _counting(x.shape[axis])),
    reference=lambda x, axis: np.full(_without(np.shape(x), axis), np.shape(x)[axis], _counting(np.shape(x)[axis])),
    call=lambda x, out_aval, axis: convert.from_dense(lines.first_absent(x, axis, out_aval.dtype), out_aval.format, 0),
    jvp=lambda primals, tangents, out, axis: None,
    batch=lambda size, x, axis: first_absent_p.bind(spread(faithful(x), size), axis=axis),
)


def first_absent(x: Any, axis: int) -> Any:
    """The first coordinate of every line of a sparse array at which nothing is stored; the extent where there is none.

    >>> import sparsejax as sj
    >>> first_absent(sj.array(np.array([[1, 0], [0, 2]]), format="csr"), 1)
    Array([1, 0], dtype=int32)
    """
    return first_absent_p.bind(x, axis=normal_axis(axis, x.ndim))


def _places_call(x: Storage, out_aval: Aval, axis: int) -> Storage:
    assert x.packed
    columns, _ = x.expand()
    return x.with_values(np.ascontiguousarray(columns[axis], INT), out_aval.fill_value)


places_p: Primitive = Primitive(
    "places",
    typing=lambda x, axis: Aval(x.shape, INT, x.format, 0),
    reference=lambda x, axis: np.broadcast_to(np.ogrid[tuple(map(slice, np.shape(x)))][axis], np.shape(x)),
    call=_places_call,
    jvp=lambda primals, tangents, out, axis: None,
    batch=lambda size, x, axis: places(faithful(x).value, axis),
)


def places(x: Any, axis: int) -> Any:
    """The coordinate along `axis` of every stored entry of `x`, in coo, over its pattern and fill 0. O(stored entries).

    >>> import sparsejax as sj
    >>> places(sj.array(np.array([[5, 0], [0, 7]]), format="csr"), 1).todense()
    array([[0, 0],
           [0, 1]])
    """
    x = asarray(x)
    return places_p.bind(convert_format(x, "coo"), axis=normal_axis(axis, x.ndim))


def _padded(found: NDArray[Any], size: int, fill: Any) -> NDArray[Any]:
    """The first `size` of what was found along the last axis, `fill` behind them."""
    made = np.full((*found.shape[:-1], size), fill, found.dtype)
    kept = found[..., :size]
    made[..., : kept.shape[-1]] = kept
    return made


def _nonzero_call(x: Storage, out_aval: Aval, size: int, fill: int, leading: int) -> Storage:
    found = [_padded(lines.nonzero(part), size, fill) for part in lines.parts(x, leading)]
    return convert.from_dense(_gathered(found, out_aval), out_aval.format, 0)


def _gathered(found: Sequence[NDArray[Any]], aval: Aval) -> NDArray[Any]:
    """What was found in all parts of an array as one array."""
    return np.stack(found).reshape(aval.shape) if found else np.zeros(aval.shape, aval.dtype)


def _nonzero_reference(x: Any, size: int, fill: int, leading: int) -> NDArray[Any]:
    shape = np.shape(x)
    found = [_padded(np.stack(np.nonzero(np.atleast_1d(x[k]))), size, fill) for k in np.ndindex(shape[:leading])]
    return np.reshape(found, (*shape[:leading], max(1, len(shape) - leading), size))


def _nonzero_batch(count: int, x: Batched, /, leading: int, **params: Any) -> Any:
    made = nonzero_p.bind(moved(faithful(x).value, x.aval.ndim, 0), leading=leading + 1, **params)
    return moved(made, 0, made.ndim - 1)


nonzero_p: Primitive = Primitive(
    "nonzero",
    typing=lambda x, size, fill, leading: rules.dense((*x.shape[:leading], max(1, x.ndim - leading), size), INT),
    reference=_nonzero_reference,
    call=_nonzero_call,
    jvp=lambda primals, tangents, out, **params: None,
    batch=_nonzero_batch,
)


def nonzero(x: Any, size: int, fill: int = 0) -> Any:
    """The first `size` coordinates, of shape (ndim, size), where values are not zero, in row-major order; `fill` where there are
    fewer. O(stored entries) where the fill is 0.

    >>> nonzero(np.array([0.0, 5.0]), 2, -1)
    Array([[ 1, -1]], dtype=int64)
    """
    return nonzero_p.bind(asarray(x), size=size, fill=fill, leading=0)


def _first_extreme_call(x: Storage, out_aval: Aval, kind: str, leading: int) -> Storage:
    found = [np.array(lines.first_extreme(part, kind), INT) for part in lines.parts(x, leading)]
    return convert.from_dense(_gathered(found, out_aval), out_aval.format, 0)


def _first_extreme_reference(x: Any, kind: str, leading: int) -> NDArray[Any]:
    find = np.argmax if kind == "max" else np.argmin
    return find(np.reshape(x, (*np.shape(x)[:leading], -1)), axis=-1)


def _first_extreme_batch(count: int, x: Batched, /, kind: str, leading: int) -> Any:
    made = first_extreme_p.bind(moved(faithful(x).value, x.aval.ndim, 0), kind=kind, leading=leading + 1)
    return moved(made, 0, made.ndim - 1)


first_extreme_p: Primitive = Primitive(
    "first_extreme",
    typing=lambda x, kind, leading: rules.dense(x.shape[:leading], INT),
    reference=_first_extreme_reference,
    call=_first_extreme_call,
    jvp=lambda primals, tangents, out, kind, leading: None,
    batch=_first_extreme_batch,
)


def first_extreme(x: Any, kind: str) -> Any:
    """The place in row-major order of the first element of a sparse array that is the largest (`kind` "max") or smallest ("min"); a NaN
    is both. O(stored entries).

    >>> import sparsejax as sj
    >>> first_extreme(sj.array(np.array([[0, -3], [2, 2]]), format="csr"), "max")
    Array(2, dtype=int64)
    """
    return first_extreme_p.bind(asarray(x), kind=kind, leading=0)


def _first_different(values: NDArray[Any], counts: NDArray[Any], size: int) -> tuple[NDArray[Any], NDArray[Any]]:
    return _padded(values, size, values[0] if len(values) else 0), _padded(counts, size, 0)


def _unique_call(x: Storage, out_aval: tuple[Aval, Aval], size: int, leading: int) -> list[Storage]:
    found = [_first_different(*lines.unique(part), size) for part in lines.parts(x, leading)]
    made = zip(zip(*found, strict=True) if found else ((), ()), out_aval, strict=True)
    return [convert.from_dense(_gathered(values, aval), aval.format, 0) for values, aval in made]


def _unique_reference(x: Any, size: int, leading: int) -> list[NDArray[Any]]:
    outer = np.shape(x)[:leading]
    found = [_first_different(*np.unique(x[k], return_counts=True), size) for k in np.ndindex(outer)]
    return [np.reshape([f[k] for f in found], (*outer, size)) for k in range(2)]


def _unique_batch(count: int, x: Batched, /, leading: int, **params: Any) -> list[Any]:
    made = unique_p.bind(moved(faithful(x).value, x.aval.ndim, 0), leading=leading + 1, **params)
    return [moved(m, 0, m.ndim - 1) for m in made]


def _unique_typing(x: Aval, size: int, leading: int) -> tuple[Aval, Aval]:
    shape = (*x.shape[:leading], size)
    return rules.dense(shape, x.dtype), rules.dense(shape, INT)


unique_p: Primitive = Primitive(
    "unique",
    typing=_unique_typing,
    reference=_unique_reference,
    call=_unique_call,
    batch=_unique_batch,
    multiple=True,
)


def unique(x: Any, size: int) -> tuple[Any, Any]:
    """The first `size` different values in increasing order, and how often each occurs: the least value, 0 times, where there are
    fewer. O(n log n) for n stored entries.

    >>> unique(np.array([3, 1, 3]), 3)
    (Array([1, 3, 1], dtype=int64), Array([1, 2, 0], dtype=int64))
    """
    values, counts = unique_p.bind(convert_element_type(x, asarray(x).dtype), size=size, leading=0)
    return values, counts
