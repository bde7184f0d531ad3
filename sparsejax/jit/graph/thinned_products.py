"""Products of which entries are dropped: those that differ from the fill are appended, and no others.

before:  c = contract A x;  d = less c y;  e = where d c inf;  f = kept e 0.0;  g = thin e f
after:   c = contract A x;  d = less c y;  e = where d c inf;  g = thinned[tol=0.0] e

The last is part of the product's kernel (`fuse`), so that nothing is stored of what is dropped: as much of the kernel as it costs to compare a sum.

Legal where nothing else reads what is thinned nor the flags, entries of the format are numbers that stand alone in ordered segments, and the tolerance is
a number of the program. Pays where a product is behind it: other operations know how many entries they have, and copy these in vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from sparsejax.formats.storage import Storage
from sparsejax.jit.graph import reassociate
from sparsejax.lax.contract import contract_p
from sparsejax.lax.elementwise import cast_p, primitives, unary_p, where_p
from sparsejax.lax.thinning import kept_p, thin_p, thinned_p

ELEMENTWISE = frozenset([*primitives.values(), cast_p, unary_p, where_p])


def merged(
    jaxpr: Jaxpr, observed: Mapping[Var, Storage], kept: Collection[Var] = ()
) -> tuple[Jaxpr, list[reassociate.Chosen]]:
    """`jaxpr` with products that are thinned as they are made, whatever operands hold."""
    if not any(eqn.primitive is thin_p for eqn in jaxpr.eqns):
        return jaxpr, []
    reads = Counter(a for atoms in (*(eqn.inputs for eqn in jaxpr.eqns), jaxpr.outputs) for a in atoms)
    made_by = {eqn.outputs[0]: eqn for eqn in jaxpr.eqns if len(eqn.outputs) == 1}
    found: dict[Var, Eqn] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive is not thin_p:
            continue
        x, flags = eqn.inputs
        flagged = made_by.get(flags) if isinstance(flags, Var) else None
        if flagged is None or flagged.primitive is not kept_p or flagged.inputs[0] is not x or reads[flags] != 1:
            continue
        tol = _tolerance(flagged)
        if tol is None or reads[x] != 2 or not _lists(x.aval) or not _is_product(x, made_by, reads):
            continue
        found[eqn.outputs[0]] = Eqn(thinned_p, (x,), (("tol", tol),), eqn.outputs, eqn.source)
    gone = {made_by[eqn.outputs[0]].inputs[1] for eqn in found.values()}
    eqns = [found.get(eqn.outputs[0], eqn) for eqn in jaxpr.eqns if gone.isdisjoint(eqn.outputs)]
    return Jaxpr(jaxpr.inputs, jaxpr.consts, tuple(eqns), jaxpr.outputs), []


def _tolerance(flagged: Eqn) -> float | None:
    """The number that entries are compared with, if that is all that flags say and it is one of the program."""
    params, rest = flagged.param_dict, flagged.inputs[1:]
    if not params["bounded"] or params["keep"] is not None or len(rest) != 1 or not isinstance(rest[0], Literal):
        return None
    return float(rest[0].value)


def _lists(aval: Aval) -> bool:
    """Whether entries of a type are real numbers that stand alone behind dense levels."""
    form = aval.format
    listed = bool(form.levels) and form.levels[-1].listed and not form.blocked and aval.dtype.kind == "f"
    return listed and all(level.full or (level.listed and level.unique and level.ordered) for level in form.levels)


def _is_product(x: Atom, made_by: dict[Var, Eqn], reads: Counter[Atom]) -> bool:
    """Whether a value is what elementwise operations make of a product that is stored nowhere else."""
    inside: Counter[Atom] = Counter()
    todo, product = [x], False
    while todo:
        var = todo.pop()
        eqn = made_by.get(var) if isinstance(var, Var) else None
        if eqn is None:
            continue
        if eqn.primitive is contract_p:
            product |= not var.aval.format.is_dense
        elif eqn.primitive in ELEMENTWISE:
            for a in eqn.inputs:
                inside[a] += 1
                if inside[a] == reads[a]:
                    todo.append(a)
    return product
