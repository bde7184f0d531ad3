"""Sums of arrays that are padded, as one: the gradient of `w[0] * w[1]` is one array of zeros with two numbers in it.

before:  c = pad[0] a;  d = pad[2:5] b;  e = add c d
after:   e = pad[0 + 2:5] a b
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sparsejax.core.jaxpr import Atom, Eqn, Jaxpr
from sparsejax.lax.elementwise import primitives
from sparsejax.lax.indexing import pad_p


def merged(jaxpr: Jaxpr) -> Jaxpr:
    """`jaxpr` with one array in place of padded ones that their sum alone reads."""
    if sum(eqn.primitive is pad_p for eqn in jaxpr.eqns) < 2:
        return jaxpr
    reads = Counter(a for atoms in (*(eqn.inputs for eqn in jaxpr.eqns), jaxpr.outputs) for a in atoms)
    padded: dict[Atom, Eqn] = {}
    made: list[Eqn] = []
    for eqn in jaxpr.eqns:
        terms = _terms(eqn, padded, reads)
        eqn = eqn if terms is None else _joined(eqn, terms)
        if eqn.primitive is pad_p:
            padded[eqn.outputs[0]] = eqn
        made.append(eqn)
    return Jaxpr(jaxpr.inputs, jaxpr.consts, tuple(made), jaxpr.outputs)


def _terms(eqn: Eqn, padded: Mapping[Atom, Eqn], reads: Mapping[Atom, int]) -> list[Eqn] | None:
    """The equations of the two terms, where `eqn` is a sum of padded arrays of one type that nothing else reads."""
    if eqn.primitive is not primitives["add"]:
        return None
    found = [padded[a] for a in eqn.inputs if a in padded and reads[a] == 1]
    same = all(e.outputs[0].aval == eqn.outputs[0].aval for e in found)
    return found if len(found) == 2 and same else None


def _joined(eqn: Eqn, terms: list[Eqn]) -> Eqn:
    params = [term.param_dict for term in terms]
    places = tuple(place for own in params for place in own["places"])
    inputs = tuple(a for term in terms for a in term.inputs)
    return Eqn(pad_p, inputs, tuple((params[0] | {"places": places}).items()), eqn.outputs, eqn.source)
