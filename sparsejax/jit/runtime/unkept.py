"""Steps of a plan for many shapes: what a shape costs that may not come back, as nothing of it is kept.

before:   for each step: its extents, its types, the facts of its operands, the kernel for these, slots, memory
after:    for each step one function of operands and shape (`direct`), for facts that are as they were
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.formats.storage import Storage
from sparsejax.jit.graph import resize
from sparsejax.jit.runtime import library_call, sequence
from sparsejax.jit.runtime.direct import Roads
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.runtime.system import result_memory
from sparsejax.jit.runtime.written import Direct

CONSTANTS = 256
"""Results of a call of constants, or without operands, such as an extent, that are kept, by these and by the numbers that they depend on."""
CONSTANT_BYTES = 1 << 20
"""How many bytes those of one call have."""

Shape = tuple[int, ...]


def memories(
    layout: sequence.Layout, made: Sequence[tuple[np.dtype[Any], Shape] | None]
) -> list[result_memory.Passing | None]:
    """Memory for the results of steps that nobody has when a call ends: that of a result as large which is read no more, as it is in the caches of the
    processor. Of steps that write into memory of ours, what they make; results of others may be views of their operands."""
    kept = {k for reads, own in zip(layout.reads, made, strict=True) if own is None for k in reads}.union(
        layout.results
    )
    lent, free = dict[int, Any](), dict[Any, list[result_memory.Passing]]()
    found: list[result_memory.Passing | None] = []
    for registers, own, dead in zip(layout.made, made, layout.dead, strict=True):
        memory = None
        if own is not None and kept.isdisjoint(registers):
            dtype, shape = own
            size = dtype, frozenset(collections.Counter(n for n in shape if n != 1).items())
            left = free.setdefault(size, [])
            memory = left.pop() if left else result_memory.passing(dtype)
            lent[registers[0]] = size, memory
        found.append(memory)
        for k in dead:
            if k in lent:
                size, passed = lent[k]
                free[size].append(passed)
    return found


class Kernel:
    """A kernel for operands of any extents."""

    __slots__ = ("_roads", "_runner", "first")

    def __init__(self, runner: KernelRunner, memory: result_memory.Passing | None = None) -> None:
        """Results lie in this memory, if it is given."""
        self._runner, self._roads = runner, Roads(functools.partial(runner.direct, memory=memory))
        self.first: Direct = _none
        """The road that was learnt last."""

    def call(self, inputs: Sequence[Storage], shape: Shape, change: resize.Change) -> Storage:
        """The result of this shape, by another road than the first."""
        result = self._roads(inputs, shape)
        if result is None:
            result = self._runner.once(inputs, change)
            self.first = self._roads.learn(inputs) or self.first
        return result


def _none(operands: Sequence[Storage], shape: Shape) -> None:
    return None


class Call:
    """A library call of one result, for operands of any extents."""

    __slots__ = ("call", "first")

    def __init__(self, sized: library_call.Sized, kept: tuple[Any, ...] | None) -> None:
        """What has no operands but constants may be `kept`, by these extents, which all that it is made of depends on."""
        self.call: Callable[[Sequence[Storage], Shape, resize.Change], Storage] = (
            _kept(sized, kept) if kept is not None else sized.once
        )
        self.first: Direct | None = sized.numpy_once if kept is None else None
        """What is called in its place, if it is there."""


def _kept(
    sized: library_call.Sized, extents: tuple[Any, ...]
) -> Callable[[Sequence[Storage], Shape, resize.Change], Storage]:
    known: dict[Any, Storage] = {}
    held, only = 0, extents[0] if len(extents) == 1 else None

    def constant(inputs: Sequence[Storage], shape: Shape, change: resize.Change) -> Storage:
        nonlocal held
        numbers: Any = change(only) if only is not None else tuple(map(change, extents))
        found = known.get(numbers)
        if found is not None:
            return found
        result = sized.once(inputs, shape, change)
        size = result.nbytes
        if size <= result_memory.RETURNED:
            held += size
            if len(known) >= CONSTANTS or held > CONSTANT_BYTES:
                known.clear()
                held = size
            known[numbers] = result
        return result

    return constant


class Several:
    """A library call of several results, or that runs other jaxprs: what `results` gives for operands."""

    __slots__ = ("_results",)

    def __init__(self, results: Callable[[Sequence[Storage], resize.Change], list[Storage]]) -> None:
        self._results = results

    def call(self, inputs: Sequence[Storage], shape: Shape, change: resize.Change) -> list[Storage]:
        """The results; the shape is that of none."""
        return self._results(inputs, change)
