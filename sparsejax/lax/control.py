"""Primitives of control flow: jaxprs that run under a plan's control, between kernels.

    y… = cond[branches] k c… x…                     branches[k](c…, x…)
    x… = while[cond, body] c… b… x…                 while cond(c…, x…): x… = body(b…, x…)
    x…, y… = scan[body, length] c… x… z…            for z in zip(z…): x…, y = body(c…, x…, z);  y… stacked

Bodies have no constants: what a function closes over is an operand. A value that goes around a loop (a carry) keeps shape, dtype, format
and fill; its number of entries may change every step.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import ClosedJaxpr, Jaxpr, evaluate
from sparsejax.core.primitive import Primitive
from sparsejax.errors import JaxprTypeError
from sparsejax.formats.parts import stacking
from sparsejax.formats.storage import Storage
from sparsejax.lax.rounds import Body, run_scan, run_while
from sparsejax.transforms import staging

Bodies = tuple[ClosedJaxpr, ...]
Pruned = tuple[list[bool], list[bool], dict[str, Any]]


def plain(aval: Aval) -> Aval:
    """The type of a run-time value: no literal."""
    return Aval(aval.shape, aval.dtype, aval.format, 0, aval.weak_type) if aval.is_literal else aval


def same_type(x: Aval, y: Aval) -> bool:
    """Whether values of two types are stored alike; weak types are the same to a body."""
    return plain(x.strong()) == plain(y.strong())


def _check(name: str, given: Sequence[Aval], wanted: Sequence[Aval]) -> None:
    for k, (x, y) in enumerate(zip(given, wanted, strict=True)):
        if not same_type(x, y):
            raise JaxprTypeError(f"{name} has operand {k} of type {x}, but its body takes {y}")


def stacked_aval(aval: Aval, length: int) -> Aval:
    """The type of a stack of `length` values."""
    form = stacking.stacked(aval.format)
    return Aval((length, *aval.shape), aval.dtype, form, 0 if form.is_dense else aval.fill_value, aval.weak_type)


def _outs(closed: ClosedJaxpr) -> tuple[Aval, ...]:
    return tuple(plain(a) for a in closed.out_avals)


def _oracle(closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    return list(evaluate(closed, *args))


# ------------------------------------------------------------------------------------------------------------ cond


def _cond_typing(index: Aval, *avals: Aval, branches: Bodies) -> tuple[Aval, ...]:
    for branch in branches:
        _check("cond", avals, branch.in_avals)
        for x, y in zip(branch.out_avals, branches[0].out_avals, strict=True):
            if not same_type(x, y):
                raise JaxprTypeError(f"cond has branches that return {x} and {y}")
    return _outs(branches[0])


def _chosen(index: Any, count: int) -> int:
    return min(max(int(index), 0), count - 1)


def _cond_call(index: Storage, *xs: Storage, bodies: Sequence[Body], out_aval: Any, branches: Bodies) -> list[Storage]:
    return bodies[_chosen(index.vals[0], len(bodies))].run(xs)


def _cond_prune(used: Sequence[bool], branches: Bodies) -> Pruned:
    small = [_kept(b.jaxpr, used) for b in branches]
    flags = [staging.reads(b) for b in small]
    read = [any(column) for column in zip(*flags, strict=True)]
    return [True, *read], list(used), {"branches": tuple(staging.interned(_without(b, read)) for b in small)}


def _kept(jaxpr: Jaxpr, used: Sequence[bool]) -> Jaxpr:
    """A jaxpr with some of its results, without dead code."""
    outputs = tuple(itertools.compress(jaxpr.outputs, used))
    return staging.dead_code(Jaxpr(jaxpr.inputs, (), jaxpr.eqns, outputs))


def _without(jaxpr: Jaxpr, read: Sequence[bool]) -> Jaxpr:
    inputs = tuple(itertools.compress(jaxpr.inputs, read))
    return Jaxpr(inputs, (), jaxpr.eqns, jaxpr.outputs)


cond_p = Primitive(
    "cond",
    typing=_cond_typing,
    reference=lambda index, *xs, branches: _oracle(branches[_chosen(index, len(branches))], xs),
    call=_cond_call,
    bodies=lambda branches: branches,
    kept=lambda branches: [range(1, 1 + len(b.in_avals)) for b in branches],
    describe=lambda branches: "",
    prune=_cond_prune,
    multiple=True,
)

# ----------------------------------------------------------------------------------------------------------- while


def _while_typing(*avals: Aval, cond: ClosedJaxpr, body: ClosedJaxpr, counts: tuple[int, int]) -> tuple[Aval, ...]:
    """`counts`: operands that only `cond` reads, and only `body`."""
    first, second = counts
    carry = avals[first + second :]
    _check("while", (*avals[:first], *carry), cond.in_avals)
    _check("while", avals[first:], body.in_avals)
    _check("while", carry, body.out_avals)
    return tuple(plain(a) for a in body.in_avals[second:])


def _while_reference(*xs: Any, cond: ClosedJaxpr, body: ClosedJaxpr, counts: tuple[int, int]) -> list[Any]:
    first, second = counts
    carry = list(xs[first + second :])
    while _oracle(cond, (*xs[:first], *carry))[0]:
        carry = _oracle(body, (*xs[first : first + second], *carry))
    return carry


def _while_call(
    *xs: Storage,
    bodies: Sequence[Body],
    out_aval: Any,
    cond: ClosedJaxpr,
    body: ClosedJaxpr,
    counts: tuple[int, int],
) -> list[Storage]:
    first, second = counts
    going, step = bodies
    unread = {k for k, aval in enumerate(out_aval) if aval is None}
    return run_while(going, step, xs[:first], xs[first : first + second], list(xs[first + second :]), unread)


def _while_prune(used: Sequence[bool], cond: ClosedJaxpr, body: ClosedJaxpr, counts: tuple[int, int]) -> Pruned:
    """Carries stay that are used, that the condition reads, or that something is made from."""
    first, second = counts
    asked = staging.reads(cond.jaxpr)
    carry = [a or b for a, b in zip(used, asked[first:], strict=True)]
    while True:
        small = _kept(body.jaxpr, carry)
        read = staging.reads(small)
        grown = [a or b for a, b in zip(carry, read[second:], strict=True)]
        if grown == carry:
            break
        carry = grown
    given = asked[:first], read[:second]
    params = {
        "cond": staging.interned(_without(cond.jaxpr, [*given[0], *carry])),
        "body": staging.interned(_without(small, [*given[1], *carry])),
        "counts": (sum(given[0]), sum(given[1])),
    }
    return [*given[0], *given[1], *carry], carry, params


while_p = Primitive(
    "while",
    typing=_while_typing,
    reference=_while_reference,
    call=_while_call,
    bodies=lambda cond, body, counts: (cond, body),
    kept=lambda cond, body, counts: (range(counts[0]), range(counts[0], sum(counts))),
    describe=lambda cond, body, counts: "",
    prune=_while_prune,
    multiple=True,
    partial=True,
)

# ------------------------------------------------------------------------------------------------------------ scan


class Loop:
    """How the operands and results of a scan are divided: constants, carries, and what is scanned; parameters of the primitive."""

    def __init__(self, body: ClosedJaxpr, length: int, reverse: bool, consts: int, carry: int, adjoint: Any) -> None:
        self.body, self.length, self.reverse = body, length, reverse
        self.consts, self.carry = consts, carry

    def divided(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Operands: constants, carries, scanned."""
        stop = self.consts + self.carry
        return list(operands[: self.consts]), list(operands[self.consts : stop]), list(operands[stop:])

    def results(self, outs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Results: carries, stacked."""
        return list(outs[: self.carry]), list(outs[self.carry :])

    def order(self) -> range:
        return range(self.length)[:: -1 if self.reverse else 1]


def _scan_typing(*avals: Aval, **params: Any) -> tuple[Aval, ...]:
    loop = Loop(**params)
    consts, carry, xs = loop.divided(avals)
    own_consts, own_carry, own_xs = loop.divided(loop.body.in_avals)
    _check("scan", (*consts, *carry, *xs), (*own_consts, *own_carry, *(stacked_aval(a, loop.length) for a in own_xs)))
    outs, ys = loop.results(_outs(loop.body))
    _check("scan", carry, outs)
    return (*(plain(a) for a in own_carry), *(stacked_aval(a, loop.length) for a in ys))


def _scan_reference(*operands: Any, **params: Any) -> list[Any]:
    loop = Loop(**params)
    consts, carry, xs = loop.divided(operands)
    ys: list[list[Any]] = [[] for _ in loop.body.out_avals[loop.carry :]]
    for k in loop.order():
        carry, made = loop.results(_oracle(loop.body, (*consts, *carry, *(x[k] for x in xs))))
        for column, y in zip(ys, made, strict=True):
            column.append(y)
    avals = loop.body.out_avals[loop.carry :]
    step = -1 if loop.reverse else 1
    stacks = [np.reshape(c[::step], (loop.length, *a.shape)) for c, a in zip(ys, avals, strict=True)]
    return [*carry, *stacks]


def _scan_call(*operands: Storage, bodies: Sequence[Body], out_aval: Sequence[Aval], **params: Any) -> list[Storage]:
    loop = Loop(**params)
    consts, carry, xs = loop.divided(operands)
    last, stacks = run_scan(bodies[0], consts, carry, xs, loop.order(), _outs(loop.body)[loop.carry :])
    return [*last, *stacks]


def _scan_prune(used: Sequence[bool], **params: Any) -> Pruned:
    """Carries stay that are used, or that something is made from."""
    loop = Loop(**params)
    carry, ys = loop.results(used)
    while True:
        small = _kept(loop.body.jaxpr, [*carry, *ys])
        consts, read, xs = loop.divided(staging.reads(small))
        grown = [a or b for a, b in zip(carry, read, strict=True)]
        if grown == carry:
            break
        carry = grown
    flags = [*consts, *carry, *xs]
    body = staging.interned(_without(small, flags))
    changed = {"body": body, "consts": sum(consts), "carry": sum(carry), "adjoint": None}
    return flags, [*carry, *ys], {**params, **changed}


scan_p = Primitive(
    "scan",
    typing=_scan_typing,
    reference=_scan_reference,
    call=_scan_call,
    bodies=lambda body, **params: (body,),
    kept=lambda consts, **params: (range(consts),),
    describe=lambda length, reverse, consts, carry, **params: (
        f"length={length}{' reverse' if reverse else ''} consts={consts} carry={carry}"
    ),
    prune=_scan_prune,
    multiple=True,
)
