"""Which shapes a loop may take, and which one pays: what `iteration` asks of a loop, from types and what is known of its operands.

shape           legal where                                                  code in `codegen/loops`
range           no leader                                                    counted
side_by_side    a sum in lanes at every coordinate or place                  unroll_and_jam
stored_values   nothing changes but values at the places of one leader       stored_values
pairs           a reduction into a register, by one leader                   reduce
gathered        the same in masked lanes, of operands that can be gathered   reduce
unrolled        the same                                                     reduce
consecutive     register tiles of dense operands, by one leader whose       consecutive
                values nobody reads
groups          one statement, by one leader whose slots come in groups      groups
row_tiles       a register tile of dense operands at every place             row_tiles
padded          a sum at single elements of a dense result, by one leader    padded (see `fetches`)
entries         one leader                                                   merge

Legality is a matter of types; what pays of `statistics` (`Program.lengths`) and of the processor (`host`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sparsejax.jit.backend import host
from sparsejax.jit.ir import choices, cin, lanewise, operators, policies, simplify
from sparsejax.jit.ir.loop_plans import Accumulator, Cases, Leaders, LoopKey, Walk
from sparsejax.jit.ir.program import Program, heads
from sparsejax.jit.rewrite import scatter_operands, summation
from sparsejax.jit.rewrite.vectorize import maskable, reduces_in_lanes, vectorizable
from sparsejax.jit.schedule import regions

FEW = 11.0
"""Entries of a segment, on average, below which two running sums are faster than vectors (`pairs`)."""
SHORT = 2.0
"""Entries of a segment, on average, below which walks are kept simple."""
COPIES = {"pairs": 2, "unrolled": 4, "side_by_side": 4}
"""Running sums of a walk: two where segments have few entries, else as many as additions that are under way at once."""
GATHERED = (4, 8)
"""Bytes of what can be gathered."""
ENTRY_ROWS = {False: 6, True: 8}
"""Entries that are rows of one register tile, without masks and with them: there are 16 registers of half a vector then, twelve of which add up,
two hold what rows share and one what they do not; with masks there are 32 of a vector, of which 16 add up in strips of two."""
SLOTS = 4
"""Slots of a group for which code is written, at most: of larger groups a part that divides them."""
LONG = 8
"""Groups of a segment, on average, from which on whole groups are visited without questions (`loops/groups`)."""
UNION = 3
"""Leaders with a value for every case: 7 of them."""


class State(NamedTuple):
    """What is known where a statement is emitted: bound variables, how many levels of every access are resolved, which accesses may turn
    out not to be stored, and the accumulators of scalar workspaces."""

    bound: frozenset[cin.IndexVar]
    levels: Mapping[cin.Access, int]
    unsure: frozenset[cin.Access] = frozenset()
    accumulators: Mapping[str, Accumulator] = {}
    in_tile: bool = False
    scalar_sums: bool = False

    def at(self, levels: Mapping[cin.Access, int]) -> State:
        """With these accesses resolved so far."""
        return self._replace(levels={**self.levels, **levels})

    def known(self, index: cin.Index) -> bool:
        """Whether an index has been bound, or reached."""
        return cin.known(
            index, self.bound, lambda access, level: self.levels[access] > level and access not in self.unsure
        )

    def below(self, access: cin.Access, more: int = 0) -> bool:
        """Whether all levels of `access` that are left, but for the first `more`, are dense."""
        left = access.tensor.format.levels[self.levels[access] + more :]
        return all(level.full for level in left)


@dataclass(frozen=True)
class Loop:
    """A loop to be planned: its cases, and how each leader is walked."""

    program: Program
    stmt: cin.Forall
    state: State
    cases: Cases
    walks: Mapping[cin.Access, Walk]

    @property
    def var(self) -> cin.IndexVar:
        return self.stmt.var

    @property
    def key(self) -> LoopKey:
        state = self.state
        return LoopKey.of(self.stmt, state.in_tile, state.scalar_sums, state.accumulators)

    @property
    def enters(self) -> bool:
        """Whether the loop appends coordinates to the output at its own variable."""
        return entered(self.program, self.stmt.body, self.var, self.state) is not None

    def is_short(self, walk: Walk, below: float = SHORT) -> bool:
        """Whether the segments that are walked are expected to hold fewer entries, on average."""
        return self.program.lengths.get((walk.access.tensor.name, walk.level), below) < below

    def in_blocks(self, walk: Walk) -> bool:
        """Whether the segments that are walked are so many that they are taken in blocks."""
        return (walk.access.tensor.name, walk.level) in self.program.blocks

    def is_input(self, access: cin.Access) -> bool:
        """Whether an access is of an operand of the kernel."""
        return access.tensor.policy is None

    def listed(self, access: cin.Access, level: int) -> bool:
        """Whether a level of an operand has its coordinates in memory, those of all segments one behind the other."""
        return self.is_input(access) and access.tensor.format.levels[level].stacked

    def counted(self, walk: Walk) -> bool:
        """Whether the number of places of all segments of the level that is walked is known when the kernel runs."""
        form = walk.access.tensor.format
        return self.listed(walk.access, walk.level) and all(
            form.levels[k].full or "pos" in form.buffer_names(k) or form.continues(k) for k in range(walk.level + 1)
        )


def output_leader(program: Program) -> cin.Access | None:
    """The access whose entries are those of the output, values and all: nobody writes coordinates or segments."""
    given, shared = program.given, program.shared
    if given is None or shared is None or (heads(program.output)[0] > 0 and not shared.pos):
        return None
    return given.access if given.level + 1 == len(given.access.indices) else None


def entered(program: Program, stmt: cin.Stmt, var: cin.IndexVar, state: State) -> cin.Access | None:
    """The output as `stmt` writes it, when the loop over `var` appends coordinates to it."""
    for write in cin.writes(stmt):
        if write.lhs.tensor.name == program.output.name:
            level = state.levels[write.lhs]
            appends = level in program.output.format.sparse and write.lhs.level_index(level) == var
            return write.lhs if appends else None
    return None


def visits_nothing(program: Program, stmt: cin.Stmt) -> bool:
    """Whether all assignments of `stmt` are in loops over nothing, as its types show."""
    match stmt:
        case cin.Forall(var, body, _):
            return not program.extent(var) or visits_nothing(program, body)
        case cin.Where(consumer, _):
            return visits_nothing(program, consumer)
        case cin.Seq(stmts):
            return all(visits_nothing(program, s) for s in stmts)
    return False


# --------------------------------------------------------------------------------------------------------- ranges


def ranges(
    loop: Loop, key: Leaders, fixed: Collection[cin.Access] = (), walked: Collection[cin.Access] = ()
) -> tuple[str, ...]:
    """How a range of coordinates in the case `key` may be visited, the best way first: at "once", in "lanes" or in "steps".

    Accesses in `fixed` have one position in the range, those in `walked` consecutive ones.
    """
    body, found = loop.cases[key], []
    if not loop.state.in_tile and not loop.enters and isinstance(body, cin.Assign) and not simplify.conditions(body):
        if _same_everywhere(body, loop.var, fixed):
            found.append("once")
        if vectorizable(cin.Forall(loop.var, body), fixed, walked):
            found.append("lanes")
    return (*found, "steps")


def _same_everywhere(body: cin.Assign, var: cin.IndexVar, fixed: Collection[cin.Access]) -> bool:
    """Whether `body` accumulates the same value at every coordinate, by an operator that knows what that gives."""
    if body.op is None or var in cin.bound_by(body.lhs):
        return False
    if not operators.get(body.op).repeats(body.rhs.dtype):
        return False
    return all(a in fixed or var not in cin.bound_by(a) for a in cin.accesses(body.rhs))


def overwrites(loop: Loop) -> bool:
    """Whether coordinates may be written twice, the second time for good: a plain assignment in place, cheap in lanes.

    Not under a mask: where it fails nothing is written, which would leave what the first pass wrote."""
    body, rest = loop.stmt.body, loop.cases[frozenset()]
    if simplify.conditions(body):
        return False
    if not isinstance(body, cin.Assign) or body.op is not None or loop.var not in body.lhs.indices:
        return False
    if loop.enters or body.lhs.tensor.policy not in (None, "dense") or not isinstance(rest, cin.Assign):
        return False
    return ranges(loop, frozenset())[0] == "lanes"


# ---------------------------------------------------------------------------------------------- walks of one leader


def single(loop: Loop, key: Leaders) -> tuple[list[str], str]:
    """The shapes that a walk of the leader of `key` alone may take, and the best one."""
    (walk,) = (loop.walks[a] for a in key)
    found, best = [], []
    if walk.contiguous:
        found, best = ["band"], ["band"]
    elif walk.in_runs:
        found, best = ["runs"], ["runs"]
    for shape, (legal, pays) in {
        "stored_values": (_in_places, _places_pay),
        "pairs": (_in_pairs, _pairs_pay),
        "gathered": (_in_gathers, _gathers_pay),
        "unrolled": (reduces, _unrolled_pays),
        "side_by_side": (jams, lambda loop, key, walk: not loop.is_short(walk)),
        "consecutive": (_in_order, lambda loop, key, walk: not loop.is_short(walk, 1.0)),
        "groups": (_in_groups, lambda loop, key, walk: not loop.is_short(walk, LONG * step(walk))),
        "row_tiles": (_in_row_tiles, lambda loop, key, walk: not loop.is_short(walk, regions.ROWS)),
    }.items():
        if legal(loop, key, walk):
            found.append(shape)
            best += [shape] if pays(loop, key, walk) else []
        if best and not choices.free():
            break
    return [*found, "entries"], [*best, "entries"][0]


def _in_places(loop: Loop, key: Leaders, walk: Walk) -> bool:
    """Whether the walk may run over lanes: nothing changes but values at its places."""
    stmt, state = loop.cases[key], loop.state
    if not isinstance(stmt, cin.Assign) or state.in_tile or simplify.conditions(stmt):
        return False
    if not walk.side_by_side or not walk.placed:
        return False
    changing = {a for a in cin.accesses(stmt.rhs) if loop.var in cin.bound_by(a)}
    along = {a for a in changing if _along(a, walk)}
    if changing - along != {walk.access} or not walk.last:
        return False
    if any(a in state.unsure for a in cin.accesses(stmt.rhs)):
        return False
    if loop.enters:
        level, form = state.levels[stmt.lhs], loop.program.output.format
        is_run_end = level + 1 == len(form.levels) or not form.continues(level + 1)
        if (
            stmt.op is not None
            or level + 1 != len(stmt.lhs.indices)
            or not is_run_end
            or not form.levels[level].stretches
        ):
            return False
    elif stmt.lhs.tensor.policy == "append":
        last = not stmt.lhs.tensor.format.levels[-1].full and stmt.lhs.indices[-1] == loop.var
        if stmt.op is not None or not last:
            return False
    elif not _along(stmt.lhs, walk) and loop.var in cin.bound_by(stmt.lhs):
        return False
    return vectorizable(cin.Forall(loop.var, stmt), walked=(walk.access, stmt.lhs, *along))


def _places_pay(loop: Loop, key: Leaders, walk: Walk) -> bool:
    """Reductions of cheap values are better off with scalars, unless lanes can be masked."""
    stmt = loop.cases[key]
    assert isinstance(stmt, cin.Assign)
    reduces = not loop.enters and stmt.lhs.tensor.policy != "append" and not _along(stmt.lhs, walk)
    return not reduces or lanewise.elementary(stmt.rhs) or host.has_masks()


def _along(access: cin.Access, walk: Walk) -> bool:
    """Whether `access` is a vector of values beside the walked one."""
    return len(access.indices) == 1 and not access.entries and cin.beside(access, (walk.access,))


def reduces(loop: Loop, key: Leaders, walk: Walk) -> bool:
    """Whether the walk accumulates into a register, in any order, with nothing to search."""
    stmt, state = loop.cases[key], loop.state
    if not isinstance(stmt, cin.Assign) or stmt.lhs.tensor.policy != "scalar" or state.in_tile:
        return False
    if stmt.op is None or not operators.get(stmt.op).associative or not operators.get(stmt.op).commutative:
        return False
    accumulator = state.accumulators[stmt.lhs.tensor.name]
    if accumulator.exact:
        return False
    for access in cin.accesses(stmt.rhs):
        if access.tensor.policy == "scalar":
            continue
        looked_up = access.tensor.policy == scatter_operands.POLICY and not accumulator.marked
        if access in state.unsure or not (looked_up or state.below(access, access in key)):
            return False
    return walk.side_by_side


def _unrolled_pays(loop: Loop, key: Leaders, walk: Walk) -> bool:
    return not loop.state.scalar_sums and not loop.is_short(walk)


def _in_pairs(loop: Loop, key: Leaders, walk: Walk) -> bool:
    """Whether the walk may have two running sums, of which nobody asks whether there is one."""
    return reduces(loop, key, walk) and not _accumulator(loop, key).marked


def _pairs_pay(loop: Loop, key: Leaders, walk: Walk) -> bool:
    """Over few entries whose number is foreseen: segments are few, and come one after the other, as no other loop is around them. Of 6 to 11
    entries gathers take 1.1 of the time with 1,000 segments, 0.8 with 4,000, 0.45 to 0.65 with 8,000 to 100,000 (Granite Rapids)."""
    once = loop.state.bound.issubset(cin.bound_by(walk.access))
    few = once and not loop.in_blocks(walk) and loop.is_short(walk, FEW)
    many = (walk.access.tensor.name, walk.level) in loop.program.many
    lanes = many and _in_gathers(loop, key, walk) and _gathers_pay(loop, key, walk)
    return (loop.state.scalar_sums or (few and not lanes)) and not loop.is_short(walk)


def _in_gathers(loop: Loop, key: Leaders, walk: Walk) -> bool:
    """Whether the walk accumulates what is at its places, and what dense operands have at its coordinates, in masked lanes."""
    if not _in_pairs(loop, key, walk) or not loop.counted(walk):
        return False
    stmt = loop.cases[key]
    assert isinstance(stmt, cin.Assign)
    if not maskable(stmt) or not reduces_in_lanes(stmt, loop.var):
        return False
    return all(_beside(a, walk) or _gatherable(a) for a in cin.accesses(stmt.rhs) if loop.var in cin.bound_by(a))


def _gathers_pay(loop: Loop, key: Leaders, walk: Walk) -> bool:
    return host.has_gathers() and _unrolled_pays(loop, key, walk)


def _beside(access: cin.Access, walk: Walk) -> bool:
    """Whether `access` has its values side by side at the places of the walk."""
    return walk.last if access == walk.access else _along(access, walk)


def _gatherable(access: cin.Access) -> bool:
    """Whether `access` can be gathered: dense, of a type of four or eight bytes."""
    plain = not access.computed and access.tensor.format.full
    return plain and access.tensor.policy in (None, "dense") and access.dtype.itemsize in GATHERED


def _in_groups(loop: Loop, key: Leaders, walk: Walk) -> bool:
    """Whether whole groups may be visited without asking where the segment ends."""
    return walk.side_by_side and step(walk) > 1 and isinstance(loop.cases[key], cin.Assign)


def _in_order(loop: Loop, key: Leaders, walk: Walk) -> bool:
    """Whether segments whose places are their coordinates may be walked as ranges: inside of a register tile, where only dense operands that lie there side by
    side depend on the coordinate, and nobody reads the values of the leader."""
    stmt, state = loop.cases[key], loop.state
    level = walk.access.tensor.format.levels[walk.level]
    if (
        not state.in_tile
        or loop.enters
        or not walk.side_by_side
        or not walk.last
        or not (level.ordered and level.unique)
    ):
        return False
    if loop.stmt.kind != "serial" or loop.var.outer is not None:
        return False
    if simplify.conditions(stmt) or walk.access in cin.accesses(stmt) or not loop.listed(walk.access, walk.level):
        return False
    if any(w.lhs.tensor.policy != "scalar" for w in cin.writes(stmt)):
        return False
    inner, _, found = rows_in_order(stmt, loop.var)
    read = [a for a in dict.fromkeys(cin.accesses(stmt)) if a.tensor.policy != "scalar"]
    if not found or any(a in state.unsure for a in read) or any(state.levels[a] for a in found):
        return False
    order = {loop.var, *inner}
    others = [a.level_index(k) for a in read for k in range(len(order) if a in found else 0, len(a.indices))]
    return not order & set(cin.followed(others))


def rows_in_order(stmt: cin.Stmt, var: cin.IndexVar) -> tuple[list[cin.IndexVar], cin.Stmt, list[cin.Access]]:
    """The loops right inside of one over `var` that can be one loop with it, what is in them, and the dense operands that lie side by side at
    the coordinates of all of them: x[var, inner ..]."""
    inner: list[cin.IndexVar] = []
    while True:
        order = (var, *inner)
        found = [a for a in dict.fromkeys(cin.accesses(stmt)) if _begins(a, order)]
        deeper = isinstance(stmt, cin.Forall) and stmt.kind == "serial" and stmt.var.outer is None
        if not deeper or not isinstance(stmt, cin.Forall):
            return inner, stmt, found
        further = (*order, stmt.var)
        if not found or not all(_begins(a, further) for a in found):
            return inner, stmt, found
        inner.append(stmt.var)
        stmt = stmt.body


def _begins(access: cin.Access, order: tuple[cin.IndexVar, ...]) -> bool:
    """Whether the outermost levels of a dense operand are those of variables, in order."""
    form, count = access.tensor.format, len(order)
    if access.tensor.policy is not None or not form.is_dense or form.blocked or len(access.indices) < count:
        return False
    return all(access.level_index(k) == v for k, v in enumerate(order))


def _in_row_tiles(loop: Loop, key: Leaders, walk: Walk) -> bool:
    """Whether the places of a walk may be rows of a register tile: each has a row of the result, in place, and reductions of dense operands, some
    of which all rows share."""
    stmt, var = loop.cases[key], loop.var
    beside: cin.IndexVar | None = None
    if walk.ranged:  # entries of two coordinates: each is a row
        if not isinstance(stmt, cin.Forall) or regions.run_below(var, stmt.var, cin.accesses(stmt)) != walk.access:
            return False
        beside, stmt = stmt.var, simplify.at_entry(stmt.body, walk.access)
    match stmt:
        case cin.Forall(along, cin.Where(cin.Assign(lhs, op, _), producer), "tile") if op is not None:
            pass
        case _:
            return False
    loops, inner = cin.nested(producer, "serial")
    if not isinstance(inner, cin.Assign) or inner.lhs.tensor.policy != "scalar" or not loops:
        return False
    state, read = loop.state, [a for a in dict.fromkeys(cin.accesses(inner.rhs)) if a.tensor.policy != "scalar"]
    if state.in_tile or loop.enters or not walk.consecutive or simplify.conditions(stmt):
        return False
    if not (walk.last or beside is not None) or not loop.is_input(walk.access):
        return False
    others = [a for a in read if a not in key]
    if any(a in state.unsure for a in read) or not all(a.tensor.format.is_dense for a in (lhs, *others)):
        return False
    if lhs.tensor.policy not in (None, "dense") or var not in lhs.indices or along not in lhs.indices:
        return False
    return beside not in cin.bound_by(lhs) and regions.rows_share((var, beside), along, loops, (lhs, *others))


def copies(loop: Loop, key: Leaders, shape: str) -> int:
    """How many sums a loop of this shape runs at once, or how many slots it visits side by side."""
    if shape == "row_tiles":
        return ENTRY_ROWS[host.has_masks()]
    return step(*(loop.walks[a] for a in key)) if shape == "groups" else COPIES.get(shape, 1)


def step(walk: Walk) -> int:
    """Slots that are visited side by side: those of a group, or a part of these that is not too much code."""
    return max(n for n in range(1, SLOTS + 1) if walk.group % n == 0)


def _accumulator(loop: Loop, key: Leaders) -> Accumulator:
    return loop.state.accumulators[cin.writes(loop.cases[key])[0].lhs.tensor.name]


def tails(loop: Loop, key: Leaders, shape: str) -> tuple[str, ...]:
    """What may become of the last places of a walk in lanes, the best way first: "masked", some lanes of one more vector; "scalar", one by
    one; "unasked", some lanes of the first vector as a rule, since segments of two entries are rare: nobody asks whether there is any."""
    (walk,), stmt = (loop.walks[a] for a in key), loop.cases[key]
    assert isinstance(stmt, cin.Assign)
    if shape == "unrolled":
        return ("masked", "scalar") if _masked_tail(loop, stmt, key, walk) else ("scalar",)
    if not maskable(stmt):
        return ("scalar",)
    register = stmt.lhs.tensor.policy == "scalar" and not _accumulator(loop, key).marked
    some = ("masked", "scalar")
    if not register:
        return some
    return ("unasked", *some) if loop.is_short(walk) else (*some, "unasked")


def _masked_tail(loop: Loop, stmt: cin.Assign, key: Leaders, walk: Walk) -> bool:
    """Whether the last places of an unrolled walk may fill some lanes of a vector: those behind them have coordinates of the level too, and
    are left out."""
    if any(a.tensor.policy == scatter_operands.POLICY for a in cin.accesses(stmt.rhs)):
        return False
    lanes = reduces_in_lanes(stmt, loop.var) and maskable(stmt)
    return lanes and not _accumulator(loop, key).marked and loop.counted(walk)


# ------------------------------------------------------------------------------------------------- reductions side by side


def jams(loop: Loop, key: Leaders, walk: Walk | None) -> bool:
    """Whether a walk of one leader, or a loop over all coordinates, sums up, in lanes, what is dense at each of its places."""
    stmt = loop.cases[key]
    found, _ = reductions(stmt)
    if not found or loop.state.in_tile or simplify.conditions(stmt):
        return False
    if loop.stmt.kind == "parallel":
        return False  # cut for threads, anywhere: products may be fused with sums for four places, and not for one
    if walk is None:
        if loop.enters or loop.var.outer is not None:
            return False
    elif not walk.side_by_side:
        return False
    known = {w.lhs.tensor.name for w in cin.writes(stmt)}
    return all(_independent(loop, key, first, known) for first in found)


def _independent(loop: Loop, key: Leaders, first: cin.Where, known: Collection[str]) -> bool:
    """Whether a reduction in lanes reads nothing of `known`, which the places compute, and all else without a search."""
    inner = first.producer
    assert isinstance(inner, cin.Forall)
    if inner.kind != "vector" or inner.var.outer is not None or cin.workspace(first).policy != "scalar":
        return False
    if visits_nothing(loop.program, inner):
        return False
    if summation.is_sum(inner, cin.workspace(first)) and summation.wants_exact(inner, inside=True):
        return False
    if any(a.tensor.name in known for a in cin.accesses(inner.body)):
        return False
    return all(a.tensor.policy == "scalar" or _located(loop, key, a) for a in cin.accesses(inner.body))


def reductions(stmt: cin.Stmt) -> tuple[list[cin.Where], cin.Stmt]:
    """What is reduced in `stmt`, and all that is left to do then; none where some of it would still have loops."""
    match stmt:
        case cin.Assign():
            return [], stmt
        case cin.Where(consumer, cin.Forall()):
            found, left = reductions(consumer)
            return ([stmt, *found], left) if found or isinstance(consumer, cin.Assign) else ([], stmt)
        case cin.Where(consumer, producer):
            (first, made), (then, used) = reductions(producer), reductions(consumer)
            if (first or isinstance(producer, cin.Assign)) and (then or isinstance(consumer, cin.Assign)):
                return [*first, *then], cin.Where(used, made)
    return [], stmt


def _located(loop: Loop, key: Leaders, access: cin.Access) -> bool:
    """Whether an access has a position at every place, without a search."""
    searched = access in loop.state.unsure or access.tensor.policy == scatter_operands.POLICY
    return not searched and loop.state.below(access, access in key)


# ------------------------------------------------------------------------------------------------------------- unions


def is_union(loop: Loop) -> bool:
    """Whether every leader of a loop is a case by itself, and all cases assign the same entry a value that is cheap to compute."""
    leaders = {a for key in loop.cases for a in key}
    if not 2 <= len(leaders) <= UNION or not all(frozenset([a]) in loop.cases for a in leaders):
        return False
    walks = [loop.walks[a] for a in leaders]
    if not all(w.side_by_side and not w.in_runs for w in walks) or loop.state.in_tile:
        return False
    stmts = list(loop.cases.values())
    if len({(s.lhs, s.op, s.rhs.dtype) if isinstance(s, cin.Assign) else None for s in stmts}) > 1:
        return False
    return all(isinstance(s, cin.Assign) and _plain(loop, s) for s in stmts)


def _plain(loop: Loop, stmt: cin.Assign) -> bool:
    """Whether the value of `stmt` is cheap, and can be computed wherever its leaders are."""
    if simplify.conditions(stmt) or lanewise.elementary(stmt.rhs):
        return False
    for access in (stmt.lhs, *cin.accesses(stmt.rhs)):
        if access.computed:
            return False
    return all(_reached(loop, a) for a in cin.accesses(stmt.rhs) if a.tensor.policy != "scalar")


def _reached(loop: Loop, access: cin.Access) -> bool:
    """Whether nothing must be searched to read `access`, once its leader has come to a place."""
    return access not in loop.state.unsure and loop.state.below(access, access in loop.walks)


# ------------------------------------------------------------------------------------------------------- accumulators


def accumulator(program: Program, where: cin.Where, state: State) -> Accumulator:
    """The register of a scalar workspace: marked where what reads it runs only if something was written."""
    tensor = cin.workspace(where)
    total = (
        not state.in_tile and summation.is_sum(where.producer, tensor) and tensor.dtype == summation.wide(tensor.dtype)
    )
    exact = total and summation.wants_exact(where.producer, bool(state.bound))
    return Accumulator(tracked(program, where, state), exact)


def tracked(program: Program, where: cin.Where, state: State) -> bool:
    """Whether a scalar workspace must remember if anything was written to it."""
    tensor, consumer = cin.workspace(where), where.consumer
    appends = any(w.lhs.tensor.policy in policies.KEYED for w in cin.writes(consumer))
    refilled = any(a.tensor.name == tensor.name and a.tensor != tensor for a in cin.accesses(consumer))
    if not tensor.lacks or not (program.output.format.sparse or appends or refilled):
        return False
    unsure = any(a in state.unsure or not state.below(a) for a in cin.accesses(where.producer))
    return unsure or bool(simplify.conditions(where.producer))
