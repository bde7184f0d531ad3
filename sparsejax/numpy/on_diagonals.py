"""`setdiag`: other values on a diagonal of a matrix.

formats in which places are searched   the values are written between the entries, or over them: `formats/parts/written`
others, and under `jit`                x.at[rows, rows + k].set(values)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.core.array import Array, made
from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import span
from sparsejax.core.trace import current
from sparsejax.formats.parts import located, written
from sparsejax.lax.elementwise import convert_element_type
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
    """A matrix in whose storage places are searched with `vals`, of its dtype, on the k-th diagonal; None for others."""
    storage, form = x._storage, x._aval.format
    if not located.searched(form):
        return None
    places = np.arange(len(vals))
    columns = [places + max(0, -k), places + max(0, k)]
    return made(written.written(storage, columns, vals, form, (0,)), x._aval.strong())
