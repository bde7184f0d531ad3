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

import functools
import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Eqn, Jaxpr, Var
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import decision_cache
from sparsejax.jit.graph import expected, reassociate
from sparsejax.jit.graph.reassociate import Chosen, Labels
from sparsejax.jit.ir import choices
from sparsejax.lax.reduce import reduce_p

ROUNDS = 8
"""How many sums of a program are moved, at most: what is summed first may be a product itself."""


@dataclass(frozen=True)
class _Sum:
    """A contraction, the sum over axes of its result, and the labels of them that each operand alone has."""

    product: Eqn
    sum: Eqn
    own: tuple[Labels, ...]

    @property
    def operands(self) -> tuple[Var, ...]:
        return tuple(a for a in self.product.inputs if isinstance(a, Var))

    @property
    def output(self) -> Labels:
        """The labels of the result."""
        labels: Labels = self.product.param_dict["output"]
        return tuple(x for k, x in enumerate(labels) if k not in self.sum.param_dict["axes"])


def cheapest(
    jaxpr: Jaxpr, observed: Mapping[Var, Storage], refused: Collection[Var] = ()
) -> tuple[Jaxpr, list[Chosen]]:
    """`jaxpr` with its sums of products, but those that are `refused`, where they are cheapest, given the program's inputs; and what both ways cost."""
    notes: list[Chosen] = []
    given, seen = {*jaxpr.inputs, *jaxpr.consts}, set(refused)
    for _ in range(ROUNDS):
        found = next((s for s in _sums(jaxpr) if s.sum.outputs[0] not in seen), None)
        if found is None:
            break
        result = found.sum.outputs[0]
        seen.add(result)
        inside = _inside(found)
        if inside is None:
            continue
        checks = reassociate.checks_of(jaxpr, found.product.param_dict, found.operands, 1)
        known = reassociate.known_of(jaxpr, observed, found.operands)
        note = _decided(found, inside, known, reassociate.price_of(checks, known, given))
        if note is None:
            continue
        way, text = note
        notes.append(Chosen(result, found.operands[-1], text, checks if way == "inside" else ()))
        if way == "inside":
            jaxpr = reassociate.replaced(jaxpr, found.product, found.sum, inside)
    return jaxpr, notes


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
            found.append(_Sum(made[var], eqn, own))
    return found


def _inside(found: _Sum) -> list[Eqn] | None:
    """Operands summed over the labels that they alone have, and the contraction of those; None where the result would have another type, or an
    operand is summed as the product's entries are not."""
    params, eqns = found.product.param_dict, list[Eqn]()
    operands: list[Var] = []
    inputs: list[Labels] = []
    for var, labels, own in zip(found.operands, params["inputs"], found.own, strict=True):
        if own:
            axes = tuple(k for k, x in enumerate(labels) if x in own)
            of = {**found.sum.param_dict, "axes": axes}
            aval: Aval = reduce_p.typing(var.aval, **of)
            eqn = Eqn(reduce_p, (var,), tuple(of.items()), (Var(aval),), found.sum.source)
            if not reassociate.is_sum(eqn, params):
                return None
            eqns.append(eqn)
            var = eqn.outputs[0]
        operands.append(var)
        inputs.append(tuple(x for x in labels if x not in own))
    aval = found.sum.outputs[0].aval
    for form in (None, aval.format):
        last = reassociate.contraction(found.product, operands, inputs, found.output, form)
        if last.outputs[0].aval == aval:
            return [*eqns, replace(last, outputs=found.sum.outputs)]
    return None


def _decided(found: _Sum, inside: list[Eqn], known: expected.Known, looks: float) -> tuple[str, str] | None:
    """Which way is taken, and what both cost; None where one of them cannot run."""
    known = known.only(found.operands)
    result, params = found.sum.outputs[0], found.product.param_dict

    def prices() -> str:
        ways = [found.product, found.sum], inside
        return json.dumps([reassociate.cost_of(eqns, found.operands, result, known) for eqns in ways])

    forms = params, found.sum.param_dict, looks
    key = reassociate.key_of("sum inside", found.operands, params["inputs"], known, forms)
    written, price = json.loads(decision_cache.remembered(key, prices))
    if written is None or price is None:
        return None
    price += looks
    names = functools.partial(_text, found)
    text = f"{names(True)}: cost {price:.4g}, as written {names(False)}: {written:.4g}"
    best = "inside" if price <= reassociate.SURE * written else "outside"
    return choices.pick("reductions", ("outside", "inside"), best), text


def _text(found: _Sum, inside: bool) -> str:
    """The order of sums in subscripts."""
    params = found.product.param_dict
    letters = "ijklmnopqrstuvwxyz"
    labels = dict.fromkeys(x for ls in (found.output, *params["inputs"]) for x in ls)
    names = {label: letters[k % len(letters)] for k, label in enumerate(labels)}

    def term(labels: Labels) -> str:
        return "".join(names[x] for x in labels)

    if not inside:
        products = ",".join(map(term, params["inputs"]))
        return f"({products}->{term(params['output'])})->{term(found.output)}"
    pairs = zip(params["inputs"], found.own, strict=True)
    terms = [f"({term(ls)}->{term(tuple(x for x in ls if x not in own))})" if own else term(ls) for ls, own in pairs]
    return f"{','.join(terms)}->{term(found.output)}"
