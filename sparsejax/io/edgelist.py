"""Edge lists: a graph as text, an edge a line, `source target` or `source target weight`, as SNAP and many others keep them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, scipy_io
from sparsejax.formats.levels.segments import check_bounds
from sparsejax.io.frostt import ROWS
from sparsejax.io.lines import blocks, created, table
from sparsejax.io.reading import Budget, finished, reading, shape_of, written


def read_edgelist(
    source: Any,
    *,
    shape: tuple[int, int] | None = None,
    symmetric: bool = False,
    base: int = 0,
    comments: str = "#%",
    delimiter: str | None = None,
    format: str | Format | None = None,
    dtype: Any = None,
    max_bytes: int | None = None,
    progress: bool | None = None,
) -> Array:
    """The adjacency matrix, as coo or in `format`, of a list of edges: A[source, target] is the weight, or 1 where lines have none.

    Nodes are numbers from `base` on. Without `shape`, the matrix is square and as large as the largest node asks for; with
    `symmetric=True`, every edge is there in both directions. Lines that begin with one of `comments` are skipped; columns are apart by
    blanks, or by `delimiter`. Weights of edges that are listed twice are summed (of an edge and its reverse too, where
    `symmetric`). Files may be packed (gzip, bzip2, xz). `dtype` is that of the weights, float64 unless given. `max_bytes` bounds the memory
    that is taken (the machine's, unless given); `progress` shows a bar: always, never, or (None) from a million lines on.

    FormatError for anything that is no such list. O(edges), and sorting them.

    >>> import io
    >>> read_edgelist(io.BytesIO(b"# from to\\n0 1\\n2 0\\n"), format="csr").todense()
    array([[0., 1., 0.],
           [0., 0., 0.],
           [1., 0., 0.]])
    """
    budget = Budget(max_bytes)
    kind = np.dtype(np.float64) if dtype is None else dtypes.canonical(dtype)
    if kind.kind == "c":
        raise FormatError("weights of edge lists are real; complex ones have no place there")
    read = np.dtype(np.int8) if kind == np.bool_ else kind
    found: list[np.ndarray[Any, Any]] = []
    with reading(source):
        width = 0
        for lines, _ in blocks(source, comments, budget, progress):
            if not lines:
                continue
            width = width or _width(lines[0], delimiter)
            budget.take(len(lines) * 3 * 8 * (width + symmetric), f"{len(lines)} edges")
            found.append(table(lines, 2, read if width == 3 else None, delimiter, sum(map(len, found))))
        ends = np.concatenate([part["index"] for part in found] or [np.empty((0, 2), np.int64)])
        if width == 3:
            weights = np.concatenate([part["value"] for part in found]).astype(kind, copy=False)
        else:
            weights = np.ones(len(ends), kind)
        del found
        columns = [np.ascontiguousarray(ends[:, k]) for k in range(2)]
        for column, what in zip(columns, ("sources", "targets"), strict=True):
            if len(column) and column.min() < base:
                raise FormatError(f"{what} of edges hold {column.min()}; nodes are numbers from base={base} on")
            column -= base
        if shape is None:
            order = int(ends.max()) + 1 - base if len(ends) else 0
            extents: tuple[int, ...] = shape_of((order, order))
        else:
            extents = shape_of(shape, 2)
        if symmetric:
            columns, weights = _both_ways(columns, weights, extents)
        return finished(scipy_io.from_coordinates(columns, weights, extents, None), format, None, budget)


def write_edgelist(target: Any, x: Any, *, base: int = 0, weights: bool | None = None, delimiter: str = " ") -> None:
    """Write the stored entries of a matrix as `source target weight` lines, nodes counted from `base`.

    `weights=None` leaves weights out where all are one. The file does not say the shape, nor how many bits numbers have. A path that ends
    in .gz, .bz2 or .xz is packed. FormatError for other dimensions than two, for a fill that is not zero, and for complex weights.

    >>> import io, sparsejax as sj
    >>> file = io.BytesIO()
    >>> write_edgelist(file, sj.array([[0, 1], [1, 0]], format="csr"))
    >>> file.getvalue()
    b'0 1\\n1 0\\n'
    """
    storage = written(x, "an edge list", ndim=2)
    if storage.dtype.kind == "c":
        raise FormatError("weights of edge lists are real; write the real and the imaginary part, or use save_npz")
    if storage.format.is_dense:
        storage = convert.convert(storage, Format.parse("coo", 2))
    columns, vals = storage.expand()
    weighted = not bool((vals == 1).all()) if weights is None else weights
    if vals.dtype == np.bool_:
        vals = vals.astype(np.int8)
    with created(target) as file:
        for start in range(0, len(vals), ROWS):
            part = slice(start, start + ROWS)
            texts = [map(str, (c[part].astype(np.int64) + base).tolist()) for c in columns]
            if weighted:
                texts.append(map(str, vals[part] if vals.dtype == np.float32 else vals[part].tolist()))
            file.write(("\n".join(map(delimiter.join, zip(*texts, strict=True))) + "\n").encode())


def _width(line: str, delimiter: str | None) -> int:
    width = len(line.split(delimiter))
    if width not in (2, 3):
        raise FormatError(f"the first line has {width} columns; an edge has a source, a target, and perhaps a weight")
    return width


def _both_ways(
    columns: list[np.ndarray[Any, Any]], weights: np.ndarray[Any, Any], extents: tuple[int, ...]
) -> tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """Every edge and its reverse; loops once."""
    if extents[0] != extents[1]:
        raise FormatError(f"symmetric=True needs a square matrix, and shape={extents}")
    source, target = columns
    for column, what in ((source, "sources"), (target, "targets")):
        check_bounds(column, extents[0], what)
    turn = source != target
    return (
        [np.concatenate([source, target[turn]]), np.concatenate([target, source[turn]])],
        np.concatenate([weights, weights[turn]]),
    )
