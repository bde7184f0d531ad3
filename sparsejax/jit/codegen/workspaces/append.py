"""Append: entries that come in order, each once: a part of a sparse result that is kept for a few loops (`placement`).

    keys[n], vals[n .. n + 1] = key, block         a block of values per key, of one where no dense levels follow

Nothing is sorted or looked up. The lists keep their memory between uses, so that it is that of the longest part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen import emit
from sparsejax.jit.codegen.kernel_memory import fill, free, null, resize
from sparsejax.jit.codegen.workspaces.protocol import Workspace
from sparsejax.jit.ir import cin

FIRST = 64  # keys that there is room for at first


class Append(Workspace):
    """See `protocol`; `place` is where the block of a key begins, which counts once it is written to."""

    blocks: ClassVar[bool] = True

    def __init__(self, b: Builder, tensor: cin.Tensor, extents: Sequence[Val], op: str | None) -> None:
        super().__init__(b, tensor, extents, op)
        name = tensor.name
        self._keys = tuple(b.var(f"{name}_keys", null(b)) for _ in range(self.packing.words))
        self._vals, self._room = b.var(f"{name}_vals", null(b)), b.var(f"{name}_room", b.i64(0))
        self._block = b.i64(1)
        for extent in extents[self.keys :]:
            self._block = b.mul(extent, self._block)
        self._identity = emit.constant(b, tensor.fill_value, tensor.dtype)
        self._next = b.var(f"{name}_next", b.i64(0))

    def free(self, b: Builder) -> None:
        for pointer in (*self._keys, self._vals):
            free(b, b.get(pointer))

    def extend(self, b: Builder, count: Val) -> Val:
        """Make room for `count` more keys; the position of the first."""
        first = b.named("first", b.get(self.count))
        needed = b.named("needed", b.add(first, count))
        with b.if_(b.lt(b.get(self._room), needed)):
            grown = b.named("grown", b.max(b.mul(b.get(self._room), 2), b.max(needed, b.i64(FIRST))))
            for keys in self._keys:
                resize(b, keys, grown, 8)
            resize(b, self._vals, b.mul(grown, self._block), self.tensor.dtype.itemsize)
            b.set(self._room, grown)
        b.set(self._next, needed)
        return first

    def put_key(self, b: Builder, position: Val, coordinates: Sequence[Val]) -> None:
        """Write the key at a position that there is room for."""
        for pointer, word in zip(self._keys, self.packing.pack(b, coordinates), strict=True):
            b.store(b.get(pointer), position, word)

    def commit(self, b: Builder) -> None:
        """The keys that `extend` made room for are there."""
        b.set(self.count, b.get(self._next))

    def vals(self, b: Builder) -> Val:
        """Where values are."""
        return b.get(self._vals)

    def insert(self, b: Builder, coordinates: Sequence[Val], value: emit.Num) -> None:
        at = self.extend(b, b.i64(1))
        self.put_key(b, at, coordinates)
        emit.store(b, self.vals(b), at, value)
        self.commit(b)

    def place(self, b: Builder, coordinates: Sequence[Val]) -> Val:
        at = self.extend(b, b.i64(1))
        self.put_key(b, at, coordinates)
        first = b.mul(at, self._block)
        fill(b, self.vals(b), first, b.add(first, self._block), self._identity)
        return at

    def update(self, b: Builder, keys: Sequence[Val], position: Val, value: emit.Num, lanes: int = 1) -> None:
        if self.op is not None:
            value = emit.apply(b, self.op, [self.leaf(b, position, lanes), value], self.tensor.dtype)
        emit.store(b, self.vals(b), position, value)
        self.commit(b)

    def drain(self, b: Builder) -> None:
        """It is in order."""

    def reset(self, b: Builder) -> None:
        b.set(self.count, b.i64(0))

    def coordinate(self, b: Builder, level: int, position: Val) -> Val:
        word = b.load(b.get(self._keys[self.packing.fields[level].word]), position, "i64", "key")
        return b.named("j", self.packing.coordinate(b, word, level))

    def leaf(self, b: Builder, position: Val, lanes: int = 1) -> emit.Num:
        return emit.load(b, self.vals(b), position, self.tensor.dtype, lanes, self.tensor.name)
