"""Products of two operands that several products of three can begin with: computed once, where that is cheaper. Transposes are read as they lie.

before:  C = (A, (H, W))   G = (H, (A, D))     C[i,j] += A[i,k] * H[k,l] * W[l,j],   G[l,j] += H[k,l] * A[i,k] * D[i,j]
after:   P = (A, H)        C = (P, W)          P[i,l] += A[i,k] * H[k,l],            G[l,j] += P[i,l] * D[i,j]

A layer of a graph neural network and the gradient by its weights are such products: A walks H once in place of once with H W and once with D. What
holds of products that are associated otherwise (`reassociate`) holds here: the rings, what is checked of operands, and that inner results have no
other reader.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sparsejax.core.jaxpr import Eqn, Jaxpr, Var
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import decision_cache
from sparsejax.jit.graph import expected, reassociate
from sparsejax.jit.graph.reassociate import Chosen, Labels, Product
from sparsejax.jit.ir import operators
from sparsejax.lax.contract import arithmetic
from sparsejax.lax.structural import transpose_p
from sparsejax.transforms import staging


class _Way(NamedTuple):
    """A product of three operands, two of which are contracted first: what these are transposes of, or they themselves, with their labels."""

    product: Product
    pair: tuple[int, int]
    begun: tuple[tuple[Var, Labels], ...]

    @property
    def labels(self) -> Labels:
        """Those of the two, in the order in which they come."""
        return tuple(dict.fromkeys(x for _, labels in self.begun for x in labels))

    @property
    def rest(self) -> int:
        return next(k for k in range(3) if k not in self.pair)

    @property
    def result(self) -> Var:
        return self.product.outer.outputs[0]


def shared(jaxpr: Jaxpr, observed: Mapping[Var, Storage], refused: Collection[Var] = ()) -> tuple[Jaxpr, list[Chosen]]:
    """`jaxpr` with what several of its products can begin with computed once, where that is cheaper, given the program's inputs, but for those that are
    `refused`; and what both ways cost."""
    notes: list[Chosen] = []
    seen: set[object] = set()
    for _ in range(reassociate.ROUNDS):
        ways = next((w for w in _groups(jaxpr, refused) if _named(w) not in seen), None)
        if ways is None:
            break
        seen.add(_named(ways))
        eqns, own = _cheaper(jaxpr, ways, observed)
        if eqns:
            jaxpr, notes = staging.dead_code(_replaced(jaxpr, ways, eqns)), notes + own
    return jaxpr, notes


def _groups(jaxpr: Jaxpr, refused: Collection[Var]) -> list[list[_Way]]:
    """Products that can begin with the same one, two and more."""
    products = [p for p in reassociate.products(jaxpr) if p.outer.outputs[0] not in refused]
    if len(products) < 2:
        return []
    defined = (*jaxpr.inputs, *jaxpr.consts, *(v for e in jaxpr.eqns for v in e.outputs))
    places = {v: k for k, v in enumerate(defined)}
    turned = {e.outputs[0]: e for e in jaxpr.eqns if e.primitive is transpose_p and isinstance(e.inputs[0], Var)}
    found: dict[object, dict[Var, _Way]] = {}
    for product in products:
        terms = [_turned(v, labels, turned) for v, labels in zip(product.operands, product.inputs, strict=True)]
        for pair in (product.first, *reassociate.others(product)):
            way = _way(product, pair, terms, places)
            found.setdefault(_begun(way), {}).setdefault(way.result, way)
    return [list(ways.values()) for ways in found.values() if _apart(ways.values())]


def _named(ways: Sequence[_Way]) -> object:
    return tuple([(w.result, w.pair) for w in ways])


def _apart(ways: Collection[_Way]) -> bool:
    """Whether these are several products, none of which reads what another one makes."""
    inner = {w.product.inner.outputs[0] for w in ways}
    made = inner | {w.result for w in ways}
    return len(inner) == len(ways) > 1 and not any(v in made for w in ways for v in w.product.operands)


def _turned(operand: Var, labels: Labels, turned: Mapping[Var, Eqn]) -> tuple[Var, Labels]:
    """What an operand is a transpose of, or itself, with its labels."""
    while operand in turned:
        eqn = turned[operand]
        (operand,) = (v for v in eqn.inputs if isinstance(v, Var))
        own = dict(zip(eqn.param_dict["axes"], labels, strict=True))
        labels = tuple(own[d] for d in range(len(own)))
    return operand, labels


def _way(
    product: Product, pair: tuple[int, int], terms: Sequence[tuple[Var, Labels]], places: Mapping[Var, int]
) -> _Way:
    """A product with a pair of its operands contracted first: factors that commute come in one order in all products."""
    order = pair
    if operators.get((product.params.get("ring") or arithmetic(product.params["dtype"])).mul).commutative:
        order = min(pair, pair[::-1], key=lambda p: places[terms[p[0]][0]])
    return _Way(product, pair, tuple(terms[k] for k in order))


def _begun(way: _Way) -> object:
    """What a product has in common with others that begin with the same."""
    params, needed = way.product.params, {*way.product.output, *way.product.inputs[way.rest]}
    number = {x: k for k, x in enumerate(way.labels)}
    terms = tuple((v, tuple(number[x] for x in labels)) for v, labels in way.begun)
    return params["dtype"], params.get("ring"), terms, tuple(number[x] for x in way.labels if x in needed)


def _cheaper(jaxpr: Jaxpr, ways: Sequence[_Way], observed: Mapping[Var, Storage]) -> tuple[list[Eqn], list[Chosen]]:
    """What is to be computed in place of products, the shared one first, where that is cheaper; and what is to be said of each."""
    made = _equations(ways)
    if made is None:
        return [], []
    known = expected.of_values(jaxpr, observed)
    given = {*jaxpr.inputs, *jaxpr.consts}
    changed = [w for w in ways if w.pair != w.product.first]
    checks = {w.result: reassociate.checks_of(jaxpr, w.product.params, w.product.operands) for w in changed}
    looks = sum(reassociate.price_of(own, known, given) for own in checks.values())
    operands = tuple(dict.fromkeys(v for w in ways for v in (*w.product.operands, *(v for v, _ in w.begun))))
    results = tuple(w.result for w in ways)
    before = [e for w in ways for e in (w.product.inner, w.product.outer)]

    def prices() -> str:
        return json.dumps([reassociate.cost_of(eqns, operands, results, known) for eqns in (before, made)])

    keys = [
        reassociate.key_of(
            "shared", w.product.operands, w.product.inputs, known, w.product.output, w.product.first, w.pair
        )
        for w in ways
    ]
    same = [operands.index(v) for w in ways for v in w.product.operands]
    written, price = json.loads(decision_cache.remembered(f"{keys} {same}", prices))
    if written is None or price is None or price + looks > reassociate.SURE * written:
        return [], []
    text = f"for {len(ways)} products: cost {price + looks:.4g}, each by itself: {written:.4g}"
    read = made[0].inputs[0]
    assert isinstance(read, Var)
    return made, [
        Chosen(w.result, read, f"{reassociate.text(w.product, w.pair)} {text}", checks.get(w.result, ())) for w in ways
    ]


def _equations(ways: Sequence[_Way]) -> list[Eqn] | None:
    """The contraction that products begin with, and what is left of each; None where a result would have another type."""
    like = ways[0]
    product, labels = like.product, [ls for _, ls in like.begun]
    needed = {*product.output, *product.inputs[like.rest]}
    kept = tuple(x for x in like.labels if x in needed)
    first = reassociate.contraction(product.inner, [v for v, _ in like.begun], labels, kept, None)
    made = [first]
    for way in ways:
        product, rest = way.product, way.rest
        own = dict(zip(like.labels, way.labels, strict=True))
        chosen = [(product.operands[rest], product.inputs[rest]), (first.outputs[0], tuple(own[x] for x in kept))]
        if rest > way.pair[0]:
            chosen.reverse()
        operands, inputs = [v for v, _ in chosen], [ls for _, ls in chosen]
        form = product.params["out_format"]
        last = reassociate.making(way.result, product.outer, operands, inputs, product.output, form)
        if last is None:
            return None
        made.append(last)
    return made


def _replaced(jaxpr: Jaxpr, ways: Sequence[_Way], made: Sequence[Eqn]) -> Jaxpr:
    """`jaxpr` with other operations in place of those of products: the first of them before the first product, the others each where its product was."""
    first, *lasts = made
    begun = False
    inner = {w.product.inner.outputs[0] for w in ways}
    last = dict(zip((w.result for w in ways), lasts, strict=True))
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        result = eqn.outputs[0]
        if result in last:
            eqns += [last[result]] if begun else [first, last[result]]
            begun = True
        elif result not in inner:
            eqns.append(eqn)
    return replace(jaxpr, eqns=tuple(eqns))
