"""Format: the storage levels of an array, outermost first, and the dimension each one stores."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

from sparsejax.errors import FormatError
from sparsejax.formats.banded import Banded
from sparsejax.formats.bitmap import Bitmap
from sparsejax.formats.compressed import Compressed
from sparsejax.formats.coordinate import Coordinate
from sparsejax.formats.dense import Dense
from sparsejax.formats.diagonal import Diagonal
from sparsejax.formats.ell import Ell
from sparsejax.formats.hashed import Hash
from sparsejax.formats.level import Level
from sparsejax.formats.loose import LooseCompressed
from sparsejax.formats.runlength import RunLength

_LETTERS: dict[str, Level] = {
    "d": Dense(),
    "c": Compressed(),
    "n": Compressed(unique=False),
    "q": Coordinate(),
    "l": LooseCompressed(),
    "b": Bitmap(),
    "h": Hash(),
    "r": RunLength(),
    "s": Banded(),
    "o": Diagonal(),
    "e": Ell(),
}
_NAMED = {
    "csr": ("dc", (0, 1)),
    "csc": ("dc", (1, 0)),
    "dcsr": ("cc", (0, 1)),
    "dcsc": ("cc", (1, 0)),
    "ell": ("de", (0, 1)),
    "dia": ("do", (0, 1)),
    "banded": ("ds", (0, 1)),
    "bitmap": ("db", (0, 1)),
    "hash": ("dh", (0, 1)),
    "rle": ("dr", (0, 1)),
    "lil": ("dl", (0, 1)),
}


@dataclass(frozen=True)
class Format:
    """Storage levels and mode order: `order[l]` is the dimension stored at level `l` (default: 0, 1, 2, …).

    A level without parameters may be given as its class. Compared and hashed by value. FormatError for an order that is no
    permutation, and for a level where it makes no sense: duplicates or runs that are not last, diagonals that are outermost.

    >>> Format((Dense, Compressed), order=(1, 0))
    Format('csc')
    """

    levels: tuple[Level, ...]
    order: tuple[int, ...]
    _hash: int = field(compare=False, repr=False, default=0)

    def __init__(self, levels: Sequence[Level | type[Level]], order: Sequence[int] | None = None) -> None:
        made = tuple(lv() if isinstance(lv, type) and issubclass(lv, Level) else lv for lv in levels)
        for k, level in enumerate(made):
            if not isinstance(level, Level):
                raise FormatError(f"levels[{k}] is {level!r}; it must be a level such as Dense or Compressed()")
            if not level.unique and k + 1 < len(made):
                raise FormatError(f"levels[{k}] is not unique; only the last level may hold duplicates")
            if level.shared and k + 1 < len(made):
                raise FormatError(
                    f"levels[{k}] is {level!r}, whose coordinates share positions; only the last level may do so"
                )
            if level.relative and k == 0:
                raise FormatError(
                    f"levels[0] is {level!r}, whose coordinates depend on the level above; it cannot be the outermost level"
                )
        try:
            dims = tuple(range(len(made))) if order is None else tuple(operator.index(d) for d in order)
        except TypeError:
            raise FormatError(f"order={order!r} must hold one dimension number per level, such as (1, 0)") from None
        if sorted(dims) != list(range(len(made))):
            raise FormatError(f"order={dims} is not a permutation of the {len(made)} dimensions of this format")
        object.__setattr__(self, "levels", made)
        object.__setattr__(self, "order", dims)
        object.__setattr__(self, "_hash", hash((made, dims)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Format):
            return NotImplemented
        return self._hash == other._hash and self.order == other.order and self.levels == other.levels

    @property
    def ndim(self) -> int:
        return len(self.levels)

    @property
    def is_dense(self) -> bool:
        """Whether every level is dense."""
        return all(isinstance(level, Dense) for level in self.levels)

    @property
    def packed(self) -> bool:
        """Whether entry k is at position k, always: no position is unused, and none holds several entries."""
        return all(level.compact and not level.shared for level in self.levels)

    def continues(self, level: int) -> bool:
        """Whether `level` continues a run of coordinate levels (and so shares the positions of the level above)."""
        return (
            level > 0 and isinstance(self.levels[level], Coordinate) and isinstance(self.levels[level - 1], Coordinate)
        )

    @property
    def runs(self) -> list[tuple[int, int]]:
        """(first, stop) of the levels that are assembled together: a run of coordinate levels, or one level."""
        starts = [k for k in range(self.ndim) if not self.continues(k)]
        return list(itertools.pairwise([*starts, self.ndim]))

    def buffer_names(self, level: int) -> tuple[str, ...]:
        """The names of the buffers of `level`, such as ("pos", "crd"), ("crd",) or ()."""
        return self.levels[level].buffer_names(self.continues(level))

    def transposed(self, axes: Sequence[int]) -> Format:
        """The format of `array.transpose(axes)` over the same buffers.

        >>> Format.parse("csr", 2).transposed((1, 0))
        Format('csc')
        """
        if sorted(axes) != list(range(self.ndim)):
            raise FormatError(f"axes={tuple(axes)} is not a permutation of the {self.ndim} dimensions of format {self}")
        where = {old: new for new, old in enumerate(axes)}
        return Format(self.levels, tuple(where[d] for d in self.order))

    @staticmethod
    def parse(text: str | Format, ndim: int) -> Format:
        """The format called `text` for arrays of `ndim` dimensions.

        Names: dense, coo, csf (any number of dimensions), csr, csc, dcsr, dcsc, ell, dia, banded, bitmap, hash, rle, lil, or
        spelled "(d,c,d)@(0,2,1)": d dense, c compressed, n compressed with duplicates, q coordinate, l loose compressed,
        b bitmap, h hash, r run-length, s banded (skyline), o diagonal (offsets), e ELL.
        """
        if isinstance(text, Format):
            if text.ndim != ndim:
                raise FormatError(f"format {text} has {text.ndim} levels, but the array has {ndim} dimensions")
            return text
        if not isinstance(text, str):
            raise FormatError(f"format={text!r} must be a name such as 'csr' or a formats.Format")
        name = text.strip().lower()
        if name in ("dense", "coo", "csf"):
            return Format((_LETTERS[{"dense": "d", "coo": "q", "csf": "c"}[name]],) * ndim)
        if name in _NAMED:
            if ndim != 2:
                raise FormatError(
                    f"format {name!r} is for matrices, but the array has {ndim} dimensions; use 'csf' or 'coo'"
                )
            letters, order = _NAMED[name]
            return Format([_LETTERS[c] for c in letters], order)
        if name.startswith("("):
            head, _, tail = name.partition("@")
            try:
                levels = [_LETTERS[c.strip()] for c in head.strip("() ").split(",") if c.strip()]
                dims = [int(d) for d in tail.strip("() ").split(",") if d.strip()] if tail else None
            except (KeyError, ValueError) as error:
                raise FormatError(f"cannot read format {text!r}: {error} is not a level letter or dimension") from None
            return Format.parse(Format(levels, dims), ndim)
        known = ", ".join(["dense", "coo", "csf", *_NAMED])
        raise FormatError(f"unknown format {text!r}; known names are {known}, or spell it out as in '(d,c,d)@(0,2,1)'")

    def __str__(self) -> str:
        for name in ("dense", "coo", "csf"):
            if self == Format.parse(name, self.ndim) and not (name == "csf" and self.ndim == 2):
                return name
        if self.ndim == 2:
            for name in _NAMED:
                if self == Format.parse(name, 2):
                    return name
        letters = ",".join("n" if not lv.unique else lv.letter for lv in self.levels)
        return f"({letters})@({','.join(map(str, self.order))})"

    def __repr__(self) -> str:
        return f"Format({str(self)!r})"
