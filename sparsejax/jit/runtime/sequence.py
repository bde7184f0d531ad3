"""The steps of a plan in a row: what a call runs, with everything worked out that does not change from call to call.

x = first.call((a, b))       y = second.call((c, x))       then nobody reads x: its memory is free, for `first` to use it again (`reuse`)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.graph import guards

FREED = Storage(Format(()), (), np.float64(0), (), np.zeros(1))
"""In place of a value that nobody reads any more, whose memory is free."""

Registers = list[Storage]


class Step(Protocol):
    """A step of a plan."""

    @property
    def call(self) -> Callable[[Sequence[Storage]], Any]:
        """Its result for given operands, or a list of all of them."""


class Line:
    """Steps with the registers that they read, those that nobody reads after each, and those of the results."""

    def __init__(
        self,
        steps: Sequence[Step],
        reads: Sequence[Sequence[int]],
        dead: Sequence[Sequence[int]],
        results: Sequence[int],
        checks: guards.Placed,
    ) -> None:
        self._steps = [(s, picked(read), gone) for s, read, gone in zip(steps, reads, dead, strict=True)]
        self._results, self._checks = picked(results), checks if checks.before else None

    def over(self, steps: Sequence[Step]) -> Line:
        """The same line of other steps."""
        made: Line = object.__new__(Line)
        made._steps = [(s, pick, gone) for s, (_, pick, gone) in zip(steps, self._steps, strict=True)]
        made._results, made._checks = self._results, self._checks
        return made

    def straight(self, literals: Sequence[Storage]) -> Callable[[Sequence[Storage]], Storage] | None:
        """The first result for operands, as one function on the shortest road; None where values are looked at between steps."""
        if self._checks is not None:
            return None
        steps, results, literals = self._steps, self._results, tuple(literals)

        def call(storages: Sequence[Storage]) -> Storage:
            registers = [*storages, *literals]
            for step, pick, dead in steps:
                made = step.call(pick(registers))
                if type(made) is list:
                    registers += made
                else:
                    registers.append(made)
                for k in dead:
                    registers[k] = FREED
            return results(registers)[0]

        return call

    def taken(self, number: int, registers: Registers) -> Sequence[Storage]:
        """What a step reads."""
        return self._steps[number][1](registers)

    def run(self, registers: Registers) -> Sequence[Storage] | None:
        """The results; None where values are not as a step needs them to be."""
        checks = self._checks
        for number, (step, pick, dead) in enumerate(self._steps):
            if checks is not None and not checks.hold(number, registers):
                return None
            made = step.call(pick(registers))
            if type(made) is list:
                registers += made
            else:
                registers.append(made)
            for k in dead:
                registers[k] = FREED
        return self._results(registers)


def picked(numbers: Sequence[int]) -> Callable[[Registers], Sequence[Storage]]:
    """The registers of these numbers, as a function."""
    if len(numbers) > 1:
        return operator.itemgetter(*numbers)
    if not numbers:
        return lambda registers: ()
    (only,) = numbers
    return lambda registers: (registers[only],)
