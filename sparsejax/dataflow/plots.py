"""Figures, with matplotlib (the extra `plot`), which is imported when a figure is asked for."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsejax.dataflow.report import Tiling
    from sparsejax.dataflow.statistics import Statistics


def axes(ax: Any = None) -> Any:
    """The axes to draw on; ModuleNotFoundError says what to install."""
    if ax is not None:
        return ax
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ModuleNotFoundError:
        raise ModuleNotFoundError("figures need matplotlib: pip install sparsejax[traffic]") from None
    return pyplot.subplots(figsize=(6, 4), layout="constrained")[1]


def candidates(tiling: Tiling, ax: Any) -> Any:
    """Words of candidates over the aspect of their tiles."""
    ax = axes(ax)
    kept, summed = tiling.output[:1], tuple(v for v in tiling.extents if v not in tiling.output)[:1]

    def aspect(tiles: Mapping[str, int]) -> float:
        return math.prod(tiles[v] for v in kept) / math.prod(tiles[v] for v in summed)

    points = sorted((aspect(c.tiles), c.total) for c in tiling.candidates)
    ax.plot([x for x, _ in points], [y for _, y in points], "o", color="#2a6f97", label="candidates")
    ax.plot([aspect(tiling.tiles)], [tiling.predicted.total], "*", markersize=14, color="#c1121f", label=tiling.method)
    over = " over ".join(f"extent in {v}" for v in kept + summed)
    ax.set(xscale="log", yscale="log", xlabel=over if kept else f"1 over {over}", ylabel="predicted words")
    ax.legend()
    return ax


def statistics(made: Statistics, ax: Any) -> Any:
    """Corrs and TileCorrs over the shift, per dimension."""
    ax = axes(ax)
    for d in range(len(made.shape)):
        ax.plot(made.corrs[d], label=f"Corrs, axis {d} (sum {made.corrs[d].sum():.2f})")
        ax.plot(made.tile_corrs[d], "--", label=f"TileCorrs, axis {d}")
    ax.set(xscale="symlog", xlabel="shift, in coordinates and in tiles", ylabel="overlap", ylim=(0, 1.05))
    ax.legend()
    return ax
