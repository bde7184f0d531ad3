"""Donated arguments: arrays that the caller gives up, so that results may be written where they were.

    step = jit(lambda W, G: W - 0.1 * G, donate_argnums=0)
    W = step(W, G)                       the result takes the place of W in memory; the old array is deleted

Memory is taken over when it came from a kernel, and nobody but the donated array refers to it: no other array, no view, no NumPy array
that was made of it. (Results of up to `arena.TINY` bytes share their memory.) What was borrowed from the caller is never written to. A
result takes memory of its dtype and size, once no later step reads what is there; an elementwise kernel may overwrite what it reads.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.array import Array
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import host
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest


def _references(array: Array) -> tuple[int, int, int]:
    """How many refer to the storage of an array, to its values, and to the memory of these."""
    storage = array._storage
    vals = storage.vals
    base = vals.base
    return sys.getrefcount(storage), sys.getrefcount(vals), sys.getrefcount(base) if isinstance(base, np.ndarray) else 0


def is_sole(array: Array) -> bool:
    """Whether the values are memory that a kernel was given, and this array alone refers to it."""
    if not array._storage.ours or not host.has("recycling"):
        return False
    maker = array._storage.cache.get("maker")
    if maker is not None:
        maker.release(array._storage.vals)
    storage, vals, base = _references(array)
    return storage <= _ALONE[0] and vals <= _ALONE[1] and base <= _ALONE[2]


def _example() -> Array:
    vals = np.zeros(3)[1:]
    return Array(Storage(Format.parse("dense", 1), (2,), np.float64(0), ((),), vals))


_ALONE = _references(_example())


class Spare:
    """Memory of donated operands, by register, while a plan runs."""

    def __init__(self, storages: dict[int, Storage], last: dict[int, int]) -> None:
        self._vals = {k: s.vals for k, s in storages.items()}
        self._last = last

    def take(
        self, step: int, size: int, dtype: np.dtype[Any], over: Sequence[int], registers: Sequence[Storage]
    ) -> tuple[int, NDArray[Any]] | None:
        """The register and the values that the result of a step, of so many elements, may overwrite: those that no step reads from this
        one on, or that this one alone reads, and as one of the registers `over`.
        """
        for k, vals in self._vals.items():
            free = self._last.get(k, -1) < step or (self._last[k] == step and k in over)
            if free and vals.dtype == dtype and len(vals) == size:
                if any(np.may_share_memory(vals, s.vals) for n, s in enumerate(registers) if n != k):
                    continue  # a view of it is still there
                del self._vals[k]
                return k, vals
        return None


def overwritable(nest: Nest) -> list[int]:
    """The inputs, by position, that a kernel may overwrite with its result: where it reads an element it writes this very one next,
    and never reads it again."""
    out, found = nest.output, []
    if nest.producers or not out.format.is_dense:
        return []
    for position, tensor in enumerate(nest.inputs):
        own = {a for a in cin.accesses(nest.value) if a.tensor == tensor}
        same = tensor.shape == out.shape and tensor.dtype == out.dtype and tensor.format == out.format
        if same and own == {cin.Access(tensor, nest.indices)}:
            found.append(position)
    return found
