"""Positions that several levels share, one by one: the coordinates of all of them at once, and what is innermost.

    for p in lo .. hi:                        forall i; where w: forall j: w += A[i,j] * x[j], then y[i] = w
      y[crd0[p]] += vals[p] * x[crd1[p]]

Nothing is asked but whether there is another position: where coordinates repeat some times, and how often is not foreseen, each end of a run costs as
much as a dozen entries. What is read again for equal coordinates comes from the first cache.
"""

from __future__ import annotations

from dataclasses import replace

from sparsejax.formats.levels.level import segment_of
from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen.environment import Cursor, Env
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import Input
from sparsejax.jit.ir.loop_plans import PositionWalk


def walk(loop: Loop, walker: Walker) -> None:
    """The places of `walker`, of which each is a position of all levels of the walk."""
    b, found = loop.b, loop.plan.walk
    assert found is not None
    with b.for_(walker.segment.lo, walker.segment.hi, "p") as place:
        coordinates = coordinates_at(loop, found, walker, place)
        env = at(loop.env, found, place, coordinates)
        replace(loop, env=env).enter(found.stmt, coordinates[0], env)


def coordinates_at(loop: Loop, found: PositionWalk, walker: Walker, place: Val) -> list[Val]:
    """The coordinates of all levels at a position."""
    operand, segment = loop.context.operands[found.leader.tensor.name], walker.segment
    assert isinstance(operand, Input)
    first = [segment.coordinate(place)]
    rest = (operand.buffers[found.level + k] for k in range(1, len(found.vars)))
    return first + [segment_of(loop.b, buffers, segment.lo, segment.hi).coordinate(place) for buffers in rest]


def at(env: Env, found: PositionWalk, place: Val, coordinates: list[Val]) -> Env:
    """The state at a position, where the variables of a walk have these values."""
    for var, coordinate in zip(found.vars, coordinates, strict=True):
        env = env.bind(var, coordinate)
    return env.with_cursors({found.leader: Cursor(found.level + len(found.vars), place)})
