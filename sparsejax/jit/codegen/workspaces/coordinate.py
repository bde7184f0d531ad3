"""Coordinate: expand, sort, compress. Insertions are appended to an accumulation list; when it is full, it is sorted,
reduced, and merged into the sorted list of all entries, from one buffer into another.

The accumulation list grows with the list of all entries, so that merging costs no more than sorting over all.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.codegen import emit
from sparsejax.jit.codegen.workspaces.lists import Lists
from sparsejax.jit.codegen.workspaces.protocol import Listed
from sparsejax.jit.ir import cin

FIRST = 4096  # entries of the first accumulation list: sorted inside the first-level cache


class Coordinate(Listed):
    """See `protocol`; `sorted` is the list of all entries, `spare` the buffer that merges go to."""

    def __init__(self, b: Builder, tensor: cin.Tensor, extents: Sequence[Val], op: str | None) -> None:
        super().__init__(b, tensor, extents, op)
        self._new = self.entries.make(b, f"{tensor.name}_new")
        self._used = b.var(f"{tensor.name}_used", b.i64(0))
        self.entries.reserve(b, self._new, b.i64(FIRST))

    def owned(self) -> list[Var]:
        return [*super().owned(), *self._new.keys, self._new.vals]

    def insert(self, b: Builder, coordinates: Sequence[Val], value: emit.Num) -> None:
        key = self.packing.pack(b, coordinates)
        used = b.named("used", b.get(self._used))
        self.entries.put(b, self._new.at(b), used, key, value)
        b.set(self._used, b.add(used, 1))
        with b.if_(b.eq(b.get(self._used), b.get(self._new.room))):
            self._flush(b)

    def _flush(self, b: Builder) -> None:
        state = [*self._new.state, *self.sorted.state, *self.spare.state, self._used, self.count]
        tag = f"{self.entries.words}_{self.tensor.dtype}_{self.op}"
        b.routine(f"flush_{tag}", state, {}, self._flush_routine)

    def _flush_routine(self, b: Builder, state: list[Var], args: list[Val]) -> None:
        entries = self.entries
        each = entries.words + 2
        new, every, spare = (entries.view(state[k * each : (k + 1) * each]) for k in range(3))
        used, count = state[-2:]
        entries.sort(b, new, spare, b.get(used))
        entries.reduce(b, new.at(b), used)
        n = b.named("n", b.get(used))

        def first() -> None:
            self._copy(b, new, every, n)
            b.set(count, n)

        def further() -> None:
            entries.reserve(b, spare, b.add(b.get(count), n), keep=False)
            entries.merge(b, every, count, new.at(b), n, spare)

        b.if_else(b.eq(b.get(count), 0), first, further)
        b.set(used, b.i64(0))
        entries.reserve(b, new, b.max(b.get(count), b.i64(FIRST)), keep=False)

    def _copy(self, b: Builder, source: Lists, target: Lists, n: Val) -> None:
        self.entries.reserve(b, target, n, keep=False)
        old, new = source.at(b), target.at(b)
        sizes = [8] * self.entries.words + [self.tensor.dtype.itemsize]
        for to, here, size in zip(new, old, sizes, strict=True):
            b.call("memcpy", "ptr", [to, here, b.mul(n, size)])

    def drain(self, b: Builder) -> None:
        with b.if_(b.ne(b.get(self._used), 0)):
            self._flush(b)

    def reset(self, b: Builder) -> None:
        b.set(self.count, b.i64(0))
