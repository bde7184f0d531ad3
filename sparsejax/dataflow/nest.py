"""Loops over tiles, and which of them decide how often an operand is fetched or a result is written.

    for i', k', j'          loops over tiles, `order`; iterations without an entry in every operand are skipped
      C[i',j'] += A[i',k'] B[k',j']

A tile is fetched in every iteration of the loops from the outermost to the last one over a variable of its operand (section 5.1 of the
D2T2 paper), and a tile of the result is written at the end of every iteration of these: with i,k,j partial results stream out for
every k', with i,j,k a result stays until it is complete. With two levels of buffers all loops over the tiles of the outer one run
around those over the tiles of the inner one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparsejax.dataflow.contraction import Contraction
from sparsejax.errors import ScheduleError


@dataclass(frozen=True)
class Nest:
    """One level of tiles: the loop order, extents per variable, and those of the level around it (None: none)."""

    order: tuple[str, ...]
    tiles: dict[str, int]
    outer: dict[str, int] | None = None

    def of(self, variables: Sequence[str]) -> tuple[str, ...]:
        """Variables in the order of the loops: the order in which an operand is stored."""
        return tuple(v for v in self.order if v in variables)

    def extents(self, variables: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.tiles[v] for v in variables)

    def seen(self, variables: Sequence[str]) -> dict[str, int]:
        """The variables that loops down to the last one over `variables` run over, with the extents of their finest tiles there; none
        for a scalar."""
        if not variables:
            return {}
        last = max(self.order.index(v) for v in variables)
        finest = dict(self.outer or {})
        finest.update({v: self.tiles[v] for v in self.order[: last + 1]})
        return finest


def parse_order(contraction: Contraction, order: str | Sequence[str] | None) -> tuple[str, ...]:
    """The loop order; ScheduleError names what is wrong with it."""
    if order is None:
        return contraction.default_order
    if isinstance(order, str):
        order = [x.strip() for x in order.split(",")] if "," in order else list(order.replace(" ", ""))
    if not isinstance(order, Sequence) or not all(isinstance(v, str) for v in order):
        raise TypeError(f'order is {order!r}; name the loops from the outside in, as in "ikj"')
    found = tuple(order)
    if sorted(found) != sorted(contraction.extents):
        raise ScheduleError(
            f"order names the loops {','.join(map(str, found))}, but {contraction} has {','.join(contraction.extents)}; "
            "name each of them once, from the outside in"
        )
    if len(contraction.inputs) == 3:
        (own,) = set(contraction.inputs[1]) - set(contraction.inputs[0])
        if found[-1] != own:
            raise ScheduleError(
                f"of three operands, orders with {own} innermost are analysed, not {','.join(found)}: the first operand stays "
                "while the others stream"
            )
    return found


def checked_tiles(tiles: Any, what: str) -> Mapping[str, int]:
    """`tiles`; TypeError for what is no mapping."""
    if not isinstance(tiles, Mapping):
        raise TypeError(
            f'{what} maps loop variables to extents, as in {{"i": 128}}, but is of type {type(tiles).__name__}'
        )
    return tiles


def parse_tiles(contraction: Contraction, tiles: Mapping[str, int], what: str = "tiles") -> dict[str, int]:
    """Extents per variable, clipped to the dimensions; a variable that is not named is not cut."""
    for name, extent in tiles.items():
        if name not in contraction.extents:
            raise ValueError(
                f"{what} names {name!r}, which is no loop variable of {contraction}: {','.join(contraction.extents)}"
            )
        if isinstance(extent, bool) or not hasattr(extent, "__index__"):
            raise TypeError(f"{what}[{name!r}] is {extent!r}; the extent of a tile is an integer")
        if extent < 1:
            raise ValueError(f"{what}[{name!r}] is {extent}; a tile has at least one coordinate")
    return {v: max(1, min(int(tiles.get(v, n)), n)) for v, n in contraction.extents.items()}


def check_nested(nests: Sequence[Nest], extents: Mapping[str, int]) -> None:
    """Tiles of an inner buffer divide those of the outer one, which a tile that is as long as the dimension need not."""
    for outer, inner in itertools.pairwise(nests):
        for v, n in extents.items():
            if outer.tiles[v] % inner.tiles[v] and outer.tiles[v] < n:
                raise ValueError(
                    f"inner tiles have extent {inner.tiles[v]} in {v}, which does not divide {outer.tiles[v]}, the extent of the outer ones"
                )


def iterations(contraction: Contraction, tiles: Mapping[str, int]) -> int:
    """How many tiles the whole iteration space has."""
    return math.prod(-(-n // tiles[v]) for v, n in contraction.extents.items())
