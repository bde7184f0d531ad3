"""Bitmap: a dense array of values, a byte for each that tells whether it was written, and a list of those that were.

    insert    vals[k] op= v;  list[n] = k;  n += mark[k] == 0;  mark[k] = 1          no branch, and no word that many keys share
    drain     few of the positions written: the list goes into a bitmap of three levels of 64-bit words, whose bits are
              walked in order; many: the marks are walked

so that results come out sorted without sorting. Draining costs time proportional to the entries (plus size / 2^18) and
resets exactly what was used. Several variables share one array whose inner extents are rounded up to powers of two (the packed
key is the index). With dense levels below, the array holds a block of values per key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sparsejax.formats.walk import Place, Segment
from sparsejax.jit import cin, emit
from sparsejax.jit.builder import Builder, Val, Var
from sparsejax.jit.memory import allocate, fill
from sparsejax.jit.workspaces.protocol import Workspace

WORD = 6  # log2 of the bits in a bitmap word
MANY = 16  # a drain walks the marks when one in so many is set


class Bitmap(Workspace):
    """See `protocol`; the key must fit one word."""

    blocks: ClassVar[bool] = True

    def __init__(self, b: Builder, tensor: cin.Tensor, extents: Sequence[Val], op: str | None) -> None:
        super().__init__(b, tensor, extents, op)
        shift = self.packing.fields[0].shift
        size = extents[0] if shift is None else b.named("size", b.binary("shl", extents[0], shift))
        self._block = b.i64(1)
        for extent in extents[self.keys :]:
            self._block = b.mul(extent, self._block)
        self._owned: list[Var] = []
        self._narrow = self.keys == 1 and tensor.shape[0] <= 2**31 - 1
        self._vals = self._allocate(b, b.mul(size, self._block), tensor.dtype.itemsize)
        self._identity = emit.constant(b, tensor.fill_value, tensor.dtype)
        if tensor.fill_value != 0:
            fill(b, self._vals, b.i64(0), b.mul(size, self._block), self._identity)
        self._words: list[Val] = []
        count = size
        for _ in range(3):
            count = b.named("words", b.binary("lshr", b.add(count, (1 << WORD) - 1), b.i64(WORD)))
            self._words.append(self._allocate(b, count, 8))
        self._top = count
        self._size = size
        self._marks = self._allocate(b, size, 1)
        self._list = self._allocate(b, b.add(size, 1), 4 if self._narrow else 8, zero=False)

    def _allocate(self, b: Builder, count: Val, size: int, zero: bool = True) -> Val:
        pointer = allocate(b, count, size, zero)
        self._owned.append(b.var(f"{self.tensor.name}_own", pointer))
        return pointer

    def free(self, b: Builder) -> None:
        for pointer in self._owned:
            b.call("free", "void", [b.get(pointer)])

    def insert(self, b: Builder, coordinates: Sequence[Val], value: emit.Num) -> None:
        (index,) = self.packing.pack(b, coordinates)
        self._write(b, index, value, 1)
        self._mark(b, index)

    def update(self, b: Builder, keys: Sequence[Val], position: Val, value: emit.Num, lanes: int = 1) -> None:
        (index,) = self.packing.pack(b, keys)
        self._write(b, position, value, lanes)
        self._mark(b, index)

    def _write(self, b: Builder, position: Val, value: emit.Num, lanes: int) -> None:
        if self.op is not None:
            old = emit.load(b, self._vals, position, self.tensor.dtype, lanes, self.tensor.name)
            value = emit.apply(b, self.op, [old, value], self.tensor.dtype)
        emit.store(b, self._vals, position, value)

    def _mark(self, b: Builder, index: Val) -> None:
        """List a key that is new; one that is not is overwritten by the next."""
        mark = b.load(self._marks, index, "i8", "mark")
        self._put_key(b, b.get(self.count), index)
        b.store(self._marks, index, b.const("i8", 1))
        b.increment(self.count, b.convert("zext", b.eq(mark, b.const("i8", 0)), "i64"))

    def drain(self, b: Builder) -> None:
        many = b.compare("sle", self._size, b.mul(b.get(self.count), MANY))
        b.if_else(many, lambda: self._walk_marks(b), lambda: self._walk_bits(b))

    def _walk_marks(self, b: Builder) -> None:
        b.set(self.count, b.i64(0))
        with b.for_(b.i64(0), self._size, "k") as k:
            mark = b.load(self._marks, k, "i8", "mark")
            self._put_key(b, b.get(self.count), k)
            b.increment(self.count, b.convert("zext", mark, "i64"))

    def _walk_bits(self, b: Builder) -> None:
        with b.for_(b.i64(0), b.get(self.count), "q") as q:
            self._set_bit(b, self._key(b, q), 0)
        b.set(self.count, b.i64(0))
        with b.for_(b.i64(0), self._top, "top") as top:
            self._drain_word(b, top, 2)

    def _set_bit(self, b: Builder, index: Val, level: int) -> None:
        word_index = b.named("word_index", b.binary("lshr", index, b.i64(WORD)))
        bit = b.binary("shl", b.i64(1), b.and_(index, b.i64((1 << WORD) - 1)))
        word = b.load(self._words[level], word_index, "i64", "word")
        b.store(self._words[level], word_index, b.binary("or", word, bit))
        if level < 2:
            self._set_bit(b, word_index, level + 1)

    def _drain_word(self, b: Builder, word_index: Val, level: int) -> None:
        word = b.var("bits", b.load(self._words[level], word_index, "i64", "word"))
        with b.while_(lambda: b.ne(b.get(word), 0)):
            bits = b.get(word)
            lowest = b.call("llvm.cttz.i64", "i64", [bits, b.const("i1", 1)])
            index = b.named("index", b.add(b.binary("shl", word_index, b.i64(WORD)), lowest))
            if level:
                self._drain_word(b, index, level - 1)
            else:
                self._put_key(b, b.get(self.count), index)
                b.increment(self.count)
            b.set(word, b.and_(bits, b.sub(bits, 1)))
        b.store(self._words[level], word_index, b.i64(0))

    def reset(self, b: Builder) -> None:
        """Put the identity back wherever something was written."""
        with b.for_(b.i64(0), b.get(self.count), "q") as q:
            index = self._key(b, q)
            b.store(self._marks, index, b.const("i8", 0))
            key = b.mul(index, self._block)
            if len(self.extents) == self.keys:
                emit.store(b, self._vals, key, self._identity)
            else:
                fill(b, self._vals, key, b.add(key, self._block), self._identity)

        b.set(self.count, b.i64(0))

    def _put_key(self, b: Builder, position: Val, index: Val) -> None:
        b.store(self._list, position, b.convert("trunc", index, "i32") if self._narrow else index)

    def _key(self, b: Builder, position: Val) -> Val:
        value = b.load(self._list, position, "i32" if self._narrow else "i64", "j")
        return b.convert("zext", value, "i64") if self._narrow else value

    def coordinate(self, b: Builder, level: int, position: Val) -> Val:
        return b.named("j", self.packing.coordinate(b, self._key(b, position), level))

    def within(self, b: Builder, level: int, lo: Val, hi: Val) -> Segment:
        """See `protocol`; below the last key variable is the key, above the position in the list."""

        def child(position: Val, coordinate: Val) -> Val:
            if level + 1 < self.keys:
                return position
            return coordinate if self.keys == 1 else self._key(b, position)

        return Segment(lo, hi, lambda position: self.coordinate(b, level, position), child)

    def leaf(self, b: Builder, position: Val, lanes: int = 1) -> emit.Num:
        return emit.load(b, self._vals, position, self.tensor.dtype, lanes, self.tensor.name)


class Scattered(Bitmap):
    """A fiber that is looked up: filled in order, never combined, never drained (`scatter`)."""

    blocks: ClassVar[bool] = False

    def drain(self, b: Builder) -> None:
        """The list is in order already."""

    def locate(self, b: Builder, level: int, place: Place, coordinate: Val) -> tuple[Val, Val] | None:
        mark = b.load(self._marks, coordinate, "i8", "mark")
        return coordinate, b.ne(mark, b.const("i8", 0))
