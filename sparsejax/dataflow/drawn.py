"""Partial results of a product of two matrices, estimated from rows that are drawn once for all tiles.

A row with m multiplications is drawn with a probability in proportion to the fourth root of m, rows that would be drawn for certain with 1, so that
about `WORK` multiplications are looked at; all rows are where they take no more. Partial results of a drawn row count in inverse
proportion to its probability, and what the drawn rows' multiplications miss of all that there are corrects for it (Horvitz and Thompson
1952, as a ratio). The same rows serve all tiles, so that shapes are compared without noise between them, and one pass over their
multiplications serves all tiles of what is summed over that are powers of two times the same number (`tally.pairs`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sparsejax.dataflow import tally
from sparsejax.dataflow.contraction import Contraction
from sparsejax.dataflow.pattern import Array, Pattern, is_roomy, table

WORK, FINE = 1 << 19, 1 << 21
"""Multiplications of the rows that are drawn, where shapes are compared and where one is measured."""
ROUNDS = 3


@dataclass
class Drawn:
    """Rows x of a product out[x,y] = left[x,k] right[k,y], and their weights."""

    pattern: Pattern
    other: Pattern
    work: int
    rows: Array = field(init=False)
    weights: Array = field(init=False)
    share: float = field(init=False)
    held: int = field(init=False)
    _classes: dict[tuple[int, int], Array] = field(default_factory=dict, init=False)
    _runs: dict[int, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.left = self.pattern.positions, self.pattern.columns[1]
        self.right = self.other.positions, self.other.columns[1]
        self.extents = self.pattern.extents[1], self.other.extents[1]
        lengths = np.diff(self.right[0])
        self.all_meet = bool(lengths.all()) or not self.pattern.degrees(1)[lengths == 0].any()
        made = tally.multiplications(*self.left, lengths)
        self.rows = np.flatnonzero(made > 0)
        self.held = len(self.rows)
        sizes = made[self.rows].astype(np.float64)
        total = float(sizes.sum())
        self.weights, self.share = np.ones(len(sizes)), 1.0
        if total <= self.work:
            return
        weights = np.sqrt(np.sqrt(sizes))
        step = 0.0
        for _ in range(ROUNDS):  # of what is certain, less is left for the others
            chances = np.minimum(weights / step, 1.0) if step else weights
            step = (step or 1.0) * float((chances * sizes).sum()) / self.work
        chances = np.minimum(weights / step, 1.0)
        running = np.cumsum(chances)
        points = np.arange(int(running[-1]) + 1) + np.random.default_rng(0).random()
        chosen = np.searchsorted(running, points[points < running[-1]], "right")
        self.rows, self.weights = self.rows[chosen], 1 / chances[chosen]
        self.share = total / float((sizes[chosen] * self.weights).sum())

    @property
    def complete(self) -> bool:
        """Whether all rows are looked at: counts are exact."""
        return len(self.rows) == self.held

    def count(self, k_tile: int, y_tile: int) -> float:
        """Distinct (x, k // k_tile, y // y_tile) of all multiplications."""
        k_tile, y_tile = (max(1, min(t, n)) for t, n in zip((k_tile, y_tile), self.extents, strict=True))
        if k_tile >= self.extents[0]:
            if y_tile == self.extents[1]:
                return self.held
            known = next((found for (_, y), found in self._classes.items() if y == y_tile), None)
            if known is not None:
                return float(known[tally.FIRST]) * self.share
        if y_tile == self.extents[1] and self.all_meet:
            return self._met(k_tile)
        powers = (k_tile & -k_tile).bit_length() - 1
        key = k_tile >> powers, y_tile
        if key not in self._classes:
            self._classes[key] = tally.pairs(self.rows, self.weights, self.left, self.right, key, self.extents[1])
        first = tally.FIRST if k_tile >= self.extents[0] else powers + 1
        return float(self._classes[key][first:].sum()) * self.share

    def know(self, k_tile: int, runs: int) -> None:
        """Take over distinct (x, k // k_tile) of the left operand, which were counted elsewhere."""
        self._runs[k_tile] = runs

    def _met(self, k_tile: int) -> int:
        """Distinct (x, k // k_tile), where all entries meet some: of words, 2 n + 2 r of n entries in r rows, what rows take."""
        if k_tile not in self._runs:
            words = table(self.pattern, (self.pattern.extents[0], k_tile))
            self._runs[k_tile] = int(words.sum()) // 2 - self.pattern.entries
        return self._runs[k_tile]


def of(contraction: Contraction, order: tuple[str, ...], work: int) -> Drawn | None:
    """For a product of two matrices, the rows being those of the result as it is stored under a loop order; None for other contractions, and where
    there are no entries, far more rows than entries, or coordinates beyond 31 bits."""
    found = matrix_product(contraction, order)
    if found is None:
        return None
    x, k, y, lead = found
    left, right = contraction.pattern(lead, (x, k)), contraction.pattern(1 - lead, (k, y))
    if not left.entries or not right.entries:
        return None
    if not all(p.columns[0].dtype == p.columns[1].dtype == np.int32 for p in (left, right)):
        return None
    if not all(is_roomy(p.extents[0], p.entries) for p in (left, right)) or not is_roomy(right.extents[1], 1 << 18):
        return None
    return Drawn(left, right, work)


def matrix_product(contraction: Contraction, order: tuple[str, ...]) -> tuple[str, str, str, int] | None:
    """(x, k, y, lead) of out[x,y] = lead[x,k] other[k,y], x being outside y in the loops; None for other contractions."""
    inputs, output = contraction.inputs, contraction.output
    if len(inputs) != 2 or len(output) != 2 or any(len(vs) != 2 for vs in inputs) or len(contraction.reduced) != 1:
        return None
    x, y = (v for v in order if v in output)
    (k,) = contraction.reduced
    lead = next((n for n, vs in enumerate(inputs) if set(vs) == {x, k}), None)
    if lead is None or set(inputs[1 - lead]) != {k, y}:
        return None
    return x, k, y, lead
