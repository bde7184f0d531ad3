"""What passes of machine code share: memory for what they write, slots for what they read, and one call of a kernel, or one for every thread."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.formats.passes import Array
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.builder import Builder
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.system import result_memory, threads

RECYCLED = 1 << 20
"""Bytes from which memory is taken from the arena."""
INT64 = np.dtype(np.int64)
address: Callable[[Array], int] = result_memory.address_of


@functools.cache
def _packer(count: int) -> Callable[..., bytes]:
    return struct.Struct(f"{count}q").pack


def empty(count: int, dtype: np.dtype[Any]) -> Array:
    """A vector to be written by a kernel."""
    return result_memory.empty(count, dtype, RECYCLED)


def run(kernel: compiler.Kernel, *slots: int | Array) -> None:
    """Run a pass; arrays are passed by their addresses."""
    status = kernel.function(_packer(len(slots))(*[address(s) if isinstance(s, np.ndarray) else s for s in slots]))
    if status:
        compiler.check(status)


def run_parts(kernel: compiler.Kernel, rows: Sequence[tuple[int, ...]]) -> None:
    """Run a pass once for every row of slots, by threads."""
    if len(rows) == 1:
        run(kernel, *rows[0])
    else:
        compiler.check(threads.run(kernel.address, np.array(rows, np.int64)))


def compiled(b: LLVMBuilder) -> compiler.Kernel:
    return compiler.compile_text(b.finish(lambda: None))


def vectors(b: Builder, first: int, sizes: Sequence[int], names: Sequence[str]) -> list[Vector]:
    """Vectors in slots that follow each other."""
    return [Vector.in_slot(b, first + k, size, name) for k, (size, name) in enumerate(zip(sizes, names, strict=True))]


def pairs_of(b: Builder, first: int, sizes: Sequence[int]) -> list[tuple[Vector, Vector]]:
    """Columns and where their entries go."""
    return [
        (Vector.in_slot(b, first + 2 * k, size, "source"), Vector.in_slot(b, first + 1 + 2 * k, size, "target"))
        for k, size in enumerate(sizes)
    ]
