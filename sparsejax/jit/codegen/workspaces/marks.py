"""Marks: a bitmap without a list. For results most of whose coordinates are reached many times.

    insert    vals[k] op= v;  mark[k] = 1          two stores where `bitmap` needs four; one where all values are equal (`single_valued`)
    drain     all marks are walked, 64 at once, whatever their number: a comparison makes them a word, whose bits are counted off

Draining costs size / 64, also where little was inserted.
"""

from __future__ import annotations

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen.workspaces.bitmap import Bitmap


class Marks(Bitmap):
    """See `protocol`; the key must fit one word."""

    def _mark(self, b: Builder, index: Val) -> None:
        b.store(self._marks, index, b.const("i8", 1))

    def _mark_where(self, b: Builder, index: Val, test: Val) -> None:
        mark = b.load(self._marks, index, "i8", "mark")
        b.store(self._marks, index, b.binary("or", mark, b.convert("zext", test, "i8")))

    def drain(self, b: Builder) -> None:
        self._walk_marks(b)
