"""NumPy's products of two arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax import config
from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray as _asarray
from sparsejax.core.primitive import view
from sparsejax.core.trace import current
from sparsejax.formats import Format, passes
from sparsejax.formats.levels.segments import check_size
from sparsejax.formats.ordering import CROWDED
from sparsejax.formats.storage import Storage
from sparsejax.lax.contract import tensordot
from sparsejax.lax.elementwise import elementwise as _elementwise
from sparsejax.lax.structural import convert_format as _convert_format
from sparsejax.lax.structural import reshape, transpose
from sparsejax.numpy.functions import ravel


@again(2)
def dot(a: Any, b: Any) -> Array:
    """NumPy's dot: scalars multiply, else the last axis of `a` meets the last but one of `b`."""
    a, b = _asarray(a), _asarray(b)
    if not a.ndim or not b.ndim:
        return _elementwise("multiply", a, b)
    return tensordot(a, b, ((a.ndim - 1,), (max(0, b.ndim - 2),)))


@again(2, whole=True)
def vdot(a: Any, b: Any) -> Array:
    """The sum of conj(a) * b over flattened operands."""
    a, b = _asarray(a), _asarray(b)
    first = ravel(a)
    return tensordot(_elementwise("conjugate", first) if a.dtype.kind == "c" else first, ravel(b), 1)


@again(2)
def inner(a: Any, b: Any) -> Array:
    """The sum over the last axes of both."""
    a, b = _asarray(a), _asarray(b)
    if not a.ndim or not b.ndim:
        return _elementwise("multiply", a, b)
    return tensordot(a, b, ((a.ndim - 1,), (b.ndim - 1,)))


def outer(a: Any, b: Any) -> Array:
    """All products of two flattened operands."""
    return tensordot(ravel(a), ravel(b), 0)


def kron(a: Any, b: Any) -> Array:
    """The Kronecker product: every entry of `a` times all of `b`. O(stored entries of the result).

    >>> import sparsejax as sj, numpy as np
    >>> kron(sj.array(np.eye(2), format="csr"), np.ones((1, 2))).todense()
    array([[1., 1., 0., 0.],
           [0., 0., 1., 1.]])
    """
    a, b = _asarray(a), _asarray(b)
    if current() is None and not config.forcing and _is_matrix(a) and _is_matrix(b):
        return _crossed(_convert_format(a, "csr"), _convert_format(b, "csr"))
    ndim = max(a.ndim, b.ndim)
    a, b = (reshape(x, (1,) * (ndim - x.ndim) + x.shape) for x in (a, b))
    both = transpose(tensordot(a, b, 0), [axis for k in range(ndim) for axis in (k, ndim + k)])
    return reshape(both, tuple(n * m for n, m in zip(a.shape, b.shape, strict=True)))


def _is_matrix(x: Any) -> bool:
    """Whether it is a sparse matrix over zero, with values, and of rows that can be counted."""
    return (
        type(x) is Array
        and x.ndim == 2
        and not x.format.is_dense
        and not x.fill_value
        and x.shape[0] <= max(passes.MANY, CROWDED * x.nnz)
    )


def _crossed(a: Array, b: Array) -> Array:
    """The Kronecker product of two matrices in csr, whose fills are zero, as coo."""
    one, other = ((x._storage.buffers[1][0], x._storage.buffers[1][1], x._storage.vals) for x in (a, b))
    shape = a.shape[0] * b.shape[0], a.shape[1] * b.shape[1]
    entries = check_size(a.nnz * b.nnz, "the entries of a Kronecker product")
    over = passes.over(entries)
    if a.dtype == b.dtype and a.dtype.kind in "iuf":
        row, column, vals = over.crossed(one, other, b.shape[1], shape, multiplied=True)
    else:
        row, column, left, right = over.crossed(one, other, b.shape[1], shape)
        vals = _elementwise("multiply", view(left), view(right))._storage.vals
    buffers = (np.array([0, entries]), row), (column,)
    return Array(Storage(Format.parse("coo", 2), shape, vals.dtype.type(0), buffers, vals))
