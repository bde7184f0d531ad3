"""Loops over one variable: who leads, which cases there are, and the shape of the loop (`loops` has the table).

Leaders are accesses whose next level is sparse and indexed by the loop's variable, but for those that others restrict and
that can be located in constant time (bitmaps, hash tables, bands). The cases are the subsets of leaders
for which something remains to be done when the others are absent (`simplify.exhaust_stmt`); they are tried largest
first.

Source: "The Tensor Algebra Compiler", section 4 (merge lattices).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparsejax.formats import Dense
from sparsejax.formats.walk import Place, lower_bound
from sparsejax.jit.backend import host
from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen import register_tiles
from sparsejax.jit.codegen.context import Context
from sparsejax.jit.codegen.environment import Brief, Cursor, Env
from sparsejax.jit.codegen.loops import chunks, counted, gaps, independent, merge, unions
from sparsejax.jit.codegen.loops.walker import Leaders, Loop, Walker
from sparsejax.jit.codegen.operands import Input
from sparsejax.jit.codegen.workspaces.protocol import Workspace
from sparsejax.jit.ir import cin, simplify


class Unordered(Exception):
    """A loop would have to walk an unordered level of `tensor` in order."""

    def __init__(self, tensor: cin.Tensor) -> None:
        super().__init__(f"an unordered level of {tensor} cannot be walked in order")
        self.tensor = tensor


def forall(context: Context, stmt: cin.Forall, env: Env) -> None:
    """Emit the loop of `stmt`."""
    b, var, body = context.b, stmt.var, stmt.body
    leaders = find_leaders(body, [a for a in dict.fromkeys(cin.accesses(body)) if _leads(a, var, env)], env)
    fiber = _fiber(context, stmt, env)

    def visit(left: cin.Stmt, coordinate: Val, env: Env) -> None:
        _visit(context, left, var, coordinate, env)

    enters = _entered(context, body, var, env) is not None
    walkers = {a: _walker(context, a, env) for a in leaders}
    pieces = independent.parts_of(body) if len(leaders) > 1 else ()
    found = {} if pieces else find_cases(body, leaders)
    cases = {key: _found(left, key, walkers) for key, left in found.items()}
    loop = Loop(context, var, body, env, cases, walkers, enters, visit)
    if stmt.kind == "parallel":
        loop = chunks.cut(loop)
    for access in leaders:
        if not access.tensor.format.levels[env.cursors[access].level].ordered and not _any_order(loop):
            raise Unordered(access.tensor)
    if pieces:
        independent.independent(loop, _part_keys(body, pieces, leaders))
    else:
        _shape(loop)
    if fiber is not None:
        context.output.close(b, *fiber)


def _found(stmt: cin.Stmt, key: Leaders, walkers: Mapping[cin.Access, Walker]) -> cin.Stmt:
    """`stmt` where the leaders of `key` are present: those whose last level is walked are stored, and nothing is left to ask."""
    last = {a for a in key if walkers[a].level + 1 == len(a.indices)}
    asked = [c for c in simplify.conditions(stmt) if isinstance(c, cin.Call) and c.op == "stored" and c.args[0] in last]
    for condition in asked:
        stmt = simplify.assume(stmt, condition, True) or stmt
    return stmt


def _shape(loop: Loop) -> None:
    """The loop in the first shape that applies."""
    needed = [key for key in loop.cases if key]
    if not loop.cases:
        return
    if not needed:
        rows, blocks = chunks.in_blocks(loop)
        if rows:
            blocks(loop, rows)
        else:
            counted.counted(loop)
    elif frozenset() in loop.cases:
        if gaps.overwrites(loop):
            _shape(gaps.plain_pass(loop))
        else:
            gaps.gaps(loop)
    elif unions.applies(loop):
        unions.union(loop, merge.cases)
    elif len(needed) > 1:
        merge.cases(loop)
    elif len(needed[0]) == 1:
        merge.single(loop, needed[0])
    elif all(w.segment.first is not None for w in loop.walkers_of(needed[0])):
        merge.bands(loop, needed[0])
    elif all(w.segment.runs is not None for w in loop.walkers_of(needed[0])):
        merge.common_runs(loop, needed[0])
    elif all(w.side_by_side for w in loop.walkers_of(needed[0])):
        merge.intersection(loop, needed[0])
    else:
        merge.cases(loop)


def _any_order(loop: Loop) -> bool:
    """Whether the coordinates of the leader may come in any order: it is alone, and nothing that the loop holds is appended,
    to the output or to what is kept of a row.

    What is accumulated in registers, in place or in a workspace with keys may come in any order; so may what is written a second time.
    """
    output = loop.context.output
    targets = [w.lhs for w in cin.writes(loop.body)]
    own = [target for target in targets if target.tensor.name == output.tensor.name]
    if output.sparse and any(loop.env.cursors[target].level <= output.sparse[-1] for target in own):
        return False
    if any(target.tensor.policy == "append" and loop.var in target.indices for target in targets):
        return False
    needed = [key for key in loop.cases if key]
    alone = len(needed) == 1 and len(needed[0]) == 1
    return alone and (len(loop.cases) == 1 or gaps.overwrites(loop))


def _part_keys(body: cin.Stmt, pieces: tuple[cin.Stmt, ...], leaders: list[cin.Access]) -> list[Leaders]:
    """For every independent part of a body, the sets of leaders where it has something to do."""
    keys = [key for p in pieces for key in find_cases(p, [a for a in leaders if a in set(cin.accesses(p))])]
    if isinstance(body, cin.Where):  # what the consumer writes where no part has anything to do
        summed = {w.lhs.tensor.name for w in cin.writes(body.producer)}
        left = simplify.exhaust_stmt(body.consumer, {a for a in cin.accesses(body.consumer) if a.tensor.name in summed})
        if left is not None:
            keys += find_cases(left, [a for a in leaders if a in set(cin.accesses(left))])
    return list(dict.fromkeys(keys))


def find_cases(body: cin.Stmt, leaders: list[cin.Access]) -> dict[Leaders, cin.Stmt]:
    """The cases of a loop: for each set of leaders that matters, what is left to do when only these are present.

    Keys are sorted by size, largest first; the empty key means that work remains without any leader.
    """
    cases: dict[Leaders, cin.Stmt] = {}
    everyone = frozenset(leaders)
    nothing = simplify.exhaust_stmt(body, everyone)
    # where all annihilators are exact, nothing is left for fewer leaders than where nothing is left for some
    exact = nothing is None and all(np.isfinite(a.tensor.fill_value) for a in leaders)
    sets = {everyone: None}
    while sets:
        fewer: dict[Leaders, None] = {}
        for present in sets:
            left = simplify.exhaust_stmt(body, everyone - present) if present else nothing
            if left is not None or not exact:
                fewer.update((present - {a}, None) for a in leaders if a in present)
            if left is None:
                continue
            key = frozenset(a for a in cin.accesses(left) if a in present)
            if len(key) < len(present) and simplify.exhaust_stmt(body, everyone - key) != left:
                key = present  # 0 / B[i] is 0 where B is stored and 0 / 0 elsewhere: B still matters
            cases.setdefault(key, left)
        sets = fewer
    return dict(sorted(cases.items(), key=lambda item: -len(item[0])))


def find_leaders(body: cin.Stmt, sparse: list[cin.Access], env: Env) -> list[cin.Access]:
    """Those of the accesses `sparse` that must be walked. The others follow: their coordinates are located one by one, in
    constant time, and nothing is left to do where the leaders are absent. A segment of an unordered level is not looked up where that
    would have all of another array walked for each."""
    leaders = list(sparse)
    levels = {a: a.tensor.format.levels[env.cursors[a].level] for a in sparse}
    inside = {a: env.cursors[a].level > 0 for a in sparse}
    for access in sorted(sparse, key=lambda a: (levels[a].ordered, levels[a].contiguous, inside[a])):
        rest = [a for a in leaders if a is not access]
        if levels[access].contiguous and all(levels[a].contiguous for a in rest):
            continue  # what bands have in common is a band
        if (
            inside[access]
            and not levels[access].ordered
            and all(a.tensor.policy is None and not inside[a] for a in rest)
        ):
            continue
        if levels[access].locates and rest and simplify.exhaust_stmt(body, rest) is None:
            leaders = rest
    return leaders


def _leads(access: cin.Access, var: cin.IndexVar, env: Env) -> bool:
    if access.tensor.policy == "scalar":
        return False
    cursor, levels = env.cursors[access], access.tensor.format.levels
    return (
        cursor.level < len(levels)
        and not isinstance(levels[cursor.level], Dense)
        and access.level_index(cursor.level) == var
    )


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
    """Resolve a sparse level at a known coordinate: by its own `locate`, else by binary search in its segment."""
    b, level = context.b, env.cursors[access].level
    if not access.tensor.format.continues(level):
        located = _readable(context, access).locate(b, level, _place(context, access, env), coordinate)
        if located is not None:
            return Cursor(level + 1, located[0], None, located[1])
    walker = _walker(context, access, env)
    segment = walker.segment

    def search_for(target: Val) -> Val:
        found: Val = lower_bound(b, lambda at: b.lt(segment.coordinate(at), target), segment.lo, segment.hi)
        return found

    first = search_for(coordinate)
    if walker.ranged:
        end = search_for(b.add(coordinate, b.i64(1)))
        return Cursor(level + 1, first, end, b.lt(first, end))
    hit = b.var("hit", b.const("i1", 0))
    with b.if_(b.lt(first, segment.hi)):
        b.set(hit, b.eq(segment.coordinate(first), coordinate))
    return Cursor(level + 1, segment.child(first, coordinate), None, b.get(hit))
