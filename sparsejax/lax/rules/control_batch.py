"""Batches of control flow: bodies are batched, and what they return keeps one type.

    scan     every round runs the batch of the body
    while    until no element goes on; where elements stop at different times, those that stopped keep their values
    cond     the batch of the branch; where elements take different ones, all branches run and every element keeps its own

A sparse carry is a batch of values under one pattern as long as the body makes one of it, else a batch of patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched, batched_format, has_shared_pattern
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.formats import Format
from sparsejax.formats.parts import stacking
from sparsejax.lax.control import Loop, cond_p, scan_p, while_p
from sparsejax.lax.elementwise import convert_element_type, elementwise, where
from sparsejax.lax.linear import refilled
from sparsejax.lax.loops import Traced, sliced_aval, together
from sparsejax.lax.reduce import reduce_p
from sparsejax.lax.rules.batching import batch_jaxpr, faithful, spread
from sparsejax.lax.structural import convert_format

Values = list[Any]
Formats = list[Format | None]
"""For every value the format of its batch, the batch being the last dimension; None where all elements share it."""


def _full(x: Any) -> Any:
    return faithful(x).value if isinstance(x, Batched) else x


def _wrapped(avals: Sequence[Aval], values: Sequence[Any]) -> Values:
    """Full values as operands of the batch of a jaxpr that takes `avals`."""
    return [x if x.ndim == a.ndim else Batched(x, a) for a, x in zip(avals, values, strict=True)]


def _fitted(x: Any, form: Format | None, size: int) -> Any:
    """A result as a full value in `form`."""
    return x if form is None else convert_format(spread(faithful(x), size), form)


def _joined(aval: Aval, forms: Sequence[Format | None]) -> Format | None:
    """One format for values that are batched in these: of patterns, where one of them is."""
    known = [f for f in forms if f is not None]
    if not known or len(set(known)) == 1:
        return known[0] if known else None
    return batched_format(aval.format, not aval.is_dense and not all(map(has_shared_pattern, known)))


def _formats(results: Sequence[Any]) -> Formats:
    return [_full(x).format if isinstance(x, Batched) else None for x in results]


def _full_aval(aval: Aval, form: Format | None, size: int) -> Aval:
    if form is None:
        return aval
    return Aval((*aval.shape, size), aval.dtype, form, 0 if form.is_dense else aval.fill_value)


def _results(closed: ClosedJaxpr, size: int, avals: Sequence[Aval]) -> Formats:
    """The formats of the batches that a jaxpr returns for full values of the types `avals`."""
    found: list[Formats] = []

    def body(*args: Any) -> Values:
        outs = batch_jaxpr(closed, size, _wrapped(closed.in_avals, args))
        found.append(_formats(outs))
        return [_full(x) for x in outs]

    Traced(body, avals)
    return found[0]


def _select(chosen: Any, yes: Any, no: Any) -> Any:
    """`yes` for the elements that are `chosen` (booleans along the last dimension), else `no`: full values of one type. Sparse ones keep
    the entries of their own elements alone."""
    if yes.format.is_dense:
        return convert_format(where(chosen, yes, no), yes.format)
    times, plus = ("logical_and", "logical_or") if yes.dtype == np.bool_ else ("multiply", "add")
    parts = []
    for x, kept in ((yes, chosen), (no, elementwise("logical_not", chosen))):
        sparse = convert_format(convert_element_type(kept, x.dtype), "csf")
        parts.append(elementwise(times, refilled(x), sparse))
    made = elementwise(plus, *parts)
    return convert_format(refilled(made, yes.fill_value), yes.format)


# ------------------------------------------------------------------------------------------------------------- loops


def _settled(
    carry: Sequence[Any], avals: Sequence[Aval], size: int, step: Callable[[Formats], Formats], everything: bool = False
) -> Formats:
    """The formats of the batches of carries, such that the body, whose results `step` types, keeps them."""
    forms = _formats(carry)
    if everything:
        forms = [batched_format(a.format, False) if f is None else f for a, f in zip(avals, forms, strict=True)]
    while True:
        found = step(forms)
        grown = [
            f
            if f is not None and (f == g or g is None or a.is_dense or not has_shared_pattern(f))
            else _joined(a, [f, g])
            for a, f, g in zip(avals, forms, found, strict=True)
        ]
        if grown == forms:
            return forms
        forms = grown


def _scan(size: int, *operands: Any, **params: Any) -> Values:
    loop = Loop(**params)
    consts, carry, xs = loop.divided(operands)
    own_consts, own_carry, _ = loop.divided(loop.body.in_avals)
    full_xs = [_full(x) for x in xs]
    full_xs = [convert_format(x, stacking.stacked(stacking.slices(x.format))) for x in full_xs]
    slices = [sliced_aval(x.aval) for x in full_xs]
    given = [_full(x).aval for x in consts]

    def avals(forms: Formats) -> list[Aval]:
        return [*given, *(_full_aval(a, f, size) for a, f in zip(own_carry, forms, strict=True)), *slices]

    def step(forms: Formats) -> Formats:
        return _results(loop.body, size, avals(forms))[: loop.carry]

    forms = _settled(carry, own_carry, size, step)

    def body(*args: Any) -> Values:
        outs = batch_jaxpr(loop.body, size, _wrapped(loop.body.in_avals, args))
        last, ys = loop.results(outs)
        return [*(_fitted(x, f, size) for x, f in zip(last, forms, strict=True)), *(_full(y) for y in ys)]

    traced = Traced(body, avals(forms))
    start = [_fitted(x, f, size) for x, f in zip(carry, forms, strict=True)]
    changed = {**params, "body": traced.closed, "consts": len(traced.consts) + len(own_consts), "adjoint": None}
    made: Values = scan_p.bind(*traced.consts, *map(_full, consts), *start, *full_xs, **changed)
    return made


def _while(size: int, *operands: Any, cond: ClosedJaxpr, body: ClosedJaxpr, counts: tuple[int, int]) -> Values:
    first, second = counts
    asked, given, carry = operands[:first], operands[first : first + second], operands[first + second :]
    own = body.in_avals[second:]

    def carried(forms: Formats) -> list[Aval]:
        return [_full_aval(a, f, size) for a, f in zip(own, forms, strict=True)]

    def step(forms: Formats) -> Formats:
        return _results(body, size, [*(_full(x).aval for x in given), *carried(forms)])

    def differs(forms: Formats) -> bool:
        """Whether elements may stop at different times."""
        return _results(cond, size, [*(_full(x).aval for x in asked), *carried(forms)])[0] is not None

    forms = _settled(carry, own, size, step)
    apart = differs(forms)
    if apart:
        forms = _settled(carry, own, size, step, everything=True)

    def goes_on(args: Sequence[Any]) -> Any:
        return _full(batch_jaxpr(cond, size, _wrapped(cond.in_avals, args))[0])

    def advance(*args: Any) -> Values:
        """What elements that stop are asked, what the body reads, the carry."""
        tests, rest = args[:first], args[first:]
        state = rest[second:]
        outs = batch_jaxpr(body, size, _wrapped(body.in_avals, rest))
        new = [_fitted(x, f, size) for x, f in zip(outs, forms, strict=True)]
        if not apart:
            return new
        going = goes_on((*tests, *state))
        return [_select(going, x, y) for x, y in zip(new, state, strict=True)]

    def test(*args: Any) -> Values:
        going = goes_on(args)
        return [reduce_p.bind(going, kind="any", axes=(0,), dtype=np.dtype(np.bool_)) if apart else going]

    tests, values = [_full(x) for x in asked], [_full(x) for x in given]
    asks = Traced(test, [*(x.aval for x in tests), *carried(forms)])
    steps = Traced(advance, [*(x.aval for x in (*tests, *values)), *carried(forms)])
    start = [_fitted(x, f, size) for x, f in zip(carry, forms, strict=True)]
    made: Values = while_p.bind(
        *asks.consts,
        *tests,
        *steps.consts,
        *tests,
        *values,
        *start,
        cond=asks.closed,
        body=steps.closed,
        counts=(len(asks.consts) + first, len(steps.consts) + first + second),
    )
    return made


# -------------------------------------------------------------------------------------------------------------- cond


def _cond(size: int, index: Any, *operands: Any, branches: tuple[ClosedJaxpr, ...]) -> Values:
    values = [_full(x) for x in operands]
    avals = [x.aval for x in values]
    columns = zip(*(_results(b, size, avals) for b in branches), strict=True)
    apart = isinstance(index, Batched)
    forms: Formats = []
    for aval, column in zip(branches[0].out_avals, columns, strict=True):
        joined = _joined(aval, column)
        forms.append(batched_format(aval.format, False) if joined is None and apart else joined)

    def branch(closed: ClosedJaxpr) -> Callable[..., Values]:
        def body(*args: Any) -> Values:
            outs = batch_jaxpr(closed, size, _wrapped(closed.in_avals, args))
            return [_fitted(x, f, size) for x, f in zip(outs, forms, strict=True)]

        return body

    if not apart:
        consts, closed = together([Traced(branch(b), avals) for b in branches])
        made: Values = cond_p.bind(index, *consts, *values, branches=closed)
        return made
    place = _full(index)
    everything = [branch(b)(*values) for b in branches]
    chosen = everything[0]
    for k, outs in enumerate(everything[1:], 1):
        beyond = place if place.dtype == np.bool_ else elementwise("greater_equal", place, k)
        chosen = [_select(beyond, x, y) for x, y in zip(outs, chosen, strict=True)]
    return chosen


def batched_call(size: int, operands: Sequence[Any], closed: ClosedJaxpr) -> tuple[Values, ClosedJaxpr]:
    """The operands and the jaxpr of the batch of a call."""
    values = [_full(x) for x in operands]

    def body(*args: Any) -> Values:
        return [_full(x) for x in batch_jaxpr(closed, size, _wrapped(closed.in_avals, args))]

    traced = Traced(body, [x.aval for x in values])
    return [*traced.consts, *values], traced.closed


scan_p.batch = _scan
while_p.batch = _while
cond_p.batch = _cond
