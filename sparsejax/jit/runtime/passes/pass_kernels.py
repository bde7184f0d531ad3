"""What passes of machine code share: memory for what they write, slots for what they read, and one call of a kernel, or one for every thread."""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, cast

import numpy as np

from sparsejax.formats.passes import Array
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.builder import Builder
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.system import result_memory, threads

INT64 = np.dtype(np.int64)
Sizes = ParamSpec("Sizes")
address: Callable[[Array], int] = result_memory.address_of


@functools.cache
def _packer(count: int) -> Callable[..., bytes]:
    return struct.Struct(f"{count}q").pack


def empty(count: int, dtype: np.dtype[Any]) -> Array:
    """A vector to be written by a kernel."""
    return result_memory.empty(count, dtype)


def room(count: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """A vector of recycled memory, and the same memory to write to it by NumPy."""
    if count * dtype.itemsize >= result_memory.SMALLEST:
        return result_memory.written((count,), dtype)
    made = np.empty(count, dtype)
    return made, made


def filled(count: int, dtype: np.dtype[Any], fill: Any) -> Array:
    """A vector of the fill, to be written by a kernel."""
    if count * dtype.itemsize >= result_memory.SMALLEST and (fill != 0 or not any(np.asarray(fill, dtype).tobytes())):
        return result_memory.full(count, dtype, fill)[0]  # not of -0.0, which it takes for zeros
    return np.full(count, fill, dtype)


def closed_up(array: Array, pieces: Sequence[slice]) -> Array:
    """What pieces of a vector hold, which lie in order and to which nobody else refers, one behind the other from its beginning on; the rest of its memory,
    which comes from NumPy, is given back. No other memory is taken.

    >>> closed_up(np.arange(6), [slice(0, 1), slice(3, 5)])
    array([0, 3, 4])
    """
    array.resize(moved_up(array, pieces), refcheck=False)
    return array


def moved_up(array: Array, pieces: Sequence[slice]) -> int:
    """Move what pieces of a vector hold, which lie in order, one behind the other to its beginning; how much that is."""
    size, begin, found = array.itemsize, address(array), 0
    for piece in pieces:
        count = piece.stop - piece.start
        if found != piece.start:
            ctypes.memmove(begin + found * size, begin + piece.start * size, count * size)
        found += count
    return found


def run(kernel: compiler.Kernel, *slots: int | Array) -> None:
    """Run a pass; arrays are passed by their addresses."""
    status = kernel.run_packed(_packer(len(slots))(*result_memory.passed(slots)))
    if status:
        compiler.check(status)


def run_parts(kernel: compiler.Kernel, rows: Sequence[tuple[int, ...]]) -> None:
    """Run a pass once for every row of slots, by threads."""
    if len(rows) == 1:
        run(kernel, *rows[0])
    else:
        compiler.check(threads.run(kernel.address, np.array(rows, np.int64)))


class Unknown(Exception):
    """Machine code is neither loaded nor in any cache."""


class _Asking(threading.local):
    """Whether this thread wants nothing compiled."""

    known_alone = False


_asking = _Asking()


def loaded(run: Callable[..., Any], *args: Any) -> Any:
    """What `run` of arguments returns, if no pass that it runs must be compiled; else None."""
    _asking.known_alone = True
    try:
        return run(*args)
    except Unknown:
        return None
    finally:
        _asking.known_alone = False


def compiled(b: LLVMBuilder) -> compiler.Kernel:
    """The kernel that was built; `Unknown` within `loaded` where it must be compiled."""
    text = b.finish(lambda: None)
    if not _asking.known_alone:
        return compiler.compile_text(text)
    kernel = compiler.known_text(text)
    if kernel is None:
        raise Unknown
    return kernel


def as_kernel(build: Callable[Concatenate[Builder, Sizes], None]) -> Callable[Sizes, compiler.Kernel]:
    """The kernels of a pass, one for each of the sizes that `build` takes to write it."""

    def made(*sizes: Sizes.args, **named: Sizes.kwargs) -> compiler.Kernel:
        b = LLVMBuilder()
        build(b, *sizes, **named)
        return compiled(b)

    return cast(Callable[Sizes, compiler.Kernel], functools.cache(made))


def vectors(b: Builder, first: int, sizes: Sequence[int], names: Sequence[str]) -> list[Vector]:
    """Vectors in slots that follow each other."""
    return [Vector.in_slot(b, first + k, size, name) for k, (size, name) in enumerate(zip(sizes, names, strict=True))]


def pairs_of(
    b: Builder, first: int, sizes: Sequence[int], targets: Sequence[int] | None = None
) -> list[tuple[Vector, Vector]]:
    """Columns and where their entries go, which have elements of the same size without sizes of `targets`."""
    both = zip(sizes, targets or sizes, strict=True)
    return [
        (Vector.in_slot(b, first + 2 * k, size, "source"), Vector.in_slot(b, first + 1 + 2 * k, other, "target"))
        for k, (size, other) in enumerate(both)
    ]
