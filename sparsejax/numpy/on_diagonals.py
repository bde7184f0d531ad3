"""`setdiag`: other values on a diagonal of a matrix.

all places are stored                      a copy of the values, over the same pattern
rows that list columns, or columns, rows   where(the diagonal, values there, x), one kernel
other formats, and under `jit`             x.at[rows, rows + k].set(values)
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from sparsejax.core.array import Array, made
from sparsejax.core.avals import Aval
from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import span
from sparsejax.core.trace import current
from sparsejax.formats import Format
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.parts import located, unlisted
from sparsejax.formats.passes import crd_dtype
from sparsejax.formats.storage import Storage
from sparsejax.lax.elementwise import convert_element_type, where
from sparsejax.lax.extents import coordinates
from sparsejax.lax.structural import integer
from sparsejax.numpy.updates import At, numbers


def setdiag(x: Any, values: Any, k: int = 0) -> Array:
    """`x` with `values` on its k-th diagonal: a new array, as `scipy.sparse`'s method changes its own.

    >>> import sparsejax as sj
    >>> setdiag(sj.array(np.ones((2, 2)), format="csr"), 5).todense()
    array([[5., 1.],
           [1., 5.]])

    ValueError, as of SciPy's, for a diagonal that lies outside of the matrix.
    """
    x, k = asarray(x), integer(k, "k")
    if x.ndim != 2:
        raise ValueError(f"setdiag takes a matrix, not an array of shape {x.shape}")
    below, above = x.shape
    if (k > 0 and k >= above) or (k < 0 and -k >= below):
        own = f"those from {1 - below} to {above - 1}" if below and above else "none"
        raise ValueError(f"k={k} is no diagonal of a matrix of shape {x.shape}: it has {own}")
    count = max(0, min(x.shape[0] - max(0, -k), x.shape[1] - max(0, k)))
    given = asarray(values)
    if given.ndim and given.shape[0] > max(1, count):
        values = given = given[:count]
    if type(x) is Array and type(given) is Array and current() is None and given.shape in ((), (1,), (count,)):
        written = _diagonal_written(x, np.broadcast_to(_numbers_of(values, given, x.dtype), count), k)
        if written is not None:
            return written
    start = max(0, -k)
    rows, columns = (coordinates(span(n, n + count)) for n in (start, start + k))
    return At(x)[rows, columns].set(given)


def _numbers_of(values: Any, given: Array, dtype: np.dtype[Any]) -> Any:
    """Values to be written to an array of this dtype; OverflowError for Python integers that it cannot hold."""
    known = numbers(values, dtype)
    return convert_element_type(given, dtype).todense() if known is None else known


def _diagonal_written(x: Array, vals: Any, k: int) -> Array | None:
    """A matrix that lists the columns of its rows, or the rows of its columns, with `vals`, of its dtype, on the k-th diagonal; None for others."""
    storage, form, count = x._storage, x._aval.format, len(vals)
    if unlisted.listed_rows(form) is None or type(form.levels[1]) is not Compressed:
        return None
    starts = max(0, -k), max(0, k)
    places = np.arange(count)
    found = located.positions(storage, [places + start for start in starts])
    if found is not None and (not count or found.min() >= 0):
        made_vals = storage.vals.copy()
        made_vals[found] = vals
        return made(storage.with_values(made_vals, storage.fill_value), x._aval.strong())
    mask = (_small_diagonal if count <= SMALL else _diagonal)(form, x.shape, k)
    there = made(mask._storage.with_values(np.array(vals), x.dtype.type(0)), Aval(x.shape, x.dtype, form))
    return where(mask, there, x)


def _diagonal(form: Format, shape: tuple[int, ...], k: int) -> Array:
    """True on the k-th diagonal, as a matrix that lists the columns of its rows, or the rows of its columns."""
    (outer, inner), starts = form.order, (max(0, -k), max(0, k))
    count = max(0, min(shape[0] - starts[0], shape[1] - starts[1]))
    pos = np.minimum(np.maximum(np.arange(shape[outer] + 1) - starts[outer], 0), count)
    crd = (np.arange(count) + starts[inner]).astype(crd_dtype(shape[inner]))
    return Array(Storage(form, shape, np.False_, ((), (pos, crd)), np.ones(count, bool)))


SMALL = 4096
"""Entries of the largest diagonals that are kept, with what is known of them."""
_small_diagonal = functools.lru_cache(maxsize=64)(_diagonal)
