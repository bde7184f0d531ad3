"""Bitmap: a dense array of values, a byte for each that tells whether it was written, and a list of those that were.

    insert    vals[k] op= v;  list[n] = k;  n += mark[k] == 0;  mark[k] = 1          no branch, and no word that many keys share
    drain     the list is sorted, in one of three ways, by the number of keys and the extent:
                few         every key is compared with all others, in lanes: it goes to the place that so many are below it
                many        all marks are walked, 64 at once: a comparison makes them a word, whose bits are counted off
                between     every key marks its block of 64 and its group of 64 blocks; the marks of groups, of marked groups' blocks
                            and of marked blocks are walked in the same way

so that results come out sorted, and hardly a branch depends on the data. Draining costs time proportional to the entries (plus
size / 2^18) and resets exactly what was used. Several variables share one array whose inner extents are rounded up to powers of two (the
packed key is the index). With dense levels below, the array holds a block of values per key. Source: counting off set bits several at
once as in Langdale, Lemire, "Parsing gigabytes of JSON per second" (2019), section 3.2.1.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import ClassVar

from sparsejax.formats.levels.walk import Place, Segment
from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.backend.types import vector_of
from sparsejax.jit.codegen import emit
from sparsejax.jit.codegen.kernel_memory import Keeper, allocate, fill, free, moved
from sparsejax.jit.codegen.workspaces.protocol import Workspace
from sparsejax.jit.cost.workspace_price import FEW, LANES, MANY, RANKED
from sparsejax.jit.ir import cin

WORD = 6  # log2 of LANES
TOGETHER = 4
"""Words of marks that are looked at before one is counted off: all are empty where few keys were inserted, as in rounds of a long loop, and hardly ever where
keys are many, so that the branch is foreseen."""


class Bitmap(Workspace):
    """See `protocol`; the key must fit one word."""

    blocks: ClassVar[bool] = True

    def __init__(
        self,
        b: Builder,
        tensor: cin.Tensor,
        extents: Sequence[Val],
        op: str | None,
        only: cin.Literal | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        """All entries are `only`, if that is given: then there are no values. Its memory is the `keeper`'s, where there is one."""
        super().__init__(b, tensor, extents, op)
        self._keeper = keeper
        self._only = None if only is None else emit.constant(b, only.value, only.dtype)
        shift = self.packing.fields[0].shift
        size = extents[0] if shift is None else b.named("size", b.binary("shl", extents[0], shift))
        self._block = b.i64(1)
        for extent in extents[self.keys :]:
            self._block = b.mul(extent, self._block)
        self._owned: list[Var] = []
        self._narrow = self.keys == 1 and tensor.shape[0] <= 2**31 - 1
        self._identity = emit.constant(b, tensor.fill_value, tensor.dtype)
        if self._only is None:
            whole = b.mul(size, self._block)
            blank = (lambda vals: fill(b, vals, b.i64(0), whole, self._identity)) if tensor.fill_value != 0 else None
            (self._vals,) = self._allocate(b, [whole], tensor.dtype.itemsize, True, blank)
        self._size = size
        blocks = b.named("blocks", b.binary("lshr", b.add(size, LANES - 1), b.i64(WORD)))
        self._groups = b.named("groups", b.binary("lshr", b.add(blocks, LANES - 1), b.i64(WORD)))
        self._marks, self._block_marks, self._group_marks = self._allocate(
            b, [b.add(size, TOGETHER * LANES), blocks, self._groups], 1
        )
        key, some = 4 if self._narrow else 8, b.i64(RANKED)
        self._list, self._found, self._keys, self._ranks = self._allocate(b, [size, blocks, some, some], key, False)

    def _allocate(
        self,
        b: Builder,
        counts: Sequence[Val],
        size: int,
        zero: bool = True,
        prepare: Callable[[Val], None] | None = None,
    ) -> list[Val]:
        """One block for several lists, each followed by room for a vector, so that vectors in it are as they are in memory."""
        ends = list(itertools.accumulate((b.and_(b.add(n, 2 * LANES - 1), b.i64(-LANES)) for n in counts), b.add))
        if self._keeper is not None:
            pointer = self._keeper.block(b, ends[-1], size, zero, prepare)
        else:
            pointer = allocate(b, ends[-1], size, zero)
            if prepare is not None:
                prepare(pointer)
        self._owned.append(b.var(f"{self.tensor.name}_own", pointer))
        return [pointer, *(moved(b, pointer, b.mul(end, size)) for end in ends[:-1])]

    def free(self, b: Builder) -> None:
        for pointer in self._owned:
            if self._keeper is None:
                free(b, b.get(pointer))
            else:
                self._keeper.free(b, b.get(pointer))

    def insert(self, b: Builder, coordinates: Sequence[Val], value: emit.Num) -> None:
        (index,) = self.packing.pack(b, coordinates)
        self._write(b, index, value, 1)
        self._mark(b, index)

    def insert_where(self, b: Builder, coordinates: Sequence[Val], value: emit.Num, test: Val) -> None:
        (index,) = self.packing.pack(b, coordinates)
        if self._only is None:
            old = emit.load(b, self._vals, index, self.tensor.dtype, 1, self.tensor.name)
            new = value if self.op is None else emit.apply(b, self.op, [old, value], self.tensor.dtype)
            emit.store(b, self._vals, index, emit.choose(b, test, new, old))
        self._mark_where(b, index, test)

    def _mark_where(self, b: Builder, index: Val, test: Val) -> None:
        """List a key that is new where `test` holds."""
        mark, asked = b.load(self._marks, index, "i8", "mark"), b.convert("zext", test, "i8")
        self._put_key(b, self._list, b.get(self.count), index)
        b.store(self._marks, index, b.binary("or", mark, asked))
        b.increment(self.count, b.convert("zext", b.lt(mark, asked), "i64"))

    def update(self, b: Builder, keys: Sequence[Val], position: Val, value: emit.Num, lanes: int = 1) -> None:
        (index,) = self.packing.pack(b, keys)
        self._write(b, position, value, lanes)
        self._mark(b, index)

    def _write(self, b: Builder, position: Val, value: emit.Num, lanes: int) -> None:
        if self._only is not None:
            return
        if self.op is not None:
            old = emit.load(b, self._vals, position, self.tensor.dtype, lanes, self.tensor.name)
            value = emit.apply(b, self.op, [old, value], self.tensor.dtype)
        emit.store(b, self._vals, position, value)

    def _mark(self, b: Builder, index: Val) -> None:
        """List a key that is new; one that is not is overwritten by the next."""
        mark = b.load(self._marks, index, "i8", "mark")
        self._put_key(b, self._list, b.get(self.count), index)
        b.store(self._marks, index, b.const("i8", 1))
        b.increment(self.count, b.convert("zext", b.eq(mark, b.const("i8", 0)), "i64"))

    def drain(self, b: Builder) -> None:
        count = b.get(self.count)
        many = b.compare("sle", self._size, b.mul(count, MANY))
        limit = b.select(many, b.i64(FEW), b.i64(RANKED))
        rest = partial(b.if_else, many, partial(self._walk_marks, b), partial(self._walk_groups, b))
        b.if_else(b.compare("sle", count, limit), partial(self._rank, b), rest)

    def _rank(self, b: Builder) -> None:
        """Every key goes to the place that so many are below it, unless they are in order."""
        count = b.get(self.count)
        before, disorder = b.var("before", b.i64(-1)), b.var("disorder", b.const("i1", 0))
        with b.for_(b.i64(0), count, "q") as q:
            key = self._key(b, q)
            self._put_key(b, self._keys, q, key)
            b.store(self._marks, key, b.const("i8", 0))
            b.set(disorder, b.binary("or", b.get(disorder), b.lt(key, b.get(before))))
            b.set(before, key)
        with b.if_(b.get(disorder)):
            self._compare_all(b, count)

    def _compare_all(self, b: Builder, count: Val) -> None:
        lanes, zero = 16 if self._narrow else 8, b.const(self._key_type, 0)
        vector = vector_of(self._key_type, lanes)
        with _vectors(b, count, lanes) as q:
            own, rank = b.load(self._keys, q, vector, "keys"), b.var("rank", b.splat(zero, lanes))
            with b.for_(b.i64(0), count, "r") as r:
                below = b.lt(b.splat(b.load(self._keys, r, self._key_type, "j"), lanes), own)
                b.increment(rank, b.convert("zext", below, vector))
            b.store(self._ranks, q, b.get(rank))
        with b.for_(b.i64(0), count, "q") as q:
            self._put_key(b, self._list, self._load_key(b, self._ranks, q), self._load_key(b, self._keys, q))

    def _walk_marks(self, b: Builder) -> None:
        b.set(self.count, b.i64(0))
        with _vectors(b, self._size, TOGETHER * LANES) as first:
            places = [b.add(first, n * LANES) for n in range(TOGETHER)]
            words = [self._look(b, self._marks, k) for k in places]
            with b.if_(b.ne(functools.reduce(functools.partial(b.binary, "or"), words), 0)):
                for k, bits in zip(places, words, strict=True):
                    b.store(self._marks, k, b.splat(b.const("i8", 0), LANES))
                    self._list_marked(b, bits, k)

    def _list_marked(self, b: Builder, bits: Val, first: Val) -> None:
        """Append the keys of the marks from `first` on that are entries; where there is no mark, `first` may be outside."""
        self._count_off(b, bits, first, self._list, self.count, 4)

    def _walk_groups(self, b: Builder) -> None:
        one = b.const("i8", 1)
        with b.for_(b.i64(0), b.get(self.count), "q") as q:
            block = b.named("block", b.binary("lshr", self._key(b, q), b.i64(WORD)))
            b.store(self._block_marks, block, one)
            b.store(self._group_marks, b.binary("lshr", block, b.i64(WORD)), one)
        found = b.var("found", b.i64(0))
        with _vectors(b, self._groups, LANES) as first:
            left = b.var("left", self._take(b, self._group_marks, first))
            with b.while_(lambda: b.ne(b.get(left), 0)):
                bits = b.get(left)
                group = b.add(first, _lowest(b, bits))
                block = b.named("block", b.binary("shl", group, b.i64(WORD)))
                self._count_off(b, self._take(b, self._block_marks, block), block, self._found, found, 8)
                b.set(left, b.and_(bits, b.sub(bits, 1)))
        b.set(self.count, b.i64(0))
        with b.for_(b.i64(0), b.get(found), "f") as f:
            key = b.named("first", b.binary("shl", self._load_key(b, self._found, f), b.i64(WORD)))
            self._count_off(b, self._take(b, self._marks, key), key, self._list, self.count, 2)

    def _look(self, b: Builder, marks: Val, first: Val) -> Val:
        """The marks from `first` on as bits of a word."""
        none = b.splat(b.const("i8", 0), LANES)
        set_ = b.ne(b.load(marks, first, vector_of("i8", LANES), "marks"), none)
        return b.named("bits", b.convert("bitcast", set_, "i64"))

    def _take(self, b: Builder, marks: Val, first: Val) -> Val:
        """The same; they are cleared."""
        bits = self._look(b, marks, first)
        b.store(marks, first, b.splat(b.const("i8", 0), LANES))
        return bits

    def _count_off(self, b: Builder, bits: Val, first: Val, target: Val, count: Var, at_once: int) -> None:
        """Append `first + k` to a list for every bit k. So many as there mostly are, are written whether they are there or not."""
        left, at, going = b.var("left", bits), b.var("at", b.get(count)), b.var("going", b.const("i1", 1))
        with b.while_(lambda: b.get(going)):
            here = b.get(left)
            for k in range(at_once):
                self._put_key(b, target, b.add(b.get(at), k), b.add(first, _lowest(b, here)))
                here = b.named("left", b.and_(here, b.sub(here, 1)))
            b.set(left, here)
            b.increment(at, at_once)
            b.set(going, b.ne(here, 0))
        b.increment(count, b.call("llvm.ctpop.i64", "i64", [bits]))

    def reset(self, b: Builder) -> None:
        """Put the identity back wherever something was written; draining has cleared the marks."""
        if self._only is None:
            with b.for_(b.i64(0), b.get(self.count), "q") as q:
                self._forget(b, self._key(b, q))
        b.set(self.count, b.i64(0))

    def _forget(self, b: Builder, index: Val) -> None:
        key = b.mul(index, self._block)
        if len(self.extents) == self.keys:
            emit.store(b, self._vals, key, self._identity)
        else:
            fill(b, self._vals, key, b.add(key, self._block), self._identity)

    @property
    def _key_type(self) -> str:
        return "i32" if self._narrow else "i64"

    def _put_key(self, b: Builder, target: Val, position: Val, index: Val) -> None:
        b.store(target, position, b.convert("trunc", index, self._key_type))

    def _load_key(self, b: Builder, source: Val, position: Val) -> Val:
        return b.convert("zext", b.load(source, position, self._key_type, "j"), "i64")

    def _key(self, b: Builder, position: Val) -> Val:
        return self._load_key(b, self._list, position)

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
        if self._only is not None:
            return emit.splat(b, self._only, lanes)
        return emit.load(b, self._vals, position, self.tensor.dtype, lanes, self.tensor.name)


class Scattered(Bitmap):
    """A fiber that is looked up: filled in order, never combined, never drained (`scatter_operands`)."""

    blocks: ClassVar[bool] = False

    def drain(self, b: Builder) -> None:
        """The list is in order already."""

    def _forget(self, b: Builder, index: Val) -> None:
        super()._forget(b, index)
        b.store(self._marks, index, b.const("i8", 0))

    def locate(self, b: Builder, level: int, place: Place, coordinate: Val) -> tuple[Val, Val] | None:
        mark = b.load(self._marks, coordinate, "i8", "mark")
        return coordinate, b.ne(mark, b.const("i8", 0))


@contextmanager
def _vectors(b: Builder, count: Val, lanes: int) -> Iterator[Val]:
    """A step for every `lanes` of `count` elements, a power of two; what it yields is the first of them."""
    shift = b.i64(lanes.bit_length() - 1)
    with b.for_(b.i64(0), b.named("vectors", b.binary("lshr", b.add(count, lanes - 1), shift)), "w") as number:
        yield b.named("first", b.binary("shl", number, shift))


def _lowest(b: Builder, bits: Val) -> Val:
    """The number of the lowest bit of a word; 64 where there is none."""
    return b.call("llvm.cttz.i64", "i64", [bits, b.const("i1", 0)])
