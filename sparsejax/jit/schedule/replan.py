"""Another loop order for kernels that run on the same patterns again and again: copies of operands are made once, and remembered.

before:  forall k                                    after:  forall i                      A in csc, remembered with A or its pattern
           forall i                                            forall j (tile)
             forall j                                            forall k
               out[i,j] += A[k,i] * B[k,j]                         t += A[k,i] * B[k,j]          rows of the result in registers

A first call has the plan that is cheapest with all its copies. What the other would save is added up, kernel by kernel and copy by copy:
it is compiled, and a copy made, when what was lost so far has reached their prices (`copies.pays`). Both add up the terms of an element
in the same order: the bits of a result do not depend on how often a function was called.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparsejax.formats import Format, copies
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import conversion_price, machine
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import search
from sparsejax.jit.schedule.schedules import Schedule

SURPRISE = 4
"""How many times more entries than expected a result may have: with more, what the other order would gain is not known (two operands whose
patterns are alike, where chance would have them meet in a few entries). Or so many that writing them takes this part of the gain: of a million
entries that meet in 600 where 130 were expected, these are nothing."""

ACCOUNT = 2e3
"""Nanoseconds that keeping the account of a call takes: what gains less is left as it is."""

Order = tuple[str, ...]
"""A loop order, by name; empty: the scheduler's."""


@dataclass(frozen=True)
class Later:
    """A loop order, what a call gains by it, up to how many entries of a sparse result, and the inputs that are copied: their
    numbers, formats, and the prices of a copy, wholly and of its values alone."""

    order: Order
    gain: float
    most: float | None
    copied: tuple[tuple[int, Format, float, float], ...]

    def encoded(self) -> list[Any]:
        copied = [(k, str(form), form.ndim, *prices) for k, form, *prices in self.copied]
        return [self.order, self.gain, self.most, copied]

    @staticmethod
    def decoded(fields: list[Any]) -> Later:
        order, gain, most, copied = fields
        made = tuple((k, Format.parse(form, ndim), *prices) for k, form, ndim, *prices in copied)
        return Later(tuple(order), gain, most, made)


def later(chosen: Schedule, given: Nest, nest: Nest, known: Facts) -> Later | None:
    """What a schedule of `nest` proposes, for the inputs of `given`, which it was made of; None where these are stored otherwise."""
    found = chosen.remembered
    if found is None or [t.format for t in given.inputs] != [t.format for t in nest.inputs]:
        return None
    here = machine.current()
    moved, copied = dict(search.schedule_of(nest, known, found.order).conversions), []
    for number, tensor in enumerate(nest.inputs):
        if tensor.name in moved:
            form, entries = moved[tensor.name], known[tensor.name][-1]
            price = conversion_price.cost(tensor.format, form, tensor.shape, entries)
            copied.append((number, form, price, here.remember + here.take * entries))
    gain = chosen.cost.running - found.cost.running
    if gain < ACCOUNT and not chosen.at_once:
        return None
    most = None
    if chosen.at_once:
        gain = math.inf
    elif nest.output.lacks:
        expected = max(1.0, search.level_counts(nest, known)[-1])
        most = max(SURPRISE * expected, gain / SURPRISE / max(found.cost.output, 1.0) * expected)
    return Later(tuple(map(str, found.order)), gain, most, tuple(copied))


def schedule(nest: Nest, known: Facts, order: Order, workspace: str) -> Schedule:
    """The schedule of `nest` with its loops in `order`."""
    variables = {str(v): v for v in nest.variables}
    return search.schedule_of(nest, known, tuple(variables[name] for name in order), workspace)


class Account:
    """What calls have lost so far for want of copies."""

    def __init__(self, later: Later) -> None:
        self.later, self._lost = later, 0.0
        self._most: int | None = None

    def made(self, result: Storage) -> None:
        """What a call made."""
        self._most = max(self._most or 0, len(result.vals))

    @property
    def _as_expected(self) -> bool:
        """Whether results have no more entries than the other order was priced for."""
        most = self.later.most
        return most is None or (self._most is not None and self._most <= most)

    def pays(self, inputs: Sequence[Storage]) -> bool:
        """Whether a call on these inputs should have them."""
        gain = self.later.gain
        self._lost += gain
        pay = [copies.pays(inputs[k], form, gain, *prices) for k, form, *prices in self.later.copied]
        return all(pay) and self._lost >= machine.current().compile and self._as_expected
