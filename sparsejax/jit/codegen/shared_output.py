"""Outputs whose positions are given: those of an operand, so that nothing is appended.

before:  forall i                              A = csf (i,j,k)      out = (d,c,d)
           forall j
             forall r
               out[i,j,r] = sum over k of A[i,j,k] * B[k,r]

Every fiber (i, j) of A becomes one block of `out`, in the order of A's second level: position p there is position p here. So the number
of blocks is known before the kernel runs, `crd` is the operand's own buffer, and values are written in place, by any number of
threads. `pos` is shared too where all levels above are dense in both; else every fiber notes where it ends, and fibers that were never
visited begin and end where the one before ended.

Legal where the loops over the output's levels, down to the last sparse one, are outermost and walk that operand alone, and where
every visit writes: no other sparse operand, no mask, no reduction over what may be empty. The output has one sparse level, or one
run of coordinate levels; levels above and below are dense.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen import abi, emit
from sparsejax.jit.codegen.environment import Cursor
from sparsejax.jit.codegen.kernel_memory import fill
from sparsejax.jit.codegen.operands import Axis
from sparsejax.jit.codegen.output import Output, Span
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.program import Given, Shared


class GivenOutput(Output):
    """An output whose memory the caller provides, all of it; see the module."""

    def __init__(
        self,
        b: Builder,
        tensor: cin.Tensor,
        axes: tuple[Axis, ...],
        slots: dict[abi.Slot, int],
        span: Span | None,
        given: Given,
        shared: Shared,
    ) -> None:
        self._given, self._shares = given, shared
        super().__init__(b, tensor, axes, slots, span)

    def _prepare(self, b: Builder) -> None:
        name, head = self.tensor.name, self.heads[0]
        own = range(head, self._shares.first)
        self._vals_at = b.slot(self._slots[abi.Slot(name, "vals", 0)], "ptr", f"{name}_vals")
        self._crd_at = {lv: b.slot(self._slots[abi.Slot(name, "crd", lv)], "ptr", f"{name}_crd{lv}") for lv in own}
        noted = head > 0 and not self._shares.pos
        self._pos_at = b.slot(self._slots[abi.Slot(name, "pos", head)], "ptr", f"{name}_pos") if noted else None
        self.wrote = b.var("wrote", b.i64(0))
        self._end = b.var("end", b.i64(0))
        self._block = self._product(b, range(self._given.level + 1, len(self.tensor.format.levels)))

    @property
    def leader(self) -> cin.Access | None:
        given = self._given.access
        return given if self._pos_at is None and self._given.level + 1 == len(given.indices) else None

    @property
    def appends(self) -> bool:
        return False

    @property
    def writes_coordinates(self) -> bool:
        return bool(self._crd_at)

    def enter(
        self, b: Builder, level: int, coordinates: dict[int, Val], cursors: Mapping[cin.Access, Cursor]
    ) -> Val | None:
        if level != self._given.level:
            return None
        self._here = cursors[self._given.access].pos
        self.write_coordinates(b, level, self._here, coordinates)
        if not self._given.whole and self._block.ref != "1":
            first, last = b.mul(self._here, self._block), b.mul(b.add(self._here, 1), self._block)
            fill(b, self._vals_at, first, last, emit.constant(b, self.tensor.fill_value, self.tensor.dtype))
        return self._here

    def write_coordinates(self, b: Builder, level: int, position: Val, coordinates: dict[int, Val]) -> None:
        for lv, pointer in self._crd_at.items():
            b.store(pointer, position, self.narrowed(b, lv, coordinates[lv]))

    @contextmanager
    def room(self, b: Builder, count: Val) -> Iterator[None]:
        yield

    def extend(self, b: Builder, count: Val, first: Val) -> Val:
        self._here = first
        return first

    def commit(self, b: Builder, count: Val) -> None:
        if self._pos_at is not None:
            b.set(self._end, b.add(self._here, count))

    def leave(self, b: Builder, level: int) -> None:
        if level == self._given.level and self._pos_at is not None:
            b.set(self._end, b.add(self._here, 1))

    def close(self, b: Builder, head: int, parent: Val) -> None:
        if self._pos_at is not None:
            b.store(self._pos_at, b.add(parent, 1), b.get(self._end))

    def vals(self, b: Builder) -> Val:
        return self._vals_at

    def epilogue(self, b: Builder) -> None:
        """Nothing to hand back."""

    def finalize(self, b: Builder) -> None:
        """Fibers that were not visited are repaired by the caller, since chunks do not know what comes before them."""
