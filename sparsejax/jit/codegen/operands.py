"""What an access reads or writes at run time: input tensors and workspaces.

Input      level buffers and values that the caller passed
Scalar     a register, with a mark that tells whether anything was written where that matters
Registers  the same in the lanes of several vectors (`register_tiles`)
DenseArea  an array over the workspace's variables, set to the identity at every `where`
Overlay    the values of the output, before these are final
Workspace  entries inserted in any order and read back sorted: see the folder `workspaces`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsejax.formats import Dense, Format
from sparsejax.formats.levels.level import segment_of
from sparsejax.formats.levels.walk import Place, Segment
from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.codegen import emit, sums
from sparsejax.jit.codegen.abi import ALIGNMENT
from sparsejax.jit.codegen.kernel_memory import aligned, allocate, fill, free
from sparsejax.jit.codegen.workspaces.protocol import Workspace
from sparsejax.jit.ir import cin


@dataclass(frozen=True)
class Buffer:
    """A level buffer: its address and the machine type of its elements."""

    pointer: Val
    type: str


@dataclass(frozen=True)
class Axis:
    """How a dimension is stored by a dense level: coordinate c below position p is at `p * span + c * step`."""

    extent: Val
    span: Val
    step: int = 1


def axes_of(b: Builder, tensor: cin.Tensor, extents: Sequence[Val]) -> tuple[Axis, ...]:
    """The axes of a tensor that passes `extents`: of a pair of dimensions the outer one strides over blocks."""
    made: list[Axis] = []
    given = iter(extents)
    for d, n in enumerate(tensor.shape):
        if d in tensor.paired:
            whole = made.pop().extent
            blocks = b.named("blocks", b.binary("sdiv", b.add(whole, n - 1), b.i64(n)))
            made += [Axis(blocks, whole, n), Axis(b.i64(n), b.i64(1))]
            continue
        extent = next(given)
        extent = b.i64(n) if d in tensor.inner else extent
        made.append(Axis(extent, extent))
    return tuple(made)


@dataclass(frozen=True)
class Input:
    """An input tensor: axes by dimension, buffers by level and name, values."""

    tensor: cin.Tensor
    axes: tuple[Axis, ...]
    buffers: tuple[dict[str, Buffer], ...]
    vals: Val

    def segment(self, b: Builder, level: int, place: Place) -> Segment:
        return self.tensor.format.levels[level].segment(b, self.buffers[level], place)

    def within(self, b: Builder, level: int, lo: Val, hi: Val) -> Segment:
        """The segment of a level that continues a coordinate run, over the positions that share the coordinates so far."""
        return segment_of(b, self.buffers[level], lo, hi)

    def locate(self, b: Builder, level: int, place: Place, coordinate: Val) -> tuple[Val, Val] | None:
        return self.tensor.format.levels[level].locate(b, self.buffers[level], place, coordinate)

    def listed(self, level: int) -> bool:
        """Whether a level has its coordinates in memory, those of all segments one behind the other."""
        return self.tensor.format.levels[level].stacked

    def stored(self, b: Builder, level: int) -> Val | None:
        """The number of positions of a level; None where some level down to it does not tell its own."""
        count = b.i64(1)
        for number, axis in enumerate(self.axes[d] for d in self.tensor.format.order[: level + 1]):
            if self.tensor.format.levels[number].full:
                count = b.mul(axis.span, count)
            elif "pos" in self.buffers[number]:
                count = b.load(self.buffers[number]["pos"].pointer, count, "i64", "stored")
                count = b.mul(count, self.tensor.format.levels[number].group)
            elif not self.tensor.format.continues(number):
                return None
        return count

    def leaf(self, b: Builder, position: Val, lanes: int = 1) -> emit.Num:
        return emit.load(b, self.vals, position, self.tensor.dtype, lanes, self.tensor.name.lower())


class Scalar:
    """A scalar workspace. `mark` (when tracked) is true once something was written; `total` is a floating-point sum."""

    def __init__(self, b: Builder, tensor: cin.Tensor, tracked: bool, total: sums.Sum | None = None) -> None:
        self.tensor = tensor
        self.total = total
        start = emit.constant(b, tensor.fill_value, tensor.dtype)
        self._parts = [] if total is not None else [b.var(tensor.name, p) for p in start.parts]
        self.mark: Var | None = b.var(f"{tensor.name}_set", b.const("i1", 0)) if tracked else None

    def get(self, b: Builder) -> emit.Num:
        if self.total is not None:
            return self.total.get(b)
        return emit.Num(self.tensor.dtype, tuple(b.get(v) for v in self._parts))

    def put(self, b: Builder, op: str | None, value: emit.Num) -> None:
        """`self op= value`."""
        if self.total is not None:
            self.total.add(b, value)
        else:
            if op is not None:
                value = emit.apply(b, op, [self.get(b), value], self.tensor.dtype)
            for var, part in zip(self._parts, value.parts, strict=True):
                b.set(var, part)
        self._written(b)

    def save(self, b: Builder, pointer: Val, number: Val) -> None:
        """Write what was accumulated as number `number` of an array of such."""
        if self.total is not None:
            self.total.save(b, pointer, b.mul(number, self.total.width))
        else:
            emit.store(b, pointer, number, self.get(b))

    def merge(self, b: Builder, op: str, pointer: Val, number: Val) -> None:
        """Accumulate what was saved as number `number`."""
        if self.total is not None:
            self.total.merge(b, pointer, b.mul(number, self.total.width))
        else:
            self.put(b, op, emit.load(b, pointer, number, self.tensor.dtype, 1, "part"))

    def absorb(self, b: Builder, lanes: sums.Sum) -> None:
        """Add all lanes of a sum to this one, unless they are its own."""
        assert self.total is not None
        if not lanes.owned:
            self.total.absorb(b, lanes)
        self._written(b)

    def _written(self, b: Builder) -> None:
        if self.mark is not None:
            b.set(self.mark, b.const("i1", 1))


class Registers:
    """A scalar workspace in `count` vectors of some lanes. `mark` (when tracked) is true once something was written."""

    def __init__(self, b: Builder, tensor: cin.Tensor, tracked: bool, lanes: int, count: int) -> None:
        self.tensor = tensor
        start = emit.splat(b, emit.constant(b, tensor.fill_value, tensor.dtype), lanes)
        self._vars = [[b.var(f"{tensor.name}{v}", part) for part in start.parts] for v in range(count)]
        self.mark: Var | None = b.var(f"{tensor.name}_set", b.const("i1", 0)) if tracked else None

    def get(self, b: Builder, number: int) -> emit.Num:
        return emit.Num(self.tensor.dtype, tuple(map(b.get, self._vars[number])))

    def set(self, b: Builder, number: int, value: emit.Num) -> None:
        for var, part in zip(self._vars[number], value.parts, strict=True):
            b.set(var, part)
        if self.mark is not None and number == 0:
            b.set(self.mark, b.const("i1", 1))


class DenseArea:
    """A dense workspace over `extents` (dimension order)."""

    def __init__(self, b: Builder, tensor: cin.Tensor, extents: Sequence[Val]) -> None:
        self._shape(b, tensor, extents)
        self.vals = allocate(b, self.size, tensor.dtype.itemsize, zero=False)
        self._own = b.var(f"{tensor.name}_own", self.vals)

    def _shape(self, b: Builder, tensor: cin.Tensor, extents: Sequence[Val]) -> None:
        self.tensor = tensor
        self.axes = tuple(Axis(extent, extent) for extent in extents)
        self.size = b.i64(1)
        for extent in extents:
            self.size = b.mul(self.size, extent)

    def clear(self, b: Builder) -> None:
        fill(b, self.vals, b.i64(0), self.size, emit.constant(b, self.tensor.fill_value, self.tensor.dtype))

    def leaf(self, b: Builder, position: Val, lanes: int = 1) -> emit.Num:
        return emit.load(b, self.vals, position, self.tensor.dtype, lanes, self.tensor.name)

    def free(self, b: Builder) -> None:
        free(b, b.get(self._own))


class Overlay(DenseArea):
    """A workspace in the memory of the output, at the same positions: see `in_place`."""

    def __init__(self, b: Builder, tensor: cin.Tensor, vals: Val) -> None:
        self.tensor, self.vals = tensor, vals
        self.axes = (Axis(b.i64(0), b.i64(0)),)

    def clear(self, b: Builder) -> None:
        """Every value is written before it is read."""

    def free(self, b: Builder) -> None:
        """It is the output's."""


class Resting(DenseArea):
    """A dense workspace in the memory of the output, whose elements take the places of its own: see `over_result`."""

    def __init__(self, b: Builder, tensor: cin.Tensor, extents: Sequence[Val], vals: Val) -> None:
        self._shape(b, tensor, extents)
        self.vals = vals

    def free(self, b: Builder) -> None:
        """It is the output's."""


Operand = Input | DenseArea | Workspace


def kept(b: Builder, known: dict[str, Operand], name: str, dtype: np.dtype[Any], size: int) -> DenseArea:
    """Memory for `size` values that a loop keeps, aligned: one more of the operands of a kernel, under `name` or one like it, since loops may
    keep things under the same name one after the other."""
    made, number = name, 1
    while made in known:
        made, number = f"{name}{number}", number + 1
    tensor = cin.Tensor(made, (size,), dtype, Format((Dense(),)), 0, "dense")
    area = DenseArea(b, tensor, [b.i64(size + -(-ALIGNMENT // dtype.itemsize))])
    area.vals = aligned(b, area.vals)
    known[made] = area
    return area
