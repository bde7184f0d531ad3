"""Traffic of one choice of tiles: inputs exactly, the result exactly or from a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sparsejax.dataflow import drawn, loads
from sparsejax.dataflow.contraction import Contraction
from sparsejax.dataflow.nest import Nest
from sparsejax.dataflow.outputs import ROUGH, WORK, Outputs
from sparsejax.dataflow.pattern import Tiles, fits, tiles_of

Key = tuple[int, tuple[int, ...]]


@dataclass
class Simulator:
    """One contraction under one loop order; tiles and counts are kept between shapes."""

    contraction: Contraction
    order: tuple[str, ...]
    drawn_work: int = drawn.WORK
    kept: int = 12
    _tiles: dict[Key, Tiles] = field(default_factory=dict, init=False)
    _outputs: Outputs | None = field(default=None, init=False)

    @property
    def outputs(self) -> Outputs:
        if self._outputs is None:
            self._outputs = Outputs(self.contraction, self.order, self.drawn_work)
        return self._outputs

    def tiles(self, operand: int, nest: Nest) -> Tiles:
        """The tiles of one operand, stored in the order of the loops."""
        variables = nest.of(self.contraction.inputs[operand])
        key = operand, nest.extents(variables)
        if key not in self._tiles:
            self.keep(*key, tiles_of(self.contraction.pattern(operand, variables), key[1]))
        return self._tiles[key]

    def keep(self, operand: int, extents: tuple[int, ...], tiles: Tiles) -> None:
        """Keep the tiles of these extents; the oldest ones go."""
        while len(self._tiles) >= self.kept:
            del self._tiles[next(iter(self._tiles))]
        self._tiles[operand, extents] = tiles

    def fits(self, operand: int, nest: Nest, buffer: int) -> bool:
        """Whether no tile of an operand has more words than the buffer."""
        variables = nest.of(self.contraction.inputs[operand])
        key = operand, nest.extents(variables)
        if key in self._tiles:
            return self._tiles[key].largest <= buffer
        return fits(self.contraction.pattern(operand, variables), key[1], buffer)

    def all_tiles(self, nest: Nest) -> list[Tiles]:
        return [self.tiles(k, nest) for k in range(len(self.contraction.inputs))]

    def largest(self, nest: Nest) -> tuple[int, ...]:
        """Words of the fullest tile of every operand."""
        return tuple(t.largest for t in self.all_tiles(nest))

    def input_words(self, nest: Nest) -> tuple[int, ...]:
        return loads.input_words(self.contraction, nest, self.all_tiles(nest))

    def words(self, nest: Nest, exact: bool, rough: bool = False) -> tuple[int, ...]:
        """Words that move, per operand, then of the output: exactly, from a sample, or from a small sample and bounds (`rough`)."""
        tiles = self.all_tiles(nest)
        found = [loads.loads(self.contraction, nest, tiles, k) for k in range(len(tiles))]
        moved = [int(n @ t.words) for n, t in zip(found, tiles, strict=True)]
        visited = int(max((n.sum() for n in found), default=0))
        out = self.outputs.words(nest, exact, ROUGH if rough else WORK, None if exact else visited)
        return (*moved, round(out))

    def strict_words(self, nest: Nest, buffer: int) -> Sequence[int]:
        """Words per operand where what a tile has beyond the buffer is fetched again whenever the tile is used."""
        tiles = self.all_tiles(nest)
        made = []
        for k, t in enumerate(tiles):
            once = loads.loads(self.contraction, nest, tiles, k)
            used = loads.loads(self.contraction, nest, tiles, k, every=True)
            beyond = (t.words - buffer).clip(0)
            made.append(int(once @ (t.words - beyond) + used @ beyond))
        return made
