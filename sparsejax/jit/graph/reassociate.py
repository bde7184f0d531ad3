"""Association: which two operands of a product of three are contracted first, where the program leaves the result to nobody else.

before:  T = contract H W;  C = contract A T            T[k,j] += H[k,l] * W[l,j],   C[i,j] += A[i,k] * T[k,j]
after:   T = contract A H;  C = contract T W            T[i,l] += A[i,k] * H[k,l],   C[i,j] += T[i,l] * W[l,j]

Both are planned to the end, fused where that is cheaper (`fuse_reductions`), and the cheaper one wins: A @ (H @ W) with sparse A walks A for rows as long
as those of the product, but stores all of H @ W in between; (A @ H) @ W walks it for those of H, and of its product one panel of rows is
kept at a time (`row_blocking`). Paths of `einsum` are chosen among types before anything is known of the operands; here their entries are.

What is summed is the same: the semirings in `RINGS` are associative and distribute. Floats round in another order, as along any path of an
`einsum`. What is infinite or NaN could reach other entries (0 times infinity in a row to which nothing contributes), and large numbers
could overflow, so that operands are looked at first (`guards`): where one holds such a number, the program runs as it is
written. Never where the inner result has another reader or is pinned to a format, an operand has a fill that does not annihilate, or
one is no longer stored once kernels are fused. Planning a product in every way takes milliseconds: what was decided is remembered, for
other processes too (`decision_cache`).
"""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from sparsejax import config
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Eqn, Jaxpr, Var
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import decision_cache
from sparsejax.jit.cost import machine, skew, statistics
from sparsejax.jit.graph import expected, fuse, fuse_reductions, intermediate_storage, partition, resize
from sparsejax.jit.graph import price as pricing
from sparsejax.jit.graph.guards import Check
from sparsejax.jit.ir import choices, operators
from sparsejax.jit.ir.cin import same_value
from sparsejax.lax.contract import arithmetic, contract_p, extents_of
from sparsejax.lax.reduce import OPERATORS, reduce_p
from sparsejax.lax.semiring import Ring, named, ring_of
from sparsejax.lax.structural import transpose_p

Labels = tuple[int, ...]
RINGS = ("plus_times", "or_and", "xor_and", "min_max", "max_min")
"""Semirings that are associative and distribute, for every dtype."""
FLOAT_RINGS = ("min_plus", "max_plus")
"""And where nothing wraps around."""

SURE = 0.9
"""A product is associated in another way where that costs at most this share: kernels of different kinds are compared, whose prices are 1.5 times
off in the mean (the layer of a GCN over 20,000 rows: 0.78 of the price, 0.87 of the time)."""

PAIRS = {(0, 1): "first", (1, 2): "last", (0, 2): "outer"}
"""What it is called (`alternatives.CHOICES`) which two operands are contracted first."""

ROUNDS = 8
"""How many products of a program are made in another way, at most: what is made may be part of one itself."""

P = TypeVar("P", bound="Pair")


@dataclass(frozen=True)
class Chosen:
    """A product of three operands and what it costs, as it is written and as it is associated; what is to be checked if it is."""

    output: Var
    last: Var
    text: str
    checks: tuple[Check, ...] = ()

    def noted(self, steps: Sequence[partition.Step]) -> list[partition.Step]:
        """`steps` with the prices beside the kernel that makes the product."""
        kernels = [n for n, s in enumerate(steps) if isinstance(s, partition.KernelStep) and s.output == self.output]
        kernels += [n for n, s in enumerate(steps) if isinstance(s, partition.KernelStep) and self.last in s.arguments]
        made = list(steps)
        if kernels:
            step = made[kernels[0]]
            assert isinstance(step, partition.KernelStep)
            made[kernels[0]] = replace(step, priced=tuple(dict.fromkeys((*step.priced, self.text))))
        return made


@dataclass(frozen=True)
class Pair:
    """Two operations, the first of which is read by the other alone: both as one contraction, with these parameters, of operands in the order in
    which they are multiplied."""

    inner: Eqn
    outer: Eqn
    params: dict[str, Any]
    operands: tuple[Var, ...]
    inputs: tuple[Labels, ...]
    output: Labels


@dataclass(frozen=True)
class Product(Pair):
    """A contraction of three operands; `first` are the numbers of those that are contracted first."""

    first: tuple[int, int]


def cheapest(
    jaxpr: Jaxpr, observed: Mapping[Var, Storage], refused: Collection[Var] = ()
) -> tuple[Jaxpr, list[Chosen]]:
    """`jaxpr` with its products of three operands, but those that are `refused`, associated as is cheapest, given the program's inputs; and what
    both ways cost."""
    return in_turn(jaxpr, observed, refused, products, _cheaper)


def in_turn(
    jaxpr: Jaxpr,
    observed: Mapping[Var, Storage],
    refused: Collection[Var],
    find: Callable[[Jaxpr], Iterable[P]],
    cheaper: Callable[[P, expected.Known, float], tuple[Sequence[Eqn], str]],
    sums: int = 0,
) -> tuple[Jaxpr, list[Chosen]]:
    """`jaxpr` with pairs of operations in place of which something is `cheaper`, even if so much is paid for looks at operands, and what is said
    about that; of those that it finds, one after the other, but for the `refused`."""
    notes: list[Chosen] = []
    given, seen = {*jaxpr.inputs, *jaxpr.consts}, set(refused)
    for _ in range(ROUNDS):
        found = next((p for p in find(jaxpr) if p.outer.outputs[0] not in seen), None)
        if found is None:
            break
        result = found.outer.outputs[0]
        seen.add(result)
        checks = checks_of(jaxpr, found.params, found.operands, sums)
        known = known_of(jaxpr, observed, found.operands)
        eqns, text = cheaper(found, known, price_of(checks, known, given))
        if text:
            notes.append(Chosen(result, found.operands[-1], text, checks if eqns else ()))
        if eqns:
            jaxpr = replaced(jaxpr, found.inner, found.outer, eqns)
    return jaxpr, notes


def known_of(jaxpr: Jaxpr, observed: Mapping[Var, Storage], operands: Sequence[Var]) -> expected.Known:
    """What is known of the values of a program, those that `operands` come from among them."""
    direct = {*jaxpr.inputs, *jaxpr.consts}.issuperset(operands)
    return expected.of_program((), jaxpr, observed) if direct else expected.of_values(jaxpr, observed)


def price_of(checks: Sequence[Check], known: expected.Known, given: Collection[Var]) -> float:
    """What it costs to look at what a program computes, in nanoseconds for a call: its inputs are looked at once."""
    return sum(machine.current().look * known.entries(c.var) for c in checks if c.var not in given)


def replaced(jaxpr: Jaxpr, inner: Eqn, outer: Eqn, made: Sequence[Eqn]) -> Jaxpr:
    """`jaxpr` with other operations in place of two of its own."""
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        if eqn is outer:
            eqns += made
        elif eqn is not inner:
            eqns.append(eqn)
    return replace(jaxpr, eqns=tuple(eqns))


def checks_of(jaxpr: Jaxpr, params: Mapping[str, Any], operands: Sequence[Var], sums: int = 0) -> tuple[Check, ...]:
    """What must hold of the operands of a product with these parameters, beside so many `sums` over axes: of what they are made of, where they are
    products, sums or transposes themselves. A sum is a product with ones, so that it counts as a factor. Nothing where numbers are exact."""
    if params["dtype"].kind in "biu":
        return ()
    ring = params.get("ring")
    made = {e.outputs[0]: e for e in jaxpr.eqns if is_plain(e) or e.primitive is transpose_p or is_sum(e, params)}
    found: list[Var] = []
    left = list(operands)
    while left:
        var = left.pop()
        eqn = made.get(var)
        if eqn is not None and (eqn.primitive is not contract_p or eqn.param_dict.get("ring") == ring):
            sums += eqn.primitive is reduce_p
            left += [a for a in eqn.inputs if isinstance(a, Var)]
        else:
            found.append(var)
    return tuple(Check(v, 0.0 if ring is None else float(ring.zero), sums + len(found)) for v in dict.fromkeys(found))


def is_sum(eqn: Eqn, params: Mapping[str, Any]) -> bool:
    """Whether an operation sums an array over axes, as a contraction with these parameters would."""
    if eqn.primitive is not reduce_p or not isinstance(eqn.inputs[0], Var):
        return False
    dtype, own = params["dtype"], eqn.param_dict
    ring = params.get("ring") or arithmetic(dtype)
    identity = operators.get(ring.add).identity(dtype)
    (operand,) = eqn.inputs
    absent = operand.aval.format.is_dense or same_value(operand.aval.fill_value, identity)
    same = OPERATORS[own["kind"]] == ring.add and own["dtype"] == dtype and same_value(ring.zero, identity)
    return bool(absent and same)


def products(jaxpr: Jaxpr) -> Iterator[Product]:
    """Contractions of contractions, as products of three operands."""
    made = {eqn.outputs[0]: eqn for eqn in jaxpr.eqns if is_plain(eqn)}
    if len(made) < 2:
        return
    uses = Counter(a for atoms in (*(e.inputs for e in jaxpr.eqns), jaxpr.outputs) for a in atoms if isinstance(a, Var))
    for outer in made.values():
        for place, var in enumerate(outer.inputs):
            inner = made.get(var) if isinstance(var, Var) and uses[var] == 1 else None
            if inner is not None and inner.param_dict["out_format"] is None:
                found = _product(outer, inner, place)
                if found is not None:
                    yield found


def is_plain(eqn: Eqn) -> bool:
    """Whether an operation is a contraction of two arrays in a ring that is associative and distributes."""
    if eqn.primitive is not contract_p or len(eqn.inputs) != 2 or not all(isinstance(a, Var) for a in eqn.inputs):
        return False
    params = eqn.param_dict
    if params.get("mask") is not None:
        return False
    dtype, ring = params["dtype"], params.get("ring")
    if ring is not None and ring not in _rings(dtype):
        return False
    if ring is None and any(not a.aval.format.is_dense and a.aval.fill_value != 0 for a in eqn.inputs):
        return False
    extents = extents_of([a.aval.shape for a in eqn.inputs], params["inputs"])
    pairs = zip(eqn.inputs, params["inputs"], strict=True)
    return all(a.aval.shape[k] == extents[x] for a, labels in pairs for k, x in enumerate(labels))


@functools.cache
def _rings(dtype: np.dtype[Any]) -> list[Ring]:
    """The semirings of one dtype that are associative and distribute."""
    names = () if dtype.kind == "c" else (*RINGS, *(FLOAT_RINGS if dtype.kind == "f" else ()))
    return [ring_of(named(name), dtype) for name in names]


def _product(outer: Eqn, inner: Eqn, place: int) -> Product | None:
    theirs, ours = inner.param_dict, outer.param_dict
    if theirs["dtype"] != ours["dtype"] or theirs.get("ring") != ours.get("ring"):
        return None
    around: tuple[Labels, ...] = ours["inputs"]
    names = dict(zip(theirs["output"], around[place], strict=True))
    fresh = 1 + max((x for labels in (*around, *theirs["inputs"]) for x in labels), default=0)
    for label in dict.fromkeys(x for labels in theirs["inputs"] for x in labels):
        if label not in names:
            names[label], fresh = fresh, fresh + 1
    inside = [tuple(names[x] for x in labels) for labels in theirs["inputs"]]
    operands, inputs = list(outer.inputs), list(around)
    operands[place : place + 1], inputs[place : place + 1] = inner.inputs, inside
    given = tuple(a for a in operands if isinstance(a, Var))
    return Product(inner, outer, ours, given, tuple(inputs), ours["output"], (place, place + 1))


def others(product: Product) -> Iterator[tuple[int, int]]:
    """Other pairs that may be contracted first: they share a label."""
    ring = product.params.get("ring") or arithmetic(product.params["dtype"])
    for pair in ((0, 1), (1, 2), (0, 2)):
        if pair == product.first or (pair == (0, 2) and not operators.get(ring.mul).commutative):
            continue
        if set(product.inputs[pair[0]]) & set(product.inputs[pair[1]]):
            yield pair


def _cheaper(product: Product, known: expected.Known, looks: float) -> tuple[list[Eqn], str]:
    """The product associated in another way, where that is cheaper even if `looks` is paid for it; and the prices of both ways."""
    known = known.only(product.operands)
    decide = functools.partial(_decided, product, known, looks)
    found = json.loads(decision_cache.remembered(_key(product, known, looks), decide))
    cheapest, said, eqns = product.first, "", None
    if found is not None:
        (p, q), price, written = found
        said = f"{text(product, (p, q))}: cost {price:.4g}, as written {text(product, product.first)}: {written:.4g}"
        eqns = _associated(product, (p, q)) if price <= SURE * written else None
        cheapest = (p, q) if eqns else cheapest

    def legal() -> list[str]:
        running = [pair for pair in others(product) if _runs(product, pair, known)]
        return [PAIRS[pair] for pair in dict.fromkeys((cheapest, product.first, *running))]

    taken = choices.pick("association", legal, PAIRS[cheapest])
    if taken != PAIRS[cheapest]:
        pair = next(pair for pair, name in PAIRS.items() if name == taken)
        eqns = None if pair == product.first else _associated(product, pair)
        said = f"{text(product, pair)}: as chosen"
    return eqns or [], said


def _runs(product: Product, pair: tuple[int, int], known: expected.Known) -> bool:
    """Whether the two contractions of a product with `pair` contracted first can run."""
    eqns = _associated(product, pair)
    return eqns is not None and _price(eqns, product, known) is not None


def _decided(product: Product, known: expected.Known, looks: float) -> str:
    """As JSON: which two operands would best be contracted first instead, what that costs, and what it costs as it is written."""
    written = _price([product.inner, product.outer], product, known)
    best: tuple[float, tuple[int, int]] | None = None
    for pair in others(product):
        eqns = _associated(product, pair)
        price = None if eqns is None else _price(eqns, product, known)
        if price is not None and (best is None or price < best[0]):
            best = price, pair
    if best is None or written is None:
        return json.dumps(None)
    return json.dumps((best[1], best[0] + looks, written))


def _key(product: Product, known: expected.Known, looks: float) -> str:
    """All that the decision depends on: the contractions, types of operands and which are the same, and what is known of them."""
    forms = product.output, product.first, product.inner.param_dict, product.outer.param_dict
    return key_of("associate", product.operands, product.inputs, known, forms, looks)


def key_of(what: str, operands: Sequence[Var], inputs: Sequence[Labels], known: expected.Known, *others: object) -> str:
    """What a decision about a contraction depends on: types of operands and which are the same, what is known of them, and `others`."""
    types = [(v.aval.resized(resize.usual), known.counts[v], operands.index(v)) for v in operands]
    pairs: list[float] = []
    for p, q in itertools.combinations(range(len(operands)), 2):
        left, right = known.degrees.get(operands[p]), known.degrees.get(operands[q])
        for label in inputs[p] if left and right else ():
            if left and right and label in inputs[q]:
                one, other = left[inputs[p].index(label)], right[inputs[q].index(label)]
                pairs.append(statistics.rounded(skew.coupling(*one, *other)) if one and other else 0.0)
    return f"{what} {config.planning()} {machine.current()} {inputs} {types} {pairs} {others}"


def _associated(product: Product, pair: tuple[int, int]) -> list[Eqn] | None:
    """The two contractions of a product with `pair` contracted first; None where the result would have another type."""
    rest = next(k for k in range(3) if k not in pair)
    needed = {*product.output, *product.inputs[rest]}
    labels = [product.inputs[k] for k in pair]
    kept = tuple(dict.fromkeys(x for ls in labels for x in ls if x in needed))
    first = contraction(product.inner, [product.operands[k] for k in pair], labels, kept, None)
    chosen = [(product.operands[rest], product.inputs[rest]), (first.outputs[0], kept)]
    if rest > pair[0]:
        chosen.reverse()
    result, form = product.outer.outputs[0], product.params["out_format"]
    last = making(result, product.outer, [v for v, _ in chosen], [ls for _, ls in chosen], product.output, form)
    return None if last is None else [first, last]


def making(
    result: Var, like: Eqn, operands: Sequence[Var], inputs: Sequence[Labels], output: Labels, form: Any
) -> Eqn | None:
    """The contraction of other operands that makes `result`, in `form` or its own; None where it would have another type."""
    made = (contraction(like, operands, inputs, output, f) for f in (form, result.aval.format))
    return next((replace(e, outputs=(result,)) for e in made if e.outputs[0].aval == result.aval), None)


def contraction(like: Eqn, operands: Sequence[Var], inputs: Sequence[Labels], output: Labels, form: Any) -> Eqn:
    """A contraction of other operands."""
    params = {**like.param_dict, "inputs": tuple(inputs), "output": output, "out_format": form}
    aval: Aval = contract_p.typing(*(v.aval for v in operands), **params)
    return Eqn(contract_p, tuple(operands), tuple(params.items()), (Var(aval),), like.source)


def _price(eqns: Sequence[Eqn], product: Product, known: expected.Known) -> float | None:
    """What contractions cost: their kernels, merged where that is cheaper, library calls, and what is stored between them."""
    return cost_of(eqns, product.operands, (product.outer.outputs[0],), known)


def cost_of(
    eqns: Sequence[Eqn], operands: Sequence[Var], results: tuple[Var, ...], known: expected.Known
) -> float | None:
    """What operations cost that make results of operands; None where they cannot run."""
    with choices.pricing():
        return _cost(eqns, tuple(dict.fromkeys(operands)), results, known)


def _cost(eqns: Sequence[Eqn], given: tuple[Var, ...], results: tuple[Var, ...], known: expected.Known) -> float | None:
    jaxpr, names = resize.at_usual(Jaxpr(given, (), tuple(eqns), results))
    found = known.only(given)
    if names:
        found, results = found.renamed(names), tuple([names[v] for v in results])
    steps = fuse_reductions.merged(intermediate_storage.stored(fuse.fuse(jaxpr), jaxpr, found), jaxpr, found)
    return pricing.price(steps, found, results)


def text(product: Product, first: tuple[int, int]) -> str:
    """The order of contractions in subscripts."""
    output, *terms = subscripts(product.output, *product.inputs)
    inside = "(" + ",".join(terms[k] for k in first) + ")"
    rest = next(k for k in range(3) if k not in first)
    both = f"{inside},{terms[rest]}" if rest > first[0] else f"{terms[rest]},{inside}"
    return f"{both}->{output}"


def subscripts(*terms: Labels) -> list[str]:
    """Labels as letters, in the order in which they come first."""
    letters = "ijklmnopqrstuvwxyz"
    names = {x: letters[k % len(letters)] for k, x in enumerate(dict.fromkeys(x for labels in terms for x in labels))}
    return ["".join(names[x] for x in labels) for labels in terms]
