"""What an access reads or writes at run time: input tensors and the three workspaces.

Input      level buffers and values that the caller passed
Scalar     a register, with a mark that tells whether anything was written where that matters
DenseArea  an array over the workspace's variables, set to the identity at every `where`
Bitmap     a dense array of values with a bitmap of three levels of 64-bit words above it; inserting sets a bit,
           draining walks the bits in coordinate order, so that results come out sorted without sorting. Draining
           costs time proportional to the entries (plus extent / 2^18) and resets exactly what was used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsejax.formats.walk import Place, Segment
from sparsejax.jit import cin, emit, operators
from sparsejax.jit.builder import OUT_OF_MEMORY, Builder, Val, Var

WORD = 6  # log2 of the bits in a bitmap word


@dataclass(frozen=True)
class Buffer:
    """A level buffer: its address and the machine type of its elements."""

    pointer: Val
    type: str


@dataclass(frozen=True)
class Input:
    """An input tensor: extents by dimension, buffers by level and name, values."""

    tensor: cin.Tensor
    extents: tuple[Val, ...]
    buffers: tuple[dict[str, Buffer], ...]
    vals: Val

    def segment(self, b: Builder, level: int, place: Place) -> Segment:
        return self.tensor.format.levels[level].segment(b, self.buffers[level], place)

    def locate(self, b: Builder, level: int, place: Place, coordinate: Val) -> tuple[Val, Val] | None:
        return self.tensor.format.levels[level].locate(b, self.buffers[level], place, coordinate)

    def leaf(self, b: Builder, position: Val, lanes: int = 1) -> emit.Num:
        return emit.load(b, self.vals, position, self.tensor.dtype, lanes, self.tensor.name.lower())


class Scalar:
    """A scalar workspace. `mark` (when tracked) is true once something was written."""

    def __init__(self, b: Builder, tensor: cin.Tensor, tracked: bool) -> None:
        self.tensor = tensor
        start = emit.constant(b, tensor.fill_value, tensor.dtype)
        self._parts = [b.var(tensor.name, p) for p in start.parts]
        self.mark: Var | None = b.var(f"{tensor.name}_set", b.const("i1", 0)) if tracked else None

    def get(self, b: Builder) -> emit.Num:
        return emit.Num(self.tensor.dtype, tuple(b.get(v) for v in self._parts))

    def set(self, b: Builder, value: emit.Num) -> None:
        for var, part in zip(self._parts, value.parts, strict=True):
            b.set(var, part)
        if self.mark is not None:
            b.set(self.mark, b.const("i1", 1))


def allocate(b: Builder, count: Val, size: int, zero: bool = True) -> Val:
    """`count` elements of `size` bytes from the C heap; the kernel fails when there is no memory."""
    some = b.named("some", b.max(count, b.i64(1)))
    pointer = b.call("calloc", "ptr", [some, b.i64(size)]) if zero else b.call("malloc", "ptr", [b.mul(some, size)])
    with b.if_(b.eq(b.convert("ptrtoint", pointer, "i64"), 0)):
        b.fail(OUT_OF_MEMORY)
    return pointer


def clear(b: Builder, pointer: Val, lo: Val, hi: Val, size: int) -> None:
    """Zero the elements lo to hi of `size` bytes each."""
    address = b.add(b.convert("ptrtoint", pointer, "i64"), b.mul(lo, size))
    count = b.mul(b.sub(hi, lo), size)
    b.call("memset", "ptr", [b.convert("inttoptr", address, "ptr"), b.const("i32", 0), count])


def fill(b: Builder, pointer: Val, lo: Val, hi: Val, value: emit.Num) -> None:
    """`pointer[lo:hi] = value`."""
    if all(part == b.const(part.type, 0) for part in value.parts):
        clear(b, pointer, lo, hi, value.dtype.itemsize)
        return
    with b.for_(lo, hi, "z") as position:
        emit.store(b, pointer, position, value)


class DenseArea:
    """A dense workspace over `extents` (dimension order)."""

    def __init__(self, b: Builder, tensor: cin.Tensor, extents: Sequence[Val]) -> None:
        self.tensor = tensor
        self.extents = tuple(extents)
        self.size = b.i64(1)
        for extent in extents:
            self.size = b.mul(self.size, extent)
        self.vals = allocate(b, self.size, tensor.dtype.itemsize, zero=False)

    def clear(self, b: Builder) -> None:
        fill(b, self.vals, b.i64(0), self.size, emit.constant(b, self.tensor.fill_value, self.tensor.dtype))

    def leaf(self, b: Builder, position: Val, lanes: int = 1) -> emit.Num:
        return emit.load(b, self.vals, position, self.tensor.dtype, lanes, self.tensor.name)

    def pointers(self) -> list[Val]:
        return [self.vals]


class Bitmap:
    """A workspace over one variable that remembers which coordinates were written; reads like a compressed level."""

    def __init__(self, b: Builder, tensor: cin.Tensor, extents: Sequence[Val]) -> None:
        self.tensor = tensor
        self.extents = tuple(extents)
        extent = extents[0]
        self._crd_type = "i32" if tensor.shape[0] <= 2**31 - 1 else "i64"
        self.vals = allocate(b, extent, tensor.dtype.itemsize)
        self._identity = emit.constant(b, tensor.fill_value, tensor.dtype)
        if tensor.fill_value != 0:
            fill(b, self.vals, b.i64(0), extent, self._identity)
        self._words: list[Val] = []
        count = extent
        for _ in range(3):
            count = b.named("words", b.binary("lshr", b.add(count, (1 << WORD) - 1), b.i64(WORD)))
            self._words.append(allocate(b, count, 8))
        self._top = count
        self._list = allocate(b, extent, 4 if self._crd_type == "i32" else 8, zero=False)
        self._count = b.var(f"{tensor.name}_count", b.i64(0))

    def pointers(self) -> list[Val]:
        return [self.vals, *self._words, self._list]

    def insert(self, b: Builder, coordinate: Val, op: str | None, value: emit.Num) -> None:
        """`self[coordinate] op= value`."""
        if op is not None:
            old = emit.load(b, self.vals, coordinate, self.tensor.dtype, 1, self.tensor.name)
            value = emit.apply(b, op, [old, value], self.tensor.dtype)
        emit.store(b, self.vals, coordinate, value)
        self._mark(b, coordinate, 0)

    def _mark(self, b: Builder, index: Val, level: int) -> None:
        word_index = b.named("word_index", b.binary("lshr", index, b.i64(WORD)))
        bit = b.binary("shl", b.i64(1), b.and_(index, b.i64((1 << WORD) - 1)))
        word = b.load(self._words[level], word_index, "i64", "word")
        b.store(self._words[level], word_index, b.binary("or", word, bit))
        if level < 2:
            with b.if_(b.eq(word, 0)):
                self._mark(b, word_index, level + 1)

    def drain(self, b: Builder) -> None:
        """List the coordinates in order and clear the bitmap."""
        b.set(self._count, b.i64(0))
        with b.for_(b.i64(0), self._top, "top") as top:
            self._drain_word(b, top, 2)

    def _drain_word(self, b: Builder, word_index: Val, level: int) -> None:
        word = b.var("bits", b.load(self._words[level], word_index, "i64", "word"))
        with b.while_(lambda: b.ne(b.get(word), 0)):
            bits = b.get(word)
            lowest = b.call("llvm.cttz.i64", "i64", [bits, b.const("i1", 1)])
            index = b.named("index", b.add(b.binary("shl", word_index, b.i64(WORD)), lowest))
            if level:
                self._drain_word(b, index, level - 1)
            else:
                crd = index if self._crd_type == "i64" else b.convert("trunc", index, "i32")
                b.store(self._list, b.get(self._count), crd)
                b.increment(self._count)
            b.set(word, b.and_(bits, b.sub(bits, 1)))
        b.store(self._words[level], word_index, b.i64(0))

    def reset(self, b: Builder) -> None:
        """Put the identity back wherever something was written."""
        with b.for_(b.i64(0), b.get(self._count), "q") as q:
            emit.store(b, self.vals, self._coordinate(b, q), self._identity)

    def segment(self, b: Builder, level: int, place: Place) -> Segment:
        return Segment(b.i64(0), b.get(self._count), lambda q: self._coordinate(b, q), lambda q, coordinate: coordinate)

    def locate(self, b: Builder, level: int, place: Place, coordinate: Val) -> tuple[Val, Val] | None:
        return None

    def _coordinate(self, b: Builder, place: Val) -> Val:
        value = b.load(self._list, place, self._crd_type, "j")
        return value if self._crd_type == "i64" else b.convert("zext", value, "i64")

    def leaf(self, b: Builder, position: Val, lanes: int = 1) -> emit.Num:
        return emit.load(b, self.vals, position, self.tensor.dtype, lanes, self.tensor.name)


Operand = Input | DenseArea | Bitmap


def identity_of(op: str, tensor: cin.Tensor) -> object:
    """The identity of `op` in the tensor's dtype."""
    return operators.get(op).identity(tensor.dtype)
