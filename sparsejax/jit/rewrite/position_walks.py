"""Levels that share positions, walked as one loop: every position binds the coordinates of all of them at once.

    forall i                     A[i,j]: entries             forall i            A[i,j]: segmented over i, j
      where w: scalar                                          where w: scalar
        forall j                 A[i,j]: pairs                   forall j
          w += A[i,j] * x[j]                                       w += A[i,j] * x[j]
      then                                                     then
        y[i] = w                                                 y[i] = w

What loops in each other walk as runs of equal coordinates, of which none ends foreseen where they differ in length, is one loop over positions, of
which nothing but the end of all is asked.

positions   what is innermost, at every position; a sum into a register that goes to its place in a dense result is accumulated there, in place
            (`codegen/loops/positions`)
segmented   sums of neighbouring positions with equal coordinates, in lanes: a segmented scan (`codegen/loops/segmented`)

Where a register tile is outside of the inner loops, it is undone: every position adds to its row of the result.

Legal where the loops have one leader, an operand in a run of coordinate levels, walked to the end of the run, and where all else is dense below:
nothing is searched, and nothing but the body depends on a loop. Of one `where` between the loops, what is outside are the coordinates of a segment.

Source: coordinate loops fused and moved into position space, "A Sparse Iteration Space Transformation Framework for Sparse Tensor Algebra" (Senanayake and
others, 2020); segmented scans: G. E. Blelloch, "Prefix Sums and Their Applications".
"""

from __future__ import annotations

import math
from dataclasses import replace

from sparsejax.jit.backend import host
from sparsejax.jit.ir import choices, cin, lanewise, operators, simplify
from sparsejax.jit.ir.bounded import Bounded
from sparsejax.jit.ir.loop_plans import Leaders, PositionWalk
from sparsejax.jit.rewrite import loop_shapes, summation
from sparsejax.jit.rewrite.loop_shapes import GATHERED, Loop
from sparsejax.jit.rewrite.vectorize import maskable, reduces_in_lanes, vectorizable

SCANNED = {False: 48.0, True: 96.0}
"""Positions of a segment, on average, below which a scan in lanes is faster than sums of segment after segment, of few positions and of many, the lengths of
whose segments no processor remembers. Of 1, 3, 5 and 10 it takes 0.51, 0.32, 0.43 and 0.60 of the time (200,000 positions, a C program; Granite Rapids), of 50
from 0.8 (200,000, `A @ x`) to 1.08 (50,000)."""
IN_PLACE = 12.0
"""The same of accumulating in the result: 0.52, 0.37, 0.46, 0.79 and 1.95 of the time; nothing is left to hoist out of inner loops."""
PLAIN = 128.0
"""The same of bodies that accumulate in the result anyway: with 50 positions `A.T @ x` takes 0.57 of the time, `A.sum(axis=0)` 0.4 (200,000)."""

ROWS, ROW = {False: 3.0, True: 12.0}, {False: (64, 128), True: (16, 32, 64, 128)}
"""The same of rows of the result that a position adds to, of so many bytes without masks and with them, of few positions and of many: of eight doubles 0.93,
0.67, 0.70, 0.72 and 0.75 of the time of register tiles with 1, 2, 3, 5 and 10 positions (50,000; Granite Rapids), of eight floats 0.76 and 0.85 with 1 and 5
(200,000); wider ones take as long either way. Whole vectors alone, or a half or a quarter of one: what is stored under a mask does not come to a load that
follows at once (rows of eight floats took twice as long)."""


def found(loop: Loop, key: Leaders) -> dict[str, PositionWalk]:
    """The shapes over positions that a loop may take, those that pay first, and what is walked then."""
    if len(key) != 1 or len(loop.cases) != 1 or loop.state.in_tile or not loop.program.output.format.full:
        return {}
    walk = _nest(loop, next(iter(key)))
    if walk is None:
        return {}
    made = {}
    if walk.where is not None and _scans(loop, walk):
        made["segmented"] = walk
    flat = _in_place(walk) if walk.where is not None else walk
    if flat is not None:
        made["positions"] = flat
    return made


def best(loop: Loop, shapes: dict[str, PositionWalk], otherwise: str) -> str:
    """The shape that pays, or another one."""
    for shape, walk in shapes.items():
        if _pays(loop, shape, walk):
            return shape
    return otherwise


def _pays(loop: Loop, shape: str, walk: PositionWalk) -> bool:
    if loop.state.bound & set(cin.bound_by(walk.leader)):
        return False  # positions of a segment may be few
    mean = _mean(loop, walk)
    if shape == "segmented":
        return host.has_gathers() and mean < SCANNED[_many(loop, walk)]
    if walk.where is not None:
        return mean < IN_PLACE
    if isinstance(walk.stmt, cin.Forall) and isinstance(walk.stmt.body, cin.Assign) and walk.stmt.kind == "vector":
        extent = loop.program.extent(walk.stmt.var)
        size = extent * walk.stmt.body.lhs.dtype.itemsize
        known = not isinstance(extent, Bounded) and loop.program.extents[walk.stmt.var][1] > 0
        return known and size in ROW[host.has_masks()] and mean < ROWS[_many(loop, walk)]
    return isinstance(walk.stmt, cin.Assign) and walk.stmt.lhs.tensor.policy != "scalar" and mean < PLAIN


def prefetches(loop: Loop, walk: PositionWalk, shape: str) -> bool:
    """Whether what a scan reads in order is fetched ahead: of many positions."""
    legal = ("ahead", "none") if shape == "segmented" else ("none",)
    ahead = shape == "segmented" and _many(loop, walk)
    return choices.pick("prefetch", legal, "ahead" if ahead else "none") == "ahead"


def _many(loop: Loop, walk: PositionWalk) -> bool:
    """Whether the positions are expected to be more than the processor remembers segments of."""
    return (walk.leader.tensor.name, walk.level + len(walk.vars) - 1) in loop.program.many


def _mean(loop: Loop, walk: PositionWalk) -> float:
    """How many positions have the coordinates of a segment, on average, or those of the first level; many where nobody knows."""
    mean = 1.0
    for level in range(walk.level + (walk.rows or 1), walk.level + len(walk.vars)):
        mean *= loop.program.lengths.get((walk.leader.tensor.name, level), math.inf)
    return mean


def _nest(loop: Loop, leader: cin.Access) -> PositionWalk | None:
    """The loops from `loop` on that walk a run of levels of `leader`, and what is inside of them."""
    form, first, state = leader.tensor.format, loop.walks[leader].level, loop.state
    end = first + 1
    while end < len(form.levels) and form.continues(end):
        end += 1
    if end == first + 1 or not loop.is_input(leader) or leader in state.unsure or leader.computed or loop.enters:
        return None
    variables, stmt = [loop.var], loop.cases[frozenset([leader])]
    where: cin.Where | None = None
    tile: cin.Forall | None = None
    rows = 0
    while len(variables) < end - first:
        match stmt:
            case cin.Forall(_, cin.Where(_, producer), "tile") if where is None and tile is None:
                tile, stmt = stmt, producer
            case cin.Where(cin.Assign(), producer) if where is None and cin.workspace(stmt).policy == "scalar":
                where, rows, stmt = stmt, len(variables), producer
            case cin.Forall(var, body, "serial") if leader.level_index(first + len(variables)) == var:
                if var.outer is not None or simplify.exhaust_stmt(body, {leader}) is not None:
                    return None
                variables.append(var)
                stmt = body
            case _:
                return None
    if end == len(form.levels):
        stmt = simplify.at_entry(stmt, leader)
    if tile is not None:
        row = _untiled(tile, stmt)
        if row is None or leader in state.unsure:
            return None
        stmt = row
    others = [a for a in _touched(stmt, where) if a != leader and a.tensor.policy != "scalar"]
    if any(a in state.unsure or a not in state.levels or not state.below(a) for a in others):
        return None
    if any(leader in cin.accesses(a) for a in others if a.computed):
        return None
    return PositionWalk(leader, first, tuple(variables), stmt, where, rows)


def _untiled(tile: cin.Forall, stmt: cin.Stmt) -> cin.Stmt | None:
    """What a register tile sums up, added to its place of the result at every position: `stmt` along the tile; None where that is something else."""
    assert isinstance(tile.body, cin.Where)
    used, tensor = tile.body.consumer, cin.workspace(tile.body)
    if not isinstance(stmt, cin.Assign) or not isinstance(used, cin.Assign) or stmt.lhs.tensor != tensor:
        return None
    if tensor.policy != "scalar" or used.rhs != stmt.lhs or used.op != stmt.op or used.op is None:
        return None
    if tensor.dtype != used.lhs.dtype:
        return None
    row = cin.Forall(tile.var, cin.Assign(used.lhs, used.op, stmt.rhs), "vector")
    return row if vectorizable(replace(row, kind="serial")) and not simplify.conditions(row) else None


def _touched(stmt: cin.Stmt, where: cin.Where | None) -> list[cin.Access]:
    """All that a walk reads and writes."""
    parts = [stmt] if where is None else [stmt, where.consumer]
    return list(dict.fromkeys(a for p in parts for a in (*cin.accesses(p), *(w.lhs for w in cin.writes(p)))))


def _sum(walk: PositionWalk) -> tuple[cin.Assign, cin.Assign] | None:
    """What a segment sums up, and what becomes of the sum: of a reduction into the register of `where` in any grouping, which goes to a place of its own."""
    stmt, where = walk.stmt, walk.where
    if where is None or not isinstance(stmt, cin.Assign) or not isinstance(where.consumer, cin.Assign):
        return None
    used, tensor = where.consumer, cin.workspace(where)
    if stmt.lhs.tensor != tensor or stmt.op is None or not operators.get(stmt.op).associative:
        return None
    if simplify.conditions(stmt) or simplify.conditions(used) or not operators.get(stmt.op).commutative:
        return None
    outside, inside = walk.vars[: walk.rows], walk.vars[walk.rows :]
    alone = all(v in used.lhs.indices for v in outside)
    if used.lhs.tensor.policy not in (None, "dense") or not (alone or used.op == stmt.op):
        return None
    if any(v in cin.bound_by(a) for a in (used.lhs, *cin.accesses(used.rhs)) for v in inside):
        return None
    return stmt, used


def _in_place(walk: PositionWalk) -> PositionWalk | None:
    """The walk with its sum in the result itself, which holds nothing yet and has as many digits; None where that is not the same."""
    found = _sum(walk)
    if found is None:
        return None
    stmt, used = found
    tensor, target = stmt.lhs.tensor, used.lhs.tensor
    op = operators.get(stmt.op or "")
    if used.rhs != stmt.lhs or used.op not in (None, stmt.op) or target.dtype != tensor.dtype:
        return None
    if tensor.dtype.kind in "fc" and stmt.op == "add" and summation.wide(tensor.dtype) != tensor.dtype:
        return None
    starts = tensor.fill_value, *([target.fill_value] if used.op is None else [])
    identity = tensor.dtype.type(op.identity(tensor.dtype))
    if not all(tensor.dtype.type(start) == identity for start in starts):
        return None
    return replace(walk, stmt=cin.Assign(used.lhs, stmt.op, stmt.rhs))


def _scans(loop: Loop, walk: PositionWalk) -> bool:
    """Whether the sums of a walk may be scanned: in masked lanes, of operands that are gathered; each goes to a place that nobody else writes."""
    found, where = _sum(walk), walk.where
    if found is None or where is None:
        return False
    stmt, used = found
    if any(v not in used.lhs.indices for v in walk.vars[: walk.rows]):
        return False
    if not maskable(stmt) or not maskable(used) or used.lhs.computed or used.lhs.dtype.itemsize not in GATHERED:
        return False
    if not all(reduces_in_lanes(stmt, v) for v in walk.vars) or not _follows_in_lanes(used, stmt.lhs):
        return False
    if loop_shapes.tracked(loop.program, where, loop.state) or summation.wants_exact(where.producer, inside=True):
        return False
    if any(a != stmt.lhs and (a.computed or set(walk.vars) & set(cin.bound_by(a))) for a in cin.accesses(used.rhs)):
        return False
    if not all(a.dtype.itemsize in GATHERED for a in (stmt.lhs, *cin.accesses(used.rhs))):
        return False
    return all(_readable(walk, a) for a in cin.accesses(stmt.rhs) if set(walk.vars) & set(cin.bound_by(a)))


def _follows_in_lanes(used: cin.Assign, total: cin.Access) -> bool:
    """Whether what becomes of a sum is computed lane by lane; what does not depend on it is computed once."""

    def works(expr: cin.Expr) -> bool:
        if not isinstance(expr, cin.Call) or total not in cin.accesses(expr):
            return expr.dtype.kind in "biufc"
        kinds = {a.dtype.kind for a in expr.args} | {expr.dtype.kind}
        return lanewise.lanewise(expr.op, kinds) and all(map(works, expr.args))

    return works(used.rhs) and (used.op is None or lanewise.lanewise(used.op, used.lhs.dtype.kind))


def _readable(walk: PositionWalk, access: cin.Access) -> bool:
    """Whether an access is read in lanes: beside the leader, at its positions, or gathered from where dense levels have it."""
    if access == walk.leader:
        return walk.level + len(walk.vars) == len(access.indices)
    if access.computed:
        return len(access.indices) == 1 and not access.entries and cin.beside(access, (walk.leader,))
    return cin.are_variables(access.indices) and access.tensor.format.full and access.dtype.itemsize in GATHERED
