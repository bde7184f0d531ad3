"""Tiles for a buffer inside another one: extents that divide those around them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from sparsejax.dataflow import growth
from sparsejax.dataflow.nest import Nest
from sparsejax.dataflow.progress import Progress
from sparsejax.dataflow.report import Tiles
from sparsejax.dataflow.simulate import Simulator


def tiles_inside(
    simulator: Simulator, outer: Sequence[Tiles], buffer: int, method: str, progress: Progress
) -> list[Tiles]:
    """Outer tiles, cut to multiples of inner ones, and these: extents are the outer ones divided by powers of two. The squarest that fit, when
    dense for the method conservative; the ones that move least where the method searches shapes."""
    (around,) = outer
    contraction = simulator.contraction
    searched = method in ("counted", "paper")
    best: tuple[float, Tiles, Tiles] | None = None
    for parts in _parts(simulator, around, buffer, method):
        progress.step()
        small = {v: max(1, around[v] // p) for v, p in zip(around, parts, strict=True)}
        large = {v: n if (n := around[v]) >= contraction.extents[v] else small[v] * (n // small[v]) for v in around}
        nest = Nest(simulator.order, small, large)
        if not growth.fits_in(simulator, nest, buffer):
            continue
        cost = float(sum(simulator.words(nest, False, rough=True))) if searched else _unevenness(small)
        if best is None or cost < best[0]:
            best = cost, small, large
    assert best is not None  # tiles of one coordinate fit every buffer that was accepted
    return [best[2], best[1]]


def _unevenness(tiles: Tiles) -> float:
    """Small for large and square tiles."""
    logs = [math.log2(t) for t in tiles.values()]
    return max(logs) - min(logs) - sum(logs)


def _parts(simulator: Simulator, around: Tiles, buffer: int, method: str) -> list[tuple[int, ...]]:
    """Into how many parts each extent is cut: powers of two, those where a coarser cut in every variable does not fit already."""
    edge = growth.conservative(simulator.contraction, buffer)
    choices = []
    for extent in around.values():
        powers = [1 << x for x in range(extent.bit_length())]
        if method == "conservative":
            powers = [p for p in powers if extent // p <= edge][:1] or [extent]
        choices.append([*powers, extent] if extent not in powers else powers)
    if method == "conservative":
        return list(itertools.product(*choices))
    fitting: list[tuple[int, ...]] = []
    for parts in sorted(itertools.product(*choices), key=lambda p: math.prod(p)):
        if any(all(a >= b for a, b in zip(parts, f, strict=True)) for f in fitting):
            continue
        small = {v: max(1, around[v] // p) for v, p in zip(around, parts, strict=True)}
        if growth.fits_in(simulator, Nest(simulator.order, small), buffer):
            fitting.append(parts)
    return [*fitting, tuple(around.values())]
