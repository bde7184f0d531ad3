"""Loops over one variable: who leads, which cases there are, and the shape of the loop.

Leaders are accesses whose next level is sparse and indexed by the loop's variable, but for those that others restrict and
that can be located in constant time (bitmaps, hash tables, bands). The cases are the subsets of leaders
for which something remains to be done when the others are absent (`simplify.exhaust_stmt`); they are tried largest
first. Shapes, the first that applies:

    counted        no leader:                    for v in 0 .. n
    single walk    one leader, one case:         for p in lo .. hi: v = crd[p]
    intersection   two leaders, both needed:     two cursors, the smaller moves
    universe       work left without leaders:    for v in 0 .. n, leaders checked as they come
    sentinel       any other mix:                v = min over minimal cases of (max over their leaders)

Source: "The Tensor Algebra Compiler", section 4 (merge lattices); the sentinel loop is the stream view of
"Indexed Streams" as a single loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from sparsejax.formats import Dense
from sparsejax.formats.walk import Place, Segment
from sparsejax.jit import cin, simplify
from sparsejax.jit.builder import Builder, Val, Var
from sparsejax.jit.cursor import Cursor, Env
from sparsejax.jit.operands import Input
from sparsejax.jit.workspaces.protocol import Workspace

if TYPE_CHECKING:
    from sparsejax.jit.lower import Lowering

Leaders = frozenset[cin.Access]
END = 2**62  # larger than any coordinate


@dataclass
class Walker:
    """A leader being walked: its segment, the present place and coordinate; in ranges (coordinate runs) a coordinate may
    fill several places."""

    access: cin.Access
    level: int
    segment: Segment
    ranged: bool
    at: Var | None = None
    here: Var | None = None

    def cursor(self, place: Val, end: Val | None, coordinate: Val) -> Cursor:
        """The cursor of the access once `coordinate` at `place` is bound; a range goes on to `end`."""
        return Cursor(self.level + 1, self.segment.child(place, coordinate), end)

    def after(self, b: Builder, place: Val, coordinate: Val) -> Val:
        """The next place."""
        step = self.segment.after
        made: Val = b.add(place, 1) if step is None else step(place, coordinate)
        return made


def forall(lowering: Lowering, stmt: cin.Forall, env: Env) -> None:
    """Emit the loop of `stmt`."""
    b, var, body = lowering.b, stmt.var, stmt.body
    leaders = find_leaders(body, [a for a in dict.fromkeys(cin.accesses(body)) if _leads(a, var, env)], env)
    cases = find_cases(body, leaders)
    fiber = _fiber(lowering, stmt, env)
    walkers = {a: _walker(lowering, a, env) for a in leaders}

    def at(coordinate: Val, key: Leaders, matched: dict[cin.Access, Cursor]) -> None:
        _visit(lowering, cases[key], var, coordinate, env.with_cursors(matched))

    universe = frozenset() in cases
    needed = [k for k in cases if k]
    if not cases:
        pass
    elif not needed:
        with b.for_(b.i64(0), lowering.extents[var], var.name) as index:
            at(index, frozenset(), {})
    elif universe:
        _universe(lowering, lowering.extents[var], var, walkers, cases, at)
    elif len(needed) == 1 and len(needed[0]) == 1:
        _single(lowering, walkers[next(iter(needed[0]))], var, needed[0], at)
    elif len(needed) == 1 and len(needed[0]) == 2 and all(_side_by_side(walkers[a]) for a in needed[0]):
        _intersection(lowering, [w for a, w in walkers.items() if a in needed[0]], needed[0], at)
    else:
        used = {a for k in needed for a in k}
        _sentinel(lowering, {a: w for a, w in walkers.items() if a in used}, cases, at)
    if fiber is not None:
        lowering.output.close(b, *fiber)


def find_cases(body: cin.Stmt, leaders: list[cin.Access]) -> dict[Leaders, cin.Stmt]:
    """The cases of a loop: for each set of leaders that matters, what is left to do when only these are present.

    Keys are sorted by size, largest first; the empty key means that work remains without any leader.
    """
    cases: dict[Leaders, cin.Stmt] = {}
    for size in range(len(leaders), -1, -1):
        for present in combinations(leaders, size):
            left = simplify.exhaust_stmt(body, frozenset(leaders) - set(present))
            if left is None:
                continue
            key = frozenset(a for a in cin.accesses(left) if a in present)
            if len(key) < size and simplify.exhaust_stmt(body, frozenset(leaders) - key) != left:
                key = frozenset(present)  # 0 / B[i] is 0 where B is stored and 0 / 0 elsewhere: B still matters
            cases.setdefault(key, left)
    return dict(sorted(cases.items(), key=lambda item: -len(item[0])))


def find_leaders(body: cin.Stmt, sparse: list[cin.Access], env: Env) -> list[cin.Access]:
    """Those of the accesses `sparse` that must be walked. The others follow: their coordinates are located one by one, in
    constant time, and nothing is left to do where the leaders are absent."""
    leaders = list(sparse)
    levels = {a: a.tensor.format.levels[env.cursors[a].level] for a in sparse}
    for access in sorted(sparse, key=lambda a: levels[a].ordered):
        rest = [a for a in leaders if a is not access]
        if levels[access].locates and rest and simplify.exhaust_stmt(body, rest) is None:
            leaders = rest
    assert all(levels[a].ordered for a in leaders), "unordered levels are never walked: see adapt.readable"
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


def _readable(lowering: Lowering, access: cin.Access) -> Input | Workspace:
    operand = lowering.operands[access.tensor.name]
    assert isinstance(operand, Input | Workspace)
    return operand


def _walker(lowering: Lowering, access: cin.Access, env: Env) -> Walker:
    cursor, form = env.cursors[access], access.tensor.format
    ranged = cursor.level + 1 < len(form.levels) and form.continues(cursor.level + 1)
    operand = _readable(lowering, access)
    if form.continues(cursor.level):
        assert cursor.end is not None
        within = operand.within(lowering.b, cursor.level, cursor.pos, cursor.end)
        return Walker(access, cursor.level, within, ranged)
    segment = operand.segment(lowering.b, cursor.level, _place(lowering, access, env))
    return Walker(access, cursor.level, segment, ranged)


def _place(lowering: Lowering, access: cin.Access, env: Env) -> Place:
    """Where the next level of `access` is asked for its coordinates."""
    cursor = env.cursors[access]
    above = None
    if cursor.level:
        above = env.coordinate(lowering.b, access.level_index(cursor.level - 1))
    return Place(cursor.pos, lowering.extent_of_level(access, cursor.level), above)


def _side_by_side(walker: Walker) -> bool:
    """Whether the places of a walk are consecutive and each has its own coordinate."""
    return not walker.ranged and walker.segment.after is None


def _fiber(lowering: Lowering, stmt: cin.Forall, env: Env) -> tuple[int, Val] | None:
    """The output level that this loop fills, with its parent position, when it starts a segment."""
    output = lowering.output
    for write in cin.writes(stmt.body):
        lhs = write.lhs
        if lhs.tensor.name == output.tensor.name:
            cursor = env.cursors[lhs]
            if cursor.level in output.heads and lhs.level_index(cursor.level) == stmt.var:
                return cursor.level, cursor.pos
    return None


def _visit(lowering: Lowering, stmt: cin.Stmt, var: cin.IndexVar, coordinate: Val, env: Env) -> None:
    """The body at one coordinate, between entering and leaving the output's level where this loop appends."""
    b, output = lowering.b, lowering.output
    env = env.bind(var, coordinate)
    target = next((w.lhs for w in cin.writes(stmt) if w.lhs.tensor.name == output.tensor.name), None)
    level = None
    if target is not None:
        cursor = env.cursors[target]
        if cursor.level in output.sparse and target.level_index(cursor.level) == var:
            level = cursor.level
            position = output.enter(b, level, env.level_coordinates(b, target))
            env = env.with_cursors({target: Cursor(level + 1, cursor.pos if position is None else position)})
    lowering.guarded(stmt, lowering.resolve(env, stmt))
    if level is not None:
        output.leave(b, level)


At = Callable[[Val, Leaders, dict[cin.Access, Cursor]], None]


def _segment_end(lowering: Lowering, walker: Walker, position: Val, coordinate: Val) -> Val:
    """The first position after `position` with another coordinate (never reads past the end)."""
    b, segment = lowering.b, walker.segment
    end = b.var("seg", b.add(position, 1))
    going = b.var("going", b.lt(b.get(end), segment.hi))
    with b.while_(lambda: b.get(going)):
        same = b.eq(segment.coordinate(b.get(end)), coordinate)
        b.increment(end, b.convert("zext", same, "i64"))
        b.set(going, b.and_(same, b.lt(b.get(end), segment.hi)))
    return b.get(end)


def _single(lowering: Lowering, walker: Walker, var: cin.IndexVar, key: Leaders, at: At) -> None:
    b, segment = lowering.b, walker.segment
    if _side_by_side(walker):
        with b.for_(segment.lo, segment.hi, "p") as place:
            coordinate = segment.coordinate(place)
            at(coordinate, key, {walker.access: walker.cursor(place, None, coordinate)})
        return
    present = b.var("p", segment.lo)
    with b.while_(lambda: b.lt(b.get(present), segment.hi)):
        place = b.get(present)
        coordinate = segment.coordinate(place)
        end = _segment_end(lowering, walker, place, coordinate) if walker.ranged else None
        at(coordinate, key, {walker.access: walker.cursor(place, end, coordinate)})
        b.set(present, walker.after(b, place, coordinate) if end is None else end)


def _intersection(lowering: Lowering, walkers: list[Walker], key: Leaders, at: At) -> None:
    b = lowering.b
    present = [b.var("p", w.segment.lo) for w in walkers]

    def inside() -> Val:
        return b.and_(*(b.lt(b.get(p), w.segment.hi) for p, w in zip(present, walkers, strict=True)))

    with b.while_(inside):
        places = [b.get(p) for p in present]
        x, y = (w.segment.coordinate(p) for w, p in zip(walkers, places, strict=True))
        with b.if_(b.eq(x, y)):
            at(x, key, {w.access: w.cursor(p, None, x) for w, p in zip(walkers, places, strict=True)})
        b.set(present[0], b.add(places[0], b.convert("zext", b.compare("sle", x, y), "i64")))
        b.set(present[1], b.add(places[1], b.convert("zext", b.compare("sle", y, x), "i64")))


def _start(lowering: Lowering, walker: Walker) -> None:
    walker.at = lowering.b.var("p", walker.segment.lo)
    walker.here = lowering.b.var("c", lowering.b.i64(END))
    _look(lowering, walker)


def _look(lowering: Lowering, walker: Walker) -> None:
    """Read the coordinate at the walker's position; END behind the last."""
    b = lowering.b
    assert walker.at is not None and walker.here is not None
    at, here = walker.at, walker.here
    position = b.get(at)

    def read() -> None:
        b.set(here, walker.segment.coordinate(position))

    b.if_else(b.lt(position, walker.segment.hi), read, lambda: b.set(here, b.i64(END)))


def _match(
    lowering: Lowering, walkers: dict[cin.Access, Walker], coordinate: Val, cases: dict[Leaders, cin.Stmt], at: At
) -> None:
    """Run the first case all of whose leaders are at `coordinate`, then move these leaders on."""
    b = lowering.b
    hit = {}
    ends: dict[cin.Access, Var] = {}
    for access, walker in walkers.items():
        assert walker.at is not None and walker.here is not None
        hit[access] = b.eq(b.get(walker.here), coordinate)
        if walker.ranged:
            ends[access] = b.var("next", b.get(walker.at))
            with b.if_(hit[access]):
                b.set(ends[access], _segment_end(lowering, walker, b.get(walker.at), coordinate))

    def matched(key: Leaders) -> dict[cin.Access, Cursor]:
        found = {}
        for access in key:
            walker = walkers[access]
            assert walker.at is not None
            end = b.get(ends[access]) if walker.ranged else None
            found[access] = walker.cursor(b.get(walker.at), end, coordinate)
        return found

    def chain(keys: list[Leaders]) -> None:
        if not keys:
            return
        key, rest = keys[0], keys[1:]
        if not key:
            at(coordinate, key, {})
            return
        condition = None
        for access in walkers:
            if access in key:
                condition = hit[access] if condition is None else b.and_(condition, hit[access])
        assert condition is not None
        b.if_else(condition, lambda: at(coordinate, key, matched(key)), (lambda: chain(rest)) if rest else None)

    chain(list(cases))
    for access, walker in walkers.items():
        assert walker.at is not None
        with b.if_(hit[access]):
            place = b.get(walker.at)
            b.set(walker.at, b.get(ends[access]) if walker.ranged else walker.after(b, place, coordinate))
            _look(lowering, walker)


def _universe(
    lowering: Lowering,
    extent: Val,
    var: cin.IndexVar,
    walkers: dict[cin.Access, Walker],
    cases: dict[Leaders, cin.Stmt],
    at: At,
) -> None:
    for walker in walkers.values():
        _start(lowering, walker)
    with lowering.b.for_(lowering.b.i64(0), extent, var.name) as coordinate:
        _match(lowering, walkers, coordinate, cases, at)


def _sentinel(lowering: Lowering, walkers: dict[cin.Access, Walker], cases: dict[Leaders, cin.Stmt], at: At) -> None:
    b = lowering.b
    for walker in walkers.values():
        _start(lowering, walker)
    minimal = [k for k in cases if not any(other < k for other in cases)]
    # a leader that is a case by itself is never behind the smallest coordinate, unless a case of several skips ahead
    alone = {a for k in minimal if len(k) == 1 for a in k} if all(len(k) == 1 for k in minimal) else set()
    lagging = [walker for access, walker in walkers.items() if access not in alone]

    def here(access: cin.Access) -> Val:
        walker = walkers[access]
        assert walker.here is not None
        return b.get(walker.here)

    def candidate() -> Val:
        lowest: Val | None = None
        for key in minimal:
            needs: Val | None = None
            for access in walkers:
                if access in key:
                    needs = here(access) if needs is None else b.max(needs, here(access))
            assert needs is not None
            lowest = needs if lowest is None else b.min(lowest, needs)
        assert lowest is not None
        return lowest

    place = b.var("v", candidate())
    with b.while_(lambda: b.ne(b.get(place), END)):
        coordinate = b.get(place)
        for walker in lagging:
            _catch_up(lowering, walker, coordinate)
        _match(lowering, walkers, coordinate, cases, at)
        b.set(place, candidate())


def _catch_up(lowering: Lowering, walker: Walker, coordinate: Val) -> None:
    """Move a walker to the first coordinate that is not below `coordinate`."""
    b = lowering.b
    assert walker.at is not None and walker.here is not None
    at, here = walker.at, walker.here
    with b.while_(lambda: b.lt(b.get(here), coordinate)):
        b.set(at, walker.after(b, b.get(at), b.get(here)))
        _look(lowering, walker)


def search(lowering: Lowering, access: cin.Access, env: Env, coordinate: Val) -> Cursor:
    """Resolve a sparse level at a known coordinate: by its own `locate`, else by binary search in its segment."""
    b, level = lowering.b, env.cursors[access].level
    if not access.tensor.format.continues(level):
        located = _readable(lowering, access).locate(b, level, _place(lowering, access, env), coordinate)
        if located is not None:
            return Cursor(level + 1, located[0], None, located[1])
    walker = _walker(lowering, access, env)
    segment = walker.segment

    def lower_bound(target: Val) -> Val:
        lo, hi = b.var("lo", segment.lo), b.var("hi", segment.hi)
        with b.while_(lambda: b.lt(b.get(lo), b.get(hi))):
            half = b.binary("ashr", b.add(b.get(lo), b.get(hi)), b.i64(1))
            below = b.lt(segment.coordinate(half), target)
            b.set(lo, b.select(below, b.add(half, 1), b.get(lo)))
            b.set(hi, b.select(below, b.get(hi), half))
        return b.get(lo)

    first = lower_bound(coordinate)
    if walker.ranged:
        end = lower_bound(b.add(coordinate, b.i64(1)))
        return Cursor(level + 1, first, end, b.lt(first, end))
    hit = b.var("hit", b.const("i1", 0))
    with b.if_(b.lt(first, segment.hi)):
        b.set(hit, b.eq(segment.coordinate(first), coordinate))
    return Cursor(level + 1, segment.child(first, coordinate), None, b.get(hit))
