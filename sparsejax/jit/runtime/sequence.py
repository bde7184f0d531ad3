"""The steps of a plan in a row: what a call runs, with everything worked out that does not change from call to call.

x = first.call((a, b))       y = second.call((c, x))       then nobody reads x: its memory is free, for `first` to use it again (`reuse`)
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.graph import guards

FREED = Storage(Format(()), (), np.float64(0), (), np.zeros(1))
"""In place of a value that nobody reads any more, whose memory is free."""

SPELLED, LOOPED = 16, 4
"""Steps that are written out as one function, and calls before that: writing it takes as long as some hundred steps."""

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
        self._numbers = tuple(map(tuple, reads)), tuple(map(tuple, dead)), results[0] if results else -1

    def over(self, steps: Sequence[Step]) -> Line:
        """The same line of other steps."""
        made: Line = object.__new__(Line)
        made._steps = [(s, pick, gone) for s, (_, pick, gone) in zip(steps, self._steps, strict=True)]
        made._results, made._checks, made._numbers = self._results, self._checks, self._numbers
        return made

    def straight(self, literals: Sequence[Storage], alone: bool) -> Callable[[Sequence[Storage]], Storage] | None:
        """The first result for operands, as one function on the shortest road; None where values are looked at between steps. With `alone`, every
        step makes one value, and the steps are written out after `LOOPED` calls."""
        if self._checks is not None:
            return None
        steps, results, literals, numbers = self._steps, self._results, tuple(literals), self._numbers
        left = LOOPED if alone and 0 < len(steps) <= SPELLED else -1
        spelled: Callable[[Sequence[Storage]], Storage] | None = None

        def call(storages: Sequence[Storage]) -> Storage:
            nonlocal left, spelled
            if spelled is not None:
                return spelled(storages)
            if left >= 0:
                left -= 1
                if left < 0:
                    spelled = _spelled(len(storages), len(literals), *numbers)([s for s, _, _ in steps], literals)
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


@functools.lru_cache(maxsize=512)
def _spelled(
    operands: int, literals: int, reads: tuple[tuple[int, ...], ...], dead: tuple[tuple[int, ...], ...], result: int
) -> Callable[[Sequence[Step], Sequence[Storage]], Callable[[Sequence[Storage]], Storage]]:
    """What makes a function of operands from steps that make one value each, and literals: the result of these registers, which are local names.

    before:   for step, pick, dead in steps: registers.append(step.call(pick(registers))); ...
    after:    r2 = s0.call((r0, r1,)); r3 = s1.call((r2,)); del r2; return r3
    """

    def named(letter: str, numbers: Sequence[int]) -> str:
        return "".join(f"{letter}{k}, " for k in numbers)

    first = operands + literals
    lines = [f"({named('r', range(operands))}) = storages"] if operands else []
    for number, (read, gone) in enumerate(zip(reads, dead, strict=True)):
        lines.append(f"r{first + number} = s{number}.call(({named('r', read)}))")
        lines += [f"del r{k}" for k in gone]
    body = "".join(f"        {line}\n" for line in (*lines, f"return r{result}"))
    held = f"    ({named('s', range(len(reads)))}) = steps\n"
    held += f"    ({named('r', range(operands, first))}) = literals\n" if literals else ""
    known: dict[str, Any] = {}
    exec(f"def make(steps, literals):\n{held}    def call(storages):\n{body}    return call\n", known)
    made: Callable[[Sequence[Step], Sequence[Storage]], Callable[[Sequence[Storage]], Storage]] = known["make"]
    return made


def picked(numbers: Sequence[int]) -> Callable[[Registers], Sequence[Storage]]:
    """The registers of these numbers, as a function."""
    if len(numbers) > 1:
        return operator.itemgetter(*numbers)
    if not numbers:
        return lambda registers: ()
    (only,) = numbers
    return lambda registers: (registers[only],)
