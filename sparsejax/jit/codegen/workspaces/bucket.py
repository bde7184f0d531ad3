"""Bucket: one list per leading digit of the key, each with room of its own. Lists are in order already, so that only what is
inside each is sorted.

A full list is sorted and reduced before it grows, and grows only when more than half of it is left: memory follows the
distinct entries, not the insertions. A bitmap of the lists in use keeps draining few entries cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.codegen import emit
from sparsejax.jit.codegen.kernel_memory import allocate, free, resized
from sparsejax.jit.codegen.workspaces.lists import Lists, Pointers
from sparsejax.jit.codegen.workspaces.protocol import Listed
from sparsejax.jit.ir import cin

DIGIT = 8  # log2 of the number of lists
FIRST = 16  # entries that a list makes room for at first
WORD = 6  # log2 of the bits in a word of the bitmap


class Bucket(Listed):
    """See `protocol`.

    The table has one record per list, of 8-byte fields: the addresses of its arrays, its room and its count; behind the
    records, the bitmap.
    """

    def __init__(self, b: Builder, tensor: cin.Tensor, extents: Sequence[Val], op: str | None) -> None:
        super().__init__(b, tensor, extents, op)
        self._arrays = self.entries.words + 1
        self._fields = self._arrays + 2
        self._bitmap = self._fields << DIGIT
        size = b.i64(self._bitmap + (1 << DIGIT - WORD))
        self._table = b.var(f"{tensor.name}_buckets", allocate(b, size, 8))
        bits = self.packing.bits
        self._shift = b.named("shift", b.max(b.sub(bits, DIGIT), b.i64(0)))

    def free(self, b: Builder) -> None:
        super().free(b)
        table = b.get(self._table)
        with b.if_(b.ne(b.convert("ptrtoint", table, "i64"), 0)), b.for_(b.i64(0), b.i64(1 << DIGIT), "d") as d:
            record = b.mul(d, self._fields)
            for k in range(self._arrays):
                free(b, b.load(table, b.add(record, k), "ptr", "list"))
        free(b, table)

    def insert(self, b: Builder, coordinates: Sequence[Val], value: emit.Num) -> None:
        key = self.packing.pack(b, coordinates)
        digit = b.named("digit", b.binary("lshr", key[0], self._shift))
        record = b.named("record", b.mul(digit, self._fields))
        table = b.get(self._table)
        full = b.eq(b.load(table, b.add(record, self._arrays), "i64", "room"), self._count(b, table, record))
        with b.if_(full):
            args = {"table": table, "record": record}
            b.routine(f"widen_{self._tag}", self.spare.state, args, self._widen)
        count = self._count(b, table, record)
        with b.if_(b.eq(count, 0)):
            word = b.add(b.binary("lshr", digit, b.i64(WORD)), self._bitmap)
            bit = b.binary("shl", b.i64(1), b.and_(digit, b.i64((1 << WORD) - 1)))
            b.store(table, word, b.binary("or", b.load(table, word, "i64", "word"), bit))
        self.entries.put(b, self._list(b, table, record), count, key, value)
        b.store(table, b.add(record, self._arrays + 1), b.add(count, 1))

    @property
    def _tag(self) -> str:
        return f"{self.entries.words}_{self.tensor.dtype}_{self.op}"

    def _list(self, b: Builder, table: Val, record: Val) -> Pointers:
        return self.entries.pointers([b.load(table, b.add(record, k), "ptr", "list") for k in range(self._arrays)])

    def _count(self, b: Builder, table: Val, record: Val) -> Val:
        return b.load(table, b.add(record, self._arrays + 1), "i64", "count")

    def _widen(self, b: Builder, state: list[Var], args: list[Val]) -> None:
        """Make room in a full list: sort and reduce it, and double its room when that has freed less than half."""
        table, record = args
        self._order(b, self.entries.view(state), table, record)
        room = b.load(table, b.add(record, self._arrays), "i64", "room")
        with b.if_(b.compare("sle", room, b.mul(self._count(b, table, record), 2))):
            grown = b.named("grown", b.max(b.mul(room, 2), b.i64(FIRST)))
            for k, size in enumerate((*[8] * self.entries.words, self.tensor.dtype.itemsize)):
                place = b.add(record, k)
                b.store(table, place, resized(b, b.load(table, place, "ptr", "list"), grown, size))
            b.store(table, b.add(record, self._arrays), grown)

    def _order(self, b: Builder, spare: Lists, table: Val, record: Val) -> None:
        """Sort and reduce one list; sorting may exchange its memory with the spare list's."""
        entries = self.entries
        fields = [b.load(table, b.add(record, k), "ptr", "list") for k in range(self._arrays)]
        here = entries.view(
            [
                *(b.var("list", pointer) for pointer in fields),
                b.var("room", b.load(table, b.add(record, self._arrays), "i64", "room")),
            ]
        )
        count = b.var("count", self._count(b, table, record))
        entries.sort(b, here, spare, b.get(count))
        for k, var in enumerate(here.state):
            b.store(table, b.add(record, k), b.get(var))
        entries.reduce(b, here.at(b), count)
        b.store(table, b.add(record, self._arrays + 1), b.get(count))

    def drain(self, b: Builder) -> None:
        state = [*self.sorted.state, *self.spare.state, self.count]
        b.routine(f"gather_{self._tag}", state, {"table": b.get(self._table)}, self._gather)

    def _gather(self, b: Builder, state: list[Var], args: list[Val]) -> None:
        """Order every list in use and copy all of them, one after the other."""
        entries, table = self.entries, args[0]
        half = len(state) // 2
        out, spare, total = entries.view(state[:half]), entries.view(state[half:]), state[-1]
        every = b.var("every", b.i64(0))

        def order(record: Val) -> None:
            self._order(b, spare, table, record)
            b.increment(every, self._count(b, table, record))

        def copy(record: Val) -> None:
            source, target = self._list(b, table, record), out.at(b)
            with b.for_(b.i64(0), self._count(b, table, record), "q") as q:
                entries.move(b, source, q, target, b.get(total))
                b.increment(total)
            b.store(table, b.add(record, self._arrays + 1), b.i64(0))

        self._each(b, table, order)
        entries.reserve(b, out, b.get(every), keep=False)
        b.set(total, b.i64(0))
        self._each(b, table, copy)
        with b.for_(b.i64(self._bitmap), b.i64(self._bitmap + (1 << DIGIT - WORD)), "w") as w:
            b.store(table, w, b.i64(0))

    def _each(self, b: Builder, table: Val, visit: Callable[[Val], None]) -> None:
        """Visit the record of every list in use, in order."""
        with (
            b.for_(b.i64(0), b.i64(1 << DIGIT - WORD), "w") as w,
            b.bits_of(b.load(table, b.add(w, self._bitmap), "i64", "word")) as bit,
        ):
            digit = b.add(b.binary("shl", w, b.i64(WORD)), bit)
            visit(b.named("record", b.mul(digit, self._fields)))

    def reset(self, b: Builder) -> None:
        """Draining has emptied the lists already."""
