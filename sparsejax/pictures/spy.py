"""Spy plots: where an array stores entries. Counted in a grid of few cells, whatever the size.

Large arrays are sampled: entries at evenly spaced positions, found by a binary search each (`formats/peek`), so that a picture of a billion entries
takes milliseconds and no memory to speak of.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparsejax.formats import peek
from sparsejax.formats.levels.segments import Array
from sparsejax.formats.storage import Storage

CELLS = 44
"""Cells along each side of a grid, at most; of a vector, four times as many."""

SAMPLED = 1 << 17
"""Entries that are counted at most."""

SHADES = 5
_SIDE = 176
_THIN = 22


class Grid(NamedTuple):
    """How many entries lie in every cell, estimated where `step` is not 1."""

    counts: Array
    shape: tuple[int, int]
    """Extents of what is shown: rows and columns."""
    step: int
    """Of so many positions, one was looked at."""


def grid(storage: Storage, rows: int = CELLS, columns: int = CELLS) -> Grid:
    """Entries of an array in a grid of at most `rows` x `columns` cells: of a matrix; of a vector as one row; of more dimensions, of
    the last two, summed over all others.

    O(SAMPLED log entries).

    >>> from sparsejax.formats import Format, convert
    >>> grid(convert.from_dense(np.eye(4), Format.parse("csr", 2), 0.0), 2, 2).counts
    array([[2, 0],
           [0, 2]])
    """
    shape = (1, 1, *storage.shape)[-2:]
    cells = [max(1, min(n, most)) for n, most in zip(shape, (rows, columns), strict=True)]
    counts = np.zeros(cells, np.int64)
    found, step = peek.sample(storage, SAMPLED) if storage.ndim and all(storage.shape) else ([], 1)
    if found and len(found[0]):
        here = [np.zeros(len(found[0]), np.int64), *found][-2:]
        column = [_cells(c, n, few) for c, n, few in zip(here, shape, cells, strict=True)]
        counts = np.bincount(column[0] * cells[1] + column[1], minlength=counts.size).reshape(cells)
    return Grid(counts * step, (shape[0], shape[1]), step)


def _cells(coordinate: Array, extent: int, cells: int) -> Array:
    """The cell of every coordinate, without going beyond 64 bits."""
    coordinate = coordinate.astype(np.int64)
    if extent < 2**56:
        made: Array = coordinate * cells // extent
        return made
    return np.minimum((coordinate.astype(np.float64) * (cells / extent)).astype(np.int64), cells - 1)


def svg(found: Grid, title: str) -> str:
    """The grid as a picture: cells in shades of the colour of the text, darker where more entries are. Some 16 kB at most."""
    rows, columns = found.counts.shape
    width, height = _size(found.shape)
    shades = _shades(found.counts)
    paths = []
    for shade in range(1, SHADES + 1):
        drawn = _path(shades == shade)
        if drawn:
            paths.append(f'<path stroke-opacity="{shade / SHADES:.2g}" d="{drawn}"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {columns} {rows}" '
        f'preserveAspectRatio="none" shape-rendering="crispEdges" role="img" stroke="currentColor" fill="none" '
        f'style="border:1px solid currentColor"><title>{title}</title>{"".join(paths)}</svg>'
    )


def _size(shape: tuple[int, int]) -> tuple[int, int]:
    """Width and height in pixels: those of the matrix, but no side too thin to see."""
    rows, columns = (max(1, n) for n in shape)
    longest = max(rows, columns)
    return max(_THIN, round(_SIDE * columns / longest)), max(_THIN, round(_SIDE * rows / longest))


def _shades(counts: Array) -> Array:
    """0 where nothing is, up to SHADES where most is; by square roots, so that few are seen beside many."""
    most = max(1, int(counts.max())) if counts.size else 1
    made: Array = np.ceil(SHADES * np.sqrt(counts / most)).astype(np.int64)
    return made


def _path(cells: Array) -> str:
    """A stroke along every run of cells in a row, drawn with relative moves."""
    parts, x, y = [], 0.0, 0.0
    for row in range(len(cells)):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], cells[row].astype(np.int8), [0]])))
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            parts.append(f"m{start - x:g} {row + 0.5 - y:g}h{stop - start}")
            x, y = stop, row + 0.5
    return "".join(parts)
