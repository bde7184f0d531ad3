"""Binding arrays to a kernel: slots in, the output's storage out."""

from __future__ import annotations

import math
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


def run(
    kernel: runtime.Kernel,
    inputs: list[Storage],
    output: cin.Tensor,
    op: str | None,
    expected: tuple[int, ...] = (),
) -> Storage:
    """Run `kernel`; the storage of its output, which makes room for `expected` coordinates per level at first."""
    numbers: list[int] = []
    for storage in inputs:
        numbers += input_slots(storage)
    first = len(numbers)
    slots = abi.slots_of(output, output=True)
    if output.format.is_dense:
        vals = dense_output(output, op)
        numbers += (*output.shape, vals.ctypes.data)
        runtime.check(kernel(np.array(numbers, np.int64)))
        shape = output.shape
        return Storage(output.format, shape, output.dtype.type(0), ((),) * len(shape), vals)
    _check_size(output)
    heads = abi.heads(output)
    counts = expected if len(expected) == len(heads) else (0,) * len(heads)
    numbers += [*output.shape, *([0] * (len(slots) - len(output.shape) - len(heads))), *counts]
    array = np.array(numbers, np.int64)
    status = kernel(array)
    after = dict(zip(slots, array[first:].tolist(), strict=True))
    if status:
        runtime.release([after[s] for s in slots if s.what in ("pos", "crd", "vals")])
        runtime.check(status)
    return _adopt(output, after)


def dense_output(output: cin.Tensor, op: str | None) -> NDArray[Any]:
    """The values of a dense output, set to what the kernel accumulates onto."""
    size = math.prod(output.shape)
    start = output.fill_value if op is None else operators.get(op).identity(output.dtype)
    if size * output.dtype.itemsize > 2**62:
        raise MemoryError(
            f"a dense result of shape {output.shape} does not fit in memory; ask for a sparse one with out_format"
        )
    return np.zeros(size, output.dtype) if start == 0 else np.full(size, start, output.dtype)


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
