"""Sums whose result stores some rows, each as a whole: added up in a dense array where that lets operands be read in panels, then copied.

before:  out:(c,d)[x,m] += In[N[x,z],c] * W[z,c,m]                       rows are appended: all of W is read for every row
after:   t:dense[x,m] += In[N[x,z],c] * W[z,c,m]                         N in panels of rows (`schedule/row_panels`)
         r[x] or= stored(N[x,z]) | out:(c,d)[x,m] = t[x,m] where r[x] is stored

Rows that are appended come one after the other; those of a panel are added to together. What is stored is the same, and every row adds up its terms in
the same order. Taken where the steps cost less together, and the dense array has at most `ROOM` times the elements of the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Jaxpr, Var
from sparsejax.formats import Compressed, Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import machine
from sparsejax.jit.graph import expected, fuse, fuse_reductions, partition
from sparsejax.jit.graph import price as pricing
from sparsejax.jit.ir import choices, cin, simplify
from sparsejax.jit.ir.nest import Nest, of_definition
from sparsejax.jit.schedule import row_panels, search

ROOM = 4.0
"""Elements of the dense array for each that the result is expected to have."""

BOOL: np.dtype[np.generic] = np.dtype(np.bool_)


def summed(steps: Sequence[partition.Step], jaxpr: Jaxpr, observed: Mapping[Var, Storage]) -> list[partition.Step]:
    """`steps` with sums of stored rows in dense arrays where that is cheaper, given the program's inputs."""
    return expected.apart(steps, jaxpr, observed, lambda step: _dense(step.nest), _parts)


def _dense(nest: Nest) -> Nest | None:
    """A sum whose result stores whole rows, with a dense result that can be added to in panels; None of another kernel."""
    form = nest.output.format
    if not nest.direct or form.is_dense or form.blocked or nest.bounded or nest.output.source is not None:
        return None
    if not form.levels[0].listed or not all(level.full for level in form.levels[1:]):
        return None
    made = _with_output(nest, nest.output._replace(format=Format.parse("dense", form.ndim)))
    found = row_panels.considered(made)
    if isinstance(found, str):
        return None
    (access,) = (a for a in nest.reads if a.tensor.name == found[0])
    return made if nest.indices[form.order[0]] in access.indices else None


def _with_output(nest: Nest, output: cin.Tensor) -> Nest:
    (producer,) = nest.producers
    fill = producer.target.tensor.fill_value
    target = cin.Access(producer.target.tensor._replace(format=output.format), producer.target.indices)
    output = output._replace(fill_value=fill if not output.format.is_dense else output.dtype.type(0))
    return Nest(output, nest.indices, (replace(producer, target=target),), target)


def _parts(step: partition.KernelStep, _: Nest, known: expected.Known) -> list[partition.Step] | None:
    """The steps that stand for a kernel; None where it is no cheaper so."""
    whole, found = known.cost(step), known.copy()
    found.add(step)
    if whole is None or math.prod(map(float, step.nest.output.shape)) > ROOM * found.entries(step.output):
        return None
    variables: dict[str, Var] = {}
    nest = fuse_reductions.named(step, variables, "d")
    dense = _dense(nest)
    assert dense is not None
    panels = row_panels.find(dense)
    assert panels is not None
    (walked,) = (a for a in nest.reads if a.tensor.name == panels[0])
    row = nest.indices[nest.output.format.order[0]]
    total = Var(Aval(dense.output.shape, dense.output.dtype, dense.output.format))
    rows = Var(Aval((dense.output.shape[nest.output.format.order[0]],), BOOL, Format((Compressed(),))))
    stored = cin.Call("stored", (walked,), BOOL)
    true, false = simplify.literal(True, BOOL), replace(simplify.literal(False, BOOL), absent=True)
    named = cin.Definition((row,), "logical_or", cin.Call("masked", (stored, true, false), BOOL))
    parts = [
        fuse.canonical(dense, total, variables),
        fuse.canonical(of_definition(fuse.tensor_of("out", rows.aval), named), rows, variables),
    ]
    variables |= {"total": total, "rows": rows}
    there = cin.Call("stored", (cin.Access(fuse.tensor_of("rows", rows.aval), (row,)),), BOOL)
    nothing = replace(simplify.literal(nest.output.fill_value, nest.output.dtype), absent=True)
    value = cin.Access(fuse.tensor_of("total", total.aval), nest.indices)
    copied = cin.Call("masked", (there, value, nothing), nest.output.dtype)
    parts.append(fuse.canonical(Nest(nest.output, nest.indices, (), copied), step.output, variables))
    apart = _price(parts, known.copy(), step.output)
    if apart is None:
        return None
    cheapest = "dense" if apart < whole + machine.current().call else "stored"
    if choices.pick("row_sums", ("stored", "dense"), cheapest) == "stored":
        return None
    text = f"rows are summed in a dense array: cost {apart:.4g}, appended {whole:.4g}"
    parts[-1] = replace(parts[-1], priced=(*step.priced, text))
    return list(parts)


def _price(parts: Sequence[partition.KernelStep], known: expected.Known, output: Var) -> float | None:
    """What the steps cost together, the first in panels where these are cheaper."""
    first = parts[0]
    nest, facts = known.facts(first)
    plain = known.schedule(first)
    if plain is None:
        return None
    with choices.pricing():
        panels = row_panels.chosen(nest, facts, plain, search.choose)
    total = pricing.price(parts, known, (output,))
    return None if total is None else total - plain.cost.total + panels.cost.total
