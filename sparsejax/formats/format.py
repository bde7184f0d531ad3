"""Format: the storage levels of an array, outermost first, and the dimension each one stores.

A dimension in blocks of size b is stored by two levels: the outer one holds i // b (of ceil(n / b)), the inner one i % b (of b).

    bsr:2x3   levels  dense  compressed  dense  dense
              order     0        1         0      1        blocks (2, 3)
              holds   i // 2   j // 3    i % 2  j % 3

Where b does not divide n, the last block sticks out of the shape: positions there hold the fill and are no entries.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sparsejax import config
from sparsejax.cached import cached_property
from sparsejax.errors import FormatError
from sparsejax.formats import passes
from sparsejax.formats.levels.banded import Banded
from sparsejax.formats.levels.bitmap import Bitmap
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.coordinate import Coordinate
from sparsejax.formats.levels.dense import Dense
from sparsejax.formats.levels.diagonal import Diagonal
from sparsejax.formats.levels.ell import Ell
from sparsejax.formats.levels.grouped import Grouped
from sparsejax.formats.levels.hashed import Hash
from sparsejax.formats.levels.level import Level
from sparsejax.formats.levels.loose import LooseCompressed
from sparsejax.formats.levels.runlength import RunLength
from sparsejax.formats.levels.segments import Array

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
_PARAMETERS = {"bsr": "bsr:4x4", "groupcoo": "groupcoo:4", "blockgroupcoo": "blockgroupcoo:4x4:4"}
"""Names with numbers, by what stands before these: an example of each."""


@dataclass(frozen=True)
class Format:
    """Storage levels and mode order: `order[l]` is the dimension stored at level `l`; `blocks` has a block size per dimension,
    1 where it is not blocked.

    By default, the order is 0, 1, 2, …, then the blocked dimensions again. A level without parameters may be given as its class.
    Compared and hashed by value. FormatError for an order that does not hold every dimension once, blocked ones twice, and for
    a level where it makes no sense: duplicates or runs that are not last, diagonals that are outermost.

    >>> Format((Dense, Compressed), order=(1, 0))
    Format('csc')
    >>> Format((Dense, Compressed, Dense, Dense), order=(0, 1, 0, 1), blocks=(2, 3))
    Format('bsr:2x3')
    """

    levels: tuple[Level, ...]
    order: tuple[int, ...]
    blocks: tuple[int, ...]
    _hash: int = field(compare=False, repr=False, default=0)

    def __init__(
        self,
        levels: Sequence[Level | type[Level]],
        order: Sequence[int] | None = None,
        blocks: Sequence[int] | None = None,
    ) -> None:
        made = tuple(map(_instance, levels))
        _check_levels(made)
        sizes = _numbers(blocks, "blocks", "one block size per dimension, such as (2, 3)") or (1,) * len(made)
        if any(b < 1 for b in sizes):
            raise FormatError(f"blocks={sizes} must hold sizes of at least 1; 1 means that a dimension is not blocked")
        twice = [d for d, b in enumerate(sizes) if b > 1]
        if len(sizes) + len(twice) != len(made):
            raise FormatError(
                f"blocks={sizes} takes {len(sizes) + len(twice)} levels, one per dimension and one more where it is blocked, "
                f"but there are {len(made)}"
            )
        dims = _numbers(order, "order", "one dimension number per level, such as (1, 0)")
        dims = (*range(len(sizes)), *twice) if dims is None else dims
        if sorted(dims) != sorted((*range(len(sizes)), *twice)):
            if not twice:
                raise FormatError(f"order={dims} is not a permutation of the {len(made)} dimensions of this format")
            raise FormatError(f"order={dims} must hold each of {len(sizes)} dimensions once, and {twice} twice")
        object.__setattr__(self, "levels", made)
        object.__setattr__(self, "order", dims)
        object.__setattr__(self, "blocks", sizes)
        object.__setattr__(self, "_hash", hash((made, dims, sizes)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Format):
            return NotImplemented
        return (
            self._hash == other._hash
            and self.order == other.order
            and self.levels == other.levels
            and self.blocks == other.blocks
        )

    @property
    def ndim(self) -> int:
        """The number of dimensions: as many as levels, but for blocked ones."""
        return len(self.blocks)

    @cached_property
    def blocked(self) -> bool:
        """Whether some dimension is stored by two levels."""
        return len(self.blocks) < len(self.levels)

    @cached_property
    def sparse(self) -> tuple[int, ...]:
        """The levels that do not have all coordinates.

        >>> Format.parse("(d,c,d)", 3).sparse
        (1,)
        """
        return tuple(number for number, level in enumerate(self.levels) if not level.full)

    @cached_property
    def full(self) -> bool:
        """Whether every coordinate has a position: as `is_dense`, in blocks or not."""
        return not self.sparse

    @cached_property
    def is_dense(self) -> bool:
        """Whether every level is dense and none blocked: the values are an array as NumPy knows it."""
        return self.full and not self.blocked

    @cached_property
    def distinct(self) -> Format:
        """The format in which no coordinate repeats: compressed levels in place of those with repeats.

        >>> Format.parse("(d,n)", 2).distinct
        Format('csr')
        """
        if all(level.unique for level in self.levels):
            return self
        return Format([level if level.unique else Compressed() for level in self.levels], self.order, self.blocks)

    @cached_property
    def packed(self) -> bool:
        """Whether entry k is at position k, always: no position is unused, and none holds several entries (see `pads`)."""
        return all(level.compact and not level.shared for level in self.levels)

    @cached_property
    def alone(self) -> int:
        """The only sparse level, if entry k is at its position k and dense levels above it are not blocked; else -1."""
        (level, *others) = self.sparse or (0, 0)
        return level if not others and self.packed and not self.blocked else -1

    def pads(self, shape: Sequence[int]) -> bool:
        """Whether blocks stick out of an array of `shape`.

        >>> Format.parse("bsr:2x3", 2).pads((4, 7))
        True
        """
        return self.blocked and any(n % b for n, b in zip(shape, self.blocks, strict=True))

    def is_inner(self, level: int) -> bool:
        """Whether `level` holds the coordinates inside blocks."""
        return self.order[level] in self.order[:level]

    def level_extents(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The extent of every level for an array of `shape`.

        >>> Format.parse("bsr:2x3", 2).level_extents((4, 7))
        (2, 3, 2, 3)
        """
        if not self.blocked:
            return tuple(shape[d] for d in self.order)
        return tuple(
            self.blocks[d] if self.is_inner(level) else -(-shape[d] // self.blocks[d])
            for level, d in enumerate(self.order)
        )

    def split(self, columns: Sequence[Array]) -> list[Array]:
        """Coordinates per dimension as coordinates per level."""
        made = []
        for level, d in enumerate(self.order):
            b = self.blocks[d]
            made.append(columns[d] if b == 1 else columns[d] % b if self.is_inner(level) else columns[d] // b)
        return made

    def join(self, columns: Sequence[Array], shape: Sequence[int]) -> list[Array]:
        """Coordinates per level as coordinates per dimension; they must be inside `shape`."""
        made: dict[int, Array] = {}
        for column, d in zip(columns, self.order, strict=True):
            if d in made:
                b, n = self.blocks[d], shape[d]
                column = passes.over(len(column)).joined(made[d], column, b, n)
            made[d] = column
        return [made[d] for d in range(self.ndim)]

    def continues(self, level: int) -> bool:
        """Whether `level` continues a run of coordinate levels (and so shares the positions of the level above)."""
        return level > 0 and self.levels[level].chained and self.levels[level - 1].chained

    @cached_property
    def runs(self) -> list[tuple[int, int]]:
        """(first, stop) of the levels that are assembled together: a run of coordinate levels, or one level."""
        starts = [k for k in range(len(self.levels)) if not self.continues(k)]
        return list(itertools.pairwise([*starts, len(self.levels)]))

    def unwritten(self, shape: Sequence[int], itemsize: int) -> dict[int, str]:
        """The levels that kernels do not write in a result of values of `itemsize` bytes, each with the reason.

        Where a coordinate that is appended does not simply take the next position (`Level.settled`), a level is written as the last sparse one
        only; where it may have as many positions as coordinates (`Level.spread`), if they fit in a gibibyte, as conversions tell beforehand
        what they would take.

        >>> Format.parse("(h,b)", 2).unwritten((10, 20), 8)
        {0: 'positions move when a segment is complete, and levels below would have to follow'}
        """
        size = math.prod(map(int, self.level_extents(shape))) * itemsize
        found = {}
        for number, level in enumerate(self.levels):
            if level.unwritten:
                found[number] = level.unwritten
            elif level.settled:
                continue
            elif not all(below.full for below in self.levels[number + 1 :]):
                found[number] = "positions move when a segment is complete, and levels below would have to follow"
            elif level.spread and size > config.GIBIBYTE:
                found[number] = (
                    "it has as many positions as coordinates, and a conversion tells beforehand if these are too many"
                )
            elif self.pads(shape):
                found[number] = "blocks stick out of the shape"
        return found

    def as_written(self, shape: Sequence[int], itemsize: int) -> Format:
        """The format in which kernels write a result of this one: levels that they do not write are compressed ones.

        >>> Format.parse("(h,b)", 2).as_written((10, 20), 8)
        Format('(c,b)@(0,1)')
        """
        others = self.unwritten(shape, itemsize)
        if not others:
            return self
        levels = [Compressed() if number in others else level for number, level in enumerate(self.levels)]
        return Format(levels, self.order, self.blocks)

    def buffer_names(self, level: int) -> tuple[str, ...]:
        """The names of the buffers of `level`, such as ("pos", "crd"), ("crd",) or ()."""
        return self.levels[level].buffer_names(self.continues(level))

    def transposed(self, axes: Sequence[int]) -> Format:
        """The format of `array.transpose(axes)` over the same buffers.

        >>> Format.parse("csr", 2).transposed((1, 0))
        Format('csc')
        """
        return _transposed(self, tuple(axes))

    def unblocked(self) -> Format:
        """The nearest format without blocks: dimensions in the order of their outer levels, dense where both levels are, unless
        entries would be stored then that were not.

        >>> Format.parse("bsr:2x3", 2).unblocked()
        Format('csr')
        >>> Format.parse("(d,d,c)@(0,1,0)/(2,1)", 2).unblocked()
        Format('dcsr')
        """
        if not self.blocked:
            return self
        order = tuple(dict.fromkeys(self.order))
        levels: list[Level] = []
        for d in order:
            own = [level for level, of in zip(self.levels, self.order, strict=True) if of == d]
            same = len(own) == 1 or all(level.full for level in own)
            levels.append(own[0] if same else Compressed())
        cut = len(self.levels)
        while cut and self.levels[cut - 1].full:
            cut -= 1
        cut -= bool(cut) and self.levels[cut - 1].contiguous
        whole = set(self.order[cut:]).difference(self.order[:cut])  # of these, segments are stored without gaps
        for k in reversed(range(len(order))):
            if not (levels[k].full or levels[k].contiguous or levels[k].relative):
                break
            if order[k] not in whole or levels[k].relative:
                levels[k] = Compressed()
            if not levels[k].full:
                break
        return Format(levels, order)

    @staticmethod
    def parse(text: str | Format, ndim: int) -> Format:
        """The format called `text` for arrays of `ndim` dimensions.

        Names: dense, coo, csf (any number of dimensions), csr, csc, dcsr, dcsc, ell, dia, banded, bitmap, hash, rle, lil,
        bsr:2x3 (blocks of two rows and three columns), groupcoo:4 (groups of four), blockgroupcoo:2x3:4 (groups of four blocks), or
        spelled "(d,c,d)@(0,2,1)", with blocks "(d,c,d,d)@(0,1,0,1)/(2,3)": d dense, c compressed, n compressed with duplicates,
        q coordinate, l loose compressed, b bitmap, h hash, r run-length, s banded (skyline), o diagonal (offsets), e ELL,
        g4 groups of four.
        """
        if isinstance(text, Format):
            if text.ndim != ndim:
                raise FormatError(f"format {text} is for {text.ndim} dimensions, but the array has {ndim}")
            return text
        if not isinstance(text, str):
            raise FormatError(f"format={text!r} must be a name such as 'csr' or a formats.Format")
        return _parsed(text, ndim)

    def __str__(self) -> str:
        return _named(self)

    @property
    def _name(self) -> str:
        if self.blocked:
            columns = self.levels[1]
            if self.ndim == 2 and self == block_sparse(*self.blocks, level=columns):
                if isinstance(columns, Grouped):
                    return f"blockgroupcoo:{self.blocks[0]}x{self.blocks[1]}:{columns.g}"
                if columns == Compressed():
                    return f"bsr:{self.blocks[0]}x{self.blocks[1]}"
            return f"{self._spelling()}/({','.join(map(str, self.blocks))})"
        for name in ("dense", "coo", "csf"):
            if self == Format.parse(name, self.ndim) and not (name == "csf" and self.ndim == 2):
                return name
        if self.ndim == 2:
            for name in _NAMED:
                if self == Format.parse(name, 2):
                    return name
            if isinstance(columns := self.levels[1], Grouped) and self == block_sparse(1, 1, level=columns):
                return f"groupcoo:{columns.g}"
        return self._spelling()

    def _spelling(self) -> str:
        return f"({','.join(level.spelling for level in self.levels)})@({','.join(map(str, self.order))})"

    def __repr__(self) -> str:
        return f"Format({str(self)!r})"


@functools.lru_cache(maxsize=256)
def _named(form: Format) -> str:
    return form._name


@functools.lru_cache(maxsize=256)
def _parsed(text: str, ndim: int) -> Format:
    name = text.strip().lower()
    if name in ("dense", "coo", "csf"):
        return Format((_LETTERS[{"dense": "d", "coo": "q", "csf": "c"}[name]],) * ndim)
    head = name.partition(":")[0]
    if name in _NAMED or head in _PARAMETERS:
        if ndim != 2:
            raise FormatError(
                f"format {name!r} is for matrices, but the array has {ndim} dimensions; use 'csf' or 'coo'"
            )
        return (
            _parametrised(name)
            if name not in _NAMED
            else Format([_LETTERS[c] for c in _NAMED[name][0]], _NAMED[name][1])
        )
    if name.startswith("("):
        return Format.parse(_spelled(text, name), ndim)
    known = ", ".join(["dense", "coo", "csf", *_NAMED, *_PARAMETERS.values()])
    raise FormatError(f"unknown format {text!r}; known names are {known}, or spell it out as in '(d,c,d)@(0,2,1)'")


def block_sparse(rows: int, columns: int, *, level: Level = Compressed()) -> Format:  # noqa: B008  (a constant)
    """Rows of dense blocks: compressed (BSR), or those of another `level`.

    >>> block_sparse(1, 1)
    Format('csr')
    >>> block_sparse(2, 3, level=Grouped(4))
    Format('blockgroupcoo:2x3:4')
    """
    inside = [d for d, b in enumerate((rows, columns)) if b > 1]
    return Format([Dense(), level, *(Dense() for _ in inside)], (0, 1, *inside), (rows, columns))


def _check_levels(levels: Sequence[object]) -> None:
    """FormatError where a level makes no sense."""
    for k, level in enumerate(levels):
        if not isinstance(level, Level):
            raise FormatError(f"levels[{k}] is {level!r}; it must be a level such as Dense or Compressed()")
        if not level.unique and k + 1 < len(levels):
            raise FormatError(f"levels[{k}] is not unique; only the last level may hold duplicates")
        if level.shared and k + 1 < len(levels):
            raise FormatError(
                f"levels[{k}] is {level!r}, whose coordinates share positions; only the last level may do so"
            )
        if level.relative and k == 0:
            raise FormatError(
                f"levels[0] is {level!r}, whose coordinates depend on the level above; it cannot be the outermost level"
            )


def _numbers(given: Sequence[int] | None, what: str, wanted: str) -> tuple[int, ...] | None:
    try:
        return None if given is None else tuple(operator.index(n) for n in given)
    except TypeError:
        raise FormatError(f"{what}={given!r} must hold {wanted}") from None


def _instance(level: Level | type[Level]) -> Level:
    """A level, which may be given as its class where it has no parameters."""
    if level is Grouped:
        raise FormatError("a grouped level has a size: give Grouped(4), not Grouped")
    return level() if isinstance(level, type) and issubclass(level, Level) else level


def _parametrised(name: str) -> Format:
    """The format of a name with numbers."""
    head, _, _ = name.partition(":")
    example = _PARAMETERS[head]
    match = re.fullmatch(re.sub(r"\d+", r"(\\d{1,18})", example), name)
    if match is not None:
        numbers = [int(n) for n in match.groups()]
        if head == "bsr":
            return block_sparse(*numbers)
        *blocks, g = numbers
        return block_sparse(*blocks or (1, 1), level=Grouped(g))
    if head == "bsr":
        raise FormatError(f"format {name!r} must name the rows and columns of a block, as in {example!r}")
    raise FormatError(
        f"format {name!r} must name the slots of a group, as in {example!r}: types do not depend on data. "
        f"sparsejax.formats.group_size(A) says how many suit a matrix, and A.asformat({head!r}) takes as many outside of jit"
    )


def _spelled(text: str, name: str) -> Format:
    """The format spelled "(d,c,d,d)@(0,1,0,1)/(2,3)"; order and blocks may be left out."""
    rest, _, sizes = name.partition("/")
    head, _, tail = rest.partition("@")
    try:
        levels = [_level(c.strip()) for c in head.strip("() ").split(",") if c.strip()]
        dims, blocks = (
            [int(d) for d in part.strip("() ").split(",") if d.strip()] if part else None for part in (tail, sizes)
        )
    except (KeyError, ValueError) as error:
        raise FormatError(f"cannot read format {text!r}: {error} is not a level letter or dimension") from None
    return Format(levels, dims, blocks)


def _level(letter: str) -> Level:
    """The level that a letter stands for, a size behind it."""
    return Grouped(int(letter[1:])) if re.fullmatch(r"g\d+", letter) else _LETTERS[letter]


@functools.lru_cache(maxsize=1024)
def _transposed(form: Format, axes: tuple[int, ...]) -> Format:
    if sorted(axes) != list(range(form.ndim)):
        raise FormatError(f"axes={axes} is not a permutation of the {form.ndim} dimensions of format {form}")
    where = {old: new for new, old in enumerate(axes)}
    return Format(form.levels, tuple(where[d] for d in form.order), tuple(form.blocks[old] for old in axes))
