"""What some steps of a program cost in all: each of them, a call each, and what is stored between them. Every pass over the graph prices so."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from sparsejax.core.jaxpr import Eqn, Var
from sparsejax.jit.cost import machine
from sparsejax.jit.graph import expected, partition
from sparsejax.lax.contract import contract_p, extents_of


def price(steps: Sequence[partition.Step], known: expected.Known, results: Collection[Var]) -> float | None:
    """The nanoseconds of some steps, one after the other, whose values become `known`; `results` are stored anyway. None where one of them
    has no price."""
    total = 0.0
    for step in steps:
        own = known.cost(step) if isinstance(step, partition.KernelStep) else library(step.eqn)
        if own is None:
            return None
        known.add(step)
        total += own + machine.current().call + sum(stored(v, known) for v in step.outputs if v not in results)
    return total


def stored(var: Var, known: expected.Known) -> float:
    """What storing a value between two steps costs, and reading it from there, besides waiting for its cache lines."""
    return machine.current().store * known.entries(var)


def library(eqn: Eqn) -> float | None:
    """What a product of dense operands costs, which a library computes; None for other operations."""
    if eqn.primitive is not contract_p:
        return None
    extents = extents_of([a.aval.shape for a in eqn.inputs], eqn.param_dict["inputs"])
    return machine.current().multiply * math.prod(map(float, extents.values()))
