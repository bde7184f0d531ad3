"""Loops over one variable: who leads, which cases there are, and the shape of every loop, as data (`ir/loop_plans`).

    forall j                        A and B are sparse in j, x is dense
      s += A[i,j] * x[j] + B[i,j]

leaders   A[i,j], B[i,j]
cases     {A, B}: s += A[i,j] * x[j] + B[i,j]      {A}: s += A[i,j] * x[j]      {B}: s += B[i,j]
shape     union: each leader is a case by itself, and values are cheap

Leaders are accesses whose next level is sparse and indexed by the loop's variable, but for those that others restrict and that can be located
in constant time (bitmaps, hash tables, bands). The cases are the subsets of leaders for which something remains to be done when the
others are absent (`simplify.exhaust_stmt`); they are tried largest first.

The pass follows lowering: it knows which variables are bound and how far each access is resolved, and meets a statement once for every access that
may turn out not to be stored, and for every mask. Cost: as lowering, without any code.

Source: "The Tensor Algebra Compiler", section 4 (merge lattices).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from sparsejax.jit.ir import choices, cin, policies, simplify
from sparsejax.jit.ir.loop_plans import Leaders, LoopKey, LoopPlan, LoopPlans, PositionWalk, Walk
from sparsejax.jit.ir.program import Program
from sparsejax.jit.rewrite import fetches, loop_shapes, masked_inserts, position_walks, row_bodies
from sparsejax.jit.rewrite.loop_shapes import Loop, State

EVERYWHERE: Leaders = frozenset()


def planned(program: Program) -> Program:
    """`program` with a plan for each of its loops."""
    if program.stmt is None:
        return replace(program, loops=LoopPlans())
    start = dict.fromkeys((*cin.accesses(program.stmt), *targets(program.stmt)), 0)
    walk = _Iteration(program)
    walk.emit(program.stmt, walk.resolved(State(frozenset(), start), program.stmt))
    return replace(
        program, loops=LoopPlans(walk.plans, frozenset(stmt for stmt, does in walk.selected.items() if does))
    )


class _Iteration:
    """The walk over a statement."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.plans: dict[LoopKey, LoopPlan] = {}
        self.selected: dict[cin.Assign, bool] = {}
        """Insertions under a mask, as they are left where it holds, and whether they need no jump."""

    # ------------------------------------------------------------------------------------------------- statements
    def emit(self, stmt: cin.Stmt | None, state: State) -> None:
        """`stmt` once for every access that may turn out not to be stored, and for every mask (`Lowering.emit`)."""
        if stmt is None:
            return
        for condition in simplify.conditions(stmt):
            if is_known(condition, stmt, state):
                known = simplify.simplify(all_stored(condition))
                holds, fails = (simplify.assume(stmt, condition, way) for way in (True, False))
                if not isinstance(known, cin.Literal):
                    self._note_insertion(holds, fails, state)
                for way, left in ((True, holds), (False, fails)):
                    if not isinstance(known, cin.Literal) or bool(known.value) == way:
                        self.emit(left, state)
                return
        unsure = () if parts_of(stmt) else (a for a in dict.fromkeys(cin.accesses(stmt)) if a in state.unsure)
        for access in unsure:
            here = state._replace(unsure=state.unsure - {access})
            self.emit(stmt, self.resolved(here, stmt))
            self.emit(simplify.exhaust_stmt(stmt, {access}), state)
            return
        self.statement(stmt, state)

    def _note_insertion(self, holds: cin.Stmt | None, fails: cin.Stmt | None, state: State) -> None:
        """Decide whether what is left of a statement where its mask holds inserts without a jump: the same wherever it is met."""
        if not isinstance(holds, cin.Assign) or fails is not None:
            return
        if not masked_inserts.is_legal(holds, state):
            self.selected[holds] = False
        elif holds not in self.selected and holds.lhs.tensor.name not in self.program.drained:
            self.selected[holds] = masked_inserts.selects(holds)

    def statement(self, stmt: cin.Stmt, state: State) -> None:
        match stmt:
            case cin.Forall(_, _, "tile"):
                self._tile(stmt, state)
            case cin.Forall(_, _, kind) if kind != "vector":
                self.forall(stmt, state)
            case cin.Where():
                self._where(stmt, state)
            case cin.Seq(stmts):
                for inner in stmts:
                    self.emit(inner, state)

    def _tile(self, stmt: cin.Forall, state: State) -> None:
        """One tiled loop, or two, of which one has rows of registers: its variable is bound in assignments only."""
        match stmt.body:
            case cin.Forall(_, _, "tile"):
                stmt = stmt.body
            case cin.Forall(_, body, "rows"):
                stmt = cin.Forall(stmt.var, body, "tile")
        state = state._replace(bound=state.bound | {stmt.var}, in_tile=True)
        self.emit(stmt.body, self.resolved(state, stmt.body))

    def _where(self, stmt: cin.Where, state: State) -> None:
        tensor = cin.workspace(stmt)
        read = {a for a in cin.accesses(stmt.consumer) if a.tensor.name == tensor.name}
        sparse = self.program.output.format.sparse
        if sparse and tensor.lacks and loop_shapes.visits_nothing(self.program, stmt.producer):
            self.emit(simplify.exhaust_stmt(stmt.consumer, read), state)
            return
        if tensor.policy != "scalar":
            self.emit(stmt.producer, state)
            self.emit(stmt.consumer, state)
            return
        accumulator = loop_shapes.accumulator(self.program, stmt, state)
        state = state._replace(accumulators={**state.accumulators, tensor.name: accumulator})
        self.emit(stmt.producer, state)
        if accumulator.marked:
            state = state.at(dict.fromkeys(read, 0))._replace(unsure=state.unsure | read)
        self.emit(stmt.consumer, state)

    # ------------------------------------------------------------------------------------------------------ loops
    def forall(self, stmt: cin.Forall, state: State) -> None:
        """Plan a loop, and all loops in it."""
        key = LoopKey.of(stmt, state.in_tile, state.scalar_sums, state.accumulators)
        if key in self.plans:
            return
        var, body = stmt.var, stmt.body
        leaders = find_leaders(body, [a for a in dict.fromkeys(cin.accesses(body)) if _leads(a, var, state)], state)
        walks = {a: _walk(a, state.levels[a]) for a in leaders}
        pieces = parts_of(body) if len(leaders) > 1 else ()
        below = state.at({a: state.levels[a] + 1 for a in leaders})
        if pieces:
            keys = tuple(_part_keys(body, pieces, leaders))
            plan = LoopPlan(tuple(leaders), {}, keys, choices.pick("loop_shape", ("independent",), "independent"))
            loop = Loop(self.program, stmt, state, {}, walks)
            bodies = [(body, below._replace(unsure=state.unsure | set(leaders)))]
        else:
            cases = {key: _found(left, key, walks) for key, left in find_cases(body, leaders).items()}
            loop = Loop(self.program, stmt, state, cases, walks)
            plan = _shaped(loop, LoopPlan(tuple(leaders), cases))
            bodies = [(left, state.at({a: below.levels[a] for a in key})) for key, left in cases.items()]
        searched = [a for a in leaders if not a.tensor.format.levels[state.levels[a]].ordered]
        if searched and not _any_order(loop):
            plan = replace(plan, unordered=searched[0].tensor)
        self.plans[key] = plan
        if plan.walk is not None:
            self._at_positions(plan.walk, state)
            return
        for left, here in bodies:
            self.visit(left, var, here)
            if plan.shape == "summed_rows":
                self.visit(left, var, here._replace(scalar_sums=True))

    def _at_positions(self, walk: PositionWalk, state: State) -> None:
        """What is left to do at every position of a walk."""
        if walk.where is None:
            state = state.at({walk.leader: walk.level + len(walk.vars)})
            state = state._replace(bound=state.bound | set(walk.vars))
            self.emit(walk.stmt, self.resolved(state, walk.stmt))

    def visit(self, stmt: cin.Stmt, var: cin.IndexVar, state: State) -> None:
        """The body of a loop at one coordinate."""
        state = state._replace(bound=state.bound | {var})
        target = loop_shapes.entered(self.program, stmt, var, state)
        if target is not None:
            state = state.at({target: state.levels[target] + 1})
        self.emit(stmt, self.resolved(state, stmt))

    # -------------------------------------------------------------------------------------------------- positions
    def resolved(self, state: State, stmt: cin.Stmt) -> State:
        """Resolve the levels of every access of `stmt` whose variables are bound (`Lowering.resolve`)."""
        moved: dict[cin.Access, int] = {}
        unsure: set[cin.Access] = set()
        reads = dict.fromkeys([a for a in cin.accesses(stmt) if a.tensor.policy != "scalar"])
        for access in (*reads, *[a for a in targets(stmt) if a not in reads]):
            level, levels = state.levels[access], access.tensor.format.levels
            if access.computed:  # it may be where one of these says
                state, moved = state.at(moved), {}
                state, unsure = state._replace(unsure=state.unsure | unsure), set()
            while level < len(levels) and access not in state.unsure and state.known(access.level_index(level)):
                if levels[level].full:
                    level += 1
                elif access in reads:
                    level += 1  # searched
                    unsure.add(access)
                    break
                elif _has_key(access, state):
                    level = sum(not lv.full for lv in levels)
                else:
                    break  # appended by its loop
            if level != state.levels[access]:
                moved[access] = level
        state = state.at(moved) if moved else state
        return state._replace(unsure=state.unsure | unsure) if unsure else state


def _has_key(access: cin.Access, state: State) -> bool:
    """Whether the key of an entry that is written to a workspace with blocks is complete."""
    keys = len(access.tensor.format.sparse)
    return access.tensor.policy in policies.KEYED and all(map(state.known, access.indices[:keys]))


def _walk(access: cin.Access, level: int) -> Walk:
    """How the level of a leader is walked: as its type says, and within a range, or in a workspace, by consecutive places."""
    form = access.tensor.format
    kind, ranged = form.levels[level], level + 1 < len(form.levels) and form.continues(level + 1)
    if access.tensor.policy is not None:
        return Walk(access, level, ranged, True, False, False, False, 1)
    return Walk(access, level, ranged, kind.consecutive, kind.placed, kind.contiguous, kind.in_runs, kind.group)


def _shaped(loop: Loop, plan: LoopPlan) -> LoopPlan:
    """`plan` with a shape, and all that belongs to it."""
    needed = [key for key in loop.cases if key]
    if not loop.cases:
        return plan
    if not needed:
        return _without_leaders(loop, plan)
    if EVERYWHERE in loop.cases:
        return _everywhere(loop, plan)
    legal, cheapest = _alternatives(loop, needed)
    over = position_walks.found(loop, needed[0]) if len(needed) == 1 else {}
    shape = choices.pick("loop_shape", [*over, *legal], position_walks.best(loop, over, cheapest))
    if shape in over:
        return replace(
            plan, shape=shape, walk=over[shape], prefetch=position_walks.prefetches(loop, over[shape], shape)
        )
    plan = replace(plan, shape=shape, copies=loop_shapes.copies(loop, needed[0], shape))
    if shape in ("entries", "consecutive", "groups", "pairs", "gathered", "side_by_side", "row_tiles", "stored_values"):
        how = fetches.prefetches(loop, needed[0], shape)
        plan = replace(plan, prefetch=how != "none", streamed=how == "own")
    if shape in ("unrolled", "stored_values"):
        tails = loop_shapes.tails(loop, needed[0], shape)
        return replace(plan, tail=choices.pick("tail", tails, tails[0]))
    if shape == "band":
        last = [a for a in needed[0] if loop.walks[a].last]
        return replace(plan, range=_picked(loop_shapes.ranges(loop, needed[0], walked=last)))
    if shape == "runs":
        return replace(plan, range=_picked(loop_shapes.ranges(loop, needed[0], fixed=needed[0])))
    return plan


def _picked(ranges: tuple[str, ...]) -> str:
    return choices.pick("range", ranges, ranges[0])


def _alternatives(loop: Loop, needed: list[Leaders]) -> tuple[list[str], str]:
    """The shapes that a loop may take where nothing is left to do without leaders, and the best one."""
    walks = [loop.walks[a] for a in loop.walks if a in needed[0]]
    merged = ["merge"] if all(_ordered(w) for w in loop.walks.values()) else []
    if loop_shapes.is_union(loop):
        return ["union", *merged], "union"
    if len(needed) > 1:
        return ["merge"], "merge"
    if len(walks) == 1:
        legal, cheapest = loop_shapes.single(loop, needed[0])
        may, pays = fetches.padded(loop, needed[0])
        if may:
            legal, cheapest = ["padded", *legal], "padded" if pays and cheapest == "entries" else cheapest
        return [*legal, *merged], cheapest
    legal = ["band"] if all(w.contiguous for w in walks) else []
    legal += ["runs"] if all(w.in_runs for w in walks) else []
    legal += ["intersection"] if all(w.side_by_side for w in walks) else []
    legal += ["merge"]
    return legal, legal[0]


def _ordered(walk: Walk) -> bool:
    return walk.access.tensor.format.levels[walk.level].ordered


def _without_leaders(loop: Loop, plan: LoopPlan) -> LoopPlan:
    """A loop over all coordinates, in blocks of rows or not."""
    found = row_bodies.found(loop) if loop.program.blocks or choices.free() else {}
    paying = [shape for shape, body in found.items() if row_bodies.pays(loop, body)]
    jams = ["side_by_side"] if loop_shapes.jams(loop, EVERYWHERE, None) else []
    legal = [*found, *jams, "range"]
    shape = choices.pick("loop_shape", legal, [*paying, *jams, "range"][0])
    plan = replace(plan, shape=shape)
    if shape in found:
        return replace(plan, blocks=found[shape], rows=row_bodies.rows_of(loop, found[shape]))
    if shape != "range":
        return plan
    return replace(plan, range=_picked(loop_shapes.ranges(loop, EVERYWHERE)), streams=fetches.streams_fetched(loop))


def _everywhere(loop: Loop, plan: LoopPlan) -> LoopPlan:
    """A loop with leaders where something is left to do without any of them."""
    between = ["gaps"] if isinstance(loop.cases[EVERYWHERE], cin.Assign) else []
    legal = [*between, "coordinates"]
    if not loop_shapes.overwrites(loop):
        shape = choices.pick("loop_shape", legal, legal[0])
        return replace(plan, shape=shape, range=_picked(loop_shapes.ranges(loop, EVERYWHERE)))
    shape = "overwrite"
    if all(map(_ordered, loop.walks.values())):
        shape = choices.pick("loop_shape", ["overwrite", *legal], "overwrite")
    if shape != "overwrite":
        return replace(plan, shape=shape, range=_picked(loop_shapes.ranges(loop, EVERYWHERE)))
    rest = _shaped(replace(loop, cases={key: left for key, left in loop.cases.items() if key}), plan)
    return replace(rest, shape="overwrite", rest=rest.shape, first=_picked(loop_shapes.ranges(loop, EVERYWHERE)))


def _any_order(loop: Loop) -> bool:
    """Whether the coordinates of the leader may come in any order: it is alone, and nothing that the loop holds is appended,
    to the output or to what is kept of a row.

    What is accumulated in registers, in place or in a workspace with keys may come in any order; so may what is written a second time.
    """
    sparse = loop.program.output.format.sparse
    targets = [w.lhs for w in cin.writes(loop.stmt.body)]
    own = [target for target in targets if target.tensor.name == loop.program.output.name]
    if sparse and any(loop.state.levels[target] <= sparse[-1] for target in own):
        return False
    if any(target.tensor.policy == "append" and loop.var in target.indices for target in targets):
        return False
    needed = [key for key in loop.cases if key]
    alone = len(needed) == 1 and len(needed[0]) == 1
    return alone and (len(loop.cases) == 1 or loop_shapes.overwrites(loop))


def parts_of(body: cin.Stmt) -> tuple[cin.Stmt, ...]:
    """The independent parts of a loop's body; none when it is one whole."""
    match body:
        case cin.Seq(stmts) | cin.Where(_, cin.Seq(stmts)):
            return stmts
        case _:
            return ()


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


def find_leaders(body: cin.Stmt, sparse: list[cin.Access], state: State) -> list[cin.Access]:
    """Those of the accesses `sparse` that must be walked. The others follow: their coordinates are located one by one, in
    constant time, and nothing is left to do where the leaders are absent. A segment of an unordered level is not looked up where that
    would have all of another array walked for each."""
    leaders = list(sparse)
    levels = {a: a.tensor.format.levels[state.levels[a]] for a in sparse}
    inside = {a: state.levels[a] > 0 for a in sparse}
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


def _found(stmt: cin.Stmt, key: Leaders, walks: Mapping[cin.Access, Walk]) -> cin.Stmt:
    """`stmt` where the leaders of `key` are present: those whose last level is walked are stored, and nothing is left to ask."""
    for access in (a for a in key if walks[a].last):
        stmt = simplify.at_entry(stmt, access)
    return stmt


def all_stored(condition: cin.Expr) -> cin.Expr:
    """`condition` where every access has been found: what it says of stored entries holds."""
    if not isinstance(condition, cin.Call):
        return condition
    if condition.op == "stored":
        return simplify.literal(True, condition.dtype)
    return cin.Call(condition.op, tuple(map(all_stored, condition.args)), condition.dtype)


def _leads(access: cin.Access, var: cin.IndexVar, state: State) -> bool:
    """Whether the next level of an access is a sparse one over `var`."""
    if access.tensor.policy == "scalar":
        return False
    level, levels = state.levels[access], access.tensor.format.levels
    return level < len(levels) and not levels[level].full and access.level_index(level) == var


def is_known(condition: cin.Expr, stmt: cin.Stmt, state: State) -> bool:
    """Whether everything that `condition` reads is resolved before `stmt` runs."""
    written = {w.lhs.tensor.name for w in cin.writes(stmt)}
    for access, levels in simplify.levels_asked(condition).items():
        if access.tensor.name in written or access in state.unsure:
            return False
        if access.tensor.policy != "scalar" and state.levels.get(access, -1) < levels:
            return False
    return True


def targets(stmt: cin.Stmt) -> list[cin.Access]:
    """The accesses that `stmt` writes and that have a position: the output, and workspaces that are dense or have blocks."""
    written = [w.lhs for w in cin.writes(stmt) if w.lhs.tensor.policy != "scalar"]
    return [a for a in written if a.tensor.policy is None or a.tensor.format.levels[-1].full]
