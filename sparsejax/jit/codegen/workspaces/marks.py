"""Marks: a bitmap without a list. For results most of whose coordinates are reached many times.

    insert    vals[k] op= v;  mark[k] = 1          two stores where `bitmap` needs four; one where all values are equal (`single_valued`)
    drain     all marks are walked, 64 at once, whatever their number: a comparison makes them a word, whose bits are counted off

Draining costs size / 64, also where little was inserted. What a mask does not let through may be dropped there (`drained_masks`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen import emit
from sparsejax.jit.codegen.workspaces.bitmap import Bitmap
from sparsejax.jit.cost.workspace_price import LANES
from sparsejax.jit.ir import cin


class Sieve(NamedTuple):
    """A dense vector by whose values entries are kept: those that are not zero, or its `complement`."""

    values: Val
    dtype: np.dtype[Any]
    complement: bool
    condition: cin.Expr
    """The mask in the statement that inserts."""

    def bits(self, b: Builder, first: Val, lanes: int = LANES) -> Val:
        """Which of the entries from `first` on are kept: a word, or one bit."""
        kept = emit.truth(b, emit.load(b, self.values, first, self.dtype, lanes, "mask")).val
        bits = b.convert("bitcast", kept, "i64") if lanes == LANES else b.convert("zext", kept, "i64")
        return b.binary("xor", bits, b.i64(-1 if lanes == LANES else 1)) if self.complement else bits


class Marks(Bitmap):
    """See `protocol`; the key must fit one word."""

    sieve: Sieve | None = None
    """What tells which entries are kept of all that were inserted."""

    def _list_marked(self, b: Builder, bits: Val, first: Val) -> None:
        if self.sieve is None:
            super()._list_marked(b, bits, first)
            return
        with b.if_(b.ne(bits, 0)):
            kept = self._kept(b, self.sieve, bits, first)
            with b.if_(b.ne(kept, 0)):
                super()._list_marked(b, kept, first)

    def _kept(self, b: Builder, sieve: Sieve, bits: Val, first: Val) -> Val:
        """Those of the marks from `first` on that are entries."""
        kept, end = b.var("kept", b.i64(0)), b.add(first, LANES)

        def last() -> None:
            b.set(kept, b.i64(0))
            with b.for_(b.i64(0), b.sub(self._size, first), "k") as k:
                one = b.binary("shl", sieve.bits(b, b.add(first, k), 1), k)
                b.set(kept, b.binary("or", b.get(kept), one))

        whole = b.compare("sle", end, self._size)
        b.if_else(whole, lambda: b.set(kept, sieve.bits(b, first)), last)
        return b.named("bits", b.and_(bits, b.get(kept)))

    def _mark(self, b: Builder, index: Val) -> None:
        b.store(self._marks, index, b.const("i8", 1))

    def _mark_where(self, b: Builder, index: Val, test: Val) -> None:
        mark = b.load(self._marks, index, "i8", "mark")
        b.store(self._marks, index, b.binary("or", mark, b.convert("zext", test, "i8")))

    def drain(self, b: Builder) -> None:
        self._walk_marks(b)
