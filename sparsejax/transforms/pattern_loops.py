"""Rules of `patterns` for branches and loops: the patterns of their bodies.

    cond     the union of the branches
    scan     step by step, each with its own part of what is scanned
    while    carries united with what the body makes of them, until nothing changes

Sparse carries, and sparse arrays that are scanned, count as stored everywhere, since every step may store something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.lax.control import Bodies, Loop, cond_p, scan_p, while_p
from sparsejax.transforms import staging
from sparsejax.transforms.patterns import Pattern, Place, Rows, everything, loops, propagate, rules, stored, union

ROUNDS = 256
"""Loops of more rounds depend on everything."""

Results = list[Rows | None]


def _inlined(closed: ClosedJaxpr) -> ClosedJaxpr:
    return ClosedJaxpr(staging.clean(closed.jaxpr, keep=rules), ())


def _spread(p: Pattern, place: Place) -> Rows | None:
    """The rows of a value at the entries of `place`."""
    return None if p.rows is None else p.at(place.numbers)


def _loose(p: Pattern) -> Pattern:
    """A value that may store other entries in the next round."""
    place = Place(p.place.shape)
    return Pattern(place, _spread(p, place))


def _united(parts: Sequence[Rows | None]) -> Rows | None:
    found = [rows for rows in parts if rows is not None]
    return union(found) if found else None


def _same(x: Rows | None, y: Rows | None) -> bool:
    return x is y or (x is not None and y is not None and x.nnz == y.nnz and (x != y).nnz == 0)


def _all(operands: Sequence[Pattern], outs: Sequence[Place]) -> Results:
    return [everything(operands, place) for place in outs]


def _cond(operands: Sequence[Pattern], outs: Sequence[Place], branches: Bodies) -> Results:
    made = [propagate(_inlined(branch), operands[1:]) for branch in branches]
    return [_united([_spread(p, place) for p in column]) for place, *column in zip(outs, *made, strict=True)]


def _scan(operands: Sequence[Pattern], outs: Sequence[Place], **params: Any) -> Results:
    loop = Loop(**params)
    if loop.length > ROUNDS:
        return _all(operands, outs)
    body = _inlined(loop.body)
    consts, carry, scanned = loop.divided(operands)
    carry = [_loose(p) for p in carry]
    places = None
    steps: dict[int, list[Pattern]] = {}
    for k in loop.order():
        parts = [*consts, *carry, *(_slice(p, k) for p in scanned)]
        places = stored(body, parts) if places is None else places
        made, steps[k] = loop.results(propagate(body, parts, places))
        carry = [_loose(p) for p in made]
    count = len(carry)
    last = [_spread(p, place) for p, place in zip(carry, outs, strict=False)]
    columns = zip(*(steps[k] for k in range(loop.length)), strict=True) if steps else ()
    return [*last, *(_stacked(list(c), place) for c, place in zip(columns, outs[count:], strict=True))]


def _slice(p: Pattern, k: int) -> Pattern:
    place = Place(p.place.shape[1:])
    return Pattern(place, None if p.rows is None else p.at(place.numbers + k * len(place)))


def _stacked(parts: Sequence[Pattern], out: Place) -> Rows | None:
    import scipy.sparse as sp

    columns = [p.rows.shape[1] for p in parts if p.rows is not None]
    if not columns:
        return None
    rows = [_loose(p).rows for p in parts]
    empty = sp.csr_array((len(Place(parts[0].place.shape)), columns[0]), dtype=bool)
    whole = sp.vstack([empty if r is None else r for r in rows], format="csr")
    return Pattern(Place(out.shape), whole).at(out.numbers)


def _while(
    operands: Sequence[Pattern], outs: Sequence[Place], cond: ClosedJaxpr, body: ClosedJaxpr, counts: tuple[int, int]
) -> Results:
    first, second = counts
    step = _inlined(body)
    consts = list(operands[first : first + second])
    carry = [_loose(p) for p in operands[first + second :]]
    places = stored(step, [*consts, *carry])
    for _ in range(ROUNDS):
        made = [_loose(p) for p in propagate(step, [*consts, *carry], places)]
        grown = [Pattern(p.place, _united([p.rows, q.rows])) for p, q in zip(carry, made, strict=True)]
        if all(_same(p.rows, q.rows) for p, q in zip(carry, grown, strict=True)):
            return [_spread(p, place) for p, place in zip(carry, outs, strict=True)]
        carry = grown
    return _all(operands, outs)


loops[cond_p] = _cond
loops[scan_p] = _scan
loops[while_p] = _while
