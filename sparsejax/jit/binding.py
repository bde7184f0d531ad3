"""Binding arrays to a kernel: slots in, the output's storage out."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.errors import FormatError
from sparsejax.formats import Dense, convert
from sparsejax.formats.storage import Storage
from sparsejax.jit import abi, cin, operators, runtime


def input_slots(storage: Storage) -> tuple[int, ...]:
    """The slots of an input: extents, buffer addresses, address of the values. Computed once per storage."""
    known: tuple[int, ...] | None = storage.cache.get("slots")
    if known is None:
        buffers = [a.ctypes.data for level in storage.buffers for a in level]
        known = storage.cache["slots"] = (*storage.shape, *buffers, storage.vals.ctypes.data)
    return known


class Binding:
    """A kernel with everything about its output that does not change from call to call.

    `op` is the operator by which a dense output accumulates (None: it is assigned); `expected` tells how many coordinates
    to make room for at first, per level that starts a segment.
    """

    def __init__(
        self, kernel: runtime.Kernel, output: cin.Tensor, op: str | None, expected: tuple[int, ...] = ()
    ) -> None:
        self._kernel = kernel
        self._output = output
        self._slots = abi.slots_of(output, output=True)
        self._dense = output.format.is_dense
        self._size = math.prod(output.shape)
        self._start = output.fill_value if op is None else operators.get(op).identity(output.dtype)
        self._zero = output.dtype.type(0)
        if self._dense:
            if self._size * output.dtype.itemsize > 2**62:
                raise MemoryError(
                    f"a dense result of shape {output.shape} does not fit in memory; ask for a sparse one with out_format"
                )
            return
        _check_size(output)
        heads = abi.heads(output)
        counts = expected if len(expected) == len(heads) else (0,) * len(heads)
        pointers = len(self._slots) - len(output.shape) - len(heads)
        self._empty = (*output.shape, *((0,) * pointers), *counts)

    def run(self, inputs: list[Storage]) -> Storage:
        """Call the kernel on these inputs; the storage of its output."""
        numbers: list[int] = []
        for storage in inputs:
            numbers += input_slots(storage)
        output = self._output
        if self._dense:
            if self._start == 0:
                vals = np.zeros(self._size, output.dtype)
            else:
                vals = np.full(self._size, self._start, output.dtype)
            numbers += output.shape
            numbers.append(vals.__array_interface__["data"][0])
            status = self._kernel.run_packed(struct.pack(f"{len(numbers)}q", *numbers))
            if status:
                runtime.check(status)
            return Storage.dense(output.format, output.shape, self._zero, vals)
        first = len(numbers)
        numbers += self._empty
        status, after = self._kernel(numbers)
        found = dict(zip(self._slots, after[first:], strict=True))
        if status:
            runtime.release([found[s] for s in self._slots if s.what in ("pos", "crd", "vals")])
            runtime.check(status)
        return _adopt(output, found)


def _check_size(output: cin.Tensor) -> None:
    """Dense levels of an output must be addressable."""
    size = 1
    for level, dimension in enumerate(output.format.order):
        if isinstance(output.format.levels[level], Dense):
            size *= max(1, output.shape[dimension])
    if size > 2**44:
        raise FormatError(
            f"the dense levels of a result of shape {output.shape} in format {output.format} need {size} positions; "
            "choose a compressed format for it with out_format or .asformat"
        )


def _adopt(output: cin.Tensor, after: dict[abi.Slot, int]) -> Storage:
    form, name = output.format, output.name
    count = 1
    buffers: list[tuple[NDArray[Any], ...]] = []
    for level, dimension in enumerate(form.order):
        extent = output.shape[dimension]
        if isinstance(form.levels[level], Dense):
            buffers.append(())
            count *= extent
            continue
        made: list[NDArray[Any]] = []
        if not form.continues(level):
            made.append(runtime.adopt(after[abi.Slot(name, "pos", level)], count + 1, np.dtype(np.int64)))
            count = after[abi.Slot(name, "count", level)]
        made.append(runtime.adopt(after[abi.Slot(name, "crd", level)], count, convert.crd_dtype(extent)))
        buffers.append(tuple(made))
    vals = runtime.adopt(after[abi.Slot(name, "vals", 0)], count, output.dtype)
    return Storage(form, output.shape, output.fill_value, tuple(buffers), vals)
