"""The steps of a plan in a row: what a call runs, with everything worked out that does not change from call to call.

    x = first.call((a, b))       y = second.call((c, x))       then nobody reads x: its memory goes back to `first`, for the next call

A step takes back small memory that it clears itself, if really nobody refers to it any more: neither to the storage, nor to its values, nor
to what these are a view of.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit import moderate

FREED = Storage(Format(()), (), np.float64(0), (), np.zeros(1))
"""In place of a value that nobody reads any more, whose memory is free."""

Registers = list[Storage]
_references = sys.getrefcount


class Step(Protocol):
    """A step of a plan."""

    @property
    def call(self) -> Callable[[Sequence[Storage]], Any]:
        """Its result for given operands, or a list of all of them."""

    @property
    def takes_back(self) -> bool:
        """Whether it has a use for the memory of its results."""

    def take_back(self, storage: Storage) -> None:
        """Use the memory of a result again."""


class Gives:
    """A step that has no use for the memory of its results."""

    takes_back = False

    def take_back(self, storage: Storage) -> None:
        """It goes back to where it came from."""


class Line:
    """Steps with the registers that they read, those that nobody reads after each (with the step that made it), and those of the results."""

    def __init__(
        self,
        steps: Sequence[Step],
        reads: Sequence[Sequence[int]],
        dead: Sequence[Sequence[int]],
        makers: dict[int, Step],
        results: Sequence[int],
        checks: moderate.Placed,
    ) -> None:
        self._steps = [
            (step, picked(read), [(k, makers[k]) for k in gone])
            for step, read, gone in zip(steps, reads, dead, strict=True)
        ]
        self._results, self._checks = picked(results), checks if checks.before else None

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
            for k, maker in dead:
                gone, registers[k] = registers[k], FREED
                if maker.takes_back and _is_sole(gone):
                    maker.take_back(gone)
        return self._results(registers)


def picked(numbers: Sequence[int]) -> Callable[[Registers], Sequence[Storage]]:
    """The registers of these numbers, as a function."""
    if len(numbers) > 1:
        return operator.itemgetter(*numbers)
    if not numbers:
        return lambda registers: ()
    (only,) = numbers
    return lambda registers: (registers[only],)


def _is_sole(storage: Storage) -> bool:
    """Whether nobody but the caller refers to a storage, and nobody but that to its values and their memory."""
    vals = storage.vals
    base = vals.base
    return _references(storage) <= _ALONE[0] and _references(vals) <= _ALONE[1] and _references(base) <= _ALONE[2]


def _alone() -> tuple[int, int, int]:
    """What `_is_sole` counts for a storage of a caller that has no other."""
    counts = []

    def count(storage: Storage) -> None:
        vals = storage.vals
        base = vals.base
        counts.extend([_references(storage), _references(vals), _references(base)])

    gone = Storage(Format.parse("dense", 1), (2,), np.float64(0), ((),), np.zeros(3)[1:])
    count(gone)
    return counts[0], counts[1], counts[2]


_ALONE = _alone()
