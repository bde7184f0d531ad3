"""Entries in any order become rows that list their columns: put into their rows by one counting pass, then ordered in each row, which is
short; of other entries by counting passes over all coordinates (`ordering`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.formats import ordering, passes
from sparsejax.formats.format import Format
from sparsejax.formats.levels.coordinate import Coordinate
from sparsejax.formats.parts import unlisted
from sparsejax.formats.passes import crd_dtype
from sparsejax.formats.runs import SIGNED
from sparsejax.formats.storage import Storage

FIRST = 33
"""Entries that are looked at before all are taken for entries in order."""


def of_entries(data: Any, coords: Any, shape: Any, format: str | Format) -> Storage | None:
    """The matrix of the entries `data` at `coords`, (rows, columns), duplicates summed, over fill 0. None where `format` does not list the columns
    of dense rows (or the reverse), or all coordinates, rows are long or too many, or something is not of the usual type or wrong, to be told by others.

    >>> of_entries(np.array([1.0, 2.0, 3.0]), (np.array([1, 0, 1]), np.array([0, 1, 0])), (2, 2), "csr").vals
    array([2., 4.])
    """
    if type(coords) is not tuple or len(coords) != 2 or type(shape) is not tuple or len(shape) != 2:
        return None
    for vector in (data, *coords):
        if type(vector) is not np.ndarray or vector.ndim != 1 or len(vector) != len(data):
            return None
    form = Format.parse(format, 2)
    listed = [type(level) is Coordinate and level.unique for level in form.levels] == [True, True] and not form.blocked
    dims = (form.order[0], form.order[1]) if listed else unlisted.listed_rows(form)
    if dims is None or not len(data) or dtypes.canonical(data.dtype) != data.dtype:
        return None
    for vector, extent in zip(coords, shape, strict=True):
        if type(extent) is not int or vector.dtype not in SIGNED:
            return None
    row, column = (coords[d] for d in dims)
    rows, extent = (shape[d] for d in dims)
    if rows > max(passes.MANY, ordering.CROWDED * len(data)):
        return None
    many = passes.over(len(data))
    in_order = None
    if len(data) >= passes.MANY and (row[1:FIRST] >= row[: FIRST - 1]).all():
        in_order = many.admitted(None, (row, column), (rows, extent), data, True)
    if in_order is not None and in_order[3]:
        _, (row, crd), vals, _ = in_order
        if listed:
            ends = np.array([0, len(crd)])
            return Storage(form, shape, data.dtype.type(0), ((ends, row), (crd,)), vals)
        return Storage(form, shape, data.dtype.type(0), ((), (many.offsets(row, rows), crd)), vals)
    found = many.entered(row, column, data, rows, extent)
    if found is None:
        return None
    pos, crd, vals = found
    if not listed:
        return Storage(form, shape, data.dtype.type(0), ((), (pos, crd)), vals)
    ends, owners = np.array([0, len(crd)]), many.owners(pos).astype(crd_dtype(rows), copy=False)
    return Storage(form, shape, data.dtype.type(0), ((ends, owners), (crd,)), vals)
