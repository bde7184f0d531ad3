"""Loops over one variable: leaders are walked, and the body is emitted at every coordinate, as the plan of the loop says (`rewrite/iteration`)."""

from __future__ import annotations

from collections.abc import Callable

from sparsejax.formats.levels.walk import Place, gallop, lower_bound
from sparsejax.jit.backend import host
from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen import register_tiles, searches
from sparsejax.jit.codegen.context import Context
from sparsejax.jit.codegen.environment import Brief, Cursor, Env
from sparsejax.jit.codegen.loops import (
    chunks,
    consecutive,
    counted,
    distributed,
    gaps,
    groups,
    independent,
    merge,
    padded,
    positions,
    reduce,
    row_blocks,
    row_tiles,
    segmented,
    stored_values,
    unions,
    unroll_and_jam,
)
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import Input
from sparsejax.jit.codegen.workspaces.protocol import Workspace
from sparsejax.jit.ir import cin

EVERYWHERE: frozenset[cin.Access] = frozenset()


def forall(context: Context, stmt: cin.Forall, env: Env) -> None:
    """Emit the loop of `stmt`."""
    b, var, body = context.b, stmt.var, stmt.body
    assert context.program.loops is not None
    plan = context.program.loops.plans[env.loop_key(stmt)]
    fiber = _fiber(context, stmt, env)

    def visit(left: cin.Stmt, coordinate: Val, env: Env) -> None:
        _visit(context, left, var, coordinate, env)

    enters = _entered(context, body, var, env) is not None
    walkers = {a: _walker(context, a, env) for a in plan.leaders}
    loop = Loop(context, var, body, env, plan, plan.cases, walkers, enters, visit)
    if stmt.kind == "parallel":
        loop = chunks.cut(loop)
    _emit(loop, plan.shape)
    if fiber is not None:
        context.output.close(b, *fiber)


def _emit(loop: Loop, shape: str) -> None:
    """The loop in a shape (`alternatives`: choice "loop_shape")."""
    key = next(iter(loop.cases), EVERYWHERE)
    match shape, loop.walkers_of(key):
        case "", _:
            pass
        case "range", _:
            if not padded.blocks(loop):
                counted.counted(loop)
        case "staged_rows", _:
            distributed.blocks(loop)
        case "summed_rows", _:
            row_blocks.blocks(loop)
        case "side_by_side", walkers:
            unroll_and_jam.walk(loop, key, walkers[0] if walkers else None)
        case "independent", _:
            independent.independent(loop, loop.plan.parts)
        case "overwrite", _:
            _emit(gaps.plain_pass(loop), loop.plan.rest)
        case "gaps" | "coordinates", _:
            gaps.gaps(loop)
        case "union", _:
            unions.union(loop, merge.cases)
        case "merge", _:
            merge.cases(loop)
        case "band", _:
            merge.bands(loop, key)
        case "intersection", _:
            merge.intersection(loop, key)
        case "runs", [walker]:
            merge.runs(loop, key, walker)
        case "runs", _:
            merge.common_runs(loop, key)
        case "stored_values", [walker]:
            stored_values.walk(loop, key, walker)
        case "pairs" | "unrolled", [walker]:
            reduce.walk(loop, key, walker)
        case "gathered", [walker]:
            reduce.gathered(loop, key, walker)
        case "positions", [walker]:
            positions.walk(loop, walker)
        case "segmented", [walker]:
            segmented.walk(loop, walker)
        case "consecutive", [walker]:
            consecutive.walk(loop, key, walker)
        case "groups", [walker]:
            groups.walk(loop, key, walker)
        case "padded", [walker]:
            padded.walk(loop, key, walker)
        case "row_tiles", [walker]:
            row_tiles.walk(loop, key, walker)
        case "entries", [walker]:
            merge.entries(loop, key, walker)
        case _:
            raise AssertionError(f"a loop over {loop.var} has no shape {shape}")


def _row(context: Context, stmt: cin.Stmt, leader: cin.Access, env: Env) -> None:
    """What is computed of a row of `leader`, nothing of an empty one; with code of its own for those that fit one vector."""
    b, fiber = context.b, _walker(context, leader, env).segment
    count = b.named("count", b.sub(fiber.hi, fiber.lo))
    lanes = register_tiles.VECTOR_BYTES // leader.dtype.itemsize

    def brief() -> None:
        context.emit(stmt, env.in_mode(row_in_vector=Brief(leader, lanes)))

    with b.if_(b.lt(b.i64(0), count)):
        if host.has_masks() and env.mode.short_rows:
            b.if_else(b.lt(count, lanes + 1), brief, lambda: context.emit(stmt, env))
        else:
            context.emit(stmt, env)


def _at_last_level(access: cin.Access, env: Env) -> bool:
    """Whether all levels of `access` but the last are resolved."""
    cursor = env.cursors[access]
    return cursor.level + 1 == len(access.indices) and cursor.found is None


def _readable(context: Context, access: cin.Access) -> Input | Workspace:
    operand = context.operands[access.tensor.name]
    assert isinstance(operand, Input | Workspace)
    return operand


def _walker(context: Context, access: cin.Access, env: Env) -> Walker:
    cursor, form = env.cursors[access], access.tensor.format
    ranged = cursor.level + 1 < len(form.levels) and form.continues(cursor.level + 1)
    operand = _readable(context, access)
    if form.continues(cursor.level):
        assert cursor.end is not None
        within = operand.within(context.b, cursor.level, cursor.pos, cursor.end)
        return Walker(access, cursor.level, within, ranged)
    segment = operand.segment(context.b, cursor.level, _place(context, access, env))
    return Walker(access, cursor.level, segment, ranged)


def _place(context: Context, access: cin.Access, env: Env) -> Place:
    """Where the next level of `access` is asked for its coordinates."""
    cursor = env.cursors[access]
    above = None
    if cursor.level:
        above = env.coordinate(context.b, access.level_index(cursor.level - 1))
    return Place(cursor.pos, context.axis_of_level(access, cursor.level).extent, above)


def _fiber(context: Context, stmt: cin.Forall, env: Env) -> tuple[int, Val] | None:
    """The output level that this loop fills, with its parent position, when it starts a segment."""
    output = context.output
    for write in cin.writes(stmt.body):
        lhs = write.lhs
        if lhs.tensor.name == output.tensor.name:
            cursor = env.cursors[lhs]
            if cursor.level in output.heads and lhs.level_index(cursor.level) == stmt.var:
                return cursor.level, cursor.pos
    return None


def _visit(context: Context, stmt: cin.Stmt, var: cin.IndexVar, coordinate: Val, env: Env) -> None:
    """The body at one coordinate, between entering and leaving the output's level where this loop appends."""
    b, output = context.b, context.output
    env = env.bind(var, coordinate)
    target = _entered(context, stmt, var, env)
    if target is None:
        env = context.resolve(env, stmt)
        leader = output.leader
        if not isinstance(stmt, cin.Where) or leader is None or not _at_last_level(leader, env):
            context.emit(stmt, env)
            return
        _row(context, stmt, leader, env)
        return
    cursor = env.cursors[target]
    position = output.enter(b, cursor.level, env.level_coordinates(b, target), env.cursors)
    env = env.with_cursors({target: Cursor(cursor.level + 1, cursor.pos if position is None else position)})
    context.emit(stmt, context.resolve(env, stmt))
    output.leave(b, cursor.level)


def _entered(context: Context, stmt: cin.Stmt, var: cin.IndexVar, env: Env) -> cin.Access | None:
    """The output as `stmt` writes it, when the loop over `var` appends coordinates to it."""
    output = context.output
    for write in cin.writes(stmt):
        if write.lhs.tensor.name == output.tensor.name:
            level = env.cursors[write.lhs].level
            return write.lhs if level in output.sparse and write.lhs.level_index(level) == var else None
    return None


def search(context: Context, access: cin.Access, env: Env, coordinate: Val) -> Cursor:
    """Resolve a sparse level at a known coordinate: by its own `locate`, else by a search in its segment."""
    b, level = context.b, env.cursors[access].level
    if not access.tensor.format.continues(level):
        located = _readable(context, access).locate(b, level, _place(context, access, env), coordinate)
        if located is not None:
            return Cursor(level + 1, located[0], None, located[1])
    last = level + 1 == len(access.indices)
    if not last and isinstance(access.level_index(level), cin.Access) and isinstance(_readable(context, access), Input):
        return _remembered(context, access, env, coordinate)
    return _searched(context, access, env, coordinate)


def _remembered(context: Context, access: cin.Access, env: Env, coordinate: Val) -> Cursor:
    """A search that an entry of an index array asks for, which often is the one before again: what that has found is kept.

    N[p] = V[X[p],Y[p],Z[p]]        runs of p have the same X[p], and shorter ones the same X[p] and Y[p]
    """
    b, parent = context.b, env.cursors[access].pos
    nothing, never = b.i64(0), b.i64(-1)
    asked, below = b.lasting("asked", never), b.lasting("below", never)
    found, end, hit = b.lasting("found", nothing), b.lasting("end", nothing), b.lasting("hit", b.const("i1", 0))
    ranged = False

    def anew() -> None:
        nonlocal ranged
        made = _searched(context, access, env, coordinate)
        assert made.found is not None
        ranged = made.end is not None
        for var, value in ((asked, coordinate), (below, parent), (found, made.pos), (hit, made.found)):
            b.set(var, value)
        if made.end is not None:
            b.set(end, made.end)

    with b.if_(b.binary("or", b.ne(coordinate, b.get(asked)), b.ne(parent, b.get(below)))):
        anew()
    return Cursor(env.cursors[access].level + 1, b.get(found), b.get(end) if ranged else None, b.get(hit))


def _searched(context: Context, access: cin.Access, env: Env, coordinate: Val) -> Cursor:
    """A search in the segment of a level."""
    b, level = context.b, env.cursors[access].level
    walker = _walker(context, access, env)
    segment = walker.segment

    def before(target: Val) -> Callable[[Val], Val]:
        return lambda at: b.lt(segment.coordinate(at), target)

    if walker.ranged:
        first = lower_bound(b, before(coordinate), segment.lo, segment.hi)
        end = gallop(b, before(b.add(coordinate, b.i64(1))), first, segment.hi)  # what repeats is short
        return Cursor(level + 1, first, end, b.lt(first, end))
    steps = searches.in_steps(access, level, env)
    found = searches.place_of(b, _readable(context, access), level, segment, coordinate, steps)
    return Cursor(level + 1, segment.child(found, coordinate), None, b.lt(b.i64(-1), found))
