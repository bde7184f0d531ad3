"""How loops run: the plans of their bodies, round after round.

The first rounds run as any program does. Where all that changes is dense and every step of the bodies is a kernel, the rest run over two
sets of buffers that take turns: what one round writes, the next one reads. Then nothing is allocated from round to round.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.avals import Aval
from sparsejax.formats.parts import stacking
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import choices

FIRST = 8
"""Rounds before buffers are bound, which costs as much as some rounds."""


class Body:
    """What a loop runs: the plan of a jaxpr, or something that listens to it."""

    patience: int = FIRST
    """Rounds before a loop with this body is looked at as a whole, fewer where there were not so many."""

    def run(self, storages: Sequence[Storage]) -> list[Storage]:
        """The results for these operands."""
        raise NotImplementedError

    def forwarded(self) -> list[int | None]:
        """For every result, the operand that it is, if it is one."""
        return []

    def bound(self, storages: Sequence[Storage], fixed: Sequence[bool], outputs: Sequence[NDArray[Any] | None]) -> Any:
        """The body over fixed buffers (`jit.bound.Bound`); None where it cannot be bound."""
        return None

    def loop(
        self,
        going: Body,
        asked: Sequence[Storage],
        given: Sequence[Storage],
        carry: Sequence[Storage],
        sample: Sequence[Storage] | None,
    ) -> list[Storage] | None:
        """The last carry of the loop with this body and the condition `going`; None where it is not known as a whole."""
        return None


class _Turns:
    """Two sets of buffers for the carries, from their values after some rounds; and the body bound from each to the other."""

    def __init__(
        self, step: Body, consts: Sequence[Storage], carry: Sequence[Storage], slices: Sequence[Storage], ys: int
    ) -> None:
        self.stays = _stays(step, len(consts), len(carry))
        self.sets: list[list[Storage]] = [[], []]
        memory: list[list[NDArray[Any] | None]] = [[], []]
        for s, stays in zip(carry, self.stays, strict=True):
            for own, buffers in zip(self.sets, memory, strict=True):
                vals = None if stays else s.vals.copy()
                buffers.append(vals)
                own.append(s if vals is None else _over(s, vals))
        fixed = [*(True for _ in consts), *self.stays, *(False for _ in slices)]
        self.slices = slices
        self.bodies = [
            step.bound((*consts, *own, *slices), fixed, [*other, *(None for _ in range(ys))])
            for own, other in zip(self.sets, reversed(memory), strict=True)
        ]

    def patches(self, turn: int, xs: Sequence[Storage]) -> list[tuple[NDArray[np.int64], int, int, int]]:
        """Slots for the addresses of slices, with those of the first ones and the distance of the next: one of the sets."""
        made = []
        for own, x in zip(self.slices, xs, strict=True):
            for slots, place in self.bodies[turn].places(own):
                made.append((slots, place, x.vals.__array_interface__["data"][0], own.vals.nbytes))
        return made


def _stays(step: Body, first: int, count: int) -> list[bool]:
    """Which carries, operands from `first` on, come back as they are."""
    forwarded = step.forwarded()
    return [forwarded[n : n + 1] == [first + n] for n in range(count)]


def _over(s: Storage, vals: NDArray[Any]) -> Storage:
    """A dense array over memory that changes."""
    return Storage(s.format, s.shape, s.fill_value, s.buffers, vals.view())


def _dense(storages: Iterable[Storage]) -> bool:
    return all(s.format.is_dense for s in storages)


def run_while(
    going: Body, step: Body, asked: Sequence[Storage], given: Sequence[Storage], carry: list[Storage]
) -> list[Storage]:
    """`while going(*asked, *carry): carry = step(*given, *carry)`."""
    way = choices.pick("rounds", ("table", "buffers", "apart"), "table")
    whole = step.loop(going, asked, given, carry, None) if way == "table" else None
    if whole is not None:
        return whole
    patience, sample = step.patience, carry
    for count in itertools.count():
        if not going.run((*asked, *carry))[0].vals[0]:
            step.patience = max(1, min(patience, count - 1))
            return carry
        if count == patience:
            whole = step.loop(going, asked, given, carry, sample) if way == "table" else None
            whole = _bound_while(going, step, asked, given, carry) if whole is None and way != "apart" else whole
            if whole is not None:
                return whole
        carry = step.run((*given, *carry))
        if _entries(carry) >= _entries(sample):
            sample = carry
    return carry


def _entries(carry: Sequence[Storage]) -> int:
    return sum(len(s.vals) for s in carry if not s.format.is_dense)


def _bound_while(
    going: Body, step: Body, asked: Sequence[Storage], given: Sequence[Storage], carry: list[Storage]
) -> list[Storage] | None:
    """The loop over bound buffers, from a state in which it goes on."""
    stays = _stays(step, len(given), len(carry))
    if not _dense(s for s, same in zip(carry, stays, strict=True) if not same):
        return None
    turns = _Turns(step, given, carry, (), 0)
    fixed = [*(True for _ in asked), *turns.stays]
    tests = [going.bound((*asked, *own), fixed, [None]) for own in turns.sets]
    if None in turns.bodies or None in tests:
        return None
    first, second = ((b.run, t.run, t.results[0].vals) for b, t in zip(turns.bodies, reversed(tests), strict=True))
    while True:
        for turn, (advance, test, answer) in enumerate((first, second)):
            advance()
            test()
            if not answer[0]:
                return turns.sets[1 - turn]


def run_scan(
    step: Body,
    consts: Sequence[Storage],
    carry: list[Storage],
    xs: Sequence[Storage],
    order: Sequence[int],
    ys: Sequence[Aval],
) -> tuple[list[Storage], list[Storage]]:
    """`for k in order: carry, y = step(*consts, *carry, *xs[k])`: the carry, and the stacks of ys."""
    stacks = [_Stack(a, len(order)) for a in ys]
    slicers = [stacking.Slicer(x) for x in xs]
    count = len(carry)
    for number, k in enumerate(order):
        if number == FIRST and len(order) > 2 * FIRST:
            made = _bound_scan(step, consts, carry, xs, order[number:], stacks)
            if made is not None:
                carry = made
                break
        outs = step.run((*consts, *carry, *(s.at(k) for s in slicers)))
        carry = outs[:count]
        for stack, y in zip(stacks, outs[count:], strict=True):
            stack.put(k, y)
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


def _bound_scan(
    step: Body,
    consts: Sequence[Storage],
    carry: list[Storage],
    xs: Sequence[Storage],
    order: Sequence[int],
    stacks: Sequence[_Stack],
) -> list[Storage] | None:
    """The rest of a loop, over bound buffers."""
    stays = _stays(step, len(consts), len(carry))
    changing = [s for s, same in zip(carry, stays, strict=True) if not same]
    passed = any(k is not None and k >= len(consts) + len(carry) for k in step.forwarded())
    if passed or not _dense((*changing, *xs)) or any(s.vals is None for s in stacks):
        return None
    turns = _Turns(step, consts, carry, [stacking.Slicer(x).at(order[0]) for x in xs], len(stacks))
    if None in turns.bodies:
        return None
    rounds = []
    for turn, body in enumerate(turns.bodies):
        results = zip(stacks, body.results[len(carry) :], strict=True)
        kept = [(stack.vals, y.vals) for stack, y in results if stack.vals is not None]
        rounds.append((body.run, turns.patches(turn, xs), kept))
    for k, (run, patches, kept) in zip(order, itertools.cycle(rounds)):
        for slots, place, base, stride in patches:
            slots[place] = base + k * stride
        run()
        for stack, y in kept:
            stack[k] = y
    return turns.sets[len(order) % 2]
