"""Sparse arrays written out as dense ones in one kernel call, which walks the levels as they say themselves (`Level.segment`):

    csr, shape (n, m)       for i in 0 .. n:                        out, which holds the fill
                              for p in pos[i] .. pos[i + 1]:
                                out[i * m + crd[p]] = vals[p]

Covered are unblocked formats of dense levels and of levels whose places lie side by side; others are expanded first (`formats.convert`). A kernel is
loaded, or compiled, as for other conversions.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import config
from sparsejax.formats import Format, convert, passes
from sparsejax.formats.levels.level import coordinate_at
from sparsejax.formats.levels.walk import Place, Segment
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen.operands import Buffer
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime import binding
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.conversions import COMPILED, LOADED
from sparsejax.jit.runtime.system import result_memory

_pack: Callable[[int], bytes] = struct.Struct("q").pack


class Plan:
    """How arrays of one format, dtype and width of coordinates are written into dense memory."""

    def __init__(self, source: Format, size: int, wide: tuple[bool, ...]) -> None:
        self.source, self._size, self._wide = source, size, wide
        self._asked = 0
        self._kernel: compiler.Kernel | None = None
        self.function: Callable[..., int] | None = None
        """The kernel as it is called, once it is there."""

    def chosen(self, storage: Storage) -> Callable[..., int] | None:
        """The function that writes an array; None where the passes of NumPy are cheaper, or asked for."""
        if config.forcing and choices.free():
            with choices.drawing("conversion", self.source, "dense", storage.shape, storage.dtype):
                if choices.pick("conversion", ("passes", "kernel"), "kernel") == "passes":
                    return None
        if self._kernel is None:
            self._kernel = self._loaded(len(storage.vals))
            self.function = None if self._kernel is None else self._kernel.run_packed
        return self.function

    def _loaded(self, entries: int) -> compiler.Kernel | None:
        """The kernel; None as long as it is not worth being loaded, or compiled."""
        self._asked += 1
        pays = entries >= passes.MANY or self._asked >= COMPILED or config.forcing
        if not pays and self._asked != LOADED:
            return None
        text = _Emitter(self.source, self._size, self._wide).text()
        return compiler.compile_text(text) if pays else compiler.known_text(text)


class _Emitter:
    """The kernel. Slots: those of the source, and the memory that is written."""

    def __init__(self, form: Format, size: int, wide: tuple[bool, ...]) -> None:
        self.form, self.b = form, LLVMBuilder()
        b, slots = self.b, itertools.count(form.ndim)
        self._extents = [b.slot(d, "i64", f"n{d}") for d in range(form.ndim)]
        self._buffers: list[dict[str, Buffer]] = []
        for level, d in enumerate(form.order):
            kinds = form.levels[level].buffer_types()
            machine = {"pos": "i64", "word": "i64", "crd": "i64" if wide[d] else "i32"}
            names = form.buffer_names(level)
            self._buffers.append({n: Buffer(b.slot(next(slots), "ptr", n), machine[kinds[n]]) for n in names})
        self._vals = Vector.in_slot(b, next(slots), size, "vals")
        self._out = Vector.in_slot(b, next(slots), size, "out")
        self._strides: list[Val] = [b.i64(1)] * form.ndim
        for d in reversed(range(form.ndim - 1)):
            self._strides[d] = b.mul(self._strides[d + 1], self._extents[d + 1])

    def text(self) -> str:
        b = self.b
        self._emit(0, b.i64(0), None, b.i64(0))
        return b.finish(lambda: None)

    def _emit(self, level: int, parent: Val, above: Val | None, flat: Val) -> None:
        """The levels from `level` on below a position, whose entries lie from `flat` on."""
        b, form = self.b, self.form
        if level == len(form.levels):
            self._out.put(b, flat, self._vals.get(b, parent))
            return
        extent = self._extents[form.order[level]]
        if form.levels[level].full:
            first = b.mul(parent, extent)
            with b.for_(b.i64(0), extent, "c") as c:
                self._emit(level + 1, b.add(first, c), c, self._moved(level, flat, c))
            return
        segment = _segment(b, form, level, self._buffers[level], Place(parent, extent, above))
        with b.for_(segment.lo, segment.hi, "p") as p:
            c = segment.coordinate(p)
            flat = self._moved(level, flat, c)
            child, below = segment.child(p, c), level + 1
            while below < len(form.levels) and form.continues(below):
                c = coordinate_at(b, self._buffers[below]["crd"], p)
                flat = self._moved(below, flat, c)
                below += 1
            self._emit(below, child, c, flat)

    def _moved(self, level: int, flat: Val, c: Val) -> Val:
        return self.b.add(flat, self.b.mul(c, self._strides[self.form.order[level]]))


def _segment(b: Builder, form: Format, level: int, buffers: dict[str, Buffer], place: Place) -> Segment:
    made: Segment = form.levels[level].segment(b, buffers, place)
    return made


@functools.lru_cache(maxsize=256)
def _covered(form: Format) -> bool:
    """Whether there is a kernel: its levels are dense, or have their places side by side."""
    if form.blocked or form.is_dense or not form.ndim:
        return False
    b = LLVMBuilder()
    for level, kind in enumerate(form.levels):
        if kind.full or form.continues(level):
            continue
        pointers = {name: Buffer(b.slot(0, "ptr", name), "i64") for name in form.buffer_names(level)}
        segment = kind.segment(b, pointers, Place(b.i64(0), b.i64(1), b.i64(0)))
        if not kind.unique or kind.shared or segment.after is not None:
            return False
    return True


@functools.lru_cache(maxsize=256)
def _plan(form: Format, size: int, wide: tuple[bool, ...]) -> Plan | None:
    return Plan(form, size, wide) if _covered(form) and size in (1, 2, 4, 8, 16) else None


def written(storage: Storage, out: NDArray[Any]) -> bool:
    """Write the entries of a sparse array to `out`, which holds its fill; False where others do so for less."""
    cache = storage.cache
    if "written" not in cache:
        wide = tuple([passes.crd_dtype(n) == np.int64 for n in storage.shape])
        cache["written"] = _plan(storage.format, storage.dtype.itemsize, wide)
    plan: Plan | None = cache["written"]
    if plan is None:
        return False
    function = plan.function
    if function is None or config.forcing:
        function = plan.chosen(storage)
        if function is None:
            return False
    status = function(cache.get("slots") or binding.input_slots(storage), _pack(result_memory.address_of(out)))
    if status:
        compiler.check(status)
    return True


convert.use_dense(written)
