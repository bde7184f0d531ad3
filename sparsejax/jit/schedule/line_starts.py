"""Operands that begin with a line: dense ones whose vectors a kernel reads again and again are copied before it runs, where they begin elsewhere.

before:  out = kernel(A, B)      B 16 bytes behind a line        after:  out = kernel(A, copy of B)

Arrays of NumPy begin 16 bytes behind a line more often than not. A vector of 64 bytes lies across two lines then, and takes twice as long to read from
the second cache: products of 500 to 4,000 rows of 30 to 95 entries with 32 to 128 columns (0.12 to 1 MB) take 1.7 to 2.1 times as long as where
operands begin with a line (Granite Rapids, one thread, alone). The plan names the operands; each call looks where they begin (`runtime/kernels`).

Legal for dense operands along whose last dimension the innermost loop runs, and whose rows are whole lines. The price of reading across lines (`split`)
is paid for what the second cache holds: beyond it, a line is waited for longer than it is read; of 25 to 47 KB, in the first one, it is a quarter
(0.14 to 0.18 ns per line, 0.33 at 62 KB, 0.46 to 0.6 from 256 KB to 1 MB, 0.12 at 2.6 MB, none at 4.9).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sparsejax.jit.cost import machine, memory
from sparsejax.jit.cost.memory import LINE
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.ir import choices, cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import placement, regions, search, statements
from sparsejax.jit.schedule.schedules import Schedule

PASSES = 2.0
"""A copy in times what reading and writing all lines takes: the kernel finds less in the caches afterwards. Products of 500 to 4,000 rows with 32 to 128
columns take 22 to 40 microseconds longer with a copy of 0.24 MB (11 to read and write it), 120 to 150 with one of 0.98 MB (59), 237 with one of 1.46
MB (150), but 55 to 70 where rows have 95 entries (Granite Rapids, loaded, in turns)."""


def copied(nest: Nest, known: Facts, schedule: Schedule) -> frozenset[str]:
    """The names of the operands of a kernel that are copied where they do not begin with a line."""
    if not (machine.current().split or choices.free()) or schedule.columns is not None or nest.bounded:
        return frozenset()
    saved = _across(nest, known, schedule)
    if not saved:
        return frozenset()
    pays = {name for name, gain in saved.items() if gain > _copy(nest, known, name)}
    cheapest = "copied" if pays else "where_they_are"
    taken = choices.pick("line_starts", ("where_they_are", "copied"), cheapest)
    return frozenset() if taken == "where_they_are" else frozenset(pays or saved)


def paid(nest: Nest, known: Facts, schedule: Schedule) -> float:
    """How many nanoseconds longer a kernel takes where what it is given does not begin with a line, read across lines or copied."""
    if not machine.current().split:
        return 0.0
    given = {name: gain for name, gain in _across(nest, known, schedule).items() if name not in known.fresh}
    return sum(min(gain, _copy(nest, known, name)) for name, gain in given.items())


def _across(nest: Nest, known: Facts, schedule: Schedule) -> dict[str, float]:
    """How many nanoseconds longer operands are read that do not begin with a line, by name."""
    saved: dict[str, float] = {}
    for part, order, facts, scale in _statements(nest, known, schedule):
        model = search.model(part, facts)
        for access in dict.fromkeys(part.reads):
            if _legal(access, order, facts) and access.tensor.name not in dict(schedule.conversions):
                rows = 1 if any(not a.tensor.format.is_dense for a in part.reads) else regions.ROWS
                gain = scale * model.waiting.across(access, order) / rows
                saved[access.tensor.name] = saved.get(access.tensor.name, 0.0) + gain
    return saved


def _statements(
    nest: Nest, known: Facts, schedule: Schedule
) -> Iterator[tuple[Nest, tuple[cin.IndexVar, ...], Facts, float]]:
    """The statements of a kernel, with their loops, what is known of what they read, and how often these run, as times what they would alone."""
    if not nest.nested:
        yield nest, schedule.order, known, 1.0
        return
    facts, scales = search.with_targets(nest, known, schedule.registers), statements.scales(nest, known, schedule)
    for number in range(len(nest.producers) + 1):
        order = schedule.order if number == len(nest.producers) else schedule.places[number].loops
        yield placement.statement(nest, number, schedule.registers), order, facts, scales.get(number, 1.0)


def _legal(access: cin.Access, order: tuple[cin.IndexVar, ...], known: Facts) -> bool:
    """Whether vectors of a dense operand are read along its rows, which are whole lines, and come from outside of the kernel."""
    form = access.tensor.format
    if not form.is_dense or access.tensor.policy is not None or access.tensor.name not in known.counts:
        return False
    if form.ndim < 2 or not order or access.computed or access.indices[form.order[-1]] != order[-1]:
        return False
    row = access.tensor.shape[form.order[-1]] * access.dtype.itemsize
    return row % int(LINE) == 0 and len(cin.bound_by(access)) < len(order)


def _copy(nest: Nest, known: Facts, name: str) -> float:
    """What the copy of an operand before a kernel runs costs."""
    return machine.current().call + PASSES * one_pass(nest, known, name)


def one_pass(nest: Nest, known: Facts, name: str) -> float:
    """What an operand takes that is read and written from the first to the last line, after all that the kernel passes."""
    here = machine.current()
    sizes = {t.name: known[t.name][-1] * t.dtype.itemsize for t in nest.inputs}
    size, output = sizes[name], math.prod(map(int, nest.output.shape)) * nest.output.dtype.itemsize
    around = sum(sizes.values()) + size + (output if nest.output.format.is_dense else 0)
    passed = [memory.Lines(size / LINE, around, 0.0)]
    return memory.price(passed, here, False) + memory.price(passed, here, True)
