"""The coordinates and values of all entries, side by side, in two kernel calls which walk the levels as they say themselves (`Level.segment`):

    counted    ell    for i in 0 .. n:  for p in i * width .. i * width + len[i]:    count += 1
    written                                                                         row[at] = i, column[at] = crd[p], value[at] = vals[p], at += 1

Nothing is made beside the result. Covered are all formats of some kinds of levels, blocks too, of which what sticks out of the shape is left out. Where the
last levels list their coordinates, and every position is an entry, these and the values are shared, and the others are written.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import config
from sparsejax.formats import Format, entries, passes
from sparsejax.formats.levels.level import coordinate_at
from sparsejax.formats.levels.walk import Place, Segment
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen.operands import Buffer
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, as_kernel, empty, run, vectors

Array = NDArray[Any]


class _Emitter:
    """The kernel. Slots: extents of dimensions and of levels, buffers, values; where the count goes; columns that are written, and values."""

    def __init__(self, b: Builder, form: Format, wide: tuple[bool, ...], size: int, counts: bool) -> None:
        self.b, self.form, self.counts = b, form, counts
        slots = itertools.count()
        self._shape = [b.slot(next(slots), "i64", f"n{d}") for d in range(form.ndim)]
        self._extents = [b.slot(next(slots), "i64", f"n{level}") for level in range(len(form.levels))]
        self._buffers: list[dict[str, Buffer]] = []
        for level, kind in enumerate(form.levels):
            kinds = kind.buffer_types()
            machine = {"pos": "i64", "word": "i64", "crd": "i64" if wide[level] else "i32"}
            names = form.buffer_names(level)
            self._buffers.append({n: Buffer(b.slot(next(slots), "ptr", n), machine[kinds[n]]) for n in names})
        self._vals = Vector.in_slot(b, next(slots), size, "vals")
        (self._found,) = vectors(b, next(slots), (8,), ("found",))
        self._at = b.var("at", b.i64(0))
        self._columns: dict[int, Vector] = {}
        self._out: Vector | None = None
        if not counts:
            for d, is_wide in zip(_written(form), _wide(form, wide), strict=True):
                self._columns[d] = Vector.in_slot(b, next(slots), 8 if is_wide else 4, "column")
            if not _shares(form):
                self._out = Vector.in_slot(b, next(slots), size, "out")

    def emit(self) -> None:
        self._emit(0, self.b.i64(0), None, [])
        self._found.put(self.b, self.b.i64(0), self.b.get(self._at))

    def _emit(self, level: int, parent: Val, above: Val | None, coordinates: list[Val]) -> None:
        """The levels from `level` on below a position; the coordinates are those of the levels before."""
        b, form = self.b, self.form
        if level == len(form.levels):
            self._entry(parent, coordinates)
            return
        extent = self._extents[level]
        if form.levels[level].full:
            first = b.mul(parent, extent)
            with b.for_(b.i64(0), extent, "c") as c:
                self._emit(level + 1, b.add(first, c), c, [*coordinates, c])
            return
        segment: Segment = form.levels[level].segment(b, self._buffers[level], Place(parent, extent, above))

        def visit(p: Val) -> Val:
            c, below = b.named("c", segment.coordinate(p)), level + 1
            found, child = [*coordinates, c], segment.child(p, c)
            while below < len(form.levels) and form.continues(below):
                found.append(coordinate_at(b, self._buffers[below]["crd"], p))
                below += 1
            self._emit(below, child, found[-1], found)
            return c

        if segment.after is None:
            with b.for_(segment.lo, segment.hi, "p") as p:
                visit(p)
            return
        place = b.var("place", segment.lo)
        b.set(place, segment.lo)
        with b.while_(lambda: b.lt(b.get(place), segment.hi)):
            p = b.named("p", b.get(place))
            b.set(place, segment.after(p, visit(p)))

    def _entry(self, position: Val, coordinates: list[Val]) -> None:
        b, form = self.b, self.form
        own: list[Val | None] = [None] * form.ndim
        inside: Val | None = None
        for d, c in zip(form.order, coordinates, strict=True):
            block = own[d]
            own[d] = c if block is None else b.add(b.mul(block, form.blocks[d]), c)
            if block is not None:
                fits = b.lt(b.add(b.mul(block, form.blocks[d]), c), self._shape[d])
                inside = fits if inside is None else b.and_(inside, fits)

        def put() -> None:
            at = b.get(self._at)
            for d, column in self._columns.items():
                value = own[d]
                assert value is not None
                column.put(b, at, column.element(b, value))
            if self._out is not None:
                self._out.put(b, at, self._vals.get(b, position))
            b.increment(self._at)

        if inside is None:
            put()
        else:
            with b.if_(inside):
                put()


@as_kernel
def _kernel(b: Builder, form: Format, wide: tuple[bool, ...], size: int, counts: bool) -> None:
    _Emitter(b, form, wide, size, counts).emit()


@functools.lru_cache(maxsize=1024)
def _shares(form: Format) -> bool:
    """Whether the coordinates of the last levels and the values are shared: each position is an entry, and those are listed."""
    last = form.levels[form.runs[-1][0]]
    return not form.blocked and form.packed and last.listed and last.compact


@functools.lru_cache(maxsize=1024)
def _written(form: Format) -> tuple[int, ...]:
    """The dimensions whose coordinates are written."""
    return form.order[: form.runs[-1][0]] if _shares(form) else tuple(range(form.ndim))


def _wide(form: Format, wide: tuple[bool, ...]) -> list[bool]:
    """Whether these have coordinates of 64 bits: of a dimension in blocks as many as its number has, which levels have fewer of."""
    return [wide[len(form.levels) + d] for d in _written(form)]


def walked(storage: Storage) -> tuple[list[Array], Array] | None:
    """The coordinates of all entries, a vector for every dimension, in the order of storage, and the values; None where passes one by one do it."""
    form, shape, vals = storage.format, storage.shape, storage.vals
    if not form.ndim or form.is_dense or vals.dtype.itemsize not in (1, 2, 4, 8, 16):
        return None
    if config.forcing and choices.free():
        with choices.drawing("conversion", form, "entries", shape, storage.dtype):
            if choices.pick("conversion", ("passes", "kernel"), "kernel") == "passes":
                return None
    elif len(vals) < passes.MANY:
        return None
    extents = form.level_extents(shape)
    kinds = [passes.crd_dtype(n) for n in (*extents, *shape)]
    key = form, tuple([kind == np.int64 for kind in kinds]), vals.dtype.itemsize
    found = np.zeros(1, INT64)
    slots: list[int | Array] = [*shape, *extents, *(a for level in storage.buffers for a in level), vals, found]
    shared = _shares(form)
    if shared:
        count = len(vals)
    else:
        run(_kernel(*key, True), *slots)
        count = int(found[0])
    made = {d: empty(count, passes.crd_dtype(shape[d])) for d in _written(form)}
    out = [] if shared else [empty(count, vals.dtype)]
    run(_kernel(*key, False), *slots, *made.values(), *out)
    if shared:
        first, stop = form.runs[-1]
        made |= {form.order[level]: storage.buffers[level][-1] for level in range(first, stop)}
    return [made[d] for d in range(form.ndim)], vals if shared else out[0]


entries.use(walked)
