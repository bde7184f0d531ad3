"""Witnesses of patterns: what asks a value for its entries alone asks the oldest one that stores the same.

before:  e = power d 2;  s = reduce e;  f = sample c e;  g = multiply f d          d stores what b does
after:   e = power d 2;  s = reduce e;  g = multiply c d

Then `e` has one reader, which computes it (`fuse`), instead of being stored for its pattern: so are sums of functions of a sparse array in
programs that have their gradients. Numbers that are sampled where the other factor is stored need not be.
"""

from __future__ import annotations

from sparsejax.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from sparsejax.formats.parts import located
from sparsejax.jit.graph.patterns.changes import is_typed
from sparsejax.lax.contract import contract_p
from sparsejax.lax.elementwise import cast_p, primitives, unary_p, where_p
from sparsejax.lax.entry_places import numbered_p, returned_p
from sparsejax.lax.linear import sample_p, share_p, zeros_p
from sparsejax.lax.structural import pattern_p, refill_p
from sparsejax.lax.window_places import window_places_p

ENTRYWISE = frozenset([*primitives.values(), cast_p, unary_p, where_p, refill_p])
LIKE = {sample_p: 1, share_p: 1, zeros_p: 0, pattern_p: 0, window_places_p: 0, numbered_p: 0, returned_p: 2}
"""The operand that is asked for its pattern alone."""


def asked(jaxpr: Jaxpr) -> Jaxpr:
    """`jaxpr` with its questions put to witnesses."""
    witness: dict[Var, Var] = {}
    sampled: dict[Var, tuple[Atom, Var]] = {}
    chosen: dict[Atom, tuple[Atom, Atom]] = {}
    kept: list[Eqn] = []

    def of(atom: Atom) -> Atom:
        return atom if isinstance(atom, Literal) else witness.get(atom, atom)

    for eqn in jaxpr.eqns:
        place = _place(eqn)
        if place is not None:
            eqn = _with(eqn, place, of(eqn.inputs[place]))
        if eqn.primitive is primitives["multiply"]:
            for k in range(2):
                value, at = sampled.get(eqn.inputs[k], (None, None))  # type: ignore[arg-type]
                if value is not None and of(eqn.inputs[1 - k]) == at and is_typed(made := _with(eqn, k, value)):
                    eqn = made
        whole = chosen.get(eqn.inputs[0]) if eqn.primitive is share_p else None
        if whole is not None and of(eqn.inputs[1]) == whole[1]:  # to share leaves out the same entries
            eqn = _with(eqn, 0, whole[0])
        kept.append(eqn)
        if eqn.primitive.multiple:
            continue
        out = eqn.outputs[0]
        _witnessed(eqn, place, witness)
        if eqn.primitive is sample_p and _same_form(*eqn.inputs):
            chosen[out] = eqn.inputs[0], of(eqn.inputs[1])
        if eqn.primitive is sample_p and not eqn.inputs[0].aval.shape and isinstance(eqn.inputs[1], Var):
            sampled[out] = eqn.inputs[0], eqn.inputs[1]
    return Jaxpr(jaxpr.inputs, jaxpr.consts, tuple(kept), jaxpr.outputs)


def witnesses(jaxpr: Jaxpr) -> dict[Var, Var]:
    """The oldest value that stores the same as another one, for those that have one."""
    witness: dict[Var, Var] = {}
    for eqn in jaxpr.eqns:
        if not eqn.primitive.multiple:
            _witnessed(eqn, _place(eqn), witness)
    return witness


def _witnessed(eqn: Eqn, place: int | None, witness: dict[Var, Var]) -> None:
    """Note the witness of a result, if it has one."""
    found = {witness.get(a, a) if isinstance(a, Var) else a for a in _sources(eqn, place)}
    if len(found) == 1:
        (source,) = found
        if isinstance(source, Var) and _alike(source, eqn.outputs[0]):
            witness[eqn.outputs[0]] = source


def _place(eqn: Eqn) -> int | None:
    """The operand that `eqn` asks for its pattern alone."""
    if eqn.primitive is contract_p:
        params = eqn.param_dict
        place = len(params["inputs"])
        return None if params.get("mask") is None or eqn.inputs[place].aval.format.is_dense else place
    return LIKE.get(eqn.primitive)


def _sources(eqn: Eqn, place: int | None) -> list[Atom]:
    """Operands, each of which stores what the result does if it is in the same format, and if all of them have one witness."""
    sparse = [a for a in eqn.inputs if not a.aval.format.is_dense]
    if eqn.primitive in ENTRYWISE or eqn.primitive is pattern_p:
        return sparse
    if eqn.primitive is sample_p and eqn.inputs[0].aval.shape == eqn.inputs[1].aval.shape:
        return sparse
    if place is None or (eqn.primitive is sample_p and len(sparse) > 1):
        return []
    if eqn.primitive is contract_p:  # every entry of the mask is a sum of something
        whole = eqn.param_dict["mask"] == "pattern" and len(sparse) == 1 and "ring" not in eqn.param_dict
        return sparse if whole and all(0 not in a.aval.shape for a in eqn.inputs) else []
    return [eqn.inputs[place]]


def _alike(source: Var, out: Var) -> bool:
    """Whether two values have the same format, in which equal entries are stored in the same way."""
    levels = out.aval.format.levels
    same = source.aval.format == out.aval.format and source.aval.shape == out.aval.shape
    return same and not out.aval.format.is_dense and all(level.unique and not level.shared for level in levels)


def _same_form(value: Atom, like: Atom) -> bool:
    """Whether both have one shape and format, in which entries are found side by side."""
    same = value.aval.shape == like.aval.shape and value.aval.format == like.aval.format
    return same and not like.aval.format.is_dense and located.searched(like.aval.format)


def _with(eqn: Eqn, place: int, atom: Atom) -> Eqn:
    inputs = (*eqn.inputs[:place], atom, *eqn.inputs[place + 1 :])
    return Eqn(eqn.primitive, inputs, eqn.params, eqn.outputs, eqn.source)
