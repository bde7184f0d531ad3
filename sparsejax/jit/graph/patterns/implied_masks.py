"""Masks that follow from others: gradients of products of sparse arrays ask for no pattern of a product.

before:  e = add d a;  j = contract i b mask e;  k = sample j d                     e stores all that d does
after:   k = contract i b mask d

before:  e = contract d a;  i = contract h b mask e;  j = contract i a mask d       e[i,k] is stored where d[i,j] and a[j,k] are
after:   s = contract b a;  j = contract h s mask d

No term is added that was not there: of the same numbers, some are added up before they are multiplied. What is contracted first is one sparse array with
dense ones, and the result has no more axes than these: sampled products of `a @ b` in place of a product of sparse arrays.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, Eqn, Jaxpr, Var
from sparsejax.core.symbolic import usual
from sparsejax.jit.graph.patterns.changes import changed, typed
from sparsejax.jit.graph.patterns.contractions import contraction, is_masked, product, reshaped, without_units
from sparsejax.jit.graph.patterns.relations import Labels, Patterns, Placed
from sparsejax.jit.graph.patterns.witnesses import ENTRYWISE
from sparsejax.lax.elementwise import primitives
from sparsejax.lax.linear import sample_p, share_p
from sparsejax.lax.structural import convert_p, transpose_p
from sparsejax.transforms import staging

LARGER = 8
"""How many times as large as dense operands what is contracted of them first may be."""


class _Spread(NamedTuple):
    """A product of factors where a mask has entries: axes of the result are labels from 0 on, and those of sums follow."""

    mask: Atom
    factors: tuple[Placed, ...]
    sums: bool


def left_out(jaxpr: Jaxpr) -> Jaxpr:
    """`jaxpr` without masks that others imply."""
    if not any(map(is_masked, jaxpr.eqns)):
        return jaxpr
    jaxpr = staging.dead_code(jaxpr)
    uses = Counter(a for atoms in (*(e.inputs for e in jaxpr.eqns), jaxpr.outputs) for a in atoms if isinstance(a, Var))
    known = Patterns(jaxpr)
    made: dict[Var, Eqn] = {}
    spread: dict[Var, _Spread] = {}
    kept: list[Eqn] = []
    ways = {sample_p: _sampled, share_p: _shared, transpose_p: _transposed}
    for eqn in jaxpr.eqns:
        way = ways.get(eqn.primitive)
        found = None if way is None else way(eqn, made, uses, known)
        for one in found or (_inside(eqn, spread, uses, known) if is_masked(eqn) else None) or (eqn,):
            kept.append(one)
            if not one.primitive.multiple:
                made[one.outputs[0]] = one
                of = _spread(one, spread)
                if of is not None:
                    spread[one.outputs[0]] = of
    return Jaxpr(jaxpr.inputs, jaxpr.consts, tuple(kept), jaxpr.outputs)


def _spread(eqn: Eqn, known: Mapping[Var, _Spread]) -> _Spread | None:
    """What a result is a product of, if it is one under a mask, all of one dtype."""
    out = eqn.outputs[0].aval
    if out.format.is_dense or any(a.aval.dtype != out.dtype for a in eqn.inputs[:1]):
        return None
    axes = tuple(range(out.ndim))
    if eqn.primitive is sample_p:
        value, mask = eqn.inputs
        return (
            _Spread(mask, ((value, axes[out.ndim - value.aval.ndim :]),), False) if value.aval.format.is_dense else None
        )
    if is_masked(eqn):
        params = eqn.param_dict
        if params["dtype"] != out.dtype or any(a.aval.dtype != out.dtype for a in eqn.inputs[:-1]):
            return None
        names = dict(zip(params["output"], axes, strict=True))
        summed = dict.fromkeys(x for own in params["inputs"] for x in own if x not in names)
        names |= {x: out.ndim + k for k, x in enumerate(summed)}
        placed = zip(eqn.inputs, params["inputs"], strict=False)
        factors = tuple((a, tuple(names[x] for x in own)) for a, own in placed)
        return _Spread(eqn.inputs[-1], factors, bool(summed))
    if eqn.primitive is primitives["multiply"]:
        for value, other in (eqn.inputs, eqn.inputs[::-1]):
            inner = known.get(value) if isinstance(value, Var) and value.aval.shape == out.shape else None
            if inner is not None and other.aval.format.is_dense and other.aval.dtype == out.dtype == value.aval.dtype:
                return inner._replace(factors=(*inner.factors, (other, axes[out.ndim - other.aval.ndim :])))
    return None


def _sampled(eqn: Eqn, made: Mapping[Var, Eqn], uses: Mapping[Var, int], known: Patterns) -> list[Eqn] | None:
    """A contraction under a mask of which only entries are kept that another array stores, as one under that; also where elementwise operations and
    conversions are in between."""
    return _there(eqn, eqn.outputs[0], made, uses, known)


def _shared(eqn: Eqn, made: Mapping[Var, Eqn], uses: Mapping[Var, int], known: Patterns) -> list[Eqn] | None:
    """The same, where they are moved to the buffers of the other array."""
    value, like = eqn.inputs
    kept = Var(Aval(like.aval.shape, value.aval.dtype, like.aval.format, 0))
    found = _there(eqn, kept, made, uses, known)
    return found and [*found, Eqn(share_p, (kept, like), eqn.params, eqn.outputs, eqn.source)]


def _there(
    eqn: Eqn, result: Var, made: Mapping[Var, Eqn], uses: Mapping[Var, int], known: Patterns
) -> list[Eqn] | None:
    """What `eqn` reads, computed where the other array stores an entry that it reads; None where the mask is no larger, where that is no contraction, or
    one that sums and has more readers."""
    atom, like = eqn.inputs
    chain: list[Eqn] = []
    once = True
    while True:
        inner = made.get(atom) if isinstance(atom, Var) else None
        if inner is None or inner.outputs[0].aval.shape != like.aval.shape or inner.outputs[0].aval.format.is_dense:
            return None
        once = once and uses[inner.outputs[0]] == 1
        if is_masked(inner):
            break
        sparse = [a for a in inner.inputs if not a.aval.format.is_dense]
        if len(sparse) != 1 or inner.primitive not in (*ENTRYWISE, convert_p):
            return None
        (atom,) = sparse
        if inner.primitive is not convert_p:
            chain.insert(0, inner)
    mask, params = inner.inputs[-1], inner.param_dict
    sums = {x for own in params["inputs"] for x in own} - set(params["output"])
    if known.same(mask, like) or not known.covers(mask, like) or (sums and not once):
        return None
    value, form = inner.outputs[0].aval, like.aval.format
    first = Var(Aval(value.shape, value.dtype, form, 0)) if chain else result
    eqns = typed([changed(inner, (*inner.inputs[:-1], like), first, out_format=form, mask="pattern")])
    if eqns is None:
        return None
    for number, one in enumerate(chain):
        inputs = tuple(a if a.aval.format.is_dense else eqns[-1].outputs[0] for a in one.inputs)
        (aval,) = one.primitive.out_avals([a.aval for a in inputs], one.param_dict)
        eqns.append(changed(one, inputs, result if number == len(chain) - 1 else Var(aval)))
    return typed(eqns)


def _transposed(eqn: Eqn, made: Mapping[Var, Eqn], uses: Mapping[Var, int], known: Patterns) -> list[Eqn] | None:
    """The transpose of a contraction under the transpose of a mask, or of a vector that is sampled there, as one under that."""
    inner = made.get(eqn.inputs[0])  # type: ignore[arg-type]
    if inner is None or not (is_masked(inner) or inner.primitive is sample_p) or uses[inner.outputs[0]] > 1:
        return None
    mask = known.made.get(inner.inputs[-1])  # type: ignore[arg-type]
    if mask is None or mask.primitive is not transpose_p:
        return None
    axes, own, out = eqn.param_dict["axes"], mask.param_dict["axes"], eqn.outputs[0]
    if any(own[k] != n for n, k in enumerate(axes)):
        return None
    if inner.primitive is sample_p:
        value = inner.inputs[0]
        extents = (1,) * (len(axes) - value.aval.ndim) + value.aval.shape
        if not value.aval.format.is_dense or sum(n != 1 for n in extents) > 1:
            return None  # it would be transposed itself
        turned = reshaped(value, tuple(extents[k] for k in axes))
        return typed([turned, Eqn(sample_p, (turned.outputs[0], mask.inputs[0]), (), (out,), eqn.source)])
    output = tuple(inner.param_dict["output"][k] for k in axes)
    inputs = (*inner.inputs[:-1], mask.inputs[0])
    return typed([changed(inner, inputs, out, output=output, out_format=out.aval.format)])


def _inside(eqn: Eqn, spread: Mapping[Var, _Spread], uses: Mapping[Var, int], known: Patterns) -> list[Eqn] | None:
    """A contraction with the factors of an operand in its place, whose mask says nothing that is not known where these are read."""
    params = eqn.param_dict
    for place, (atom, labels) in enumerate(zip(eqn.inputs, params["inputs"], strict=False)):
        inner = spread.get(atom) if isinstance(atom, Var) else None
        if inner is None or len(set(labels)) < len(labels) or atom.aval.dtype != params["dtype"]:
            continue
        others = [p for k, p in enumerate(zip(eqn.inputs, params["inputs"], strict=False)) if k != place]
        if not known.meets(inner.mask, labels, [*others, (eqn.inputs[-1], params["output"])]):
            continue
        fresh = 1 + max((x for own in (*params["inputs"], params["output"]) for x in own), default=0)
        names = [*labels, *range(fresh, fresh + max((x for _, own in inner.factors for x in own), default=0))]
        first: list[Eqn] = []
        factors = [
            without_units(a, tuple(names[x] for x in own), own, dict(enumerate(atom.aval.shape)), first)
            for a, own in inner.factors
        ]
        before, placed = _summed_first(eqn, [*others[:place], *factors, *others[place:]])
        if not before and (inner.sums or uses[atom] > 1):  # type: ignore[index]
            continue  # a sum for every term in place of one for every entry
        made = product(eqn, placed)
        if made is not None:
            return [*first, *before, *made]
    return None


def _summed_first(eqn: Eqn, placed: list[Placed]) -> tuple[list[Eqn], list[Placed]]:
    """The sum over a label that one sparse factor has alone or with dense ones, and the product that is left, if there is one that has fewer axes."""
    output = set(eqn.param_dict["output"])
    for label in dict.fromkeys(x for _, own in placed for x in own if x not in output):
        group = [p for p in placed if label in p[1]]
        rest = [p for p in placed if label not in p[1]]
        axes = [a.aval.ndim - (not a.aval.format.is_dense) for a, _ in group]
        lone = sum(not a.aval.format.is_dense for a, _ in group) == 1
        left = output.union(*(own for _, own in rest))
        group.sort(key=lambda p: p[0].aval.format.is_dense)  # its rows are those of the result
        names = tuple(dict.fromkeys(x for _, own in group for x in own if x in left))
        if rest and lone and len(names) <= max(axes) and not output <= set(names) and _is_small(group, names):
            made, result = contraction(eqn, group, names)
            return [made], [*rest, (result, names)]
    return [], placed


def _is_small(group: Sequence[Placed], names: Labels) -> bool:
    """Whether the contraction of a group to these labels is a vector, or not much larger than its dense operands."""
    extents = {x: n for a, own in group for x, n in zip(own, a.aval.shape, strict=True)}
    dense = [math.prod(map(usual, a.aval.shape)) for a, _ in group if a.aval.format.is_dense]
    return len(names) < 2 or math.prod(usual(extents[x]) for x in names) <= LARGER * max(dense, default=0)
