"""Donated arguments: arrays that the caller gives up, so that results may be written where they were.

    step = jit(lambda W, G: W - 0.1 * G, donate_argnums=0)
    W = step(W, G)                       the result takes the place of W in memory; the old array is deleted

Memory is taken over when it came from a kernel, and nobody but the donated array refers to it: no other array, no view, no NumPy array
that was made of it. (Results of up to `result_memory.TINY` bytes share their memory.) What was borrowed from the caller is never written to. A
result takes memory of its dtype and size, once no later step reads what is there; a kernel may overwrite what it reads element by element
(`overwritable`).
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
from sparsejax.jit.ir import cin, simplify
from sparsejax.jit.ir.program import Program
from sparsejax.jit.runtime.system import result_memory, reuse


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
    result_memory.release(array._storage.vals)
    storage, vals, base = _references(array)
    return storage <= _ALONE[0] and vals <= _ALONE[1] and base <= _ALONE[2]


def _example() -> Array:
    vals = np.zeros(3)[1:]
    return Array(Storage(Format.parse("dense", 1), (2,), np.float64(0), ((),), vals))


_ALONE = reuse.at_most(_references(_example()), (3, 3, 3))


class Spare:
    """Memory of donated operands, by register, while a plan runs."""

    def __init__(self, storages: dict[int, Storage], last: dict[int, int]) -> None:
        self._vals = {k: s.vals for k, s in storages.items()}
        self._last = last

    def fits(self, size: int, dtype: np.dtype[Any]) -> bool:
        """Whether any memory is left for so many elements."""
        return any(vals.dtype == dtype and len(vals) == size for vals in self._vals.values())

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


def overwritable(program: Program) -> tuple[int, ...]:
    """The inputs, by position, that a kernel may overwrite with its dense result, which nobody clears then: an element is read by the one
    statement that assigns this very element of the result, and never again.

    before:  forall i                       every element is assigned once (`whole`): x[i] is read right before
               out[i] = x[i] - 2 * y[i]

    before:  forall i                       a loop over a sparse operand may assign an element twice, first as if nothing were stored
               out[i] = x[i] - A[i]         (`loops/gaps`): where that is x[i] itself, what is read the second time is x[i]

    The result of 2 * x[i] - A[i] must not stand where x was.
    """
    if program.stmt is None or program.chunking.partial or program.resting:
        return ()
    writes = [w for w in cin.writes(program.stmt) if w.lhs.tensor.name == program.output.name]
    if len(writes) != 1 or writes[0].op is not None or not program.output.format.is_dense:
        return ()
    (store,), found = writes, []
    for position, tensor in enumerate(program.inputs):
        own = cin.Access(tensor, store.lhs.indices)
        same = tensor._replace(name="", fill_value=0) == program.output._replace(name="", fill_value=0)
        alone = same and _reads(program.stmt, tensor) == _reads(store, tensor) and set(_reads(store, tensor)) == {own}
        if alone and (program.whole or _is_kept(program.stmt, store, own)):
            found.append(position)
    return tuple(found)


def _reads(stmt: cin.Stmt, tensor: cin.Tensor) -> list[cin.Access]:
    return [a for a in cin.accesses(stmt) if a.tensor.name == tensor.name]


def _is_kept(stmt: cin.Stmt, store: cin.Assign, own: cin.Access) -> bool:
    """Whether nothing but loops over all of the result is around `store`, and what that assigns where its sparse operand is absent is `own`."""
    loops, stmt = cin.nested(stmt)
    sparse = {a for a in cin.accesses(store.rhs) if not a.tensor.format.is_dense}
    if stmt != store or sorted(map(str, loops)) != sorted(map(str, store.lhs.indices)) or len(sparse) != 1:
        return False
    return not simplify.conditions(store) and simplify.exhaust(store.rhs, sparse) == own
