"""A plan run for a shape that may not come back: nothing of it is kept, and what is worked out for all shapes is worked out once.

before:   for each step: its extents, its types, the facts of its operands, the kernel for these, slots, memory
after:    the extents of all steps, each once; for each step one function of operands and shape (`direct`), for facts that are as they were
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from sparsejax.formats.storage import Storage
from sparsejax.jit.graph import partition, resize
from sparsejax.jit.runtime import library_call, sequence
from sparsejax.jit.runtime.direct import Roads
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.runtime.system import result_memory

CONSTANTS = 256
"""Small results of a call without operands, such as an extent, that are kept, by the numbers that they depend on."""

Shape = tuple[int, ...]
Run = Callable[[Sequence[Storage], Sequence[Shape], resize.Change], Any]
"""A step: its result for operands, all shapes of this call, and what gives other extents; or a list of all results."""


class Shapes:
    """The shapes that steps ask for, each of them once, by number."""

    def __init__(self) -> None:
        self._numbers: dict[Shape, int] = {}
        self._extents: dict[Any, int] = {}
        """The extents that they consist of, each of them once, by number."""
        self._picks: list[Callable[[Sequence[int]], Shape]] = []

    def number(self, shape: Shape) -> int:
        """The number of a shape, of extents and bounds."""
        known = self._numbers.get(shape)
        if known is None:
            known = self._numbers[shape] = len(self._picks)
            picked = sequence.picked([self._extents.setdefault(n, len(self._extents)) for n in shape])
            self._picks.append(cast(Any, picked))
        return known

    def at(self, change: resize.Change) -> list[Shape]:
        """All of them for the extents of a call."""
        extents = list(map(change, self._extents))
        return [pick(extents) for pick in self._picks]


def step_of(
    step: KernelRunner | partition.CallStep,
    shapes: Shapes,
    otherwise: Callable[[Sequence[Storage], resize.Change], list[Storage]],
) -> Run:
    """A step of a plan; calls of several results, or that run other jaxprs, are left to `otherwise`."""
    if isinstance(step, KernelRunner):
        return _kernel(step, shapes.number(step.output.shape))
    if library_call.is_several(step.eqn):
        return lambda inputs, found, change: otherwise(inputs, change)
    call, out = library_call.Sized(step.eqn), shapes.number(step.eqn.outputs[0].aval.shape)
    if not step.eqn.inputs and not step.eqn.effect:
        known: dict[Any, Storage] = {}

        def constant(inputs: Sequence[Storage], found: Sequence[Shape], change: resize.Change) -> Storage:
            numbers = call.numbers(change)
            result = known.get(numbers)
            if result is None:
                result = call.once(inputs, found[out], change)
                if len(known) < CONSTANTS and result.nbytes <= result_memory.TINY:
                    known[numbers] = result
            return result

        return constant
    if not call.by_numpy:
        return lambda inputs, found, change: call.once(inputs, found[out], change)
    given = [shapes.number(v.aval.shape) for v in step.eqn.inputs]
    return lambda inputs, found, change: call.numpy_once(inputs, [found[k] for k in given], found[out])


def _kernel(runner: KernelRunner, number: int) -> Run:
    """A kernel for operands of any extents, whose result has the shape of this number."""
    roads = Roads(runner.direct)

    def run(inputs: Sequence[Storage], shapes: Sequence[Shape], change: resize.Change) -> Storage:
        result = roads(inputs, shapes[number])
        if result is None:
            result = runner.once(inputs, change)
            roads.learn(inputs)
        return result

    return run
