"""A spy plot with axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.formats import ingest
from sparsejax.optional import optional
from sparsejax.pictures import spy as grids


def spy(x: Any, *, cells: int = 256, ax: Any = None, **options: Any) -> Any:
    """Draw how many entries an array stores where, in a grid of at most `cells` x `cells` cells, darker where more are; the matplotlib axes.

    A matrix as itself, a vector as one row, more dimensions as the last two, summed over all others. Of dense arrays, zeros count as not
    stored. Large arrays are sampled: O(cells^2 + 10^5 log entries), whatever their size. `ax` is where to draw, else a new figure; `options` go to
    `imshow`. ValueError for an array of no dimensions.
    """
    pyplot = optional("matplotlib.pyplot", "plot")
    storage = x._storage.exposed() if isinstance(x, Array) else ingest.as_storage(x)
    if not storage.ndim:
        raise ValueError("an array of no dimensions has no picture")
    if storage.format.is_dense:
        storage = ingest.as_storage(np.asarray(Array(storage)), format="coo", copy=True)
    found = grids.grid(storage, cells, cells)
    ax = pyplot.subplots()[1] if ax is None else ax
    rows, columns = found.shape
    shade = np.sqrt(found.counts / max(1, found.counts.max(initial=0)))
    drawn = {
        "cmap": "Greys",
        "vmin": 0,
        "vmax": 1,
        "interpolation": "nearest",
        "aspect": "auto" if storage.ndim == 1 else "equal",
    }
    if not 0.1 <= rows / max(1, columns) <= 10:
        drawn["aspect"] = "auto"
    ax.imshow(shade, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5), **{**drawn, **options})
    ax.set_xlabel(f"{storage.nnz:,} entries of {' x '.join(f'{n:,}' for n in storage.shape)}, {storage.format}")
    if storage.ndim == 1:
        ax.set_yticks([])
    return ax
