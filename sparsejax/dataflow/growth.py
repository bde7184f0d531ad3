"""Extents of tiles that fit a buffer: dense tiles, squares, and the longest in one variable."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from sparsejax.dataflow.contraction import Contraction
from sparsejax.dataflow.nest import Nest
from sparsejax.dataflow.pattern import words_of_csf, words_of_dense
from sparsejax.dataflow.simulate import Simulator
from sparsejax.errors import ScheduleError


def check_buffer(contraction: Contraction, buffer: int) -> None:
    """ScheduleError where a buffer holds no tile of one entry."""
    least = max(words_of_csf(1, [1] * (len(vs) - 1)) for vs in contraction.inputs)
    if buffer < least:
        raise ScheduleError(
            f"a buffer of {buffer} words holds no tile of one entry of {contraction}, which takes {least}: "
            "value, coordinates and segments"
        )


def longest(fits: Callable[[int], bool], limit: int, start: int = 1) -> int:
    """The largest extent up to `limit` that a bisection finds to fit, where `start` does. Extents that fit are not an interval (tiles
    begin elsewhere), but half of an even extent that fits does."""
    low = start
    while low < limit and fits(min(2 * low, limit)):
        low = min(2 * low, limit)
    high = min(2 * low, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def cube(contraction: Contraction, edge: int) -> dict[str, int]:
    """The same extent in every variable, clipped to the dimensions."""
    return {v: max(1, min(edge, n)) for v, n in contraction.extents.items()}


def conservative(contraction: Contraction, buffer: int) -> int:
    """The largest edge of tiles that fit when every place of them is stored."""
    check_buffer(contraction, buffer)
    dimensions = max(len(vs) for vs in contraction.inputs)

    def fits(edge: int) -> bool:
        return words_of_dense([edge] * dimensions) <= buffer

    return longest(fits, max(2, buffer))


def largest_edge(simulator: Simulator, buffer: int, fits: Callable[[Nest], bool]) -> int:
    """The largest edge of square tiles that fit, as a bisection finds it, from where they would be full if entries were spread evenly."""
    contraction, order = simulator.contraction, simulator.order
    start = conservative(contraction, buffer)
    shares = []
    for vs, storage in zip(contraction.stored, contraction.storages, strict=True):
        places = math.prod(contraction.extents[v] for v in vs)
        shares.append((places * buffer / (3 * max(storage.nnz, 1))) ** (1 / len(vs)))
    edge = max(start, int(min(shares)))
    largest = max([1, *contraction.extents.values()])

    def fit(edge: int) -> bool:
        return fits(Nest(order, cube(contraction, edge)))

    while edge > start and not fit(edge):
        edge = max(start, edge // 2)
    return longest(fit, max(largest, edge), edge)


def fits_in(simulator: Simulator, nest: Nest, buffer: int, operands: Sequence[int] | None = None) -> bool:
    """Whether no tile of the operands (all of them without `operands`) has more words than the buffer."""
    chosen = range(len(simulator.contraction.inputs)) if operands is None else operands
    return all(simulator.fits(k, nest, buffer) for k in chosen)


def grown(
    simulator: Simulator,
    tiles: Mapping[str, int],
    variable: str,
    buffer: int,
    fine: float,
    limit: int,
    near: int = 1,
) -> int:
    """The largest extent in one variable, the others as they are, for which the operands that have it fit, to within a share `fine`
    (none: doubled or halved from `near` only); 0: none does."""
    order = simulator.order
    operands = [k for k, vs in enumerate(simulator.contraction.inputs) if variable in vs]

    def fit(extent: int) -> bool:
        return fits_in(simulator, Nest(order, {**tiles, variable: extent}), buffer, operands)

    if fit(limit):
        return limit
    low = min(near, limit)
    if fit(low):
        while 2 * low < limit and fit(2 * low):
            low *= 2
    else:
        while low and not fit(low):
            low //= 2
    if not low or not fine:
        return low
    high = min(2 * low, limit)
    while high - low > max(1, int(fine * low)):
        middle = (low + high) // 2
        low, high = (middle, high) if fit(middle) else (low, middle)
    return low
