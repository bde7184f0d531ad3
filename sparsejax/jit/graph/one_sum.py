"""Sums of products inside of sums: one sum over the loops of both, where that lets a sparse operand be read in panels.

before:  w[x,z,c] += S[x,z,y] * In[y,c]                          row by row: all of W[z] is read for every (x, z) that S stores
         out[x,m] += w[x,z,c] * W[z,c,m]
after:   out[x,m] += S[x,z,y] * In[y,c] * W[z,c,m]               S in panels of rows (`schedule/row_panels`): its entries share W[z] as rows of tiles

Both have as many products where S stores one y for most (x, z). Terms are added up in another order, within a row still one after the other. Taken
where it is cheaper with the copy in panels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparsejax.core.jaxpr import Jaxpr, Var
from sparsejax.formats.storage import Storage
from sparsejax.jit.graph import expected, fuse, fuse_reductions, partition
from sparsejax.jit.ir import choices, cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import row_panels, search


def merged(steps: Sequence[partition.Step], jaxpr: Jaxpr, observed: Mapping[Var, Storage]) -> list[partition.Step]:
    """`steps` with sums inside of sums as one sum where that is cheaper, given the program's inputs."""
    return expected.apart(steps, jaxpr, observed, lambda step: _flat(step.nest) is not None, _parts)


def _flat(nest: Nest) -> Nest | None:
    """The nest with all its sums as one, of which an operand may be read in panels; None of another kernel."""
    if not nest.nested or nest.bounded or nest.has_constant or len(nest.producers) < 2:
        return None
    *inner, last = nest.producers
    if nest.value != last.target or set(nest.indices) != set(last.target.indices):
        return None
    if any(p.op != "add" or not _is_product(p.rhs, nest.output.dtype) for p in nest.producers):
        return None
    made = last.rhs
    for p in reversed(inner):
        read = [a for a in cin.accesses(made) if a.tensor.name == p.target.tensor.name]
        own = {v for a in cin.accesses(p.rhs) for v in cin.bound_by(a)} - set(cin.bound_by(p.target))
        outside = {v for a in cin.accesses(made) for v in cin.bound_by(a)}
        if len(read) != 1 or read[0] != p.target or own & outside:
            return None
        made = cin.substitute(made, {p.target: p.rhs})
    flat = Nest(nest.output, nest.indices, (replace(last, rhs=made),), nest.value)
    return flat if row_panels.find(flat) is not None else None


def _is_product(expr: cin.Expr, dtype: object) -> bool:
    """Whether an expression is a product of accesses, all of one type."""
    if isinstance(expr, cin.Call):
        return expr.op == "multiply" and all(_is_product(a, dtype) for a in expr.args)
    return isinstance(expr, cin.Access) and expr.dtype == dtype


def _parts(step: partition.KernelStep, known: expected.Known) -> list[partition.Step] | None:
    """The step as one sum; None where it is no cheaper so."""
    whole = known.cost(step)
    variables: dict[str, Var] = {}
    flat = _flat(fuse_reductions.named(step, variables, "f"))
    if whole is None or flat is None:
        return None
    made = fuse.canonical(flat, step.output, variables)
    nest, facts = known.facts(made)
    plain = known.schedule(made)
    if plain is None:
        return None
    with choices.pricing():
        cost = row_panels.chosen(nest, facts, plain, search.choose).cost.total
    if choices.pick("sums_inside", ("kept", "one"), "one" if cost < whole else "kept") == "kept":
        return None
    text = f"{flat.value} is one sum: cost {cost:.4g}, sums inside kept {whole:.4g}"
    return [replace(made, priced=(*step.priced, text), filled=step.filled, notes=step.notes)]
