"""What a kernel will need, forecast from facts before it runs: nanoseconds, and bytes of the output, workspaces and converted operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sparsejax.formats import Format, convert
from sparsejax.jit.cost import machine, workspace_price
from sparsejax.jit.cost.statistics import Facts, Positions, crossed_of, runs_of, spread_of
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.ir.program import Program
from sparsejax.jit.schedule import search, statements
from sparsejax.jit.schedule.schedules import Schedule

POS_BYTES = 8


def nanoseconds(nest: Nest, schedule: Schedule, known: Facts, counted: Facts) -> float:
    """What a run of a kernel is expected to take on one thread, once copies are there. Its schedule was priced with what is `known`, rounded so that it
    serves other arrays; the forecast is as many times that price as the loops cost with what is `counted` on these arrays."""
    before, after = (_priced(nest, schedule, facts) for facts in (known, not_rounded(known, counted)))
    return schedule.cost.running * (after / before if before and after else 1.0) + machine.current().call


def not_rounded(known: Facts, counted: Facts) -> Facts:
    """What is counted, with how close together entries lie, which only rounded counts tell."""
    near = {
        n: Positions(c, spread_of(known[n]), crossed_of(known[n]), runs_of(known[n])) for n, c in counted.counts.items()
    }
    return replace(counted, counts=near)


def _priced(nest: Nest, schedule: Schedule, facts: Facts) -> float:
    """What the loops of a schedule cost with these facts; 0 where they are not what the scheduler prices."""
    if set(schedule.order) != set(nest.storage_indices if nest.nested else nest.variables):
        return 0.0
    if not nest.nested:
        return search.schedule_of(nest, facts, schedule.order).cost.running
    found = statements.candidates(nest, facts)
    return next((c.cost.running for c in found if c.order == schedule.order), 0.0)


def storage_bytes(form: Format, shape: Sequence[int], dtype: np.dtype[Any], counts: Sequence[float]) -> int:
    """Bytes of an array in `form` with `counts[l]` positions at storage level `l`.

    >>> storage_bytes(Format.parse("csr", 2), (3, 4), np.dtype("f8"), (3, 5))  # pos 4 * 8, crd 5 * 4, values 5 * 8
    92
    """
    total, parents = 0.0, 1.0
    extents = form.level_extents(shape)
    for first, stop in form.runs:
        count = counts[stop - 1]
        for level in range(first, stop):
            kinds, per = form.levels[level].buffer_types(), form.levels[level].per
            for name in form.buffer_names(level):
                size = convert.crd_dtype(extents[level]).itemsize if kinds[name] == "crd" else POS_BYTES
                held = {
                    "edge": parents + 1,
                    "parent": parents,
                    "word": parents * -(-extents[level] // 64),
                    "position": count,
                }
                total += size * held.get(per[name], 0)
        parents = count
    return round(total + (counts[-1] if counts else 1) * dtype.itemsize)


def output_bytes(nest: Nest, facts: Facts, entries: float | None = None) -> int:
    """Expected bytes of the output; `entries` of its last level, where more is known than the model can tell."""
    output = nest.output
    counts = search.level_counts(nest, facts)
    sparse = output.format.sparse
    if entries is not None and sparse:
        below = math.prod(output.shape[output.format.order[lv]] for lv in range(sparse[-1] + 1, len(counts)))
        counts = tuple(
            c if lv < sparse[-1] else entries / max(1, below) * (c / max(1e-9, counts[sparse[-1]]))
            for lv, c in enumerate(counts)
        )
    return storage_bytes(output.format, output.shape, output.dtype, counts)


def conversion_bytes(tensor: cin.Tensor, form: Format, counts: Sequence[float]) -> int:
    """Expected bytes of a copy of `tensor` (with `counts` positions per level) in `form`: an upper bound, as every
    level below a dense root is taken to have as many positions as there are entries."""
    entries, made, count = counts[-1], [], 1.0
    for level, extent in enumerate(form.level_extents(tensor.shape)):
        count = count * extent if form.levels[level].full else min(count * extent, entries)
        made.append(count)
    return storage_bytes(form, tensor.shape, tensor.dtype, made)


def workspace_bytes(tensor: cin.Tensor, inserts: float, entries: float) -> int:
    """Expected bytes of a workspace that receives `inserts` insertions in one use, which make `entries` entries.

    Rough for the growing policies, whose lists have up to twice the room that they need: a table that is half full, its entries in
    order and a list to sort them with; three lists; lists by digit and all of them in order.
    """
    item = tensor.dtype.itemsize
    entry = item + 8 * (1 + max(workspace_price.words_of(tensor.shape), default=0))
    size = math.prod(tensor.shape)
    match tensor.policy:
        case "scalar":
            return item
        case "overlay":
            return 0
        case "dense":
            return size * item
        case "bitmap" | "marks":
            inner = tensor.shape[1:]
            padded = tensor.shape[0] << sum(map(workspace_price.bits_of, inner))
            return padded * (item + 1) + padded // 8 + round(8 * entries)
        case "hash":
            return round(3 * entries * (entry + 8) + 2 * entries * entry)
        case "coordinate":
            return round(2 * entries * entry + min(inserts, max(4096.0, entries)) * entry)
        case _:
            return round(3 * entries * entry)


def workspaces(program: Program) -> list[tuple[cin.Tensor, tuple[cin.IndexVar, ...], cin.Where]]:
    """Every workspace of a program, with the loops around it and its `where`, outermost first."""
    found: list[tuple[cin.Tensor, tuple[cin.IndexVar, ...], cin.Where]] = []

    def visit(stmt: cin.Stmt | None, around: tuple[cin.IndexVar, ...]) -> None:
        match stmt:
            case cin.Forall(var, body, _):
                visit(body, (*around, var))
            case cin.Where(consumer, producer):
                found.append((cin.workspace(stmt), around, stmt))
                visit(producer, around)
                visit(consumer, around)
            case cin.Seq(stmts):
                for inner in stmts:
                    visit(inner, around)

    visit(program.stmt, ())
    return found
