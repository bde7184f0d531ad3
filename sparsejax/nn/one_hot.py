"""Integer labels as a sparse array: one entry per row. By it, gathers and sums by segments are products."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.lax.contract import einsum
from sparsejax.lax.indexing import select
from sparsejax.lax.indirect import rows
from sparsejax.lax.structural import convert_format, reshape


def one_hot(labels: Any, count: int, dtype: Any = np.float64) -> Array:
    """One at `labels[i]` of every row `i`, sparse: csr for a vector of labels, one more axis than `labels` in general.

    A label outside of 0 to `count` - 1 gives an empty row. O(labels). TypeError for labels that are not integers.

    >>> import numpy as np
    >>> one_hot(np.array([2, 0, -1]), 3).todense()
    array([[0., 0., 1.],
           [1., 0., 0.],
           [0., 0., 0.]])
    """
    labels = asarray(labels, "labels")
    if labels.dtype.kind not in "iu":
        raise TypeError(f"labels must be integers, not {labels.dtype}")
    return select(labels, count, dtypes.canonical(dtype), drop=True)


def embed(table: Any, labels: Any) -> Array:
    """The rows of `table` that integer `labels` name; zeros for labels outside. O(result).

    >>> import numpy as np
    >>> embed(np.eye(3), np.array([2]))
    Array([[0., 0., 1.]], dtype=float64)
    """
    table, labels = asarray(table, "table"), asarray(labels, "labels")
    if table.format.is_dense and table.ndim == 2 and labels.dtype.kind in "iu":
        flat = reshape(convert_format(labels, "dense"), (labels.size,))
        return reshape(rows.gathered(table, {0: flat}, drop=True), (*labels.shape, table.shape[1]))
    return einsum("...v,vd->...d", one_hot(labels, table.shape[0], table.dtype), table)
