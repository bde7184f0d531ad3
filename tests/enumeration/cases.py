"""Every kernel over one or two operands, counted once, and any one of them by its number.

A kernel is `out[o] op= f(A[a], B[b])`: index words a and b of 0 to 3 letters over at most three variables (a letter may repeat:
diagonals), o any sequence of distinct variables (some of which no operand may have: broadcasts), f one of OPERATORS, and, when a
variable is reduced, op one of REDUCTIONS; every operand and the output in every format over ENUMERATED.

What is counted once (`canonical`):
    names       words that differ by the names of variables are one case
    operands    swapped operands of a commutative f are one case
    mode order  what iterates is the index of each storage level, so words are spelled in storage order: `A[j,i]` stored by
                its second dimension first and `A[i,j]` stored row-major are one case. How dimensions are numbered is drawn per
                block, the workspace policy per case.
    runs of one a coordinate level without another beside it has the buffers and the code of a compressed level (a test shows it)

Cases are sorted by the total number of dimensions; a case is found in O(log) time from its number.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sparsejax.formats import Coordinate, Format, Level
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import cin, operators, policies
from tests.fuzz import definitions
from tests.fuzz.levels import ENUMERATED

OPERATORS = ("add", "multiply", "maximum", "subtract")
REDUCTIONS = ("add", "maximum")
LETTERS = "ijk"
RANK = 3
VARIANTS = 4
"""Sets of values that the cases of a block share, so that what they need is computed once."""
DTYPE = np.dtype("f8")

Word = tuple[int, ...]
Words = tuple[Word, ...]
"""The index words of the operands and, last, of the output."""


def canonical(words: Sequence[Sequence[object]]) -> Words:
    """`words` with variables numbered in order of appearance.

    >>> canonical(["kj", "ji", "ki"])
    ((0, 1), (1, 2), (0, 2))
    """
    numbers: dict[object, int] = {}
    return tuple(tuple(numbers.setdefault(letter, len(numbers)) for letter in word) for word in words)


@functools.cache
def levels_of(ndim: int) -> tuple[tuple[Level, ...], ...]:
    """Every sequence of `ndim` levels, but those with a run of one coordinate level.

    >>> [len(levels_of(n)) for n in range(4)]
    [1, 2, 5, 13]
    """
    return tuple(seq for seq in itertools.product(ENUMERATED, repeat=ndim) if not _lone_coordinate(seq))


def _lone_coordinate(levels: Sequence[Level]) -> bool:
    def is_coordinate(k: int) -> bool:
        return 0 <= k < len(levels) and isinstance(levels[k], Coordinate)

    return any(is_coordinate(k) and not is_coordinate(k - 1) and not is_coordinate(k + 1) for k in range(len(levels)))


@dataclass(frozen=True)
class Block:
    """The cases with these words and operators: one per combination of formats."""

    words: Words
    operator: str | None
    reduction: str | None

    @property
    def mirrored(self) -> bool:
        """Whether swapping the operands gives the same block, so that only the unordered pair of formats counts."""
        if self.operator is None or not operators.get(self.operator).commutative:
            return False
        first, second, out = self.words
        return canonical((second, first, out)) == self.words

    @property
    def diagonal(self) -> bool:
        """Whether an operand repeats a variable."""
        return any(len(set(word)) < len(word) for word in self.words)

    @property
    def size(self) -> int:
        sizes = [len(levels_of(len(w))) for w in self.words]
        if self.mirrored:
            return sizes[0] * (sizes[0] + 1) // 2 * sizes[2]
        return int(np.prod(sizes))

    def formats(self, n: int) -> tuple[tuple[Level, ...], ...]:
        """The levels of every operand and the output in case `n` of this block."""
        lists = [levels_of(len(w)) for w in self.words]
        n, last = divmod(n, len(lists[-1]))
        if self.mirrored:
            row = int((np.sqrt(8 * n + 1) - 1) / 2)
            picked = [n - row * (row + 1) // 2, row]
        else:
            picked = []
            for formats in reversed(lists[:-1]):
                n, digit = divmod(n, len(formats))
                picked.insert(0, digit)
        return tuple(formats[k] for formats, k in zip(lists, (*picked, last), strict=True))


def _words() -> Iterator[str]:
    for length in range(RANK + 1):
        yield from map("".join, itertools.product(LETTERS, repeat=length))


def _outputs() -> list[str]:
    return ["".join(p) for n in range(RANK + 1) for p in itertools.permutations(LETTERS, n)]


@functools.cache
def blocks() -> tuple[Block, ...]:
    """All blocks, those with few dimensions first."""
    single = {canonical((a, out)) for a in _words() for out in _outputs()}
    double = {canonical((a, b, out)) for a in _words() for b in _words() for out in _outputs()}
    found = []
    for words in single:
        found += [Block(words, None, op) for op in _reductions(words)]
    for words in double:
        first, second, out = words
        for name in OPERATORS:
            if operators.get(name).commutative and canonical((second, first, out)) < words:
                continue
            found += [Block(words, name, op) for op in _reductions(words)]
    return tuple(sorted(found, key=lambda b: (sum(map(len, b.words)), b.words, str(b.operator), str(b.reduction))))


def _reductions(words: Words) -> tuple[str | None, ...]:
    *operands, out = words
    return REDUCTIONS if any(set(w) - set(out) for w in operands) else (None,)


@functools.cache
def _starts() -> tuple[int, ...]:
    return tuple(itertools.accumulate((b.size for b in blocks()), initial=0))


def count() -> int:
    """How many cases there are."""
    return _starts()[-1]


def smaller_than(dimensions: int) -> int:
    """How many cases have fewer dimensions in total than `dimensions`; they come first."""
    sizes = [sum(map(len, b.words)) for b in blocks()]
    return _starts()[bisect.bisect_left(sizes, dimensions)]


def block_of(n: int) -> tuple[int, int]:
    """The number of the block of case `n`, and the number of the case in it."""
    if not 0 <= n < count():
        raise IndexError(f"case {n} is not one of the {count()} cases")
    k = bisect.bisect_right(_starts(), n) - 1
    return k, n - _starts()[k]


def numbers(diagonals: str) -> Iterator[range]:
    """The cases of every block in turn: of all ("with"), of those where no operand repeats a variable ("without"), or "only" of
    those where one does."""
    for k, block in enumerate(blocks()):
        if diagonals == "with" or block.diagonal == (diagonals == "only"):
            yield range(_starts()[k], _starts()[k + 1])


def case(n: int) -> definitions.Case:
    """Case `n`, with small random operands."""
    k, place = block_of(n)
    return build(blocks()[k], blocks()[k].formats(place), n)


@dataclass(frozen=True)
class Drawn:
    """What the cases of a block share: a numbering of the dimensions of every word, and extents with the values and densities of all
    operands in a few variants. A case draws one variant."""

    block: Block
    variant: int

    @functools.cached_property
    def extents(self) -> dict[cin.IndexVar, int]:
        rng = random.Random(f"{self.block}, extents {self.variant}")
        return dict(zip((cin.IndexVar(c) for c in LETTERS), rng.sample((2, 3, 4), RANK), strict=True))

    def placed(self, number: int, levels: Sequence[Level]) -> tuple[Format, tuple[cin.IndexVar, ...], tuple[int, ...]]:
        """A format of `levels` for the word of this number, the index of every dimension, and the shape."""
        word = [cin.IndexVar(LETTERS[k]) for k in self.block.words[number]]
        order = random.Random(f"{self.block}, order {number}").sample(range(len(word)), len(word))
        indices = tuple(word[order.index(d)] for d in range(len(word)))
        return Format(levels, order), indices, tuple(self.extents[v] for v in indices)


@functools.lru_cache(16)
def drawn(block: Block, variant: int) -> Drawn:
    return Drawn(block, variant)


@functools.lru_cache(1024)
def operand(made: Drawn, number: int, levels: tuple[Level, ...]) -> tuple[cin.Access, Storage, np.ndarray]:
    """Operand `number` in a format: how it is read, how it is stored, its dense values."""
    form, indices, shape = made.placed(number, levels)
    rng = random.Random(f"{made.block}, values {made.variant} {number}")
    storage, dense = definitions.stored(rng, shape, DTYPE, form, 0, rng.choice((0.3, 0.6)))
    return cin.Access(cin.Tensor(f"X{number}", shape, DTYPE, form, DTYPE.type(0)), indices), storage, dense


def build(block: Block, formats: Sequence[Sequence[Level]], seed: int) -> definitions.Case:
    """A block in these formats; `seed` draws one variant of its operands, and the workspace policy."""
    rng = random.Random(seed)
    made = drawn(block, rng.randrange(VARIANTS))
    arrays, storages, accesses = {}, {}, []
    for number, levels in enumerate(formats[:-1]):
        access, storage, dense = operand(made, number, tuple(levels))
        name = access.tensor.name
        storages[name], arrays[name] = storage, dense
        accesses.append(access)
    rhs = accesses[0] if block.operator is None else cin.Call(block.operator, tuple(accesses), DTYPE)
    form, indices, shape = made.placed(len(formats) - 1, formats[-1])
    definition = cin.Definition(indices, block.reduction, rhs)
    output = definitions.output_of(definition, shape, DTYPE, form)
    used = {v: n for v, n in made.extents.items() if v in (*indices, *cin.variables(rhs))}
    workspace = rng.choice(("auto", *policies.SPARSE))
    return definitions.Case(seed, definition, output, arrays, storages, used, None, workspace)
