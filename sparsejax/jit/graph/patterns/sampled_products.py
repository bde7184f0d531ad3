"""Products of sparse arrays that everybody reads where another array has entries are computed there alone.

before:  c = contract a b;              d = multiply c m;  f = sample x d;  g = multiply f c        f stores nothing that m does not
after:   c = contract a b mask m;       d = multiply c m;  f = sample x d;  g = multiply f c

With one reader that is one kernel (`fuse`); with several, as in a program that has its gradient (counts of triangles), the product is stored for
them, and of its entries few are read.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparsejax.core.jaxpr import Eqn, Jaxpr, Var
from sparsejax.jit.graph.patterns.changes import changed, is_typed
from sparsejax.jit.graph.patterns.relations import Patterns
from sparsejax.lax.contract import contract_p


def masked(jaxpr: Jaxpr) -> Jaxpr:
    """`jaxpr` with masks on products of which no more is read."""
    products = [e for e in jaxpr.eqns if _is_product(e)]
    if not products:
        return jaxpr
    known, results = Patterns(jaxpr), {a for a in jaxpr.outputs if isinstance(a, Var)}
    first = dict.fromkeys((*jaxpr.inputs, *jaxpr.consts), -1) | {
        v: n for n, e in enumerate(jaxpr.eqns) for v in e.outputs
    }
    made: dict[Eqn, Eqn] = {}
    for eqn in products:
        out = eqn.outputs[0]
        readers = [e for e in jaxpr.eqns if out in e.inputs]
        if out in results or len(readers) < 2:
            continue
        bounds = [set(_bounds(out, e, known)) for e in readers]
        common = [m for m in set.intersection(*bounds) if first.get(m, len(first)) < first[out]]
        if common:
            mask = min(common, key=lambda m: m.number)
            tried = changed(eqn, (*eqn.inputs, mask), out, out_format=out.aval.format, mask="mask")
            if is_typed(tried):
                made[eqn] = tried
    eqns = tuple(made.get(e, e) for e in jaxpr.eqns)
    return Jaxpr(jaxpr.inputs, jaxpr.consts, eqns, jaxpr.outputs) if made else jaxpr


def _is_product(eqn: Eqn) -> bool:
    """Whether an operation sums products of two sparse arrays, where these are stored, in plain arithmetic."""
    if eqn.primitive is not contract_p or len(eqn.inputs) != 2:
        return False
    params = eqn.param_dict
    if params.get("ring") is not None or any(a.aval.format.is_dense or a.aval.fill_value != 0 for a in eqn.inputs):
        return False
    summed = {x for own in params["inputs"] for x in own} - set(params["output"])
    return bool(summed) and not eqn.outputs[0].aval.format.is_dense


def _bounds(product: Var, reader: Eqn, known: Patterns) -> Iterable[Var]:
    """Arrays without an entry of which a reader reads none of the product."""
    if reader.primitive.multiple:
        return
    for var in known.needed(reader.outputs[0]):
        if var != product:
            yield from known.inside(var)
