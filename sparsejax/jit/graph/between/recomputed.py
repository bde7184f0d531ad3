"""Cheap values that several kernels read: computed again by each of them where that is cheaper than to store and read them.

before:  Q[i,j] = A[i,j] * x[j] | r[i] += Q[i,k] * y[k] | out[i] += Q[k,i]        three kernels, Q is stored
after:   r[i] += A[i,k] * x[k] * y[k] | out[i] += A[k,i] * x[i]                   two

A gradient reads what arrives at a product by rows and by columns: `fuse` moves it into elementwise readers alone, `fuse_reductions` where all readers are
one kernel. All kernels are priced with and without; the result does not change, as what is computed does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sparsejax.core.jaxpr import Jaxpr, Var
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import machine
from sparsejax.jit.graph import expected, fuse_reductions, limits, partition
from sparsejax.jit.graph import price as pricing
from sparsejax.jit.ir import choices, cin, simplify
from sparsejax.jit.ir.nest import Nest


def moved(
    steps: list[partition.Step], jaxpr: Jaxpr, observed: expected.Known | Mapping[Var, Storage]
) -> list[partition.Step]:
    """`steps` without the values that are cheaper to compute where they are read."""
    results = {a for a in jaxpr.outputs if isinstance(a, Var)}
    made, known = list(steps), None
    for var in [s.output for s in reversed(steps) if isinstance(s, partition.KernelStep) and _cheap(s) is not None]:
        if var in results:
            continue
        readers = [n for n, s in enumerate(made) if var in expected.inputs(s)]
        own = [s for n in readers if isinstance(s := made[n], partition.KernelStep)]
        if len(own) < 2 or len(own) < len(readers):
            continue
        stored = next(s for s in made if isinstance(s, partition.KernelStep) and s.output is var)
        source = _cheap(stored)
        tried = [None if source is None else fuse_reductions.inlined(reader, source) for reader in own]
        if None in tried:
            continue
        known = known or expected.of_program(steps, jaxpr, observed)
        before, after = (_price([*own, stored], known), _price([t for t in tried if t is not None], known))
        if before is None or after is None:
            continue
        before += pricing.stored(var, known) + machine.current().call
        way = "again" if after < before else "apart"
        if choices.pick("fusion", ("apart", "again"), way) == "apart":
            continue
        text = f"{stored.nest.value} is computed again where it is read: cost {after:.4g}, stored {before:.4g}"
        for n, step in zip(readers, tried, strict=True):
            assert step is not None
            made[n] = replace(step, priced=(*step.priced, text))
        made.remove(stored)
    return made


def _cheap(step: partition.KernelStep) -> partition.KernelStep | None:
    """A kernel that computes a few instructions for every entry, without sums of which nothing is summed; None for others."""
    nest = step.nest
    if any(not set(cin.variables(p.rhs)) <= set(p.target.indices) for p in nest.producers):
        return None
    value = nest.composite
    # a mask asks nothing where the entries of it are walked
    if not simplify.cheap(value, free=("masked", "stored")) or limits.nodes(value) > limits.SHARED:
        return None
    return replace(step, nest=Nest(nest.output, nest.indices, (), value)) if nest.producers else step


def _price(steps: list[partition.KernelStep], known: expected.Known) -> float | None:
    total = 0.0
    for step in steps:
        own = known.cost(step)
        if own is None:
            return None
        total += own
    return total
