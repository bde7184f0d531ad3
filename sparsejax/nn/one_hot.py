"""Integer labels as a sparse array, one entry per row, and rows of tables by label."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.core.trace import Tracer
from sparsejax.lax.elementwise import convert_element_type
from sparsejax.lax.indexing import select
from sparsejax.lax.indirect import rows
from sparsejax.lax.structural import convert_format, extent, reshape


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
    dtype, count = dtypes.canonical(dtype), extent(count, "count")
    if isinstance(labels, Tracer):  # remembered with the labels, and a part of the product that reads it
        return convert_element_type(rows.labelled(labels, count), dtype)
    return select(labels, count, dtype, drop=True)


def embed(table: Any, labels: Any) -> Array:
    """The rows of `table` that integer `labels` name; zeros for labels outside, of any number of axes. O(result).

    ValueError for a table that has not two axes, TypeError for labels that are not integers.

    >>> import numpy as np
    >>> embed(np.eye(3), np.array([2]))
    Array([[0., 0., 1.]], dtype=float64)
    """
    table, labels = asarray(table, "table"), asarray(labels, "labels")
    if labels.dtype.kind not in "iu":
        raise TypeError(f"labels must be integers, not {labels.dtype}")
    if table.ndim != 2:
        raise ValueError(f"table must have two axes, a row for each label, but has shape {table.shape}")
    flat = reshape(convert_format(labels, "dense"), (labels.size,))
    if table.format.is_dense:
        made = rows.gathered(table, {0: flat}, drop=True)
    else:
        made = rows.looked_up(table, flat)
    return made if labels.ndim == 1 else reshape(made, (*labels.shape, table.shape[1]))
