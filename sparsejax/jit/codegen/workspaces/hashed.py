"""Hash: an open-addressing table of keys and values, linear probing, at most half full.

Occupied slots are listed in the order of insertion, so that draining and emptying the table cost what was inserted and
not its capacity, however large an earlier use has made it. Draining copies the entries out and sorts them by key.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparsejax.jit.backend.builder import OUT_OF_MEMORY, Builder, Val, Var
from sparsejax.jit.codegen import emit
from sparsejax.jit.codegen.kernel_memory import block, null, release
from sparsejax.jit.codegen.workspaces.keys import Key, same
from sparsejax.jit.codegen.workspaces.lists import Pointers
from sparsejax.jit.codegen.workspaces.protocol import Listed
from sparsejax.jit.ir import cin

FIRST = 8  # log2 of the slots of the first table
GOLDEN = -7046029254386353131  # 2^64 / golden ratio, as a signed number: Fibonacci hashing


class Hash(Listed):
    """See `protocol`."""

    def __init__(self, b: Builder, tensor: cin.Tensor, extents: Sequence[Val], op: str | None) -> None:
        super().__init__(b, tensor, extents, op)
        name = tensor.name
        self._table = self.entries.make(b, f"{name}_table")
        self._slots = b.var(f"{name}_slots", null(b))
        self._shift = b.var(f"{name}_shift", b.i64(64 - FIRST + 1))
        self._used = b.var(f"{name}_used", b.i64(0))
        self._limit = b.var(f"{name}_limit", b.i64(0))
        self._enlarge(b)

    def owned(self) -> list[Var]:
        return [*super().owned(), *self._table.keys, self._table.vals, self._slots]

    def insert(self, b: Builder, coordinates: Sequence[Val], value: emit.Num) -> None:
        entries, table = self.entries, self._table.at(b)
        key = self.packing.pack(b, coordinates)
        slot = self._find(b, table, key, b.get(self._shift))

        def fresh() -> None:
            entries.put(b, table, slot, key, value)
            used = b.get(self._used)
            b.store(b.get(self._slots), used, slot)
            b.set(self._used, b.named("used", b.add(used, 1)))
            with b.if_(b.eq(b.get(self._used), b.get(self._limit))):
                self._enlarge(b)

        def again() -> None:
            emit.store(b, table.vals, slot, entries.combine(b, entries.value(b, table, slot), value))

        b.if_else(b.lt(b.load(table.keys[0], slot, "i64", "key"), 0), fresh, again)

    def _find(self, b: Builder, table: Pointers, key: Key, shift: Val) -> Val:
        """The slot of `key`: where it is, or the free one where it belongs."""
        mixed: Val | None = None
        for word in key:
            mixed = word if mixed is None else b.binary("xor", b.binary("mul", mixed, b.i64(GOLDEN)), word)
            mixed = b.named("mixed", b.binary("xor", mixed, b.binary("lshr", mixed, b.i64(32))))
        assert mixed is not None
        slot = b.var("slot", b.binary("lshr", b.binary("mul", mixed, b.i64(GOLDEN)), shift))
        mask = b.named("mask", b.binary("lshr", b.i64(-1), shift))

        def taken() -> Val:
            there = self.entries.key(b, table, b.get(slot))
            other = b.binary("xor", same(b, there, key), b.const("i1", 1))
            return b.and_(other, b.compare("sge", there[0], b.i64(0)))

        with b.while_(taken):
            b.set(slot, b.and_(b.add(b.get(slot), 1), mask))
        return b.get(slot)

    def _enlarge(self, b: Builder) -> None:
        """Double the table: entries move in the order of their insertion."""
        state = [*self._table.state, self._slots, self._shift, self._limit]
        words, size = self.entries.words, self.tensor.dtype.itemsize
        b.routine(f"rehash_{words}_{size}", state, {"used": b.get(self._used)}, self._rehash)

    def _rehash(self, b: Builder, state: list[Var], args: list[Val]) -> None:
        entries, used = self.entries, args[0]
        table = entries.view(state)
        slots, shift, limit = state[-3:]
        grown = entries.make(b, "grown")
        room = b.named("room", b.binary("shl", b.i64(1), b.sub(b.i64(65), b.get(shift))))
        half = b.named("half", b.binary("lshr", room, b.i64(1)))
        listed = b.var("listed", null(b))
        # what is allocated here belongs to nobody until it replaces the old table: any failure frees it
        blocks = [
            *((k, room, 8) for k in grown.keys),
            (grown.vals, room, self.tensor.dtype.itemsize),
            (listed, half, 8),
        ]
        for pointer, count, size in blocks:
            b.set(pointer, block(b, null(b), b.mul(count, size)))
        complete = b.var("complete", b.const("i1", 1))
        for pointer, _, _ in blocks:
            there = b.ne(b.convert("ptrtoint", b.get(pointer), "i64"), 0)
            b.set(complete, b.and_(b.get(complete), there))
        with b.if_(b.eq(b.get(complete), b.const("i1", 0))):
            for pointer, _, _ in blocks:
                release(b, pointer)
            b.fail(OUT_OF_MEMORY)
        b.set(shift, b.sub(b.get(shift), 1))
        old, new = table.at(b), grown.at(b)
        b.call("memset", "ptr", [new.keys[0], b.const("i32", 255), b.mul(room, 8)])
        with b.for_(b.i64(0), used, "q") as q:
            at = b.load(b.get(slots), q, "i64", "slot")
            to = self._find(b, new, entries.key(b, old, at), b.get(shift))
            entries.move(b, old, at, new, to)
            b.store(b.get(listed), q, to)
        for pointer, fresh in ((slots, listed), *zip(table.keys, grown.keys, strict=True), (table.vals, grown.vals)):
            release(b, pointer)
            b.set(pointer, b.get(fresh))
        b.set(table.room, room)
        b.set(limit, half)

    def drain(self, b: Builder) -> None:
        used = b.get(self._used)
        b.set(self.count, used)
        self.entries.reserve(b, self.sorted, used, keep=False)
        table, out = self._table.at(b), self.sorted.at(b)
        with b.for_(b.i64(0), used, "q") as q:
            slot = b.load(b.get(self._slots), q, "i64", "slot")
            self.entries.move(b, table, slot, out, q)
            b.store(table.keys[0], slot, b.i64(-1))
        b.set(self._used, b.i64(0))
        self.entries.sort(b, self.sorted, self.spare, b.get(self.count))

    def reset(self, b: Builder) -> None:
        """Draining has emptied the table already."""
