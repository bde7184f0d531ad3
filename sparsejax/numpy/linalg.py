"""`numpy.linalg` for arrays in any format: norms, diagonals. Solvers are in `sparsejax.scipy.sparse.linalg`."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.core.primitive import asarray
from sparsejax.lax import structural
from sparsejax.lax.elementwise import elementwise
from sparsejax.lax.structural import normal_axes, reshape
from sparsejax.numpy import reductions


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """`numpy.linalg.norm` of vectors (any `ord`) and matrices ("fro", 1, -1, inf, -inf). O(stored entries).

    Raises ValueError for matrix norms that need singular values (2, -2, "nuc"): `scipy.sparse.linalg.svds` has these.

    >>> import sparsejax as sj
    >>> norm(sj.array(np.eye(4), format="csr"))
    Array(2., dtype=float64)
    """
    x = asarray(x)
    x = x if x.dtype.kind in "fc" else x.astype(float)
    if axis is None and ord is None:
        found = _vector(reshape(x, (x.size,)), 2, 0, False)
        return reshape(found, (1,) * x.ndim) if keepdims else found
    axes = tuple(range(x.ndim)) if axis is None else tuple(normal_axes(axis, x.ndim))
    if len(axes) == 1:
        return _vector(x, 2 if ord is None else ord, axes[0], keepdims)
    if len(axes) != 2:
        raise ValueError(f"a norm is taken over one axis or two, not over axis={axis} of an array of shape {x.shape}")
    if ord in (None, "fro", "f"):
        return elementwise("sqrt", reductions.sum(_squares(x), axes, keepdims=keepdims))
    along = {1: axes[0], -1: axes[0], np.inf: axes[1], -np.inf: axes[1]}
    if isinstance(ord, str) or ord not in along:
        raise ValueError(
            f"ord={ord!r} of a matrix needs singular values or is unknown; take 'fro', 1, -1, inf or -inf, or scipy.sparse.linalg.svds"
        )
    sums = reductions.sum(elementwise("absolute", x), along[ord], keepdims=True)
    extreme = reductions.max if ord > 0 else reductions.min
    found = extreme(sums, axes, keepdims=True)
    return found if keepdims else reshape(found, [n for k, n in enumerate(x.shape) if k not in axes])


def _vector(x: Any, ord: Any, axis: int, keepdims: bool) -> Any:
    if isinstance(ord, str):
        raise ValueError(f"ord={ord!r} is a norm of matrices; a vector takes numbers")
    if ord == 2:
        return elementwise("sqrt", reductions.sum(_squares(x), axis, keepdims=keepdims))
    size = elementwise("absolute", x)
    if ord == np.inf:
        return reductions.max(size, axis, keepdims)
    if ord == -np.inf:
        return reductions.min(size, axis, keepdims)
    if ord == 0:
        return reductions.count_nonzero(x, axis, keepdims).astype(size.dtype)
    total = reductions.sum(elementwise("power", size, float(ord)), axis, keepdims=keepdims)
    return elementwise("power", total, 1 / ord)


def _squares(x: Any) -> Any:
    size = elementwise("absolute", x) if x.dtype.kind == "c" else x
    return elementwise("multiply", size, size)


def diagonal(x: Any, *, offset: int = 0) -> Any:
    """`numpy.linalg.diagonal`: of the last two axes.

    >>> diagonal(np.arange(8.0).reshape(2, 2, 2))
    Array([[0., 3.],
           [4., 7.]], dtype=float64)
    """
    return structural.diagonal(x, offset, -2, -1)


def trace(x: Any, *, offset: int = 0, dtype: Any = None) -> Any:
    """`numpy.linalg.trace`: the sum of a diagonal of the last two axes."""
    return reductions.sum(diagonal(x, offset=offset), -1, dtype)
