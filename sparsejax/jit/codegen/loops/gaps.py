"""Loops where work remains without any leader: the whole extent is visited, and leaders join in where they are.

pass, then update    every coordinate without leaders, in lanes; then the leaders' own loop writes over it
                     (assignments in place only). The pass is left out where it would assign to x[i] what is there: where the
                     result takes the place of the operand x in memory (`runtime/donation`, `runtime/whole`)
gaps                 between stored coordinates a counted loop without leaders, then the full body at the next one
every coordinate     where the body holds loops of its own, which cost more than the tests
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace

from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen.loops.counted import Ranges
from sparsejax.jit.codegen.loops.merge import Match, choose
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import Input
from sparsejax.jit.ir import cin

EMPTY: frozenset[cin.Access] = frozenset()


def plain_pass(loop: Loop) -> Loop:
    """Run every coordinate without leaders; the loop that is left."""
    apart = _apart(loop)
    with nullcontext() if apart is None else loop.b.if_(apart):
        ranges = Ranges(loop, EMPTY, loop.plan.first)
        ranges.add(loop.begin, loop.extent)
        ranges.finish()
    return replace(loop, cases={key: stmt for key, stmt in loop.cases.items() if key})


def _apart(loop: Loop) -> Val | None:
    """Whether an operand that the pass copies lies elsewhere than the output; None where it copies none, or the output is sparse, whose entries
    have places of their own."""
    context, copy = loop.context, loop.cases[EMPTY]
    if not context.program.output.format.is_dense:
        return None
    if not isinstance(copy, cin.Assign) or copy.op is not None or not isinstance(copy.rhs, cin.Access):
        return None
    own, output = copy.rhs, context.program.output
    source = context.operands.get(own.tensor.name)
    if copy.lhs.tensor.name != output.name or own.indices != copy.lhs.indices or not isinstance(source, Input):
        return None
    if own.tensor._replace(name="", fill_value=0) != output._replace(name="", fill_value=0):
        return None
    return loop.b.ne(source.vals, context.output.vals(loop.b))


def gaps(loop: Loop) -> None:
    """Visit the whole extent."""
    walkers = _used(loop)
    for walker in walkers.values():
        walker.start(loop.b)
    if loop.plan.shape == "gaps":
        _between(loop, walkers)
    else:
        with loop.b.for_(loop.begin, loop.extent, loop.var.name) as coordinate:
            _full(loop, walkers, coordinate)


def _between(loop: Loop, walkers: Mapping[cin.Access, Walker]) -> None:
    b = loop.b
    ranges = Ranges(loop, EMPTY, loop.plan.range)
    start = b.var(loop.var.name, loop.begin)
    with b.while_(lambda: b.lt(b.get(start), loop.extent)):
        stop = loop.extent
        for walker in walkers.values():
            stop = b.min(stop, walker.coordinate(b))
        stop = b.named("stop", stop)
        ranges.add(b.get(start), stop, short=True)
        with b.if_(b.lt(stop, loop.extent)):
            _full(loop, walkers, stop)
        b.set(start, b.add(stop, 1))
    ranges.finish()


def _full(loop: Loop, walkers: Mapping[cin.Access, Walker], coordinate: Val) -> None:
    match = Match(loop.b, walkers, coordinate)
    choose(loop, match, coordinate, list(loop.cases))
    match.advance()


def _used(loop: Loop) -> dict[cin.Access, Walker]:
    used = {a for key in loop.cases for a in key}
    return {a: w for a, w in loop.walkers.items() if a in used}
