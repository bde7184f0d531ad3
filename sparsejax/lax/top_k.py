"""`top_k`: the largest entries along an axis, with their places, of dense and sparse arrays.

    indices = top_k_indices x            values = take_along_last x indices;   tangent  values[.., r] = sum_j S[.., r, j] dx[.., j]

where `S` is the selection that has a one at `indices`: what follows of a derivative is that of a contraction. Unstored entries count
as the fill value, and what is found of them costs O(k) per row, whatever the extent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.formats import convert, ordering, passes, runs
from sparsejax.formats.storage import Storage
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.contract import contract
from sparsejax.lax.indexing import select
from sparsejax.lax.rules.batching import moved, spread
from sparsejax.lax.structural import distinct, integer, normal_axis

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)


def _index_dtype(extent: Any) -> np.dtype[Any]:
    """The dtype of places along an axis: int32 where it holds them."""
    return INT32 if extent <= 2**31 else INT64


def _ordered(rows: Any, columns: Any, values: Any, count: int, k: int) -> Any:
    """(count, k) columns of the k largest candidates of every row, NaN before all numbers, of equal ones the first columns.
    O(n log n) for n candidates, of which every row has k or more.
    """
    # stable: backwards by columns, so that in ascending order of values the first columns come last
    order = np.lexsort((-columns, values, rows))
    ends = np.cumsum(np.bincount(rows, minlength=count))
    return columns[order[ends[:, None] - 1 - np.arange(k)]]


def _top_of_dense(x: Any, k: int) -> Any:
    """(count, k) columns of the largest entries of the rows of a matrix. O(size + candidates log candidates), where candidates are
    entries not below the k-th largest of their row."""
    count, extent = x.shape
    if not k or not count:
        return np.zeros((count, k), _index_dtype(extent))
    x = np.ascontiguousarray(x)
    largest = np.partition(x, extent - k, axis=1)[:, extent - k :]  # NaN is the largest
    chosen = x >= largest[:, :1]
    if x.dtype.kind == "f" and np.isnan(largest).any():
        chosen |= x != x
    places = np.flatnonzero(chosen)
    rows, columns = np.divmod(places, extent)
    values = x.reshape(-1)[places]
    if len(places) > count * k:  # some are as large as the k-th
        return _ordered(rows, columns, values, count, k).astype(_index_dtype(extent))
    backwards = np.argsort(values.reshape(count, k)[:, ::-1], axis=1, kind="stable")[:, ::-1]
    made = np.take_along_axis(columns.reshape(count, k), k - 1 - backwards, 1)
    return made.astype(_index_dtype(extent))


def _top_of_sparse(x: Storage, k: int) -> Any:
    """The same of stored entries, and of as many others as a row may need: O(nnz), and O(n log n) for the n <= 2 k rows candidates that are left."""
    coords, values = convert.to_coords(x)
    extent = x.shape[-1]
    count = int(np.prod(x.shape[:-1]))
    if not k or not count:
        return np.zeros((count, k), _index_dtype(extent))
    rows, columns = _row_numbers(x.shape, coords), coords[-1]
    order = ordering.sort_order([rows, columns], (count, extent))
    if order is not None:
        rows, columns, values = rows[order], columns[order], values[order]
    stored = np.bincount(rows, minlength=count)
    starts = np.cumsum(stored) - stored
    # before[e] places before entry e are free; those with u or fewer of them lie before the free place u
    before = columns - np.arange(len(rows)) + starts[rows]
    near = before < k
    passed = np.bincount(rows[near] * k + before[near], minlength=count * k).reshape(count, k)
    places = np.arange(k) + np.cumsum(passed, axis=1)
    free = places < extent
    if len(rows):
        size = values.view(np.uint8) if values.dtype == np.bool_ else values
        chosen = passes.over(len(size)).largest(size, np.append(starts, len(size)), k)
        rows, columns, values = rows[chosen], columns[chosen], values[chosen]
    rows, columns = np.concatenate([rows, np.nonzero(free)[0]]), np.concatenate([columns, places[free]])
    values = np.concatenate([values, np.full(np.count_nonzero(free), x.fill_value)])
    return _ordered(rows, columns, values, count, k).astype(_index_dtype(extent))


def _row_numbers(shape: Sequence[int], coords: Any) -> Any:
    """The row of every entry: its coordinates but the last, counted in row-major order."""
    rows = np.zeros(coords.shape[1], np.int64)
    for n, column in zip(shape[:-1], coords, strict=False):
        rows = rows * n + column
    return rows


def _rows(x: Any) -> Any:
    """`x` as a matrix of its rows."""
    return x.reshape(int(np.prod(x.shape[:-1])), x.shape[-1])


def _indices_call(x: Storage, out_aval: Aval, k: int) -> Storage:
    made = _top_of_dense(_rows(convert.to_dense(x)), k) if x.format.is_dense else _top_of_sparse(x, k)
    return convert.from_dense(made.reshape(out_aval.shape), out_aval.format, 0)


def _indices_batch(size: int, x: Batched, k: int) -> Any:
    made = top_k_indices_p.bind(moved(x.value, x.value.ndim - 1, 0), k=k)
    return moved(made, 0, made.ndim - 1)


top_k_indices_p = Primitive(
    "top_k_indices",
    typing=lambda x, k: rules.dense((*x.shape[:-1], k), _index_dtype(x.shape[-1])),
    reference=lambda x, k: _top_of_dense(_rows(x), k).reshape(*x.shape[:-1], k),
    call=_indices_call,
    batch=_indices_batch,
    jvp=lambda primals, tangents, out, k: None,
)


def _along_call(x: Storage, indices: Storage, out_aval: Aval) -> Storage:
    places = convert.to_dense(indices)
    if x.format.is_dense:
        made = np.take_along_axis(convert.to_dense(x), places.astype(np.int64), -1)
        return convert.from_dense(np.ascontiguousarray(made), out_aval.format, 0)
    coords, values = convert.to_coords(x)
    flat, columns, extent = _rows(places), coords[-1], x.shape[-1]
    entries, lines = (_row_numbers(x.shape, coords), columns), (np.arange(len(flat))[:, None], flat)
    keys, wanted = runs.keys_of([entries, lines], len(flat), extent)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    found = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    made = np.full(wanted.shape, x.fill_value)
    if len(keys):
        made = np.where(keys[found] == wanted, values[order][found], made)
    return convert.from_dense(made.reshape(out_aval.shape), out_aval.format, 0)


def _along_jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any) -> Any:
    x, indices = primals
    if tangents[0] is None:
        return None
    lines, last = tuple(range(x.ndim - 1)), x.ndim - 1
    chosen = select(indices, x.shape[-1], out.dtype)
    return contract([chosen, tangents[0]], [(*lines, x.ndim, last), (*lines, last)], (*lines, x.ndim), None, out.dtype)


def _along_batch(size: int, x: Any, indices: Any) -> Any:
    values = [spread(operand, size) for operand in (x, indices)]
    made = take_along_last_p.bind(*(moved(v, v.ndim - 1, 0) for v in values))
    return moved(made, 0, made.ndim - 1)


take_along_last_p = Primitive(
    "take_along_last",
    typing=lambda x, indices: rules.dense(indices.shape, x.dtype),
    reference=lambda x, indices: np.take_along_axis(x, indices.astype(np.int64), -1),
    call=_along_call,
    batch=_along_batch,
    jvp=_along_jvp,
)


def top_k(operand: Any, k: int, *, axis: int = -1) -> tuple[Any, Any]:
    """The `k` largest entries along `axis` in descending order, and their places: two dense arrays, as `jax.lax.top_k`. Places are
    int32, of axes longer than 2^31 int64.

    Of a sparse array, entries that are not stored count as the fill value. Of equal entries the first come first, NaN before all
    numbers. Values are differentiable. ValueError where `k` is negative or larger than the extent, TypeError for complex numbers.
    O(size) for dense arrays, O(nnz) and O(n log n) for n = k rows for sparse ones. To keep no more than some rows of a product,
    `lax.map(lambda row: top_k(row @ B, k), A, batch_size=256)`.

    >>> import sparsejax as sj
    >>> A = sj.array(np.array([[0.0, -1.0, 5.0, 2.0], [-3.0, 0.0, 0.0, 0.0]]), format="csr")
    >>> values, indices = top_k(A, 2)
    >>> values.todense()
    array([[5., 2.],
           [0., 0.]])
    >>> indices.todense()
    array([[2, 3],
           [1, 2]], dtype=int32)
    """
    x = asarray(operand, "operand")
    if x.dtype.kind == "c":
        raise TypeError("operand of top_k must be real: complex numbers have no largest")
    if not x.ndim:
        raise ValueError("operand of top_k must have at least one dimension")
    axis, k = normal_axis(axis, x.ndim), integer(k, "k")
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(f"k={k} of top_k must be from 0 to the extent {x.shape[axis]} of axis {axis}")
    x = distinct(moved(x, axis, x.ndim - 1))
    indices = top_k_indices_p.bind(x, k=k)
    values = take_along_last_p.bind(x, indices)
    return moved(values, x.ndim - 1, axis), moved(indices, x.ndim - 1, axis)
