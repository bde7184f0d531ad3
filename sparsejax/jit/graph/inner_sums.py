"""Sums over an axis of a product whose one operand alone has that axis: that operand is summed first, where that is cheaper.

before:  C = contract A B;  y = reduce C            C[i,k] += A[i,j] * B[j,k],   y[i] += C[i,k]
after:   s = reduce B;      y = contract A s        s[j] += B[j,k],              y[i] += A[i,j] * s[j]

A[i,j] is multiplied once, not once for each B[j,k]: `(A @ A).sum(axis=1)` visits every entry twice, not as often as it leads to others,
and no row of the product is kept. It is an association (`reassociate`), of a product of A, B and ones, with the same guards: the sum is
that of the product's semiring, nobody else reads the product, whose format is not pinned, what is not stored is the semiring's zero, and
floats are finite and moderate, or the program runs as it is written. Sums in another dtype than the product's stay: int32 products that
wrap are summed in 64 bits. The choice is called `reductions` (`alternatives.CHOICES`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Eqn, Jaxpr, Var
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import decision_cache
from sparsejax.jit.graph import expected, reassociate
from sparsejax.jit.graph.reassociate import Chosen, Labels, Pair
from sparsejax.jit.ir import choices
from sparsejax.lax.reduce import reduce_p


@dataclass(frozen=True)
class _Sum(Pair):
    """A contraction, the sum over axes of its result, and the labels of them that each operand alone has."""

    own: tuple[Labels, ...]


def cheapest(
    jaxpr: Jaxpr, observed: Mapping[Var, Storage], refused: Collection[Var] = ()
) -> tuple[Jaxpr, list[Chosen]]:
    """`jaxpr` with its sums of products, but those that are `refused`, where they are cheapest, given the program's inputs; and what both ways cost."""
    return reassociate.in_turn(jaxpr, observed, refused, _sums, _cheaper, 1)


def _sums(jaxpr: Jaxpr) -> list[_Sum]:
    """The sums of products that nobody else reads, of which an axis belongs to one operand alone."""
    made = {e.outputs[0]: e for e in jaxpr.eqns if reassociate.is_plain(e)}
    reduced = [e for e in jaxpr.eqns if e.primitive is reduce_p and e.inputs[0] in made] if made else []
    if not reduced:
        return []
    uses = Counter(a for atoms in (*(e.inputs for e in jaxpr.eqns), jaxpr.outputs) for a in atoms if isinstance(a, Var))
    found: list[_Sum] = []
    for eqn in reduced:
        var = eqn.inputs[0]
        assert isinstance(var, Var)
        params = made[var].param_dict
        if uses[var] != 1 or params["out_format"] is not None or not reassociate.is_sum(eqn, params):
            continue
        summed = {params["output"][a] for a in eqn.param_dict["axes"]}
        inputs: tuple[Labels, ...] = params["inputs"]
        counts = Counter(x for labels in inputs for x in labels)
        own = tuple(tuple(x for x in labels if x in summed and counts[x] == 1) for labels in inputs)
        if any(own):
            operands = tuple(a for a in made[var].inputs if isinstance(a, Var))
            output = tuple(x for x in params["output"] if x not in summed)
            found.append(_Sum(made[var], eqn, params, operands, inputs, output, own))
    return found


def _inside(found: _Sum) -> list[Eqn] | None:
    """Operands summed over the labels that they alone have, and the contraction of those; None where the result would have another type, or an
    operand is summed as the product's entries are not."""
    params, eqns = found.params, list[Eqn]()
    operands: list[Var] = []
    inputs: list[Labels] = []
    for var, labels, own in zip(found.operands, found.inputs, found.own, strict=True):
        if own:
            axes = tuple(k for k, x in enumerate(labels) if x in own)
            of = {**found.outer.param_dict, "axes": axes}
            aval: Aval = reduce_p.typing(var.aval, **of)
            eqn = Eqn(reduce_p, (var,), tuple(of.items()), (Var(aval),), found.outer.source)
            if not reassociate.is_sum(eqn, params):
                return None
            eqns.append(eqn)
            var = eqn.outputs[0]
        operands.append(var)
        inputs.append(tuple(x for x in labels if x not in own))
    last = reassociate.making(found.outer.outputs[0], found.inner, operands, inputs, found.output, None)
    return None if last is None else [*eqns, last]


def _cheaper(found: _Sum, known: expected.Known, looks: float) -> tuple[list[Eqn], str]:
    """The sum of operands first, where that is cheaper even if `looks` is paid for it; and the prices of both ways."""
    inside = _inside(found)
    if inside is None:
        return [], ""
    known, result, params = known.only(found.operands), found.outer.outputs[0], found.params

    def prices() -> str:
        ways = [found.inner, found.outer], inside
        return json.dumps([reassociate.cost_of(eqns, found.operands, (result,), known) for eqns in ways])

    forms = params, found.outer.param_dict, looks
    key = reassociate.key_of("sum inside", found.operands, found.inputs, known, forms)
    written, price = json.loads(decision_cache.remembered(key, prices))
    if written is None or price is None:
        return [], ""
    price += looks
    first, second = _texts(found)
    best = "inside" if price <= reassociate.SURE * written else "outside"
    way = choices.pick("reductions", ("outside", "inside"), best)
    text = f"{first}: cost {price:.4g}, as written {second}: {written:.4g}"
    return inside if way == "inside" else [], text


def _texts(found: _Sum) -> tuple[str, str]:
    """Both orders of sums in subscripts: operands first, and as it is written."""
    inputs, count = found.inputs, len(found.own)
    left = [tuple(x for x in ls if x not in own) for ls, own in zip(inputs, found.own, strict=True)]
    output, *terms = reassociate.subscripts(found.output, *inputs, *left, found.params["output"])
    products, rest, product = terms[:count], terms[count:-1], terms[-1]
    summed = [f"({p}->{r})" if own else p for p, r, own in zip(products, rest, found.own, strict=True)]
    return f"{','.join(summed)}->{output}", f"({','.join(products)}->{product})->{output}"
