"""A plan run for a shape that may not come back: nothing of it is kept, and what is worked out for all shapes is worked out once.

before:   for each step: its extents, its types, the facts of its operands, the kernel for these, slots, memory
after:    the extents of all steps, each once; for each step one function of operands and shape (`direct`), for facts that are as they were
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparsejax.formats.storage import Storage
from sparsejax.jit.graph import partition, resize
from sparsejax.jit.runtime import library_call
from sparsejax.jit.runtime.direct import Direct
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.runtime.system import result_memory

DIRECT = 4
"""Facts for which a kernel is called on the shortest road."""
TRIES = 16
"""How often a kernel is asked for that road where it has none."""
CONSTANTS = 256
"""Small results of a call without operands, such as an extent, that are kept, by the numbers that they depend on."""

Shape = tuple[int, ...]
Run = Callable[[Sequence[Storage], Sequence[Shape], resize.Change], Any]
"""A step: its result for operands, all shapes of this call, and what gives other extents; or a list of all results."""


class Shapes:
    """The shapes that steps ask for, each of them once, by number."""

    def __init__(self) -> None:
        self._numbers: dict[Shape, int] = {}

    def number(self, shape: Shape) -> int:
        """The number of a shape, of extents and bounds."""
        return self._numbers.setdefault(shape, len(self._numbers))

    def at(self, change: resize.Change) -> list[Shape]:
        """All of them for the extents of a call."""
        return [tuple(map(change, shape)) for shape in self._numbers]


class _Kernel:
    """A kernel for operands of any extents."""

    __slots__ = ("_direct", "_runner", "_shape", "_tries")

    def __init__(self, runner: KernelRunner, shapes: Shapes) -> None:
        self._runner, self._shape, self._tries = runner, shapes.number(runner.output.shape), TRIES
        self._direct: tuple[Direct, ...] = ()
        """What serves operands that are alike, for the facts that were met last."""

    def __call__(self, inputs: Sequence[Storage], shapes: Sequence[Shape], change: resize.Change) -> Storage:
        for direct in self._direct:
            found = direct(inputs, shapes[self._shape])
            if found is not None:
                return found
        result = self._runner.once(inputs, change)
        if self._tries:
            now = self._runner.direct(inputs)
            if now is None:
                self._tries -= 1
            else:
                self._direct = (now, *self._direct)[:DIRECT]
        return result


def step_of(
    step: KernelRunner | partition.CallStep,
    shapes: Shapes,
    otherwise: Callable[[Sequence[Storage], resize.Change], list[Storage]],
) -> Run:
    """A step of a plan; calls of several results, or that run other jaxprs, are left to `otherwise`."""
    if isinstance(step, KernelRunner):
        return _Kernel(step, shapes)
    if library_call.is_several(step.eqn):
        return lambda inputs, found, change: otherwise(inputs, change)
    call, out = library_call.Sized(step.eqn), shapes.number(step.eqn.outputs[0].aval.shape)
    if not step.eqn.inputs and not step.eqn.primitive.effect:
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
