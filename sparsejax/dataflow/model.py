"""The traffic model of the D2T2 paper, from statistics of one conservative tiling (section 5.1).

Of C[i,j] = A[i,k] B[k,j] in the order i,k,j, in tiles Ti x Tk and Tk x Tj, with grids D/T:

    A (16)       SizeTile_A Di/Ti Dk/Tk P_tile(A) PrTileIdx(B, k')
    B (17)       SizeTile_B Dk/Tk Dj/Tj P_tile(B) E|i'| P_tile(A)
    E|i'| (18)   Di/Ti while Ti <= T, else (Di/T) / sum of TileCorrs(A, s)_i over s < Ti/T      (printed with Di in place of Di/T)
    out (20)     Di/Ti Dk/Tk Dj/Tj P_tile(A) P_tile(B) Ti Tj Tk Pr(A) Pr(B) / sum of Corrs(B, s)_k over s <= Tk

and for other products and orders what these were derived from: the sum over all iterations of the loops around an operand of the
probability that its tile is there and, for every other operand, that one is there at the coordinates of these loops (equations 2 to 8);
a result that stays adds probabilities over what is summed over, up to one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparsejax.dataflow.contraction import Contraction
from sparsejax.dataflow.nest import Nest
from sparsejax.dataflow.statistics import Statistics, of_pattern


class Model:
    """Predictions for one contraction, from the statistics of its operands in tiles of `edge`."""

    def __init__(self, contraction: Contraction, order: tuple[str, ...], edge: int) -> None:
        self.contraction, self.order, self.edge = contraction, order, edge
        self.variables = [tuple(v for v in order if v in vs) for vs in contraction.inputs]
        self.statistics: list[Statistics] = []
        for k, variables in enumerate(self.variables):
            extents = [contraction.extents[v] for v in variables]
            edges = [max(1, min(edge, n)) for n in extents]
            self.statistics.append(of_pattern(contraction.pattern(k, variables), edges))

    def words(self, nest: Nest) -> tuple[float, ...]:
        """Words that move, per operand, then of the output."""
        return (*(self._load(k, nest) for k in range(len(self.variables))), self._store(nest))

    def _grid(self, v: str, nest: Nest) -> float:
        return self.contraction.extents[v] / nest.tiles[v]

    def _present(self, operand: int, variables: Sequence[str]) -> float:
        """The probability that an operand has a tile at given coordinates of some of its variables."""
        pairs = zip(self.variables[operand], self.statistics[operand].pr_tile_idx, strict=True)
        return math.prod(p for v, p in pairs if v in variables)

    def _load(self, operand: int, nest: Nest) -> float:
        own = self.variables[operand]
        seen = nest.seen(own)
        total = (
            self.statistics[operand].size_tile
            * math.prod(self._grid(v, nest) for v in own)
            * self.statistics[operand].p_tile
        )
        for other in range(len(self.variables)):
            if other != operand:
                total *= self._present(other, tuple(seen))
        for v in seen:
            if v not in own:
                total *= self._iterations(v, nest)
        return total

    def _iterations(self, v: str, nest: Nest) -> float:
        """E|v'|: over how many tiles of a variable that an operand does not have its own are fetched again."""
        ratio = nest.tiles[v] / self.edge
        if ratio <= 1:
            return self._grid(v, nest)
        holder = next(k for k, vs in enumerate(self.variables) if v in vs)
        corrs = self.statistics[holder].tile_corrs[self.variables[holder].index(v)]
        return self.contraction.extents[v] / self.edge / max(1.0, float(corrs[: math.ceil(ratio)].sum()))

    def _store(self, nest: Nest) -> float:
        reduced = self.contraction.reduced
        seen = nest.seen(self.contraction.output)
        tiles = math.prod(s.p_tile for s in self.statistics)
        entries = math.prod(s.density_in_tile for s in self.statistics)
        merged = math.prod(self._merged(v, nest.tiles[v]) for v in reduced)
        for v in reduced:
            entries *= nest.tiles[v]
        entries /= merged
        stays = [v for v in reduced if v not in seen]
        for v in stays:  # one partial result for all tiles of v
            entries, tiles = entries * tiles * self._grid(v, nest), 1.0
        places = {*self.contraction.output, *(v for v in reduced if v in seen)}
        return math.prod(self._grid(v, nest) for v in places) * tiles * self._words(nest, min(1.0, entries))

    def _words(self, nest: Nest, density: float) -> float:
        """Words of an output tile: values and coordinates of its entries, and of the rows that hold any."""
        order = nest.of(self.contraction.output)
        total, below = 0.0, 1.0
        for level in range(len(order), 0, -1):
            above = math.prod(nest.tiles[v] for v in order[:level])
            total += 2 * above * min(1.0, below * density)
            below *= nest.tiles[order[level - 1]]
        return total

    def _merged(self, v: str, extent: int) -> float:
        """The sum of Corrs of the second operand that is summed over `v`."""
        holder = max(k for k, vs in enumerate(self.variables) if v in vs)
        corrs = self.statistics[holder].corrs[self.variables[holder].index(v)]
        return max(1.0, float(corrs[: extent + 1].sum()))
