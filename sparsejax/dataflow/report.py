"""What the analysis says: `Traffic` of given tiles, and a `Tiling` that was chosen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparsejax.core.array import Array
from sparsejax.dataflow import plots
from sparsejax.formats import Compressed, Format
from sparsejax.numpy.making import array

Tiles = dict[str, int]
SHOWN = 12


@dataclass(frozen=True)
class Level:
    """Words that move into one buffer and out of it: per operand, then of the output; and the fullest tile per operand."""

    tiles: Tiles
    buffer: int
    words: tuple[int, ...]
    largest: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.words)

    @property
    def fits(self) -> bool:
        return max(self.largest) <= self.buffer


@dataclass(frozen=True)
class Traffic:
    """Words that a contraction moves between main memory and a buffer (and between this one and those inside it).

    `words` has one number per operand, then that of the output; `largest` the words of the fullest tile per operand. These and
    `tiles`, `buffer` and `total` are those of the outermost buffer; `levels` holds those of all. `exact` tells whether words of the
    output were counted, or estimated from a sample of rows.
    """

    expression: str
    names: tuple[str, ...]
    order: tuple[str, ...]
    levels: tuple[Level, ...]
    exact: bool
    word: int = 4

    @property
    def tiles(self) -> Tiles:
        return dict(self.levels[0].tiles)

    @property
    def buffer(self) -> int:
        return self.levels[0].buffer

    @property
    def words(self) -> tuple[int, ...]:
        return self.levels[0].words

    @property
    def total(self) -> int:
        return self.levels[0].total

    @property
    def largest(self) -> tuple[int, ...]:
        return self.levels[0].largest

    @property
    def fits(self) -> bool:
        """Whether no tile of an operand has more words than its buffer, at any level."""
        return all(level.fits for level in self.levels)

    @property
    def nbytes(self) -> int:
        """`total` in bytes."""
        return self.total * self.word

    def __str__(self) -> str:
        how = "counted" if self.exact else "inputs counted, output estimated"
        lines = [
            f"traffic of {self.expression}, loops {','.join(self.order)} over tiles, in words of {self.word} bytes ({how})"
        ]
        for level in self.levels:
            fits = "fits" if level.fits else "does not fit"
            lines.append(f"  tiles {spelled(level.tiles)}, buffer {level.buffer:,} words: {fits}")
            head = ("", *self.names, "total")
            rows = [head, ("words", *(f"{n:,}" for n in level.words), f"{level.total:,}")]
            rows.append(("fullest tile", *(f"{n:,}" for n in level.largest), "", ""))
            lines += table(rows, "    ")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html(str(self))


@dataclass(frozen=True)
class Candidate:
    """Tiles that were looked at, and the words that they are expected to move."""

    tiles: Tiles
    total: float


@dataclass(frozen=True)
class Tiling:
    """Tile extents that a method chose: `tiles` of the outermost buffer (`predicted.levels` holds all), the traffic predicted for
    them, the candidates. `strict`, of the method tailors: the same where what overflows is fetched again at every use."""

    method: str
    predicted: Traffic
    candidates: tuple[Candidate, ...]
    operands: tuple[tuple[str, ...], ...] = field(repr=False)
    output: tuple[str, ...] = field(repr=False)
    extents: dict[str, int] = field(repr=False)
    strict: Traffic | None = None
    notes: tuple[str, ...] = ()

    @property
    def tiles(self) -> Tiles:
        return self.predicted.tiles

    def _operand(self, operand: int | str) -> tuple[str, ...]:
        names = self.predicted.names[:-1]
        if isinstance(operand, str) and operand in names:
            operand = names.index(operand)
        if isinstance(operand, bool | str) or not hasattr(operand, "__index__") or not 0 <= operand < len(names):
            raise ValueError(f"operand {operand!r} is none of {', '.join(names)} (0 to {len(names) - 1})")
        return self.operands[operand]

    def _checked(self, shape: Sequence[int], operand: int | str) -> tuple[str, ...]:
        """The variables of an operand, whose shape this is."""
        variables = self._operand(operand)
        if len(shape) != len(variables):
            raise ValueError(
                f"operand {operand} has the variables {','.join(variables)}, but the array has {len(shape)} dimensions"
            )
        if wrong := [v for v, n in zip(variables, shape, strict=True) if n != self.extents[v]]:
            wanted = " x ".join(str(self.extents[v]) for v in variables)
            raise ValueError(
                f"operand {operand}, of the variables {','.join(variables)}, is {wanted}, but the array is "
                f"{' x '.join(map(str, shape))}: they differ in {wrong[0]}; transpose it as the function does"
            )
        return variables

    def apply(self, A: Any, operand: int | str = 0) -> Array:
        """`A`, which stands for one operand, stored tile by tile: a blocked format whose outer levels are the tiles that hold entries,
        in the order of the loops, and whose inner levels are compressed. ValueError where its dimensions do not agree.

        >>> import numpy as np, scipy.sparse as sp, sparsejax as sj
        >>> A = sj.array(sp.random_array((300, 200), density=0.01, format="csr", rng=np.random.default_rng(0)))
        >>> tiling = sj.tile_sizes(lambda A: A @ A.T, buffer=200)(A)
        >>> tiled = tiling.apply(A)
        >>> tiled.format.blocks == (tiling.tiles["i"], tiling.tiles["k"]), tiled.nnz == A.nnz
        (True, True)
        """
        made = array(A)
        variables = self._checked(made.shape, operand)
        blocks = tuple(max(1, min(self.tiles[v], n)) for v, n in zip(variables, made.shape, strict=True))
        outer = [variables.index(v) for v in self.predicted.order if v in variables]
        order = (*outer, *(d for d in outer if blocks[d] > 1))
        tiled: Array = array(made, format=Format(tuple(Compressed() for _ in order), order, blocks))
        return tiled

    def slices(self, shape: Sequence[int], operand: int | str = 0) -> Iterator[tuple[slice, ...]]:
        """The tiles of an operand of that shape, empty ones too, as slices in the order of the loops. ValueError where the shape is not
        that of the operand.

        >>> import numpy as np, sparsejax as sj
        >>> A = sj.array(np.eye(3), format="csr")
        >>> tiling = sj.tile_sizes(lambda A: A @ A, buffer=15, method="conservative")(A)
        >>> next(tiling.slices(A.shape))
        (slice(0, 2, None), slice(0, 2, None))
        """
        variables = self._checked(shape, operand)
        return self._slices(shape, variables)

    def _slices(self, shape: Sequence[int], variables: tuple[str, ...]) -> Iterator[tuple[slice, ...]]:
        outer = [variables.index(v) for v in self.predicted.order if v in variables]
        cuts = [
            [slice(a, min(a + t, n)) for a in range(0, n, t)]
            for n, t in zip(shape, (self.tiles[v] for v in variables), strict=True)
        ]
        for at in itertools.product(*(cuts[d] for d in outer)):
            yield tuple(at[outer.index(d)] for d in range(len(variables)))

    def __str__(self) -> str:
        lines = [f"tiles {spelled(self.tiles)} by the method {self.method}", *(f"  {n}" for n in self.notes)]
        lines += [f"  {line}" for line in str(self.predicted).splitlines()]
        if self.strict is not None:
            lines.append(f"  where what overflows is fetched again at every use: {self.strict.total:,} words")
        best = sorted(self.candidates, key=lambda c: c.total)
        lines.append(f"  candidates ({len(best)}), by predicted words")
        lines += table([(spelled(c.tiles), f"{c.total:,.0f}") for c in best[:SHOWN]], "    ")
        if len(best) > SHOWN:
            lines.append(f"    and {len(best) - SHOWN} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html(str(self))

    def plot(self, ax: Any = None) -> Any:
        """Predicted words of the candidates by the extent of their tiles in the first variable of the result over that in the first one
        that is summed over, the chosen one marked. Needs matplotlib."""
        # drawn by `plots`, which imports matplotlib only when it is called
        return plots.candidates(self, ax)


def spelled(tiles: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{v}: {t}" for v, t in tiles.items()) + "}"


def table(rows: Sequence[Sequence[str]], indent: str) -> list[str]:
    """Rows of text as aligned lines: the first column to the left, the others to the right."""
    widths = [max(len(r[c]) for r in rows) for c in range(len(rows[0]))] if rows else []
    return [
        (
            indent
            + "  ".join(x.ljust(w) if c == 0 else x.rjust(w) for c, (x, w) in enumerate(zip(r, widths, strict=True)))
        ).rstrip()
        for r in rows
    ]


def html(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"<pre>{escaped}</pre>"
