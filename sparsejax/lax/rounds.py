"""How loops run: the plans of their bodies, round after round.

The first rounds run as any program does. Where every step of the bodies is known to machine code, the rest run as a whole (`jit.runtime.whole`),
and so do later loops with these bodies from their first round on.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.avals import Aval
from sparsejax.formats.parts import stacking
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import choices

FIRST = 8
"""Rounds before a loop is looked at as a whole, which costs as much as some rounds."""
FEW = 12
"""Steps that take less time, one by one, than it takes to begin a loop as a whole."""
WAYS = "table", "apart"
"""How the rounds of a loop run."""
WITH_PROGRAM = "program", *WAYS
"""How a program with loops runs, where all its steps may be one table."""


class Past:
    """What bodies that differ in their extents alone have in common."""

    long: bool = False
    """Whether a loop went on until it was looked at as a whole: one of another size is, from its first round on, if all that changes is dense."""


class Body:
    """What a loop runs: the plan of a jaxpr, or something that listens to it."""

    count: int = 1
    """Its steps."""
    patience: int = FIRST
    """Rounds before a loop with this body is looked at as a whole, fewer where there were not so many."""
    past = Past()
    """What is known of earlier loops with this body, those of other sizes too."""

    def run(self, storages: Sequence[Storage]) -> list[Storage]:
        """The results for these operands."""
        raise NotImplementedError

    def loop(
        self,
        going: Body | None,
        asked: Sequence[Storage],
        given: Sequence[Storage],
        carry: Sequence[Storage],
        sample: Sequence[Storage] | None,
        rounds: Rounds | None = None,
        unread: Collection[int] = (),
    ) -> list[Storage] | None:
        """The last carry of the loop with this body and the condition `going`, or with so many `rounds`; None where it is not known as a whole.
        The `sample` is what changes as it was in some round: carry and slices. What is `unread` of the last carry may be anything."""
        return None


@dataclass
class Rounds:
    """Those of a `scan` that are left: their order, and dense stacks whose slices they read and write."""

    order: range
    xs: Sequence[Storage]
    ys: Sequence[NDArray[Any]]

    def places(self) -> list[tuple[int, int]]:
        """The address of the first slice of every stack, those that are read before those that are written, and how far it is to the next one."""
        stacks = [(x.vals, x.vals.nbytes // x.shape[0]) for x in self.xs]
        stacks += [(y, y.nbytes // len(y)) for y in self.ys]
        begin, step = self.order[0], self.order.step
        return [(vals.__array_interface__["data"][0] + begin * size, step * size) for vals, size in stacks]


def run_while(
    going: Body,
    step: Body,
    asked: Sequence[Storage],
    given: Sequence[Storage],
    carry: list[Storage],
    unread: Collection[int] = (),
) -> list[Storage]:
    """`while going(*asked, *carry): carry = step(*given, *carry)`. Nobody reads the last value of those that are `unread`, by number."""
    way = choices.pick("rounds", WAYS, "table")
    known = carry if step.past.long and _dense(carry) else None
    whole = step.loop(going, asked, given, carry, known, None, unread) if way == "table" else None
    if whole is not None:
        return whole
    patience, sample = step.patience, carry
    for count in itertools.count():
        if not going.run((*asked, *carry))[0].vals[0]:
            step.patience = max(1, min(patience, count - 1))
            step.past.long &= count >= FIRST
            return carry
        if count == patience:
            whole = step.loop(going, asked, given, carry, sample, None, unread) if way == "table" else None
            step.past.long = count >= FIRST and whole is not None
            if whole is not None:
                return whole
        carry = step.run((*given, *carry))
        if _entries(carry) >= _entries(sample):
            sample = carry
    return carry


def sampled(
    going: Body, step: Body, asked: Sequence[Storage], given: Sequence[Storage], carry: Sequence[Storage]
) -> Sequence[Storage]:
    """The carry of the round with most entries, of the first ones."""
    sample = carry
    for _ in range(step.patience):
        if not going.run((*asked, *carry))[0].vals[0]:
            break
        carry = step.run((*given, *carry))
        if _entries(carry) >= _entries(sample):
            sample = carry
    return sample


def _dense(storages: Sequence[Storage]) -> bool:
    return all(s.format.is_dense for s in storages)


def _entries(carry: Sequence[Storage]) -> int:
    return sum(len(s.vals) for s in carry if not s.format.is_dense)


def run_scan(
    step: Body,
    consts: Sequence[Storage],
    carry: list[Storage],
    xs: Sequence[Storage],
    order: range,
    ys: Sequence[Aval],
) -> tuple[list[Storage], list[Storage]]:
    """`for k in order: carry, y = step(*consts, *carry, *xs[k])`: the carry, and the stacks of ys."""
    stacks = [_Stack(a, len(order)) for a in ys]
    memory = [s.vals for s in stacks if s.vals is not None]
    enough = len(order) * step.count >= FEW and len(memory) == len(stacks) and _dense(xs)
    enough = enough and choices.pick("rounds", WAYS, "table") == "table"
    whole = step.loop(None, (), consts, carry, None, Rounds(order, xs, memory)) if enough and order else None
    if whole is not None:
        return whole, [s.made() for s in stacks]
    slicers = [stacking.Slicer(x) for x in xs]
    count, patience, sample = len(carry), step.patience, carry
    for number, k in enumerate(order):
        now = [*carry, *(s.at(k) for s in slicers)]
        if enough and number <= patience and (not number or _entries(now) >= _entries(sample)):
            sample = now
        if enough and number == patience <= len(order) - number:
            whole = step.loop(None, (), consts, carry, sample, Rounds(order[number:], xs, memory))
            if whole is not None:
                return whole, [s.made() for s in stacks]
        outs = step.run((*consts, *now))
        carry = outs[:count]
        for stack, y in zip(stacks, outs[count:], strict=True):
            stack.put(k, y)
    if enough and order:
        step.patience = max(1, min(patience, len(order) // 2))
    return carry, [s.made() for s in stacks]


class _Stack:
    """Where ys go: memory for all of them where they are dense, else a list of sparse arrays."""

    def __init__(self, aval: Aval, length: int) -> None:
        self.aval = aval
        self.parts: list[Storage | None] = [None] * length
        self.vals = np.empty((length, aval.size), aval.dtype) if aval.format.is_dense else None

    def put(self, k: int, y: Storage) -> None:
        if self.vals is None:
            self.parts[k] = y
        else:
            self.vals[k] = y.vals

    def made(self) -> Storage:
        aval = self.aval
        if self.vals is None:
            return stacking.stack(
                [p for p in self.parts if p is not None], aval.format, aval.shape, aval.fill_value, aval.dtype
            )
        shape = (len(self.parts), *aval.shape)
        form = stacking.stacked(aval.format)
        return Storage(form, shape, aval.dtype.type(0), ((),) * len(form.levels), self.vals.reshape(-1))
