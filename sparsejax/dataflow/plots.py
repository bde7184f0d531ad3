"""Figures, with matplotlib (the extra `plot`), which is imported when a figure is asked for."""

from __future__ import annotations

import importlib
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
    reduced = tiling.operands[0][-1]
    points = sorted((c.tiles[next(iter(c.tiles))] / c.tiles[reduced], c.total) for c in tiling.candidates)
    ax.plot([x for x, _ in points], [y for _, y in points], "o", color="#2a6f97", label="candidates")
    first = next(iter(tiling.tiles))
    chosen = tiling.tiles[first] / tiling.tiles[reduced]
    ax.plot([chosen], [tiling.predicted.total], "*", markersize=14, color="#c1121f", label=tiling.method)
    ax.set(xscale="log", yscale="log", xlabel=f"extent in {first} over extent in {reduced}", ylabel="predicted words")
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
