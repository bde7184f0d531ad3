"""Keys: the coordinates of an entry packed into as few 64-bit words as hold them, outermost first.

A word holds consecutive variables as bit fields, the first in the highest bits: `word = c0 << b1 | c1`, with b1 the bits
of the second extent. Words compare like coordinate tuples, so that sorting sorts by the output's storage order whatever
order the entries came in; unlike `c0 * n1 + c1` they come apart without divisions, at no more than one bit a variable.
Every word keeps its sign bit free: a negative word is no key. Extents whose bits do not fit share no word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.cost.workspace_price import words_of

Key = tuple[Val, ...]


@dataclass(frozen=True)
class Field:
    """Where a coordinate stands: `keys[word] >> shift & mask`; no shift in the lowest place, no mask in the highest."""

    word: int
    shift: Val | None
    mask: Val | None


@dataclass(frozen=True)
class Packing:
    """How coordinates become keys and keys coordinates again."""

    fields: tuple[Field, ...]
    bits: Val
    """The bits used in the first word."""

    @property
    def words(self) -> int:
        return self.fields[-1].word + 1

    def pack(self, b: Builder, coordinates: Sequence[Val]) -> Key:
        words: list[Val | None] = [None] * self.words
        for field, coordinate in zip(self.fields, coordinates, strict=True):
            moved = coordinate if field.shift is None else b.binary("shl", coordinate, field.shift)
            old = words[field.word]
            words[field.word] = moved if old is None else b.binary("or", old, moved)
        return tuple(b.named("key", w) for w in words if w is not None)

    def coordinate(self, b: Builder, word: Val, variable: int) -> Val:
        """The coordinate of `variable` in the word that holds it."""
        field = self.fields[variable]
        moved = word if field.shift is None else b.binary("lshr", word, field.shift)
        return moved if field.mask is None else b.and_(moved, field.mask)


def packing(b: Builder, shape: Sequence[int], extents: Sequence[Val]) -> Packing:
    """The packing for `shape`, whose values at run time are `extents`: code depends on the words alone."""
    placed = words_of(shape)
    fields: list[Field] = []
    below = b.i64(0)
    bits: list[Val] = []
    for variable in reversed(range(len(placed))):
        word = placed[variable]
        lowest = variable + 1 == len(placed) or placed[variable + 1] != word
        highest = variable == 0 or placed[variable - 1] != word
        top = b.sub(b.max(extents[variable], b.i64(1)), 1)
        width = b.named("bits", b.sub(b.i64(64), b.call("llvm.ctlz.i64", "i64", [top, b.const("i1", 0)])))
        mask = None if highest else b.named("mask", b.sub(b.binary("shl", b.i64(1), width), 1))
        fields.append(Field(word, None if lowest else below, mask))
        below = width if lowest else b.named("shift", b.add(below, width))
        bits.append(below)
    return Packing(tuple(reversed(fields)), bits[-1])


def same(b: Builder, x: Key, y: Key) -> Val:
    """Whether two keys are equal."""
    equal = b.eq(x[0], y[0])
    for p, q in zip(x[1:], y[1:], strict=True):
        equal = b.and_(equal, b.eq(p, q))
    return equal


def less(b: Builder, x: Key, y: Key) -> Val:
    """Whether key x comes before key y: the first word that differs decides."""
    below = b.lt(x[-1], y[-1])
    for p, q in zip(x[-2::-1], y[-2::-1], strict=True):
        below = b.select(b.eq(p, q), below, b.lt(p, q))
    return below
