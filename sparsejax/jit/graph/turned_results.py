"""Dense results computed in the order of a dense operand, and turned into that of their dimensions afterwards.

before:  out:dense[i,j] += X:dense@(1,0)[i,k] * B:csr[k,j]       every entry of B adds to places of out that lie a row apart
after:   t:dense@(1,0)[i,j] += X[i,k] * B[k,j]                   it adds a vector of X to one of t
         out:dense = convert_format t

A dense result is stored in the order of its dimensions (`ir/infer_formats`), whatever is best for its loops. Turning one costs a pass over it, which
pays where every element is added to several times. Considered where the innermost dimension of a dense operand is another one of the
result than its last, in a sum with sparse operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Eqn, Jaxpr, Var
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import machine
from sparsejax.jit.graph import expected, partition
from sparsejax.jit.graph.intermediate_storage import with_storage
from sparsejax.jit.ir import choices
from sparsejax.jit.ir.nest import Nest
from sparsejax.lax.structural import convert_p


def turned(steps: Sequence[partition.Step], jaxpr: Jaxpr, observed: Mapping[Var, Storage]) -> list[partition.Step]:
    """`steps` with dense results in the order of an operand where computing and turning these is cheaper, given the program's inputs."""
    return expected.apart(steps, jaxpr, observed, lambda step: _orders(step.nest), _parts)


def _orders(nest: Nest) -> list[tuple[int, ...]]:
    """The orders in which a dense operand would have the result: its innermost dimension last."""
    form = nest.output.format
    plain = form.is_dense and form.ndim > 1 and form.order == tuple(range(form.ndim)) and not form.blocked
    if not plain or not nest.producers or nest.has_constant or not any(a.tensor.lacks for a in nest.reads):
        return []
    # a sum that is repeated along an axis has fewer dimensions than the result
    if any(p.target.indices != nest.indices for p in nest.producers):
        return []
    found = []
    for access in nest.reads:
        own = access.tensor.format
        if not own.is_dense or own.ndim < 2 or own.blocked:
            continue
        last = access.indices[own.order[-1]]
        if last in nest.indices[:-1]:
            d = nest.indices.index(last)
            found.append((*(e for e in form.order if e != d), d))
    return list(dict.fromkeys(found))


def _parts(
    step: partition.KernelStep, orders: Sequence[tuple[int, ...]], known: expected.Known
) -> list[partition.Step] | None:
    """A kernel and the conversion of its result; None where the kernel alone is no dearer."""
    plain, here = known.cost(step), machine.current()
    if plain is None:
        return None
    aval = step.output.aval
    tried = []
    for order in orders:
        new = Var(Aval(aval.shape, aval.dtype, Format(aval.format.levels, order), aval.fill_value))
        made = with_storage(step, step.output, new)
        cost = known.cost(made)
        if cost is not None:
            tried.append((cost + here.call + here.store * known.entries(step.output), made))
    if not tried:
        return None
    cost, made = min(tried, key=lambda one: one[0])
    if choices.pick("results", ("straight", "turned"), "turned" if cost < plain else "straight") == "straight":
        return None
    text = f"{step.nest.value} is stored {made.nest.output.format} and turned: cost {cost:.4g}, straight {plain:.4g}"
    eqn = Eqn(convert_p, (made.output,), (("format", aval.format),), (step.output,))
    return [replace(made, priced=(*made.priced, text)), partition.CallStep(eqn)]
