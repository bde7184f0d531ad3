"""The steps of a plan in a row: what a call runs, with everything worked out that does not change from call to call.

x = first.call((a, b))       y = second.call((c, x))       then nobody reads x: its memory is free, for `first` to use it again (`reuse`)

Of a plan for many shapes, a call brings what gives its extents, and steps are told the shapes of their results:

x = first.call((a, b), (n, 16), change)
"""

from __future__ import annotations

import functools
import math
import operator
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sparsejax.cached import cached_property
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.graph import guards, resize

FREED = Storage(Format(()), (), np.float64(0), (), np.zeros(1))
"""In place of a value that nobody reads any more, whose memory is free."""

SPELLED, LOOPED = 128, 4
"""Steps that are written out as one function, and calls before that: writing it takes as long as some hundred steps."""

Registers = list[Storage]
Numbers = tuple[int, ...]


class Step(Protocol):
    """A step of a plan."""

    @property
    def call(self) -> Callable[..., Any]:
        """Its result for given operands, or a list of all of them. In a plan for many shapes, the shape of the result and what gives the extents of
        the call come behind the operands."""


@dataclass(frozen=True)
class Layout:
    """What steps there are: the registers that they read and make, by step, and those that nobody reads after each. Operands come first, then
    literals. What is equal here is the same code."""

    operands: int
    literals: int
    reads: tuple[Numbers, ...]
    made: tuple[Numbers, ...]
    several: tuple[bool, ...]
    """Whether a step makes a list of results."""
    dead: tuple[Numbers, ...]
    results: Numbers
    checks: tuple[tuple[guards.Asked, ...], ...]
    """What is looked at before a step."""
    shapes: tuple[Numbers, ...] | None = None
    """The shapes of the results of steps, some extents as bounds, in a plan for many."""
    tried: frozenset[int] = frozenset()
    """Steps in a plan for many shapes of which `first` is called first, with operands and shape, and gives None where `call` is to be asked."""

    @cached_property
    def picks(self) -> list[Callable[[Registers], Sequence[Storage]]]:
        """What takes the operands of every step."""
        return list(map(picked, self.reads))

    def run(self, steps: Sequence[Step], registers: Registers, change: Sequence[resize.Change] = ()) -> Any:
        """The result, or a tuple of several; None where a value is not as it must be. A `change` gives the extents of a call."""
        for number, (step, pick, gone) in enumerate(zip(steps, self.picks, self.dead, strict=True)):
            if not all(guards.is_moderate(registers[k], zero, n) for k, zero, n in self.checks[number]):
                return None
            sized = () if self.shapes is None else (tuple(map(change[0], self.shapes[number])), *change)
            made = step.call(pick(registers), *sized)
            if type(made) is list:
                registers += made
            else:
                registers.append(made)
            for k in gone:
                registers[k] = FREED
        found = tuple([registers[k] for k in self.results])
        return found[0] if len(found) == 1 else found


class Line:
    """Steps in a row."""

    __slots__ = ("__weakref__", "call", "layout", "steps")

    def __init__(self, layout: Layout, steps: Sequence[Step], literals: Sequence[Storage]) -> None:
        """The steps are written out after `LOOPED` calls, unless there are many."""
        self.layout, self.steps = layout, steps
        left = LOOPED if len(steps) <= SPELLED else math.inf
        own = weakref.ref(self)  # what refers to itself would be freed late

        def call(storages: Sequence[Storage], *change: resize.Change) -> Any:
            nonlocal left
            left -= 1
            if left >= 0:
                return layout.run(steps, [*storages, *literals], change)
            written = _spelled(layout)(steps, literals)
            line = own()
            if line is not None:
                line.call = written
            return written(storages, *change)

        self.call: Callable[..., Any] = call
        """The result for operands, or a tuple of several; None where a value is not as it must be. In a plan for many shapes, what gives the extents
        of the call comes second."""


@functools.lru_cache(maxsize=512)
def _spelled(layout: Layout) -> Callable[[Sequence[Step], Sequence[Storage]], Callable[..., Any]]:
    """What makes a function of operands from steps and literals: registers are local names.

    before:   for step, pick, dead in steps: registers.append(step.call(pick(registers))); ...
    after:    r2 = s0.call((r0, r1,)); r3 = s1.call((r2,)); del r2; return r3
    """
    sized, bounds = layout.shapes is not None, dict[Any, str]()

    def named(letter: str, numbers: Sequence[int]) -> str:
        return "(" + "".join(f"{letter}{k}, " for k in numbers) + ")"

    def shape(extents: Sequence[Any]) -> str:
        spelled = (
            bounds.setdefault(n, f"n{len(bounds)}") if type(n) in resize.EXTENTS else str(int(n)) for n in extents
        )
        return "(" + "".join(f"{n}, " for n in spelled) + ")"

    lines: list[str] = []
    for number, read in enumerate(layout.reads):
        held = [f"hold(r{k}, {z!r}, {n})" for k, z, n in layout.checks[number]]
        lines += [f"if not ({' and '.join(held)}): return None"] if held else []
        given, made = named("r", read), layout.made[number]
        call = f"s{number}.call({given})"
        if layout.shapes is not None:
            given += f", {shape(layout.shapes[number])}"
            call = f"s{number}.call({given}, change)"
            call = f"s{number}.first({given}) or {call}" if number in layout.tried else call
        lines.append(f"{named('r', made) if layout.several[number] else f'r{made[0]}'} = {call}")
        lines += [f"del r{k}" for k in layout.dead[number]]
    found = layout.results
    lines.append(f"return r{found[0]}" if len(found) == 1 else f"return {named('r', found)}")
    extents = [f"{name} = change(bounds[{k}])" for k, name in enumerate(bounds.values())]
    taken = [f"{named('r', range(layout.operands))} = storages"] if layout.operands else []
    body = "".join(f"        {line}\n" for line in (*taken, *extents, *lines))
    first = layout.operands
    head = f"    {named('s', range(len(layout.reads)))} = steps\n"
    head += f"    {named('r', range(first, first + layout.literals))} = literals\n"
    known: dict[str, Any] = {"hold": guards.is_moderate, "inf": math.inf, "bounds": tuple(bounds)}
    arguments = "storages, change" if sized else "storages"
    exec(f"def make(steps, literals):\n{head}    def call({arguments}):\n{body}    return call\n", known)
    return known["make"]  # type: ignore[no-any-return]


def picked(numbers: Sequence[int]) -> Callable[[Registers], Sequence[Storage]]:
    """The registers of these numbers, as a function."""
    if len(numbers) > 1:
        return operator.itemgetter(*numbers)
    if not numbers:
        return lambda registers: ()
    (only,) = numbers
    return lambda registers: (registers[only],)
