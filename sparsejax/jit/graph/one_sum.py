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
from sparsejax.jit.graph import price as pricing
from sparsejax.jit.ir import choices, cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import row_panels, search


def merged(steps: Sequence[partition.Step], jaxpr: Jaxpr, observed: Mapping[Var, Storage]) -> list[partition.Step]:
    """`steps` with sums inside of sums as one sum where that is cheaper, given the program's inputs: inside of a kernel, or in the one before that
    nobody else reads."""
    if not any(isinstance(s, partition.KernelStep) and (s.nest.nested or _is_sum(s.nest)) for s in steps):
        return list(steps)
    made: list[partition.Step] = []
    known: expected.Known | None = None
    for number, step in enumerate(steps):
        if isinstance(step, partition.KernelStep):
            first = _before(step, made, steps[number + 1 :], jaxpr)
            found: dict[str, Var] = {}
            flat = _flat(_joined(first, step, found))
            if flat is not None:
                known = known or expected.of_program(steps, jaxpr, observed)
                one = _cheaper(first, step, flat, found, known)
                if one is not None:
                    made, step = [s for s in made if s is not first], one
        made.append(step)
    return made


def _is_sum(nest: Nest) -> bool:
    """Whether a kernel is a sum of products, of which all are of one type."""
    return nest.direct and nest.producers[0].op == "add" and _is_product(nest.producers[0].rhs, nest.output.dtype)


def _before(
    step: partition.KernelStep, made: Sequence[partition.Step], later: Sequence[partition.Step], jaxpr: Jaxpr
) -> partition.KernelStep | None:
    """The kernel before a sum of products that is another one, and read by it alone, once."""
    if not _is_sum(step.nest):
        return None
    read = {v for s in (*made, *later) for v in expected.inputs(s)} | set(jaxpr.outputs)
    for s in made:
        if not isinstance(s, partition.KernelStep) or step.arguments.count(s.output) != 1 or s.output in read:
            continue
        if _is_sum(s.nest) and s.nest.output.dtype == step.nest.output.dtype:
            return s
    return None


def _joined(first: partition.KernelStep | None, step: partition.KernelStep, variables: dict[str, Var]) -> Nest:
    """The nest of a step with that of the one before it inside; `variables` gets what its tensors stand for."""
    nest = fuse_reductions.named(step, variables, "f")
    if first is None:
        return nest
    name = dict(zip(step.arguments, (t.name for t in step.nest.inputs), strict=True))[first.output]
    places = [k for k, a in enumerate(step.nest.reads) if a.tensor.name == name]
    access = nest.reads[places[0]]
    if len(places) > 1 or not cin.are_variables(access.indices) or len(set(access.indices)) < len(access.indices):
        return nest
    inner = fuse_reductions.named(first, variables, "g").over(access.indices)
    (own,), (last,) = inner.producers, nest.producers
    return replace(nest, producers=(own, replace(last, rhs=cin.substitute(last.rhs, {access: own.target}))))


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


def _cheaper(
    first: partition.KernelStep | None,
    step: partition.KernelStep,
    flat: Nest,
    variables: dict[str, Var],
    known: expected.Known,
) -> partition.KernelStep | None:
    """The step as one sum; None where it is no cheaper so."""
    whole = known.cost(step) if first is None else pricing.price([first, step], known.copy(), (step.output,))
    made = fuse.canonical(flat, step.output, variables)
    nest, facts = known.facts(made)
    plain = known.schedule(made)
    if whole is None or plain is None:
        return None
    with choices.pricing():
        cost = row_panels.chosen(nest, facts, plain, search.choose).cost.total
    if choices.pick("sums_inside", ("kept", "one"), "one" if cost < whole else "kept") == "kept":
        return None
    text = f"{flat.value} is one sum: cost {cost:.4g}, sums inside kept {whole:.4g}"
    priced = (*(() if first is None else first.priced), *step.priced, text)
    return replace(made, priced=priced, filled=step.filled, notes=step.notes)
