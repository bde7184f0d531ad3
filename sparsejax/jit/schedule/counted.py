"""What is counted of a kernel under a loop order, by its model (`search.Model`): how often loops run, what a workspace receives, what a result holds."""

from __future__ import annotations

from sparsejax.jit.cost import workspace_choice
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import search
from sparsejax.jit.schedule.schedules import Loop


def loops(nest: Nest, facts: Facts, order: tuple[cin.IndexVar, ...]) -> tuple[Loop, ...]:
    """What the cost of an order's loops is made of."""
    counted = search.model(nest, facts)
    made = []
    for k, var in enumerate(order):
        state, grown = counted.walk(order[:k]), counted.walk(order[: k + 1])
        leaders, discordant, _ = counted.roles(state, var)
        copied = counted.copied(leaders, discordant, state)
        work = state.survivors * counted.iterations(leaders, var, state.bound, counted.fills(grown.order), copied)
        made.append(Loop(var, state.survivors, work, grown.survivors, tuple(a.tensor.name for a in leaders)))
    return tuple(made)


def points(nest: Nest, facts: Facts) -> float:
    """How often the body of all loops is expected to run."""
    made = search.model(nest, facts)
    return made.points(made.walk(nest.variables))


def workspace(nest: Nest, facts: Facts, order: tuple[cin.IndexVar, ...]) -> workspace_choice.Choice | None:
    """The workspace for `nest` under a loop order; None when its output needs none."""
    made = search.model(nest, facts)
    return made.workspace(made.walk(order))


def output_sizes(nest: Nest, facts: Facts) -> tuple[int, ...]:
    """For every level of the output that starts a segment, how many coordinates to make room for at first.

    Twice the expectation, since facts are rounded; never more than four times the entries of all inputs, since products
    may have far more partial results than entries. Too small a number costs a reallocation, never a failure.
    """
    limit = 1024 + 4 * sum(counts[-1] for counts in facts.counts.values())
    form, counts = nest.output.format, search.level_counts(nest, facts)
    ends = [stop - 1 for _, stop in form.runs if not form.levels[stop - 1].full]
    return tuple(int(min(limit, 2 * counts[level])) for level in ends)
